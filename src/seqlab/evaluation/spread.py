"""How far a figure strays from that of the process behind the text: a long-run variance, or the spread of documents.

The figure is Σ s_b / Σ n_b over blocks b with scores s_b and sizes n_b, N = Σ n_b. What is left of a block beside it,
u_b = s_b − figure · n_b, tells how far it strays. Neighbouring blocks are alike (a scene, a chapter), so their sum
strays by more than Σ u_b² says.

One stretch of text, n blocks in order. The cosine sums

    Λ_j = √(2/n) Σ_b u_b cos(π j (b − 1/2) / n),    j = 1 … n − 1,

are nearly independent, of mean 0 and of variance σ² f(λ_j), λ_j = π j / n, and Σ u_b has the variance n σ² f_0. With
f = 1 near zero the first ν of them estimate σ², and the figure strays as Student's t with ν degrees of freedom
(equal-weighted cosine, Lazarus, Lewis, Stock and Watson 2018). But a text wanders on every scale, up to that of the
whole stretch and beyond; f is then one of

    f(λ) = λ^(−2d) / (1 − 2ρ cos λ + ρ²),    f_0 = n^(2d) g(d) / (1 − ρ)²,    g(d) = Γ(1 − 2d) sin(πd) / (πd (1 + 2d)):

memory d that dies out as a power (Robinson 2005), correlation ρ of neighbours that dies out at once. Each shape k says

    σ_k² = (1/ν) Σ_{j ≤ ν} Λ_j² / f_k(λ_j),    w_k ∝ π_k Π_{j ≤ q} f_k(λ_j)^(−1/2) (Σ_{j ≤ q} Λ_j² / f_k(λ_j))^(−q/2),

w_k being Whittle's likelihood of the first q with σ integrated out, times a prior π_k that expects no memory; and the
figure strays as the mixture  Σ_k w_k √(n f_k0) σ_k / N · t_ν.

Documents d, which are strangers to each other, with shares w_d = N_d / N and figures x_d, h = Σ w_d²:

    V = Σ_d w_d² (x_d − figure)² / (1 − 2 w_d + h),    ν = h² / tr A²,

without bias where all x_d spread alike; A is the matrix of V in x. For D documents of one length ν = D − 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]

COSINES = 6  # ν at most
HEARD = 2048  # q at most
MEMORIES = {0.0: 0.8, 0.1: 0.05, 0.2: 0.05, 0.3: 0.05, 0.4: 0.05}  # d -> its share of the prior
CORRELATIONS = (-0.5, -0.25, 0.0, 0.25, 0.5, 0.7, 0.8)  # ρ, all alike
FEW_DOCUMENTS = 5  # from here on documents are the unit


@dataclass(frozen=True)
class Spread:
    """An estimate strays from the truth by  σ_k t(ν_k)  with probability w_k."""

    weights: Numbers
    deviations: Numbers
    freedoms: Numbers

    def p(self, value: float) -> float:
        """How often it strays by as much as `value`."""
        from scipy.special import stdtr

        if not self.deviations.any():
            return 1.0 if value == 0 else 0.0
        with np.errstate(divide="ignore"):
            return float(2 * self.weights @ stdtr(self.freedoms, -abs(value) / self.deviations))

    def reach(self, level: float) -> float:
        """It strays by no more than this with probability `level`."""
        from scipy.optimize import brentq
        from scipy.special import stdtrit

        ends = self.deviations * stdtrit(self.freedoms, (1 + level) / 2)
        low, high = float(ends.min()), float(ends.max())
        return high if math.isclose(low, high) else float(brentq(lambda far: self.p(far) - (1 - level), low, high))

    @property
    def variance(self) -> float:
        """Σ w_k σ_k²"""
        return float(self.weights @ self.deviations**2)

    def times(self, factor: float) -> Spread:
        return Spread(self.weights, self.deviations * factor, self.freedoms)

    def beside(self, others: Sequence[tuple[float, float]]) -> Spread:
        """With independent noise on top, (variance V, degrees of freedom ν_V) each.

        Welch and Satterthwaite:  ν = (σ² + Σ V)² / (σ⁴/ν + Σ V²/ν_V)
        """
        if not any(variance for variance, _ in others) or not np.isfinite(self.deviations).all():
            return self
        variances = self.deviations**2
        total = variances + sum(variance for variance, _ in others)
        uncertain = variances**2 / self.freedoms + sum(variance**2 / freedom for variance, freedom in others)
        return Spread(self.weights, np.sqrt(total), total**2 / uncertain)


def spread_of(scores: Numbers, sizes: NDArray[np.int64], documents: Places | None = None) -> Spread:
    """How Σ scores / Σ sizes strays; `documents` says to which one each block belongs."""
    if documents is not None and len(np.unique(documents)) >= FEW_DOCUMENTS:
        return spread_of_documents(scores, sizes, documents)
    return spread_of_stretch(scores, sizes)


def spread_of_stretch(scores: Numbers, sizes: NDArray[np.int64]) -> Spread:
    """Of blocks in the order of the text; one block alone tells nothing."""
    n, total = len(scores), float(sizes.sum())
    if n < 2:
        return Spread(np.ones(1), np.full(1, math.inf), np.ones(1))
    squares = cosine_sums(scores - float(scores.sum()) / total * sizes)[:HEARD] ** 2
    few, q = cosines(n), len(squares)
    shapes, at_zero, prior = spectra(n, q)
    relative = squares / shapes  # (K, q)
    sums = relative.sum(1)
    if not sums.any():
        return Spread(np.ones(1), np.zeros(1), np.full(1, float(few)))
    log_weights = np.log(prior) - np.log(shapes).sum(1) / 2 - q / 2 * np.log(sums)
    weights = np.exp(log_weights - log_weights.max())
    deviations = np.sqrt(n * at_zero * relative[:, :few].mean(1)) / total
    return Spread(weights / weights.sum(), deviations, np.full(len(prior), float(few)))


def cosines(n: int) -> int:
    """ν, how many of them estimate the variance:  0.4 n^(2/3), at most 6."""
    return int(min(max(1, round(0.4 * n ** (2 / 3))), COSINES, n - 1))


def cosine_sums(residuals: Numbers) -> Numbers:
    """Λ_1 … Λ_(n−1)"""
    from scipy.fft import dct

    sums: Numbers = dct(residuals, type=2, norm="ortho")[1:]
    return sums


@lru_cache(maxsize=8)
def spectra(n: int, q: int) -> tuple[Numbers, Numbers, Numbers]:
    """f_k(λ_1 … λ_q), f_k0 and π_k of every shape."""
    frequencies = np.pi * np.arange(1, q + 1) / n
    shapes, at_zero, prior = [], [], []
    for (d, share), rho in itertools.product(MEMORIES.items(), CORRELATIONS):
        shapes.append(frequencies ** (-2 * d) / (1 - 2 * rho * np.cos(frequencies) + rho**2))
        at_zero.append(n ** (2 * d) * _mean_of_memory(d) / (1 - rho) ** 2)
        prior.append(share / len(CORRELATIONS))
    return np.array(shapes), np.array(at_zero), np.array(prior)


def _mean_of_memory(d: float) -> float:
    """g(d)"""
    return math.gamma(1 - 2 * d) * math.sin(math.pi * d) / (math.pi * d * (1 + 2 * d)) if d else 1.0


def spread_of_documents(scores: Numbers, sizes: NDArray[np.int64], documents: Places) -> Spread:
    """Of whole documents, whatever their order."""
    numbers = np.unique(documents, return_inverse=True)[1]
    sums, lengths = np.bincount(numbers, scores), np.bincount(numbers, sizes)
    shares = lengths / lengths.sum()
    strays = sums / lengths - sums.sum() / lengths.sum()
    h = float(shares @ shares)
    a = shares**2 / (1 - 2 * shares + h)
    # A = Mᵀ diag(a) M with M = 1 − 𝟙 wᵀ, so tr A² = Σ_{d,e} a_d a_e G_de², G_de = δ_de − w_d − w_e + h.
    a0, a1, a2 = float(a.sum()), float(a @ shares), float(a @ shares**2)
    apart = h - 2 * shares
    trace = h * h * a0 * a0 + 2 * a0 * a2 - 4 * h * a0 * a1 + 2 * a1 * a1 + float(a**2 @ (1 + 2 * apart))
    return Spread(np.ones(1), np.sqrt([float(a @ strays**2)]), np.array([h * h / trace]))
