"""How good a classifier is: accuracy, precision, recall and F1, each with a 95 % interval, and nats per text.

With tp_k the texts of class k that were called k, s_k those of class k and q_k those called k:

    precision_k = tp_k / q_k        recall_k = tp_k / s_k        F1_k = 2 tp_k / (s_k + q_k)

What would be 0 / 0 is not a number, null in JSON, and left out of macro F1, the mean of the F1_k.

Shares have Wilson's interval. So has F1_k: J = tp_k / (s_k + q_k − tp_k) is a share too, and F1_k = 2 J / (1 + J)
rises with it. This costs the same for any number of classes and does not shrink to a point where a class has no
errors, as a bootstrap would. Macro F1 mixes classes, so its interval comes from a bootstrap of the confusion
counts, of which only the cells that are not empty are held.

Rows that belong together (duplicates, texts of one author) tell less than as many separate ones. Where `clusters`
says so, accuracy and macro F1 are bootstrapped over clusters, and the shares of single classes count as
n² / Σ m_c² independent rows, m_c of their n rows being in cluster c: Kish's number for rows that fully agree, the
cautious end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import DataError, UsageError
from seqlab.evaluation.statistics import GATHERED, LEVEL

DRAWS = 2_000
FEW_DRAWS, WORK = 500, 40_000_000  # where a draw has many parts, fewer draws: about WORK parts in all
DENSE = 1_000  # classes up to which the whole confusion matrix is kept
SHOWN = 100  # classes up to which it is written into JSON
Z = NormalDist().inv_cdf((1 + LEVEL) / 2)

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]
Limits = tuple[float, float]


def wilson(share: float, n: float, z: float = Z) -> Limits:
    """Wilson's interval of a share p of n:  (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n);  0 … 1 for n = 0."""
    if not n:
        return 0.0, 1.0
    centre, shrink = share + z * z / (2 * n), 1 + z * z / n
    reach = z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    # Rounding must not leave the share itself outside.
    return max(0.0, min(share, (centre - reach) / shrink)), min(1.0, max(share, (centre + reach) / shrink))


@dataclass(frozen=True)
class Rate:
    """`hits` of `n`; the interval is Wilson's unless another is given."""

    hits: int
    n: int
    limits: Limits | None = None

    @property
    def value(self) -> float:
        return self.hits / self.n if self.n else math.nan

    @property
    def low(self) -> float:
        return self._interval[0]

    @property
    def high(self) -> float:
        return self._interval[1]

    @property
    def _interval(self) -> Limits:
        return self.limits or wilson(self.value, self.n)

    def minus(self, other: Rate) -> tuple[float, float, float]:
        """p − q of two separate groups, and Newcombe's 95 % interval, from the limits l, u of each:

        p − q − √((p − l_p)² + (u_q − q)²)   to   p − q + √((u_p − p)² + (q − l_q)²);  −1 … 1 for an empty group
        """
        if not self.n or not other.n:
            return math.nan, -1.0, 1.0
        difference = self.value - other.value
        below = math.hypot(self.value - self.low, other.high - other.value)
        above = math.hypot(self.high - self.value, other.value - other.low)
        return difference, difference - below, difference + above


@dataclass(frozen=True)
class ClassFigures:
    """One class: `support` texts are of it, `predicted` were called it."""

    label: str
    support: int
    predicted: int
    precision: Rate
    recall: Rate
    f1: float
    f1_interval: Limits

    def as_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "support": self.support,
            "predicted": self.predicted,
            "precision": or_null(self.precision.value),
            "precision_interval": [self.precision.low, self.precision.high],
            "recall": or_null(self.recall.value),
            "recall_interval": [self.recall.low, self.recall.high],
            "f1": or_null(self.f1),
            "f1_interval": list(self.f1_interval),
        }


@dataclass(frozen=True)
class Classification:
    """What a classifier reached on n texts."""

    n: int
    accuracy: Rate
    macro_f1: float
    macro_f1_interval: Limits
    nats_per_text: float
    classes: tuple[ClassFigures, ...]
    confusion: Places | None = field(compare=False)  # (K, K), rows: true class; None above DENSE classes

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "n": self.n,
            "accuracy": or_null(self.accuracy.value),
            "interval": [self.accuracy.low, self.accuracy.high],
            "macro_f1": or_null(self.macro_f1),
            "macro_f1_interval": list(self.macro_f1_interval),
            "nats_per_text": or_null(self.nats_per_text),
            "classes": [figures.as_json() for figures in self.classes],
        }
        if self.confusion is not None and len(self.confusion) <= SHOWN:
            found["confusion"] = self.confusion.tolist()
        return found


