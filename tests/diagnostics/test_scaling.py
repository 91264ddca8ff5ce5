"""Exponents: the fit on constructed data, formulas on a grid by hand, bytes of real layers, and verdicts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from seqlab.diagnostics.scaling import (
    Exponent,
    Growth,
    Tendency,
    exponent_of,
    grid_of,
    has_axis,
    measure_grids,
    slope,
    tendency,
)
from seqlab.diagnostics.timed_layers import Run, Shape, held_bytes, step_bytes

LENGTHS = [32, 64, 128, 256, 512]


def polynomial_slope(sizes: list[int], costs: list[float]) -> float:
    """By another library."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


# --------------------------------------------------------------------------- the fit


@pytest.mark.parametrize("power", [-1.0, 0.0, 1.0, 1.7, 3.0])
def test_a_power_law_gives_its_exponent(power: float) -> None:
    sizes = [3, 10, 40, 41]
    assert slope(sizes, [0.3 * size**power for size in sizes]) == pytest.approx(power, abs=1e-12)
    rounds = [[factor * size**power for size in sizes] for factor in (1.0, 2.0, 7.0)]
    found = exponent_of(sizes, rounds)
    assert [found.value, found.low, found.high] == pytest.approx([power] * 3, abs=1e-12)


def test_the_interval_by_hand() -> None:
    """Slopes 1, 2 and 3 of three rounds: t_2 = 4.3027, s = 1."""
    found = exponent_of([1, 10], [[1, 10], [1, 100], [1, 1000]])
    half = 4.302652729749464 * math.sqrt(math.pi / 2) / math.sqrt(3)
    assert [found.value, found.low, found.high] == pytest.approx([2, 2 - half, 2 + half])


def test_noise_is_covered() -> None:
    draw, covered, times = np.random.default_rng(0), 0, 400
    sizes = np.array([64, 128, 256, 512])
    for _ in range(times):
        rounds = 1e-3 * sizes**1.5 * np.exp(draw.normal(0, 0.2, (7, 4)))
        found = exponent_of(sizes.tolist(), rounds.tolist())
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 1.5 <= found.high
    assert 0.93 <= covered / times <= 0.99


def test_one_slow_moment_moves_the_exponent_little() -> None:
    rounds = [[float(size) for size in LENGTHS] for _ in range(7)]
    rounds[3][-1] *= 50
    found = exponent_of(LENGTHS, rounds)
    assert found.value == pytest.approx(1)
    assert found.high is not None
    assert found.high > 1.1, "but the interval says that something happened"


def test_one_round_says_nothing_of_its_spread() -> None:
    found = exponent_of([1, 2], [[1, 2]])
    assert (found.low, found.high) == (-math.inf, math.inf)


# --------------------------------------------------------------------------- formulas


@pytest.mark.parametrize("causal", [False, True])
def test_formulas_of_attention_on_a_grid(causal: bool) -> None:
    """8nd² + 4n²d, causal 8nd² + 2n(n+1)d: even at n = 2d, so the exponent lies between 1 and 2."""
    d, base = 64, Shape("softmax", 1, 512, 64, 4, causal=causal)
    costs = [8 * n * d * d + (2 * n * (n + 1) * d if causal else 4 * n * n * d) for n in LENGTHS]
    growth = measured(grid_of(base, "length", LENGTHS, None), "forward")
    assert growth.counted == costs
    assert growth.formula == pytest.approx(polynomial_slope(LENGTHS, costs), abs=1e-10)
    assert 1 < growth.formula < 2
    assert growth.tendency == Tendency(2, ("scores", "mixing"))


def measured(grid: object, what: str) -> Growth:
    found = measure_grids([grid], 2, lambda run: float(run.shape.length))  # type: ignore[list-item]
    return next(growth for growth in found if growth.what == what)


@pytest.mark.parametrize(
    ("kind", "axis", "what", "power"),
    [
        ("softmax", "width", "forward", 2),
        ("softmax", "heads", "forward", 0),
        ("separable", "length", "training", 1),
        ("separable", "width", "training", 2),
        ("separable", "heads", "forward", 0),  # the projections; mixing has −1
        ("random_features", "length", "forward", 1),
        ("random_features", "width", "forward", 2),
        ("gru", "length", "training", 1),
        ("lstm", "width", "forward", 2),
        ("block", "length", "forward", 2),
        ("softmax", "length", "bytes", 1),
        ("softmax", "heads", "bytes", 1),  # one logarithm for each query and head
        ("gru", "width", "bytes", 2),  # the gradients
    ],
)
@pytest.mark.parametrize("causal", [False, True])
def test_what_formulas_tend_to(kind: str, axis: str, what: str, power: int, causal: bool) -> None:
    found = tendency(Shape(kind, 1, 64, 32, 4, causal=causal), axis, [1, 2, 4], what)
    assert found.exponent == power


