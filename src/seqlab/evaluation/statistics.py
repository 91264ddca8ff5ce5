"""How sure a figure is: block bootstrap over the text, paired tests between models, Holm's correction.

The tokens of a text are not independent, stretches of about a thousand bytes nearly are. The text is cut
into such blocks at white space; a token belongs to the block in which it starts. With s_b nats and n_b bytes
in block b, bits per byte are Σ s_b / (ln 2 · Σ n_b); the bootstrap draws as many blocks as there are, with
replacement, and takes the middle 95 % of the figure's values. Where neighbouring blocks are still correlated,
two, four, … of them are drawn as one.

A model that was trained with several seeds is judged by the mean over its runs; the bootstrap then draws seeds
as well as blocks, and allows for how few seeds there are (`two_level`).
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
NORMAL = 1.96  # standard errors that a 95 % interval reaches to either side
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
    joined: int = 1  # how many blocks of about 1,000 bytes were drawn as one, since they are correlated

    @property
    def caution(self) -> str | None:
        """Why not to trust it, if there is a reason."""
        size = f"{BLOCK_BYTES * self.joined:,} bytes"
        if self.blocks < FEW_BLOCKS:
            return f"only {self.blocks} blocks of about {size}: the interval is unreliable"
        if self.correlation > MUCH_CORRELATION:
            return f"even blocks of about {size} are correlated ({self.correlation:.2f}): the interval is too narrow"
        return None


@dataclass(frozen=True)
class Difference:
    """Model a minus model b on the same blocks, in bits per byte; negative: a is better."""

    value: float
    interval: Interval
    p: float


@dataclass(frozen=True)
class SeedDifference(Difference):
    """The difference of two models, each the mean over its runs, and where its noise comes from."""

    spreads: tuple[float, float]  # s_a, s_b: standard deviation of one run's bits per byte over the seeds
    block_variance: float  # v: what more seeds do not reduce


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


def interval_of(nats: Numbers, sizes: NDArray[Any], *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The interval of Σ nats / (ln 2 · Σ sizes): bits per byte, if the sizes are bytes."""
    times = blocks_to_join(nats / sizes)
    nats, sizes = join(nats, times), join(sizes, times)
    value, strayed = strays(nats, sizes, resamples=resamples, seed=seed)
    low, high = np.quantile(value + strayed, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high), len(nats), neighbour_correlation(nats / sizes), times)


def strays(nats: Numbers, sizes: NDArray[Any], *, resamples: int, seed: int) -> tuple[float, Numbers]:
    """Bits per byte, and how far it strays when the n blocks are resampled.

    Few blocks say little about their own spread: each deviation is widened by √(n/(n−1)) and divided by
    √(χ²_{n−1}/(n−1)), which turns a normal into Student's t.
    """
    n = len(nats)
    value = float(nats.sum() / sizes.sum()) / math.log(2)
    strayed = resampled_ratios(nats, sizes, resamples=resamples, seed=seed) / math.log(2) - value
    if n > 1:
        spread = np.random.default_rng([seed, n, 1]).chisquare(n - 1, resamples) / (n - 1)
        strayed *= math.sqrt(n / (n - 1)) / np.sqrt(spread)
    return value, strayed


def p_value(value: float, strayed: Numbers, blocks: int) -> float:
    """The share of strays as large as the value itself; n blocks can never be surer than 2^(1−n)."""
    far = int(np.count_nonzero(np.abs(strayed) >= abs(value) * (1 - 1e-12)))
    return max((1 + far) / (len(strayed) + 1), 2.0 ** (1 - min(blocks, 1000)))


