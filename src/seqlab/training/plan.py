"""From a budget to a plan, once, before step 1: how many steps, how often to validate.

steps = ⌈amount · steps per unit⌉                       steps, tokens, epochs
seconds = steps · (s + v / eval_every)                  a time budget, with s and v timed on a copy of the model
seconds = steps · s + v · validations                   where nobody says how often to validate
"""

from __future__ import annotations

import copy
import dataclasses
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from seqlab.core.settings.fields import filled
from seqlab.core.settings.training import TrainingSettings
from seqlab.core.types import Batches
from seqlab.core.units import Budget, parse_budget
from seqlab.training.loop import Plan, Position, training_step
from seqlab.training.objectives import Objective
from seqlab.training.optim import optimiser_for
from seqlab.training.schedules import Schedule

WARMUP_STEPS = 2
LEAST_SHARE = 0.2  # of the time that is training, however slow a validation is


@dataclass(frozen=True)
class Learning:
    """What a task hands to the loop: batches by number, and what is learnt from them."""

    batches: Batches
    objective: Objective
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)  # of the batches, for the record
    spent: float = 0.0  # seconds of a time budget that were needed before the first step


@dataclass(frozen=True)
class StepCount:
    steps: int
    seconds_per_step: float | None = None  # measured for time budgets only
    seconds_per_validation: float | None = None

    def facts(self) -> dict[str, Any]:
        """For the record."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


def plan_steps(
    model: nn.Module, learning: Learning, training: TrainingSettings, validate: Callable[[], Any]
) -> tuple[StepCount, int]:
    """The steps that the budget buys, and how many of them lie between two validations.

    Only a time budget is timed; neither the model nor a random stream is touched.
    """
    budget = parse_budget(training.budget)

    def measured() -> tuple[float, float]:
        return measure_step(model, learning, training, budget.seconds or 0.0), measure_validation(model, validate)

    if budget.unit == "seconds":
        budget = dataclasses.replace(budget, amount=max(1e-3, budget.amount - learning.spent))
    count = count_steps(budget, learning.batches, measured, training.eval_every)
    return count, training.eval_every or max(1, -(-count.steps // validations_on_the_way(budget)))


def count_steps(
    budget: Budget, batches: Any, measured: Callable[[], tuple[float, float]], eval_every: int | None
) -> StepCount:
    """How many steps a budget buys; only a time budget asks for the measured seconds of a step and a validation."""
    if budget.unit == "seconds":
        step, validation = measured()
        if eval_every is not None:
            steps = budget.amount / (step + validation / eval_every)
        else:
            steps = (budget.amount - validation * validations_on_the_way(budget)) / step
        return StepCount(max(1, int(max(steps, LEAST_SHARE * budget.amount / step))), step, validation)
    per_unit = {"steps": 1.0, "tokens": 1 / batches.count_per_step, "epochs": batches.steps_per_epoch}
    return StepCount(max(1, math.ceil(budget.amount * per_unit[budget.unit] - 1e-9)))


def measure_step(model: nn.Module, learning: Learning, training: TrainingSettings, budget: float) -> float:
    """Median seconds of a training step, on a copy of the model; no random stream is touched."""
    trial = copy.deepcopy(model).train()
    optimiser = optimiser_for(trial, training)
    plan = make_plan(dataclasses.replace(training, eval_every=1), 1)
    position = Position()
    times: list[float] = []
    enough = min(max(0.5, 0.02 * budget), 5.0)
    with torch.random.fork_rng(devices=[]):
        while len(times) < WARMUP_STEPS + 5 or (sum(times) < enough and len(times) < 200):
            start = time.perf_counter()
            batch = learning.batches(position.step)
            training_step(trial, learning.objective, optimiser, batch, plan, position, rate=0.0)
            times.append(time.perf_counter() - start)
            if sum(times) > max(2.0, 0.2 * budget):  # a step so slow that measuring eats the budget
                break
    return statistics.median(times[WARMUP_STEPS:] or times)


def measure_validation(model: nn.Module, validate: Callable[[], Any]) -> float:
    """Seconds of one, done as the loop does it: in evaluation mode, so that nothing is dropped and no mean moves."""
    was, begun = model.training, time.perf_counter()
    model.eval()
    try:
        with torch.random.fork_rng(devices=[]):
            validate()
    finally:
        model.train(was)
    return time.perf_counter() - begun


def validations_on_the_way(budget: Budget) -> int:
    """How often to validate: every 20 s, at least 10 and at most 50 times; 20 times for other budgets."""
    return 20 if budget.seconds is None else int(min(50, max(10, budget.seconds / 20)))


def make_plan(training: TrainingSettings, steps: int) -> Plan:
    """The plan that filled training settings and a step count make."""
    rate = filled(training.learning_rate)
    cooldown = {} if training.cooldown is None else {"cooldown": training.cooldown}
    return Plan(
        schedule=Schedule(rate, steps, training.warmup, training.decay, training.final_lr, **cooldown),
        steps=steps,
        eval_every=filled(training.eval_every),
        log_every=max(1, steps // 200),
        patience=training.patience,
        clip=training.clip,
        clip_value=training.clip_value,
        accumulate=training.accumulate,
    )
