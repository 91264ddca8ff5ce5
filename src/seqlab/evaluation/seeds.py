"""How sure a figure is that is the mean over several trainings: seeds are drawn as well as the text they are judged on.

Blocks of a text have neighbours and documents: how far their figure strays is what `spread` says. Rows such as those of
a table follow each other by chance (`ordered=False`): they are resampled. Both allow for how few seeds there are. One
run alone has no spread over seeds: its interval leaves out the luck of the seed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.evaluation.spread import Spread, spread_of
from seqlab.evaluation.statistics import (
    FEW_ROWS,
    GATHERED,
    LEVEL,
    NATS_PER_BIT,
    NORMAL,
    RESAMPLES,
    Difference,
    Interval,
    Numbers,
    Places,
    interval_around,
    surely,
)

Group = tuple[float, Numbers]  # sign, scores (S, n)


@dataclass(frozen=True)
class SeedDifference(Difference):
    """The difference of two models, each the mean over its runs, and where its noise comes from."""

    spreads: tuple[float, float]  # s_a, s_b: standard deviation of one run's figure over the seeds, of their own luck
    block_variance: float  # v: what more seeds do not reduce


# --------------------------------------------------------------------------- a text


@dataclass(frozen=True)
class OverText:
    """A figure over blocks of a text, how it strays, and its two sources of noise."""

    value: float
    spread: Spread
    spreads: tuple[float, ...]
    block_variance: float
    blocks: Numbers  # scores of each block, every seed counted once

    def interval(self, sizes: NDArray[Any], documents: Places | None) -> Interval:
        return interval_around(self.value, self.spread, self.blocks / sizes, documents)


def over_text(groups: Sequence[Group], sizes: NDArray[Any], documents: Places | None, scale: float) -> OverText:
    """Seeds and text stray independently:

        figure = Σ_g sign_g · mean over the runs of g of  Σ_b scores / (scale · Σ_b sizes)
        groups: (sign, scores (S, n))

    V_g = s_g²/S_g, the variance of the seeds' mean, with S_g − 1 degrees of freedom, stands beside that of the text.
    """
    blocks = np.sum([sign * scores.mean(0) for sign, scores in groups], axis=0) / scale
    each = [scores.sum(1) / (scale * sizes.sum()) for _, scores in groups]
    spreads = tuple(_deviation(runs) for runs in each)
    luck = [(s * s / len(runs), len(runs) - 1) for s, runs in zip(spreads, each, strict=True) if len(runs) > 1]
    text = spread_of(blocks, sizes, documents)
    return OverText(float(blocks.sum() / sizes.sum()), text.beside(luck), spreads, text.variance, blocks)


def _deviation(runs: Numbers) -> float:
    """Standard deviation of the runs' figures; 0 of one."""
    return float(runs.std(ddof=1)) if len(runs) > 1 else 0.0


# --------------------------------------------------------------------------- rows


@dataclass(frozen=True)
class Resampled:
    """A figure over rows, how it strays under the two-level bootstrap, and its two sources of noise."""

    value: float
    strayed: Numbers
    spreads: tuple[float, ...]
    block_variance: float

    @property
    def limits(self) -> tuple[float, float]:
        low, high = np.quantile(self.value + self.strayed, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)


def two_level(
    groups: Sequence[Group], sizes: NDArray[Any], *, resamples: int = RESAMPLES, seed: int = 0, scale: float
) -> Resampled:
    """Seeds and rows drawn with replacement; the rows are the same for every run of every group.

    S seeds drawn from S vary too little, by √((S−1)/S): their weights stray by √(S/(S−1)) as much. And S seeds
    say little about their own spread, so each deviation is divided by √(χ²_ν/ν), which turns a normal into
    Student's t, with Welch and Satterthwaite's  ν = (Σ V_g + v)² / (Σ V_g²/(S_g − 1) + v²/(n − 1)),
    V_g = s_g²/S_g the variance of the seeds' mean, v that of the rows. Seeds stray only by what is their own
    (`own_luck`).
    """
    draw = np.random.default_rng([seed, len(sizes)])
    alike, kinds, repeats = _alike(groups, sizes)
    luck = [own_luck(scores, sizes) for _, scores in groups]
    drawn = [_drawn(draw, rows, alike, kinds, scale, repeats, luck) for rows in _in_pieces(resamples, len(kinds))]
    each = [scores.sum(1) / (scale * sizes.sum()) for _, scores in groups]
    value = float(sum(sign * runs.mean() for (sign, _), runs in zip(groups, each, strict=True)))
    spreads = tuple(_deviation(runs) for runs in each)
    variance = float(np.concatenate([rows_alone for _, rows_alone in drawn]).var())
    seed_parts = [(s * s / len(runs), len(runs)) for s, runs in zip(spreads, each, strict=True)]
    freedom = _freedom(seed_parts, variance, len(sizes))
    strayed = np.concatenate([figures for figures, _ in drawn]) - value
    if math.isfinite(freedom):
        strayed /= np.sqrt(draw.chisquare(freedom, resamples) / freedom)
    return Resampled(value, strayed, tuple(s * own for s, own in zip(spreads, luck, strict=True)), variance)


def own_luck(scores: Numbers, sizes: NDArray[Any]) -> float:
    """How much of the spread of the runs' figures is the seeds' own: √(1 − noise / s²), 0 where rows explain it all.

        noise = Σ_b Σ_s e² / (S − 1) / (Σ_b sizes)²       e (S, n): the scores less those of the row and of the run

    Equally good runs get other rows wrong, so their figures differ by chance, which s² = var_s(figure) holds as
    well; but the draw of the rows allows for that already. (In a block of text, of many tokens, it is nothing.)
    """
    rates = scores.sum(1) / sizes.sum()
    if len(scores) < 2 or np.ptp(rates) == 0:
        return 0.0
    left = scores - scores.mean(0) - np.outer(rates - rates.mean(), sizes)
    noise = float((left * left).sum()) / (len(scores) - 1) / float(sizes.sum()) ** 2
    return math.sqrt(max(0.0, 1 - noise / float(rates.var(ddof=1))))


