"""Crossings of constructed curves, their intervals, and those of the formulas by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seqlab.diagnostics.crossover import (
    NEVER,
    START,
    counted_crossing,
    crossing,
    crossing_interval,
    crossovers_of,
    measure_curves,
)
from seqlab.diagnostics.timed_layers import Run, Shape

LENGTHS = [64, 128, 256, 512]


def test_between_two_lengths() -> None:
    """linear ∝ n, softmax ∝ n²: they meet at n = 200, which a line through logarithms finds exactly."""
    assert crossing(LENGTHS, [200 / n for n in LENGTHS]) == pytest.approx(200)
    assert crossing(LENGTHS, [(200 / n) ** 3 for n in LENGTHS]) == pytest.approx(200)


def test_never_and_always() -> None:
    assert crossing(LENGTHS, [4, 3, 2, 1]) == NEVER, "as fast is not faster"
    assert crossing(LENGTHS, [0.5, 0.5, 0.9, 2]) == NEVER, "it has to last"
    assert crossing(LENGTHS, [0.9, 0.5, 0.3, 0.1]) == START


def test_of_two_crossings_the_last_counts() -> None:
    found = crossing(LENGTHS, [2, 0.5, 2, 0.5])
    assert found == pytest.approx(math.sqrt(256 * 512))
    assert crossing(LENGTHS, [0.5, 0.5, 2, 0.5]) == found


def test_on_a_length_of_the_grid() -> None:
    assert crossing(LENGTHS, [2, 1, 0.5, 0.25]) == pytest.approx(128)


# --------------------------------------------------------------------------- intervals


def noisy(power: float, at_200: float, seed: int, noise: float) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return at_200 * (np.array(LENGTHS) / 200) ** power * np.exp(draw.normal(0, noise, (9, len(LENGTHS))))


def test_the_interval_covers_and_shrinks() -> None:
    low, high = crossing_interval(LENGTHS, noisy(1, 1, 0, 0.2), noisy(2, 1, 1, 0.2), seed=0)
    assert low < 200 < high
    closer = crossing_interval(LENGTHS, noisy(1, 1, 0, 0.02), noisy(2, 1, 1, 0.02), seed=0)
    assert low < closer[0] < 200 < closer[1] < high
    exact = crossing_interval(LENGTHS, noisy(1, 1, 0, 0), noisy(2, 1, 1, 0), seed=0)
    assert exact == pytest.approx((200, 200))
    assert crossing_interval(LENGTHS, noisy(1, 1, 0, 0.2), noisy(2, 1, 1, 0.2), seed=0) == (low, high)


def test_rounds_are_drawn_with_both_sides() -> None:
    """A machine that is ten times slower in every other round slows both down."""
    slow = np.array([10.0, 1] * 4 + [10.0])[:, None]
    found = crossing_interval(LENGTHS, slow * noisy(1, 1, 0, 0), slow * noisy(2, 1, 0, 0), seed=0)
    assert found == pytest.approx((200, 200))


def test_ends_beyond_the_grid() -> None:
    low, high = crossing_interval(LENGTHS, noisy(1, 2.5, 0, 0.3), noisy(2, 1, 1, 0.3), seed=0)
    assert high == NEVER
    assert low < 512
    assert crossing_interval(LENGTHS, noisy(1, 0.01, 0, 0.1), noisy(2, 1, 1, 0.1), seed=0) == (START, START)


# --------------------------------------------------------------------------- formulas


def test_where_the_formulas_cross() -> None:
    """Scores and mixing: softmax 4n²d (causal 2n(n+1)d), separable 4nd·d/N, random features 8nmd."""
    softmax, causal = Shape("softmax", 1, 1, 128, 4), Shape("softmax", 1, 1, 128, 4, causal=True)
    separable, random = Shape("separable", 1, 1, 128, 4), Shape("random_features", 1, 1, 128, 4, 50)
    assert counted_crossing(softmax, separable, "forward") == 128 / 4 + 1
    assert counted_crossing(softmax, separable, "training") == 128 / 4 + 1
    assert counted_crossing(causal, Shape("separable", 1, 1, 128, 4, causal=True), "forward") == 2 * 128 / 4
    assert counted_crossing(softmax, random, "forward") == 2 * 50 + 1
    # the directions do not learn: of the 8nmd half has one gradient, 4nmd·2 + 4nmd·3 = 20nmd against 12n²d
    assert counted_crossing(softmax, random, "training") == math.floor(20 * 50 / 12) + 1
    assert counted_crossing(softmax, random, "bytes") == NEVER
    assert counted_crossing(random, softmax, "bytes") == START


# --------------------------------------------------------------------------- curves


def test_every_curve_has_its_own_times() -> None:
    """Seconds from a formula: softmax n², linear kinds a·n, so that they cross at n = a."""
    factors = {"separable": 12.0, "random_features": 24.0}

    def timer(run: Run) -> float:
        shape = run.shape
        longer = (2 if shape.causal else 1) * (1 if run.what == "forward" else 1.25)
        return 1e-6 * (shape.length**2 if shape.kind == "softmax" else factors[shape.kind] * longer * shape.length)

    base = Shape("random_features", 1, 1, 8, 2)
    curves = measure_curves(base, [4, 8, 16, 32, 64, 128], 3, timer)
    assert len(curves) == 3 * 2 * 3
    found = {(one.kind, one.causal, one.what): one for one in crossovers_of(curves, base, 0)}
    assert len(found) == 2 * 2 * 3
    for kind, a in factors.items():
        for causal in (False, True):
            for what, times in (("forward", 1), ("training", 1.25)):
                one = found[kind, causal, what]
                assert one.length == pytest.approx(a * times * (2 if causal else 1))
                assert one.interval == pytest.approx((one.length, one.length))
            assert found[kind, causal, "bytes"].interval is None
    assert found["random_features", False, "bytes"].length == NEVER, "softmax forms no weights"
