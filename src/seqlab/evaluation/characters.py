"""What kind of character stands where, and at which byte: upper case, digits, punctuation, white space, letters."""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

from seqlab.data.normalise import code_points

KINDS = ("case", "digits", "punctuation", "line breaks", "other white space", "content")
UPPER, DIGIT, PUNCTUATION, LINE_BREAK, SPACE, LETTER = range(len(KINDS))
CODE_SPACE = 0x110000

Places = NDArray[np.int64]
Kinds = NDArray[np.int8]


@cache
def kind_of(code: int) -> int:
    """The kind of one code point. Marks belong to the letters they modify; title case counts as upper case."""
    character = chr(code)
    if character.isspace():
        return LINE_BREAK if len(f"a{character}a".splitlines()) > 1 else SPACE
    category = unicodedata.category(character)
    if category in ("Lu", "Lt"):
        return UPPER
    return {"L": LETTER, "M": LETTER, "N": DIGIT}.get(category[0], PUNCTUATION)


def kinds_of(text: str) -> Kinds:
    """The kind of every character (code point)."""
    codes = code_points(text)
    present = np.flatnonzero(np.bincount(codes, minlength=CODE_SPACE))
    table = np.zeros(CODE_SPACE, np.int8)
    table[present] = [kind_of(code) for code in present.tolist()]
    return table[codes]


def is_white(kinds: Kinds) -> NDArray[np.bool_]:
    return np.isin(kinds, (LINE_BREAK, SPACE))


def byte_lengths(text: str) -> Places:
    """How many UTF-8 bytes every character has."""
    codes = code_points(text)
    lengths: Places = 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000).astype(np.int64)
    return lengths


def byte_offsets(text: str) -> Places:
    """The byte at which every character begins, and the end of the text (n + 1)."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(byte_lengths(text))])
