"""What a classifier says of many texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.data.label_batches import Inputs, input_batch
from seqlab.data.word_ids import IdRows

BAGS_AT_ONCE = 1024
WORDS_AT_ONCE = 16_384  # of rows that are padded to one length


def logits_of(
    model: Any,
    inputs: Inputs,
    rows: NDArray[np.int64] | None = None,
    *,
    progress: Callable[[int], None] | None = None,
) -> NDArray[np.float64]:
    """Logits of some texts, in their order; rows of similar length are read together.    (n, K)"""
    rows = np.arange(len(inputs)) if rows is None else rows
    found = np.zeros((len(rows), model.classes))
    done, was_training = 0, model.training
    model.eval()
    try:
        with torch.inference_mode():
            for places in _together(inputs, rows):
                found[places] = model(input_batch(inputs, rows[places])).double().numpy()
                done += len(places)
                if progress is not None:
                    progress(done)
    finally:
        model.train(was_training)
    return found


def _together(inputs: Inputs, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Places in `rows` that are read as one batch."""
    if not isinstance(inputs, IdRows):
        return [np.arange(k, min(k + BAGS_AT_ONCE, len(rows))) for k in range(0, len(rows), BAGS_AT_ONCE)]
    sizes = inputs.sizes[rows]
    order = np.argsort(sizes, kind="stable")
    batches, start = [], 0
    while start < len(order):
        end = start + 1
        while end < len(order) and sizes[order[end]] * (end + 1 - start) <= WORDS_AT_ONCE:
            end += 1
        batches.append(order[start:end])
        start = end
    return batches
