"""What a run folder records beside its settings: the text, the sizes, the versions."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import torch

import seqlab
from seqlab.workflows.prepared import Prepared


def facts_of(prepared: Prepared, parameters: int, flags: dict[str, Any]) -> dict[str, Any]:
    text = prepared.text
    return {
        "asked": {k: v for k, v in flags.items() if v is not None},
        "threads": torch.get_num_threads(),
        "parameters": parameters,
        "vocab_size": prepared.tokenizer.vocab_size,
        "text_name": text.name,
        "text_bytes": text.bytes,
        "text_sha256": text.sha256,
        "licence": text.licence,
        "tokenizer_sha256": prepared.tokenizer.sha256,
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    return {
        "seqlab": seqlab.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
    }
