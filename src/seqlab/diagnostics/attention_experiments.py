"""What attention can do and where it breaks: copying a value, averaging two, with one head or with two.

Every figure is measured on `MultiHeadAttention`; every prediction is a function of its own, so that it can be read, and
replaced by a wrong one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, ndtr
from scipy.stats import norm
from torch import Tensor

from seqlab.core.settings.experiments import NOISY, Averaging, Copying, NoisyLength, listed
from seqlab.diagnostics.drawing import frame, mean_of, normal, variance_of
from seqlab.diagnostics.experiments import Experiment, Finding, Line, Picture, counted, described, estimated, exact
from seqlab.layers.attention import MultiHeadAttention

ROUNDING = 1e-9
ROUGHLY = 0.05  # how far a formula that leaves out small terms may be off
Reals = NDArray[np.float64]


def plain_attention(width: int) -> MultiHeadAttention:
    """One head that takes queries, keys and values as they are: weights softmax(qᵀk)."""
    eye = torch.eye(width, dtype=torch.float64)
    longer = eye * math.sqrt(width)  # the layer divides by √d
    return MultiHeadAttention.from_matrices((longer, None), (eye, None), (eye, None), (eye, None), 1).eval()


@torch.no_grad()
def attended(layer: MultiHeadAttention, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """q (B, T, d), k and v (B, n, d) -> output (B, T, d), weights (B, N, T, n)"""
    out, _, weights = layer(q, k, v, need_weights=True)
    assert weights is not None
    return out, weights


# --------------------------------------------------------------------------- copying one value

WITH_NOISE = "(1 − √(1 − 2αL))/α, L that length without noise"
GRID = 32  # lengths tried at once
ROUNDS, FEWER = 9, 4  # each narrows them down GRID times; fewer where noise is larger than what is left


def copying_formula(keys: int, share: float, noise: float = 0.0) -> float:
    """λ = ln(n − 1) + ln(p/(1 − p)), from e^λ/(e^λ + n − 1) = p; noise of variance α adds λ²α/2 to the others' log sum.

    Infinite where noise grows faster than λ: there is no such length.
    """
    needed = math.log(keys - 1) + math.log(share / (1 - share))
    if noise == 0:
        return needed
    left = 1 - 2 * noise * needed
    return (1 - math.sqrt(left)) / noise if left >= 0 else math.inf


def copying(asked: Copying) -> Experiment:
    draw = torch.Generator().manual_seed(asked.seed)
    sizes = listed("keys", asked.keys, 2, 1000)
    findings, measured = [], []
    for keys in sizes:
        layer, means = plain_attention(keys), frame(draw, keys)
        predicted = copying_formula(keys, asked.share, asked.noise)
        what = f"n = {keys}: λ for {100 * asked.share:g} % of the attention"
        if asked.noise == 0:
            measured.append(_length_needed(layer, means[0], means, asked.share, ROUNDS))
            findings.append(exact(what, predicted, measured[-1], 1e-6))
            continue
        noisy = (means + math.sqrt(asked.noise) * normal(draw, keys, keys) for _ in range(asked.draws))
        lengths = [_length_needed(layer, means[0], some, asked.share, FEWER) for some in noisy]
        mean, error = mean_of(torch.tensor(lengths))
        measured.append(mean)
        findings.append(estimated(what, predicted, mean, error, near=ROUGHLY))
    axis = [float(keys) for keys in sizes]
    formula = [copying_formula(keys, asked.share, asked.noise) for keys in sizes]
    more = f"; noise of variance α: λ = {WITH_NOISE}" if asked.noise else ""
    return described(
        "copying",
        asked,
        "q = λk_a on orthonormal keys: a_a = e^λ/(e^λ + n − 1), so λ = ln(n − 1) + ln(p/(1 − p)): it grows as ln n"
        + more,
        f"From n = {sizes[0]} to {sizes[-1]:,} keys λ goes from {measured[0]:.2f} to {measured[-1]:.2f}: a query must "
        f"be about ln n long, and more by {math.log(asked.share / (1 - asked.share)):.1f} for {100 * asked.share:g} %.",
        findings,
        [
            Picture(
                "How long a query must be to copy one value",
                "number of keys n",
                f"λ for {100 * asked.share:g} % of the attention",
                [Line("measured", axis, measured), Line("by formula", axis, formula, dashed=True)],
                log_x=True,
            )
        ],
    )


def _length_needed(layer: MultiHeadAttention, direction: Tensor, keys: Tensor, share: float, rounds: int) -> float:
    """The least λ at which the first key has this share, by trying lengths; infinite if none up to 1000 gives it."""
    low, high = 0.0, 1000.0
    for _ in range(rounds):
        lengths = torch.linspace(low, high, GRID + 1, dtype=torch.float64)
        _, weights = attended(layer, (lengths[:, None] * direction)[None], keys[None], keys[None])
        enough = torch.nonzero(weights[0, 0, :, 0] >= share)
        if not len(enough):
            return math.inf
        place = max(int(enough[0]), 1)
        low, high = float(lengths[place - 1]), float(lengths[place])
    return high


# --------------------------------------------------------------------------- averaging two values


def averaging_formula(keys: int, sharpness: float) -> float:
    """a_a = a_b = e^λ/(2e^λ + n − 2)"""
    return 1 / (2 + (keys - 2) * math.exp(-sharpness))


def even_variance(sharpness: float, variance: float) -> float:
    """Var σ(λz), z ~ N(0, variance): how far the share of the first of two moves if their scores differ by λz."""
    grid, density = _gauss(math.sqrt(variance))
    share = expit(sharpness * grid)
    return float(((share - 0.5) ** 2 * density).sum())


def share_variance(keys: int, sharpness: float, noise: float) -> float:
    """Var e^x/(e^x + e^y + Σ e^z), x and y ~ N(λ, 2αλ²), the n − 2 others z ~ N(0, 2αλ²) to first order"""
    spread = sharpness * math.sqrt(2 * noise)
    x, density = _gauss(spread, 601)
    others = (keys - 2) * math.exp(noise * sharpness**2 - sharpness)
    share = np.exp(x)[:, None] / (np.exp(x)[:, None] + np.exp(x)[None, :] + others)
    both = density[:, None] * density[None, :]
    mean = float((share * both).sum())
    rest = others / (np.exp(x)[:, None] + np.exp(x)[None, :] + others)
    uneven = float((share**2 * rest**2 * both).sum()) * math.expm1(2 * noise * sharpness**2) / (keys - 2)
    return float(((share - mean) ** 2 * both).sum()) + uneven


def _gauss(deviation: float, points: int = 200_001) -> tuple[Reals, Reals]:
    """A fine grid over N(0, deviation²) and the probability of each of its points."""
    z = np.linspace(-9, 9, points)
    density = norm.pdf(z)
    return deviation * z, density / density.sum()


def averaging(asked: Averaging) -> Experiment:
    draw = torch.Generator().manual_seed(asked.seed)
    n = asked.keys
    layer, means, values = plain_attention(n), frame(draw, n), normal(draw, n, n) / math.sqrt(n)
    wanted = (values[0] + values[1]) / 2

    def asked_once(sharpness: float) -> tuple[float, float]:
        """The weight of a, and how far the output is from the mean of the two values."""
        out, weights = attended(layer, sharpness * (means[0] + means[1])[None, None], means[None], values[None])
        return float(weights[0, 0, 0, 0]), float((out[0, 0] - wanted).norm())

    def distance(sharpness: float) -> float:
        w = averaging_formula(n, sharpness)
        others = (1 - 2 * w) / (n - 2) * values[2:].sum(0)
        return float((w * (values[0] + values[1]) + others - wanted).norm())

    weight, away = asked_once(asked.sharpness)
    findings = [
        exact("share of attention on k_a", averaging_formula(n, asked.sharpness), weight, ROUNDING),
        exact("distance of the output from ½(v_a + v_b)", distance(asked.sharpness), away, ROUNDING),
    ]
    words = f"At λ = {asked.sharpness:g} each of the two has {weight:.4f} of the attention"
    if asked.noise > 0:
        keys = means + math.sqrt(asked.noise) * normal(draw, asked.draws, n, n)
        query = (asked.sharpness * (means[0] + means[1])).expand(asked.draws, 1, n)
        _, weights = attended(layer, query, keys, values.expand(asked.draws, n, n))
        variance, error = variance_of(weights[:, 0, 0, 0])
        predicted = share_variance(n, asked.sharpness, asked.noise)
        findings.append(estimated("noisy keys: variance of the share", predicted, variance, error, near=ROUGHLY))
        words += f"; with noise in the keys that share has a standard deviation of {math.sqrt(variance):.3f}"
    axis = [0.5 * step for step in range(41)]
    return described(
        "averaging",
        asked,
        "q = λ(k_a + k_b) on orthonormal keys: a_a = a_b = e^λ/(2e^λ + n − 2) → ½; with noise α the scores "
        "have a variance of 2αλ², and among the two the share of a is σ(N(0, 4αλ²))",
        f"{words}. One query can average two values, if λ is well above ln n = {math.log(n):.1f} and both keys are "
        "equally long.",
        findings,
        [
            Picture(
                "How far the output is from the mean of two values",
                "λ",
                "distance from ½(v_a + v_b)",
                [
                    Line("measured", axis, [max(asked_once(x)[1], 1e-17) for x in axis]),
                    Line("from a_a = e^λ/(2e^λ + n − 2)", axis, [max(distance(x), 1e-17) for x in axis], dashed=True),
                ],
                log_y=True,
            )
        ],
    )


# --------------------------------------------------------------------------- a key of noisy length


def one_head_formula(sharpness: float, length_variance: float, noise: float, values: Tensor) -> float:
    """tr Var(a_a v_a + a_b v_b + Σ a_i v_i), weights ∝ e^{λ(1+γ)}, e^λ and 1, γ ~ N(0, length variance); for λ large
    Var σ(λγ)·‖v_a − v_b‖² → ¼‖v_a − v_b‖².

    Noise α in every key adds 2αλ² to the variance of each score; the others' log sum rises by αλ², and each of them
    moves the output c by a_i(v_i − c).
    """
    (x, p), (y, r) = _gauss(math.sqrt(length_variance + 2 * noise), 4001), _gauss(math.sqrt(2 * noise), 61)
    first, second = sharpness * (1 + x)[:, None], sharpness * (1 + y)[None, :]
    density = p[:, None] * r[None, :]
    others = math.log(len(values) - 2) + noise * sharpness**2
    total = np.logaddexp(np.logaddexp(first, second), others)
    weights = np.stack([np.exp(part - total) for part in (first, second, others)])
    mean = (weights * density).sum((1, 2), keepdims=True)
    covariance = np.einsum("ixy,jxy,xy->ij", weights - mean, weights - mean, density)
    mixed = torch.stack([values[0], values[1], values[2:].mean(0)]).numpy()
    output = mean.ravel() @ mixed
    each = (weights[2] ** 2 * density).sum() / (len(values) - 2) ** 2
    apart = ((values[2:].numpy() - output) ** 2).sum()
    return float((covariance * (mixed @ mixed.T)).sum() + each * math.expm1(2 * noise * sharpness**2) * apart)


def two_heads_formula(sharpness: float, length_variance: float, noise: float, values: Tensor) -> float:
    """Var ½(c_1 + c_2) = ¼ Var(w)‖v_a − v̄‖², w = σ(λ(1 + γ) − ln(n − 1)); → ¼p(1 − p)‖v_a − v̄‖².

    Noise α in every key adds α to the variance of γ and λ²α/2 to the others' log sum, lets the second head vary in the
    same way, and a head that has lost its key mean the others with uneven weights.
    """
    total = 0.0
    for number, variance in ((0, length_variance + noise), (1, noise)):
        others = torch.cat([values[:number], values[number + 1 :]])
        mean_of_others = others.mean(0)
        grid, density = _gauss(math.sqrt(variance))
        share = expit(sharpness * (1 + grid) - math.log(len(others)) - noise * sharpness**2 / 2)
        mean = float((share * density).sum())
        apart = float((values[number] - mean_of_others).square().sum())
        uneven = math.expm1(noise * sharpness**2) / len(others)
        spread = float((others - mean_of_others).square().sum(-1).mean())
        lost = float(((1 - share) ** 2 * density).sum())
        total += float(((share - mean) ** 2 * density).sum()) * apart + lost * uneven * spread
    return total / 4


def failing_formula(sharpness: float, length_variance: float, noise: float, keys: int) -> float:
    """P(w < ½) = Φ((ln(n − 1)/λ + λα/2 − 1)/√(length variance + α)): k_a is so short, or points the other way, that
    the head loses it."""
    tie = math.log(keys - 1) / sharpness + noise * sharpness / 2
    return float(ndtr((tie - 1) / math.sqrt(length_variance + noise)))


def noisy_length(asked: NoisyLength) -> Experiment:
    draw = torch.Generator().manual_seed(asked.seed)
    n, spread = asked.keys, asked.length_variance
    means, values = frame(draw, n), normal(draw, n, n) / math.sqrt(n)

    def predicted(sharpness: float) -> tuple[float, float]:
        return (
            one_head_formula(sharpness, spread, asked.noise, values),
            two_heads_formula(sharpness, spread, asked.noise, values),
        )

    def measured(sharpness: float, draws: int) -> tuple[list[tuple[float, float]], Tensor]:
        """Total variance of the output of one head and of two, with their errors, and the second's weights on a."""
        keys = _noisy_keys(means, spread, asked.noise, draws, draw)
        found = []
        for queries in ([means[0] + means[1]], [means[0], means[1]]):
            layer = asking([sharpness * q for q in queries])
            out, weights = attended(layer, constant(draws, n), keys, values.expand(draws, n, n))
            found.append(mean_of((out[:, 0] - out[:, 0].mean(0)).square().sum(-1)))
        return found, weights[:, 0, 0, 0]

    (one, two), weights = measured(asked.sharpness, asked.draws)
    expected = predicted(asked.sharpness)
    failing = failing_formula(asked.sharpness, spread, asked.noise, n)
    least = 1e-6 * float((values[0] - values[1]).square().sum())  # what is less is nothing
    findings = [
        _variance("one head, q = λ(μ_a + μ_b): total variance of the output", expected[0], one, least),
        _variance("two heads, λμ_a and λμ_b: total variance of the output", expected[1], two, least),
        counted(
            "two heads: share of draws in which the first loses v_a", failing, int((weights < 0.5).sum()), len(weights)
        ),
    ]
    grid = [x for x in (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0) if asked.noise * x**2 <= NOISY]
    curves = [measured(sharpness, max(100, asked.draws // 10))[0] for sharpness in grid]
    formulas = [predicted(sharpness) for sharpness in grid]
    names = ("one head", "two heads")
    return described(
        "noisy-length",
        asked,
        f"k_a ~ N(μ_a, αI + {spread:g}·μ_aμ_aᵀ). One head: Var σ(λγ)·‖v_a − v_b‖² → ¼‖v_a − v_b‖²; two: → "
        "¼p(1 − p)‖v_a − v̄‖², p = Φ(−1/sd) the chance that the key points the other way",
        f"One head's output has a variance of {one[0]:.3g}, two heads' {two[0]:.3g}: {_compared(one[0], two[0])}. "
        f"One head stands before a tie between a and b that the noisy length decides; of two, the first fails in "
        f"{100 * findings[2].measured:.1f} % of cases, where k_a is far too short.",
        findings,
        [
            Picture(
                "How much the output fluctuates",
                "λ",
                "total variance",
                [
                    *(Line(name, grid, [c[i][0] for c in curves]) for i, name in enumerate(names)),
                    *(
                        Line(f"{name}, by formula", grid, [f[i] for f in formulas], dashed=True)
                        for i, name in enumerate(names)
                    ),
                ],
                log_x=True,
                log_y=True,
            )
        ],
    )


def _compared(one: float, two: float) -> str:
    if two <= 0 or one <= 0:
        return "one of them does not vary at all"
    return f"{one / two:.3g} times less" if one > two else f"{two / one:.3g} times more"


def _variance(what: str, predicted: float, measured: tuple[float, float], least: float) -> Finding:
    found = estimated(what, predicted, *measured, near=ROUGHLY)
    return dataclasses.replace(found, tolerance=found.tolerance + least)


def _noisy_keys(means: Tensor, spread: float, noise: float, draws: int, draw: torch.Generator) -> Tensor:
    """k_a = (1 + γ)μ_a + √α ε, the others μ_i + √α ε.    (draws, n, d)"""
    keys = means + math.sqrt(noise) * normal(draw, draws, *means.shape)
    keys[:, 0] += math.sqrt(spread) * normal(draw, draws, 1) * means[0]
    return keys


def asking(queries: Sequence[Tensor]) -> MultiHeadAttention:
    """A layer whose heads ask these queries of whatever they are given, and put out the mean of what they find."""
    width, heads = len(queries[0]), len(queries)
    eye = torch.eye(width, dtype=torch.float64)
    ask = torch.zeros(heads * width, width, dtype=torch.float64)
    ask[:, 0] = torch.cat(list(queries)) * math.sqrt(width)  # the layer divides by √d
    same, mean = eye.repeat(heads, 1), eye.repeat(1, heads) / heads
    return MultiHeadAttention.from_matrices((ask, None), (same, None), (same, None), (mean, None), heads).eval()


def constant(batch: int, width: int) -> Tensor:
    """The input that `asking` multiplies its queries by: 1 in the first place.    (B, 1, d)"""
    x = torch.zeros(batch, 1, width, dtype=torch.float64)
    x[:, :, 0] = 1.0
    return x
