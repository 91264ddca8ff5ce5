"""`cost --crossover`: from which length on linear attention is worth it on this machine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqlab.core.errors import UsageError
from seqlab.core.files import check_targets, write_text
from seqlab.core.memory import available_bytes
from seqlab.core.reporting import Reporter
from seqlab.core.seeding import initialising
from seqlab.core.settings.cost_measured import FEWEST, CrossoverSettings
from seqlab.core.settings.fields import check_group
from seqlab.core.units import human_bytes
from seqlab.diagnostics.crossover import KINDS, START, Crossover, Curve, crossovers_of, measure_curves, shapes_of
from seqlab.diagnostics.timed_layers import Shape, Timer, that_fit
from seqlab.training.determinism import using_threads
from seqlab.workflows.cost import crossover_words as words
from seqlab.workflows.cost.measured_page import crossover_page
from seqlab.workflows.cost.scaling import machine_words


@dataclass(frozen=True, eq=False)
class Crossovers:
    """Rows, sentences and figures; `left_out` are the lengths that would not have fitted into the memory."""

    settings: CrossoverSettings
    lengths: list[int]
    left_out: list[int]
    curves: list[Curve]
    found: list[Crossover]
    basis: str
    page: Path | None

    @property
    def header(self) -> list[str]:
        return words.header(self.lengths[-1])

    @property
    def rows(self) -> list[list[str]]:
        return [words.row(one) for one in self.found]

    @property
    def notes(self) -> str:
        return words.notes(self.left_out)

    @property
    def answer(self) -> list[str]:
        return words.answer(self.found)

    def as_json(self) -> dict[str, Any]:
        return {
            "basis": self.basis,
            "answer": self.answer,
            "lengths": self.lengths,
            "left_out": self.left_out,
            "rows": [_as_json(one) for one in self.found],
            "curves": [_curve_as_json(curve) for curve in self.curves],
            "notes": self.notes,
            "page": None if self.page is None else str(self.page),
        }


def _as_json(one: Crossover) -> dict[str, Any]:
    interval = None if one.interval is None else [_length(end) for end in one.interval]
    return {
        **{"kind": one.kind, "causal": one.causal, "what": one.what},
        **{"verdict": words.verdict(one.length), "length": _length(one.length), "interval": interval},
        **{"counted": _length(one.counted), "counted_verdict": words.verdict(one.counted), "ratios": one.ratios},
    }


def _length(length: float) -> float | None:
    """None for one that lies outside the grid; the verdict says on which side."""
    return length if START < length < math.inf else None


def _curve_as_json(curve: Curve) -> dict[str, Any]:
    unit = "bytes" if curve.what == "bytes" else "seconds"
    named = {"kind": curve.kind, "causal": curve.causal, "what": curve.what}
    return {**named, "unit": unit, "medians": curve.medians, "rounds": curve.rounds.tolist()}


def measure_crossover(
    settings: CrossoverSettings | None = None,
    *,
    out: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    timer: Timer | None = None,
    **asked: Any,
) -> Crossovers:
    """From which length on separable and random-feature attention are faster than exact softmax, or need less memory.

    `asked` are the fields of CrossoverSettings, or `settings` has them all. `out` names a page with pictures. `timer`
    gives the seconds of a run (default: it is run and timed).
    """
    settings = CrossoverSettings(**asked) if settings is None else settings
    check_group(settings)
    check_targets({"--out": None if out is None else str(out)})
    reporter = reporter or Reporter()
    base = Shape("random_features", settings.batch, 1, settings.width, settings.heads, settings.features)
    lengths = fitting_lengths(base, settings.every_length, available_bytes())
    total = 4.0 * len(KINDS) * settings.rounds * len(lengths)
    with using_threads(threads), initialising(settings.seed):
        with reporter.task("measuring attention", total):
            curves = measure_curves(base, lengths, settings.rounds, timer, reporter.advance)
        basis = _basis(settings)
    left_out = [length for length in settings.every_length if length not in lengths]
    page = None if out is None else Path(out)
    crossed = crossovers_of(curves, base, settings.seed)
    found = Crossovers(settings, lengths, left_out, curves, crossed, basis, page)
    if page is not None:
        write_text(page, crossover_page(found))
    return found


def fitting_lengths(base: Shape, lengths: list[int], spare: float | None) -> list[int]:
    """Those at which all kinds, causal and not, fit into the memory together."""
    fitting = set(that_fit(shapes_of(base, lengths), spare))
    found = [length for length in lengths if fitting.issuperset(shapes_of(base, [length]))]
    if len(found) < FEWEST:
        raise UsageError(
            f"only {len(found)} of the lengths fit into the {human_bytes(spare or 0)} of memory that can be had here "
            f"and {FEWEST} are needed; give shorter --lengths, a smaller --width or --batch"
        )
    return found


def _basis(settings: CrossoverSettings) -> str:
    m = settings.features or 4 * (settings.width // settings.heads)
    shape = f"batch {settings.batch}, width {settings.width}, {settings.heads} heads, m = {m} random features"
    return f"{machine_words()}; {shape}; {settings.rounds} rounds"
