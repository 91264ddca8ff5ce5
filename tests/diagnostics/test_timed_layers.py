"""Layers of a shape: what is counted by hand, how much memory is foreseen, and a stopwatch with a clock of its own."""

from __future__ import annotations

import pytest
import torch

import seqlab
from seqlab.core.errors import NotFiniteError
from seqlab.diagnostics.timed_layers import (
    Case,
    Run,
    Shape,
    Stopwatch,
    build,
    counted,
    held_bytes,
    in_turns,
    step_bytes,
    that_fit,
)
from seqlab.layers import DecoderBlock, EncoderBlock

KINDS = ("softmax", "separable", "random_features", "gru", "lstm", "rnn", "block")
SHAPES = [(1, 64, 32, 4), (2, 256, 16, 2), (1, 32, 128, 8), (3, 200, 24, 1)]


def test_products_by_hand() -> None:
    B, n, d, N, m = 3, 50, 24, 4, 7
    projections = 8 * B * n * d * d
    by_hand = {
        ("softmax", False): projections + 4 * B * n * n * d,
        ("softmax", True): projections + 2 * B * n * (n + 1) * d,  # each sees (n + 1)/2 on average
        ("separable", False): projections + 4 * B * n * d * (d // N),
        ("random_features", False): projections + 8 * B * n * m * d,
        ("gru", False): 12 * B * n * d * d,
        ("lstm", False): 16 * B * n * d * d,
        ("rnn", False): 4 * B * n * d * d,
        ("block", False): projections + 4 * B * n * n * d + 16 * B * n * d * d,
        ("block", True): projections + 2 * B * n * (n + 1) * d + 16 * B * n * d * d,
    }
    for (kind, causal), products in by_hand.items():
        found = counted(Shape(kind, B, n, d, N, m, causal))
        assert found.forward == products, (kind, causal)
        if kind != "random_features":  # whose directions do not learn
            assert found.training == 3 * products


@pytest.mark.parametrize("kind", KINDS)
def test_counts_are_those_of_the_built_layer(kind: str) -> None:
    shape = Shape(kind, 2, 40, 16, 2)
    cost = seqlab.cost(build(shape), 2, 40)
    found = counted(shape)
    assert found.forward == cost.flops_forward
    assert found.training == cost.flops_forward + cost.flops_backward
    assert found.bytes == cost.saved_bytes + cost.gradient_bytes


def test_a_block_is_causal_or_not() -> None:
    assert isinstance(build(Shape("block", 1, 4, 8, 2, causal=True)), DecoderBlock)
    assert isinstance(build(Shape("block", 1, 4, 8, 2)), EncoderBlock)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_holds_less_than_is_foreseen(kind: str, causal: bool) -> None:
    for batch, length, width, heads in SHAPES:
        shape = Shape(kind, batch, length, width, heads, causal=causal)
        case = Case(shape)
        peak = case.peak_bytes()
        assert 0 < peak <= step_bytes(shape) <= 5 * peak
        weights = sum(weight.numel() for weight in case.layer.parameters())
        assert held_bytes(shape) == 4 * (weights + case.x.numel() + case.gradient.numel())
        assert case.peak_bytes() == peak, "the same each time"


def test_cases_fit_together() -> None:
    shapes = [Shape("softmax", 1, n, 16, 2) for n in (100, 200, 400)]
    first, second = (held_bytes(shape) for shape in shapes[:2])
    needed = first + second + step_bytes(shapes[1])
    assert that_fit(shapes, None) == shapes
    assert that_fit(shapes[::-1], needed / 0.8 + 1) == shapes[:2]
    assert that_fit(shapes, needed / 0.8 - 10) == shapes[:1]
    assert that_fit(shapes, 10) == []


def test_what_is_not_finite_is_not_timed() -> None:
    case = Case(Shape("softmax", 1, 4, 8, 2))
    case.check()
    assert case.x.grad is None
    with torch.no_grad():
        next(case.layer.parameters()).fill_(torch.nan)
    with pytest.raises(NotFiniteError, match=r"output of softmax \(length 4, width 8, 2 heads\) is not finite"):
        case.check()


def test_a_step_leaves_no_gradient() -> None:
    case = Case(Shape("gru", 1, 4, 8))
    case.step()
    assert case.x.grad is None
    assert all(weight.grad is None for weight in case.layer.parameters())
    assert not torch.equal(case.output(), torch.zeros(1, 4, 8))


# --------------------------------------------------------------------------- the stopwatch


class Clock:
    """Moves only when something is run."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def run(self, name: str, seconds: float, calls: list[str]) -> Run:
        def call() -> None:
            calls.append(name)
            self.now += seconds

        return Run(Shape(name, 1, 1, 1), "forward", call)


def test_short_calls_are_repeated_and_long_ones_are_not() -> None:
    clock, calls = Clock(), list[str]()
    short, long = clock.run("short", 0.25, calls), clock.run("long", 8.0, calls)
    watch = Stopwatch(clock, least=1.0)
    assert (watch(short), watch(long)) == (0.25, 8.0)
    assert calls == ["short"] * (2 + 4) + ["long"] * (2 + 1), "one to warm up, one to see how long it takes"
    assert watch(short) == 0.25
    assert calls[9:] == ["short"] * 4


def test_runs_take_turns() -> None:
    runs = [Run(Shape(name, 1, 1, 1), "forward", lambda: None) for name in "ab"]
    seen, told = list[str](), list[int]()

    def timer(run: Run) -> float:
        seen.append(run.shape.kind)
        return float(len(seen))

    assert in_turns(runs, 3, timer, told.append) == [[1, 2], [3, 4], [5, 6]]
    assert seen == ["a", "b"] * 3
    assert told == list(range(6))
