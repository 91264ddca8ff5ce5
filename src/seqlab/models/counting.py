"""Counting n-grams, as interpolated modified Kneser–Ney smoothing needs them.

The adjusted count a of an n-gram is its plain count at the highest order and for what follows the beginning of the
text; below, it is the number of different tokens that stand before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIXED_DISCOUNTS = (0.5, 1.0, 1.5)
NOT_SEEN = -1

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Grams:
    """The different n-grams of one order, in the order of their keys.

    A key is (index of the context among the n-grams one shorter) · symbols + (last token).
    """

    keys: Ids
    counts: Ids
    ends: Ids  # where in the text one occurrence of each ends
    suffixes: Ids  # the index, among the n-grams one shorter, of each without its first token
    n_contexts: int


def count_grams(tokens: Ids, symbols: int, order: int, *, last_ranks: bool = False) -> Iterator[tuple[Grams, Ids]]:
    """Order after order, as far as the text is long enough: the n-grams, and which one begins at each place.

    Each n-gram's index is the context of the next order: keys stay small and exact, without hashing. Which of the
    longest n-grams begins where is only found out if it is asked for.
    """
    contexts, shorter, n_contexts = np.zeros(len(tokens), np.int64), np.zeros(len(tokens), np.int64), 1
    for k in range(1, min(order, len(tokens)) + 1):
        keys, ranks, counts, first = distinct(
            contexts * symbols + tokens[k - 1 :], inverse=last_ranks or k < min(order, len(tokens))
        )
        yield Grams(keys, counts, first + k - 1, shorter[first], n_contexts), ranks
        contexts, shorter, n_contexts = ranks[:-1], ranks[1:], len(keys)


def distinct(keys: Ids, *, inverse: bool) -> tuple[Ids, Ids, Ids, Ids]:
    """The different keys in ascending order, the rank of every key, how often each occurs, and one place of each.

    A key and its place fit into 63 bits together as long as the text is not enormous: sorting those is
    several times faster than sorting indirectly.
    """
    bits = len(keys).bit_length()
    if int(keys.max()).bit_length() + bits <= 63:
        together = np.sort(keys << bits | np.arange(len(keys)))
        order, ascending = together & (1 << bits) - 1, together >> bits
    else:
        order = np.argsort(keys, kind="stable")
        ascending = keys[order]
    new = np.concatenate([[True], ascending[1:] != ascending[:-1]])
    first = np.flatnonzero(new)
    ranks = np.empty(len(keys) if inverse else 0, np.int64)
    if inverse:
        ranks[order] = np.cumsum(new) - 1
    return ascending[first], ranks, np.diff(first, append=len(keys)), order[first]


def adjusted_counts(counted: Sequence[Grams], begin_id: int) -> Iterator[Ids]:
    """a of every n-gram, order after order."""
    for k, grams in enumerate(counted, start=1):
        if k == len(counted):
            adjusted = grams.counts.copy()
        else:
            adjusted = np.bincount(counted[k].suffixes, minlength=len(grams.keys))
            begins = at_beginning(grams, k)
            adjusted[begins] = grams.counts[begins]
        if k == 1:
            adjusted[grams.keys == begin_id] = 0  # read, never predicted
        yield adjusted


def at_beginning(grams: Grams, k: int) -> NDArray[np.bool_]:
    """Which begin with the begin id, before which nothing stands."""
    begins: NDArray[np.bool_] = grams.ends == k - 1
    return begins


def discounts_from(counts: NDArray[Any]) -> tuple[float, ...]:
    """D(1), D(2), D(3+) of one order from its counts of counts."""
    n1, n2, n3, n4 = np.bincount(np.minimum(counts, 5), minlength=6)[1:5].tolist()
    if not (n1 and n2 and n3 and n4):
        return FIXED_DISCOUNTS
    y = n1 / (n1 + 2 * n2)
    discounts = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    if not all(0 < d <= i for i, d in enumerate(discounts, start=1)):
        return FIXED_DISCOUNTS
    return discounts
