"""The one training loop, for every model.

    for each step:  loss = Σ nats / tokens → backward → clip ‖g‖ → AdamW at η(step)
    now and then:   validate, keep the best weights, save

Everything the loop needs to go on after a crash is in `Position`, the weights, the optimiser's moments
and torch's default generator (dropout).
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.core.errors import NotFiniteError
from seqlab.core.state import State, detach, join, split
from seqlab.core.types import Batch, PairCounts
from seqlab.training.finite import first_gradient_not_finite, first_layer_not_finite
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
    carry: bool = False


@dataclass
class Position:
    """Where the loop stands; saved with every checkpoint."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float = math.inf
    best_step: int = 0
    misses: int = 0
    nats: float = 0.0  # training loss since the last log line, as a sum
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


class Callbacks(Protocol):
    """What a workflow does at the loop's moments of rest."""

    def validate(self) -> float: ...
    def keep_best(self, position: Position) -> None: ...
    def log(self, position: Position, figures: dict[str, float]) -> None: ...
    def after_step(self, position: Position) -> None: ...
    def save(self, position: Position) -> None: ...
    def interrupted(self) -> bool: ...


def train(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    batches: Callable[[int], Batch | PairCounts],
    plan: Plan,
    position: Position,
    callbacks: Callbacks,
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
        training_step(model, optimiser, batches(position.step), plan, position, rate)
        position.seconds = time.perf_counter() - clock
        last = position.step == plan.steps
        if last or position.step % plan.log_every == 0 or position.step % plan.eval_every == 0:
            _log(model, plan, position, callbacks, rate, validate=last or position.step % plan.eval_every == 0)
            position.seconds = time.perf_counter() - clock
        callbacks.after_step(position)
    callbacks.save(position)
    return "finished"


def training_step(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    batch: Batch | PairCounts,
    plan: Plan,
    position: Position,
    rate: float,
) -> None:
    """One step on one batch."""
    state = None if batch.fresh or not plan.carry else position.carried
    if isinstance(batch, PairCounts):
        total = _gradient_of_pairs(model, batch, position, rate)
    else:
        total = _gradient_of_text(model, batch, state, plan, position, rate)
    norm = nn.utils.clip_grad_norm_(model.parameters(), plan.clip).item()
    if not math.isfinite(norm):
        _stop_not_finite(model, batch.inputs, state, position, rate, "gradient norm", norm)
    set_learning_rate(optimiser, rate)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    position.step += 1
    position.tokens += batch.tokens
    position.nats += total
    position.counted += batch.tokens
    position.gradient_norm = norm


def _gradient_of_pairs(model: Any, batch: PairCounts, position: Position, rate: float) -> float:
    nats = model.nats_of_pairs(batch)
    torch.autograd.backward(nats / batch.tokens)
    total: float = nats.item()
    if not math.isfinite(total):
        _stop_not_finite(model, batch.inputs, None, position, rate, "loss", total)
    return total


def _gradient_of_text(
    model: nn.Module, batch: Batch, state: State, plan: Plan, position: Position, rate: float
) -> float:
    """The batch is cut into `accumulate` pieces whose gradients add up to that of the whole."""
    pieces = min(plan.accumulate, len(batch.inputs))
    total, states = 0.0, []
    cut = batch.inputs.chunk(pieces)
    groups = zip(cut, batch.targets.chunk(pieces), split(state, len(cut)), strict=True)
    for inputs, targets, piece_state in groups:
        logits, new_state = model(inputs, piece_state)
        nats = sum_of_nats(logits, targets)
        torch.autograd.backward(nats / batch.tokens)
        total += nats.item()
        if plan.carry:
            states.append(detach(new_state))
        if not math.isfinite(total):
            _stop_not_finite(model, inputs, piece_state, position, rate, "loss", total)
    position.carried = join(states) if plan.carry else None
    return total


def sum_of_nats(logits: Tensor, targets: Tensor) -> Tensor:
    """Σ −ln p(target):  logits (B, T, V), targets (B, T) -> scalar."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def _log(
    model: nn.Module, plan: Plan, position: Position, callbacks: Callbacks, rate: float, *, validate: bool
) -> None:
    figures = {
        "train_nats_per_token": position.nats / position.counted,
        "learning_rate": rate,
        "gradient_norm": position.gradient_norm,
    }
    position.nats, position.counted = 0.0, 0
    if validate:
        model.eval()
        value = callbacks.validate()
        model.train()
        figures["validation_nats_per_token"] = value
        if value < position.best:
            position.best, position.best_step, position.misses = value, position.step, 0
            callbacks.keep_best(position)
        else:
            position.misses += 1
    position.lines += 1
    callbacks.log(position, figures)


def _stop_not_finite(
    model: nn.Module, inputs: Tensor, state: State, position: Position, rate: float, what: str, value: float
) -> None:
    layer = first_layer_not_finite(model, inputs, state)
    place = f"the first layer whose activation is not finite is '{layer}'"
    if layer is None:
        place = f"every activation is finite; the first bad gradient is that of '{first_gradient_not_finite(model)}'"
    raise NotFiniteError(
        f"the {what} became {value} at step {position.step + 1}; {place}; "
        f"try a smaller --learning-rate (it was {rate:.2g}) or a smaller --clip"
    )
