"""Claims about attention scores and the softmax above them.

Those about the dot product stand in `dot_products`, those about large scores in `saturation`: one subject.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import sympy
import torch
from torch import Tensor

from seqlab.diagnostics.inside import softmax_jacobian_norm
from seqlab.ops.attention import attention_weights, dot_scores, scaled_scores
from seqlab.theory import saturation as saturation  # its claims are of this subject
from seqlab.theory.dot_products import SCORES
from seqlab.theory.instances import normal, stream
from seqlab.theory.intervals import proves
from seqlab.theory.jacobians import error, jacobian, largest
from seqlab.theory.ledger import LEDGER, Evidence, at_least, at_most, evidence, exactly
from seqlab.theory.saturation import JACOBIAN_NORM, WEIGHTS
from seqlab.theory.symbols import step, vanishes

claim = LEDGER.of("scaling")

# --------------------------------------------------------------------------- scores of independent entries

ENTRIES = torch.tensor([-1.0, -1.0, 2.0], dtype=torch.float64) / math.sqrt(2)  # mean 0, variance 1, skewed


def all_cases(width: int, keys: int = 1) -> tuple[Tensor, Tensor]:
    """Every q and k whose entries are one of ENTRIES: an average over them is an expectation.    (N, 1 or keys, d)"""
    numbers = torch.tensor(list(itertools.product(ENTRIES.tolist(), repeat=width * (1 + keys))), dtype=torch.float64)
    both = numbers.view(len(numbers), 1 + keys, width)
    return both[:, :1], both[:, 1:]


def variance(values: Tensor) -> float:
    return float(values.var(unbiased=False))


Drawing = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # what q and k are, of independent centred ones


@claim(
    "sdp.mean",
    statement=r"$E[s_i] = \sum_j E[q_j] E[k_{ij}] = 0$ for $s_i = q^\top k_i$ with independent entries of mean $0$.",
    note=r"The index of $q$ is that of the sum, $j$, not that of the key, $i$. It needs $q$ independent of $k_i$, and "
    r"no normal distribution.",
    verdict="true",
    method="exact",
    right=lambda q, k: (q, k),
    wrong={"q is the key": lambda q, k: (k[:, :1], k), "entries of mean 1": lambda q, k: (q + 1, k + 1)},
    about=SCORES,
)
def mean_of_a_score(seed: int, form: Drawing) -> Evidence:
    """Every case of three values per entry; their average is the expectation."""
    cases = [form(*all_cases(width, 2)) for width in (1, 2)]
    means = [score(q, k).mean(0) for q, k in cases for score in (dot_scores, scaled_scores)]
    sums = [(q.mean(0) * k.mean(0)).sum(-1) for q, k in cases]
    return evidence(
        at_most("largest mean score over all cases, d = 1 and 2", max(largest(mean) for mean in means), 1e-12),
        at_most("largest sum of products of means", max(largest(total) for total in sums), 1e-12),
        exactly("cases", sum(len(q) for q, _ in cases), 27 + 729),
    )


@claim(
    "sdp.variance",
    statement=r"$\mathrm{Var}(s_i) = d$ for $s_i = q^\top k_i$ with entries of mean $0$ and variance $1$.",
    conditions=r"All entries are independent: then the cross terms $E[q_j q_l] E[k_{ij} k_{il}]$, $j \ne l$, are $0$. "
    r"Scores of two keys share $q$: uncorrelated, not independent, for given $q$ the variance is "
    r"$\lVert q \rVert^2$. In a model, queries and keys are projections of the same vectors, so it holds at best at "
    r"the start of a training.",
    verdict="conditional",
    method="exact",
    right=lambda d: d,
    wrong={"the deviation": lambda d: d**0.5, "d counted twice": lambda d: d**2, "one": lambda d: 1},
    about=SCORES,
)
def variance_of_a_score(seed: int, form: Callable[[int], float]) -> Evidence:
    scores = {d: dot_scores(*all_cases(d))[:, 0, 0] for d in (1, 2, 3)}
    away = max(abs(variance(values) - form(d)) for d, values in scores.items())
    q, keys = all_cases(2, 2)
    first, second = dot_scores(q, keys)[:, 0].unbind(-1)
    products = q[:, 0, 0] * q[:, 0, 1] * keys[:, 0, 0] * keys[:, 0, 1]
    return evidence(
        at_most("|variance − claimed|, d = 1, 2, 3", away, 1e-12),
        at_most("variance of the scaled score less 1, d = 3", variance(scaled_scores(*all_cases(3))) - 1, 1e-12),
        at_most("cross term", products.mean(), 1e-12),
        at_most("covariance of two keys' scores", (first * second).mean(), 1e-12),
        at_most(
            "covariance of their squares less Var ‖q‖² = 1, d = 2", (first * second).square().mean() - 4 - 1, 1e-12
        ),
        at_least("with q = k, d = 2: distance of the variance from 2", 2 - variance(dot_scores(q, q)), 0.99),
    )


# --------------------------------------------------------------------------- the softmax's Jacobian

Matrix = Callable[[Any, Any], Any]  # diag(a) and aaᵀ, of numbers or of symbols -> ∂a/∂s
Norm = Callable[[Sequence[Any]], Any]  # of a, as numbers or as symbols


@claim(
    "softmax.jacobian",
    statement=r"$\partial a / \partial s = \mathrm{diag}(a) - aa^\top$ for $a = \mathrm{softmax}(s)$.",
    verdict="true",
    method="symbolic",
    right=lambda own, products: own - products,
    wrong={
        "one score at a time": lambda own, products: own - own @ own,
        "the sum held fixed": lambda own, products: own,
        "the sign lost": lambda own, products: own + products,
    },
    about=(WEIGHTS, JACOBIAN_NORM),
)
def softmax_jacobian(seed: int, form: Matrix) -> Evidence:
    theta = sympy.Matrix(sympy.symbols("s_1:4", real=True))
    powers = theta.applyfunc(sympy.exp)
    a = powers / sum(powers)
    draw = stream(seed, "softmax.jacobian")
    scores = [normal(draw, n, scale=2.0) for n in (2, 5, 17)]
    weights = [attention_weights(s) for s in scores]
    formed = [form(w.diag(), w.outer(w)) for w in weights]
    byhand = [jacobian(attention_weights, s) for s in scores]
    norms = [abs(float(softmax_jacobian_norm(a) - j.norm())) for a, j in zip(weights, byhand, strict=True)]
    return evidence(
        vanishes("of nine derivatives, wrong", a.jacobian(theta) - form(sympy.diag(*a), a * a.T)),
        at_most("largest difference from autograd, n = 2, 5, 17", max(map(error, formed, byhand)), 1e-14),
        at_most("largest row sum: moving all scores moves nothing", max(largest(j.sum(1)) for j in formed), 1e-14),
        at_most("norm, from the formula that diagnoses heads", max(norms), 1e-12),
        steps=[
            r"\ln a_i = s_i - \ln \sum_k e^{s_k}",
            r"\frac{\partial \ln a_i}{\partial s_j} = \delta_{ij} - a_j",
            r"\frac{\partial a_i}{\partial s_j} = a_i (\delta_{ij} - a_j)",
        ],
    )


@claim(
    "softmax.derivative-cases",
    statement=r"$\partial \hat{y}_i / \partial \theta_j = \hat{y}_i (\delta_{ij} - \hat{y}_j)$ for "
    r"$\hat{y} = \mathrm{softmax}(\theta)$.",
    verdict="true",
    method="symbolic",
    right=lambda y_i, y_j, same: y_i * (same - y_j),
    wrong={
        "the case i = j everywhere": lambda y_i, y_j, same: y_i * (1 - y_j),
        "0 for i ≠ j": lambda y_i, y_j, same: y_i * (same - y_j) * same,
        "the sign of i ≠ j lost": lambda y_i, y_j, same: y_i * abs(same - y_j),
    },
    about=(WEIGHTS,),
)
def derivative_cases(seed: int, form: Callable[[Any, Any, int], Any]) -> Evidence:
    theta = sympy.symbols("theta_1:4", real=True)
    powers = [sympy.exp(t) for t in theta]
    y = [p / sum(powers) for p in powers]
    pairs = list(itertools.product(range(3), repeat=2))
    exact = [sympy.diff(y[i], theta[j]) for i, j in pairs]
    off = [e - form(y[i], y[j], int(i == j)) for e, (i, j) in zip(exact, pairs, strict=True)]
    s = normal(stream(seed, "softmax.derivative-cases"), 6)
    a = attention_weights(s).tolist()
    numbers = torch.tensor([[form(a[i], a[j], int(i == j)) for j in range(6)] for i in range(6)], dtype=s.dtype)
    return evidence(
        vanishes("of nine derivatives, wrong", sympy.Matrix(off)),
        at_most("n = 6, from autograd", error(numbers, jacobian(attention_weights, s)), 1e-14),
        steps=[
            r"\hat{y}_i = e^{\theta_i} / \sum_k e^{\theta_k}",
            step(r"\frac{\partial \hat{y}_1}{\partial \theta_1}", sympy.factor(exact[0])),
            step(r"\frac{\partial \hat{y}_1}{\partial \theta_2}", sympy.factor(exact[1])),
        ],
    )


def expansion(a: Sequence[Any]) -> Any:
    """Σ a_i²(1 − a_i)² + 2 Σ_{i<j} a_i²a_j²"""
    return sum(x**2 * (1 - x) ** 2 for x in a) + 2 * sum(x**2 * y**2 for x, y in itertools.combinations(a, 2))


@claim(
    "softmax.frobenius-expansion",
    statement=r"$\lVert \mathrm{diag}(a) - aa^\top \rVert_F^2 = \sum_i a_i^2(1-a_i)^2 + 2\sum_{i<j} a_i^2 a_j^2$.",
    verdict="true",
    method="symbolic",
    right=expansion,
    wrong={
        "pairs counted once": lambda a: expansion(a) - sum(x**2 * y**2 for x, y in itertools.combinations(a, 2)),
        "diagonal alone": lambda a: sum(x**2 * (1 - x) ** 2 for x in a),
    },
    about=(JACOBIAN_NORM,),
)
def frobenius_expansion(seed: int, form: Norm) -> Evidence:
    """A polynomial identity: it does not need Σ a = 1."""
    wrong = []
    for n in (2, 3, 4):
        a = sympy.Matrix(sympy.symbols(f"a_1:{n + 1}"))
        wrong.append(sum(x**2 for x in sympy.diag(*a) - a * a.T) - form(list(a)))
    weights = [attention_weights(normal(stream(seed, "expansion", n), n)) for n in (2, 7, 30)]
    apart = [abs(float(softmax_jacobian_norm(a)) ** 2 - form(a.tolist())) for a in weights]
    return evidence(
        vanishes("of n = 2, 3, 4, wrong", sympy.Matrix(wrong)),
        at_most("from the formula that diagnoses heads, n to 30", max(apart), 1e-14),
        steps=[
            r"J_{ii} = a_i - a_i^2 = a_i(1 - a_i)",
            r"J_{ij} = -a_i a_j \quad (i \ne j)",
        ],
    )


def squared_norm_over_rest(rest: Any, *shares: Any) -> Any:
    """‖J‖_F²/r² of a = (1 − r, r p_1, r p_2, …), with r cancelled, so that r may be 0."""
    own = (1 - rest) ** 2 + sum(p**2 * (1 - rest * p) ** 2 for p in shares)
    largest_with_others = 2 * (1 - rest) ** 2 * sum(p**2 for p in shares)
    return own + largest_with_others + 2 * rest**2 * sum((p * q) ** 2 for p, q in itertools.combinations(shares, 2))


def broken_sticks(cuts: Sequence[Any]) -> list[Any]:
    """Shares of 1: each cut takes its part of what is left."""
    shares, left = [], 1
    for cut in cuts:
        shares.append(left * cut)
        left = left * (1 - cut)
    return [*shares, left]


@claim(
    "softmax.frobenius-bound",
    statement=r"$a_{\max} > 1 - \epsilon$ implies $\lVert \mathrm{diag}(a) - aa^\top \rVert_F^2 < n^2\epsilon^2$ "
    r"for $n \ge 2$ weights.",
    note=r"Far from tight for many keys: $J = \mathrm{diag}(a) - aa^\top$ is positive semidefinite, so "
    r"$\lVert J \rVert_F \le \mathrm{Tr} J = 1 - \lVert a \rVert^2 \le 1 - a_{\max}^2 < 2\epsilon$, whatever $n$ is.",
    verdict="true",
    method="interval",
    right=lambda n: n**2,
    wrong={"n in place of n²": lambda n: n, "no factor": lambda n: 1},
    about=(JACOBIAN_NORM,),
)
def frobenius_bound(seed: int, form: Callable[[int], int]) -> Evidence:
    """With r = 1 − a_max < ε:  ‖J‖² ≤ form(n) r² is to be shown, for every r and every way to share r."""

    def boxes(n: int, bound: float) -> int:
        return proves(lambda r, *cuts: squared_norm_over_rest(r, *broken_sticks(cuts)), [(0, 1)] * (n - 1), bound)

    draw = stream(seed, "softmax.frobenius-bound")
    weights = [attention_weights(normal(draw, 500, n, scale=2.0)) for n in (2, 5, 40)]
    left = [1 - a.max(-1).values for a in weights]
    norms = [softmax_jacobian_norm(a) for a in weights]
    chain = [(n / (2 * r)).max() for n, r in zip(norms, left, strict=True)]
    claimed = [(n**2 / (form(a.shape[-1]) * r**2)).max() for n, r, a in zip(norms, left, weights, strict=True)]
    return evidence(
        *(at_least(f"boxes that prove ‖J‖² ≤ n²r², n = {n}", boxes(n, form(n)), 1) for n in (3, 2)),
        at_least("boxes that prove ‖J‖² ≤ 4.05 r², n = 3", boxes(3, 4.05), 1),
        at_most("largest ‖J‖²/(n²ε²) drawn, n to 40", max(claimed), 1.001),
        at_most("largest ‖J‖/(2ε) drawn, n to 40", max(chain), 1.0001),
        exactly("tight for two keys: ‖J‖²/r² as r → 0", squared_norm_over_rest(Fraction(0), Fraction(1)), 4),
        steps=[
            r"\lVert J \rVert_F \le \mathrm{Tr} J = \sum_i a_i(1 - a_i) = 1 - \lVert a \rVert^2",
            r"1 - \lVert a \rVert^2 \le 1 - a_{\max}^2 = (1 - a_{\max})(1 + a_{\max}) < 2\epsilon \le n\epsilon",
        ],
    )
