"""What every classifier has to beat: the most frequent class, TF-IDF with logistic regression, naive-Bayes weights.

All three learn from the same training texts as the model. The two linear ones are scikit-learn's, on words and pairs
of words that stand in at least two training texts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.data.bags import Bags, Known, features_in_documents, texts_with_feature

MAJORITY, TFIDF, BAYES = "majority", "TF-IDF + logistic regression", "naive-Bayes-weighted linear model"
LEAST_TEXTS = 2
MOST_CELLS = 20_000_000  # features · classes of a linear model: beyond it, it is not fitted
STRENGTH = {TFIDF: 10.0, BAYES: 0.5}  # C, found by experiment (docs/log.md)
SHRUNK = 0.25  # how far the weights of the naive-Bayes model go from their mean size to their own

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Baseline:
    """Its decisions on the rows asked for; None where it was not fitted, and why."""

    name: str
    decided: Rows | None
    reason: str = ""


def fit_baselines(
    bags: Bags,
    bits: int,
    truth: Rows,
    classes: int,
    train: Rows,
    rows: Rows,
    *,
    balance: bool = False,
    progress: Callable[[int], None] | None = None,
) -> list[Baseline]:
    """All three, fitted to the texts `train` and deciding those of `rows`; `bags` hold buckets."""
    common = int(np.bincount(truth[train], minlength=classes).argmax())
    found = [Baseline(MAJORITY, np.full(len(rows), common))]
    features = features_in_documents(bags.up_to(2, bits), train, LEAST_TEXTS)
    reason = _too_much(len(features), classes)
    numbered = None if reason else Known.of(features, bits).numbered(bags.up_to(2, bits))
    for done, (name, fit) in enumerate(((TFIDF, _tfidf), (BAYES, _bayes)), start=1):
        decided = None
        if numbered is not None:
            decided = fit(numbered, len(features), truth, classes, train, rows, balance)
        found.append(Baseline(name, decided, reason))
        if progress is not None:
            progress(done)
    return found


def _too_much(features: int, classes: int) -> str:
    if not features:
        return f"no word stands in {LEAST_TEXTS} training texts"
    if features * classes > MOST_CELLS:
        return f"not fitted: {features:,} features times {classes:,} classes are too many for it"
    return ""


def _matrix(bags: Bags, features: int) -> Any:
    """Counts as scipy's sparse rows."""
    from scipy.sparse import csr_matrix

    return csr_matrix((bags.counts.astype(np.float64), bags.features, bags.offsets), (len(bags), features))


def _tfidf(
    bags: Bags, features: int, truth: Rows, classes: int, train: Rows, rows: Rows, balance: bool
) -> NDArray[np.int64]:
    from sklearn.feature_extraction.text import TfidfTransformer

    if len(np.unique(truth[train])) == 1:
        return np.full(len(rows), truth[train[0]])
    counts = _matrix(bags, features)
    weights = TfidfTransformer(sublinear_tf=True).fit(counts[train])
    model = _linear(STRENGTH[TFIDF], balance, several=len(np.unique(truth[train])) > 2)
    model.fit(weights.transform(counts[train]), truth[train])
    decided: NDArray[np.int64] = model.predict(weights.transform(counts[rows]))
    return decided


def _bayes(
    bags: Bags, features: int, truth: Rows, classes: int, train: Rows, rows: Rows, balance: bool
) -> NDArray[np.int64]:
    """A linear model for each class against the others, on presence times the log-count ratio r_f; 1 is added to the
    counts of every class.

    Its weights w are drawn towards their mean size:  w' = (1 − β) mean|w| + β w.
    """
    counts = texts_with_feature(bags, train, truth, features, classes) + 1.0
    seen = _matrix(bags, features)
    seen.data[:] = 1.0
    columns = [1] if classes == 2 else list(range(classes))
    scores = [_against_others(seen, counts, truth, train, rows, k, balance) for k in columns]
    decided = scores[0] > 0 if classes == 2 else np.argmax(np.stack(scores), axis=0)
    return np.asarray(decided, np.int64)


def _against_others(
    seen: Any, counts: NDArray[Any], truth: Rows, train: Rows, rows: Rows, k: int, balance: bool
) -> NDArray[Any]:
    from scipy.sparse import diags

    own, others = counts[:, k], counts.sum(1) - counts[:, k]
    weighted = seen @ diags(np.log(own / own.sum()) - np.log(others / others.sum()))
    right = truth[train] == k
    if right.all() or not right.any():
        return np.full(len(rows), np.inf if right.any() else -np.inf)
    model = _linear(STRENGTH[BAYES], balance, several=False).fit(weighted[train], right)
    w = model.coef_[0]
    w = (1 - SHRUNK) * np.abs(w).mean() + SHRUNK * w
    scores: NDArray[Any] = weighted[rows] @ w + SHRUNK * model.intercept_[0]
    return scores


def _linear(strength: float, balance: bool, *, several: bool) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    model = LogisticRegression(
        C=strength,
        solver="liblinear",
        dual=True,
        random_state=0,
        max_iter=1000,
        class_weight="balanced" if balance else None,
    )
    return OneVsRestClassifier(model) if several else model
