"""The gap between domains: its shares leave no rest, and every byte has the class that it should."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import nonsense
from tests.evaluation.random_spans import random_surprisals, texts

from seqlab.core.errors import DataError, UsageError
from seqlab.core.types import Surprisals
from seqlab.evaluation.characters import byte_lengths, byte_offsets
from seqlab.evaluation.gap import CLASSES, byte_classes, explain_gap, nats_per_byte, words_of


def class_names(text: str, known: set[str]) -> list[str]:
    return [CLASSES[k] for k in byte_classes(text, known)]


def by_hand(text: str, known: set[str]) -> list[str]:
    """The classes of the bytes, written a second time without numpy and for ASCII letters and signs alone."""
    names = []
    for word in [w for line in text.splitlines(keepends=True) for w in split_keeping_spaces(line)]:
        core = word.strip("!.,'-")
        before = word.index(core) if core else 0
        for k, c in enumerate(word):
            if core.strip() and core.lower() not in known and before <= k < before + len(core):
                names.append("unknown words")
            elif c == "\n":
                names.append("line breaks")
            elif c == " ":
                names.append("other white space")
            elif c in "!.,'-":
                names.append("punctuation")
            elif c.isdigit():
                names.append("digits")
            else:
                names.append("case" if c.isupper() else "content")
    return names


def split_keeping_spaces(line: str) -> list[str]:
    pieces = [""]
    for c in line:
        if c in " \n" or pieces[-1] in (" ", "\n"):
            pieces.append("")
        pieces[-1] += c
    return [piece for piece in pieces if piece]


@given(st.text("abAB1 \n.'-", max_size=40), st.sets(st.sampled_from(["a", "b", "ab", "a1", "1", "a-b"])))
def test_classes_equal_those_found_one_by_one(text: str, known: set[str]) -> None:
    assert class_names(text, known) == by_hand(text, known)


def test_classes_of_a_line() -> None:
    names = class_names("The “Cät”, 2x\r\n", {"the", "cät"})
    assert names[0] == "case"
    assert names[1:3] == ["content"] * 2
    assert names[3] == "other white space"
    assert names[4:7] == ["punctuation"] * 3  # “ has three bytes
    assert names[7:11] == ["case", "content", "content", "content"]  # ä has two
    assert names[11:15] == ["punctuation"] * 4
    assert names[15:] == ["other white space", "unknown words", "unknown words", "line breaks", "line breaks"]


def test_marks_belong_to_their_letters_and_caseless_letters_are_content() -> None:
    assert set(class_names("नमस्ते", {"नमस्ते"})) == {"content"}
    assert class_names("e\u0301", {"e\u0301"}) == ["content"] * 3


def test_words_are_compared_without_case_and_surrounding_punctuation() -> None:
    assert words_of("The cat's «DOG», -- well-known!\n\tSTRASSE straße") == {
        *("the", "cat's", "dog", "well-known", "strasse")
    }
    assert set(class_names("(dog)", words_of("DOG!"))) == {"content", "punctuation"}


@given(texts)
def test_every_byte_has_a_class_and_the_texts_own_words_are_known(text: str) -> None:
    classes = byte_classes(text, words_of(text))
    assert len(classes) == len(text.encode())
    assert "unknown words" not in {CLASSES[k] for k in classes}


def test_characters_have_as_many_bytes_as_utf8_gives_them() -> None:
    text = "\x7f\x80\u07ff\u0800\uffff\U00010000\U0010ffff"
    assert byte_lengths(text).tolist() == [len(c.encode()) for c in text] == [1, 2, 2, 3, 3, 4, 4]
    assert byte_offsets(text).tolist() == [0, 1, 3, 5, 8, 11, 15, 19]


@given(texts, st.data())
def test_shares_add_up_to_the_gap(text: str, data: st.DataObject) -> None:
    other, own = random_surprisals(text, data), random_surprisals(text, data)
    known = set(data.draw(st.lists(st.sampled_from(sorted(words_of(text)) or ["a"]), max_size=3)))
    gap = explain_gap(text, other, own, known)
    n = len(text.encode())
    assert gap.total == pytest.approx((other.total - own.total) / (math.log(2) * n), rel=1e-12)
    scale = (other.total + own.total) / n
    assert math.fsum(gap.shares.values()) == pytest.approx(gap.total, rel=1e-9, abs=1e-12 * scale)
    assert list(gap.shares) == list(gap.bytes) == list(CLASSES)
    assert sum(gap.bytes.values()) == n


@given(texts, st.data())
def test_bytes_share_their_tokens_nats(text: str, data: st.DataObject) -> None:
    surprisals = random_surprisals(text, data)
    n = len(text.encode())
    expected = np.zeros(n)
    for nats, start, end in zip(surprisals.nats, surprisals.start, surprisals.end, strict=True):
        for place in range(start, end) or [min(start, n - 1)]:
            expected[place] += nats / max(1, end - start)
    np.testing.assert_allclose(nats_per_byte(surprisals, n), expected, rtol=1e-12)


def test_an_empty_text_has_no_bytes_to_share_out() -> None:
    nothing, places = np.zeros(0), np.zeros(0, np.int64)
    empty = Surprisals(nothing, places, places, nothing.astype(bool), nothing)
    found = nats_per_byte(empty, 0)
    assert (found.shape, found.dtype) == ((0,), np.float64)
    end = Surprisals(np.ones(1), np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, bool), np.zeros(1))
    assert nats_per_byte(end, 0).shape == (0,)  # nor where there is a token that writes nothing
    with pytest.raises(UsageError, match="cover 0 bytes and the text has 1:"):
        nats_per_byte(empty, 1)


def test_a_character_model_gives_every_class_its_own_tokens() -> None:
    text = "Ab 1"
    at = np.arange(4)
    none = np.zeros(4)
    own = Surprisals(np.ones(4), at, at + 1, none.astype(bool), none)
    other = Surprisals(np.array([2.0, 4.0, 1.0, 9.0]), at, at + 1, none.astype(bool), none)
    gap = explain_gap(text, other, own, {"ab"})
    expected = dict.fromkeys(CLASSES, 0.0) | {"case": 1.0, "content": 3.0, "unknown words": 8.0}
    assert gap.shares == pytest.approx({name: nats / (4 * math.log(2)) for name, nats in expected.items()})


def test_the_interval_holds_the_total() -> None:
    text = nonsense(9000)
    n = len(text.encode())
    draw, at, none = np.random.default_rng(0), np.arange(n), np.zeros(n)
    own = Surprisals(draw.exponential(1.0, n), at, at + 1, none.astype(bool), none)
    other = Surprisals(own.nats + draw.exponential(0.5, n), at, at + 1, none.astype(bool), none)
    gap = explain_gap(text, other, own, words_of(text))
    assert 0 < gap.interval.low < gap.total < gap.interval.high
    assert gap.interval.high - gap.interval.low < 0.1 * gap.total


def test_refuses_an_empty_text_and_surprisals_of_another() -> None:
    at, none = np.arange(3), np.zeros(3)
    surprisals = Surprisals(np.ones(3), at, at + 1, none.astype(bool), none)
    with pytest.raises(UsageError, match="cover 3 bytes and the text has 4"):
        explain_gap("four", surprisals, surprisals, set())
    with pytest.raises(DataError, match="empty"):
        explain_gap("", surprisals, surprisals, set())
