"""What a run folder records beside its settings, what its lines are called, and who a run is."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import torch

import seqlab
from seqlab.core.files import canonical_json, sha256_of
from seqlab.core.settings.fields import what_decides
from seqlab.runs.folder import Line


def versions() -> dict[str, str]:
    return {
        "seqlab": seqlab.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
    }


def identity_of(kind: str, settings: Any, record: dict[str, Any]) -> str:
    """Everything that decides the bits of a run, hashed: no path, no time, nothing random.

    A run from other weights (`--from`) is another one, so the parent's identity counts, and so do the threads.
    """
    parent = {k: v for k, v in record.get("from", {}).items() if k != "run"}
    decisive = {key: record.get(key) for key in ("steps", "threads", "checksums", "versions")}
    return sha256_of(canonical_json({"kind": kind, "settings": what_decides(settings), "from": parent, **decisive}))


def training_key(unit: str) -> str:
    """What the mean training loss is called in the metrics; the task says in which unit it is."""
    return f"train_{unit}"


def validation_key(unit: str) -> str:
    return f"validation_{unit}"


Curve = list[tuple[float, float]]


def learning_curves(lines: list[Line], unit: str, counted: str) -> tuple[Curve, Curve]:
    """(units trained on, training loss) and (units trained on, validation) of the lines on the way."""
    on_the_way = [line for line in lines if not line.get("final")]

    def curve(key: str) -> Curve:
        return [(line[counted], line[key]) for line in on_the_way if key in line]

    return curve(training_key(unit)), curve(validation_key(unit))