def compare(a: Numbers, b: Numbers, sizes: NDArray[Any], *, resamples: int = RESAMPLES, seed: int = 0) -> Difference:
    """Paired: the blocks' differences are resampled.

    p is the share of resamples in which the difference strays from its value by as much as that value is
    from zero; with R resamples it is never below 1 / (R + 1).
    """
    times = blocks_to_join((a - b) / sizes)
    differences, sizes = join(a - b, times), join(sizes, times)
    value, strayed = strays(differences, sizes, resamples=resamples, seed=seed)
    low, high = np.quantile(value + strayed, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    correlation = neighbour_correlation(differences / sizes)
    interval = Interval(float(low), float(high), len(differences), correlation, times)
    return Difference(value, interval, p_value(value, strayed, len(differences)))


@dataclass(frozen=True)
class Resampled:
    """A figure, how it strays under the two-level bootstrap, and its two sources of noise."""

    value: float
    strayed: Numbers
    spreads: tuple[float, ...]
    block_variance: float

    @property
    def limits(self) -> tuple[float, float]:
        low, high = np.quantile(self.value + self.strayed, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)


def two_level(
    groups: Sequence[tuple[float, Numbers]], sizes: NDArray[Any], *, resamples: int = RESAMPLES, seed: int = 0
) -> Resampled:
    """Seeds and blocks drawn with replacement; the blocks are the same for every run of every group.

        figure = Σ_g sign_g · mean over the runs of g of  Σ_b nats / (ln 2 · Σ_b sizes)      groups: (sign, nats (S, n))

    S seeds drawn from S vary too little, by √((S−1)/S): their weights stray by √(S/(S−1)) as much. And S seeds
    say little about their own spread, so each deviation is divided by √(χ²_ν/ν), which turns a normal into
    Student's t, with Welch and Satterthwaite's  ν = (Σ V_g + v)² / (Σ V_g²/(S_g − 1) + v²/(n − 1)),
    V_g = s_g²/S_g the variance of the seeds' mean, v that of the blocks. One run alone has no V: its interval
    leaves out the luck of the seed.
    """
    n = len(sizes)
    draw = np.random.default_rng([seed, n])
    figures: list[Numbers] = []
    blocks_alone: list[Numbers] = []
    rows = max(1, GATHERED // n)
    for done in range(0, resamples, rows):
        drawn = min(rows, resamples - done)
        picked = draw.integers(n, size=(drawn, n)) + n * np.arange(drawn)[:, None]
        times = np.bincount(picked.ravel(), minlength=drawn * n).reshape(drawn, n).astype(np.float64)
        below = math.log(2) * (times @ sizes)
        figure, alone = np.zeros(drawn), np.zeros(drawn)
        for sign, nats in groups:
            ratios = times @ nats.T / below[:, None]  # (drawn, S)
            figure += sign * (ratios * _seed_weights(draw, drawn, len(nats))).sum(1)
            alone += sign * ratios.mean(1)
        figures.append(figure)
        blocks_alone.append(alone)
    each = [nats.sum(1) / (math.log(2) * sizes.sum()) for _, nats in groups]
    value = float(sum(sign * runs.mean() for (sign, _), runs in zip(groups, each, strict=True)))
    spreads = tuple(float(runs.std(ddof=1)) if len(runs) > 1 else 0.0 for runs in each)
    variance = float(np.concatenate(blocks_alone).var())
    freedom = _freedom([(s * s / len(runs), len(runs)) for s, runs in zip(spreads, each, strict=True)], variance, n)
    strayed = np.concatenate(figures) - value
    if math.isfinite(freedom):
        strayed /= np.sqrt(draw.chisquare(freedom, resamples) / freedom)
    return Resampled(value, strayed, spreads, variance)


def _seed_weights(draw: np.random.Generator, rows: int, seeds: int) -> Numbers:
    """How much each run counts in each resample: 1/S, and the deviations from it widened by √(S/(S−1))."""
    if seeds == 1:
        return np.ones((rows, 1))
    weights = draw.multinomial(seeds, np.full(seeds, 1 / seeds), size=rows) / seeds
    widened: Numbers = 1 / seeds + (weights - 1 / seeds) * math.sqrt(seeds / (seeds - 1))
    return widened


def _freedom(seed_parts: Sequence[tuple[float, int]], block_variance: float, blocks: int) -> float:
    """Welch and Satterthwaite's degrees of freedom; those of the blocks where no seed part has any variance."""
    lucky = [(variance, seeds) for variance, seeds in seed_parts if seeds > 1 and variance > 0]
    if blocks < 2:
        return math.inf
    if not lucky:
        return blocks - 1
    total = block_variance + sum(variance for variance, _ in lucky)
    uncertain = sum(variance**2 / (seeds - 1) for variance, seeds in lucky) + block_variance**2 / (blocks - 1)
    return total**2 / uncertain


def interval_of_runs(runs: Numbers, sizes: NDArray[Any], *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The interval of a model's bits per byte, the mean over its runs; runs (S, n) holds nats per block."""
    if len(runs) == 1:
        return interval_of(runs[0], sizes, resamples=resamples, seed=seed)
    times = blocks_to_join(runs.mean(0) / sizes)
    runs, sizes = join(runs, times), join(sizes, times)
    found = two_level([(1.0, runs)], sizes, resamples=resamples, seed=seed)
    return Interval(*found.limits, len(sizes), neighbour_correlation(runs.mean(0) / sizes), times)


def compare_runs(
    a: Numbers, b: Numbers, sizes: NDArray[Any], *, resamples: int = RESAMPLES, seed: int = 0
) -> SeedDifference:
    """Paired over the blocks, independent over the seeds; a (S_a, n), b (S_b, n). p as in `compare`."""
    plain = compare(a[0], b[0], sizes, resamples=resamples, seed=seed) if len(a) == len(b) == 1 else None
    times = blocks_to_join((a.mean(0) - b.mean(0)) / sizes)
    a, b, sizes = join(a, times), join(b, times), join(sizes, times)
    found = two_level([(1.0, a), (-1.0, b)], sizes, resamples=resamples, seed=seed)
    correlation = neighbour_correlation((a.mean(0) - b.mean(0)) / sizes)
    interval = Interval(*found.limits, len(sizes), correlation, times)
    spreads = (found.spreads[0], found.spreads[1])
    p = p_value(found.value, found.strayed, len(sizes))
    if plain is not None:
        interval, p = plain.interval, plain.p
    return SeedDifference(found.value, interval, p, spreads, found.block_variance)


def seeds_to_settle(found: SeedDifference) -> float:
    """The seeds per model at which a difference of this size would be settled; infinite if they never do.

    1.96 · √((s_a² + s_b²)/n + v) < |difference|
    """
    room = (found.value / NORMAL) ** 2 - found.block_variance
    if room <= 0:
        return math.inf
    return math.floor(sum(s * s for s in found.spreads) / room) + 1


def text_to_settle(found: SeedDifference) -> float:
    """How many times the text would be needed, the seeds' luck left aside: v / k < (difference / 1.96)²."""
    return found.block_variance * (NORMAL / found.value) ** 2 if found.value else math.inf


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
