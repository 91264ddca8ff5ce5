"""Will it fit, and how long will it take? Asked before the first step of every training.

What would not fit into memory is refused in one line that names the nearest setting that would. Neither the model nor
a random stream is touched, and nothing of it is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from seqlab.core.eager import without_numbers
from seqlab.core.errors import SeqlabError, UsageError
from seqlab.core.memory import available_bytes
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import dashed, with_changes
from seqlab.core.settings.training import TrainingSettings
from seqlab.core.units import human_bytes, human_moment, human_seconds, number_of
from seqlab.diagnostics.cost import optimiser_bytes
from seqlab.diagnostics.forecast import (
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
from seqlab.runs.task import Task
from seqlab.training.plan import Learning, measure_validation

BYTES_PER_ITEM = 16  # of a batch: two ids of eight bytes
MUCH = 0.5  # of the spare memory: a batch that alone takes more is not even made
MEASURING = "measuring this machine, once: a step is too long to be timed whole"
LEAST_WIDTH = 8  # that is named as a remedy


@dataclass(frozen=True)
class Traded:
    """What --recompute gives and takes."""

    without: Memory
    seconds: float  # of a step without it

    def sentence(self, memory: Memory, step: StepSeconds) -> str:
        return (
            f"--recompute: a step holds {human_bytes(memory.step)} instead of {human_bytes(self.without.step)} "
            f"and takes {human_moment(step.seconds)} instead of {human_moment(self.seconds)}"
        )


@dataclass(frozen=True)
class Estimate:
    memory: Memory
    step: StepSeconds
    validation: float  # seconds
    traded: Traded | None = None

    def seconds(self, steps: int, validations: int) -> float:
        """steps · s + validations · v"""
        return steps * self.step.seconds + validations * self.validation

    def lines(self, steps: int, validations: int, remark: str = "") -> list[str]:
        """A `remark` on the time stands behind it."""
        s, m, whole = self.step, self.memory, self.seconds(steps, validations)
        how = "timed" if s.timed else "from the calibration of this machine"
        spread = f"{human_moment(s.low)} to {human_moment(s.high)}"
        found = [
            f"estimate: {human_moment(s.seconds)} a step ({spread}, {how}), {human_seconds(whole)} for "
            f"{number_of(steps, 'step')} and {number_of(validations, 'validation')}{remark}",
            f"memory: at most {human_bytes(m.peak)}; {human_bytes(m.process)} are held now, {human_bytes(m.moments)} "
            f"for the optimiser, {human_bytes(m.step)} for a step, {human_bytes(m.reading)} for measuring",
        ]
        return found if self.traded is None else [*found, self.traded.sentence(m, s)]


# --------------------------------------------------------------------------- will it fit?


def check_weights(task: Task, settings: Any, data: Any) -> None:
    """Refuse a model whose weights, gradients and moments alone would not fit, before any of them is made."""
    spare, needed = available_bytes(), _bytes_of_weights(task, settings, data)
    if spare is None or needed is None or needed <= spare:
        return
    sizes = ((narrower.model.width, _bytes_of_weights(task, narrower, data)) for narrower in _narrower(task, settings))
    fits = next((width for width, size in sizes if size is not None and size <= spare), None)
    raise UsageError(
        f"the model's weights, gradients and moments need {human_bytes(needed)} of memory and "
        f"{human_bytes(spare)} can be had here; {choose_smaller(task, settings)}"
        + (f" (they would fit with --width {fits})" if fits else "")
    )


def _bytes_of_weights(task: Task, settings: Any, data: Any) -> int | None:
    """Counted on a model without numbers; None of one that cannot be made so: fitted at once, or somebody's own."""
    try:
        with without_numbers():
            model = task.outline(settings, data.files)
    except Exception:
        return None
    weights = [(weight.numel() * weight.element_size(), weight.requires_grad) for weight in model.parameters()]
    training = settings.training
    learning = sum(size for size, learns in weights if learns)
    moments = optimiser_bytes(model, training.optimiser, ema=bool(training.ema))
    tables = sum(table.numel() * table.element_size() for table in model.buffers() if table.is_meta)
    return sum(size for size, _ in weights) + tables + learning + moments


def check_memory(task: Task, settings: Any, model: nn.Module, learning: Learning, data: Any) -> Memory:
    """What the training will hold at its worst moment; refuses what does not fit."""
    spare = available_bytes()
    if spare is not None:
        _check_batch(task, settings, model, learning, data, spare)
    memory, rehearsal = _rehearsed(task, settings, model, learning, data)
    if spare is not None and memory.needed > spare:

        def smaller(length: int) -> str:
            return _smaller_that_fits(task, settings, data, length, spare)

        remedy = what_fits(model, learning, settings.training, rehearsal, memory, spare, smaller)
        raise UsageError(
            f"this training would hold {human_bytes(memory.needed)} more memory than now at its worst moment, and "
            f"{human_bytes(spare)} can be had here; {remedy}"
        )
    return memory


