"""Is one classifier better than another on the same texts, or was it luck?

Only the texts on which one is right and the other wrong say anything: `a_only` of them speak for a, `b_only` for
b. Were both equally good, a_only would be Binomial(a_only + b_only, 1/2): McNemar's test, here in its exact form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import UsageError
from seqlab.core.units import CHANCE, human_p
from seqlab.evaluation.classification import Z
from seqlab.evaluation.statistics import LEVEL, holm

FLIPS, FLIPPED_AT_ONCE = 9_999, 101  # signs drawn, and how many at a time

Right = NDArray[np.bool_]


@dataclass(frozen=True)
class Paired:
    """Classifier a minus classifier b on the same n texts; the difference is a share of the texts."""

    n: int
    a_only: int  # texts on which only a is right
    b_only: int
    low: float
    high: float
    p: float
    adjusted_p: float | None = None  # after Holm's correction, where several were compared

    @property
    def difference(self) -> float:
        return (self.a_only - self.b_only) / self.n if self.n else 0.0

    @property
    def luck(self) -> bool:
        """Whether the difference could well be luck; judged after the correction where there is one."""
        return (self.p if self.adjusted_p is None else self.adjusted_p) >= CHANCE

    def as_json(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "a_only": self.a_only,
            "b_only": self.b_only,
            "difference": self.difference,
            "interval": [self.low, self.high],
            "p": self.p,
            "adjusted_p": self.adjusted_p,
        }


def mcnemar(right_a: Right, right_b: Right, clusters: NDArray[Any] | None = None) -> Paired:
    """Exact two-sided McNemar test,  p = min(1, 2 P(X ≤ min(a_only, b_only))),  and Tango's score interval.

    right_a, right_b (n,): whether each text was classified rightly. p = 1 where no text tells them apart. Where
    `clusters` (n,) ties several texts together, whole clusters are judged (`_of_clusters`).
    """
    from scipy.stats import binom

    if right_a.shape != right_b.shape or right_a.ndim != 1:
        raise UsageError(f"{right_a.shape} results against {right_b.shape}; both must be on the same texts")
    a_only, b_only = int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum())
    if clusters is not None and len(np.unique(clusters)) < len(clusters):
        return Paired(len(right_a), a_only, b_only, *_of_clusters(right_a, right_b, clusters))
    p = min(1.0, 2 * float(binom.cdf(min(a_only, b_only), a_only + b_only, 0.5)))
    return Paired(len(right_a), a_only, b_only, *tango(a_only, b_only, len(right_a)), p)


def _of_clusters(right_a: Right, right_b: Right, clusters: NDArray[Any]) -> tuple[float, float, float]:
    """Interval and p where the texts of a cluster are right or wrong together.

    d_c = Σ_{i∈c} (a_i − b_i), n_c texts. Were both equally good, each d_c might as well have the other sign: p is the
    share of 9,999 draws of all signs with |Σ ± d_c| ≥ |Σ d_c|, the draw that was seen among them; for single texts that
    is McNemar's test. The interval is that of a ratio,  δ ± t_{C−1} √(C/(C−1) Σ (d_c − n_c δ)²) / n.
    """
    from scipy.stats import t

    numbers = np.unique(clusters, return_inverse=True)[1]
    d = np.bincount(numbers, right_a.astype(np.float64) - right_b)
    sizes = np.bincount(numbers)
    count, n = len(d), len(right_a)
    value = d.sum() / n
    telling = d[d != 0]
    far, draw = 0, np.random.default_rng([count, n])
    for _ in range(0, FLIPS, FLIPPED_AT_ONCE):
        signs = draw.integers(0, 2, (FLIPPED_AT_ONCE, len(telling)), dtype=np.int8) * 2 - 1
        far += int(np.count_nonzero(np.abs(signs @ telling) >= abs(d.sum()) - 1e-9))
    p = (far + 1) / (FLIPS + 1)
    if count < 2:
        return -1.0, 1.0, min(1.0, p)
    reach = (
        float(t.ppf((1 + LEVEL) / 2, count - 1)) * math.sqrt(count / (count - 1) * ((d - sizes * value) ** 2).sum()) / n
    )
    return max(-1.0, value - reach), min(1.0, value + reach), min(1.0, p)


def tango(a_only: int, b_only: int, n: int) -> tuple[float, float]:
    """The differences δ that a score test does not reject at 5 %:  |T(δ)| ≤ z,  with f = a_only, g = b_only,

        T(δ) = (f − g − n δ) / √(n (2 q + δ (1 − δ)))

    q is the likeliest probability of "only b is right" were the difference δ: the larger root of
    2n q² + B q + C = 0,  B = (2n − f + g) δ − f − g,  C = −g δ (1 − δ).

    It is the interval that belongs to McNemar's test, since T(0)² is its χ².
    """
    from scipy.optimize import brentq

    if not n:
        return -1.0, 1.0

    def beyond(difference: float, sign: int) -> float:
        """|f − g − nδ| − z · (its standard error): falls below zero where δ is not rejected."""
        b = (2 * n - a_only + b_only) * difference - a_only - b_only
        c = -b_only * difference * (1 - difference)
        q = (math.sqrt(max(b * b - 8 * n * c, 0.0)) - b) / (4 * n)
        error = math.sqrt(max(n * (2 * q + difference * (1 - difference)), 0.0))
        return sign * (n * difference - a_only + b_only) - Z * error

    value = (a_only - b_only) / n
    # Where all texts speak alike the standard error is zero at the value itself, which is no root of interest.
    beside = 1e-9
    low = -1.0 if value == -1 else brentq(beyond, -1.0, value - beside, args=(-1,), xtol=1e-12)
    high = 1.0 if value == 1 else brentq(beyond, value + beside, 1.0, args=(1,), xtol=1e-12)
    return low, high


def against_baselines(
    right_model: Right, baselines: Mapping[str, Right], clusters: NDArray[Any] | None = None
) -> dict[str, Paired]:
    """The model against each baseline, p values corrected by Holm for how many there are."""
    found = {name: mcnemar(right_model, right, clusters) for name, right in baselines.items()}
    adjusted = holm([paired.p for paired in found.values()])
    return {name: replace(paired, adjusted_p=p) for (name, paired), p in zip(found.items(), adjusted, strict=True)}


def luck_sentence(model_name: str, baseline_name: str, paired: Paired) -> str:
    """In plain words: who is ahead, by how much, and whether that could be luck."""
    value, low, high = paired.difference, paired.low, paired.high
    if paired.a_only == paired.b_only:
        as_many = f"{model_name} is right on as many of {paired.n:,} texts as {baseline_name}"
        return f"{as_many} (difference {_points(low, high)} points): neither is ahead"
    ahead = value > 0
    reach = _points(*((low, high) if ahead else (-high, -low)), scale=abs(value))
    by = f"by {_point(abs(value), abs(value))} points on {paired.n:,} texts ({reach}; {_p_words(paired)})"
    if ahead:
        verdict = "this could well be luck" if paired.luck else "more than luck"
        return f"{model_name} is ahead of {baseline_name} {by}: {verdict}"
    verdict = "the baseline is ahead, which could well be luck" if paired.luck else "the baseline wins, more than luck"
    return f"{model_name} is BEHIND {baseline_name} {by}: {verdict}"


def _point(share: float, scale: float) -> str:
    """Percentage points with one decimal; with two or three where the difference (`scale`) would vanish."""
    decimals = 1 if scale >= 0.002 else 2 if scale >= 0.0002 else 3
    return f"{100 * share:.{decimals}f}".replace("-", "−")


def _points(low: float, high: float, scale: float = 1.0) -> str:
    return f"{_point(low, scale)} to {_point(high, scale)}"


def _p_words(paired: Paired) -> str:
    p = paired.p if paired.adjusted_p is None else paired.adjusted_p
    return human_p(p) if paired.adjusted_p is None else f"{human_p(p)} after Holm's correction"
