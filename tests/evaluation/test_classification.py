"""Figures against scikit-learn and scipy, intervals by simulation, tests of luck by hand."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix, log_loss, precision_recall_fscore_support

from seqlab.core.errors import DataError, UsageError
from seqlab.evaluation import classification
from seqlab.evaluation.calibration import calibration, fit_temperature, softmax
from seqlab.evaluation.classification import Rate, figures_of, wilson
from seqlab.evaluation.paired import Paired, against_baselines, luck_sentence, mcnemar, tango
from seqlab.evaluation.statistics import holm


def sample(seed: int, n: int, kinds: int, sharpness: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """True classes and probabilities that know something of them."""
    draw = np.random.default_rng(seed)
    truth = draw.integers(kinds, size=n)
    logits = draw.standard_normal((n, kinds)) + sharpness * np.eye(kinds)[truth]
    return truth, softmax(logits)


def names_of(kinds: int) -> list[str]:
    return [f"class {k}" for k in range(kinds)]


def one_hot(called: np.ndarray, kinds: int) -> np.ndarray:
    return np.eye(kinds)[called]


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


def test_bins_of_calibration_know_clusters() -> None:
    truth, probabilities = np.array([1, 1, 0, 0]), np.array([[0.2, 0.8]] * 4)
    (alone,) = calibration(truth, probabilities).bins
    (tied,) = calibration(truth, probabilities, clusters=np.array([0, 0, 1, 1])).bins
    assert tied.accuracy.low < alone.accuracy.low
    assert tied.accuracy.value == alone.accuracy.value


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


def results(both: int, a_only: int, b_only: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    cells = np.repeat([0, 1, 2, 3], [both, a_only, b_only, neither])
    return np.isin(cells, [0, 1]), np.isin(cells, [0, 2])


counts = st.integers(0, 60)


@given(counts, counts, counts, counts)
def test_mcnemar_is_the_binomial_test_and_turns_round(both: int, a_only: int, b_only: int, neither: int) -> None:
    a, b = results(both, a_only, b_only, neither)
    found, turned = mcnemar(a, b), mcnemar(b, a)
    assert (found.a_only, found.b_only) == (a_only, b_only)
    apart = a_only + b_only
    assert found.p == pytest.approx(binomtest(a_only, apart).pvalue if apart else 1.0)
    assert turned.p == found.p
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low), abs=1e-9)
    assert -1 <= found.low <= found.difference <= found.high <= 1
    assert found.high - found.low > 0.01
    if len(a):
        assert found.difference == pytest.approx(a.mean() - b.mean())


@pytest.mark.parametrize(("f", "g", "n"), [(0, 0, 30), (3, 0, 30), (12, 5, 60), (40, 55, 1000), (10, 0, 10)])
def test_the_paired_interval_ends_where_a_score_test_rejects(f: int, g: int, n: int) -> None:
    """The likeliest q under a given difference by numerical search instead of by the quadratic."""

    def statistic(difference: float) -> float:
        def surprise(q: float) -> float:
            parts = ((f, q + difference), (g, q), (n - f - g, 1 - 2 * q - difference))
            return -sum(count * math.log(p) for count, p in parts if count)

        floor, ceiling = max(0.0, -difference), (1 - difference) / 2
        found = minimize_scalar(surprise, bounds=(floor, ceiling), method="bounded", options={"xatol": 1e-12})
        return float((f - g - n * difference) / math.sqrt(n * (2 * found.x + difference * (1 - difference))))

    low, high = tango(f, g, n)
    if f < n:
        assert statistic(high) == pytest.approx(-classification.Z, abs=1e-3)
    assert statistic(low) == pytest.approx(classification.Z, abs=1e-3)


@pytest.mark.parametrize("cells", [(0.7, 0.1, 0.1, 0.1), (0.8, 0.08, 0.02, 0.1), (0.5, 0.3, 0.1, 0.1)])
@pytest.mark.parametrize("n", [60, 400])
def test_the_paired_interval_covers_the_difference(cells: tuple[float, ...], n: int) -> None:
    drawn = np.random.default_rng(11).multinomial(n, cells, size=1000)
    truth, known = cells[1] - cells[2], dict[tuple[int, int], tuple[float, float]]()
    covered = 0
    for _, f, g, _ in drawn.tolist():
        low, high = known.setdefault((f, g), tango(f, g, n))
        covered += low <= truth <= high
    assert 0.93 <= covered / len(drawn) <= 0.985


@pytest.mark.parametrize("apart", [8, 30, 200])
def test_mcnemar_holds_its_level(apart: int) -> None:
    """Both equally good: the exact test rejects in at most 5 %; summed over all outcomes, not drawn."""
    rejected = sum(
        math.comb(apart, f) / 2**apart for f in range(apart + 1) if mcnemar(*results(5, f, apart - f, 5)).p <= 0.05
    )
    assert 0.001 < rejected <= 0.05


def test_baselines_are_corrected_by_holm() -> None:
    draw = np.random.default_rng(4)
    model = draw.random(400) < 0.8
    baselines = {f"baseline {k}": draw.random(400) < share for k, share in enumerate((0.7, 0.78, 0.85))}
    found = against_baselines(model, baselines)
    plain = [mcnemar(model, right).p for right in baselines.values()]
    assert list(found) == list(baselines)
    assert [paired.p for paired in found.values()] == plain
    assert [paired.adjusted_p for paired in found.values()] == holm(plain)
    assert against_baselines(model, {}) == {}
    with pytest.raises(UsageError, match="same texts"):
        mcnemar(model, model[:3])


def paired(a_only: int, b_only: int, n: int, adjusted: float | None) -> Paired:
    return Paired(n, a_only, b_only, (a_only - b_only) / n - 0.009, (a_only - b_only) / n + 0.009, 0.004, adjusted)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            paired(20, 8, 1000, 0.004),
            "average is right on 1.2 % more of the texts than TF-IDF"
            " (0.3 % to 2.1 %; p = 0.004 after Holm's correction): more than luck",
        ),
        (
            paired(20, 8, 1000, 0.31),
            "average is right on 1.2 % more of the texts than TF-IDF"
            " (0.3 % to 2.1 %; p = 0.31 after Holm's correction): this could well be luck",
        ),
        (
            paired(8, 20, 1000, 0.0002),
            "average is BEHIND TF-IDF by 1.2 % of the texts"
            " (0.3 % to 2.1 %; p < 0.001 after Holm's correction): the baseline wins, more than luck",
        ),
        (
            paired(8, 10, 1000, 0.05),
            "average is BEHIND TF-IDF by 0.2 % of the texts"
            " (−0.7 % to 1.1 %; p = 0.050 after Holm's correction): the baseline is ahead, which could well be luck",
        ),
        (
            paired(9, 8, 1000, None),
            "average is right on 0.10 % more of the texts than TF-IDF (−0.80 % to 1.00 %; p = 0.004): more than luck",
        ),
        (
            paired(8, 8, 1000, 1.0),
            "average is right on as many texts as TF-IDF (difference −0.9 % to 0.9 %): neither is ahead",
        ),
    ],
)
def test_luck_in_plain_words(found: Paired, sentence: str) -> None:
    assert luck_sentence("average", "TF-IDF", found) == sentence


@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(2, 5), st.integers(1, 80))
def test_calibration_by_a_plain_loop(seed: int, bins: int, kinds: int, n: int) -> None:
    truth, probabilities = sample(seed, n, kinds)
    found = calibration(truth, probabilities, bins)
    error = 0.0
    for b in found.bins:
        inside = [i for i in range(n) if b.low < probabilities[i].max() <= b.high]
        assert len(inside) == b.n > 0
        assert b.confidence == pytest.approx(np.mean([probabilities[i].max() for i in inside]))
        assert b.accuracy.hits == sum(probabilities[i].argmax() == truth[i] for i in inside)
        error += b.n / n * abs(b.accuracy.value - b.confidence)
    assert sum(b.n for b in found.bins) == n
    assert found.ece == pytest.approx(error, abs=1e-12)


def test_perfectly_calibrated_tables_have_no_error() -> None:
    """Of 20 texts with confidence k/20 exactly k are right."""
    levels = range(11, 21)
    probabilities = np.array([[k / 20, 1 - k / 20] for k in levels for _ in range(20)])
    truth = np.array([int(i >= k) for k in levels for i in range(20)])
    found = calibration(truth, probabilities, 20)
    assert found.ece == pytest.approx(0, abs=1e-12)
    assert len(found.bins) == 10
    assert calibration(1 - truth, probabilities, 20).ece > 0.4
    json.dumps(found.as_json(), allow_nan=False)
    nothing = calibration(truth[:0], probabilities[:0])
    assert nothing.as_json() == {"ece": None, "bins": []}


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_of_sampled_classes_is_found(temperature: float) -> None:
    """Within four standard errors:  Fisher's information of β = 1/T in a text is the variance of z under p."""
    draw = np.random.default_rng(6)
    logits = 3 * draw.standard_normal((4000, 5))
    p = softmax(logits, temperature)
    truth = (draw.random((4000, 1)) > p.cumsum(1)).sum(1).clip(0, 4)
    information = ((p * logits**2).sum(1) - (p * logits).sum(1) ** 2).sum()
    error = temperature**2 / math.sqrt(information)
    found = fit_temperature(logits, truth)
    assert abs(found - temperature) < 4 * error
    assert error < 0.05 * temperature  # so that the line above can fail
    for scale in (0.5, 2.0):
        assert fit_temperature(scale * logits, truth) == pytest.approx(scale * found, rel=1e-4)


