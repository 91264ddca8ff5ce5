"""Tokens found by arithmetic on all characters at once are those of a loop over strings, whatever the text."""

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.data import lexicon, tokenizers
from seqlab.data.bpe import BPETokenizer
from seqlab.data.lexicon import NEW, Growing, Lexicon, bytes_before, letters_of, ragged, white_space
from seqlab.data.pieces import cut_text
from seqlab.data.tokenizers import UNKNOWN, WordTokenizer

GAP_AND_WORD, SPACE_AND_WORD = re.compile(r"(\s*)(\S*)"), re.compile(r"\s*\S+|\s+")
LETTERS = ["a", "b", "ab", "é", "漢", "🙂", "don't", "\u0301", "\ufeff", "\u200b"]
SPACES = [" ", " ", " ", "  ", "\n", "\t", "\r\n", "\xa0", "\u2003", "\u3000", "\x1c", "\x85", "\u2028"]
TEXTS = st.lists(st.sampled_from(LETTERS + SPACES), max_size=40).map("".join)


def plain_words(pieces: Iterable[str]) -> Iterator[list[tuple[str, int]]]:
    """(token, bytes of its span) of a word tokenizer, one match after the other."""
    expected = ""  # the gap that needs no token: none at the start, one space after a word
    for piece in tokenizers._whole_words(pieces):
        tokens: list[tuple[str, int]] = []
        for gap, word in GAP_AND_WORD.findall(piece):
            unusual = gap not in (expected, "")
            if unusual:
                tokens.append((gap, len(gap.encode())))
                expected = ""
            if word:
                tokens.append((word, len(word.encode()) + (0 if unusual else len(gap))))
                expected = " "
            elif gap and not unusual:
                tokens.append((gap, len(gap)))
                expected = ""
        yield tokens


def assert_words_are_plain(tokenizer: WordTokenizer, text: str, pieces: list[str]) -> None:
    number = {word: k for k, word in enumerate(tokenizer.words, start=1)}
    found = list(tokenizer.encode_pieces(pieces))
    expected = list(plain_words(pieces))
    assert len(found) == len(expected)
    for (ids, lengths), tokens in zip(found, expected, strict=True):
        assert ids.tolist() == [number.get(token, UNKNOWN) for token, _ in tokens]
        assert lengths.tolist() == [length for _, length in tokens]
    assert sum(int(lengths.sum()) for _, lengths in found) == len(text.encode())


def pieces_of(text: str, seed: int) -> list[str]:
    """The text cut anywhere."""
    draw = random.Random(seed)
    edges = sorted({0, len(text), *(draw.randint(0, len(text)) for _ in range(3))})
    return [text[a:b] for a, b in itertools.pairwise(edges) if a < b]


@given(text=TEXTS, learnt=TEXTS, seed=st.integers(0, 99))
def test_words_are_those_of_the_plain_loop(text: str, learnt: str, seed: int) -> None:
    tokenizer = WordTokenizer.fit(pieces_of(learnt, seed), 8)
    assert_words_are_plain(tokenizer, text, pieces_of(text, seed))


@given(text=TEXTS, seed=st.integers(0, 99))
def test_the_vocabulary_is_that_of_plain_counting(text: str, seed: int) -> None:
    pieces = pieces_of(text, seed)
    counts = Counter(token for tokens in plain_words(pieces) for token, _ in tokens)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    tokenizer = WordTokenizer.fit(pieces, 4)
    assert tokenizer.words == ranked[:3]
    gaps = sum(counts[word] for word in ranked[3:] if word.isspace())
    assert tokenizer.rare.gap_tokens == gaps
    assert tokenizer.rare.word_tokens == sum(counts[word] for word in ranked[3:]) - gaps
    assert sorted(tokenizer.rare.words) == sorted(ranked[3:])


@pytest.fixture(scope="module")
def merges() -> BPETokenizer:
    return BPETokenizer.fit(["ab ab aba\n don't é漢 🙂🙂 \xa0a"] * 40, 300)


@given(text=TEXTS, seed=st.integers(0, 99))
def test_merged_words_are_those_of_the_library(merges: BPETokenizer, text: str, seed: int) -> None:
    pieces = pieces_of(text, seed)
    found = list(merges.encode_pieces(pieces))
    for piece, (ids, lengths) in zip(pieces, found, strict=True):
        words = SPACE_AND_WORD.findall(piece)
        assert ids.tolist() == [i for word in words for i in merges._library.encode(word).ids]
        assert int(lengths.sum()) == len(piece.encode())


def test_memory_that_is_full_is_emptied_and_changes_nothing(
    merges: BPETokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = " ".join(f"ab{k % 37}" for k in range(500))
    whole = [ids.tolist() for ids, _ in merges.encode_pieces([text, text[::-1], text])]
    monkeypatch.setattr(BPETokenizer, "most_remembered", 3)
    assert [ids.tolist() for ids, _ in merges.encode_pieces([text, text[::-1], text])] == whole


def test_hashes_that_collide_are_told_apart(monkeypatch: pytest.MonkeyPatch, merges: BPETokenizer) -> None:
    """With a hash that is next to nothing, every answer comes from the comparison of characters."""
    text = "ab ba\nba ab  abb bba 漢a a漢 ab\tba " * 30
    words = [ids.tolist() for ids, _ in merges.encode_pieces(cut_text(text))]
    monkeypatch.setattr(lexicon, "hashes", lambda letters, starts, ends: ((ends - starts) % 2).astype(np.uint64))
    tokenizer = WordTokenizer.fit([text], 6)
    assert_words_are_plain(tokenizer, text, [text])
    assert [ids.tolist() for ids, _ in merges.encode_pieces(cut_text(text))] == words
    known = Lexicon(["a", "bc"])
    assert known.find("abc", letters_of("abc"), np.array([0]), np.array([3])).tolist() == [NEW], "a and bc in a row"


def test_texts_are_numbered_as_they_come() -> None:
    known = Lexicon(["b", "a", "漢字"])
    text = "a漢字bc漢"
    starts, ends = np.array([0, 1, 3, 4, 5]), np.array([1, 3, 4, 5, 6])
    assert known.find(text, letters_of(text), starts, ends).tolist() == [1, 2, 0, NEW, NEW]
    numbers, new = known.number(text, letters_of(text), starts, ends)
    assert (numbers.tolist(), new, len(known)) == ([1, 2, 0, 3, 4], ["c", "漢"], 5)
    assert Lexicon().find("a", letters_of("a"), np.array([0]), np.array([1])).tolist() == [NEW]


def test_the_tables_are_those_of_python() -> None:
    space = white_space()
    assert [k for k in range(0x110000) if space[k]] == [k for k in range(0x110000) if chr(k).isspace()]
    assert all(bool(re.fullmatch(r"\s", chr(k))) for k in np.flatnonzero(space).tolist())
    text = "aé漢🙂"
    assert bytes_before(letters_of(text)).tolist() == [0, 1, 3, 6, 10]
    assert ragged(np.array([5, 9, 0]), np.array([2, 0, 3])).tolist() == [5, 6, 0, 1, 2]
    assert ragged(np.zeros(0, np.int64), np.zeros(0, np.int64)).tolist() == []


def test_a_growing_array_keeps_what_it_has() -> None:
    growing, expected = Growing(np.int64), list[int]()
    for k in range(60):
        growing.extend(np.arange(k * 7, k * 7 + k))
        expected += range(k * 7, k * 7 + k)
    assert growing.filled.tolist() == expected
    assert growing.size == len(expected)
