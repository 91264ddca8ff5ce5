"""Texts as bags of words and word n-grams, hashed into buckets.

Words have the first quarter of the buckets to themselves, pairs of words the second, longer n-grams share the rest.
Each feature of a text stands once in its bag, with how often it was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqlab.data.words import Words, blocks_of, ngrams, read_words

Places = NDArray[np.int64]
Features = NDArray[np.int32]
MOST_SEEN = 65_535  # a count beyond it is not told apart


@dataclass(frozen=True)
class Bags:
    """Those of text k are `features[offsets[k]:offsets[k + 1]]`, ascending."""

    features: Features
    counts: NDArray[np.uint16]
    offsets: Places

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, rows: NDArray[np.int64]) -> Bags:
        """The bags of some texts, in this order."""
        sizes = np.diff(self.offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        places = np.repeat(self.offsets[rows] - offsets[:-1], sizes) + np.arange(offsets[-1])
        return Bags(self.features[places], self.counts[places], offsets)

    def places_of(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which places belong to some texts."""
        wanted = np.zeros(len(self), np.bool_)
        wanted[rows] = True
        return np.repeat(wanted, np.diff(self.offsets))

    def up_to(self, order: int, bits: int) -> Bags:
        """Of buckets, those of n-grams up to an order; orders above 2 share theirs, so that all of them stay."""
        return self if order > 2 else self.only(self.features < first_bucket(order + 1, bits))

    def only(self, wanted: NDArray[np.bool_], features: Features | None = None) -> Bags:
        """Without the places that are not wanted; `features` renames those that there were."""
        places = np.flatnonzero(wanted)
        renamed = self.features if features is None else features
        return Bags(renamed[places], self.counts[places], np.searchsorted(places, self.offsets))


@dataclass(frozen=True)
class BagReader:
    """Reads texts into bags of buckets: word n-grams up to an order, 2^`bits` buckets."""

    order: int
    bits: int

    def read(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Bags:
        """`progress` hears how many texts have been read."""
        blocks = []
        for first, last in blocks_of(texts):
            blocks.append(self._read_block(read_words(texts[first:last])))
            if progress is not None:
                progress(last)
        if not blocks:
            return Bags(np.zeros(0, np.int32), np.zeros(0, np.uint16), np.zeros(1, np.int64))
        sizes = np.concatenate([np.diff(block.offsets) for block in blocks])
        features, counts = (np.concatenate([getattr(b, name) for b in blocks]) for name in ("features", "counts"))
        return Bags(features, counts, np.concatenate([[0], np.cumsum(sizes)]))

    def _read_block(self, words: Words) -> Bags:
        """Sort (text, bucket) as one number each: equal ones then stand side by side."""
        bits = np.uint64(self.bits)
        keys = []
        for order in range(1, self.order + 1):
            codes, owner = ngrams(words, order)
            keys.append((owner.astype(np.uint64) << bits) | self._buckets(codes, order))
        found = np.sort(np.concatenate(keys))
        first = np.flatnonzero(np.concatenate([[True], found[1:] != found[:-1]])) if len(found) else np.zeros(0, int)
        counts = np.diff(first, append=len(found)).clip(max=MOST_SEEN).astype(np.uint16)
        found = found[first]
        features = (found & np.uint64((1 << self.bits) - 1)).astype(np.int32)
        offsets = np.searchsorted(found, np.arange(len(words) + 1, dtype=np.uint64) << bits)
        return Bags(features, counts, offsets)

    def _buckets(self, codes: NDArray[np.uint64], order: int) -> NDArray[np.uint64]:
        """By the upper bits of the code, moved to where its order begins."""
        first, room = first_bucket(order, self.bits), self.bits - (1 if order > 2 else 2)
        return np.uint64(first) + (codes >> np.uint64(64 - room))


def first_bucket(order: int, bits: int) -> int:
    """Where the buckets of an order begin: below stand those of all lower orders."""
    return (0, 1 << (bits - 2), 1 << (bits - 1))[min(order, 3) - 1]


def features_in_documents(bags: Bags, rows: NDArray[np.int64], least: int) -> Features:
    """The features that stand in at least so many of these texts, ascending."""
    found = np.sort(bags.features[bags.places_of(rows)])
    first = np.flatnonzero(np.concatenate([[True], found[1:] != found[:-1]])) if len(found) else np.zeros(0, int)
    kept: Features = found[first][np.diff(first, append=len(found)) >= least]
    return kept


def texts_with_feature(
    bags: Bags, rows: NDArray[np.int64], classes: NDArray[np.int64], size: int, kinds: int
) -> NDArray[np.int64]:
    """How many of these texts have each feature, class by class; `classes` holds that of every text.    (size, K)"""
    owners = np.repeat(classes.astype(np.int32), np.diff(bags.offsets))
    inside = bags.places_of(rows)
    cells = bags.features[inside].astype(np.int64) * kinds + owners[inside]
    return np.bincount(cells, minlength=size * kinds).reshape(size, kinds)


@dataclass(frozen=True)
class Known:
    """The buckets that are kept, numbered in their order: a table from bucket to number, −1 for all others."""

    table: Features

    @classmethod
    def of(cls, kept: Features, bits: int) -> Known:
        table = np.full(1 << bits, -1, np.int32)
        table[kept] = np.arange(len(kept), dtype=np.int32)
        return cls(table)

    def numbered(self, bags: Bags) -> Bags:
        numbers = self.table[bags.features]
        return bags.only(numbers >= 0, numbers)
