"""The baselines against scikit-learn's own pipeline and against the equations by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seqlab.data.bags import BagReader
from seqlab.evaluation import text_baselines
from seqlab.evaluation.text_baselines import BAYES, MAJORITY, SHRUNK, STRENGTH, TFIDF, Baseline, fit_baselines

BITS = 18
ASCII_WORDS = r"(?:[a-z0-9_]+(?:'[a-z0-9_]+)*|[^\sa-z0-9_])"
SHARED = ["the", "a", "of", "it", "was", "and", "this", "isn't", "so", "film", ",", ".", "!"]
OWN = (["dull", "bad", "worst", "boring"], ["great", "fine", "good", "superb"], ["odd", "queer", "weird", "new"])


def made_up(classes: int, texts: int = 90, seed: int = 0) -> tuple[list[str], np.ndarray[Any, Any]]:
    """Texts whose words lean towards their class, more of the first class than of the others."""
    draw = np.random.default_rng(seed)
    truth = draw.choice(classes, texts, p=np.array([2.0] + [1.0] * (classes - 1)) / (classes + 1))
    found = []
    for k in truth:
        leaning = OWN[k if draw.random() < 0.8 else draw.integers(classes)]
        found.append(" ".join(draw.permutation([*draw.choice(SHARED, 7), *draw.choice(leaning, 2)])))
    return found, truth


def fitted(texts: list[str], truth: Any, classes: int, train: Any, rows: Any, **options: Any) -> dict[str, Baseline]:
    bags = BagReader(3, BITS).read(texts)
    found = fit_baselines(bags, BITS, truth, classes, train, rows, **options)
    assert [baseline.name for baseline in found] == [MAJORITY, TFIDF, BAYES]
    return {baseline.name: baseline for baseline in found}


def parts(texts: int) -> tuple[Any, Any]:
    order = np.random.default_rng(3).permutation(texts)
    return order[: texts * 2 // 3], order[texts * 2 // 3 :]


@pytest.mark.parametrize("balance", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("seed", range(2))
def test_tfidf_is_scikit_learns_pipeline(classes: int, balance: bool, seed: int) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    texts, truth = made_up(classes, seed=seed)
    train, rows = parts(len(texts))
    linear: Any = LogisticRegression(
        C=STRENGTH[TFIDF], solver="liblinear", tol=1e-6, max_iter=9999, class_weight="balanced" if balance else None
    )
    theirs = make_pipeline(
        TfidfVectorizer(token_pattern=ASCII_WORDS, ngram_range=(1, 2), min_df=2, sublinear_tf=True),
        linear if classes == 2 else OneVsRestClassifier(linear),
    ).fit([texts[row] for row in train], truth[train])
    heard: list[int] = []
    ours = fitted(texts, truth, classes, train, rows, balance=balance, progress=heard.append)[TFIDF]
    scores = theirs.decision_function([texts[row] for row in rows])
    margin = np.abs(scores) if classes == 2 else np.diff(np.sort(scores, axis=1)[:, -2:]).ravel()
    clear = margin > 1e-3  # two solvers: what lies on the fence may fall to either side
    assert clear.mean() > 0.95
    assert ours.decided is not None
    assert np.array_equal(ours.decided[clear], theirs.predict([texts[row] for row in rows])[clear])
    assert np.mean(ours.decided == truth[rows]) > 0.6
    assert heard == [1, 2]


@pytest.mark.parametrize("classes", [2, 3])
def test_weights_of_naive_bayes(classes: int) -> None:
    """Presence times the log-count ratio, a linear model for each class, its weights drawn to their mean size."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    texts, truth = made_up(classes)
    train, rows = parts(len(texts))
    ours = fitted(texts, truth, classes, train, rows)[BAYES].decided
    counter = CountVectorizer(token_pattern=ASCII_WORDS, ngram_range=(1, 2), min_df=2, binary=True)
    learnt = counter.fit_transform([texts[row] for row in train]).toarray()
    asked = counter.transform([texts[row] for row in rows]).toarray()
    scores = []
    for k in range(classes):
        own, rest = learnt[truth[train] == k].sum(0) + 1.0, learnt[truth[train] != k].sum(0) + classes - 1.0
        r = np.log(own / own.sum()) - np.log(rest / rest.sum())
        linear = LogisticRegression(C=STRENGTH[BAYES], solver="liblinear", tol=1e-6, max_iter=9999)
        linear.fit(learnt * r, truth[train] == k)
        w = linear.coef_[0]
        scores.append((asked * r) @ ((1 - SHRUNK) * np.abs(w).mean() + SHRUNK * w) + SHRUNK * linear.intercept_[0])
    table = np.stack(scores)
    if classes == 2:
        table = np.stack([np.zeros(len(rows)), table[1]])
    clear = np.diff(np.sort(table, axis=0)[-2:], axis=0)[0] > 1e-3
    assert clear.mean() > 0.9
    assert ours is not None
    assert np.array_equal(ours[clear], table.argmax(0)[clear])


