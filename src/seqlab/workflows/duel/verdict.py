"""The verdict of a duel: bits per byte with intervals, paired tests, and a sentence that says who won, if anybody."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.settings.duel import MOST_SEEDS
from seqlab.evaluation.statistics import (
    LEVEL,
    NORMAL,
    Interval,
    Numbers,
    SeedDifference,
    compare_runs,
    holm,
    interval_of_runs,
    seeds_to_settle,
    text_to_settle,
)
from seqlab.workflows.duel.plan import Entrant

SIGNIFICANT = 1 - LEVEL
FEW_STEPS = 100  # below, a duel tells who starts fastest, no more


@dataclass(frozen=True)
class Contestant:
    """A model and what it reached, as the mean over its runs."""

    entrant: Entrant
    runs: list[str]
    parameters: int  # n-grams, for what is fitted
    bits_per_byte: float
    interval: Interval
    seconds: float
    tokens: float

    @property
    def kind(self) -> str:
        return self.entrant.kind

    @property
    def seeds(self) -> int:
        return len(self.runs)

    def as_json(self) -> dict[str, Any]:
        cost = self.entrant.cost
        return {
            "kind": self.kind,
            "sizes": self.entrant.sizes,
            "parameters": self.parameters,
            "flops_per_token": None if cost is None else cost.flops_per_token,
            "deviation": self.entrant.deviation,
            "fitted": self.entrant.fitted,
            "seeds": self.seeds,
            "runs": self.runs,
            "bits_per_byte": self.bits_per_byte,
            "interval": [self.interval.low, self.interval.high],
            "seconds": self.seconds,
            "tokens": self.tokens,
        }


@dataclass(frozen=True)
class Comparison:
    """Two models on the same blocks of text; p allows for how many pairs were compared (Holm)."""

    a: str
    b: str
    found: SeedDifference
    p: float
    advice: str | None  # what would settle it, if it is open

    @property
    def settled(self) -> bool:
        return self.p < SIGNIFICANT

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


def compare_all(scores: dict[str, Numbers], sizes: NDArray[Any], seeds: int) -> list[Comparison]:
    """Every pair; scores: kind -> nats (runs, blocks)."""
    pairs = list(itertools.combinations(scores, 2))
    found = [compare_runs(scores[a], scores[b], sizes) for a, b in pairs]
    adjusted = holm([difference.p for difference in found])
    return [
        Comparison(a, b, difference, p, None if p < SIGNIFICANT else advice(difference, seeds))
        for (a, b), difference, p in zip(pairs, found, adjusted, strict=True)
    ]


def figures_of_runs(runs: Numbers, sizes: NDArray[Any]) -> tuple[float, Interval]:
    """Bits per byte, the mean over the runs, and their interval."""
    return float(runs.sum(1).mean() / (math.log(2) * sizes.sum())), interval_of_runs(runs, sizes)


# --------------------------------------------------------------------------- sentences


def advice(found: SeedDifference, seeds: int) -> str:
    """What would settle an open case, if the difference stays what it is."""
    if found.value == 0:
        return "the two do not differ at all"
    if not any(found.spreads):
        unknown = " and the luck of the seed is not known: try --seeds 3" if seeds == 1 else ""
        return f"{_more_text(found)}{unknown}"
    wanted = seeds_to_settle(found)
    if math.isinf(wanted):
        noise = NORMAL * math.sqrt(found.block_variance)
        return f"more seeds cannot settle it: the text alone leaves ±{noise:.4f}; {_more_text(found)}"
    if wanted > MOST_SEEDS:
        return f"more than {MOST_SEEDS:,} seeds would be needed to settle it"
    more = max(1, int(wanted) - seeds)
    return f"about {more} more seed{'s' * (more > 1)} for each model would settle it: --seeds {seeds + more}"


def _more_text(found: SeedDifference) -> str:
    times = max(1.1, text_to_settle(found))
    amount = "more than 1,000" if times > 1000 else f"about {times:.2g}"
    return f"{amount} times as much held-out text would be needed"


def verdict(contestants: Sequence[Contestant], comparisons: Sequence[Comparison]) -> tuple[str | None, str]:
    """The winner, if there is one, and the sentence that says so or why not.

    A winner's lead over every other model is settled: p < 0.05 after Holm's correction.
    """
    best = min(contestants, key=lambda contestant: contestant.bits_per_byte)
    figure = f"{best.bits_per_byte:.4f} bits per byte ({best.interval.low:.4f} to {best.interval.high:.4f})"
    if len(contestants) == 1:
        return None, f"There is no winner: {best.kind} alone took part, with {figure}."
    against = [c for c in comparisons if best.kind in (c.a, c.b)]
    still_open = [c for c in against if not c.settled]
    if not still_open:
        worst = max(c.p for c in against)
        others = "the other model's" if len(against) == 1 else f"that of each of the other {len(against)} models"
        return best.kind, f"The winner is {best.kind}: {figure}, lower than {others} ({p_words(worst)})."
    words = "; ".join(
        f"its lead over {c.b if c.a == best.kind else c.a} ({abs(c.found.value):.4f}) is open "
        f"({p_words(c.p)}): {c.advice}"
        for c in still_open
    )
    return None, f"There is no winner: {best.kind} has the least, {figure}, but {words}."


def p_words(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {min(p, 1.0):.2g}" if p < 0.1 else f"p = {min(p, 1.0):.2f}"


def cautions(contestants: Sequence[Contestant], comparisons: Sequence[Comparison], rounds: list[int]) -> list[str]:
    """Reasons to trust the figures less, and how they were made."""
    said: list[str] = []
    steps = min((c.entrant.steps for c in contestants if c.entrant.steps), default=FEW_STEPS)
    if steps < FEW_STEPS:
        said.append(f"only {steps} steps: this tells which model starts fastest, no more; give a longer --budget")
    if rounds[-1] == 1 and any(not c.entrant.fitted for c in contestants):
        said.append("one seed: the intervals and tests leave out the luck of the seed; --seeds 3 would show it")
    if rounds[-1] == 2:
        said.append("two seeds: intervals are rough; three or more tell far more about the luck of the seed")
    if len(rounds) > 1:
        said.append(
            f"seeds were added after a look at the result ({' → '.join(map(str, rounds))}): p values are too small"
        )
    intervals = [c.interval for c in contestants] + [c.found.interval for c in comparisons]
    worst = max(intervals, key=lambda interval: interval.correlation).caution
    return [*said, worst] if worst else said


def stack(scores: dict[str, list[float]], runs: Sequence[str]) -> Numbers:
    """nats (runs, blocks)"""
    return np.array([scores[run] for run in runs], np.float64)
