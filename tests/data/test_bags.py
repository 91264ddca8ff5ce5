"""Bags against scikit-learn's counts and against loops over texts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from seqlab.data import bags as module
from seqlab.data import words
from seqlab.data.bags import BagReader, Bags, Known, features_in_documents, first_bucket, texts_with_feature
from seqlab.data.words import read_words

ASCII_WORDS = r"(?:[a-z0-9_]+(?:'[a-z0-9_]+)*|[^\sa-z0-9_])"
PIECES = ("The", "film", "isn't", "good", "!", "?", "'", "dogs'", "so_so", "7", "a", "a''b", " ", "\n", "...")
TEXTS = st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join), min_size=1, max_size=8)
WIDE = 24


def as_counters(bags: Bags) -> list[Counter[int]]:
    pairs = zip(bags.offsets[:-1], bags.offsets[1:], strict=True)
    rows = [dict(zip(bags.features[a:b].tolist(), bags.counts[a:b].tolist(), strict=True)) for a, b in pairs]
    assert sum(len(row) for row in rows) == len(bags.features), "each feature stands once"
    return [Counter(row) for row in rows]


def same(a: Bags, b: Bags) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("features", "counts", "offsets"))


def drawn(seed: int = 0, texts: int = 9, features: int = 12) -> Bags:
    """Random bags, some of them empty."""
    draw = np.random.default_rng(seed)
    rows = [np.flatnonzero(draw.random(features) < rate) for rate in draw.choice([0.0, 0.3, 0.8], texts)]
    sizes = [len(row) for row in rows]
    counts = draw.integers(1, 5, sum(sizes)).astype(np.uint16)
    return Bags(np.concatenate(rows).astype(np.int32), counts, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


@pytest.mark.parametrize("order", [1, 2, 3])
@given(texts=TEXTS)
def test_bags_are_the_counts_of_scikit_learn(order: int, texts: list[str]) -> None:
    """One bucket for each of its columns, with the same counts in every text."""
    from sklearn.feature_extraction.text import CountVectorizer

    ours = as_counters(BagReader(order, WIDE).read(texts))
    if not any(ours):
        return
    theirs = CountVectorizer(token_pattern=ASCII_WORDS, ngram_range=(1, order)).fit_transform(texts).toarray()
    columns = sorted(tuple(column) for column in theirs.T.tolist())
    features = sorted({feature for row in ours for feature in row})
    assert sorted(tuple(row[feature] for row in ours) for feature in features) == columns


@pytest.mark.parametrize("bits", [8, 16, 28])
@given(texts=TEXTS)
def test_every_order_keeps_to_its_buckets(bits: int, texts: list[str]) -> None:
    orders = [as_counters(BagReader(order, bits).read(texts)) for order in (1, 2, 3, 4)]
    edges = [0, 2**bits // 4, 2**bits // 2, 2**bits]
    assert [first_bucket(order, bits) for order in (1, 2, 3, 4, 8)] == [*edges[:3], edges[2], edges[2]]
    for row, text in enumerate(texts):
        number = len(read_words([text]).codes)
        for k, low in enumerate(edges[:3]):
            seen = sum(n for feature, n in orders[2][row].items() if low <= feature < edges[k + 1])
            assert seen == max(0, number - k)  # n words have n − k n-grams of order k + 1
        assert orders[3][row].total() == sum(max(0, number - k) for k in range(4))


@pytest.mark.parametrize("block", [1, 20, 1 << 20])
def test_blocks_do_not_matter(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["", "one two three two", "a film, a FILM", "", "two", "字 one two", ""]
    whole = BagReader(3, 16).read(texts)
    monkeypatch.setattr(words, "BLOCK_CHARACTERS", block)
    heard: list[int] = []
    assert same(BagReader(3, 16).read(texts, heard.append), whole)
    assert heard[-1] == len(texts)
    assert heard == sorted(set(heard))
    for k, text in enumerate(texts):
        assert same(BagReader(3, 16).read([text]), whole.take(np.array([k])))


def test_features_ascend_and_empty_texts_have_none() -> None:
    bags = BagReader(3, 12).read(["b a c b a", "", "  \n", "c"])
    assert np.diff(bags.offsets).tolist()[1:3] == [0, 0]
    assert all((np.diff(bags.features[a:b]) > 0).all() for a, b in zip(bags.offsets, bags.offsets[1:], strict=False))
    for nothing in (BagReader(3, 12).read([]), BagReader(3, 12).read(["", ""])):
        assert len(nothing.features) == len(nothing.counts) == 0
        assert nothing.offsets.tolist() == [0] * (len(nothing) + 1)
    assert (bags.features.dtype, bags.counts.dtype, bags.offsets.dtype) == (np.int32, np.uint16, np.int64)


def test_every_order_has_the_whole_of_its_room() -> None:
    text = " ".join(f"w{k}" for k in range(3000))
    features = BagReader(4, 12).read([text]).features
    for low, high in ((0, 1024), (1024, 2048), (2048, 4096)):
        used = features[(features >= low) & (features < high)]
        assert used.min() < low + 32
        assert used.max() >= high - 32
        assert len(used) > 0.9 * (high - low)


def test_few_buckets_add_the_counts_of_what_they_share() -> None:
    text = " ".join(f"w{k}" for k in range(500))
    bags = BagReader(1, 8).read([text])
    assert len(bags.features) <= 64
    assert bags.counts.sum() == 500


def test_a_word_beyond_the_largest_count() -> None:
    bags = BagReader(1, 16).read(["a " * 70_000])
    assert bags.counts.tolist() == [module.MOST_SEEN] == [65_535]


ROWS = [[], [0], [3, 1, 1, 8], [8, 7, 6, 5, 4, 3, 2, 1, 0]]


@pytest.mark.parametrize("rows", ROWS, ids=len)
@pytest.mark.parametrize("seed", range(4))
def test_take_and_places(seed: int, rows: list[int]) -> None:
    bags, wanted = drawn(seed), np.array(rows, np.int64)
    plain = as_counters(bags)
    assert as_counters(bags.take(wanted)) == [plain[row] for row in rows]
    owner = [row for row, bag in enumerate(plain) for _ in bag]
    assert bags.places_of(wanted).tolist() == [row in rows for row in owner]


@pytest.mark.parametrize("seed", range(4))
def test_only_and_numbered(seed: int) -> None:
    bags = drawn(seed)
    even: NDArray[np.bool_] = bags.features % 2 == 0
    assert as_counters(bags.only(even)) == [
        Counter({f: n for f, n in b.items() if f % 2 == 0}) for b in as_counters(bags)
    ]
    kept = np.array([1, 4, 5, 11], np.int32)
    numbered = Known.of(kept, 8).numbered(bags)
    names = {int(bucket): k for k, bucket in enumerate(kept)}
    assert as_counters(numbered) == [
        Counter({names[f]: n for f, n in bag.items() if f in names}) for bag in as_counters(bags)
    ]
    assert len(numbered) == len(bags)


@pytest.mark.parametrize("bits", [10, 20])
def test_up_to_an_order(bits: int) -> None:
    texts = ["not good at all", "good", "", "a b a b a b"]
    wide = BagReader(3, bits).read(texts)
    for order in (1, 2, 3):
        assert same(wide.up_to(order, bits), BagReader(order, bits).read(texts))


@pytest.mark.parametrize("rows", ROWS, ids=len)
@pytest.mark.parametrize("least", [1, 2, 4])
def test_features_in_documents(rows: list[int], least: int) -> None:
    bags = drawn(5)
    plain = as_counters(bags)
    found = features_in_documents(bags, np.array(rows, np.int64), least).tolist()
    assert found == [f for f in range(12) if sum(f in plain[row] for row in set(rows)) >= least]


@pytest.mark.parametrize("rows", ROWS, ids=len)
@pytest.mark.parametrize("kinds", [2, 3])
def test_texts_with_feature(rows: list[int], kinds: int) -> None:
    bags = drawn(6)
    classes = np.random.default_rng(1).integers(kinds, size=len(bags))
    plain = as_counters(bags)
    expected = [[sum(f in plain[r] and classes[r] == k for r in set(rows)) for k in range(kinds)] for f in range(14)]
    assert texts_with_feature(bags, np.array(rows, np.int64), classes, 14, kinds).tolist() == expected