def test_majority_is_that_of_training() -> None:
    truth = np.array([0] * 2 + [2] * 3 + [1] * 9)
    texts = ["x y"] * 14
    found = fitted(texts, truth, 3, np.arange(5), np.arange(5, 14))[MAJORITY].decided
    assert found is not None
    assert found.tolist() == [2] * 9


def test_what_is_decided_never_learns() -> None:
    """The classes of the texts asked about, and their own words, change nothing."""
    texts, truth = made_up(2)
    train, rows = parts(len(texts))
    other = truth.copy()
    other[rows] = 1 - other[rows]
    longer = [*texts, "unheard words unheard words"]
    for a, b in zip(
        fitted(texts, truth, 2, train, rows).values(),
        fitted(longer, np.append(other, 0), 2, train, rows).values(),
        strict=True,
    ):
        assert np.array_equal(a.decided, b.decided)


def test_balance_helps_the_rare_class() -> None:
    texts = ["good film"] * 40 + ["bad film"] * 4 + ["bad good film", "film"] * 3
    truth = np.array([0] * 40 + [1] * 4 + [0] * 6)
    rows = np.arange(50)
    train = np.arange(44)
    plain, level = (fitted(texts, truth, 2, train, rows, balance=balance)[TFIDF].decided for balance in (False, True))
    assert plain is not None
    assert level is not None
    assert level.sum() > plain.sum()


def test_too_many_classes_or_no_words_are_not_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, truth = made_up(2)
    train, rows = parts(len(texts))
    monkeypatch.setattr(text_baselines, "MOST_CELLS", 100)
    found = fitted(texts, truth, 2, train, rows)
    assert found[MAJORITY].decided is not None
    for name in (TFIDF, BAYES):
        assert found[name].decided is None
        assert "not fitted" in found[name].reason
        assert "times 2 classes are too many" in found[name].reason
    lonely = fitted([f"w{k}" for k in range(9)], np.arange(9) % 2, 2, np.arange(6), np.arange(6, 9))
    assert lonely[TFIDF].decided is None
    assert lonely[TFIDF].reason == "no word stands in 2 training texts"


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("only", [0, 1])
def test_one_class_in_training(classes: int, only: int) -> None:
    texts, _ = made_up(2, 30)
    truth = np.full(30, only)
    for baseline in fitted(texts, truth, classes, np.arange(20), np.arange(20, 30)).values():
        assert baseline.decided is not None
        assert baseline.decided.tolist() == [only] * 10


def test_a_class_that_training_has_not_seen() -> None:
    texts, truth = made_up(2)
    train, rows = parts(len(texts))
    for name, baseline in fitted(texts, truth * 2, 3, train, rows).items():
        assert baseline.decided is not None, name
        assert set(baseline.decided.tolist()) <= {0, 2}
