"""Claims about random features: E[φ(q)ᵀφ(k)] = e^{qᵀk}, and what their number changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch import Tensor

from seqlab.diagnostics.kernel_variance import variance_formula
from seqlab.ops import linear_attention as linear
from seqlab.ops.attention import attention_weights, dot_scores, scaled_scores
from seqlab.theory.counting import most_held, multiply_adds, total
from seqlab.theory.exponents import exponent
from seqlab.theory.instances import normal, stream
from seqlab.theory.jacobians import error, relative_error
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, at_most, between, evidence
from seqlab.theory.positive_features import (
    EXPECTED,
    KERNEL,
    K,
    M,
    Q,
    X,
    directions,
    expectation,
    number,
    one_by_one,
    pair,
)
from seqlab.theory.sampling import draws_for, mean_of, meets
from seqlab.theory.symbols import step, vanishes

SETTING = (
    r"The map $f$ makes $m$ features of a query or a key of width $d$; $w_1, \dots, w_m$ and $x$ are drawn from "
    r"$N(0, I)$."
)
claim = LEDGER.of("linear_attention", SETTING)


# --------------------------------------------------------------------------- features


@claim(
    "prf.scale",
    statement=r"$f(u) = \frac{1}{m} e^{-\lVert u \rVert^2/2} (e^{w_1^\top u}, \ldots, e^{w_m^\top u})$ has "
    r"$f(q)^\top f(k) \approx e^{q^\top k}$.",
    correction=r"The factor is $1/\sqrt{m}$. With $1/m$ the product is $m$ times too small.",
    note=r"Attention divides each row by its sum, where the factor cancels: its outputs do not show the mistake.",
    verdict="false",
    method="symbolic",
    right=lambda m: m ** sympy.Rational(-1, 2),
    wrong={AS_STATED: lambda m: 1 / m, "no factor": lambda m: sympy.Integer(1)},
    about=(f"{KERNEL}:positive_features", f"{KERNEL}:random_features"),
)
def scale(seed: int, form: Callable[[Any], Any]) -> Evidence:
    m, draw = 64, stream(seed, "prf.scale")
    w, q, k, v = normal(draw, m, 4), normal(draw, 6, 4), normal(draw, 7, 4), normal(draw, 7, 4)

    def features(u: Tensor) -> Tensor:
        return number(form(m)) * torch.exp(u @ w.T - u.square().sum(-1, keepdim=True) / 2)

    kernel = features(q) @ features(k).T
    seqlab = linear.positive_features(q, w) @ linear.positive_features(k, w).T
    queries, keys = (u[None, None] * math.sqrt(2.0) for u in (q, k))  # √2 = d^{1/4}, which seqlab divides by
    outputs = linear.attend(linear.random_features(w), queries, keys, v[None, None])[0]
    return evidence(
        vanishes("terms left over of m c² = 1", M * form(M) ** 2 - 1),
        at_most("kernel over seqlab's kernel, less 1", (kernel / seqlab - 1).abs().max(), 1e-12),
        at_most(
            "outputs, divided by row sums, from seqlab's",
            error(kernel @ v / kernel.sum(1, keepdim=True), outputs[0, 0]),
            1e-9,
        ),
        steps=[step(rf"{EXPECTED}[f(q)^\top f(k)]", r"m c^2 e^{q^\top k}"), step("c", form(M))],
        counterexample=rf"$q = k = 0$, $m = 2$: with $1/m$, $f(0)^\top f(0) = 2 \cdot (1/2)^2 = {2 * 0.5**2:g}$, but "
        rf"$e^0 = 1$.",
    )


Mean = Callable[[Any], Any]


@claim(
    "prf.expectation-inside",
    statement=r"$f(q) = e^{-\lVert q \rVert^2/2}\, \mathbb{E}[e^{x^\top q}]$, with the expectation inside each factor, "
    r"has $f(q) f(k) = e^{q^\top k}$.",
    correction=r"$\mathbb{E}[e^{x^\top q}]\, \mathbb{E}[e^{x^\top k}] \ne \mathbb{E}[e^{x^\top q} e^{x^\top k}]$. The "
    r"left side gives $f(q) = 1$ for every $q$, and every key the same weight. Queries and keys share the same $x$.",
    verdict="false",
    method="symbolic",
    right=lambda mean, a, b: mean(a * b),
    wrong={AS_STATED: lambda mean, a, b: mean(a) * mean(b), "inside one of them": lambda mean, a, b: mean(a * mean(b))},
    about=(f"{KERNEL}:positive_features", f"{KERNEL}:gaussian_directions"),
)
def expectation_inside(seed: int, form: Callable[[Mean, Any, Any], Any]) -> Evidence:
    alone = {u: sympy.exp(X * u - u**2 / 2) for u in (Q, K)}
    q, k = pair(seed, "prf.expectation-inside", both=2.4, product=0.5)
    draws, batch = draws_for(math.exp(0.5) * math.sqrt(math.expm1(2.4)), 0.25), 100
    w = directions(seed, "prf.expectation-inside", -(-draws // batch) * batch)
    by_batch = (one_by_one(u, w).view(-1, batch) for u in (q, k))
    found = form(lambda a: a.mean(1, keepdim=True), *by_batch)[:, 0]
    return evidence(
        vanishes("terms left over", form(expectation, alone[Q], alone[K]) - sympy.exp(Q * K)),
        meets("mean over seqlab's features, qᵀk = 1/2", mean_of(found), math.exp(0.5)),
        steps=[
            step(rf"e^{{-q^2/2}}\, {EXPECTED}[e^{{x q}}]", expectation(alone[Q])),
            step(rf"e^{{-q^2/2 - k^2/2}}\, {EXPECTED}[e^{{x q}} e^{{x k}}]", expectation(alone[Q] * alone[K])),
        ],
        counterexample=rf"$q = k = 1$: the product of the expectations is "
        rf"${number((expectation(alone[Q]) * expectation(alone[K])).subs({Q: 1, K: 1})):g}$, but $e = {math.e:.3f}$.",
    )


# --------------------------------------------------------------------------- how many


def estimates(q: Tensor, k: Tensor, features: int, draws: int, seed: int) -> Tensor:
    """f(q)ᵀf(k) e^{−qᵀk} of independent draws of m directions.    (draws,)"""
    w = directions(seed, "prf.accuracy-m", draws * features)
    each = (one_by_one(q, w) * one_by_one(k, w)).view(draws, features).mean(1)
    return each / (q @ k).exp()


def attending(features: int) -> Callable[[], Any]:
    """seqlab's attention with so many features, n = 64, d = 8."""
    q, w = torch.zeros(1, 1, 64, 8), torch.zeros(features, 8)
    return lambda: linear.attend(linear.random_features(w), q, q, q)


