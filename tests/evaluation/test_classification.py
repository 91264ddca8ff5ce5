"""Figures against scikit-learn and scipy, intervals by simulation, tests of luck by hand."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix, log_loss, precision_recall_fscore_support
from tests.evaluation.class_tables import names_of, one_hot, sample

from seqlab.core.errors import DataError, UsageError
from seqlab.evaluation import classification
from seqlab.evaluation.calibration import calibration
from seqlab.evaluation.classification import Rate, figures_of, wilson


@pytest.mark.parametrize(("seed", "n", "kinds"), [(0, 1, 2), (1, 50, 2), (2, 200, 5), (3, 30, 40), (4, 300, 120)])
def test_figures_are_those_of_scikit_learn(seed: int, n: int, kinds: int) -> None:
    truth, probabilities = sample(seed, n, kinds)
    found = figures_of(truth, probabilities, names_of(kinds))
    called, labels = probabilities.argmax(1), np.arange(kinds)
    precision, recall, f1, support = precision_recall_fscore_support(truth, called, labels=labels, zero_division=np.nan)
    close = {"nan_ok": True, "rel": 1e-12}
    assert [c.precision.value for c in found.classes] == pytest.approx(precision, **close)
    assert [c.recall.value for c in found.classes] == pytest.approx(recall, **close)
    assert [c.f1 for c in found.classes] == pytest.approx(f1, **close)
    assert [c.support for c in found.classes] == support.tolist()
    assert [c.predicted for c in found.classes] == np.bincount(called, minlength=kinds).tolist()
    assert found.macro_f1 == pytest.approx(np.nanmean(f1))
    assert found.confusion is not None
    assert (found.confusion == confusion_matrix(truth, called, labels=labels)).all()
    assert found.nats_per_text == pytest.approx(log_loss(truth, probabilities, labels=labels))
    assert found.accuracy.value == pytest.approx((truth == called).mean())
    assert ("confusion" in found.as_json()) == (kinds <= 100)


def test_what_is_nought_of_nought_is_null() -> None:
    found = figures_of(np.array([0, 0, 1]), one_hot(np.array([0, 1, 0]), 4), names_of(4))
    written = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert [row["precision"] for row in written["classes"]] == [0.5, 0.0, None, None]
    assert [row["recall"] for row in written["classes"]] == [0.5, 0.0, None, None]
    assert [row["f1"] for row in written["classes"]] == [0.5, 0.0, None, None]
    assert written["classes"][3]["f1_interval"] == [0.0, 1.0]
    assert written["macro_f1"] == 0.25
    assert written["confusion"] == [[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert math.isfinite(written["nats_per_text"])  # p(truth) = 0 is not infinite
    assert written["nats_per_text"] == pytest.approx(-2 / 3 * math.log(np.finfo(float).tiny))


def test_no_text_gives_nulls_and_no_warning() -> None:
    found = figures_of(np.zeros(0, np.int64), np.zeros((0, 2)), names_of(2), clusters=np.zeros(0, np.int64))
    written = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert (written["n"], written["accuracy"], written["nats_per_text"], written["macro_f1"]) == (0, None, None, None)
    assert written["interval"] == written["macro_f1_interval"] == [0, 1]


@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(5, 60))
def test_the_order_of_rows_and_of_classes_does_not_matter(seed: int, kinds: int, n: int) -> None:
    truth, probabilities = sample(seed, n, kinds)
    draw = np.random.default_rng(seed + 1)
    rows, columns = draw.permutation(n), draw.permutation(kinds)
    clusters = draw.integers(n, size=n)
    plain = figures_of(truth, probabilities, names_of(kinds), clusters=clusters)
    moved = figures_of(
        np.argsort(columns)[truth[rows]],
        probabilities[rows][:, columns],
        [names_of(kinds)[k] for k in columns],
        clusters=clusters[rows],
    )
    assert moved.accuracy == plain.accuracy
    assert moved.macro_f1 == pytest.approx(plain.macro_f1)
    assert moved.nats_per_text == pytest.approx(plain.nats_per_text)
    # NaN is not itself, so by their words.
    assert [repr(c) for c in moved.classes] == [repr(plain.classes[k]) for k in columns]
    assert plain.confusion is not None
    assert moved.confusion is not None
    assert (moved.confusion == plain.confusion[np.ix_(columns, columns)]).all()
    assert calibration(truth[rows], probabilities[rows]).ece == pytest.approx(calibration(truth, probabilities).ece)


@given(st.integers(0, 500), st.integers(0, 500))
def test_the_interval_of_a_rate_is_that_of_scipy(hits: int, misses: int) -> None:
    n = hits + misses
    rate = Rate(hits, n)
    if n == 0:
        assert math.isnan(rate.value)
        assert (rate.low, rate.high) == (0, 1)
        return
    limits = binomtest(hits, n).proportion_ci(method="wilson")
    assert (rate.low, rate.high) == pytest.approx((limits.low, limits.high), abs=1e-12)
    assert rate.low <= rate.value <= rate.high


@pytest.mark.parametrize(("m", "p", "n", "q"), [(371, 0.36, 200, 0.38), (30, 0.9, 200, 0.5), (60, 0.05, 40, 0.1)])
def test_the_difference_of_two_groups_covers_the_truth(m: int, p: float, n: int, q: float) -> None:
    draw = np.random.default_rng(6)
    hits = np.stack([draw.binomial(m, p, 4000), draw.binomial(n, q, 4000)], 1)
    found = [Rate(a, m).minus(Rate(b, n)) for a, b in hits.tolist()]
    assert 0.93 <= np.mean([low <= p - q <= high for _, low, high in found]) <= 0.98
    assert all(low <= value <= high for value, low, high in found)


def test_a_difference_by_hand_and_of_an_empty_group() -> None:
    value, low, high = Rate(56, 70).minus(Rate(48, 80))  # Newcombe (1998), method 10
    assert (value, round(low, 4), round(high, 4)) == (pytest.approx(0.2), 0.0524, 0.3339)
    value, low, high = Rate(1, 2).minus(Rate(0, 0))
    assert math.isnan(value)
    assert (low, high) == (-1, 1)


@pytest.mark.parametrize(("n", "share"), [(40, 0.7), (200, 0.5), (200, 0.9), (1000, 0.97)])
def test_wilson_covers_the_truth(n: int, share: float) -> None:
    hits = np.random.default_rng(5).binomial(n, share, 20_000)
    limits = {int(h): wilson(h / n, n) for h in np.unique(hits)}
    covered = np.mean([limits[int(h)][0] <= share <= limits[int(h)][1] for h in hits])
    assert 0.93 <= covered <= 0.98


def test_f1_and_macro_f1_intervals_cover_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Confusion counts drawn from known cell probabilities, whose F1 is the truth."""
    monkeypatch.setattr(classification, "DRAWS", 600)
    cells = np.array([[0.30, 0.04, 0.01], [0.05, 0.25, 0.05], [0.002, 0.01, 0.288]])
    truth_f1 = 2 * np.diag(cells) / (cells.sum(0) + cells.sum(1))
    draw, covered, repetitions = np.random.default_rng(8), np.zeros(4), 500
    for repetition in range(repetitions):
        drawn = draw.choice(9, size=150, p=(cells / cells.sum()).ravel())
        found = figures_of(drawn // 3, one_hot(drawn % 3, 3), names_of(3), seed=repetition)
        limits = [c.f1_interval for c in found.classes] + [found.macro_f1_interval]
        covered += [low <= f <= high for f, (low, high) in zip([*truth_f1, truth_f1.mean()], limits, strict=True)]
    # One standard error of a coverage of 95 % is 1 %.
    assert ((covered / repetitions >= 0.93) & (covered / repetitions <= 0.98)).all()


def test_macro_f1_does_not_claim_certainty_without_errors() -> None:
    truth = np.arange(20) % 2
    found = figures_of(truth, one_hot(truth, 2), names_of(2))
    assert found.macro_f1 == 1
    assert found.macro_f1_interval == (found.accuracy.low, 1)
    assert found.accuracy.low < 0.9
    assert all(c.f1_interval[0] < 0.85 for c in found.classes)


@pytest.mark.parametrize("clusters", [15, 100])
def test_clusters_of_agreeing_rows_are_covered_and_wilson_is_too_sure(
    clusters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a cluster are all right or all wrong; 1 to 9 rows each; a share of 0.7 of the clusters is right."""
    monkeypatch.setattr(classification, "DRAWS", 600)
    draw, repetitions = np.random.default_rng(3), 600
    covered = alone = 0
    for repetition in range(repetitions):
        groups = np.repeat(np.arange(clusters), draw.integers(1, 10, clusters))
        right = (draw.random(clusters) < 0.7)[groups]
        rate = classification.accuracy_of(right, groups, repetition)
        covered += rate.low <= 0.7 <= rate.high
        low, high = wilson(rate.value, rate.n)
        alone += low <= 0.7 <= high
    assert 0.93 <= covered / repetitions <= 0.98
    assert alone / repetitions < 0.75


def test_the_interval_with_clusters_by_hand() -> None:
    """Three clusters, of 2, 2 and 4 rows with 2, 0 and 3 hits: p = 5/8."""
    right, groups = np.array([1, 1, 0, 0, 1, 1, 1, 0], bool), np.array([0, 0, 1, 1, 2, 2, 2, 2])
    variance = 3 / 2 * ((2 - 2 * 5 / 8) ** 2 + (0 - 2 * 5 / 8) ** 2 + (3 - 4 * 5 / 8) ** 2) / 64
    rate = classification.accuracy_of(right, groups)
    expected = wilson(5 / 8, min(8, 5 / 8 * 3 / 8 / variance), 4.302652729749464)  # Student's t, 2 degrees
    assert (rate.low, rate.high) == pytest.approx(expected)


def test_one_more_error_never_raises_the_lower_end() -> None:
    groups = np.array([*range(49), 48])  # one text stands twice
    lows = [classification.accuracy_of(np.arange(50) >= errors, groups).low for errors in range(51)]
    assert lows == sorted(lows, reverse=True)


def test_each_class_counts_its_own_clusters() -> None:
    """What was called 0 is of one author, what is 0 of four."""
    truth, called = np.array([0, 1, 1, 1, 0, 0, 0, 1]), np.array([0, 0, 0, 0, 1, 1, 1, 1])
    groups = np.array([0, 0, 0, 0, 1, 2, 3, 4])
    first = figures_of(truth, one_hot(called, 2), names_of(2), clusters=groups).classes[0]
    assert (first.precision.low, first.precision.high) == wilson(1 / 4, 1)
    assert (first.recall.low, first.recall.high) == wilson(1 / 4, 4)


def test_clusters_of_one_row_change_nothing_and_copies_add_nothing() -> None:
    truth, probabilities = sample(9, 200, 3)
    plain = figures_of(truth, probabilities, names_of(3))
    alone = figures_of(truth, probabilities, names_of(3), clusters=np.arange(200)[::-1])
    assert alone == plain
    four = [np.repeat(x, 4, axis=0) for x in (truth, probabilities, np.arange(200))]
    copied = figures_of(four[0], four[1], names_of(3), clusters=four[2])
    assert copied.n == 800
    assert copied.accuracy.value == plain.accuracy.value
    for k in range(3):
        for name in ("precision", "recall"):
            one, many = getattr(plain.classes[k], name), getattr(copied.classes[k], name)
            assert (many.low, many.high) == pytest.approx((one.low, one.high))
        assert copied.classes[k].f1_interval == pytest.approx(plain.classes[k].f1_interval)
    for one, many in (
        ((plain.accuracy.low, plain.accuracy.high), (copied.accuracy.low, copied.accuracy.high)),
        (plain.macro_f1_interval, copied.macro_f1_interval),
    ):
        assert many[1] - many[0] == pytest.approx(one[1] - one[0], rel=0.1)  # and not half as wide


def test_clusters_without_spread_still_have_an_interval() -> None:
    truth = np.zeros(40, np.int64)
    found = figures_of(truth, one_hot(truth, 2), names_of(2), clusters=np.arange(40) // 4)
    assert (found.accuracy.low, found.accuracy.high) == wilson(1.0, 10)
    one = figures_of(truth, one_hot(np.arange(40) % 2, 2), names_of(2), clusters=truth)
    assert (one.accuracy.low, one.accuracy.high) == wilson(0.5, 1)


def test_very_many_classes_need_no_square(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classification, "FEW_DRAWS", 20)
    monkeypatch.setattr(classification, "DRAWS", 20)
    kinds = 30_000  # a square of these would be 7 GB
    truth = np.array([5, 29_999, 7])
    probabilities = np.zeros((3, kinds))
    probabilities[[0, 1, 2], [5, 29_999, 8]] = 1
    found = figures_of(truth, probabilities, names_of(kinds))
    assert found.confusion is None
    assert "confusion" not in found.as_json()
    assert len(found.classes) == kinds
    assert found.macro_f1 == 0.5  # of the four classes that occur


@pytest.mark.parametrize(
    ("truth", "probabilities", "names", "error", "words"),
    [
        ([0, 1], [[0.5, 0.5]], ["a", "b"], UsageError, "one row per text"),
        ([0], [[0.5, 0.5]], ["a"], UsageError, "1 names"),
        ([2], [[0.5, 0.5]], ["a", "b"], DataError, "0 … 1"),
        ([0], [[3.0, -2.0]], ["a", "b"], DataError, "softmax"),
        ([0], [[3.0, 2.0]], ["a", "b"], DataError, "sum to 5"),
        ([0], [[math.nan, 1.0]], ["a", "b"], DataError, "sum to nan"),
    ],
)
def test_wrong_tables_are_named(
    truth: list[int], probabilities: list[list[float]], names: list[str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        figures_of(np.array(truth), np.array(probabilities), names)
