"""From a budget to a number of steps, once, before step 1."""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from seqlab.core.units import Budget
from seqlab.training.loop import Plan, Position, training_step
from seqlab.training.schedules import Schedule

WARMUP_STEPS = 2


@dataclass(frozen=True)
class StepCount:
    steps: int
    seconds_per_step: float | None = None  # measured for time budgets only
    seconds_per_validation: float | None = None


def count_steps(
    budget: Budget, batches: Any, measured: Callable[[], tuple[float, float]], eval_every: int | None
) -> StepCount:
    """How many steps a budget buys; only a time budget asks for the measured seconds of a step and a validation.

    seconds = steps · (s + v / eval_every),   or   steps · s + v · validations   where nobody says how often
    """
    if budget.unit == "seconds":
        step, validation = measured()
        if eval_every is not None:
            steps = budget.amount / (step + validation / eval_every)
        else:
            steps = (budget.amount - validation * validations_on_the_way(budget)) / step
        least = 0.2 * budget.amount / step  # a validation text that is slow to score leaves at least so much
        return StepCount(max(1, int(max(steps, least))), step, validation)
    per_unit = {"steps": 1.0, "tokens": 1 / batches.tokens_per_step, "epochs": batches.steps_per_epoch}
    return StepCount(max(1, math.ceil(budget.amount * per_unit[budget.unit] - 1e-9)))


def measure_step(
    model: torch.nn.Module,
    make_optimiser: Callable[[Any], Any],
    batches: Any,
    plan_for_one: Plan,
    budget: float,
) -> float:
    """Median seconds of a training step, on a copy of the model; no random stream is touched."""
    trial = copy.deepcopy(model).train()
    optimiser = make_optimiser(trial)
    position = Position()
    times: list[float] = []
    enough = min(max(0.5, 0.02 * budget), 5.0)
    with torch.random.fork_rng(devices=[]):
        while len(times) < WARMUP_STEPS + 5 or (sum(times) < enough and len(times) < 200):
            start = time.perf_counter()
            training_step(trial, optimiser, batches(position.step), plan_for_one, position, rate=0.0)
            times.append(time.perf_counter() - start)
            if sum(times) > max(2.0, 0.2 * budget):  # a step so slow that measuring eats the budget
                break
    return statistics.median(times[WARMUP_STEPS:] or times)


def validations_on_the_way(budget: Budget) -> int:
    """How often to validate: every 20 s, at least 10 and at most 50 times; 20 times for other budgets."""
    return 20 if budget.seconds is None else int(min(50, max(10, budget.seconds / 20)))


def make_plan(settings: Any, steps: int, *, carry: bool) -> Plan:
    """The plan that fitted training settings and a step count make."""
    schedule = Schedule(settings.learning_rate, steps, settings.warmup, settings.decay, settings.final_lr)
    return Plan(
        schedule=schedule,
        steps=steps,
        eval_every=settings.eval_every,
        log_every=max(1, steps // 200),
        patience=settings.patience,
        clip=settings.clip,
        accumulate=settings.accumulate,
        carry=carry,
    )