def _in_pieces(resamples: int, kinds: int) -> list[int]:
    """The resamples, cut so that no more than `GATHERED` numbers are held at once."""
    rows = max(1, GATHERED // kinds)
    return [min(rows, resamples - done) for done in range(0, resamples, rows)]


def _alike(groups: Sequence[Group], sizes: NDArray[Any]) -> tuple[Sequence[Group], NDArray[Any], Places]:
    """Rows of the same size and scores, such as all rows that everybody gets right, as one with its number.

    Drawing how often each kind comes up is drawing the rows themselves, and far quicker.
    """
    table = np.vstack([sizes, *(scores for _, scores in groups)]).astype(np.float64)
    kinds, repeats = np.unique(table, axis=1, return_counts=True)
    cuts = np.cumsum([1, *(len(scores) for _, scores in groups)])
    parts = [(sign, kinds[a:b]) for (sign, _), (a, b) in zip(groups, itertools.pairwise(cuts), strict=True)]
    return parts, kinds[0], repeats


def _drawn(
    draw: np.random.Generator,
    rows: int,
    groups: Sequence[Group],
    sizes: NDArray[Any],
    scale: float,
    repeats: Places,
    luck: Sequence[float],
) -> tuple[Numbers, Numbers]:
    """`rows` resamples of the figure: of seeds and rows, and of the same rows with every seed counted once."""
    total = int(repeats.sum())
    times = draw.multinomial(total, repeats / total, size=rows).astype(np.float64)  # how often each kind is drawn
    below = scale * (times @ sizes)
    figure, alone = np.zeros(rows), np.zeros(rows)
    for (sign, scores), own in zip(groups, luck, strict=True):
        ratios = times @ scores.T / below[:, None]  # (rows, S)
        figure += sign * (ratios * _seed_weights(draw, rows, len(scores), own)).sum(1)
        alone += sign * ratios.mean(1)
    return figure, alone


def _seed_weights(draw: np.random.Generator, rows: int, seeds: int, own: float) -> Numbers:
    """How much each run counts in each resample: 1/S, and `own` of the deviations, widened by √(S/(S−1))."""
    if seeds == 1:
        return np.ones((rows, 1))
    weights = draw.multinomial(seeds, np.full(seeds, 1 / seeds), size=rows) / seeds
    widened: Numbers = 1 / seeds + (weights - 1 / seeds) * (own * math.sqrt(seeds / (seeds - 1)))
    return widened


def _freedom(seed_parts: Sequence[tuple[float, int]], row_variance: float, rows: int) -> float:
    """Welch and Satterthwaite's degrees of freedom; those of the rows where no seed part has any variance."""
    lucky = [(variance, seeds) for variance, seeds in seed_parts if seeds > 1 and variance > 0]
    if rows < 2:
        return math.inf
    if not lucky:
        return rows - 1
    total = row_variance + sum(variance for variance, _ in lucky)
    uncertain = sum(variance**2 / (seeds - 1) for variance, seeds in lucky) + row_variance**2 / (rows - 1)
    return total**2 / uncertain


# --------------------------------------------------------------------------- either


def interval_of_runs(
    runs: Numbers,
    sizes: NDArray[Any],
    *,
    documents: Places | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    scale: float = NATS_PER_BIT,
    ordered: bool = True,
) -> Interval:
    """The interval of a model's figure, the mean over its runs; runs (S, n) holds each block's score."""
    if ordered:
        return over_text([(1.0, runs)], sizes, documents, scale).interval(sizes, documents)
    found = two_level([(1.0, runs)], sizes, resamples=resamples, seed=seed, scale=scale)
    return Interval(*found.limits, len(sizes), enough=FEW_ROWS)


def compare_runs(
    a: Numbers,
    b: Numbers,
    sizes: NDArray[Any],
    *,
    documents: Places | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    scale: float = NATS_PER_BIT,
    ordered: bool = True,
) -> SeedDifference:
    """Paired over the blocks, independent over the seeds; a (S_a, n), b (S_b, n). p as in `compare`."""
    groups = [(1.0, a), (-1.0, b)]
    found: OverText | Resampled
    if ordered:
        found = over_text(groups, sizes, documents, scale)
        interval = found.interval(sizes, documents)
        p = surely(found.spread.p(found.value), len(sizes))
    else:
        found = two_level(groups, sizes, resamples=resamples, seed=seed, scale=scale)
        interval = Interval(*found.limits, len(sizes), enough=FEW_ROWS)
        p = p_value(found.value, found.strayed, telling_rows(a.mean(0) - b.mean(0)))
    spreads = (found.spreads[0], found.spreads[1])
    return SeedDifference(found.value, interval, p, spreads, found.block_variance)


def p_value(value: float, strayed: Numbers, rows: int) -> float:
    """The share of strays as large as the value itself; with R of them never below 1 / (R + 1).

    n rows that speak for either side can never be surer than 2^(1−n).
    """
    far = int(np.count_nonzero(np.abs(strayed) >= abs(value) * (1 - 1e-12)))
    return surely((1 + far) / (len(strayed) + 1), rows)


def telling_rows(differences: Numbers) -> int:
    """How many rows speak for either side; none of those that both get right or both get wrong."""
    return max(1, int(np.count_nonzero(differences)))


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
