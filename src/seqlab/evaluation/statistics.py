"""How sure a figure is: block bootstrap over the text, paired tests between models, Holm's correction.

The tokens of a text are not independent, stretches of about a thousand bytes nearly are. The text is cut
into such blocks at white space; a token belongs to the block in which it starts. With s_b nats and n_b bytes
in block b, bits per byte are Σ s_b / (ln 2 · Σ n_b); the bootstrap draws as many blocks as there are, with
replacement, and takes the middle 95 % of the figure's values. Where neighbouring blocks are still correlated,
two, four, … of them are drawn as one.

What is scored need not be nats: `scale` is how much of a score makes one unit of the figure. ln 2 nats are a bit;
errors are counted as they are, scale 1. Models that were trained with several seeds are judged in `seeds`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.types import Surprisals

BLOCK_BYTES = 1000
FEW_BLOCKS = 30  # below, the sheet says that the interval is unreliable
MUCH_CORRELATION = 0.3  # between neighbouring blocks: from here on the sheet says that the interval is too narrow
LEVEL = 0.95
NORMAL = 1.96  # standard errors that a 95 % interval reaches to either side
RESAMPLES = 9_999
NATS_PER_BIT = math.log(2)
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
    joined: int = 1  # how many blocks of about 1,000 bytes were drawn as one, since they are correlated

    @property
    def caution(self) -> str | None:
        """Why not to trust it, if there is a reason; the blocks are those of a text."""
        return self.caution_about(f"blocks of about {BLOCK_BYTES * self.joined:,} bytes")

    def caution_about(self, blocks: str) -> str | None:
        """The same, with a word for the blocks."""
        if self.blocks < FEW_BLOCKS:
            return f"only {self.blocks} {blocks}: the interval is unreliable"
        if self.correlation > MUCH_CORRELATION:
            return f"even {blocks} are correlated ({self.correlation:.2f}): the interval is too narrow"
        return None


@dataclass(frozen=True)
class Difference:
    """Model a minus model b on the same blocks, in units of the figure; negative: a is better."""

    value: float
    interval: Interval
    p: float


def block_edges(content: bytes, size: int = BLOCK_BYTES) -> Places:
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


def equal_rows(rows: Sequence[Hashable]) -> Places:
    """The block that each row belongs to, (n,): equal rows form one, numbered as they first come."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(row, len(numbers)) for row in rows], np.int64)


def resampled_ratios(above: Numbers, below: NDArray[Any], *, resamples: int = RESAMPLES, seed: int = 0) -> Numbers:
    """Σ above / Σ below over blocks drawn with replacement, many times."""
    draw = np.random.default_rng([seed, len(above)])
    ratios: list[Numbers] = []
    rows = max(1, GATHERED // len(above))
    for done in range(0, resamples, rows):
        picked = draw.integers(len(above), size=(min(rows, resamples - done), len(above)))
        ratios.append(above[picked].sum(1) / below[picked].sum(1))
    return np.concatenate(ratios)


def blocks_to_join(rates: Numbers) -> int:
    """How many neighbouring blocks to draw as one: doubled while they are correlated and 30 would be left.

    A text whose hard and easy stretches are longer than a block has fewer independent pieces than blocks.
    """
    times = 1
    while neighbour_correlation(rates) > MUCH_CORRELATION and len(rates) // 2 >= FEW_BLOCKS:
        rates, times = join(rates, 2) / join(np.ones(len(rates)), 2), 2 * times
    return times


def join(values: NDArray[Any], times: int) -> NDArray[Any]:
    """Sums over `times` neighbours along the last dimension; the last group takes the rest."""
    if times == 1:
        return values
    joined: NDArray[Any] = np.add.reduceat(values, np.arange(values.shape[-1] // times) * times, axis=-1)
    return joined


def interval_of(
    scores: Numbers,
    sizes: NDArray[Any],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    scale: float = NATS_PER_BIT,
) -> Interval:
    """The interval of Σ scores / (scale · Σ sizes): bits per byte, if the scores are nats and the sizes bytes."""
    times = blocks_to_join(scores / sizes)
    scores, sizes = join(scores, times), join(sizes, times)
    value, strayed = strays(scores, sizes, resamples=resamples, seed=seed, scale=scale)
    low, high = np.quantile(value + strayed, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high), len(scores), neighbour_correlation(scores / sizes), times)


def strays(
    scores: Numbers, sizes: NDArray[Any], *, resamples: int, seed: int, scale: float = NATS_PER_BIT
) -> tuple[float, Numbers]:
    """Σ scores / (scale · Σ sizes), and how far it strays when the n blocks are resampled.

    Few blocks say little about their own spread: each deviation is widened by √(n/(n−1)) and divided by
    √(χ²_{n−1}/(n−1)), which turns a normal into Student's t.
    """
    n = len(scores)
    value = float(scores.sum() / sizes.sum()) / scale
    strayed = resampled_ratios(scores, sizes, resamples=resamples, seed=seed) / scale - value
    if n > 1:
        spread = np.random.default_rng([seed, n, 1]).chisquare(n - 1, resamples) / (n - 1)
        strayed *= math.sqrt(n / (n - 1)) / np.sqrt(spread)
    return value, strayed


def p_value(value: float, strayed: Numbers, blocks: int) -> float:
    """The share of strays as large as the value itself; n blocks can never be surer than 2^(1−n)."""
    far = int(np.count_nonzero(np.abs(strayed) >= abs(value) * (1 - 1e-12)))
    return max((1 + far) / (len(strayed) + 1), 2.0 ** (1 - min(blocks, 1000)))


def compare(
    a: Numbers,
    b: Numbers,
    sizes: NDArray[Any],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    scale: float = NATS_PER_BIT,
) -> Difference:
    """Paired: the blocks' differences are resampled.

    p is the share of resamples in which the difference strays from its value by as much as that value is
    from zero; with R resamples it is never below 1 / (R + 1).
    """
    times = blocks_to_join((a - b) / sizes)
    differences, sizes = join(a - b, times), join(sizes, times)
    value, strayed = strays(differences, sizes, resamples=resamples, seed=seed, scale=scale)
    low, high = np.quantile(value + strayed, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    correlation = neighbour_correlation(differences / sizes)
    interval = Interval(float(low), float(high), len(differences), correlation, times)
    return Difference(value, interval, p_value(value, strayed, len(differences)))


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
