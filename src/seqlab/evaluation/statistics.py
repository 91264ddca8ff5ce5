"""How sure a figure is: block bootstrap over the text, paired tests between models, Holm's correction.

The tokens of a text are not independent, stretches of about a thousand bytes nearly are. The text is cut
into such blocks at white space; a token belongs to the block in which it starts. With s_b nats and n_b bytes
in block b, bits per byte are Σ s_b / (ln 2 · Σ n_b); the bootstrap draws as many blocks as there are, with
replacement, and takes the middle 95 % of the figure's values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.types import Surprisals

BLOCK_BYTES = 1000
FEW_BLOCKS = 30  # below, the sheet says that the interval is unreliable
MUCH_CORRELATION = 0.3  # between neighbouring blocks: from here on the sheet says that the interval is too narrow
LEVEL = 0.95
RESAMPLES = 9_999
GATHERED = 1 << 22  # numbers held at once
WHITE = b" \t\n\r\x0b\x0c"

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Interval:
    """Where a figure lies in the middle 95 % of the resamples."""

    low: float
    high: float
    blocks: int
    correlation: float = 0.0  # of neighbouring blocks

    @property
    def caution(self) -> str | None:
        """Why not to trust it, if there is a reason."""
        if self.blocks < FEW_BLOCKS:
            return f"only {self.blocks} blocks of about {BLOCK_BYTES:,} bytes: the interval is unreliable"
        if self.correlation > MUCH_CORRELATION:
            return f"neighbouring blocks are correlated ({self.correlation:.2f}): the interval is too narrow"
        return None


@dataclass(frozen=True)
class Difference:
    """Model a minus model b on the same blocks, in bits per byte; negative: a is better."""

    value: float
    interval: Interval
    p: float


def cut_blocks(content: bytes, size: int = BLOCK_BYTES) -> Places:
    """Byte positions where the blocks begin, and the end: every `size` bytes, moved on to the next white space."""
    is_white = np.isin(np.frombuffer(content, np.uint8), np.frombuffer(WHITE, np.uint8))
    white = np.flatnonzero(is_white)
    wanted = np.arange(size, len(content), size)
    after = np.searchsorted(white, wanted)
    found = white[after[after < len(white)]]
    edges = np.unique(np.concatenate([[0], found, [len(content)]]))
    # A tail too short to be a block of its own belongs to the last one.
    if len(edges) > 2 and edges[-1] - edges[-2] < size // 2:
        edges = np.delete(edges, -2)
    return edges.astype(np.int64)


def block_sums(surprisals: Surprisals, edges: Places) -> Numbers:
    """nats in each block; a token counts where it starts."""
    blocks = np.searchsorted(edges, surprisals.start, side="right") - 1
    return np.bincount(blocks.clip(0, len(edges) - 2), surprisals.nats, len(edges) - 1).astype(np.float64)


def resampled_ratios(above: Numbers, below: NDArray[Any], *, resamples: int = RESAMPLES, seed: int = 0) -> Numbers:
    """Σ above / Σ below over blocks drawn with replacement, many times."""
    draw = np.random.default_rng([seed, len(above)])
    ratios: list[Numbers] = []
    rows = max(1, GATHERED // len(above))
    for done in range(0, resamples, rows):
        picked = draw.integers(len(above), size=(min(rows, resamples - done), len(above)))
        ratios.append(above[picked].sum(1) / below[picked].sum(1))
    return np.concatenate(ratios)


def interval_of(nats: Numbers, sizes: NDArray[Any], *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The interval of Σ nats / (ln 2 · Σ sizes): bits per byte, if the sizes are bytes."""
    ratios = resampled_ratios(nats, sizes, resamples=resamples, seed=seed) / math.log(2)
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high), len(nats), neighbour_correlation(nats / sizes))


def compare(a: Numbers, b: Numbers, sizes: NDArray[Any], *, resamples: int = RESAMPLES, seed: int = 0) -> Difference:
    """Paired: the blocks' differences are resampled.

    p is the share of resamples in which the difference strays from its value by as much as that value is
    from zero; with R resamples it is never below 1 / (R + 1).
    """
    differences = a - b
    value = float(differences.sum() / sizes.sum()) / math.log(2)
    ratios = resampled_ratios(differences, sizes, resamples=resamples, seed=seed) / math.log(2)
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    stray = int(np.count_nonzero(np.abs(ratios - value) >= abs(value) * (1 - 1e-12)))
    correlation = neighbour_correlation(differences / sizes)
    return Difference(value, Interval(float(low), float(high), len(a), correlation), (1 + stray) / (resamples + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: p values that allow for how many there are; the smallest is multiplied by all of them."""
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, k in enumerate(sorted(range(len(p_values)), key=lambda k: p_values[k])):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[k]))
        adjusted[k] = running
    return adjusted


def neighbour_correlation(values: Numbers) -> float:
    """Correlation of each value with the next one; 0 where there is nothing to correlate."""
    if len(values) < 3 or np.ptp(values) == 0:
        return 0.0
    centred = values - values.mean()
    return float((centred[1:] * centred[:-1]).sum() / (centred * centred).sum())
