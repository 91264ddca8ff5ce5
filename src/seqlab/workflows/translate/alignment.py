"""What a decoder attends to in the source while it writes a translation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.data.pair_batches import source_batch
from seqlab.workflows.translate.run import TranslatorRun

END = "⏎"


@dataclass(frozen=True)
class Alignment:
    """weights (T, S): for each piece of the translation, the share of its attention on each piece of the source."""

    source: list[str]
    target: list[str]
    weights: NDArray[np.float64]
    words: str  # what they are


@torch.no_grad()
def align(run: TranslatorRun, source: str, translation: str, to: str) -> Alignment:
    """The mean over heads of the last decoder layer's attention to the source; with a pointer, the pointer's."""
    tokenizer = run.tokenizer
    ids, written = tokenizer.encode_each([source, translation])
    assert tokenizer.end_id is not None
    memory = run.model.encode(source_batch([ids], tokenizer.end_id))
    read = torch.tensor([[tokenizer.begin_id + run.languages.tag_of(to), *written.tolist()]])
    weights, words = run.model.attention_to_source(read, memory)
    return Alignment(_pieces(tokenizer, ids), _pieces(tokenizer, written), weights[0].double().numpy(), words)


def _pieces(tokenizer: Any, ids: NDArray[np.int64]) -> list[str]:
    return [*(tokenizer.decode([int(k)]).strip() or "␣" for k in ids), END]
