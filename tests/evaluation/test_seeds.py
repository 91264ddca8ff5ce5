"""Figures over seeds and blocks: those of a text, and those of rows that are right or wrong."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from tests.evaluation import plain_spread

from seqlab.evaluation.seeds import compare_runs, interval_of_runs, own_luck, two_level
from seqlab.evaluation.spread import CORRELATIONS, COSINES, MEMORIES
from seqlab.evaluation.statistics import compare, equal_rows, interval_of
from seqlab.workflows.duel.terms import BITS_PER_BYTE, ERROR_RATE
from seqlab.workflows.duel.verdict import compare_all, figures_of_runs

# --------------------------------------------------------------------------- a stored duel

K = np.arange(90)
SIZES = 990 + K % 23


def stored(number: int, seeds: int, level: float) -> np.ndarray:
    """nats (seeds, 90)"""
    shared = level + 160 * np.sin(0.37 * K)
    return np.stack([shared + 40 * np.sin(number + 1.7 * K * (s + 1)) + 6 * s for s in range(seeds)])


SCORES = {"a": stored(1, 3, 1400.0), "b": stored(2, 3, 1404.0), "c": stored(5, 1, 1460.0)}


DOCUMENTS = np.repeat(np.arange(6), 15)


def plain_mixture(scores: np.ndarray, documents: np.ndarray | None) -> plain_spread.Mixture:
    bits = (scores / math.log(2)).tolist()
    if documents is not None:
        return plain_spread.of_documents(bits, SIZES.tolist(), documents.tolist())
    return plain_spread.of_stretch(bits, SIZES.tolist(), MEMORIES, CORRELATIONS, COSINES)


@pytest.mark.parametrize("documents", [None, DOCUMENTS])
def test_a_stored_duel_follows_the_plain_equations(documents: np.ndarray | None) -> None:
    """The text's spread of the mean over the runs, beside it s²/S of the seeds, each with its degrees of freedom."""
    figures = {kind: runs.sum(1) / math.log(2) / SIZES.sum() for kind, runs in SCORES.items()}
    for kind, runs in SCORES.items():
        value, interval = figures_of_runs(runs, SIZES, BITS_PER_BYTE, documents)
        mixture = plain_spread.with_luck(plain_mixture(runs.mean(0), documents), [figures[kind]])
        assert value == pytest.approx(figures[kind].mean(), rel=1e-12)
        assert interval.high - value == pytest.approx(plain_spread.reach(mixture), rel=1e-6)
        assert value - interval.low == pytest.approx(plain_spread.reach(mixture), rel=1e-6)
    for comparison in compare_all(SCORES, SIZES, 3, BITS_PER_BYTE, documents):
        a, b, found = comparison.a, comparison.b, comparison.found
        text = plain_mixture(SCORES[a].mean(0) - SCORES[b].mean(0), documents)
        mixture = plain_spread.with_luck(text, [figures[a], figures[b]])
        assert found.value == pytest.approx(figures[a].mean() - figures[b].mean())
        assert found.interval.high - found.value == pytest.approx(plain_spread.reach(mixture), rel=1e-6)
        assert found.p == pytest.approx(plain_spread.p(mixture, found.value))
        deviations = [float(figures[kind].std(ddof=1)) if len(figures[kind]) > 1 else 0.0 for kind in (a, b)]
        assert found.spreads == pytest.approx(deviations)
        assert found.block_variance == pytest.approx(sum(weight * s**2 for weight, s, _ in text), rel=1e-6)


def test_one_run_each_is_the_plain_paired_test() -> None:
    a, b = SCORES["a"][:1], SCORES["c"]
    plain, found = compare(a[0], b[0], SIZES), compare_runs(a, b, SIZES)
    assert (found.value, found.p) == pytest.approx((plain.value, plain.p))
    for one, same in ((found.interval, plain.interval), (interval_of_runs(a, SIZES), interval_of(a[0], SIZES))):
        assert (one.low, one.high, one.correlation) == pytest.approx((same.low, same.high, same.correlation))
        assert (one.blocks, one.documents) == (same.blocks, same.documents) == (90, 1)


