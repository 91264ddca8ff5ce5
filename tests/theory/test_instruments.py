"""The instruments of the claims, each against values that are known otherwise."""

from __future__ import annotations

import math

import pytest
import sympy
import torch
from mpmath import iv
from scipy.stats import binomtest, norm

from seqlab.theory.exponents import exponent, last_exponent
from seqlab.theory.instances import fill, normal, orthogonal, stream, uniform, with_norm
from seqlab.theory.intervals import enclosure, proves
from seqlab.theory.jacobians import error, gradient, jacobian, largest, relative_error, spectral_norm
from seqlab.theory.sampling import Z, draws_for, mean_of, median, meets, share_of, variance_of
from seqlab.theory.symbols import step, vanishes


def samples(n: int, repetition: int) -> torch.Tensor:
    return 3.0 + 2.0 * normal(stream(repetition, "samples"), n)


# --------------------------------------------------------------------------- sampling


def test_the_right_constant_is_never_missed() -> None:
    """A mean of 3 and a variance of 4; of 1,000 intervals at Z = 4.5 less than a hundredth of one may miss.

    Squares are skewed, so that the interval of a variance needs many draws.
    """
    drawn = [samples(400, repetition) for repetition in range(1000)]
    assert all(meets("mean", mean_of(x), 3.0).holds for x in drawn)
    assert all(meets("share", share_of(x > 3.0), 0.5).holds for x in drawn)
    assert all(meets("variance", variance_of(samples(20_000, r)), 4.0).holds for r in range(200))


def test_the_interval_is_as_wide_as_it_says() -> None:
    """At one standard error, Z times less, the mean is missed as often as the normal distribution says."""
    missed = []
    for repetition in range(2000):
        sampled = mean_of(samples(100, repetition))
        missed.append(abs(sampled.mean - 3.0) > (sampled.interval[1] - sampled.interval[0]) / 2 / Z)
    share = sum(missed) / len(missed)
    assert share == pytest.approx(2 * norm.sf(1.0), abs=0.04)


def test_enough_draws_refute_every_wrong_constant() -> None:
    n = draws_for(deviation=2.0, gap=0.5)
    assert n == math.ceil((9.0 * 2.0 / 0.5) ** 2)
    for repetition in range(300):
        sampled = mean_of(samples(n, repetition))
        assert not meets("a wrong mean", sampled, 3.5).holds
        assert not meets("a wrong mean", sampled, 2.5).holds
        assert meets("a limit", sampled, 3.5, slack=0.5).holds


@pytest.mark.parametrize(("hits", "n"), [(0, 50), (3, 1000), (500, 1000), (50, 50)])
def test_the_interval_of_a_share_is_wilsons(hits: int, n: int) -> None:
    sampled = share_of(torch.arange(n) < hits)
    wanted = binomtest(hits, n).proportion_ci(confidence_level=1 - 2 * norm.sf(Z), method="wilson")
    assert sampled.interval == pytest.approx((wanted.low, wanted.high), abs=1e-12)


def test_the_median() -> None:
    assert median(torch.tensor([5.0, 1.0, 3.0])) == 3.0


# --------------------------------------------------------------------------- intervals


def test_a_true_inequality_is_proved_and_a_false_one_is_not() -> None:
    def bump(x: object) -> object:
        return x * (1 - x)  # type: ignore[operator]

    assert proves(bump, [(0.0, 1.0)], 0.2501) > 1
    assert proves(bump, [(0.0, 1.0)], 0.2499) == 0
    assert proves(bump, [(0.0, 1.0)], 0.2501, most=1) == 0
    assert proves(lambda x, y: iv.exp(x) * y, [(0.0, 1.0), (-1.0, 2.0)], 2 * math.e + 1e-9) >= 1
    assert proves(lambda x, y: iv.exp(x) * y, [(0.0, 1.0), (-1.0, 2.0)], 2 * math.e - 1e-2) == 0


def test_rounding_is_enclosed() -> None:
    """0.1 · 3 is not 0.3 in float64, and a tenth is between the ends."""
    low, high = enclosure(lambda x: x / 10 * 3, ((1.0, 1.0),))
    assert low < high
    assert low <= 0.3 <= high
    low, high = enclosure(lambda x: iv.sqrt(x) ** 2 - x, ((2.0, 2.0),))
    assert low <= 0.0 <= high


# --------------------------------------------------------------------------- exponents, symbols


def test_exponents() -> None:
    sizes = [8, 16, 32, 64]
    assert exponent(sizes, [5 * n**1.5 for n in sizes]) == pytest.approx(1.5, abs=1e-12)
    mixed = [n + n**2 / 100 for n in sizes]
    assert 1.0 < exponent(sizes, mixed) < last_exponent(sizes, mixed) < 2.0
    assert last_exponent(sizes, mixed) == pytest.approx(math.log2(mixed[-1] / mixed[-2]))


def test_symbols() -> None:
    x, y = sympy.symbols("x y", real=True)
    assert vanishes("cosh² − sinh² − 1", sympy.cosh(x) ** 2 - sympy.sinh(x) ** 2 - 1).holds
    assert not vanishes("a sign", (x - y) ** 2 - (x**2 + 2 * x * y + y**2)).holds
    matrix = sympy.Matrix([[x - x, x], [0, y]])
    assert vanishes("entries", matrix).value == 2.0
    assert step(r"\sigma", x**2) == r"\sigma = x^{2}"
    assert step(x + y, "z") == "x + y = z"


# --------------------------------------------------------------------------- jacobians


def test_jacobians() -> None:
    a, x = normal(stream(0, "a"), 3, 4), normal(stream(0, "x"), 4)
    found = jacobian(lambda v: torch.tanh(a @ v), x)
    by_hand = (1 - torch.tanh(a @ x) ** 2)[:, None] * a
    assert error(found, by_hand) < 1e-15
    assert error(gradient(lambda v: (v**3).sum(), x), 3 * x**2) < 1e-14
    assert torch.equal(gradient(lambda v: torch.ones((), dtype=v.dtype, requires_grad=True) * 2, x), torch.zeros(4))
    assert (error(found, by_hand.T), relative_error(found, by_hand.T)) == (math.inf, math.inf)
    assert relative_error(2 * found, found) == pytest.approx(1.0)
    assert spectral_norm(a) == pytest.approx(float(torch.linalg.svdvals(a)[0]))
    assert (largest(torch.tensor([-3.0, 2.0])), largest(torch.zeros(0))) == (3.0, 0.0)


# --------------------------------------------------------------------------- instances


def test_instances() -> None:
    assert torch.equal(normal(stream(1, "a"), 5), normal(stream(1, "a"), 5))
    for other in (stream(2, "a"), stream(1, "b"), stream(1, "a", 0)):
        assert not torch.equal(normal(stream(1, "a"), 5), normal(other, 5))
    q = orthogonal(stream(0, "q"), 6)
    assert error(q.T @ q, torch.eye(6, dtype=q.dtype)) < 1e-14
    assert spectral_norm(with_norm(stream(0, "w"), 5, 1.25)) == pytest.approx(1.25)
    drawn = uniform(stream(0, "u"), 2000, low=-1.0, high=3.0)
    assert -1.0 <= float(drawn.min()) < -0.95
    assert 2.95 < float(drawn.max()) < 3.0
    layer = fill(torch.nn.Linear(40, 50), stream(0, "fill"), scale=0.5)
    weights = layer.state_dict()["weight"]
    assert weights.dtype == torch.float64
    assert float(weights.std()) == pytest.approx(0.5, rel=0.05)
