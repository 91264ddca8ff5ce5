"""Claims about the kernel e^{qᵀk} as an expectation of positive features.

Expectations over x ~ N(0, I) are products over the coordinates, so that a proof for one coordinate holds for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import sympy
import torch
from torch import Tensor

from seqlab.ops import linear_attention as linear
from seqlab.ops.attention import dot_scores
from seqlab.theory.instances import normal, stream
from seqlab.theory.jacobians import error
from seqlab.theory.ledger import LEDGER, Evidence, at_most, evidence
from seqlab.theory.sampling import draws_for, mean_of, meets
from seqlab.theory.symbols import step, vanishes

claim = LEDGER.of("linear_attention")

KERNEL = "seqlab.ops.linear_attention"
Q, K, X = (sympy.Symbol(name, real=True) for name in "qkx")
M = sympy.Symbol("m", positive=True)
EXPECTED = r"\mathbb{E}"


@lru_cache
def generating() -> Any:
    """E[e^{kx}] over x ~ N(0, 1), by integration."""
    density = sympy.exp(-(X**2) / 2) / sympy.sqrt(2 * sympy.pi)
    return sympy.simplify(sympy.integrate(sympy.exp(K * X) * density, (X, -sympy.oo, sympy.oo)))


def expectation(f: Any) -> Any:
    """Of f = e^{ax + b} over x ~ N(0, 1): e^b E[e^{ax}]."""
    exponent = sympy.expand(sympy.expand_log(sympy.log(f), force=True))
    a, b = exponent.coeff(X, 1), exponent.coeff(X, 0)
    return sympy.powsimp(sympy.exp(sympy.expand(b + sympy.log(generating().subs(K, a)).expand(force=True))))


def number(expression: Any) -> float:
    return float(sympy.sympify(expression))


def pair(seed: int, id: str, both: float, product: float) -> tuple[Tensor, Tensor]:
    """q and k of width 4 in a random plane, with ‖q + k‖² = both, qᵀk = product, and the same norm."""
    basis, _ = torch.linalg.qr(normal(stream(seed, id, "pair"), 4, 2))
    middle, away = math.sqrt(both) / 2, math.sqrt(both / 4 - product)
    return basis @ torch.tensor([middle, away], dtype=torch.float64), basis @ torch.tensor(
        [middle, -away], dtype=torch.float64
    )


def directions(seed: int, id: str, draws: int, width: int = 4, **options: bool) -> Tensor:
    """As seqlab draws them."""
    return linear.gaussian_directions(draws, width, generator=stream(seed, id, draws), **options).double()


def one_by_one(u: Tensor, w: Tensor) -> Tensor:
    """What each direction alone makes of u: e^{wᵀu − ‖u‖²/2}."""
    return linear.positive_features(u, w) * math.sqrt(len(w))


# --------------------------------------------------------------------------- the kernel


@claim(
    "kernel.polarisation",
    statement=r"$x^\top y = \frac{1}{2} (\lVert x + y \rVert^2 - \lVert x \rVert^2 - \lVert y \rVert^2)$.",
    verdict="true",
    method="symbolic",
    right=lambda square, x, y: (square(x + y) - square(x) - square(y)) / 2,
    wrong={
        "the half dropped": lambda square, x, y: square(x + y) - square(x) - square(y),
        "a half of the difference": lambda square, x, y: (square(x + y) - square(x - y)) / 2,
        "the norm of the difference": lambda square, x, y: (square(x - y) - square(x) - square(y)) / 2,
    },
    about=("seqlab.ops.attention:dot_scores",),
)
def polarisation(seed: int, form: Callable[..., Any]) -> Evidence:
    x, y = (sympy.Matrix(sympy.symbols(f"{name}_1:4", real=True)) for name in "xy")
    said = form(lambda u: u.dot(u), x, y)
    draw = stream(seed, "kernel.polarisation")
    q, k = normal(draw, 5, 1, 8), normal(draw, 1, 6, 8)
    scores = form(lambda u: u.square().sum(-1), q, k)
    return evidence(
        vanishes("terms left over, d = 3", x.dot(y) - said),
        at_most("seqlab's scores, from norms", error(dot_scores(q[:, 0], k[0]), scores), 1e-12),
        steps=[step(r"\lVert x + y \rVert^2", sympy.expand((x + y).dot(x + y)))],
    )


@claim(
    "kernel.gaussian-mgf",
    statement=r"$\exp(\lVert u \rVert^2 / 2) = \mathbb{E}_{x \sim N(0, I)}[\exp(x^\top u)]$.",
    verdict="true",
    method="symbolic",
    right=lambda s: sympy.exp(s / 2),
    wrong={
        "the half dropped": sympy.exp,
        "the sign lost": lambda s: sympy.exp(-s / 2),
        "the exponential of the mean": lambda s: sympy.Integer(1),
    },
    about=(f"{KERNEL}:gaussian_directions",),
)
def gaussian_mgf(seed: int, form: Callable[[Any], Any]) -> Evidence:
    """Of s = ‖u‖²."""
    found, norm = expectation(sympy.exp(X * Q)), 0.5
    u, _ = pair(seed, "kernel.gaussian-mgf", both=4 * norm, product=norm)
    deviation = math.sqrt(math.exp(2 * norm) - math.exp(norm))
    w = directions(seed, "kernel.gaussian-mgf", draws_for(deviation, 0.05))
    return evidence(
        vanishes("terms left over, one coordinate", found - form(Q**2)),
        vanishes("terms left over, the product of two", form(Q**2) * form(K**2) - form(Q**2 + K**2)),
        meets("mean over seqlab's directions, ‖u‖² = 1/2", mean_of((w @ u).exp()), number(form(sympy.Float(norm)))),
        steps=[
            step(rf"{EXPECTED}[e^{{x u}}]", r"\int \frac{1}{\sqrt{2\pi}} e^{x u - x^2/2}\, dx"),
            step(r"\int \frac{1}{\sqrt{2\pi}} e^{x u - x^2/2}\, dx", found.subs(Q, sympy.Symbol("u"))),
            step(rf"{EXPECTED}[e^{{x^\top u}}]", r"\prod_l e^{u_l^2/2} = e^{\lVert u \rVert^2/2}"),
        ],
    )


@claim(
    "kernel.positive-features",
    statement=r"$\exp(q^\top k) = e^{-\lVert q \rVert^2/2}\, \mathbb{E}_{x \sim N(0, I)}[e^{x^\top q} e^{x^\top k}]\, "
    r"e^{-\lVert k \rVert^2/2}$.",
    verdict="true",
    method="symbolic",
    right=lambda s: sympy.exp(-s / 2),
    wrong={
        "the sign lost": lambda s: sympy.exp(s / 2),
        "the half dropped": lambda s: sympy.exp(-s),
        "no factor": lambda s: sympy.Integer(1),
    },
    about=(f"{KERNEL}:positive_features", f"{KERNEL}:gaussian_directions"),
)
def positive(seed: int, form: Callable[[Any], Any]) -> Evidence:
    """Of s = ‖u‖²: the factor that each side has before the expectation."""
    product = expectation(sympy.exp(X * Q) * sympy.exp(X * K))
    q, k = pair(seed, "kernel.positive-features", both=0.6, product=0.1)
    exact = math.exp(0.1)
    w = directions(seed, "kernel.positive-features", draws_for(exact * math.sqrt(math.expm1(0.6)), 0.05))
    factor = number(form(sympy.Float(float(q.square().sum()))))
    return evidence(
        vanishes("terms left over", form(Q**2) * product * form(K**2) - sympy.exp(Q * K)),
        meets("mean over seqlab's features, qᵀk = 0.1", mean_of(one_by_one(q, w) * one_by_one(k, w)), exact),
        at_most(
            "seqlab's features of q, from factor times e^{wᵀq}", error(one_by_one(q, w), factor * (w @ q).exp()), 1e-9
        ),
        steps=[
            step(rf"{EXPECTED}[e^{{x q}} e^{{x k}}]", product),
            step(rf"e^{{-q^2/2}}\, {EXPECTED}[e^{{x q}} e^{{x k}}]\, e^{{-k^2/2}}", sympy.exp(Q * K)),
        ],
    )