@pytest.mark.parametrize("ordered", [False, True])
def test_the_scale_divides_every_figure_and_nothing_else(ordered: bool) -> None:
    a, b, how = SCORES["a"], SCORES["b"], {"ordered": ordered, "resamples": 500}
    bits, nats = (compare_runs(a, b, SIZES, scale=scale, **how) for scale in (math.log(2), 1.0))
    assert nats.p == pytest.approx(bits.p)
    assert nats.value == pytest.approx(math.log(2) * bits.value)
    assert nats.interval.low == pytest.approx(math.log(2) * bits.interval.low)
    assert nats.spreads == pytest.approx(tuple(math.log(2) * s for s in bits.spreads))
    one = interval_of_runs(a[:1], SIZES, scale=1.0, **how)
    assert one.high == pytest.approx(math.log(2) * interval_of_runs(a[:1], SIZES, **how).high)


# --------------------------------------------------------------------------- rows, right or wrong

ROWS = {"scale": 1.0, "ordered": False}


def test_rows_have_no_neighbours() -> None:
    """Sorted rows look correlated, which would widen their interval; they are not a sequence."""
    wrong = np.array([[1.0] * 100 + [0.0] * 300] * 2)
    found = interval_of_runs(wrong, np.ones(400), **ROWS)
    assert (found.correlation, found.blocks, found.documents) == (0.0, 400, 1)
    mixed = interval_of_runs(np.random.default_rng(0).permutation(wrong.T).T, np.ones(400), **ROWS)
    assert (found.low, found.high) == (mixed.low, mixed.high)
    in_order = interval_of_runs(wrong, np.ones(400), scale=1.0)
    assert in_order.high - in_order.low > 5 * (found.high - found.low)
    assert found.caution_about("texts") is None
    assert interval_of_runs(wrong[:, 90:110], np.ones(20), **ROWS).caution_about("texts") == (
        "only 20 texts: the interval is unreliable"
    )


@pytest.mark.parametrize(("n", "wrong"), [(400, 80), (2500, 250), (100, 50)])
def test_one_run_has_the_interval_of_a_share(n: int, wrong: int) -> None:
    """Where errors are many, that of the normal law: p ± 1.96 √(p(1−p)/n)."""
    found = interval_of_runs((np.arange(n) < wrong)[None].astype(float), np.ones(n), **ROWS)
    share = wrong / n
    reach = 1.96 * math.sqrt(share * (1 - share) / n)
    assert (found.low, found.high) == pytest.approx((share - reach, share + reach), abs=0.12 * reach)


def test_drawing_kinds_of_rows_is_drawing_rows() -> None:
    """Rows scored alike are drawn together: the spread is that of drawing each row."""
    draw = np.random.default_rng(3)
    scores, sizes = draw.integers(0, 2, (1, 300)) * 1.0, draw.integers(1, 4, 300)
    together = two_level([(1.0, scores * sizes)], sizes, scale=1.0)
    picked = draw.integers(300, size=(9999, 300))
    singly = (scores[0] * sizes)[picked].sum(1) / sizes[picked].sum(1)
    assert together.value == pytest.approx((scores[0] * sizes).sum() / sizes.sum())
    assert together.block_variance == pytest.approx(singly.var(), rel=0.06)
    assert together.limits == pytest.approx(np.quantile(singly, [0.025, 0.975]), abs=0.006)


@given(st.integers(0, 30), st.integers(0, 30))
def test_a_pair_of_single_runs_is_about_mcnemar_s_test(only_a: int, only_b: int) -> None:
    """Rows that one alone gets wrong decide; k of them can never be surer than 2^(1−k), as in the exact test."""
    n, k = 300, only_a + only_b
    place = np.arange(n)
    a, b = (place < only_a) * 1.0, ((place >= only_a) & (place < k)) * 1.0
    found = compare_runs(a[None], b[None], np.ones(n), resamples=1500, **ROWS)
    exact = binomtest(only_a, k).pvalue if k else 1.0
    assert found.value == pytest.approx((only_a - only_b) / n)
    assert found.p >= min(1.0, 2.0 ** (1 - max(k, 1)))
    assert found.p <= exact + 0.03
    if exact > 0.2:
        assert found.p > 0.05


