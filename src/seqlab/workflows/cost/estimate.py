"""What a training costs: counted on the shapes of its model, predicted for this machine. No data are read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqlab.core.files import write_text
from seqlab.core.memory import available_bytes
from seqlab.core.reporting import Reporter
from seqlab.diagnostics.bottleneck import Bottleneck, bottleneck
from seqlab.diagnostics.cost import Cost, Textbook, cost, textbook
from seqlab.diagnostics.forecast import can_recompute, recomputing
from seqlab.training.determinism import deterministic
from seqlab.workflows.cost.predict import Prediction, calibrations, predict, steps_of, too_much
from seqlab.workflows.cost.request import PAGE, Request, check_cost
from seqlab.workflows.cost.shapes import outline, settled


@dataclass(frozen=True, eq=False)
class CostEstimate:
    """Counts are exact; the prediction has a range. `unpredicted` says why there is none."""

    request: Request
    cost: Cost
    bottleneck: Bottleneck | None  # None: nothing is multiplied
    textbook: tuple[Textbook, ...]
    recomputed: Cost | None  # with blocks that compute their inside again, where that is a choice
    spare: int | None  # bytes that can be had here
    prediction: Prediction | None
    unpredicted: str | None = None
    threads: int = field(default_factory=torch.get_num_threads)
    page: Path | None = None

    @property
    def steps(self) -> int | None:
        """That the budget buys, or that a run has planned."""
        if self.request.steps is not None:
            return self.request.steps
        seconds = None if self.prediction is None else self.prediction.step.seconds
        asked = replace(self.request.asked, settings=settled(self.request.asked, self.request.shapes))
        return steps_of(asked, self.request.shapes, seconds)

    @property
    def seconds(self) -> float | None:
        """Of all steps."""
        if self.prediction is None or self.steps is None:
            return None
        return self.steps * self.prediction.step.seconds

    @property
    def fits(self) -> bool | None:
        if self.prediction is not None:
            return self.prediction.fits
        return None if self.spare is None else self.cost.memory_bytes <= self.spare

    @property
    def extra_forward(self) -> float:
        """Operations of the blocks' forward pass, which --recompute does twice."""
        inside = ("projections", "scores", "mixing", "feed-forward")
        return sum(part.flops_forward for part in self.cost.parts if part.name in inside)

    def as_json(self) -> dict[str, Any]:
        from seqlab.workflows.cost.record import as_json

        return as_json(self)


def estimate_cost(
    run: str | Path | None = None,
    *,
    task: str | None = None,
    out: str | Path | None = None,
    calibration: str | Path | None = None,
    calibrate: bool = False,
    threads: int | None = None,
    reporter: Reporter | None = None,
    **said: Any,
) -> CostEstimate:
    """What the run in a folder costs, or what a training with these settings would; no text is needed.

        seqlab.estimate_cost(model="transformer", size="medium", context=1024, batch=8).prediction.step.seconds

    `said` are the flags of `seqlab cost`: the task's own settings (`task` is lm, unless it is said) and the sizes that
    data would decide. The page is written to `out`; of a run it is cost.html in its folder, unless `out` is another.
    The calibration of this machine is made once and kept; `calibrate` makes it anew, `calibration` names its file.
    """
    where = dict(task=task, out=out, calibration=calibration, calibrate=calibrate, threads=threads)
    request = check_cost(run, said={name: value for name, value in said.items() if value is not None}, **where)  # type: ignore[arg-type]
    reporter = reporter or Reporter()
    with deterministic(threads):
        known = calibrations(None if calibration is None else Path(calibration), calibrate, reporter)
        with reporter.task("counting", None):
            found = counted(request)
        found = _predicted(found, request, known, reporter)
    page = out if out is not None or run is None else Path(run) / PAGE
    if page is None:
        return found
    return _with_page(found, Path(page))


def _with_page(found: CostEstimate, page: Path) -> CostEstimate:
    from seqlab.workflows.cost.page import cost_page

    write_text(page, cost_page(found))
    return replace(found, page=page)


# --------------------------------------------------------------------------- counted


def _cost(request: Request, model: nn.Module, rows: int | None = None, length: int | None = None) -> Cost:
    training, shapes = request.settings.training, request.shapes
    return cost(
        model,
        rows or shapes.rows,
        length or shapes.length,
        source_length=shapes.source_length,
        optimiser=training.optimiser,
        ema=bool(training.ema),
    )


def counted(request: Request) -> CostEstimate:
    model = outline(request)
    found, recomputed = _cost(request, model), None
    if can_recompute(model):
        with recomputing(model, on=not request.settings.training.recompute):
            recomputed = _cost(request, model)
    slowest = bottleneck(found) if found.flops_forward else None
    shapes = request.shapes
    books = textbook(model, shapes.length, source_length=shapes.source_length)
    return CostEstimate(request, found, slowest, books, recomputed, available_bytes(), None)


def _predicted(found: CostEstimate, request: Request, calibration: Any, reporter: Reporter) -> CostEstimate:
    model = outline(request)
    why = too_much(request, found.cost, lambda rows, length: _cost(request, model, rows, length), found.spare)
    if why is not None:
        return replace(found, unpredicted=why)
    return replace(found, prediction=predict(request, calibration, reporter))
