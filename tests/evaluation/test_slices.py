"""Who belongs to which slice: by hand, and as properties of any texts."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.core.errors import UsageError
from seqlab.evaluation.slices import LENGTHS, Slice, leaning_of, slice_errors, slices_of, words_seen


def members(slices: list[Slice], name: str) -> list[int]:
    found = [piece for piece in slices if piece.name.startswith(name)]
    assert len(found) == 1
    return np.flatnonzero(found[0].members).tolist()


def test_lengths_are_quarters_with_their_limits() -> None:
    texts = ["w " * n for n in (8, 1, 5, 2, 7, 3, 6, 4)]
    slices = slices_of(texts, known_words=None, leaning=None)
    lengths = [piece for piece in slices if piece.name.startswith(LENGTHS)]
    assert [int(piece.members.sum()) for piece in lengths] == [2, 2, 2, 2]
    assert members(slices, "short (up to 2 words)") == [1, 3]
    assert members(slices, "rather short (3 to 4 words)") == [5, 7]
    assert members(slices, "rather long (5 to 6 words)") == [2, 6]
    assert members(slices, "long (more than 6 words)") == [0, 4]


def test_equal_lengths_are_one_slice() -> None:
    names = [piece.name for piece in slices_of(["a b"] * 5, known_words=None, leaning=None)]
    assert names == ["short (up to 2 words)", "without negation", "without contrast"]


def test_negation_and_contrast() -> None:
    texts = ["I don't care", "Nothing, however, works", "a knot, a button", "Good. On the other hand, bad", "no"]
    slices = slices_of(texts, known_words=None, leaning=None)
    assert members(slices, "with negation") == [0, 1, 4]
    assert members(slices, "without negation") == [2, 3]
    assert members(slices, "with contrast") == [1, 3]
    assert members(slices, "without contrast") == [0, 2, 4]


def test_rare_words_are_those_never_seen_in_training() -> None:
    known = words_seen(["A fine FILM", "it’s good"])
    assert known == {"a", "fine", "film", "it's", "good"}
    texts = ["a film", "zyx film", "Fine", "It's good", "good", "a a a zyx", "a", "film"]
    slices = slices_of(texts, known_words=known, leaning=None)
    assert members(slices, "rare words (at least 25.0% unseen)") == [1, 5]
    assert members(slices, "familiar words") == [0, 2, 3, 4, 6, 7]
    few = slices_of(["a"] * 9 + ["zyx"], known_words=known, leaning=None)
    assert members(few, "rare words (some unseen)") == [9]
    none = slices_of(["a", "film"], known_words=known, leaning=None)
    assert members(none, "familiar words") == [0, 1]
    assert not any(piece.name.startswith("rare") for piece in none)


def test_mixed_sentiment_needs_two_different_words_each_way() -> None:
    leaning = {"good": 2.0, "fine": 1.0, "bad": -1.0, "dull": -3.0, "so": 0.9}
    texts = ["good fine bad dull", "good good bad dull", "so good bad dull", "Fine, BAD, good but dull", "meh"]
    slices = slices_of(texts, known_words=None, leaning=leaning)
    assert members(slices, "mixed sentiment") == [0, 3]
    assert members(slices, "not mixed") == [1, 2, 4]
    stricter = slices_of(texts, known_words=None, leaning=leaning, strong=1.5)
    assert members(stricter, "not mixed") == [0, 1, 2, 3, 4]


def test_leaning_is_the_log_odds_of_texts_with_the_word() -> None:
    texts = ["good good", "good film", "film", "bad film", "once"]
    leaning = leaning_of(texts, np.array([True, True, False, False, False]), least=2)
    assert sorted(leaning) == ["film", "good"]
    assert leaning["good"] == pytest.approx(math.log((3 / 4) / (1 / 5)))
    assert leaning["film"] == pytest.approx(math.log((2 / 4) / (3 / 5)))


@given(st.lists(st.text(alphabet="ab .,", max_size=12) | st.sampled_from(["not a", "a but b", "b never"]), max_size=12))
def test_each_family_of_slices_parts_the_texts(texts: list[str]) -> None:
    slices = slices_of(texts, known_words={"a"}, leaning={"a": 1.0, "b": -1.0})
    families = [LENGTHS, ("with n", "without n"), ("with c", "without c"), ("rare", "famil"), ("mixed", "not mixed")]
    for family in families:
        belong = [piece.members for piece in slices if piece.name.startswith(family)]
        assert (np.sum(belong, 0) == 1).all() if texts else not belong
    wrong = np.arange(len(texts)) % 2 == 0
    for piece, rate in slice_errors(slices, wrong):
        errors, n = rate.hits, rate.n
        assert n == sum(piece.members.tolist()) > 0
        assert errors == sum(w and m for w, m in zip(wrong.tolist(), piece.members.tolist(), strict=True))


@given(st.permutations(["not a b", "a but b c", "x y", "a", "good bad", "a a a a a z"]))
def test_the_order_of_the_texts_does_not_matter(texts: list[str]) -> None:
    def by_name(texts: list[str]) -> dict[str, list[str]]:
        slices = slices_of(texts, known_words={"a", "b"}, leaning=None)
        return {piece.name: sorted(np.array(texts)[piece.members].tolist()) for piece in slices}

    assert by_name(texts) == by_name(sorted(texts))


def test_texts_of_one_author_widen_the_interval() -> None:
    slices, wrong = slices_of(["a"] * 8, known_words=None, leaning=None), np.array([True, True] + [False] * 6)
    (_, alone), *_ = slice_errors(slices, wrong)
    (_, tied), *_ = slice_errors(slices, wrong, np.arange(8) // 2)
    assert tied.high > alone.high


def test_decisions_of_other_texts_are_refused() -> None:
    slices = slices_of(["a", "b"], known_words=None, leaning=None)
    with pytest.raises(UsageError, match="2 texts and there are 3 decisions"):
        slice_errors(slices, np.zeros(3, bool))