def test_temperatures_at_the_edges() -> None:
    truth = np.array([0, 1, 1, 0])
    assert fit_temperature(np.zeros((0, 2)), truth[:0]) == 1.0
    assert fit_temperature(np.zeros((4, 2)), truth) == 1.0  # every temperature is as good
    for scale in (1.0, 1e3, 1e300):
        right = fit_temperature(scale * np.eye(2)[truth], truth)
        wrong = fit_temperature(scale * np.eye(2)[1 - truth], truth)
        assert 0.05 <= right <= 1.0 <= wrong <= 20.0
    assert fit_temperature(np.eye(2)[truth], truth) == pytest.approx(0.05, rel=1e-3)
    assert fit_temperature(np.eye(2)[1 - truth], truth) == pytest.approx(20, rel=1e-3)
    with pytest.raises(DataError, match="not finite"):
        fit_temperature(np.array([[math.inf, 0.0]]), np.array([0]))
    with pytest.raises(UsageError, match="one row per text"):
        fit_temperature(np.zeros((2, 2)), np.array([0]))


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=6), st.floats(0.1, 10), st.floats(-1e3, 1e3))
def test_softmax_by_hand_and_unmoved_by_a_shift(logits: list[float], temperature: float, shift: float) -> None:
    raised = [math.exp(z / temperature) for z in logits]
    found = softmax(np.array([logits]), temperature)
    assert found[0].tolist() == pytest.approx([x / sum(raised) for x in raised], rel=1e-9, abs=1e-12)
    assert softmax(np.array([logits]) + shift, temperature) == pytest.approx(found, rel=1e-6, abs=1e-9)