def or_null(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None


def figures_of(
    truth: Places, probabilities: Numbers, names: Sequence[str], *, clusters: NDArray[Any] | None = None, seed: int = 0
) -> Classification:
    """All figures; truth (n,), probabilities (n, K), one name per class.

    nats per text = mean −ln max(p(truth), the smallest normal float); a tie goes to the first class.
    """
    _check(truth, probabilities, names, clusters)
    n, kinds = probabilities.shape
    called = probabilities.argmax(1)
    groups = _groups(clusters)
    given = probabilities[np.arange(n), truth].astype(np.float64)
    nats = -np.log(given.clip(np.finfo(np.float64).tiny))
    accuracy = accuracy_of(called == truth, clusters, seed)
    macro, limits = _macro_f1(truth, called, groups, accuracy, seed)
    confusion = None
    if kinds <= DENSE:
        confusion = np.bincount(truth * kinds + called, minlength=kinds * kinds).reshape(kinds, kinds).astype(np.int64)
    classes = _class_figures(truth, called, names, groups)
    return Classification(n, accuracy, macro, limits, float(nats.mean()) if n else math.nan, classes, confusion)


def _check(truth: Places, probabilities: Numbers, names: Sequence[str], clusters: NDArray[Any] | None) -> None:
    if probabilities.ndim != 2 or truth.shape != probabilities.shape[:1] or probabilities.shape[1] != len(names):
        raise UsageError(
            f"probabilities {probabilities.shape} for {truth.shape} true classes and {len(names)} names;"
            " give one row per text and one column per name"
        )
    if not names:
        raise UsageError("no class is named; give at least one name")
    if clusters is not None and clusters.shape != truth.shape:
        raise UsageError(f"{clusters.shape} clusters for {truth.shape} texts; give one cluster per text")
    if len(truth) and not 0 <= truth.min() <= truth.max() < len(names):
        raise DataError(f"true classes from {truth.min()} to {truth.max()}; they must lie in 0 … {len(names) - 1}")
    sums = probabilities.sum(1)
    wrong = np.flatnonzero(~(abs(sums - 1) < 1e-3) | (probabilities < 0).any(1))
    if len(wrong):
        raise DataError(
            f"the probabilities of text {wrong[0]} sum to {sums[wrong[0]]:.4g} or are negative;"
            " they must be at least 0 and sum to 1: pass logits through softmax"
        )


def _groups(clusters: NDArray[Any] | None) -> Places | None:
    """Clusters numbered from 0; None where each row stands alone."""
    if clusters is None:
        return None
    distinct, numbers = np.unique(clusters, return_inverse=True)
    return numbers.astype(np.int64) if len(distinct) < len(clusters) else None


def accuracy_of(right: NDArray[np.bool_], clusters: NDArray[Any] | None = None, seed: int = 0) -> Rate:
    """Wilson's interval; with clusters, that of as many independent rows as would spread as much.

        v = C/(C−1) Σ_c (h_c − p m_c)² / n²,    n' = min(n, p(1−p)/v)

    C clusters of m_c rows with h_c hits each; for few of them Student's t with C − 1 degrees takes the place of z.
    """
    hits, n = int(right.sum()), len(right)
    groups = _groups(clusters)
    if groups is None:
        return Rate(hits, n)
    count = int(groups.max()) + 1
    # Clusters that all are right, or all wrong, show no spread to draw from.
    if hits in (0, n) or count == 1:
        return Rate(hits, n, wilson(hits / n, _independent(np.zeros(n, np.int64), groups, 1)[0]))
    from scipy.stats import t

    share = hits / n
    strays = np.bincount(groups, right) - share * np.bincount(groups)
    variance = count / (count - 1) * float(strays @ strays) / n**2
    independent = min(n, share * (1 - share) / variance) if variance else n
    return Rate(hits, n, wilson(share, independent, float(t.ppf((1 + LEVEL) / 2, count - 1))))


def _draws(draw: np.random.Generator, counts: Places, width: int) -> Iterator[Places]:
    """Multinomial draws of Σ counts things of `counts` kinds, in pieces (rows, kinds) that stay small."""
    width = max(width, len(counts))
    wanted = max(FEW_DRAWS, min(DRAWS, WORK // width))
    rows = max(1, GATHERED // width)
    for done in range(0, wanted, rows):
        yield draw.multinomial(counts.sum(), counts / counts.sum(), size=min(rows, wanted - done))


def _middle(values: Numbers) -> Limits:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _macro_f1(truth: Places, called: Places, groups: Places | None, accuracy: Rate, seed: int) -> tuple[float, Limits]:
    """The mean of F1_k over the classes that occur, and its bootstrap interval.

    Without any error, or any hit, there is nothing to draw from: the interval of accuracy stands in.
    """
    if not len(truth):
        return math.nan, (0.0, 1.0)
    occurring, both = np.unique(np.concatenate([truth, called]), return_inverse=True)
    kinds = len(occurring)
    truth, called = both[: len(truth)], both[len(truth) :]
    if groups is None:
        cells, counts = np.unique(truth * kinds + called, return_counts=True)
        parts = _class_counts(cells // kinds, cells % kinds, np.arange(len(cells)), kinds)
    else:
        counts = np.ones(groups.max() + 1, np.int64)
        parts = _class_counts(truth, called, groups, kinds)
    value = float(_means_of_f1(counts[None], parts)[0])
    if accuracy.hits in (0, accuracy.n) or len(counts) == 1:
        return value, (min(value, accuracy.low), max(value, accuracy.high))
    draw = np.random.default_rng([seed, len(truth), kinds])
    means = [_means_of_f1(times, parts) for times in _draws(draw, counts, 3 * kinds)]
    return value, _middle(np.concatenate(means))


def _class_counts(truth: Places, called: Places, units: Places, kinds: int) -> Any:
    """Sparse (units, 3 K): what a unit, a cell or a cluster of rows, adds to each tp_k, s_k and q_k."""
    from scipy.sparse import csr_matrix

    right = truth == called
    rows = np.concatenate([units[right], units, units])
    columns = np.concatenate([truth[right], kinds + truth, 2 * kinds + called])
    return csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(int(units.max()) + 1, 3 * kinds))


def _means_of_f1(times: Places, parts: Any) -> Numbers:
    """Macro F1 of each draw: times (draws, units), parts (units, 3 K)."""
    hits, support, predicted = np.split(np.asarray(times @ parts), 3, axis=1)
    size = support + predicted
    means: Numbers = (2 * hits / size.clip(1)).sum(1) / np.count_nonzero(size, axis=1)
    return means


def _independent(kinds_of_rows: Places, groups: Places | None, kinds: int) -> Numbers:
    """For each kind of row, as how many independent rows its n_k rows count:  n_k² / Σ_c m_kc²."""
    sizes = np.bincount(kinds_of_rows, minlength=kinds).astype(np.float64)
    if groups is None or not len(groups):
        return sizes
    step = int(groups.max()) + 1
    pairs, together = np.unique(kinds_of_rows * step + groups, return_counts=True)
    squares = np.bincount(pairs // step, together.astype(np.float64) ** 2, kinds)
    independent: Numbers = sizes**2 / np.maximum(squares, 1)
    return independent


def _class_figures(
    truth: Places, called: Places, names: Sequence[str], groups: Places | None
) -> tuple[ClassFigures, ...]:
    kinds, right = len(names), truth == called
    hits, support, predicted = (np.bincount(rows, minlength=kinds) for rows in (truth[right], truth, called))
    # The rows of J's denominator: of the class, or called it; those that are both count once.
    either = np.concatenate([truth, called[~right]])
    either_groups = None if groups is None else np.concatenate([groups, groups[~right]])
    of_precision = _independent(called, groups, kinds)
    of_recall = _independent(truth, groups, kinds)
    of_f1 = _independent(either, either_groups, kinds)
    found = []
    for k, name in enumerate(names):
        tp, s, q = int(hits[k]), int(support[k]), int(predicted[k])
        precision = Rate(tp, q, wilson(tp / q if q else 0.0, of_precision[k]))
        recall = Rate(tp, s, wilson(tp / s if s else 0.0, of_recall[k]))
        union = s + q - tp
        low, high = wilson(tp / union if union else 0.0, of_f1[k])
        f1 = 2 * tp / (s + q) if union else math.nan
        found.append(ClassFigures(name, s, q, precision, recall, f1, (2 * low / (1 + low), 2 * high / (1 + high))))
    return tuple(found)
