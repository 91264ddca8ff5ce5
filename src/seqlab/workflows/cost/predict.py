"""Seconds and memory of a training whose data are drawn: rehearsed as every training rehearses itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqlab.core.memory import available_bytes
from seqlab.core.reporting import Reporter
from seqlab.core.settings.cost import BIGRAM_TOKENS, COSTED, Asked, Shapes, reads_all_pairs
from seqlab.core.units import human_bytes, human_flops, parse_budget
from seqlab.diagnostics.cost import Cost
from seqlab.diagnostics.forecast import (
    LONG,
    SHARES,
    Memory,
    Rehearsal,
    StepSeconds,
    can_recompute,
    memory_of,
    recomputing,
    rehearse_memory,
    step_seconds,
)
from seqlab.diagnostics.machine import Calibration, calibration_of
from seqlab.diagnostics.pieces import SOME
from seqlab.runs.estimate import BYTES_PER_ITEM, MUCH, Traded, choose_smaller, what_fits
from seqlab.runs.task import find_task
from seqlab.training.plan import Learning
from seqlab.workflows.cost.drawn import draw
from seqlab.workflows.cost.request import Request
from seqlab.workflows.cost.shapes import build, settled

MOST_REHEARSED = 1e13  # operations of the piece that is rehearsed: some minutes on a small machine


@dataclass(frozen=True)
class Prediction:
    """Of one training step, and of the memory at the worst moment."""

    step: StepSeconds
    memory: Memory
    spare: int | None  # bytes that can be had here; None where the system does not say
    remedy: str | None  # what would fit, where this does not
    traded: Traded | None  # what --recompute gives and takes, where it is asked for

    @property
    def fits(self) -> bool | None:
        return None if self.spare is None else self.memory.needed <= self.spare


@dataclass(frozen=True)
class Calibrating:
    """Where the calibration of this machine comes from."""

    file: Path | None
    anew: bool
    reporter: Reporter

    def __call__(self) -> Calibration:
        with self.reporter.task("measuring this machine, once", 1.0):
            return calibration_of(self.file, anew=self.anew, progress=self.reporter.advance)


def calibrations(file: Path | None, anew: bool, reporter: Reporter) -> Callable[[], Calibration]:
    """Made or read when a step is too long to be tried whole; at once where a person asks for it, and only once."""
    made: list[Calibration] = []

    def calibration() -> Calibration:
        if not made:
            made.append(Calibrating(file, anew, reporter)())
        return made[0]

    if anew or file is not None:
        calibration()
    return calibration


# --------------------------------------------------------------------------- what is too much to rehearse


def too_much(request: Request, counted: Cost, of_piece: Callable[[int, int], Cost], spare: int | None) -> str | None:
    """Why nothing is predicted: the model, its batch or the least piece of it would not fit, or would take long."""
    weights = counted.weight_bytes + counted.gradient_bytes + counted.optimiser_bytes
    batch = request.shapes.rows * request.shapes.length * BYTES_PER_ITEM
    piece = of_piece(*_piece(request))
    needed = weights + piece.saved_bytes
    if spare is not None and weights > spare:
        return f"weights, gradients and moments alone need {human_bytes(weights)}; {human_bytes(spare)} can be had here"
    if spare is not None and batch > MUCH * spare:
        return f"a batch alone needs {human_bytes(batch)}; {human_bytes(spare)} can be had here"
    if spare is not None and needed > spare:
        return (
            f"the least piece of a batch that is rehearsed needs {human_bytes(needed)}; "
            f"{human_bytes(spare)} can be had here"
        )
    work = piece.flops_forward + piece.flops_backward
    if work > MOST_REHEARSED:
        return f"rehearsing a piece of a batch takes {human_flops(work)}, more than {human_flops(MOST_REHEARSED)}"
    return None


def _piece(request: Request) -> tuple[int, int]:
    """Rows and positions of the largest piece that is rehearsed."""
    shapes = request.shapes
    cut = request.task == "lm" and shapes.length >= LONG
    return min(shapes.rows, SOME), max(1, int(shapes.length * max(SHARES))) if cut else shapes.length


# --------------------------------------------------------------------------- the prediction


def predict(request: Request, calibration: Callable[[], Calibration], reporter: Reporter) -> Prediction:
    """On a model with numbers in it, and drawn batches of the full length."""
    task, settings = find_task(request.task), settled(request.asked, request.shapes)
    with reporter.task("rehearsing a step", None):
        model, data = build(request), draw(replace(request.asked, settings=settings), request.shapes)
        learning = _learning(task, settings, data, model)
        reporter.advance(1)
        rehearsal = rehearse_memory(model, learning, lambda: task.read_held_out(model, data))
        memory = memory_of(model, settings.training, rehearsal, task.later_bytes(data))
        reporter.advance(2)
    step = step_seconds(model, learning, settings.training, calibration)
    spare = available_bytes()
    remedy = None
    if spare is not None and memory.needed > spare:

        def smaller(length: int) -> str:
            fits = f"--context {length} --accumulate {rehearsal.rows} would fit"
            return fits if length else choose_smaller(task, settings)

        remedy = what_fits(model, learning, settings.training, rehearsal, memory, spare, smaller)
    traded = _traded(model, learning, settings, calibration)
    return Prediction(step, memory, spare, remedy, traded)


def _learning(task: Any, settings: Any, data: Any, model: Any) -> Learning:
    found: Learning = task.learning(settings, data, model)
    return found


def _traded(model: Any, learning: Learning, settings: Any, calibration: Callable[[], Calibration]) -> Traded | None:
    if not (settings.training.recompute and can_recompute(model)):
        return None
    with recomputing(model, on=False):
        rehearsal: Rehearsal = rehearse_memory(model, learning)
        without = memory_of(model, settings.training, rehearsal)
        return Traded(without, step_seconds(model, learning, settings.training, calibration).seconds)


# --------------------------------------------------------------------------- the budget


def steps_of(asked: Asked, shapes: Shapes, seconds: float | None) -> int | None:
    """How many steps the budget buys; None where nobody says how long an epoch or a step is.

    steps = ⌈amount⌉, ⌈tokens / tokens of a step⌉, ⌈epochs · steps of an epoch⌉, ⌊seconds / seconds of a step⌋
    """
    budget = parse_budget(asked.settings.training.budget)
    if budget.unit == "seconds":
        return None if seconds is None else max(1, int(budget.amount / seconds))
    if budget.unit == "epochs":
        if shapes.examples is None:
            return None
        return math.ceil(budget.amount * _steps_of_epoch(asked, shapes, shapes.examples) - 1e-9)
    each = _tokens_of_step(asked, shapes) if budget.unit == "tokens" else 1
    return max(1, math.ceil(budget.amount / each - 1e-9))


def _steps_of_epoch(asked: Asked, shapes: Shapes, examples: int) -> int:
    """A text leaves out a last batch that is not full; texts and pairs do not."""
    if COSTED[asked.task].examples != "tokens":
        return -(-examples // shapes.rows)
    return max(1, examples // _tokens_of_step(asked, shapes))


def _tokens_of_step(asked: Asked, shapes: Shapes) -> int:
    if reads_all_pairs(asked, shapes.vocabulary):
        return shapes.examples or BIGRAM_TOKENS
    return shapes.rows * shapes.length
