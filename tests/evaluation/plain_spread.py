"""`evaluation.spread` once more, plainly: loops over blocks, cosines and shapes, as its equations stand."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import t

Mixture = list[tuple[float, float, float]]  # (weight, deviation, degrees of freedom)


def of_stretch(
    scores: Sequence[float], sizes: Sequence[float], memories: dict[float, float], rhos: Sequence[float], most: int
) -> Mixture:
    n, total = len(scores), sum(sizes)
    figure = sum(scores) / total
    residuals = [s - figure * size for s, size in zip(scores, sizes, strict=True)]
    waves = [
        math.sqrt(2 / n) * sum(u * math.cos(math.pi * j * (b + 0.5) / n) for b, u in enumerate(residuals))
        for j in range(1, n)
    ]
    nu = min(max(1, round(0.4 * n ** (2 / 3))), most, n - 1)
    found = []
    for (d, share), rho in itertools.product(memories.items(), rhos):
        shape = [(math.pi * j / n) ** (-2 * d) / abs(1 - rho * np.exp(1j * math.pi * j / n)) ** 2 for j in range(1, n)]
        relative = [wave**2 / f for wave, f in zip(waves, shape, strict=True)]
        likelihood = -sum(map(math.log, shape)) / 2 - (n - 1) / 2 * math.log(sum(relative))
        at_zero = n ** (2 * d) * mean_of_memory(d) / (1 - rho) ** 2
        deviation = math.sqrt(n * at_zero * sum(relative[:nu]) / nu) / total
        found.append((math.log(share / len(rhos)) + likelihood, deviation, float(nu)))
    best = max(weight for weight, _, _ in found)
    norm = sum(math.exp(weight - best) for weight, _, _ in found)
    return [(math.exp(weight - best) / norm, deviation, nu) for weight, deviation, nu in found]


def mean_of_memory(d: float) -> float:
    """n Var(mean) / n^(2d) of a process with the density λ^(−2d) near 0:  ∫ x^(−2d) (sin(x/2) / (x/2))² dx / 2π."""
    if d == 0:
        return 1.0
    near = quad(lambda x: np.sinc(x / (2 * math.pi)) ** 2, 0, 1, weight="alg", wvar=(-2 * d, 0))[0]
    waves = quad(lambda x: -2 * x ** (-2 * d - 2), 1, math.inf, weight="cos", wvar=1)[0]
    return (near + waves + 2 / (2 * d + 1)) / math.pi


def of_documents(scores: Sequence[float], sizes: Sequence[float], documents: Sequence[int]) -> Mixture:
    """The matrix of the quadratic form, its trace and that of its square."""
    names = sorted(set(documents))
    s = np.array([sum(x for x, d in zip(scores, documents, strict=True) if d == name) for name in names])
    n = np.array([sum(x for x, d in zip(sizes, documents, strict=True) if d == name) for name in names])
    w, count = n / n.sum(), len(names)
    centre = np.eye(count) - np.outer(np.ones(count), w)
    form = centre.T @ np.diag(w**2 / (1 - 2 * w + w @ w)) @ centre
    variance = float((s / n) @ form @ (s / n))
    assert math.isclose(np.trace(form), w @ w)  # no bias: the variance of Σ w x is σ² Σ w²
    return [(1.0, math.sqrt(variance), float(np.trace(form) ** 2 / np.trace(form @ form)))]


def with_luck(mixture: Mixture, figures: Sequence[Sequence[float]]) -> Mixture:
    """Runs of several seeds beside it, each group independently: Welch and Satterthwaite."""
    luck = [(np.var(group, ddof=1) / len(group), len(group) - 1) for group in figures if len(group) > 1]
    found = []
    for weight, deviation, nu in mixture:
        parts = [(deviation**2, nu), *luck]
        total = sum(v for v, _ in parts)
        found.append((weight, math.sqrt(total), total**2 / sum(v**2 / f for v, f in parts)))
    return found


def p(mixture: Mixture, value: float) -> float:
    return float(sum(2 * weight * t.sf(abs(value) / deviation, nu) for weight, deviation, nu in mixture))


def reach(mixture: Mixture) -> float:
    return float(brentq(lambda far: p(mixture, far) - 0.05, 1e-12, 1e3 * max(d for _, d, _ in mixture), xtol=1e-14))
