"""`cost --scaling`: how time and memory of layers grow on this machine, beside their formulas."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqlab.core.errors import UsageError
from seqlab.core.files import check_targets, write_text
from seqlab.core.memory import available_bytes
from seqlab.core.reporting import Reporter
from seqlab.core.seeding import initialising
from seqlab.core.settings.cost_measured import FEWEST, ScalingSettings
from seqlab.core.settings.fields import check_group
from seqlab.core.units import number_of
from seqlab.diagnostics.machine import machine_identity
from seqlab.diagnostics.scaling import Grid, Growth, grid_of, has_axis, measure_grids
from seqlab.diagnostics.timed_layers import Shape, Timer
from seqlab.training.determinism import using_threads
from seqlab.workflows.cost import scaling_words as words
from seqlab.workflows.cost.measured_page import scaling_page


@dataclass(frozen=True, eq=False)
class Scaling:
    """Rows, sentences and figures; `left_out` are the sizes that would not have fitted into the memory."""

    settings: ScalingSettings
    growths: list[Growth]
    left_out: list[Grid]
    basis: str
    page: Path | None

    @property
    def header(self) -> list[str]:
        return words.HEADER

    @property
    def rows(self) -> list[list[str]]:
        return [words.row(growth) for growth in self.growths]

    @property
    def notes(self) -> str:
        return words.notes(self.left_out)

    @property
    def answer(self) -> list[str]:
        return words.answer(self.growths)

    def as_json(self) -> dict[str, Any]:
        return {
            "basis": self.basis,
            "answer": self.answer,
            "rows": [_as_json(growth) for growth in self.growths],
            "left_out": [{"layer": g.base.kind, "axis": g.axis, "sizes": g.left_out} for g in self.left_out],
            "notes": self.notes,
            "page": None if self.page is None else str(self.page),
        }


def _as_json(growth: Growth) -> dict[str, Any]:
    exponent, timed = growth.exponent, growth.what != "bytes"
    return {
        **{"layer": growth.layer, "axis": growth.axis, "what": growth.what, "sizes": growth.sizes},
        **{"unit": "seconds" if timed else "bytes", "measured": growth.measured},
        **{"counted": growth.counted, "exponent": exponent.value},
        **{"interval": [exponent.low, exponent.high] if timed else None, "formula": growth.formula},
        **{"tendency": growth.tendency.exponent, "tendency_of": list(growth.tendency.parts)},
        **{"verdict": growth.word, "reason": growth.reason, "why": words.why(growth)},
    }


def measure_scaling(
    settings: ScalingSettings | None = None,
    *,
    out: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    timer: Timer | None = None,
    **asked: Any,
) -> Scaling:
    """Exponents of time and memory against length, width and heads, with intervals, beside those of the formulas.

    `asked` are the fields of ScalingSettings, or `settings` has them all. `out` names a page with pictures. `timer`
    gives the seconds of a run (default: it is run and timed).
    """
    settings = ScalingSettings(**asked) if settings is None else settings
    check_group(settings)
    check_targets({"--out": None if out is None else str(out)})
    reporter = reporter or Reporter()
    grids = _grids(settings, available_bytes())
    measurable = [grid for grid in grids if len(grid.shapes) >= FEWEST]
    if not measurable:
        raise UsageError(
            f"fewer than {FEWEST} sizes of any layer fit into the memory that can be had here; give smaller ones"
        )
    with using_threads(threads), initialising(settings.seed):
        growths = _measured(measurable, settings, reporter, timer)
        basis = _basis(settings)
    page = None if out is None else Path(out)
    found = Scaling(settings, growths, [grid for grid in grids if grid.left_out], basis, page)
    if page is not None:
        write_text(page, scaling_page(found))
    return found


def _grids(settings: ScalingSettings, spare: float | None) -> list[Grid]:
    """The cases of all layers are held at once: each layer may take its share of the memory."""
    layers, found = settings.every_layer, []
    for axis, sizes in settings.grids.items():
        share = None if spare is None else spare / len(layers)
        for kind in layers:
            if has_axis(kind, axis):
                found.append(grid_of(_shape(kind, settings), axis, sizes, share))
    return found


def _shape(kind: str, settings: ScalingSettings) -> Shape:
    heads, features = settings.heads, settings.features
    return Shape(kind, settings.batch, settings.length, settings.width, heads, features, settings.causal)


def _measured(grids: list[Grid], settings: ScalingSettings, reporter: Reporter, timer: Timer | None) -> list[Growth]:
    """One axis after the other; its layers take turns."""
    found: list[Growth] = []
    before, total = 0.0, sum(_passes(grid, settings) for grid in grids)

    def advance(done: int) -> None:
        reporter.advance(before + done)

    with reporter.task("measuring how layers scale", total):
        for axis in settings.every_axis:
            own = [grid for grid in grids if grid.axis == axis]
            found += measure_grids(own, settings.rounds, timer, advance)
            before += sum(_passes(grid, settings) for grid in own)
    return found


def _passes(grid: Grid, settings: ScalingSettings) -> float:
    """Forward passes and steps that are timed."""
    return 2.0 * settings.rounds * len(grid.shapes)


def _basis(settings: ScalingSettings) -> str:
    shape = f"length {settings.length}, width {settings.width}, {settings.heads} heads where another size is varied"
    attention = "causal" if settings.causal else "every position sees every other"
    return f"{machine_words()}; batch {settings.batch}, {shape}; {attention}; {settings.rounds} rounds"


def machine_words() -> str:
    """Processor, threads and torch, which decide what was measured."""
    machine = machine_identity()
    return f"{machine['processor']}, {number_of(machine['threads'], 'thread')}, torch {torch.__version__}"