def _check_batch(task: Task, settings: Any, model: nn.Module, learning: Learning, data: Any, spare: int) -> None:
    """Refuse a batch that is too large to be made; what all pairs together need has been made by now."""
    count, most = learning.batches.count_per_step, int(MUCH * spare / BYTES_PER_ITEM)
    if count <= most or getattr(settings.training, "full_gradient", False):
        return
    fits, size = settings.training.batch, count
    while size > most and fits > 1:  # short data make less of a batch than was asked for
        fits = max(1, fits * most // size)
        made = task.learning(with_changes(settings, {"training": {"batch": fits}}), data, model)
        size = made.batches.count_per_step if made is not None else 0
    raise UsageError(
        f"a batch of {count:,} {task.counted} needs {human_bytes(count * BYTES_PER_ITEM)} of memory and "
        f"{human_bytes(spare)} can be had here, of which half may be a batch; choose --batch {fits} or less"
    )


def _rehearsed(task: Task, settings: Any, model: nn.Module, learning: Learning, data: Any) -> tuple[Memory, Rehearsal]:
    _ = data.files  # what the folder keeps is held from the moment it is made: now
    rehearsal = rehearse_memory(model, learning, lambda: task.read_held_out(model, data))
    return memory_of(model, settings.training, rehearsal, task.later_bytes(data)), rehearsal


# --------------------------------------------------------------------------- what would fit


def what_fits(
    model: nn.Module,
    learning: Learning,
    training: TrainingSettings,
    rehearsal: Rehearsal,
    memory: Memory,
    spare: float,
    smaller: Callable[[int], str] | None = None,
) -> str:
    """The nearest setting: the same gradients in pieces; the same in less memory; shorter rows; a smaller model.

    `smaller` looks for the last two, from rows of so many positions on (0: not known).
    """
    room = _room(training, memory, rehearsal, spare)
    pieces = rehearsal.nearest_fit(training.accumulate, room)
    if pieces is not None:
        return f"{_said(training, pieces)} would fit, with the same gradients"
    if can_recompute(model) and not training.recompute:
        with recomputing(model):
            pieces = rehearse_memory(model, learning).nearest_fit(training.accumulate, room)
        if pieces is not None:
            return f"{_said(training, pieces, '--recompute')} would fit, with the same gradients"
    length = rehearsal.nearest_length(room) or 0
    if smaller is not None:
        return smaller(length)
    if length:
        return f"--context {length} --accumulate {rehearsal.rows} would fit"
    return "choose a smaller model"


def _room(training: TrainingSettings, memory: Memory, rehearsal: Rehearsal, spare: float) -> float:
    """Bytes that a step may hold; none where saving or reading alone need more than there is."""
    room = spare - memory.moments
    copied = memory.step - rehearsal.step_bytes(training.accumulate)  # what a time budget is timed on
    return room - copied if max(memory.saving, memory.reading) <= room else 0.0


def _said(training: TrainingSettings, pieces: int, *flags: str) -> str:
    return " ".join([*flags, f"--accumulate {pieces}"] if pieces != training.accumulate or not flags else flags)


def _smaller_that_fits(task: Task, settings: Any, data: Any, length: int, spare: int) -> str:
    """The first smaller setting that is found to fit by the same rehearsal that refused this one."""
    later = task.later_bytes(data)
    if later > spare:
        return f"free some memory: measuring and the report alone need {human_bytes(later)}"
    for flag, changed in (*_shorter(settings, length), *(("width", s) for s in _narrower(task, settings))):
        try:
            with torch.random.fork_rng(devices=[]):
                model = task.build(changed, data, Reporter())
                learning = task.learning(changed, data, model)
        except SeqlabError:  # this text, or this model, knows no such size
            continue
        if learning is None:
            break
        memory, rehearsal = _rehearsed(task, changed, model, learning, data)
        room = _room(changed.training, memory, rehearsal, spare)
        pieces = rehearsal.nearest_fit(changed.training.accumulate, room)
        if pieces is not None:
            value = getattr(changed.model if flag == "width" else changed.training, flag)
            return f"{_said(changed.training, pieces, f'--{flag} {value}')} would fit"
    return choose_smaller(task, settings)


def _shorter(settings: Any, length: int) -> list[tuple[str, Any]]:
    """Contexts that halve, from the one that is known to be near, of a task that has them."""
    context = getattr(settings.training, "context", None)
    if context is None:
        return []
    lengths = _halved(length or context // 2, 1)
    return [("context", with_changes(settings, {"training": {"context": n}})) for n in lengths]


def _narrower(task: Task, settings: Any) -> list[Any]:
    """Widths that halve, those that the other sizes allow."""
    width = getattr(getattr(settings, "model", None), "width", None) or 0
    found = []
    for narrow in _halved(width // 2, LEAST_WIDTH):
        try:
            found.append(task.fill(with_changes(settings, {"model": {"width": narrow}})))
        except UsageError:  # heads that do not fit it
            continue
    return found


def _halved(start: int, least: int) -> list[int]:
    return [start >> k for k in range(start.bit_length()) if start >> k >= least]


def choose_smaller(task: Task, settings: Any) -> str:
    flags = [f"--{dashed(name)}" for name in task.smaller(settings)]
    if not flags:
        return "free some memory"
    return "choose a smaller " + " or ".join(filter(None, [", ".join(flags[:-1]), flags[-1]]))


# --------------------------------------------------------------------------- how long?


def estimate(
    settings: Any,
    model: nn.Module,
    learning: Learning,
    memory: Memory,
    validate: Callable[[], Any],
    reporter: Reporter,
) -> Estimate:
    """Time for whoever listens. A calibration is made (once) only where a step is too long to be tried."""

    def calibration() -> Calibration:
        with reporter.task(MEASURING, 1.0):
            return calibration_of(progress=reporter.advance)

    training = settings.training
    with reporter.task("timing a step", 1.0):
        step = step_seconds(model, learning, training, calibration, reporter.advance)
    traded = None
    if training.recompute and can_recompute(model):
        with recomputing(model, on=False):
            without = memory_of(model, training, rehearse_memory(model, learning))
            with reporter.task("timing a step without --recompute", 1.0):
                before = step_seconds(model, learning, training, calibration, reporter.advance)
            traded = Traded(without, before.seconds)
    with reporter.task("timing a validation", None):
        return Estimate(memory, step, measure_validation(model, validate), traded)


def validations_in(steps: int, every: int) -> int:
    """The last step is always validated."""
    return math.ceil(steps / every)
