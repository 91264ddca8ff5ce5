"""Does a classifier know how sure it may be? Reliability bins, and the one temperature that mends most of it.

The confidence of a text is the probability of the class it is called. Of the texts with confidence c a share c
should be right; the expected calibration error (ECE) is how far that is missed, over equal-width bins b:

    ECE = Σ_b n_b / n · |accuracy_b − confidence_b|
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import DataError, UsageError
from seqlab.evaluation.classification import Rate, accuracy_of, or_null

BINS = 15
COLDEST, HOTTEST = 0.05, 20.0  # temperatures looked at

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Bin:
    """The n texts whose confidence is above `low` and at most `high`, and their mean confidence."""

    low: float
    high: float
    n: int
    confidence: float
    accuracy: Rate


@dataclass(frozen=True)
class Calibration:
    """The bins that hold a text, and the expected calibration error; not a number without any text."""

    bins: tuple[Bin, ...]
    ece: float

    def as_json(self) -> dict[str, Any]:
        bins = [
            {
                "low": each.low,
                "high": each.high,
                "n": each.n,
                "confidence": each.confidence,
                "accuracy": each.accuracy.value,
                "interval": [each.accuracy.low, each.accuracy.high],
            }
            for each in self.bins
        ]
        return {"ece": or_null(self.ece), "bins": bins}


def calibration(
    truth: Places, probabilities: Numbers, bins: int = BINS, *, clusters: NDArray[Any] | None = None
) -> Calibration:
    """Bins over the confidence in the predicted class; truth (n,), probabilities (n, K), clusters of rows (n,)."""
    _check(truth, probabilities)
    if bins < 1:
        raise UsageError(f"{bins} bins; take at least 1")
    confidence, right = probabilities.max(1), probabilities.argmax(1) == truth
    edges = np.linspace(0, 1, bins + 1)
    # A bin holds its upper edge: a confidence of 1 is in the last one.
    places = (np.searchsorted(edges, confidence) - 1).clip(0, bins - 1)
    sizes, hits = np.bincount(places, minlength=bins), np.bincount(places[right], minlength=bins)
    sums = np.bincount(places, confidence, bins)
    found = tuple(
        Bin(float(edges[b]), float(edges[b + 1]), n, float(sums[b]) / n, _rate(right, places == b, clusters))
        for b, n in enumerate(sizes.tolist())
        if n
    )
    error = float(abs(hits - sums).sum()) / len(truth) if len(truth) else math.nan
    return Calibration(found, error)


def _rate(right: NDArray[np.bool_], members: NDArray[np.bool_], clusters: NDArray[Any] | None) -> Rate:
    return accuracy_of(right[members], None if clusters is None else clusters[members])


def softmax(logits: Numbers, temperature: float = 1.0) -> Numbers:
    """p_k = exp(z_k / T) / Σ_j exp(z_j / T); the largest logit is subtracted first, so that nothing overflows."""
    if not temperature > 0:
        raise UsageError(f"a temperature of {temperature}; it must be above 0")
    raised = np.exp(_below_the_largest(logits, temperature))
    probabilities: Numbers = raised / raised.sum(-1, keepdims=True)
    return probabilities


def fit_temperature(logits: Numbers, truth: Places, *, spread: float | None = None) -> float:
    """The T in 0.05 … 20 with the least mean −ln softmax(z / T)[truth]; 1 where no other is better.

    With a `spread` σ, (ln T)²/2σ² is added to the sum of the n texts: few texts, all decided rightly, would otherwise
    make every later probability 0 or 1. Thousands of texts do not notice it.

    The loss is convex in 1 / T, so it has one valley in ln T, which a bounded search finds. Logits that always put
    the true class first have their valley at T = 0: the search stops at its coldest.
    """
    from scipy.optimize import minimize_scalar

    _check(truth, logits)
    if not np.isfinite(logits).all():
        raise DataError("some logits are not finite numbers; no temperature can be fitted: look for a diverged model")
    if not len(truth):
        return 1.0

    def loss(log_temperature: float) -> float:
        scaled = _below_the_largest(logits, math.exp(log_temperature))
        nats = float((np.log(np.exp(scaled).sum(1)) - scaled[np.arange(len(truth)), truth]).mean())
        return nats if spread is None else nats + (log_temperature / spread) ** 2 / (2 * len(truth))

    bounds = math.log(COLDEST), math.log(HOTTEST)
    found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-7})
    return math.exp(found.x) if found.fun < loss(0.0) else 1.0


def _below_the_largest(logits: Numbers, temperature: float) -> Numbers:
    """(z − max z) / T along the last dimension; far below, −∞ is as good as any number."""
    with np.errstate(over="ignore"):
        scaled: Numbers = (logits - logits.max(-1, keepdims=True)) / temperature
    return scaled


def _check(truth: Places, table: Numbers) -> None:
    if table.ndim != 2 or truth.shape != table.shape[:1] or not table.shape[1]:
        raise UsageError(f"a table {table.shape} for {truth.shape} true classes; give one row per text")
    if len(truth) and not 0 <= truth.min() <= truth.max() < table.shape[1]:
        raise DataError(f"true classes from {truth.min()} to {truth.max()}; they must lie in 0 … {table.shape[1] - 1}")
