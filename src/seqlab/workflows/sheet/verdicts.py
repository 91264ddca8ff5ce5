"""Paired tests between the models of a sheet, and sentences that carry their conditions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from seqlab.core.settings.fields import with_changes
from seqlab.core.units import CHANCE, human_count, human_p
from seqlab.evaluation.statistics import Difference, Interval, compare, holm
from seqlab.workflows.sheet.scored import Measured, Reader

RUNS = "this compares two runs, not two recipes; `lm compare` compares recipes"
NO_MATTER: dict[str, dict[str, Any]] = {"training": {"seed": 0, "eval_every": None}, "data": {"text": ""}}


def about(interval: Interval) -> str:
    """What an interval rests on, what it speaks of, and why not to trust it, if there is a reason."""
    blocks = _counted(interval.blocks, "block")
    words = f"{_counted(interval.documents, 'document')} in {blocks}: the intervals speak of {interval.speaks_of}"
    return words if interval.caution is None else f"{words}; {interval.caution}"


def comparisons_of(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """Every pair on the same blocks of one text, with Holm's correction over the pairs."""
    pairs = list(itertools.combinations(measured, 2))
    found = [compare(a.blocks, b.blocks, a.sizes, documents=a.documents) for a, b in pairs]
    adjusted = holm([difference.p for difference in found])
    return [
        {
            "text": a.text.name,
            "a": a.reader.name,
            "b": b.reader.name,
            "difference": difference.value,
            "interval": [difference.interval.low, difference.interval.high],
            "p": p,
            "p_alone": difference.p,
            "documents": difference.interval.documents,
            "correlation": difference.interval.correlation,
            "caution": difference.interval.caution,
            "baseline": a.reader.baseline or b.reader.baseline,
            "sentence": sentence(a, b, difference, p, len(pairs)),
        }
        for (a, b), difference, p in zip(pairs, found, adjusted, strict=True)
    ]


def sentence(a: Measured, b: Measured, found: Difference, p: float, pairs: int) -> str:
    """Who is better, on what, over how much, for what that holds, and what it leaves out."""
    better, worse = (a, b) if found.value < 0 else (b, a)
    low, high = sorted(abs(end) for end in (found.interval.low, found.interval.high))
    corrected = f", Holm over {pairs} pairs" if pairs > 1 else ""
    shown = f"{human_p(p)}{corrected}"
    on = f"{a.text.name} ({human_count(int(a.sizes.sum()))} bytes, {_counted(found.interval.documents, 'document')})"
    size = f"{abs(found.value):.4f} bits/byte"
    if p < CHANCE:
        verdict = (
            f"{better.reader.name} is better than {worse.reader.name} on {on} by {size} ({low:.4f} to {high:.4f}): "
            f"the difference is real ({shown})"
        )
    else:
        verdict = (
            f"{a.reader.name} and {b.reader.name} on {on} differ by {size}, which may be chance ({shown}): "
            "this does not decide between them"
        )
    conditions = [f"it speaks of {found.interval.speaks_of}", runs_compared(a.reader, b.reader), found.interval.caution]
    return "; ".join([verdict, *filter(None, conditions)])


def runs_compared(a: Reader, b: Reader) -> str | None:
    """What of the luck of training is left out."""
    if a.run is not None and a.run is b.run:
        return "one run, with and without reading on"
    trained = [reader for reader in (a, b) if reader.run is not None and reader.run.record.get("steps")]
    if len(trained) < 2:
        return f"one seed of {trained[0].name}" if trained else None
    if not same_recipe(a, b):
        return f"one seed each: {RUNS}"
    seed, other = (reader.run.settings.training.seed for reader in trained if reader.run is not None)
    if seed == other:
        return f"two runs of one recipe and one seed ({seed})"
    return f"two runs of one recipe, seeds {seed} and {other}, one seed each: {RUNS}"


def same_recipe(a: Reader, b: Reader) -> bool:
    """Settings and text alike, whatever the seed."""
    if a.run is None or b.run is None or a.trained_on != b.trained_on:
        return False
    one, other = (with_changes(run.settings, NO_MATTER) for run in (a.run, b.run))
    return bool(one == other)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"