@claim(
    "prf.accuracy-m",
    statement=r"More random features are more accurate, and time $\Theta(nmd)$ and space grow linearly with $m$.",
    note=r"$f(q)^\top f(k)$ is unbiased, with relative variance $(e^{\lVert q+k \rVert^2} - 1)/m$: the error falls as "
    r"$m^{-1/2}$, and the $m$ that is needed grows exponentially with $\lVert q + k \rVert^2$.",
    verdict="true",
    method="symbolic",
    right=lambda s, m: (sympy.exp(s) - 1) / m,
    wrong={
        "the 1 forgotten": lambda s, m: sympy.exp(s) / m,
        "falls as the square of m": lambda s, m: (sympy.exp(s) - 1) / m**2,
        "does not fall with m": lambda s, m: sympy.exp(s) - 1,
        "not exponential in the norm": lambda s, m: s / m,
    },
    about=(f"{KERNEL}:positive_features", "seqlab.diagnostics.kernel_variance:variance_formula"),
)
def accuracy(seed: int, form: Callable[[Any, Any], Any]) -> Evidence:
    """Of s = ‖q + k‖² and m: the relative variance."""
    both, several, draws = 0.8, (16, 64, 256), 4000
    q, k = pair(seed, "prf.accuracy-m", both=both, product=0.1)
    single = sympy.exp(X * (Q + K) - Q**2 / 2 - K**2 / 2 - Q * K)
    variance = expectation(single**2) - expectation(single) ** 2
    squares = [(estimates(q, k, m, draws, seed) - 1).square() for m in several]
    times = [total(multiply_adds(attending(m))) for m in several]
    spaces = [most_held(attending(m)) for m in several]
    formula = variance_formula(torch.tensor([both], dtype=torch.float64), several[0], 4, orthogonal=False)
    return evidence(
        vanishes("terms left over of m independent features", variance / M - form((Q + K) ** 2, M)),
        meets("relative variance, m = 64, ‖q + k‖² = 0.8", mean_of(squares[1]), number(form(sympy.Float(both), 64))),
        at_most("seqlab's formula, from this", float(formula) - number(form(sympy.Float(both), several[0])), 1e-12),
        between(
            "exponent of the error in m", exponent(several, [float(s.mean().sqrt()) for s in squares]), -0.55, -0.45
        ),
        between("exponent of multiply-adds in m", exponent(several, times), 0.999, 1.001),
        between("exponent of the numbers held at once in m", exponent(several, spaces), 0.9, 1.001),
        steps=[
            step(
                rf"{EXPECTED}[(e^{{x q - q^2/2}} e^{{x k - k^2/2}})^2]\, e^{{-2 q k}}",
                sympy.factor(expectation(single**2)),
            ),
            step(r"\mathrm{Var} / e^{2 q k}", rf"\frac{{1}}{{m}} ({sympy.latex(variance)})"),
        ],
    )


