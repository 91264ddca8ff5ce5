"""Batches of an epoch that stand for all of them, and pieces of a batch that stand for the whole."""

from __future__ import annotations

import sys
import time
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from seqlab.core.types import Batch, TokenBatch
from seqlab.training.plan import Learning

FEW, SOME = 2, 4  # rows of the two pieces that are always rehearsed
SAMPLED = 24  # batches whose sizes are looked at
STRATA = (1 / 8, 3 / 8, 5 / 8, 7 / 8)  # of the sampled batches by size: these stand for all


def sampled(learning: Learning) -> tuple[float, list[Batch]]:
    """Seconds to make a batch, and batches of one epoch. One is enough where all are of one size."""
    batches = [learning.batches(0)]
    if isinstance(batches[0], TokenBatch) or rows_of(batches[0]) == 1:
        begun = time.perf_counter()
        learning.batches(1)
        return time.perf_counter() - begun, batches
    steps = max(1, int(learning.batches.steps_per_epoch))
    chosen = sorted({int(k) for k in np.linspace(0, steps - 1, min(steps, SAMPLED))})
    begun = time.perf_counter()
    batches = [learning.batches(step) for step in chosen]
    return (time.perf_counter() - begun) / len(chosen), batches


def strata(batches: list[Batch]) -> list[Batch]:
    by_size = sorted(batches, key=bytes_of)
    return [by_size[int(share * len(by_size))] for share in (STRATA if len(by_size) >= len(STRATA) else (0.5,))]


def two_pieces(batch: Batch) -> tuple[Batch, Batch]:
    return piece_of(batch, FEW), piece_of(batch, SOME)


def piece_of(batch: Batch, rows: int) -> Batch:
    """So many rows of it or, where it is not cut so, a few less."""
    return max(batch.cut(-(-rows_of(batch) // rows)), key=rows_of)


def rows_of(batch: Batch) -> int:
    return len(batch.cut(sys.maxsize))


def shortened(batch: TokenBatch, length: int) -> TokenBatch:
    guide = None if batch.guide is None else batch.guide[:, :length]
    return replace(batch, inputs=batch.inputs[:, :length], targets=batch.targets[:, :length], guide=guide)


def bytes_of(batch: Any) -> int:
    """Of all tensors of a batch."""
    if isinstance(batch, Tensor):
        return batch.nbytes
    return sum(bytes_of(getattr(batch, f.name)) for f in fields(batch)) if is_dataclass(batch) else 0
