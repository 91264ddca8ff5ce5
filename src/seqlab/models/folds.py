"""Counts that have not seen what they predict: those of a text without one of its folds, for each fold in turn.

A text is cut into F contiguous folds. To predict a token after what stands before it is an event; the counts for a fold
are made of all events without a token of the fold in them:

    a_f(g) = how often g is met in them                                 highest order, and after the beginning
    a_f(g) = how many different tokens stand before g in them           below

This is what `NGramLM.fit` would count if it could leave out events; everything else (discounts, shares) follows.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from seqlab.core.errors import DataError
from seqlab.core.units import human_bytes
from seqlab.models.counting import NOT_SEEN, Grams, Ids, adjusted_counts, at_beginning, count_grams, discounts_from
from seqlab.models.ngram import MOST_TOKENS, Level, NGramLM
from seqlab.models.ngram_rows import RowTables, Smoothed

THREADS = 2
# What counting holds: of the text, of each order's n-gram at every place, of each n-gram, and of it for each fold.
BYTES_PER_TOKEN, BYTES_PER_RANK, BYTES_PER_GRAM, BYTES_PER_FOLD = 40, 12, 80, 8


@dataclass(frozen=True)
class Folded:
    """A text counted as a whole, and without each of its folds."""

    model: NGramLM  # of all folds
    tables: RowTables  # one counting for each fold that is left out
    contexts: tuple[NDArray[np.int32], ...]  # of each order, what the token before each place ends; NOT_SEEN before it
    edges: Ids  # (F + 1,) where the folds begin, and where the last one ends

    def fold_of(self, places: Ids) -> Ids:
        return np.searchsorted(self.edges, places, side="right") - 1

    def contexts_at(self, places: Ids) -> list[Ids]:
        """What stands before these places of the text, as each order knows it."""
        return [known[places].astype(np.int64) for known in self.contexts]

    def expected(self, places: Ids) -> Tensor:
        """ln p of every token at these places, by the counts of the other folds.    (B, T) -> (B, T, V)"""
        flat = places.reshape(-1)
        return self.tables.log_rows(self.contexts_at(flat), self.fold_of(flat)).view(*places.shape, -1)


def count_folds(ids: NDArray[Any], vocab_size: int, order: int, folds: int, most_bytes: float = math.inf) -> Folded:
    """Count a text of ids below `vocab_size` as a whole and without each fold; refuses what needs more memory."""
    if len(ids) > MOST_TOKENS:
        raise DataError(f"n-grams count a text of at most {MOST_TOKENS:,} tokens; this one has {len(ids):,}")
    tokens = np.concatenate([[vocab_size], ids]).astype(np.int64)
    counted, ranks, needed = [], [], len(tokens) * BYTES_PER_TOKEN
    for k, (grams, here) in enumerate(count_grams(tokens, vocab_size + 1, order, last_ranks=True), start=1):
        counted.append(grams)
        ranks.append(here)
        needed += len(tokens) * BYTES_PER_RANK + len(grams.keys) * (BYTES_PER_GRAM + BYTES_PER_FOLD * folds)
        if needed > most_bytes:
            raise DataError(
                f"counting n-grams of order {order} in {len(ids):,} tokens needs more than the "
                f"{human_bytes(most_bytes)} of memory that can be had here; "
                + (f"--order {k - 1} would fit" if k > 1 else "say --guide none")
            )
    adjusted = list(adjusted_counts(counted, vocab_size))
    levels = tuple(
        Level(grams.keys, counts, discounts_from(counts), vocab_size + 1, grams.n_contexts)
        for grams, counts in zip(counted, adjusted, strict=True)
    )
    edges = np.arange(folds + 1) * len(ids) // folds
    smoothed = [
        Smoothed(np.empty((folds, len(level.keys)), np.float32), np.empty((folds, level.n_contexts), np.float32))
        for level in levels
    ]

    def without(fold: int) -> None:
        touched = int(edges[fold]), int(edges[fold + 1]) + order - 1
        left = _counts_without(counted, ranks, adjusted, vocab_size, *touched)
        for level, counts, values in zip(levels, left, smoothed, strict=True):
            changed = replace(level, counts=counts, discounts=discounts_from(counts))
            values.own[fold], values.share[fold] = changed.own, changed.shorter_share

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(without, range(folds)))
    contexts = tuple(_before_each(ranks, k, len(ids)) for k in range(len(levels)))
    return Folded(NGramLM(vocab_size, order, levels), RowTables(levels, smoothed, vocab_size), contexts, edges)


def _counts_without(
    counted: list[Grams], ranks: list[Ids], adjusted: list[Ids], begin_id: int, start: int, end: int
) -> list[Ids]:
    """a of every order without the events at start … end − 1 of the text."""
    inside = [
        np.bincount(here[max(0, start + 1 - k) : max(0, end + 1 - k)], minlength=len(grams.keys))
        for k, (grams, here) in enumerate(zip(counted, ranks, strict=True))
    ]
    left = []
    for k, grams in enumerate(counted):
        plain = grams.counts - inside[k]
        if k + 1 == len(counted):
            counts = plain
        else:
            longer = counted[k + 1]
            gone = longer.suffixes[longer.counts == inside[k + 1]]
            counts = adjusted[k] - np.bincount(gone, minlength=len(grams.keys))
            begins = at_beginning(grams, k + 1)
            counts[begins] = plain[begins]
        if k == 0:
            counts[grams.keys == begin_id] = 0
        left.append(counts)
    return left


def _before_each(ranks: list[Ids], k: int, length: int) -> NDArray[np.int32]:
    """The index of the k tokens before each place of the text; the begin id is the token before the first."""
    if k == 0:
        return np.zeros(length, np.int32)
    found = np.full(length, NOT_SEEN, np.int32)
    found[k - 1 :] = ranks[k - 1][: length - k + 1]
    return found