def rows_of(draw: np.random.Generator, hardness: np.ndarray, factor: float, luck: float, seeds: int) -> np.ndarray:
    """Errors (seeds, n): each row with its own difficulty, each run with its own luck (a share of the error rate)."""
    level = factor + draw.normal(0, luck, (seeds, 1))
    return (draw.random((seeds, len(hardness))) < hardness * level) * 1.0


@pytest.mark.parametrize(("rate", "seeds", "luck"), [(0.1, 1, 0.0), (0.4, 1, 0.0), (0.1, 3, 0.0), (0.1, 3, 0.2)])
def test_rows_keep_their_promises(rate: float, seeds: int, luck: float) -> None:
    """Models of the same error rate, rows of their own difficulty: few winners, and intervals that cover."""
    draw = np.random.default_rng(9)
    called = covered = 0
    for repetition in range(200):
        hardness = draw.beta(2 * rate, 2 * (1 - rate), 200)
        a, b = (rows_of(draw, hardness, 1.0, luck, seeds) for _ in range(2))
        how = ROWS | {"resamples": 300, "seed": repetition}
        called += compare_runs(a, b, np.ones(200), **how).p < 0.05
        interval = interval_of_runs(a, np.ones(200), **how)
        covered += interval.low <= rate <= interval.high
    assert called / 200 <= 0.08
    assert covered / 200 >= 0.9


def test_the_noise_of_rows_is_not_counted_as_luck_of_the_seed_too() -> None:
    """14 errors in a hundred against 10, 200 rows, three seeds: counted twice, the noise hides all but one in seven."""
    draw = np.random.default_rng(10)
    called = 0
    for repetition in range(150):
        hardness = draw.beta(0.2, 1.8, 200)
        a, b = (rows_of(draw, hardness, factor, 0.0, 3) for factor in (1.0, 1.4))
        called += compare_runs(a, b, np.ones(200), **ROWS, resamples=300, seed=repetition).p < 0.05
    assert called / 150 > 0.33


def test_own_luck_is_what_rows_do_not_explain() -> None:
    draw = np.random.default_rng(11)
    sizes = np.ones(2000)
    hardness = draw.beta(0.2, 1.8, 2000)
    spread = np.mean([own_luck(rows_of(draw, hardness, 1.0, 0.5, 8), sizes) for _ in range(20)])
    alike = np.mean([own_luck(rows_of(draw, hardness, 1.0, 0.0, 8), sizes) for _ in range(20)])
    assert spread > 0.95
    assert alike < 0.5
    same = np.repeat((draw.random((1, 2000)) < hardness) * 1.0, 3, 0)
    assert own_luck(same, sizes) == own_luck(same[:1], sizes) == 0.0
    shifted = same + np.array([[0.0], [0.1], [0.2]])  # every row the same amount worse: nothing is left to chance
    assert own_luck(shifted, sizes) == pytest.approx(1.0)


def test_duplicates_count_as_one_block() -> None:
    """Copies of rows make nothing surer."""
    rows = ["b", "a", "b", "c", "a", "b"]
    assert equal_rows(rows).tolist() == [0, 1, 0, 2, 1, 0]
    draw = np.random.default_rng(4)
    wrong = draw.integers(0, 2, 200) * 1.0
    single = interval_of_runs(wrong[None], np.ones(200), **ROWS)
    blocks = equal_rows([*range(200)] * 5)
    copied = interval_of_runs(np.bincount(blocks, np.tile(wrong, 5))[None], np.bincount(blocks), **ROWS)
    assert (copied.low, copied.high) == pytest.approx((single.low, single.high))


def test_a_share_stays_between_none_and_all() -> None:
    wrong = (np.arange(50) < 1)[None] * 1.0
    value, interval = figures_of_runs(wrong, np.ones(50), ERROR_RATE)
    assert value == 0.02
    assert interval.low == 0.0
    assert interval_of_runs(wrong, np.ones(50), **ROWS).low < 0
    assert figures_of_runs(1 - wrong, np.ones(50), ERROR_RATE)[1].high == 1.0
