"""Figures over seeds and blocks: those of before, and those of rows that are right or wrong."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from seqlab.evaluation.seeds import compare_runs, interval_of_runs, own_luck, two_level
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


def test_bits_per_byte_of_a_stored_duel_stay_what_they_were() -> None:
    """Written down before a duel could be about anything else than bits per byte."""
    for kind, value, low, high in (
        ("a", 2.0349664981869027, 1.9846701933740702, 2.0845003150185843),
        ("b", 2.040657105326005, 1.9905383378630075, 2.090446185531193),
        ("c", 2.111806935441509, 2.06137905661171, 2.161396695825508),
    ):
        found, interval = figures_of_runs(SCORES[kind], SIZES, BITS_PER_BYTE)
        assert (found, interval.low, interval.high) == pytest.approx((value, low, high), rel=1e-9)
        assert (interval.blocks, interval.joined) == (45, 2)
    ab, ac, bc = (c.found for c in compare_all(SCORES, SIZES, 3, BITS_PER_BYTE))
    alone = compare_runs(SCORES["a"][:1], SCORES["c"], SIZES)
    for found, value, low, high, variance in (
        (ab, -0.0056906071391025215, -0.02641564299172708, 0.014899203349155662, 5.709572293995464e-06),
        (ac, -0.07684043725460654, -0.09450658664067933, -0.060501077274801515, 3.402127683571595e-05),
        (bc, -0.07114983011550402, -0.08952947001842416, -0.054979865600565905, 3.710674620313082e-05),
        (alone, -0.08512032816733539, -0.10069795674783548, -0.06945696782589529, 6.148536935682094e-05),
    ):
        now = (found.value, found.interval.low, found.interval.high, found.block_variance)
        assert now == pytest.approx((value, low, high, variance), rel=1e-9)
    assert (ab.p, ac.p, bc.p, alone.p) == pytest.approx((0.5006, 0.0001, 0.0001, 0.0001))
    assert ab.spreads == pytest.approx((0.008197599827381922, 0.008318788626082419))


@pytest.mark.parametrize("ordered", [False, True])
def test_the_scale_divides_every_figure_and_nothing_else(ordered: bool) -> None:
    a, b, how = SCORES["a"], SCORES["b"], {"ordered": ordered, "resamples": 500}
    bits, nats = (compare_runs(a, b, SIZES, scale=scale, **how) for scale in (math.log(2), 1.0))
    assert nats.p == bits.p
    assert nats.value == pytest.approx(math.log(2) * bits.value)
    assert nats.interval.low == pytest.approx(math.log(2) * bits.interval.low)
    assert nats.spreads == pytest.approx(tuple(math.log(2) * s for s in bits.spreads))
    one = interval_of_runs(a[:1], SIZES, scale=1.0, **how)
    assert one.high == pytest.approx(math.log(2) * interval_of_runs(a[:1], SIZES, **how).high)
    plain = [compare(a[0], b[0], SIZES, scale=scale, resamples=500) for scale in (math.log(2), 1.0)]
    assert plain[1].value == pytest.approx(math.log(2) * plain[0].value)
    assert interval_of(a[0], SIZES, scale=1.0).low == pytest.approx(math.log(2) * interval_of(a[0], SIZES).low)


# --------------------------------------------------------------------------- rows, right or wrong

ROWS = {"scale": 1.0, "ordered": False}


def test_rows_have_no_neighbours() -> None:
    """Sorted rows look correlated, which would join them; they are not a sequence."""
    wrong = np.array([[1.0] * 100 + [0.0] * 300] * 2)
    found = interval_of_runs(wrong, np.ones(400), **ROWS)
    assert (found.joined, found.correlation, found.blocks) == (1, 0.0, 400)
    assert interval_of_runs(wrong, np.ones(400), scale=1.0).joined > 1
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
    """Rows scored alike are drawn together: spread and interval are those of drawing each row."""
    draw = np.random.default_rng(3)
    scores, sizes = draw.integers(0, 2, (1, 300)) * 1.0, draw.integers(1, 4, 300)
    together, singly = (two_level([(1.0, scores * sizes)], sizes, scale=1.0, ordered=o) for o in (False, True))
    assert together.value == singly.value
    assert together.block_variance == pytest.approx(singly.block_variance, rel=0.06)
    assert together.limits == pytest.approx(singly.limits, abs=0.006)


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
