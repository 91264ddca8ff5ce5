"""Words by numpy against words by hand: one text at a time, one character at a time."""

from __future__ import annotations

import subprocess
import sys
import unicodedata
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seqlab.data import words as module
from seqlab.data.words import LETTER, SIGN, SPACE, Words, blocks_of, ngrams, read_words

NO_SPACES = (
    *("CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA"),
    *(
        "COMBINING KATAKANA",
        "OLD CHINESE",
        "VIETNAMESE ALT",
        "HENTAIGANA",
        "TANGUT",
        "KHITAN",
        "NUSHU",
        "THAI",
        "LAO",
        "MYANMAR",
        "KHMER",
    ),
)
ODD = "aAbZßéñİΣςıǅ_09٣½ʼ'’''\u0301\u20e3 \t\n\r\x00\x85\u00ad\u200b\u200d.,!?-—“”€+❤\ufe0f😀👍🏽字仮カﾞｶあกำລမខ한ꓐ"
LETTERS = st.one_of(st.sampled_from(ODD), st.characters(), st.just("\ud800"), st.just("\udfff"), st.just("\U0002a6d6"))
TEXTS = st.lists(st.text(LETTERS, max_size=24), max_size=6)


def kind(character: str) -> int:
    """What a character is, from its Unicode category and name alone."""
    point = ord(character)
    if 0x20000 <= point < 0xE0000:
        return SIGN
    category = unicodedata.category(character)
    if category[0] in "ZC" or "VARIATION SELECTOR-" in unicodedata.name(character, ""):
        return SPACE
    name = unicodedata.name(character, "TANGUT, which older Pythons do not name")
    if name.startswith(NO_SPACES):
        return SIGN
    return LETTER if category[0] in "LMN" or character == "_" else SIGN


def plain_words(text: str) -> list[tuple[str, int, int]]:
    """The words of a text with their spans in its lower case, found by walking through it."""
    text = text.lower().replace("’", "'")
    found, start = [], 0
    while start < len(text):
        end = start + 1
        if kind(text[start]) == LETTER:
            while end < len(text) and (kind(text[end]) == LETTER or joins(text, end)):
                end += 1
        if kind(text[start]) != SPACE:
            found.append((text[start:end], start, end))
        start = end
    return found


def joins(text: str, k: int) -> bool:
    return text[k] == "'" and kind(text[k - 1]) == LETTER and k + 1 < len(text) and kind(text[k + 1]) == LETTER


def spans(words: Words, k: int) -> list[tuple[int, int]]:
    own = slice(words.offsets[k], words.offsets[k + 1])
    return list(zip(words.starts[own].tolist(), words.ends[own].tolist(), strict=True))


def codes_of(text: str) -> list[int]:
    return read_words([text]).codes.tolist()


@example(["don't", "don’t 'tis dogs' a''b a'b'c 'x'", "", "İstanbul I"])
@example(["İİİ x", "a b", "c"])
@example(["❤️good 1️⃣", "字a字", "สวัสดี", "\x00a\x00", "a\ud800b"])
@given(TEXTS)
def test_words_are_those_found_by_hand(texts: list[str]) -> None:
    words = read_words(texts)
    plain = [plain_words(text) for text in texts]
    assert len(words) == len(texts)
    assert [spans(words, k) for k in range(len(texts))] == [[(s, e) for _, s, e in found] for found in plain]
    names = [name for found in plain for name, _, _ in found]
    code_of = dict(zip(names, words.codes.tolist(), strict=True))
    assert [code_of[name] for name in names] == words.codes.tolist()  # the same word, the same code
    assert len(set(code_of.values())) == len(code_of)  # another word, another code


def test_every_character_of_the_first_two_planes_is_what_its_name_says() -> None:
    kinds = module._kinds()
    wrong = [hex(point) for point in range(0x20000) if kinds[point] != kind(chr(point))]
    assert not wrong
    assert (kinds[0xE0000:] == SPACE).all()
    assert (kinds[0x20000:0xE0000] == SIGN).all()


