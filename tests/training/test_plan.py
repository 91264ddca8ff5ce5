"""What a step takes: how often it is tried, and what counts, by a clock that the test turns."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seqlab.core.settings.training import TrainingSettings
from seqlab.core.types import TokenBatch
from seqlab.models import build_lm
from seqlab.training import plan
from seqlab.training.objectives import NextToken
from seqlab.training.plan import Learning, StepCount, make_plan, measure_step, measure_validation, plan_steps

QUICK = 1 / 64  # a fraction that adds up without rounding
SETTINGS = TrainingSettings(learning_rate=0.1, weight_decay=0.0, eval_every=3)


class Clock:
    """Stands still but for what is added to it."""

    def __init__(self) -> None:
        self.now = 7.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(plan, "time", clock)
    return clock


def learning(clock: Clock, seconds: list[float], spent: float = 0.0) -> tuple[Learning, list[int]]:
    """Batches of which number k takes so many seconds (the last of the list from there on), and those asked for."""
    asked: list[int] = []

    def batch(step: int) -> TokenBatch:
        asked.append(step)
        clock.now += seconds[min(step, len(seconds) - 1)]
        block = torch.zeros(2, 4, dtype=torch.long)
        return TokenBatch(block[:, :-1], block[:, 1:], fresh=True)

    return Learning(batch, NextToken(carry=False), spent=spent), asked  # type: ignore[arg-type]


def model() -> nn.Module:
    return build_lm("gru", vocab_size=5, width=4, depth=1)


@pytest.mark.parametrize(
    ("seconds", "budget", "steps", "expected"),
    [
        ([QUICK], 1.0, 32, QUICK),  # for half a second
        ([QUICK], 100.0, 128, QUICK),  # or a fiftieth of the budget
        ([QUICK], 400.0, 200, QUICK),  # at most 200 steps
        ([QUICK] * 190 + [64.0], 1e4, 191, QUICK),
        ([1.0], 1.0, 3, 1.0),  # a slow step: no more once two seconds have gone by
        ([1.0], 20.0, 5, 1.0),  # or a fifth of the budget
        ([5.0], 1.0, 1, 5.0),  # warm-up is better than nothing
        ([30.0, 4.0, 2.0, 1.0, 3.0, 1.0, 1.0], 300.0, 7, 1.0),  # the median without the first two
        ([0.25, 0.25, 0.5, 0.25, 0.125, 0.125, 0.125], 1.0, 7, 0.125),  # never fewer than five of them
    ],
)
def test_how_often_a_step_is_tried(
    clock: Clock, seconds: list[float], budget: float, steps: int, expected: float
) -> None:
    trained, (learns, asked) = model(), learning(clock, seconds)
    before = {name: tensor.clone() for name, tensor in trained.state_dict().items()}
    assert measure_step(trained, learns, SETTINGS, budget) == pytest.approx(expected, rel=1e-12)
    assert asked == list(range(steps))
    assert all(torch.equal(tensor, before[name]) for name, tensor in trained.state_dict().items())


def test_what_was_spent_before_the_first_step_is_not_there_for_steps(clock: Clock) -> None:
    for spent, steps in ((0.0, 40), (4.0, 24), (9.0, 4), (99.0, 1)):
        learns, _ = learning(clock, [0.25], spent)
        count, every = plan_steps(
            model(), learns, TrainingSettings(budget="10s", learning_rate=0.1, weight_decay=0.0), lambda: None
        )
        assert count == StepCount(steps, 0.25, 0.0)
        assert every == max(1, -(-steps // 10))


def test_a_validation_is_timed_as_it_is_done(clock: Clock) -> None:
    trained, modes = model().train(), []

    def validate() -> None:
        modes.append(trained.training)
        clock.now += 2.5

    assert measure_validation(trained, validate) == 2.5
    assert modes == [False]
    assert trained.training


def test_a_plan_logs_two_hundred_times() -> None:
    assert [make_plan(SETTINGS, steps).log_every for steps in (1, 199, 400, 1999, 2000)] == [1, 1, 2, 9, 10]
    assert make_plan(SETTINGS, 7).eval_every == 3