def test_softmax_does_not_overflow() -> None:
    assert softmax(np.array([[1e308, -1e308, 0.0]]), 0.05).tolist() == [[1.0, 0.0, 0.0]]
    with pytest.raises(UsageError, match="above 0"):
        softmax(np.zeros((1, 2)), 0.0)


# --------------------------------------------------------------------------- paired tests of clusters


def test_single_texts_as_clusters_are_mcnemars_test() -> None:
    draw = np.random.default_rng(3)
    a, b = draw.random(300) < 0.8, draw.random(300) < 0.74
    plain, tied = (
        mcnemar(a, b, np.arange(300)),
        mcnemar(np.r_[a, a], np.r_[b, b], np.r_[np.arange(300), np.arange(300)]),
    )
    assert plain == mcnemar(a, b)
    # Every text twice says no more than once: the same p but for the draws, and the same interval but for its kind.
    assert tied.p == pytest.approx(plain.p, abs=4 * (plain.p * (1 - plain.p) / 9999) ** 0.5 + 1e-3)
    assert (tied.low, tied.high) == pytest.approx((plain.low, plain.high), abs=0.004)


def test_the_paired_interval_with_clusters_by_hand() -> None:
    """Three authors of 2, 2 and 4 texts; a alone is right on 2, 0 and 1 of them, b alone on 0, 1 and 0."""
    a = np.array([1, 1, 0, 0, 1, 1, 0, 0], bool)
    b = np.array([0, 0, 1, 0, 0, 1, 0, 0], bool)
    found = mcnemar(a, b, np.array([0, 0, 1, 1, 2, 2, 2, 2]))
    value = 2 / 8
    strays = (2 - 2 * value) ** 2 + (-1 - 2 * value) ** 2 + (1 - 4 * value) ** 2
    reach = 4.302652729749464 * math.sqrt(3 / 2 * strays) / 8  # Student's t, 2 degrees
    assert (found.low, found.high) == pytest.approx((max(-1, value - reach), min(1, value + reach)))


def test_texts_that_err_together_are_not_called_different_by_luck() -> None:
    """30 groups of 20 texts, each group decided as one, both classifiers equally good: 5 % at most, not 40 %."""
    draw = np.random.default_rng(5)
    clusters = np.repeat(np.arange(30), 20)
    called = {"rows": 0, "clusters": 0}
    covered = 0
    for _ in range(200):
        a, b = (np.repeat(draw.random(30) < 0.7, 20) for _ in range(2))
        called["rows"] += mcnemar(a, b).p < 0.05
        found = mcnemar(a, b, clusters)
        called["clusters"] += found.p < 0.05
        covered += found.low <= 0 <= found.high
    assert called["clusters"] <= 20
    assert called["rows"] > 60
    assert covered >= 180


def test_a_spread_keeps_the_temperature_of_few_texts_near_one() -> None:
    logits, truth = np.array([[3.0, 0.0], [0.0, 2.0]]), np.array([0, 1])
    assert fit_temperature(logits, truth) < 0.06
    assert 0.5 < fit_temperature(logits, truth, spread=0.5) < 1
    draw = np.random.default_rng(0)
    many = draw.normal(size=(20_000, 3)) * 2
    drawn = np.array([draw.choice(3, p=row) for row in softmax(many, 1.7)])
    assert fit_temperature(many, drawn, spread=0.5) == pytest.approx(fit_temperature(many, drawn), abs=1e-3)