@given(TEXTS)
def test_texts_do_not_see_each_other(texts: list[str]) -> None:
    together = read_words(texts)
    alone = [read_words([text]) for text in texts]
    for name in ("codes", "starts", "ends"):
        parts = [value for words in alone for value in getattr(words, name).tolist()]
        assert getattr(together, name).tolist() == parts
    assert np.array_equal(np.diff(together.offsets), [len(words.codes) for words in alone])


@pytest.mark.parametrize("block", [1, 7, 64])
@given(texts=TEXTS)
def test_blocks_partition_the_texts(block: int, texts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_CHARACTERS", block)
        blocks = list(blocks_of(texts))
        pieces = [read_words(texts[first:last]).codes for first, last in blocks]
    assert [k for first, last in blocks for k in range(first, last)] == list(range(len(texts)))
    assert all(last == first + 1 or sum(len(t) + 1 for t in texts[first:last]) <= block for first, last in blocks)
    for first, last in blocks[:-1]:  # the next text would not have fitted
        assert sum(len(t) + 1 for t in texts[first : last + 1]) > block
    assert np.array_equal(np.concatenate([np.zeros(0, np.uint64), *pieces]), read_words(texts).codes)


def test_a_text_longer_than_a_block() -> None:
    line = "Don't panic, it's only 字 a long text. "
    times = module.BLOCK_CHARACTERS // len(line) + 2
    texts = ["before", line * times, "after"]
    assert list(blocks_of(texts)) == [(0, 1), (1, 2), (2, 3)]
    words, once = read_words(texts), read_words([line])
    own = words.codes[words.offsets[1] : words.offsets[2]]
    assert np.array_equal(own.reshape(times, -1), np.tile(once.codes, (times, 1)))
    assert words.codes[-1] == codes_of("after")[0]


def plain_ngrams(words: list[list[int]], order: int) -> list[list[tuple[int, ...]]]:
    return [[tuple(row[k : k + order]) for k in range(len(row) - order + 1)] for row in words]


@pytest.mark.parametrize("order", [1, 2, 3, 5, 8])
@given(texts=st.lists(st.text("ab c.", max_size=16), max_size=6))
def test_ngrams_never_cross_texts(order: int, texts: list[str]) -> None:
    words = read_words(texts)
    rows = [words.codes[a:b].tolist() for a, b in zip(words.offsets[:-1], words.offsets[1:], strict=True)]
    expected = plain_ngrams(rows, order)
    codes, owner = ngrams(words, order)
    assert owner.tolist() == [k for k, row in enumerate(expected) for _ in row]
    grams = [gram for row in expected for gram in row]
    code_of = dict(zip(grams, codes.tolist(), strict=True))
    assert [code_of[gram] for gram in grams] == codes.tolist()
    assert len(set(code_of.values())) == len(code_of)


def test_an_ngram_depends_on_the_order_of_its_words() -> None:
    for order, (one, two) in {2: ("good bad", "bad good"), 3: ("a b c", "a c b")}.items():
        assert ngrams(read_words([one]), order)[0][0] != ngrams(read_words([two]), order)[0][0]


def test_upper_bits_spread_evenly() -> None:
    """Buckets are chosen by them: of 20,000 words in 2¹⁶, as many stay free as chance leaves."""
    codes = read_words([" ".join(f"w{k}" for k in range(20_000))]).codes
    for shift in (48, 40, 0):
        used = len(np.unique((codes >> np.uint64(shift)) & np.uint64(0xFFFF)))
        expected = 65536 * (1 - np.exp(-20_000 / 65536))
        assert abs(used - expected) < 5 * np.sqrt(expected * 0.3)


PINNED = {"the": 3937174269011434772, "don't": 15456580647291384809, "字": 4341216452701835489}


def test_codes_are_the_same_in_another_process(ask: Callable[[str], str]) -> None:
    asked = "from seqlab.data.words import read_words as r; print(r(['the don’t 字']).codes.tolist())"
    assert ask(asked) == str(list(PINNED.values()))
    assert codes_of("the don't 字") == list(PINNED.values())


@pytest.fixture
def ask() -> Callable[[str], str]:
    def run(code: str) -> str:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    return run
