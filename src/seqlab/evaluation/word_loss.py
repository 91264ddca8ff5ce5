"""Where the loss of a text falls: on which words, on how rare ones, and on which part of a word or of the text.

A word is a maximal run of non-space. The white space before it belongs to it, that at the end of the text to
the last word. A token counts where it starts; so the words share the whole loss, none of it twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from seqlab.core.types import Surprisals
from seqlab.evaluation.characters import Places, byte_lengths, byte_offsets, is_white, kinds_of
from seqlab.evaluation.statistics import Numbers, block_sums

BANDS = {"never": 0, "1": 1, "2–9": 2, "10–99": 10, "100–999": 100, "1,000 or more": 1000}  # name -> from here on
LAST_PLACE = 10  # tokens of a word from here on are counted together
STRETCHES = 30
FIRST_BYTES = 32  # the shortest stretch of the cold start; each one after is as long as all before it together


@dataclass(frozen=True)
class Share:
    """A part of the text and its share of the loss: sums, from which the means are formed."""

    name: str
    units: int  # words or tokens
    bytes: int
    nats: float

    @property
    def bits(self) -> float:
        return self.nats / math.log(2)

    @property
    def bits_per_unit(self) -> float:
        return self.bits / self.units if self.units else math.nan

    @property
    def bits_per_byte(self) -> float:
        return self.bits / self.bytes if self.bytes else math.nan


@dataclass(frozen=True)
class Words:
    """Every word of a text in order, with what it cost. A text of white space is one word without letters."""

    written: list[str]
    start: Places  # the byte where the word itself begins
    edges: Places  # the bytes where the words' shares of the text begin, and the end
    nats: Numbers

    def __len__(self) -> int:
        return len(self.written)


def words_with_loss(text: str, surprisals: Surprisals) -> Words:
    """Cut the text into words and give each the tokens that start in its share of the text."""
    offsets = byte_offsets(text)
    white = np.concatenate([[True], is_white(kinds_of(text)), [True]])
    first = np.flatnonzero(white[:-2] & ~white[1:-1])
    last = np.flatnonzero(~white[1:-1] & white[2:]) + 1
    edges = np.concatenate([[0], offsets[last[:-1]], offsets[-1:]])
    written = [text[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)] or [""]
    start = offsets[first] if len(first) else np.zeros(1, np.int64)
    return Words(written, start, edges, block_sums(surprisals, edges))


def by_word(words: Words) -> list[Share]:
    """The different words, the most expensive one (over all its occurrences) first."""
    index: dict[str, int] = {}
    which = np.array([index.setdefault(word, len(index)) for word in words.written])
    shares = _shares(list(index), which, np.diff(words.edges), words.nats)
    return sorted(shares, key=lambda share: -share.nats)


def by_frequency(words: Words, counts: Mapping[str, int]) -> list[Share]:
    """Words by how often they occurred in the training text: `counts` as from ``Counter(training_text.split())``."""
    seen = np.array([counts.get(word, 0) for word in words.written])
    band = np.searchsorted(list(BANDS.values()), seen, side="right") - 1
    return _shares(list(BANDS), band, np.diff(words.edges), words.nats)


def by_place_in_word(text: str, surprisals: Surprisals, words: Words) -> list[Share]:
    """Tokens by their place in the word in which they start; those of white space alone have no place."""
    solid_bytes = np.concatenate([[0], np.cumsum(~is_white(np.repeat(kinds_of(text), byte_lengths(text))))])
    solid = solid_bytes[surprisals.end] > solid_bytes[surprisals.start]
    word = np.searchsorted(words.edges[1:-1], surprisals.start, side="right")
    rank = np.concatenate([[0], np.cumsum(solid)])  # solid tokens before each
    place = rank[1:] - rank[np.searchsorted(word, word)]
    names = ["white space", *map(_ordinal, range(1, LAST_PLACE)), f"{_ordinal(LAST_PLACE)} and later"]
    which = np.where(solid, place.clip(0, LAST_PLACE), 0)
    return [share for share in _shares(names, which, surprisals.end - surprisals.start, surprisals.nats) if share.units]


def stretches(n_bytes: int) -> Places:
    """Where equal stretches of the text begin, and the end."""
    count = min(max(n_bytes // (2 * FIRST_BYTES), 1), STRETCHES)
    return np.unique(np.linspace(0, n_bytes, count + 1).round().astype(np.int64))


def cold_start(first_stretch: int) -> Places:
    """The first stretch cut finer and finer towards the beginning: 0, 32, 64, 128, … and its end."""
    doublings = max(0, math.ceil(math.log2(0.75 * first_stretch / FIRST_BYTES)))
    return np.array([0, *(FIRST_BYTES << k for k in range(doublings)), first_stretch])


def stretch_bits_per_byte(per_byte: Numbers, edges: Places) -> Numbers:
    """Σ nats / (ln 2 · bytes) in every stretch, from the nats of every byte."""
    bits: Numbers = np.add.reduceat(per_byte[: edges[-1]], edges[:-1]) / (math.log(2) * np.diff(edges))
    return bits


def _shares(names: list[str], which: Places, sizes: Places, nats: Numbers) -> list[Share]:
    """Units, bytes and nats summed by where they belong."""
    units = np.bincount(which, minlength=len(names)).tolist()
    sums = np.bincount(which, nats, len(names)).tolist()
    lengths = np.bincount(which, sizes, len(names)).astype(np.int64).tolist()
    return [Share(*row) for row in zip(names, units, lengths, sums, strict=True)]


def _ordinal(number: int) -> str:
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number, 'th') }"
