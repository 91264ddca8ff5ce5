"""The verdict of a duel: figures with intervals, paired tests, and a sentence that says who won, if anybody."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.settings.duel import MOST_SEEDS
from seqlab.core.units import CHANCE, human_p
from seqlab.evaluation.seeds import SeedDifference, compare_runs, interval_of_runs, seeds_to_settle, text_to_settle
from seqlab.evaluation.statistics import BLOCK_BYTES, NORMAL, Interval, Numbers, holm
from seqlab.workflows.duel.entrants import Entrant
from seqlab.workflows.duel.progress import Progress
from seqlab.workflows.duel.terms import BITS_PER_BYTE, Terms


@dataclass(frozen=True)
class Contestant:
    """A model and what it reached, as the mean over its runs.

    The figure and the count go by their own names too: `bits_per_byte` and `tokens`, or `error_rate` and `texts`.
    """

    entrant: Entrant
    runs: list[str]
    parameters: int  # n-grams, for what is fitted by counting
    value: float
    interval: Interval
    seconds: float
    count: float  # of what it was trained on
    terms: Terms = BITS_PER_BYTE
    progress: Progress | None = None  # None: fitted

    def __getattr__(self, name: str) -> float:
        if name == self.terms.key:
            return self.value
        if name == self.terms.counted:
            return self.count
        raise AttributeError(f"a contestant has no '{name}'")

    @property
    def kind(self) -> str:
        return self.entrant.kind

    @property
    def seeds(self) -> int:
        return len(self.runs)

    def as_json(self) -> dict[str, Any]:
        cost, terms = self.entrant.cost, self.terms
        flops = {"flops_per_token": None if cost is None else cost.flops_per_token}
        return {
            "kind": self.kind,
            "sizes": self.entrant.sizes,
            "parameters": self.parameters,
            **(flops if terms.flops else {}),
            "deviation": self.entrant.deviation,
            "fitted": self.entrant.fitted,
            "seeds": self.seeds,
            "runs": self.runs,
            terms.key: self.value,
            "interval": [self.interval.low, self.interval.high],
            "seconds": self.seconds,
            terms.counted: self.count,
        }


@dataclass(frozen=True)
class Comparison:
    """Two models on the same blocks; p allows for how many pairs were compared (Holm)."""

    a: str
    b: str
    found: SeedDifference
    p: float
    advice: str | None  # what would settle it, if it is open

    @property
    def settled(self) -> bool:
        return self.p < CHANCE

    def as_json(self) -> dict[str, Any]:
        interval = [self.found.interval.low, self.found.interval.high]
        return {"a": self.a, "b": self.b, "difference": self.found.value, "interval": interval, "p": self.p} | {
            "settled": self.settled,
            "advice": self.advice,
        }


@dataclass(frozen=True)
class Duel:
    """A duel as it stands: `finished` or, if it was interrupted, with no figures yet."""

    folder: Path
    sentence: str
    match: str = "time"
    part: str = "test"
    finished: bool = False
    winner: str | None = None
    contestants: list[Contestant] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    terms: Terms = BITS_PER_BYTE

    def as_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "interrupted": not self.finished,
            "match": self.match,
            "part": self.part,
            "models": [contestant.as_json() for contestant in self.contestants],
            "comparisons": [comparison.as_json() for comparison in self.comparisons],
            "winner": self.winner,
            "sentence": self.sentence,
            "notes": self.notes,
        }


# --------------------------------------------------------------------------- figures


def compare_all(
    scores: dict[str, Numbers],
    sizes: NDArray[Any],
    seeds: int,
    terms: Terms = BITS_PER_BYTE,
    documents: NDArray[Any] | None = None,
) -> list[Comparison]:
    """Every pair; scores: kind -> scores (runs, blocks)."""
    pairs = list(itertools.combinations(scores, 2))
    how: dict[str, Any] = {"scale": terms.scale, "ordered": terms.ordered, "documents": documents}
    found = [compare_runs(scores[a], scores[b], sizes, **how) for a, b in pairs]
    adjusted = holm([difference.p for difference in found])
    return [
        Comparison(a, b, difference, p, None if p < CHANCE else advice(difference, seeds, terms))
        for (a, b), difference, p in zip(pairs, found, adjusted, strict=True)
    ]


def figures_of_runs(
    runs: Numbers, sizes: NDArray[Any], terms: Terms = BITS_PER_BYTE, documents: NDArray[Any] | None = None
) -> tuple[float, Interval]:
    """The figure, the mean over the runs, and its interval, cut where no figure can lie."""
    interval = interval_of_runs(runs, sizes, scale=terms.scale, ordered=terms.ordered, documents=documents)
    if terms.bounds is not None:
        low, high = np.clip([interval.low, interval.high], *terms.bounds)
        interval = replace(interval, low=float(low), high=float(high))
    return float(runs.sum(1).mean() / (terms.scale * sizes.sum())), interval


# --------------------------------------------------------------------------- sentences


def advice(found: SeedDifference, seeds: int, terms: Terms = BITS_PER_BYTE) -> str:
    """What would settle an open case, if the difference stays what it is."""
    if found.value == 0:
        return "the two do not differ at all"
    if not any(found.spreads):
        unknown = " and the luck of the seed is not known: try --seeds 3" if seeds == 1 else ""
        return f"{_more_data(found, terms)}{unknown}"
    wanted = seeds_to_settle(found)
    if math.isinf(wanted):
        noise = NORMAL * math.sqrt(found.block_variance)
        return f"more seeds cannot settle it: {terms.noise} ±{terms.number(noise)}; {_more_data(found, terms)}"
    if wanted > MOST_SEEDS:
        return f"more than {MOST_SEEDS:,} seeds would be needed to settle it"
    more = max(1, int(wanted) - seeds)
    return f"about {more} more seed{'s' * (more > 1)} for each model would settle it: --seeds {seeds + more}"


def _more_data(found: SeedDifference, terms: Terms) -> str:
    times = max(1.1, text_to_settle(found))
    amount = "more than 1,000" if times > 1000 else f"about {times:.2g}"
    return f"{amount} times as much {terms.held_out} would be needed"


def verdict(contestants: Sequence[Contestant], comparisons: Sequence[Comparison]) -> tuple[str | None, str]:
    """The winner, if there is one, and the sentence that says so or why not.

    A winner's lead over every other model is settled: p < 0.05 after Holm's correction. And no model that took part has
    only begun to learn (`Progress.begun`): that would tell who starts fastest.
    """
    best = min(contestants, key=lambda contestant: contestant.value)
    terms, interval = best.terms, best.interval
    figure = f"{terms.value(best.value)} ({terms.number(interval.low)} to {terms.number(interval.high)})"
    begun = [f"{c.kind} ({c.progress.why})" for c in contestants if c.progress is not None and c.progress.begun]
    if begun:
        words = f"{' and '.join(begun)} {'has' if len(begun) == 1 else 'have'} only begun to learn"
        remedy = "this tells who starts fastest, no more; give a longer --budget"
        return None, f"There is no winner: {best.kind} has the least, {figure}, but {words}: {remedy}."
    against = [c for c in comparisons if best.kind in (c.a, c.b)]
    still_open = [c for c in against if not c.settled]
    if not still_open:
        worst = max(c.p for c in against)
        others = "the other model's" if len(against) == 1 else f"that of each of the other {len(against)} models"
        return best.kind, f"The winner is {best.kind}: {figure}, lower than {others} ({human_p(worst)})."
    words = "; ".join(
        f"its lead over {c.b if c.a == best.kind else c.a} ({terms.number(abs(c.found.value))}) is open "
        f"({human_p(c.p)}): {c.advice}"
        for c in still_open
    )
    return None, f"There is no winner: {best.kind} has the least, {figure}, but {words}."


def cautions(
    contestants: Sequence[Contestant], comparisons: Sequence[Comparison], rounds: list[int], winner: str | None = None
) -> list[str]:
    """Reasons to trust the figures less."""
    said: list[str] = []
    if rounds[-1] == 1 and any(not c.entrant.fitted for c in contestants):
        said.append("one seed each compares runs, not recipes, and leaves out the luck of the seed; try --seeds 3")
    if rounds[-1] == 2:
        said.append(
            "two seeds tell little about the luck of the seed, so that intervals are rough; three tell far more"
        )
    if len(rounds) > 1:
        said.append(
            f"seeds were added after a look at the result ({' → '.join(map(str, rounds))}): p values are too small"
        )
    return said + _of_intervals(contestants, comparisons) + _of_curves(contestants, comparisons, winner)


def _of_intervals(contestants: Sequence[Contestant], comparisons: Sequence[Comparison]) -> list[str]:
    terms = contestants[0].terms
    intervals = [c.interval for c in contestants] + [c.found.interval for c in comparisons]
    worst = max(intervals, key=lambda interval: interval.correlation)
    words = worst.caution_about(terms.block.format(BLOCK_BYTES))
    said = [words] if words else []
    same = [c.kind for c in contestants if c.interval.low == c.interval.high]
    if same and not terms.ordered:
        said.append(f"{', '.join(same)}: the same on all {terms.blocks}, so the interval has no width and says nothing")
    return said


def _of_curves(contestants: Sequence[Contestant], comparisons: Sequence[Comparison], winner: str | None) -> list[str]:
    """Whether a model fell by more than the winner's lead over it while the last quarter of its steps lasted."""
    leads = {c.b if c.a == winner else c.a: abs(c.found.value) for c in comparisons if winner in (c.a, c.b)}
    falling = [
        f"{c.kind} by {c.terms.number(c.progress.fell)}"
        for c in contestants
        if c.progress is not None and c.progress.fell > leads.get(c.kind, math.inf)
    ]
    if not falling:
        return []
    return [
        f"over the last quarter of its steps the validation figure still fell by more than the winner's lead "
        f"({', '.join(falling)}): a longer --budget may turn this round"
    ]


def stack(scores: dict[str, list[float]], runs: Sequence[str]) -> Numbers:
    """scores (runs, blocks)"""
    return np.array([scores[run] for run in runs], np.float64)
