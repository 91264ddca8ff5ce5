"""Claims about the dot product of two random vectors, and about dividing it by √d.

q and k ~ N(μ, σ²I) in d dimensions, independent unless said. Expectations are exact polynomials in μ and σ for
d = 1, 2, 3, and sampled through the project's own scores for larger d.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import sympy
import torch
from torch import Tensor

from seqlab.diagnostics.score_experiments import score_variance_formula
from seqlab.ops.attention import dot_scores, scaled_scores
from seqlab.theory.exponents import exponent
from seqlab.theory.instances import normal, stream
from seqlab.theory.ledger import (
    AS_STATED,
    LEDGER,
    Evidence,
    Finding,
    at_least,
    between,
    evidence,
    exactly,
)
from seqlab.theory.moments import expected
from seqlab.theory.sampling import mean_of, meets, variance_of
from seqlab.theory.symbols import step, vanishes

claim = LEDGER.of("scaling")

Formula = Callable[[Any, Any, Any], Any]  # (d, ‖μ‖², σ) -> a moment of qᵀk
Score = Callable[[Tensor, Tensor], Tensor]  # q (…, T, d), k (…, S, d) -> (…, T, S)
SIGMA = sympy.Symbol("sigma", positive=True)
DIMENSIONS = (1, 2, 3)
DRAWS = 20_000
WIDTH, MEAN, DEVIATION = 8, 0.6, 1.3  # of the sampled pairs
INDEPENDENT = r"$q$ and $k$ are independent and $N(\mu, \sigma^2 I)$ in $d$ dimensions"
SCORES = ("seqlab.ops.attention:dot_scores", "seqlab.ops.attention:scaled_scores")
VARIANCE = "seqlab.diagnostics.score_experiments:score_variance_formula"


# --------------------------------------------------------------------------- exact moments, and samples


def mu(d: int) -> Any:
    return sympy.Matrix(sympy.symbols(f"mu_1:{d + 1}", real=True))


@cache
def score_moment(d: int, power: int, same: bool = False) -> Any:
    """E (qᵀk)ⁿ, exact; with `same` q = k."""
    names = sympy.symbols(f"q_1:{d + 1}"), sympy.symbols(f"q_1:{d + 1}" if same else f"k_1:{d + 1}")
    score = sum(a * b for a, b in zip(*names, strict=True))
    return expected(score**power, {x: (m, SIGMA) for part in names for x, m in zip(part, mu(d), strict=True)})


def score_variance(d: int) -> Any:
    return sympy.expand(score_moment(d, 2) - score_moment(d, 1) ** 2)


def differs(what: str, exact: Callable[[int], Any], form: Formula) -> Finding:
    """In how many of the dimensions 1, 2, 3 the form is another polynomial in μ and σ."""
    return vanishes(what, sympy.Matrix([exact(d) - form(d, mu(d).dot(mu(d)), SIGMA) for d in DIMENSIONS]))


def sample(
    draw: torch.Generator, score: Score, width: int, mean: float = 0.0, sigma: float = 1.0, draws: int = DRAWS
) -> Tensor:
    """Scores of independent pairs whose coordinates are N(mean, σ²).    (draws,)"""
    q, k = (mean + sigma * normal(draw, draws, 1, width) for _ in range(2))
    return score(q, k).flatten()


def of_the_sampled(form: Formula) -> float:
    return float(form(WIDTH, WIDTH * MEAN**2, DEVIATION))


def over_width(q: Tensor, k: Tensor) -> Tensor:
    return dot_scores(q, k) / q.shape[-1]


# --------------------------------------------------------------------------- mean and variance


def second_moment_formula(d: Any, m: Any, s: Any) -> Any:
    """(μᵀμ)² + 2σ²μᵀμ + dσ⁴"""
    return m**2 + 2 * s**2 * m + d * s**4


def variance_formula(d: Any, m: Any, s: Any) -> Any:
    """What seqlab predicts, for equal coordinates of the same ‖μ‖²."""
    return score_variance_formula(d, sympy.sqrt(m / sympy.sympify(d)), s)


def variance_as_stated(d: Any, m: Any, s: Any) -> Any:
    return 2 * d * s**2 * m + d * s**4


@claim(
    "dot.mean",
    statement=r"$E[q^\top k] = \mu^\top\mu$ for $q, k \sim N(\mu, \sigma^2 I)$.",
    conditions=r"$q$ and $k$ are independent. With $q = k$ the mean is $\mu^\top\mu + d\sigma^2$.",
    verdict="conditional",
    method="symbolic",
    right=lambda d, m, s: m,
    wrong={
        "the mean of q = k": lambda d, m, s: m + d * s**2,
        "averaged over coordinates": lambda d, m, s: m / sympy.sympify(d),
    },
    about=(SCORES[0],),
)
def mean(seed: int, form: Formula) -> Evidence:
    sampled = mean_of(sample(stream(seed, "dot.mean"), dot_scores, WIDTH, MEAN, DEVIATION))
    return evidence(
        differs("dimensions of 1, 2, 3 in which E qᵀk is another", lambda d: score_moment(d, 1), form),
        differs(
            "in which E qᵀq is not μᵀμ + dσ²",
            lambda d: score_moment(d, 1, same=True),
            lambda d, m, s: m + d * s**2,
        ),
        meets("sampled mean, d = 8", sampled, of_the_sampled(form)),
        steps=[
            r"E[q^\top k] = \sum_j E[q_j] E[k_j] = \sum_j \mu_j^2",
            step(r"E[q^\top k]_{d=2}", score_moment(2, 1)),
            step(r"E[q^\top q]_{d=2}", score_moment(2, 1, same=True)),
        ],
    )


@claim(
    "dot.second-moment",
    statement=r"$E[(q^\top k)^2] = \mathrm{Tr}((\mu\mu^\top + \sigma^2 I)^2) = "
    r"(\mu^\top\mu)^2 + 2\sigma^2\mu^\top\mu + d\sigma^4$.",
    conditions=rf"{INDEPENDENT}. With $q = k$ it is the second moment of $\lVert q \rVert^2$, which is larger.",
    verdict="conditional",
    method="symbolic",
    right=second_moment_formula,
    wrong={
        "the factor 2 dropped": lambda d, m, s: m**2 + s**2 * m + d * s**4,
        "the factor d dropped": lambda d, m, s: m**2 + 2 * s**2 * m + s**4,
    },
    about=(SCORES[0],),
)
def second_moment(seed: int, form: Formula) -> Evidence:
    squares = sample(stream(seed, "dot.second-moment"), dot_scores, WIDTH, MEAN, DEVIATION) ** 2

    def trace(d: int) -> Any:
        return ((mu(d) * mu(d).T + SIGMA**2 * sympy.eye(d)) ** 2).trace()

    return evidence(
        differs("dimensions of 1, 2, 3 in which E (qᵀk)² is another", lambda d: score_moment(d, 2), form),
        differs("in which the trace is another", trace, form),
        at_least("E (qᵀq)² over E (qᵀk)², d = 2, μ = 0, σ = 1", at_zero_mean(score_moment(2, 2, same=True)) / 2, 2),
        meets("sampled second moment, d = 8", mean_of(squares), of_the_sampled(form)),
        steps=[
            r"E[(q^\top k)^2] = E[q^\top k k^\top q] = \mathrm{Tr}(E[q q^\top] E[k k^\top])",
            r"E[q q^\top] = \mu\mu^\top + \sigma^2 I",
            step(r"E[(q^\top k)^2]_{d=2}", score_moment(2, 2)),
        ],
    )


def at_zero_mean(polynomial: Any) -> Any:
    """With μ = 0 and σ = 1."""
    return polynomial.subs({x: 1 if x == SIGMA else 0 for x in polynomial.free_symbols})


@claim(
    "dot.variance",
    statement=r"$\mathrm{Var}(q^\top k) = 2d\sigma^2\mu^\top\mu + d\sigma^4$ for independent $q, k \sim "
    r"N(\mu, \sigma^2 I)$.",
    correction=r"$\mathrm{Var}(q^\top k) = 2\sigma^2\mu^\top\mu + d\sigma^4$: the second moment less "
    r"$(\mu^\top\mu)^2$. A factor $d$ appears in the first term only when $\mu^\top\mu$ is written as $d\bar\mu^2$, "
    r"all coordinates being $\bar\mu$.",
    verdict="false",
    method="symbolic",
    right=variance_formula,
    wrong={AS_STATED: variance_as_stated, "the factor 2 dropped": lambda d, m, s: s**2 * m + d * s**4},
    about=(VARIANCE, SCORES[0]),
)
def variance(seed: int, form: Formula) -> Evidence:
    sampled = variance_of(sample(stream(seed, "dot.variance"), dot_scores, WIDTH, MEAN, DEVIATION))
    true = score_variance(2).subs(dict(zip(mu(2), (1, 0), strict=True)) | {SIGMA: 1})
    return evidence(
        differs("dimensions of 1, 2, 3 in which Var qᵀk is another", score_variance, form),
        meets("sampled variance, d = 8", sampled, of_the_sampled(form)),
        steps=[
            r"\mathrm{Var}(q^\top k) = E[(q^\top k)^2] - (\mu^\top\mu)^2",
            step(r"\mathrm{Var}(q^\top k)_{d=2}", score_variance(2)),
        ],
        counterexample=rf"$d = 2$, $\mu = (1, 0)$, $\sigma = 1$: the variance is ${true}$, the statement says "
        rf"${variance_as_stated(2, 1, 1)}$.",
    )


@claim(
    "dot.variance-zero-mean",
    statement=r"With $\mu = 0$, $\mathrm{Var}(q^\top k) = d\sigma^4$: the standard deviation grows like $\sqrt{d}$.",
    verdict="true",
    method="symbolic",
    right=lambda d, s: score_variance_formula(d, 0, s),
    wrong={
        "one variance, not the product of two": lambda d, s: d * s**2,
        "a standard deviation that grows like d": lambda d, s: d**2 * s**4,
    },
    about=(VARIANCE, SCORES[0]),
)
def variance_zero_mean(seed: int, form: Callable[[Any, Any], Any]) -> Evidence:
    draw = stream(seed, "dot.variance-zero-mean")
    widths = (4, 16, 64)
    centred = [score_variance(d).subs(dict.fromkeys(mu(d), 0)) for d in DIMENSIONS]
    return evidence(
        vanishes(
            "dimensions of 1, 2, 3 in which it is another",
            sympy.Matrix([exact - form(d, SIGMA) for d, exact in zip(DIMENSIONS, centred, strict=True)]),
        ),
        between(
            "exponent of the deviation in d", exponent(widths, [form(d, 1) ** 0.5 for d in widths]), 0.4999, 0.5001
        ),
        *(
            meets(
                f"sampled variance over dσ⁴, d = {d}",
                variance_of(sample(draw, dot_scores, d, sigma=1.2) / math.sqrt(form(d, 1.2))),
                1.0,
            )
            for d in widths
        ),
        steps=[
            step(rf"\mathrm{{Var}}(q^\top k)_{{d={d}}}", exact) for d, exact in zip(DIMENSIONS, centred, strict=True)
        ],
    )


# --------------------------------------------------------------------------- what a scale does


@claim(
    "dot.scale-linear-mean",
    statement=r"Dividing by $s = \sqrt{d}$ makes $E[q^\top k / s]$ grow linearly with $d$.",
    correction=r"$E[q^\top k / s] = \mu^\top\mu / s$. With coordinates of one size it is linear in $d$ only for an $s$ "
    r"that does not depend on $d$, in general for $s = \mu^\top\mu / (cd)$; $s = \sqrt{d}$ leaves growth like "
    r"$\sqrt{d}$. What $s = \sqrt{d}$ keeps constant is the variance, $\sigma^4 + 2\sigma^2\mu^\top\mu/d$. With $\mu = "
    r"0$ the mean is $0$ for every $s$.",
    verdict="false",
    method="exact",
    right=dot_scores,
    wrong={AS_STATED: scaled_scores, "divided by d": over_width},
    about=SCORES,
)
def scale_linear_mean(seed: int, form: Score) -> Evidence:
    """A score is linear in q and in k, so for independent ones  E score(q, k) = score(μ, μ)."""
    widths, draw = (4, 16, 64, 256), stream(seed, "dot.scale-linear-mean")

    def mean_at(score: Score, width: int, coordinate: float = 0.5) -> float:
        at = torch.full((1, width), coordinate, dtype=torch.float64)
        return float(score(at, at))

    slope, root = (exponent(widths, [mean_at(score, d) for d in widths]) for score in (form, scaled_scores))
    return evidence(
        between("exponent of the mean in d", slope, 1 - 1e-9, 1 + 1e-9),
        between("exponent with s = √d", root, 0.5 - 1e-9, 0.5 + 1e-9),
        exactly("mean with μ = 0", mean_at(form, 16, 0.0), 0.0),
        meets("sampled mean, d = 16", mean_of(sample(draw, form, 16, 0.5)), mean_at(form, 16)),
        *(
            meets(f"variance with s = √d, d = {d}", variance_of(sample(draw, scaled_scores, d, 0.5)), 1 + 2 * 0.25)
            for d in (4, 64)
        ),
        counterexample=rf"All coordinates $\frac{{1}}{{2}}$, $s = \sqrt{{d}}$: the mean is "
        rf"${mean_at(scaled_scores, 4):g}$ at $d = 4$ and ${mean_at(scaled_scores, 16):g}$ at $d = 16$, twice as much "
        r"for four times the width.",
    )


@claim(
    "dot.scale-variance",
    statement=r"Dividing $q^\top k$ by $\sqrt{d}$ normalises its variance.",
    conditions=r"The variance becomes $\sigma^4 + 2\sigma^2\mu^\top\mu/d$: constant in $d$ for coordinates of one "
    r"size, $1$ for $\mu = 0$ and $\sigma = 1$. In general $s^2 = 2\sigma^2\mu^\top\mu + d\sigma^4$ makes it $1$.",
    verdict="conditional",
    method="symbolic",
    right=lambda d, m, s: variance_formula(d, m, s) / d,
    wrong={
        "one, whatever μ and σ are": lambda d, m, s: sympy.Integer(1),
        "σ² in place of σ⁴": lambda d, m, s: s**2 + 2 * s**2 * m / sympy.sympify(d),
    },
    about=(VARIANCE, SCORES[1]),
)
def scale_variance(seed: int, form: Formula) -> Evidence:
    draw = stream(seed, "dot.scale-variance")
    cases = [(0.0, 0.5), (0.0, 1.0), (0.0, 2.0), (0.7, 1.5)]
    sampled = [variance_of(sample(draw, scaled_scores, 16, *case)) for case in cases]
    return evidence(
        differs("dimensions of 1, 2, 3 in which it is another", lambda d: score_variance(d) / d, form),
        differs("in which the general s² is not the variance", lambda d: score_variance(d), variance_formula),
        *(
            meets(f"sampled variance, d = 16, mean {m:g}, σ = {s:g}", found, float(form(16, 16 * m**2, s)))
            for (m, s), found in zip(cases, sampled, strict=True)
        ),
        steps=[step(r"\mathrm{Var}(q^\top k / \sqrt{d})_{d=2}", sympy.expand(score_variance(2) / 2))],
    )


@claim(
    "dot.unscaled-variance-linear",
    statement=r"Without a scale the variance of $q^\top k$ grows linearly with $d$.",
    conditions=r"$\mu = 0$, or coordinates of $\mu$ whose size does not depend on $d$. With coordinates that grow like "
    r"$\sqrt{d}$ it grows like $d^2$.",
    verdict="conditional",
    method="symbolic",
    right=score_variance_formula,
    wrong={
        "d counted twice": lambda d, m, s: variance_as_stated(d, d * m**2, s),
        "the deviation": lambda d, m, s: sympy.sqrt(score_variance_formula(d, m, s)),
    },
    about=(VARIANCE, SCORES[0]),
)
def unscaled_variance_linear(seed: int, form: Formula) -> Evidence:
    """The form's arguments: d, the coordinate that μ has everywhere, σ."""
    draw = stream(seed, "dot.unscaled-variance-linear")
    d, m = sympy.symbols("d m", positive=True)
    exact = [score_variance(n).subs(dict.fromkeys(mu(n), m)) - form(n, m, SIGMA) for n in DIMENSIONS]
    wide = [2**10, 2**12]
    growing = exponent(wide, [score_variance_formula(n, math.sqrt(n), 1) for n in wide])
    return evidence(
        vanishes("second derivative in d that is not 0", sympy.diff(form(d, m, SIGMA), d, 2)),
        vanishes("dimensions of 1, 2, 3 in which it is another", sympy.Matrix(exact)),
        *(
            meets(
                f"sampled variance over d, d = {n}",
                variance_of(sample(draw, dot_scores, n, 0.5) / math.sqrt(n)),
                float(form(n, 0.5, 1)) / n,
            )
            for n in (4, 64)
        ),
        between("exponent where coordinates grow like √d", growing, 1.99, 2.0),
        steps=[step(r"\mathrm{Var}(q^\top k)", form(d, m, SIGMA))],
    )
