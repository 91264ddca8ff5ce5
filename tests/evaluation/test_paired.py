"""Two classifiers on the same texts: tests, intervals, and what is said of them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binomtest

from seqlab.core.errors import UsageError
from seqlab.evaluation import classification
from seqlab.evaluation.paired import Paired, against_baselines, luck_sentence, mcnemar, tango
from seqlab.evaluation.statistics import holm


def results(both: int, a_only: int, b_only: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    cells = np.repeat([0, 1, 2, 3], [both, a_only, b_only, neither])
    return np.isin(cells, [0, 1]), np.isin(cells, [0, 2])


counts = st.integers(0, 60)


def paired(a_only: int, b_only: int, n: int, adjusted: float | None) -> Paired:
    return Paired(n, a_only, b_only, (a_only - b_only) / n - 0.009, (a_only - b_only) / n + 0.009, 0.004, adjusted)


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


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            paired(20, 8, 1000, 0.004),
            "average is ahead of TF-IDF by 1.2 points on 1,000 texts"
            " (0.3 to 2.1; p = 0.004 after Holm's correction): more than luck",
        ),
        (
            paired(20, 8, 1000, 0.31),
            "average is ahead of TF-IDF by 1.2 points on 1,000 texts"
            " (0.3 to 2.1; p = 0.31 after Holm's correction): this could well be luck",
        ),
        (
            paired(8, 20, 1000, 0.0002),
            "average is BEHIND TF-IDF by 1.2 points on 1,000 texts"
            " (0.3 to 2.1; p < 0.001 after Holm's correction): the baseline wins, more than luck",
        ),
        (
            paired(8, 10, 1000, 0.05),
            "average is BEHIND TF-IDF by 0.2 points on 1,000 texts"
            " (−0.7 to 1.1; p = 0.05 after Holm's correction): the baseline is ahead, which could well be luck",
        ),
        (
            paired(9, 8, 1000, None),
            "average is ahead of TF-IDF by 0.10 points on 1,000 texts (−0.80 to 1.00; p = 0.004): more than luck",
        ),
        (
            paired(8, 8, 1000, 1.0),
            "average is right on as many of 1,000 texts as TF-IDF (difference −0.9 to 0.9 points): neither is ahead",
        ),
    ],
)
def test_luck_in_plain_words(found: Paired, sentence: str) -> None:
    assert luck_sentence("average", "TF-IDF", found) == sentence


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
