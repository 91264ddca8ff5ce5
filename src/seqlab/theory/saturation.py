"""Claims about large scores: a softmax that is nearly one-hot, and what it does to gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import erf, expit
from scipy.stats import chi, norm
from torch import Tensor

from seqlab.diagnostics.inside import softmax_jacobian_norm
from seqlab.diagnostics.score_experiments import gap_density, jacobian_formula, rest_formula
from seqlab.ops.attention import attention_weights, dot_scores, scaled_scores
from seqlab.theory.dot_products import SCORES, Score
from seqlab.theory.exponents import exponent
from seqlab.theory.instances import normal, stream
from seqlab.theory.ledger import (
    AS_STATED,
    LEDGER,
    Evidence,
    Finding,
    Limits,
    at_least,
    at_most,
    between,
    evidence,
)
from seqlab.theory.sampling import mean_of, median, meets, share_of

SETTING = (
    r"The scores of $n$ keys are $s_i = q^\top k_i$, in $d$ dimensions; $a = \mathrm{softmax}(s)$, and "
    r"$a_{max}$ is the largest weight."
)
claim = LEDGER.of("scaling", SETTING)

WEIGHTS = "seqlab.ops.attention:attention_weights"
JACOBIAN_NORM = "seqlab.diagnostics.inside:softmax_jacobian_norm"
EXPERIMENT = "seqlab.diagnostics.score_experiments:"
STANDARD = r"$q$ and the keys are independent and $N(0, I)$"


def drawn(draw: torch.Generator, width: int, keys: int, draws: int) -> tuple[Tensor, Tensor]:
    """Standard normal queries, each with keys of its own.    (draws, 1, d), (draws, keys, d)"""
    return normal(draw, draws, 1, width), normal(draw, draws, keys, width)


def attention_of(draw: torch.Generator, score: Score, width: int, keys: int, draws: int) -> Tensor:
    """(draws, keys)"""
    return attention_weights(score(*drawn(draw, width, keys, draws)))[:, 0]


# --------------------------------------------------------------------------- what large scores do to a softmax


@claim(
    "dot.unscaled-skewed-softmax",
    statement=r"Without a scale the softmax over $q^\top k_1, \dots, q^\top k_n$ is nearly one-hot for large $d$.",
    note=rf"{STANDARD}. In probability: near ties remain, in a share of draws that falls like $1/\sqrt{{d}}$.",
    verdict="true",
    method="sampling",
    right=dot_scores,
    wrong={
        "divided by √d": scaled_scores,
        "divided by d": lambda q, k: dot_scores(q, k) / q.shape[-1],
    },
    about=(*SCORES, WEIGHTS, f"{EXPERIMENT}rest_formula"),
)
def unscaled_skewed_softmax(seed: int, form: Score) -> Evidence:
    draw, keys, widths = stream(seed, "dot.unscaled-skewed-softmax"), 4, (256, 1024)
    at = {d: attention_of(draw, form, d, keys, 600).max(-1).values for d in (16, 1024)}
    others = [rest_formula(d, 2) for d in widths]
    return evidence(
        meets("mean largest of 4 weights, d = 1024", mean_of(at[1024]), 1 - rest_formula(1024, keys), 0.002),
        at_least("median largest weight, d = 1024", median(at[1024]), 0.999),
        at_least("mean left to the other weights at d = 16, over that at 1024", rest(at[16]) / rest(at[1024]), 3),
        at_most(
            "its formula for two keys, relative error", others[1] / of_two_keys(1024, lambda g: expit(-g)) - 1, 0.01
        ),
        between("its exponent in d", exponent(widths, others), -0.51, -0.49),
    )


def of_two_keys(width: int, value: Callable[[Any], Any]) -> float:
    """E value(|s_1 − s_2|) of two scores N(0, d):  s_1 − s_2 = √(2d) N(0, 1)."""
    z = np.linspace(0, 9, 20_001)
    return float(np.trapezoid(2 * norm.pdf(z) * value(math.sqrt(2 * width) * z), z))


def rest(largest_weights: Tensor) -> float:
    return float(1 - largest_weights.mean())


class Gradient(NamedTuple):
    """A score, and by which factor the median gradient changes from d = 16 to d = 1024."""

    score: Score
    factor: Limits


FALLS, GROWS = (0.0, 0.01), (1.0, math.inf)


@claim(
    "dot.unscaled-gradient-explosion",
    statement=r"Without the scale $1/\sqrt{d}$ gradients explode for large $d$.",
    correction=r"They vanish: $\partial a/\partial s = \mathrm{diag}(a) - aa^\top$ tends to $0$, and the median of "
    r"$\lVert\partial a_1/\partial q\rVert$ with it. The mean stays bounded, since rare near ties carry a factor "
    r"$\sqrt{d}$: with two keys it tends to $1/\sqrt{2\pi}$.",
    note=STANDARD + ".",
    verdict="false",
    method="sampling",
    right=Gradient(dot_scores, FALLS),
    wrong={AS_STATED: Gradient(dot_scores, GROWS), "scaled, they vanish as well": Gradient(scaled_scores, FALLS)},
    about=(*SCORES, WEIGHTS),
)
def unscaled_gradient_explosion(seed: int, form: Gradient) -> Evidence:
    """Two keys:  ‖∂a_1/∂q‖ = a_1 a_2 ‖k_1 − k_2‖ = √(2d) σ(1 − σ)(√(2d) N(0, 1)) for large d."""
    draw = stream(seed, "dot.unscaled-gradient-explosion")
    narrow, middle, wide = (
        gradients_to_query(form.score, *drawn(draw, d, 2, draws)) for d, draws in ((16, 1500), (64, 8000), (1024, 1500))
    )
    change = median(wide) / median(narrow)
    return evidence(
        Finding("median gradient at d = 1024 over that at d = 16", change, form.factor),
        at_most("median gradient, d = 1024", median(wide), 1e-6),
        meets("mean gradient, d = 64", mean_of(middle), 1 / math.sqrt(2 * math.pi), 0.01),
        meets("mean gradient, d = 1024", mean_of(wide), 1 / math.sqrt(2 * math.pi), 0.01),
        counterexample=rf"$d = 1024$, two keys: half of all queries have $\lVert\partial a_1/\partial q\rVert < "
        rf"{median(wide):.1e}$; the mean is ${float(wide.mean()):.2f}$.",
    )


def gradients_to_query(score: Score, q: Tensor, k: Tensor) -> Tensor:
    """‖∂a_1/∂q‖ of every draw, by autograd.    q (R, 1, d), k (R, n, d) -> (R,)"""
    q = q.requires_grad_()
    (found,) = torch.autograd.grad(attention_weights(score(q, k))[..., 0].sum(), q)
    norms: Tensor = found[:, 0].norm(dim=-1)
    return norms


CLOSE = 0.01  # ε


def two_key_failure(width: int) -> float:
    """P(a_max ≤ 1 − ε) of two keys.

    s_1 − s_2 is N(0, 2‖q‖²), so P = E erf(t/(2‖q‖)) with t = ln((1 − ε)/ε) and ‖q‖ ~ χ_d;  → t/√(πd).
    """
    size = np.linspace(max(1e-9, math.sqrt(width) - 9), math.sqrt(width) + 9, 4001)
    t = math.log((1 - CLOSE) / CLOSE)
    return float(np.trapezoid(chi.pdf(size, width) * erf(t / (2 * size)), size))


def gap_below(width: int, keys: int, apart: float) -> float:
    """P(the two largest scores are less than `apart` from each other), all scores being N(0, d)."""
    gap = np.linspace(0, apart / math.sqrt(width), 101)
    return float(np.trapezoid(gap_density(keys, gap), gap))


@claim(
    "softmax.one-hot-limit",
    statement=r"For every $\epsilon > 0$ a large enough $d$ gives $a_{\max} > 1 - \epsilon$ for unscaled scores.",
    conditions=r"In probability, for a fixed number $n$ of keys: $P(a_{\max} \le 1 - \epsilon)$ falls like "
    r"$C/\sqrt{d}$ and is positive for every $d$. For $n$ that grows like $e^d$ it does not fall.",
    note=STANDARD + ".",
    verdict="conditional",
    method="sampling",
    right=two_key_failure,
    wrong={
        "surely, from d = 256 on": lambda d: two_key_failure(d) if d < 256 else 0.0,
        "a probability that falls like 1/d": lambda d: two_key_failure(16) * 16 / d,
        "a probability that falls like exp(−d)": lambda d: two_key_failure(16) * math.exp(16 - d),
    },
    about=(SCORES[0], WEIGHTS, f"{EXPERIMENT}gap_density"),
)
def one_hot_limit(seed: int, form: Callable[[int], float]) -> Evidence:
    draw = stream(seed, "softmax.one-hot-limit")

    def failures(width: int, keys: int, draws: int) -> Tensor:
        return attention_of(draw, dot_scores, width, keys, draws).max(-1).values <= 1 - CLOSE

    low, high = (gap_below(256, 8, math.log(n * (1 - CLOSE) / CLOSE)) for n in (1, 7))
    eight = share_of(failures(256, 8, 1000))
    many = {d: share_of(failures(d, round(math.exp(d)), 150)) for d in (4, 8)}
    far = (2**14, 2**16)
    return evidence(
        *(
            meets(f"P(largest ≤ 0.99), two keys, d = {d}", share_of(failures(d, 2, 2500)), form(d))
            for d in (256, 64, 16)
        ),
        between("its exponent in d", exponent(far, [max(form(d), 1e-300) for d in far]), -0.51, -0.49),
        Finding(
            "the same of eight keys, d = 256, between bounds", eight.mean, (low - 0.01, high + 0.01), eight.interval
        ),
        at_most("all gaps of eight scores together, less 1", gap_below(1, 8, 12) - 1, 0.01),
        *(
            Finding(f"the same of exp(d) keys, d = {d}", share.mean, (0.9, 1.0), share.interval)
            for d, share in many.items()
        ),
    )


class Vanishing(NamedTuple):
    """A score, and the share of draws at d = 1024 whose ‖J‖ is still above 0.1."""

    score: Score
    left: Limits


@claim(
    "softmax.jacobian-vanishes",
    statement=r"Without a scale the softmax Jacobian goes to zero for large $d$, so gradients vanish.",
    conditions=r"In probability, for a fixed number of keys: the median of "
    r"$\lVert\mathrm{diag}(a) - aa^\top\rVert_F$ tends to $0$ fast, its mean like $1/\sqrt{d}$, and some draws keep a "
    r"large one at every $d$.",
    note=STANDARD + ".",
    verdict="conditional",
    method="sampling",
    right=Vanishing(dot_scores, (0.01, 0.5)),
    wrong={
        "for every draw": Vanishing(dot_scores, (0.0, 0.0)),
        "scaled as well": Vanishing(scaled_scores, (0.0, 1.0)),
    },
    about=(*SCORES, WEIGHTS, JACOBIAN_NORM, f"{EXPERIMENT}jacobian_formula"),
)
def jacobian_vanishes(seed: int, form: Vanishing) -> Evidence:
    draw, keys = stream(seed, "softmax.jacobian-vanishes"), 8
    norms = {
        d: torch.cat([softmax_jacobian_norm(attention_of(draw, form.score, d, keys, 500)) for _ in range(pieces)])
        for d, pieces in ((16, 4), (1024, 4))
    }
    still = share_of(norms[1024] > 0.1)
    two = of_two_keys(1024, lambda g: 2 * expit(g) * expit(-g))
    return evidence(
        at_most("median ‖J‖, d = 1024", median(norms[1024]), 1e-3),
        at_least("median ‖J‖, d = 16", median(norms[16]), 0.1),
        meets("mean ‖J‖, d = 1024", mean_of(norms[1024]), jacobian_formula(1024, keys), 0.005),
        at_most("its formula for two keys, relative error", jacobian_formula(1024, 2) / two - 1, 0.01),
        Finding("share of draws with ‖J‖ > 0.1, d = 1024", still.mean, form.left, still.interval),
    )
