"""Intervals cover what they promise; blocks, paired tests and Holm's correction by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.core.types import Surprisals
from seqlab.evaluation.statistics import (
    BLOCK_BYTES,
    Interval,
    block_edges,
    block_sums,
    compare,
    holm,
    interval_of,
    join,
    neighbour_correlation,
    resampled_ratios,
)


def table(nats: list[float], lengths: list[int]) -> Surprisals:
    end = np.cumsum(lengths)
    return Surprisals(np.array(nats), end - lengths, end, np.zeros(len(nats), bool), np.zeros(len(nats)))


@given(st.text(alphabet=" \nab", max_size=300), st.integers(2, 40))
def test_blocks_partition_the_text_at_white_space(text: str, size: int) -> None:
    content = text.encode()
    edges = block_edges(content, size)
    assert edges[0] == 0
    assert edges[-1] == len(content)
    assert (np.diff(edges) > 0).all() or not content
    for edge in edges[1:-1]:
        assert chr(content[edge]).isspace()
        assert edge >= size


def test_blocks_are_about_as_long_as_asked() -> None:
    content = ("word " * 4000).encode()
    lengths = np.diff(block_edges(content))
    assert len(lengths) == 20
    assert abs(lengths - BLOCK_BYTES).max() <= 10
    assert len(block_edges(b"x" * 5000)) == 2  # nowhere to cut


def test_a_token_counts_in_the_block_where_it_starts() -> None:
    surprisals = table([1.0, 2.0, 4.0, 8.0], [3, 4, 2, 6])  # starts 0, 3, 7, 9
    assert block_sums(surprisals, np.array([0, 7, 15])).tolist() == [3.0, 12.0]
    assert block_sums(surprisals, np.array([0, 8, 9, 15])).tolist() == [7.0, 0.0, 8.0]


@pytest.mark.parametrize("lag", [0.0, 0.5])
def test_intervals_cover_what_they_promise(lag: float) -> None:
    """95 % intervals of stationary surprisals, 200 blocks: 92 to 98 % of 500 repetitions hold the truth.

    ln-normal surprisals over a Gaussian series with correlation `lag` between neighbours; every token has
    four bytes and a block 250 tokens. The truth is the mean of the law, exp(1/2).
    """
    draw = np.random.default_rng(7)
    tokens, covered = 200 * 250, 0
    truth = math.exp(0.5) / 4 / math.log(2)
    sizes = np.full(200, 1000)
    for repetition in range(500):
        noise = draw.standard_normal(tokens)
        series = noise
        if lag:
            series = stationary(noise, correlation_before_the_exponential(lag))
        nats = np.exp(series).reshape(200, 250).sum(1)
        found = interval_of(nats, sizes, resamples=600, seed=repetition)
        covered += found.low <= truth <= found.high
    assert 0.92 <= covered / 500 <= 0.98


def correlation_before_the_exponential(lag: float) -> float:
    """exp of a unit Gaussian series with correlation r has correlation (e^r − 1)/(e − 1)."""
    return math.log(1 + lag * (math.e - 1))


def stationary(noise: np.ndarray, r: float) -> np.ndarray:
    """A Gaussian series of variance one in which neighbours have correlation r: moving sums that die out."""
    weights = math.sqrt(1 - r * r) * r ** np.arange(60)
    return np.convolve(noise, weights)[: len(noise)]


def test_the_interval_holds_the_figure_and_shrinks_with_more_text() -> None:
    draw = np.random.default_rng(1)
    widths = []
    for blocks in (40, 4000):
        nats, sizes = draw.gamma(5, 100, blocks), draw.integers(900, 1100, blocks)
        found = interval_of(nats, sizes)
        assert found.low < nats.sum() / sizes.sum() / math.log(2) < found.high
        assert found == interval_of(nats, sizes)  # the same draws each time
        widths.append(found.high - found.low)
    assert 7 < widths[0] / widths[1] < 14  # the square root of 100


def test_paired_differences_see_what_single_intervals_cannot() -> None:
    draw = np.random.default_rng(2)
    hardness = draw.gamma(5, 100, 300)
    sizes = np.full(300, 1000)
    a, b = hardness * 0.99, hardness + draw.normal(0, 1, 300)
    found = compare(a, b, sizes)
    assert found.value == pytest.approx((a - b).sum() / 300_000 / math.log(2))
    assert found.interval.high < 0
    assert found.p < 0.001
    apart = [interval_of(x, sizes) for x in (a, b)]
    assert apart[0].high > apart[1].low  # side by side they overlap


def test_correlated_blocks_are_drawn_together() -> None:
    """Where a text is hard or easy for several blocks on end, single blocks promise too much."""
    draw = np.random.default_rng(5)
    sizes, covered, covered_singly = np.full(400, 1000), 0, 0
    for repetition in range(300):
        nats = 500 + 60 * stationary(draw.standard_normal(460), 0.6)[60:]
        found = interval_of(nats, sizes, resamples=400, seed=repetition)
        assert found.joined in (2, 4, 8)
        covered += found.low <= 0.5 / math.log(2) <= found.high
        low, high = np.quantile(resampled_ratios(nats, sizes, resamples=400, seed=repetition), [0.025, 0.975])
        covered_singly += low <= 0.5 <= high
    assert covered_singly / 300 < 0.8
    assert covered / 300 > 0.88


@given(st.integers(1, 50), st.integers(1, 9))
def test_joining_keeps_the_sum(blocks: int, times: int) -> None:
    values = np.arange(1.0, 2 * blocks + 1).reshape(2, blocks)
    joined = join(values, min(times, blocks))
    assert joined.sum(1).tolist() == values.sum(1).tolist()
    assert joined.shape[1] == blocks // min(times, blocks)


def test_p_values_are_uniform_when_nothing_differs() -> None:
    draw = np.random.default_rng(3)
    sizes = np.full(200, 1000)
    p = [
        compare(draw.normal(400, 30, 200), draw.normal(400, 30, 200), sizes, resamples=400, seed=k).p
        for k in range(400)
    ]
    assert 0.03 <= np.mean(np.array(p) < 0.05) <= 0.08
    assert 0.4 < np.mean(p) < 0.6


def test_two_equal_models_do_not_differ() -> None:
    same = np.arange(1.0, 51.0)
    assert compare(same, same, np.full(50, 1000)).p == 1


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def test_cautions() -> None:
    assert "only 12 blocks" in str(Interval(1, 2, 12).caution)
    assert "even blocks of about 4,000 bytes are correlated (0.45)" in str(Interval(1, 2, 100, 0.45, 4).caution)
    assert Interval(1, 2, 100, 0.1).caution is None
    assert neighbour_correlation(np.array([1.0, -1.0] * 50)) < -0.9
    assert neighbour_correlation(np.ones(9)) == 0


@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 10])
def test_few_blocks_find_no_difference_that_is_not_there(blocks: int) -> None:
    draw = np.random.default_rng(11)
    sizes = np.full(blocks, 1000)
    p = [
        compare(draw.normal(400, 30, blocks), draw.normal(400, 30, blocks), sizes, resamples=300, seed=k).p
        for k in range(300)
    ]
    assert np.mean(np.array(p) < 0.05) <= 0.09
