"""What becomes of scores as queries and keys grow wider: their variance, and the softmax above them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, ndtr
from scipy.stats import norm
from torch import Tensor

from seqlab.core.errors import UsageError
from seqlab.core.settings.experiments import Saturation, ScoreVariance, listed
from seqlab.diagnostics.drawing import batches, mean_of, normal, variance_of
from seqlab.diagnostics.experiments import Experiment, Finding, Line, Picture, described, estimated
from seqlab.diagnostics.inside import softmax_jacobian_norm
from seqlab.ops.attention import attention_weights, dot_scores, scaled_scores

NEAR = 0.01  # how far an exact formula and a mean may be apart for a reader to call them equal
ROUGHLY = 0.05  # the same where a formula leaves out small terms
FAR = 0.1  # f(0)/√d up to which two scores decide
Reals = NDArray[np.float64]

# --------------------------------------------------------------------------- the variance of a score


def score_variance_formula(width: int, mean: float, sigma: float) -> float:
    """Var(qᵀk) = 2σ²‖μ‖² + dσ⁴,   q, k ~ N(μ, σ²I), μ = mean · 1"""
    return 2 * sigma**2 * (width * mean**2) + width * sigma**4


def score_variance(asked: ScoreVariance) -> Experiment:
    draw = torch.Generator().manual_seed(asked.seed)
    widths = listed("widths", asked.widths, 1, 4096)
    findings: list[Finding] = []
    curves: dict[str, list[float]] = {"qᵀk": [], "qᵀk/√d": []}
    for width in widths:
        scores: dict[str, list[Tensor]] = {name: [] for name in curves}
        for _, size in batches(asked.draws, 2 * width):
            q, k = (asked.mean + asked.sigma * normal(draw, size, 1, width) for _ in range(2))
            for name, score in (("qᵀk", dot_scores), ("qᵀk/√d", scaled_scores)):
                scores[name].append(score(q, k).flatten())
        predicted = score_variance_formula(width, asked.mean, asked.sigma)
        for name, expected in (("qᵀk", predicted), ("qᵀk/√d", predicted / width)):
            variance, error = variance_of(torch.cat(scores[name]))
            findings.append(estimated(f"d = {width}: variance of {name}", expected, variance, error, near=NEAR))
            curves[name].append(variance)
    growth = curves["qᵀk"][-1] / curves["qᵀk"][0]
    steady = curves["qᵀk/√d"][-1] / curves["qᵀk/√d"][0]
    axis = [float(width) for width in widths]
    formula = [score_variance_formula(width, asked.mean, asked.sigma) for width in widths]
    return described(
        "score-variance",
        asked,
        "Var(qᵀk) = 2σ²‖μ‖² + dσ⁴ for q, k ~ N(μ, σ²I); divided by √d: the d-th part of it",
        f"From d = {widths[0]} to {widths[-1]} the variance of qᵀk grows {growth:.1f} times; that of qᵀk/√d changes "
        f"by a factor of {steady:.2f}. It is 1 only if 2σ²‖μ‖²/d + σ⁴ is.",
        findings,
        [
            Picture(
                "Variance of a score",
                "width d",
                "variance",
                [
                    *(Line(name, axis, values) for name, values in curves.items()),
                    Line("2σ²‖μ‖² + dσ⁴", axis, formula, dashed=True),
                    Line("the d-th part of it", axis, [f / d for f, d in zip(formula, axis, strict=True)], dashed=True),
                ],
                log_x=True,
                log_y=True,
            )
        ],
    )


# --------------------------------------------------------------------------- a softmax that saturates


def gap_density(keys: int, gap: Reals) -> Reals:
    """f(g) = n(n − 1) ∫ φ(x) φ(x + g) Φ(x)^{n−2} dx: the gap between the two largest of n standard normal scores."""
    x = np.linspace(-9, 9, 3001)
    inner = norm.pdf(x) * ndtr(x) ** (keys - 2)
    density: Reals = keys * (keys - 1) * np.trapezoid(inner[:, None] * norm.pdf(x[:, None] + gap), x, axis=0)
    return density


def _over_gaps(width: int, keys: int, value: Callable[[Reals], Reals]) -> float:
    """E value(√d g): what the first two scores alone make of it."""
    gap = np.linspace(0, min(40 / math.sqrt(width), 18), 1001)
    return float(np.trapezoid(gap_density(keys, gap) * value(math.sqrt(width) * gap), gap))


def rest_formula(width: int, keys: int) -> float:
    """E[1 − max a] = E σ(−√d g) → f(0) ln 2/√d: only near ties of the first two leave anything to the others."""
    return _over_gaps(width, keys, lambda apart: expit(-apart))


def jacobian_formula(width: int, keys: int) -> float:
    """E‖diag(a) − aaᵀ‖_F = E 2σ(1 − σ)(√d g) → f(0)/√d"""
    return _over_gaps(width, keys, lambda apart: 2 * expit(apart) * expit(-apart))


def saturation(asked: Saturation) -> Experiment:
    """q, k ~ N(0, I): scores have the variance d. Each draw has a query and keys of its own."""
    draw = torch.Generator().manual_seed(asked.seed)
    widths = listed("widths", asked.widths, 1, 4096)
    least = math.ceil((float(gap_density(asked.keys, np.zeros(1))[0]) / FAR) ** 2)
    if widths[-1] < least:
        raise UsageError(
            f"--widths {asked.widths}: the formulas are for large d, with {asked.keys} keys {least} or more"
        )
    scores: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"qᵀk": dot_scores, "qᵀk/√d": scaled_scores}
    seen: dict[str, dict[int, dict[str, Tensor]]] = {name: {} for name in scores}
    for width in widths:
        parts: dict[str, list[tuple[Tensor, ...]]] = {name: [] for name in scores}
        for _, size in batches(asked.draws, (asked.keys + 1) * width):
            q, k = normal(draw, size, 1, width), normal(draw, size, asked.keys, width)
            for name, score in scores.items():
                weights = attention_weights(score(q, k))[:, 0]
                parts[name].append((1 - weights.max(-1).values, softmax_jacobian_norm(weights)))
        for name in scores:
            rest, jacobian = (torch.cat(some) for some in zip(*parts[name], strict=True))
            seen[name][width] = {"rest": rest, "jacobian": jacobian}
    widest = widths[-1]
    findings = []
    for what, values, formula in (
        ("share of attention beside the largest", "rest", rest_formula),
        ("norm of the softmax Jacobian", "jacobian", jacobian_formula),
    ):
        mean, error = mean_of(seen["qᵀk"][widest][values])
        name = f"qᵀk, d = {widest}: mean {what}"
        findings.append(estimated(name, formula(widest, asked.keys), mean, error, near=ROUGHLY))
    (first, slack), (last, more) = (mean_of(seen["qᵀk/√d"][width]["jacobian"]) for width in (widths[0], widest))
    findings.append(
        estimated(
            f"qᵀk/√d: mean norm of the Jacobian at d = {widest} over that at d = {widths[0]}",
            1.0,
            last / first,
            math.hypot(slack / first, more / last) * last / first,
            near=2 * ROUGHLY,
        )
    )
    middle = float(seen["qᵀk"][widest]["jacobian"].median())
    axis = [float(width) for width in widths]

    def line(name: str, values: str, of: Callable[[Tensor], Any], words: str) -> Line:
        return Line(words, axis, [max(float(of(seen[name][width][values])), 1e-12) for width in widths])

    return described(
        "saturation",
        asked,
        "unscaled, d large: E[1 − max a] = E σ(−√d g) → f(0) ln 2/√d and E‖diag(a) − aaᵀ‖ = E 2σ(1 − σ)(√d g) → "
        "f(0)/√d, g the gap between the two largest of n standard normal scores, f its density; "
        "scaled: the same for every d",
        f"At d = {widest} the largest of {asked.keys} unscaled weights is {1 - findings[0].measured:.3f} on average "
        f"and half of all queries pass on less than {middle:.1g} of their gradient; the mean is kept up by "
        f"rare near ties. Scaled, the mean Jacobian stays at {last:.2f}.",
        findings,
        [
            Picture(
                "How much gradient the softmax passes on",
                "width d",
                "norm of diag(a) − aaᵀ",
                [
                    line("qᵀk/√d", "jacobian", torch.mean, "scaled, mean"),
                    line("qᵀk", "jacobian", torch.mean, "unscaled, mean"),
                    line("qᵀk", "jacobian", torch.median, "unscaled, median"),
                    Line(
                        "from the gap of two scores",
                        axis,
                        [jacobian_formula(width, asked.keys) for width in widths],
                        dashed=True,
                    ),
                ],
                log_x=True,
                log_y=True,
            ),
            Picture(
                "How one-hot the weights are",
                "width d",
                "largest weight, mean",
                [
                    Line(words, axis, [1 - float(seen[name][width]["rest"].mean()) for width in widths])
                    for name, words in (("qᵀk/√d", "scaled"), ("qᵀk", "unscaled"))
                ],
                log_x=True,
            ),
        ],
    )
