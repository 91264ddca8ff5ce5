"""Stretches of a text looked up by the thousand: which of many known texts is each of them, exactly.

A stretch is found by the hash of its characters (`words.hashes`), then compared character by character, all of them at
once; texts whose hashes collide are kept apart. So the answer is that of a dictionary of strings, without the strings.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.data.words import CODE_POINTS, Codes, Places, hashes

Letters = NDArray[np.uint32]
NEW = -1
LAST_SPACE = 0x3001  # beyond the ideographic space there is none


def letters_of(text: str) -> Letters:
    """Its code points."""
    return np.frombuffer(text.encode("utf-32-le"), "<u4")


@lru_cache(maxsize=1)
def white_space() -> NDArray[np.bool_]:
    """For every code point whether it is white space, as `str.isspace` and the `\\s` of `re` have it."""
    found = np.zeros(CODE_POINTS, np.bool_)
    found[:LAST_SPACE] = [chr(point).isspace() for point in range(LAST_SPACE)]
    return found


@lru_cache(maxsize=1)
def _bytes_of_letters() -> NDArray[np.uint8]:
    points = np.arange(CODE_POINTS)
    return (1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)).astype(np.uint8)


def bytes_before(letters: Letters) -> Places:
    """How many bytes of UTF-8 stand before each letter, and before the end."""
    before = np.zeros(len(letters) + 1, np.int64)
    np.cumsum(_bytes_of_letters()[letters], out=before[1:])
    return before


def starts_of_words(letters: Letters) -> Places:
    """Where a run of white space with the word after it begins; the text begins one too."""
    space = white_space()[letters]
    begins = np.flatnonzero(space[1:] & ~space[:-1]) + 1
    return np.concatenate([np.zeros(min(1, len(letters)), np.int64), begins])


def ragged(starts: Places, lengths: Places) -> Places:
    """starts[0], starts[0] + 1, … (lengths[0] of them), then those of starts[1], and so on."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total)


class Lexicon:
    """Texts numbered in the order in which they came."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._hashes, self._numbers = np.zeros(0, np.uint64), np.zeros(0, np.int64)  # by hash, ascending
        self._letters = Growing(np.uint32)  # of all texts, one after the other
        self._starts, self._lengths = Growing(np.int64), Growing(np.int64)
        self._colliding: dict[str, int] = {}  # whose hash another text had first
        self.add(list(texts))

    def __len__(self) -> int:
        return self._starts.size

    def add(self, texts: list[str]) -> None:
        """Number new texts, each of them once."""
        if not texts:
            return
        first = len(self)
        letters = letters_of("".join(texts))
        lengths = np.array([len(text) for text in texts], np.int64)
        starts = np.cumsum(lengths) - lengths
        self._starts.extend(starts + self._letters.size)
        self._lengths.extend(lengths)
        self._letters.extend(letters)
        codes, own = np.unique(hashes(letters, starts, starts + lengths), return_index=True)
        place = np.searchsorted(self._hashes, codes)
        free = ~self._is_at(place, codes)
        self._hashes = np.insert(self._hashes, place[free], codes[free])
        self._numbers = np.insert(self._numbers, place[free], first + own[free])
        if free.sum() < len(texts):
            having = set(own[free].tolist())
            self._colliding |= {text: first + k for k, text in enumerate(texts) if k not in having}

    def find(self, text: str, letters: Letters, starts: Places, ends: Places) -> Places:
        """The number of the text that stands from each start to its end, or NEW."""
        codes, lengths = hashes(letters, starts, ends), ends - starts
        place = np.searchsorted(self._hashes, codes)
        known = self._is_at(place, codes)
        found = np.full(len(codes), NEW, np.int64)
        number = self._numbers[place[known]]
        same = self._are_same(letters, starts[known], lengths[known], number)
        found[np.flatnonzero(known)[same]] = number[same]
        if self._colliding:
            for k in np.flatnonzero(known)[~same].tolist():
                found[k] = self._colliding.get(text[starts[k] : ends[k]], NEW)
        return found

    def number(self, text: str, letters: Letters, starts: Places, ends: Places) -> tuple[Places, list[str]]:
        """The number of every stretch, and the texts that are new: they are numbered now, in this order."""
        found = self.find(text, letters, starts, ends)
        unknown = np.flatnonzero(found == NEW)
        if not len(unknown):
            return found, []
        spelt = [text[a:b] for a, b in zip(starts[unknown].tolist(), ends[unknown].tolist(), strict=True)]
        new = {one: len(self) + k for k, one in enumerate(dict.fromkeys(spelt))}
        self.add(list(new))
        found[unknown] = [new[one] for one in spelt]
        return found, list(new)

    def _is_at(self, place: Places, codes: Codes) -> NDArray[np.bool_]:
        if not len(self._hashes):
            return np.zeros(len(codes), np.bool_)
        found: NDArray[np.bool_] = self._hashes[np.minimum(place, len(self._hashes) - 1)] == codes
        return found

    def _are_same(self, letters: Letters, starts: Places, lengths: Places, number: Places) -> NDArray[np.bool_]:
        """Whether the stretches are what their numbers stand for, every character of them."""
        same: NDArray[np.bool_] = self._lengths.filled[number] == lengths
        compared = np.where(same, lengths, 0)
        here = letters[ragged(starts, compared)]
        there = self._letters.filled[ragged(self._starts.filled[number], compared)]
        other = np.zeros(len(here) + 1, np.int64)
        np.cumsum(here != there, out=other[1:])
        ends = np.cumsum(compared)
        same &= other[ends] == other[ends - compared]
        return same


class Growing:
    """An array that is appended to: room is doubled now and then, not made for each piece."""

    def __init__(self, dtype: type) -> None:
        self._room: NDArray[Any] = np.zeros(1024, dtype)
        self.size = 0

    @property
    def filled(self) -> NDArray[Any]:
        return self._room[: self.size]

    def extend(self, values: NDArray[Any]) -> None:
        size = self.size + len(values)
        if size > len(self._room):
            larger = np.zeros(max(size, 2 * len(self._room)), self._room.dtype)
            larger[: self.size] = self.filled
            self._room = larger
        self._room[self.size : size] = values
        self.size = size