# --------------------------------------------------------------------------- bytes of real layers


@pytest.mark.parametrize("kind", ["softmax", "gru", "lstm", "rnn", "block"])
def test_memory_grows_in_proportion_to_the_length(kind: str) -> None:
    """Softmax too: its kernel forms no weights. The weights' gradients, which are always there, are small here."""
    growth = bytes_of(kind, causal=True)
    assert growth.exponent.value == pytest.approx(1, abs=0.03)
    assert growth.exponent.low is None
    assert growth.formula == pytest.approx(1, abs=0.03)
    assert growth.word == "agrees"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["separable", "random_features"])
def test_memory_of_linear_attention_grows_no_faster(kind: str, causal: bool) -> None:
    """What is kept is proportional to the length; what is held for a moment is that of a segment at most."""
    growth = bytes_of(kind, causal=causal)
    assert 0.8 < growth.exponent.value < 1.01
    assert growth.formula == pytest.approx(1, abs=0.02)


def bytes_of(kind: str, *, causal: bool) -> Growth:
    return measured(grid_of(Shape(kind, 2, 1, 8, 2, causal=causal), "length", [256, 512, 1024], None), "bytes")


def test_grids_measured_together_are_not_mixed_up() -> None:
    """Each layer and pass has a law of its own."""
    powers = {
        ("softmax", "forward"): 2.0,
        ("softmax", "training"): 1.5,
        ("gru", "forward"): 1.0,
        ("gru", "training"): 0.5,
    }

    def timer(run: Run) -> float:
        return 1e-3 * run.shape.length ** powers[run.shape.kind, run.what]

    grids = [
        grid_of(Shape("softmax", 1, 1, 8, 2), "length", [4, 8, 16], None),
        grid_of(Shape("gru", 1, 1, 8), "length", [4, 8, 16, 32], None),
    ]
    found = {(growth.layer, growth.what): growth for growth in measure_grids(grids, 3, timer)}
    for place, power in powers.items():
        assert found[place].exponent.value == pytest.approx(power)
        assert found[place].measured == [pytest.approx(1e-3 * n**power) for n in found[place].sizes]
    assert found["gru", "bytes"].sizes == [4, 8, 16, 32]


def test_sizes_that_do_not_fit_are_left_out() -> None:
    base = Shape("softmax", 1, 1, 16, 2)
    shapes = [base.at("length", n) for n in (64, 128, 256)]
    spare = (held_bytes(shapes[0]) + held_bytes(shapes[1]) + step_bytes(shapes[1])) / 0.8 + 1
    found = grid_of(base, "length", [64, 128, 256], spare)
    assert (found.sizes, found.left_out) == ([64, 128], [256])


def test_recurrent_layers_have_no_heads() -> None:
    assert [has_axis(kind, "heads") for kind in ("gru", "softmax", "block")] == [False, True, True]


# --------------------------------------------------------------------------- verdicts


def growth_of(measured: list[float], low: float, high: float, what: str = "training") -> Growth:
    """Sizes 1, 10, 100, whose formula is linear."""
    sizes = [1, 10, 100]
    exponent = Exponent(slope(sizes, measured), low, high)
    peaks = [1e6, 1e7, 1e8]
    return Growth("gru", "length", what, sizes, measured, [2.0, 20.0, 200.0], exponent, Tendency(1, ()), peaks, None)


def test_verdicts_follow_from_the_values() -> None:
    agrees = growth_of([1, 10, 100], 0.98, 1.02)
    assert (agrees.word, agrees.reason, agrees.relative) == ("agrees", None, 1.0)
    assert growth_of([1, 8, 64], 0.88, 0.92).word == "agrees", "within 0.1 of the interval"
    assert growth_of([1, 8, 64], 0.3, 1.5).word == "undecided"
    below = growth_of([5, 14, 104], 0.6, 0.7)
    assert (below.word, below.reason) == ("differs", "constant")
    assert below.relative == pytest.approx(104 / 100 / 5)
    assert below.at_last == (pytest.approx(math.log10(104 / 14)), pytest.approx(1))
    above = growth_of([1, 10, 400], 1.25, 1.35)
    assert (above.word, above.reason) == ("differs", "uncounted")
    assert replace(above, cache=32_000_000).reason == "caches"
    assert replace(above, cache=500_000).reason == "uncounted", "a step never fitted into it"
    assert replace(above, what="bytes", exponent=Exponent(1.3)).reason == "brief"
