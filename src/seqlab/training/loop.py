"""The one training loop, for every task.

    for each step:  loss = Σ objective / count → backward → clip ‖g‖ → optimiser at η(step) → average of the weights
    now and then:   validate, keep the best weights, save

What a batch holds and how the model is called is the objective's business. Everything the loop needs to go on after
a crash is in `Position`, the weights, the optimiser's moments and torch's default generator (dropout).
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn

from seqlab.core.errors import NotFiniteError
from seqlab.core.state import State, detach, join, split
from seqlab.core.types import Batch
from seqlab.training.averaging import WeightAverage
from seqlab.training.finite import first_gradient_not_finite, first_layer_not_finite
from seqlab.training.objectives import Loss, Objective, Score
from seqlab.training.optim import set_learning_rate
from seqlab.training.schedules import Schedule


@dataclass(frozen=True)
class Plan:
    """What the loop is to do, in steps."""

    schedule: Schedule
    steps: int
    eval_every: int
    log_every: int
    patience: int
    clip: float
    accumulate: int = 1
    clip_value: float | None = None


@dataclass
class Position:
    """Where the loop stands; saved with every checkpoint."""

    step: int = 0
    count: int = 0  # units (tokens, labels …) learnt from so far
    seconds: float = 0.0
    best: float = math.inf
    best_step: int = 0
    misses: int = 0
    total: float = 0.0  # training loss since the last log line, as a sum
    counted: int = 0  # and its count
    gradient_norm: float = 0.0
    lines: int = 0  # log lines written so far
    carried: State = None

    def record(self) -> dict[str, Any]:
        """Everything but the carried state, as JSON values."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "carried"}
        return values | {"best": self.best if math.isfinite(self.best) else None}

    @classmethod
    def from_record(cls, record: dict[str, Any], carried: State) -> Position:
        best = math.inf if record["best"] is None else record["best"]
        return cls(**(record | {"best": best}), carried=carried)


@dataclass(frozen=True)
class Logged:
    """What is worth a line: the mean training loss since the last one and, now and then, a validation."""

    loss: float
    learning_rate: float
    gradient_norm: float
    validation: Score | None


class Callbacks(Protocol):
    """What a run does at the loop's moments of rest."""

    def stepped(self, position: Position) -> None: ...
    def validate(self) -> Score: ...
    def keep_best(self, position: Position) -> None: ...
    def log(self, position: Position, logged: Logged) -> None: ...
    def after_step(self, position: Position) -> None: ...
    def save(self, position: Position) -> None: ...
    def interrupted(self) -> bool: ...


def train(
    model: nn.Module,
    objective: Objective,
    optimiser: torch.optim.Optimizer,
    batches: Callable[[int], Batch],
    plan: Plan,
    position: Position,
    callbacks: Callbacks,
    average: WeightAverage | None = None,
) -> str:
    """Train from `position` on; returns "finished", "stopped early" or "interrupted"."""
    clock = time.perf_counter() - position.seconds
    model.train()
    while position.step < plan.steps:
        if plan.patience and position.misses >= plan.patience:
            callbacks.save(position)
            return "stopped early"
        if callbacks.interrupted():
            callbacks.save(position)
            return "interrupted"
        rate = plan.schedule(position.step)
        training_step(model, objective, optimiser, batches(position.step), plan, position, rate)
        if average is not None:
            average.update(model, position.step)
        callbacks.stepped(position)
        position.seconds = time.perf_counter() - clock
        last = position.step == plan.steps
        if last or position.step % plan.log_every == 0 or position.step % plan.eval_every == 0:
            _log(model, position, callbacks, rate, validate=last or position.step % plan.eval_every == 0)
            position.seconds = time.perf_counter() - clock
        callbacks.after_step(position)
    callbacks.save(position)
    return "finished"


def training_step(
    model: nn.Module,
    objective: Objective,
    optimiser: torch.optim.Optimizer,
    batch: Batch,
    plan: Plan,
    position: Position,
    rate: float,
) -> None:
    """One step on one batch, cut into `accumulate` pieces whose gradients add up to that of the whole."""
    pieces = batch.cut(plan.accumulate)
    states = split(None if batch.fresh else position.carried, len(pieces))
    total, count, carried = 0.0, 0, []
    for piece, state in zip(pieces, states, strict=True):
        loss = objective(model, piece, state)
        torch.autograd.backward(loss.total / batch.count)
        total, count = total + loss.total.item(), count + loss.count
        carried.append(detach(loss.state))
        if not math.isfinite(total):
            _stop_not_finite(model, partial(objective, model, piece, state), position, rate, "loss", total)
    norm = clip_gradients(model, plan)
    if not math.isfinite(norm):
        again = partial(objective, model, pieces[-1], states[-1])
        _stop_not_finite(model, again, position, rate, "gradient norm", norm)
    set_learning_rate(optimiser, rate)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    position.carried = join(carried)
    position.step += 1
    position.count += count
    position.total += total
    position.counted += count
    position.gradient_norm = norm


def clip_gradients(model: nn.Module, plan: Plan) -> float:
    """First each number to ±clip_value, if that is asked for, then all to a norm of `clip`; the norm in between.

    What is not finite stays so: a clipped infinity would look like a gradient.
    """
    parameters = list(model.parameters())
    if plan.clip_value is not None:
        whole = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]).item()
        if not math.isfinite(whole):
            return whole
        nn.utils.clip_grad_value_(parameters, plan.clip_value)
    return nn.utils.clip_grad_norm_(parameters, plan.clip).item()


def _log(model: nn.Module, position: Position, callbacks: Callbacks, rate: float, *, validate: bool) -> None:
    loss = position.total / position.counted
    position.total, position.counted = 0.0, 0
    score = None
    if validate:
        model.eval()
        score = callbacks.validate()
        model.train()
        if score.value < position.best:
            position.best, position.best_step, position.misses = score.value, position.step, 0
            callbacks.keep_best(position)
        else:
            position.misses += 1
    position.lines += 1
    callbacks.log(position, Logged(loss, rate, position.gradient_norm, score))


def _stop_not_finite(
    model: nn.Module, again: Callable[[], Loss], position: Position, rate: float, what: str, value: float
) -> None:
    layer = first_layer_not_finite(model, again)
    place = f"the first layer whose activation is not finite is '{layer}'"
    if layer is None:
        place = f"every activation is finite; the first bad gradient is that of '{first_gradient_not_finite(model)}'"
    raise NotFiniteError(
        f"the {what} became {value} at step {position.step + 1}; {place}; "
        f"try a smaller --learning-rate (it was {rate:.2g}) or a smaller --clip"
    )
