"""Words and word n-grams of many texts at once, as numbers: a few passes of numpy, no Python loop over words.

A word is a maximal run of letters, marks, digits and underscores in lower case, with apostrophes inside ("don't").
Every other sign is a word by itself, and so is every letter of a script that is written without spaces (ideographs,
kana, Thai …). Control and format characters and variation selectors count as white space. A word is known by a 64-bit
hash of its characters,

    h = mix(Σ_i m(c_i) · B^i  mod 2⁶⁴),   B odd,

whose sums come from one prefix sum over the block: Σ from s to e of m(c_i) B^i, times B^(−s). An n-gram is known by
the hashes of its words in order.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint64]
Places = NDArray[np.int64]

SPACE, LETTER, SIGN = 0, 1, 2
APOSTROPHE, TYPOGRAPHIC = ord("'"), 0x2019
BLOCK_CHARACTERS = 1 << 20  # of text at once: the tables of powers then stay near the processor
CODE_POINTS = 0x110000
BASE = 0x9E3779B97F4A7C15
LAST_LISTED, TAGS = 0x20000, 0xE0000
VARIATIONS = slice(0xFE00, 0xFE10)  # marks that choose how a sign looks: no word begins with one
# Scripts written without spaces between words: Thai and Lao, Burmese, Khmer, kana, ideographs.
WITHOUT_SPACES = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x31F0, 0x31FF)),
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F), (0xF900, 0xFAFF)),
    *((0xFF66, 0xFF9F), (0x16FE0, 0x1B2FF)),
)


@dataclass(frozen=True)
class Words:
    """The words of some texts: those of text k are `codes[offsets[k]:offsets[k + 1]]`."""

    codes: Codes
    offsets: Places
    starts: Places  # where each word starts and ends in its own lower-cased text
    ends: Places

    def __len__(self) -> int:
        return len(self.offsets) - 1


def read_words(texts: Sequence[str]) -> Words:
    """The words of a block of texts."""
    lowered = [text.lower() for text in texts]
    begins = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) + 1 for text in lowered], out=begins[1:])  # one newline between two texts
    joined = "\n".join(lowered)
    letters = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4")
    letters = np.where(letters == TYPOGRAPHIC, np.uint32(APOSTROPHE), letters)
    starts, ends = _spans(letters)
    offsets = np.searchsorted(starts, begins)
    shift = np.repeat(begins[:-1], np.diff(offsets))
    return Words(hashes(letters, starts, ends), offsets, starts - shift, ends - shift)


def blocks_of(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Bounds of neighbouring texts that fill a block each; a longer text is a block of its own."""
    ends = np.cumsum([len(text) + 1 for text in texts])
    first = 0
    while first < len(texts):
        full = (ends[first - 1] if first else 0) + BLOCK_CHARACTERS
        last = max(first + 1, int(np.searchsorted(ends, full, side="right")))
        yield first, last
        first = last


def ngrams(words: Words, order: int) -> tuple[Codes, Places]:
    """Codes of all n-grams of exactly this order, and the number of the text that each stands in."""
    owner = np.repeat(np.arange(len(words)), np.diff(words.offsets))
    codes = words.codes
    if order == 1:
        return codes, owner
    count = max(0, len(codes) - order + 1)
    mixed = codes[:count]
    for k in range(1, order):
        mixed = _mix(mixed * np.uint64(BASE) + codes[k : count + k])
    whole = owner[:count] == owner[order - 1 :][:count]
    return mixed[whole], owner[:count][whole]


def _spans(letters: NDArray[np.uint32]) -> tuple[Places, Places]:
    """Where words start and end."""
    kinds = _kinds()[letters]
    inside = np.zeros(len(letters) + 2, np.bool_)
    inside[1:-1] = kinds == LETTER
    quote = np.flatnonzero(letters == APOSTROPHE) + 1
    inside[quote[inside[quote - 1] & inside[quote + 1]]] = True
    alone = (kinds == SIGN) & ~inside[1:-1]
    starts = np.flatnonzero((inside[1:-1] & ~inside[:-2]) | alone)
    ends = np.flatnonzero((inside[1:-1] & ~inside[2:]) | alone) + 1
    return starts, ends


def hashes(letters: NDArray[np.uint32], starts: Places, ends: Places) -> Codes:
    powers, inverse = _powers(max(len(letters), BLOCK_CHARACTERS))
    sums = np.zeros(len(letters) + 1, np.uint64)
    np.cumsum(_letter_codes()[letters] * powers[: len(letters)], out=sums[1:])
    return _mix((sums[ends] - sums[starts]) * inverse[starts])


def _mix(codes: Codes) -> Codes:
    """A permutation of the 64-bit numbers that lets every bit depend on every other."""
    codes = codes ^ (codes >> np.uint64(32))
    codes = codes * np.uint64(0xD6E8FEB86659FD93)
    codes = codes ^ (codes >> np.uint64(32))
    codes = codes * np.uint64(0xD6E8FEB86659FD93)
    return codes ^ (codes >> np.uint64(32))


@lru_cache(maxsize=1)
def _powers(count: int) -> tuple[Codes, Codes]:
    """B^i and B^(−i) modulo 2⁶⁴, i < count."""
    inverse = pow(BASE, -1, 1 << 64)
    tables = []
    for base in (BASE, inverse):
        table = np.full(count, base, np.uint64)
        table[:1] = 1
        tables.append(np.multiply.accumulate(table))
    return tables[0], tables[1]


@lru_cache(maxsize=1)
def _letter_codes() -> Codes:
    return _mix(np.arange(1, CODE_POINTS + 1, dtype=np.uint64))


@lru_cache(maxsize=1)
def _kinds() -> NDArray[np.uint8]:
    """SPACE, LETTER or SIGN for every code point; beyond the first two planes there are ideographs and tags."""
    kinds = np.full(CODE_POINTS, SIGN, np.uint8)
    kinds[:LAST_LISTED] = [_kind(chr(point)) for point in range(LAST_LISTED)]
    kinds[TAGS:] = kinds[VARIATIONS] = SPACE
    for first, last in WITHOUT_SPACES:
        written = kinds[first : last + 1]
        written[written == LETTER] = SIGN
    return kinds


def _kind(character: str) -> int:
    category = unicodedata.category(character)[0]
    if category in "ZC":
        return SPACE
    return LETTER if category in "LMN" or character == "_" else SIGN
