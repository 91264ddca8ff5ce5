"""Intervals cover what they promise; blocks, paired tests and Holm's correction by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from seqlab.core.types import Surprisals
from seqlab.evaluation.statistics import (
    BLOCK_BYTES,
    FEW_ROWS,
    Interval,
    block_edges,
    block_sums,
    compare,
    documents_of,
    holm,
    interval_of,
    neighbour_correlation,
)


def table(nats: list[float], lengths: list[int]) -> Surprisals:
    end = np.cumsum(lengths)
    return Surprisals(np.array(nats), end - lengths, end, np.zeros(len(nats), bool), np.zeros(len(nats)))


@given(st.text(alphabet=" \nab", max_size=300), st.integers(2, 40))
def test_blocks_partition_the_text_at_white_space(text: str, size: int) -> None:
    content = text.encode()
    edges = block_edges(content, size=size)
    assert edges[0] == 0
    assert edges[-1] == len(content)
    assert (np.diff(edges) > 0).all() or not content
    for edge in edges[1:-1]:
        assert chr(content[edge]).isspace()
        assert edge >= size


def test_blocks_are_about_as_long_as_asked() -> None:
    content = ("word " * 4000).encode()
    lengths = np.diff(block_edges(content))
    assert len(lengths) == 20_000 // BLOCK_BYTES == 80
    assert abs(lengths - BLOCK_BYTES).max() <= 10
    assert len(block_edges(b"x" * 5000)) == 2  # nowhere to cut


def test_a_token_counts_in_the_block_where_it_starts() -> None:
    surprisals = table([1.0, 2.0, 4.0, 8.0], [3, 4, 2, 6])  # starts 0, 3, 7, 9
    assert block_sums(surprisals, np.array([0, 7, 15])).tolist() == [3.0, 12.0]
    assert block_sums(surprisals, np.array([0, 8, 9, 15])).tolist() == [7.0, 0.0, 8.0]


def test_blocks_keep_to_their_document() -> None:
    """A document shorter than a block is a block; what is cut within one does not depend on the others."""
    words = [("word " * 700).encode(), b"short one", ("other words " * 150).encode()]
    starts = (0, len(words[0]), len(words[0]) + len(words[1]))
    edges = block_edges(b"".join(words), starts)
    assert set(starts) <= set(edges.tolist())
    alone = [block_edges(one)[:-1] + start for one, start in zip(words, starts, strict=True)]
    assert edges.tolist() == [*np.concatenate(alone).tolist(), sum(map(len, words))]
    assert documents_of(edges, starts).tolist() == [0] * len(alone[0]) + [1] + [2] * len(alone[2])
    assert block_edges(b"").tolist() == [0]


def test_intervals_cover_what_they_promise() -> None:
    """Ln-normal surprisals, 200 blocks of 250 tokens of four bytes: 92 to 98 % of 500 intervals hold exp(1/2)."""
    draw = np.random.default_rng(7)
    truth, sizes = math.exp(0.5) / 4 / math.log(2), np.full(200, 1000)
    covered = 0
    for _ in range(500):
        found = interval_of(np.exp(draw.standard_normal((200, 250))).sum(1), sizes)
        covered += found.low <= truth <= found.high
    assert 0.92 <= covered / 500 <= 0.98


def test_the_interval_holds_the_figure_and_shrinks_with_more_text() -> None:
    draw = np.random.default_rng(1)
    widths = []
    for blocks in (60, 6000):
        for _ in range(40):
            nats, sizes = draw.gamma(5, 100, blocks), draw.integers(900, 1100, blocks)
            found = interval_of(nats, sizes)
            assert found.low < nats.sum() / sizes.sum() / math.log(2) < found.high
            widths.append(found.high - found.low)
        assert found == interval_of(nats, sizes)
    assert 9 < sum(widths[:40]) / sum(widths[40:]) < 14  # the square root of 100, and more doubt with few blocks


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


def test_p_values_are_uniform_when_nothing_differs() -> None:
    draw = np.random.default_rng(3)
    sizes = np.full(200, 1000)
    p = [compare(draw.normal(400, 30, 200), draw.normal(400, 30, 200), sizes).p for _ in range(600)]
    assert 0.03 <= np.mean(np.array(p) < 0.05) <= 0.07
    assert 0.4 < np.mean(p) < 0.6


def test_two_equal_models_do_not_differ() -> None:
    same = np.arange(1.0, 51.0)
    assert compare(same, same, np.full(50, 1000)).p == 1


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def test_cautions_follow_from_values() -> None:
    assert Interval(1, 2, 12).caution == "only 12 blocks of about 250 bytes: the interval is unreliable"
    assert Interval(1, 2, 119, 0.99).few
    assert not Interval(1, 2, 119, 0.99).slow  # one reason is enough
    assert not Interval(1, 2, 120).few
    assert not Interval(1, 2, 30, enough=FEW_ROWS).few
    assert Interval(1, 2, 29, enough=FEW_ROWS).few
    assert Interval(1, 2, 200, 0.1).caution is None
    assert not Interval(1, 2, 150, 0.875).slow  # 150 · 0.125 / 1.875 = 10 stretches
    alike = Interval(1, 2, 150, 0.876)
    assert alike.caution_about("pieces") == "pieces are as alike as neighbours (0.88): the interval is too narrow"
    many = Interval(1, 2, 12, 0.9, documents=5)  # documents are judged by how many they are
    assert not many.few
    assert not many.slow
    assert Interval(1, 2, 12, 0.9, documents=4).few
    assert neighbour_correlation(np.array([1.0, -1.0] * 50)) < -0.9
    assert neighbour_correlation(np.ones(9)) == 0


def test_what_an_interval_speaks_of() -> None:
    assert Interval(1, 2, 99).speaks_of == "this text as a stretch of its own process, not of other texts"
    assert Interval(1, 2, 99, documents=4).speaks_of == "these 4 documents alone, too few to speak of others"
    assert Interval(1, 2, 99, documents=5).speaks_of == "other documents of the kind of these 5"
    assert [Interval(1, 2, 99, documents=d).by_documents for d in (1, 4, 5)] == [False, False, True]


def test_documents_decide_where_there_are_enough() -> None:
    """Two models differ by what each document says: blocks of one document do not count one by one."""
    draw = np.random.default_rng(8)
    sizes, documents = np.full(120, 1000), np.repeat(np.arange(6), 20)
    a = 1400 + np.repeat(draw.normal(0, 30, 6), 20) + draw.normal(0, 10, 120)
    b = np.full(120, 1400.0)
    found = compare(a, b, sizes, documents=documents)
    levels = (a - b).reshape(6, 20).mean(1) / 1000 / math.log(2)
    assert (found.interval.documents, found.interval.blocks) == (6, 120)
    assert found.interval.high - found.value == pytest.approx(2.5706 * levels.std(ddof=1) / math.sqrt(6), rel=1e-4)
    assert interval_of(a, sizes, documents=documents).documents == 6
    far = compare(a - 300, b, sizes, documents=documents)
    assert far.p == pytest.approx(2 * t.cdf(far.value / (levels.std(ddof=1) / math.sqrt(6)), 5))
    assert far.p < 1e-4
    assert compare(a[:4] - 1e6, b[:4], sizes[:4]).p == 2.0**-3  # four blocks are never surer


def test_the_scale_divides_every_figure_and_nothing_else() -> None:
    draw = np.random.default_rng(9)
    a, b, sizes = draw.normal(1400, 30, 50), draw.normal(1390, 30, 50), np.full(50, 1000)
    bits, nats = (compare(a, b, sizes, scale=scale) for scale in (math.log(2), 1.0))
    assert nats.p == pytest.approx(bits.p, rel=1e-9)
    assert nats.value == pytest.approx(math.log(2) * bits.value)
    assert nats.interval.low == pytest.approx(math.log(2) * bits.interval.low)
    assert interval_of(a, sizes, scale=1.0).low == pytest.approx(math.log(2) * interval_of(a, sizes).low)


@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 10])
def test_few_blocks_find_no_difference_that_is_not_there(blocks: int) -> None:
    draw = np.random.default_rng(11)
    sizes = np.full(blocks, 1000)
    p = [compare(draw.normal(400, 30, blocks), draw.normal(400, 30, blocks), sizes).p for _ in range(300)]
    assert np.mean(np.array(p) < 0.05) <= 0.09