Said = tuple[Tensor, Tensor]  # what stands for what


def features_of(q: Tensor, k: Tensor, w: Tensor) -> Said:
    return linear.positive_features(q, w), linear.positive_features(k, w)


@claim(
    "prf.approximates-QK",
    statement=r"With more random features $f(q_i)$ and $f(k_j)$ come closer to $q_i$ and $k_j$ themselves.",
    correction=r"$f$ maps $\mathbb{R}^d$ to $\mathbb{R}^m$ and approximates nothing by itself. $f(Q) f(K)^\top$ "
    r"approximates $\exp(Q K^\top)$.",
    verdict="false",
    method="counterexample",
    right=lambda q, k, w: (features_of(q, k, w)[0] @ features_of(q, k, w)[1].T, dot_scores(q, k).exp()),
    wrong={
        AS_STATED: lambda q, k, w: (features_of(q, k, w)[0], q),
        "their products come closer to QKᵀ": lambda q, k, w: (
            features_of(q, k, w)[0] @ features_of(q, k, w)[1].T,
            dot_scores(q, k),
        ),
    },
    about=(f"{KERNEL}:positive_features",),
)
def approximates(seed: int, form: Callable[[Tensor, Tensor, Tensor], Said]) -> Evidence:
    draw, several = stream(seed, "prf.approximates-QK"), (64, 4096)
    q, k = normal(draw, 6, 4, scale=0.3), normal(draw, 6, 4, scale=0.3)
    w = directions(seed, "prf.approximates-QK", 8 * several[1])
    few, many = (math.fsum(relative_error(*form(q, k, part)) for part in torch.split(w, m)[:8]) / 8 for m in several)
    one = linear.positive_features(torch.tensor([[-1.0]]).double(), torch.zeros(1, 1).double())
    return evidence(
        at_most("mean relative error, m = 4096", many, 0.1),
        between("error with m = 64 over that", few / many, 4.0, 16.0),
        counterexample=rf"$d = m = 1$, $q = -1$, $w = 0$: $f(q) = {float(one):.3f}$. It is positive for every $w$, so "
        rf"that it never comes near $-1$; with $d = 4$, $m = {several[1]}$ its $m$ numbers are at most "
        rf"${float(linear.positive_features(q, w[: several[1]]).max()):.2f}$.",
    )


@claim(
    "prf.softmax-temperature",
    statement=r"Random features stand for $\mathrm{softmax}(Q K^\top / \sqrt{d})$ if they are taken of $q / d^{1/4}$ "
    r"and $k / d^{1/4}$.",
    note=r"Taken of $q$ and $k$ they stand for $\mathrm{softmax}(Q K^\top)$, which has no $1/\sqrt{d}$.",
    verdict="true",
    method="symbolic",
    right=lambda d: d ** sympy.Rational(-1, 4),
    wrong={
        "not scaled": lambda d: sympy.Integer(1),
        "both scaled by √d": lambda d: d ** sympy.Rational(-1, 2),
        "both scaled by d": lambda d: 1 / d,
    },
    about=(f"{KERNEL}:random_features", "seqlab.ops.attention:scaled_scores"),
)
def temperature(seed: int, form: Callable[[Any], Any]) -> Evidence:
    d, m, draw = 16, 20_000, stream(seed, "prf.softmax-temperature")
    q, k = normal(draw, 6, d, scale=0.5), normal(draw, 9, d, scale=0.5)
    w = directions(seed, "prf.softmax-temperature", m, d, orthogonal=True)
    scaled = (linear.positive_features(u * number(form(sympy.Integer(d))), w) for u in (q, k))
    kernel = dot_scores(*scaled)
    weights = linear.attention_weights(linear.random_features(w), q[None, None], k[None, None])[0, 0]
    size = sympy.Symbol("d", positive=True)
    return evidence(
        vanishes("terms left over", (form(size) * Q) * (form(size) * K) - Q * K / sympy.sqrt(size)),
        at_most("from seqlab's random-feature weights", error(kernel / kernel.sum(1, keepdim=True), weights), 1e-10),
        at_most(
            "of these from softmax, relative, m = 20000",
            relative_error(weights, attention_weights(scaled_scores(q, k))),
            0.1,
        ),
        steps=[step(r"(c q)^\top (c k)", r"q^\top k / \sqrt{d}"), step("c", form(size))],
    )
