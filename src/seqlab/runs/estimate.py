"""Will it fit, and how long will it take? Asked before the first step of every training.

What would not fit into memory is refused in one line that names the nearest setting that would. Neither the model nor
a random stream is touched, and nothing of it is recorded.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from seqlab.core.errors import UsageError
from seqlab.core.reporting import Reporter
from seqlab.core.settings.training import TrainingSettings
from seqlab.core.units import human_bytes, human_moment, human_seconds
from seqlab.diagnostics.cost import optimiser_bytes
from seqlab.diagnostics.forecast import (
    Memory,
    Rehearsal,
    StepSeconds,
    available_bytes,
    can_recompute,
    memory_of,
    recomputing,
    rehearse_memory,
    step_seconds,
)
from seqlab.diagnostics.machine import Calibration, calibration_of
from seqlab.runs.task import Task
from seqlab.training.plan import Learning

BYTES_PER_ITEM = 16  # of a batch: two ids of eight bytes
MUCH = 0.5  # of the spare memory: a batch that alone takes more is not even made


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

    def lines(self, steps: int, validations: int) -> list[str]:
        """seconds = steps · s + validations · v"""
        s, m = self.step, self.memory
        whole = steps * s.seconds + validations * self.validation
        how = "timed" if s.timed else "from the calibration of this machine"
        spread = f"{human_moment(s.low)} to {human_moment(s.high)}"
        found = [
            f"estimate: {human_moment(s.seconds)} a step ({spread}, {how}), {human_seconds(whole)} for {steps:,} steps "
            f"and {validations:,} validations",
            f"memory: at most {human_bytes(m.peak)}; {human_bytes(m.process)} are held now, {human_bytes(m.moments)} "
            f"for the optimiser, {human_bytes(m.step)} for a step, {human_bytes(m.reading)} for measuring",
        ]
        return found if self.traded is None else [*found, self.traded.sentence(m, s)]


# --------------------------------------------------------------------------- will it fit?


def check_weights(task: Task, settings: Any, data: Any) -> None:
    """Refuse a model whose weights, gradients and moments alone would not fit, before any of them is made."""
    spare = available_bytes()
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            model = task.outline(settings, data.files)
    except Exception:
        return
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    training = settings.training
    needed = 2 * weights + optimiser_bytes(model, training.optimiser, ema=bool(training.ema))
    if spare is not None and needed > spare:
        raise UsageError(
            f"the model's weights, gradients and moments need {human_bytes(needed)} of memory and "
            f"{human_bytes(spare)} can be had here; choose a smaller --size, --width or --vocab-size"
        )


def check_memory(task: Task, settings: Any, model: nn.Module, learning: Learning, data: Any) -> Memory:
    """What the training will hold at its worst moment; refuses what does not fit."""
    spare, training = available_bytes(), settings.training
    count = learning.batches.count_per_step
    if spare is not None and count * BYTES_PER_ITEM > MUCH * spare:
        raise UsageError(
            f"a batch of {count:,} {task.counted} needs {human_bytes(count * BYTES_PER_ITEM)} of memory and "
            f"{human_bytes(spare)} can be had here; choose a smaller --batch"
        )

    def read() -> None:
        task.read_held_out(model, data)

    rehearsal = rehearse_memory(model, learning, read)
    memory = memory_of(model, training, rehearsal, task.later_bytes)
    if spare is not None and memory.needed > spare:
        remedy = _what_fits(model, learning, training, rehearsal, memory, spare)
        raise UsageError(
            f"this training would hold {human_bytes(memory.needed)} more memory than now at its worst moment, and "
            f"{human_bytes(spare)} can be had here; {remedy}"
        )
    return memory


def _what_fits(
    model: nn.Module, learning: Learning, training: TrainingSettings, rehearsal: Rehearsal, memory: Memory, spare: float
) -> str:
    """The nearest setting: the same gradients in pieces; the same in less memory; shorter rows; a smaller model."""
    spare -= memory.moments
    if max(memory.saving, memory.reading) > spare:
        return "choose a smaller --size or --width"
    pieces = rehearsal.nearest_fit(training.accumulate, spare)
    if pieces is not None:
        return f"--accumulate {pieces} would fit, with the same gradients"
    if can_recompute(model) and not training.recompute:
        with recomputing(model):
            pieces = rehearse_memory(model, learning).nearest_fit(training.accumulate, spare)
        if pieces is not None:
            return f"--recompute --accumulate {pieces} would fit, with the same gradients"
    length = rehearsal.nearest_length(spare)
    if length is not None:
        return f"--context {length} --accumulate {rehearsal.rows} would fit"
    return "choose a smaller --size or --width"


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
        with reporter.task("measuring this machine (once)", 1.0):
            return calibration_of(progress=reporter.advance)

    training = settings.training
    step = step_seconds(model, learning, training, calibration)
    traded = None
    if training.recompute and can_recompute(model):
        with recomputing(model, on=False):
            without = memory_of(model, training, rehearse_memory(model, learning))
            traded = Traded(without, step_seconds(model, learning, training, calibration).seconds)
    return Estimate(memory, step, _seconds_to_validate(model, validate), traded)


def _seconds_to_validate(model: nn.Module, validate: Callable[[], Any]) -> float:
    """As the loop does it: in evaluation mode, so that nothing is dropped and no running mean moves."""
    was, begun = model.training, time.perf_counter()
    model.eval()
    try:
        with torch.random.fork_rng(devices=[]):
            validate()
    finally:
        model.train(was)
    return time.perf_counter() - begun


def validations_in(steps: int, every: int) -> int:
    """The last step is always validated."""
    return math.ceil(steps / every)
