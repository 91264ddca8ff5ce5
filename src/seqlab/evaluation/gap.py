"""Why a model reads the text of another domain worse than that domain's own model, split without a rest.

A model of domain i and the model of domain j both score text j, which has n bytes:

    gap = bits per byte (i on j) − bits per byte (j on j) = Σ_b (s_i(b) − s_j(b)) / (ln 2 · n)

s(b) are the nats of byte b: every token's surprisal, spread evenly over the bytes that it covers. Every byte
belongs to exactly one class, so the sums over the classes add up to the gap. For a model of single bytes or
characters this is the chain rule itself; for longer tokens it is an even spread, a convention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import DataError, UsageError
from seqlab.core.types import Surprisals
from seqlab.evaluation.characters import KINDS, PUNCTUATION, Kinds, Places, byte_lengths, is_white, kinds_of
from seqlab.evaluation.statistics import Interval, Numbers, block_edges, block_sums, compare, documents_of

CLASSES = ("unknown words", *KINDS)  # a byte's class is its place here
UNKNOWN_WORDS = 0  # the place of that class
METHOD = (
    "Every token's surprisal is spread evenly over its bytes (exact by the chain rule for characters, a convention "
    "for longer tokens); every byte belongs to one class: words that the training text never had (compared without "
    "case and surrounding punctuation), else upper-case letters, digits, punctuation, line breaks, other white "
    "space, and the other letters of known words as content; so the shares add up to the gap."
)


@dataclass(frozen=True)
class Gap:
    """How much worse the other domain's model reads a text, in bits per byte."""

    total: float
    interval: Interval  # of the total
    shares: dict[str, float]  # class -> its part of the total
    bytes: dict[str, int]  # class -> how much of the text it is


def explain_gap(
    text: str, other: Surprisals, own: Surprisals, known_words: Set[str], documents: Sequence[int] = (0,)
) -> Gap:
    """The gap between `other`, whose training text had the `known_words`, and the text's `own` model.

    `documents` says at which bytes those of the text start.

    share of class c = Σ_{b in c} (s_other(b) − s_own(b)) / (ln 2 · n)
    """
    content = text.encode()
    if not content:
        raise DataError("the text is empty: a gap needs at least one byte")
    lost = nats_per_byte(other, len(content)) - nats_per_byte(own, len(content))
    classes = byte_classes(text, known_words)
    nats = np.bincount(classes, lost, len(CLASSES))
    sizes = np.bincount(classes, minlength=len(CLASSES))
    edges = block_edges(content, documents)
    numbers = documents_of(edges, documents)
    difference = compare(block_sums(other, edges), block_sums(own, edges), np.diff(edges), documents=numbers)
    per_byte = nats / (math.log(2) * len(content))
    return Gap(
        total=(other.total - own.total) / (math.log(2) * len(content)),
        interval=difference.interval,
        shares=dict(zip(CLASSES, per_byte.tolist(), strict=True)),
        bytes=dict(zip(CLASSES, sizes.tolist(), strict=True)),
    )


def nats_per_byte(surprisals: Surprisals, n_bytes: int) -> Numbers:
    """Every token's nats spread evenly over its bytes; a token without bytes pays at the byte where it stands."""
    covered = int(surprisals.end.max(initial=0))
    if covered != n_bytes:
        raise UsageError(f"the surprisals cover {covered:,} bytes and the text has {n_bytes:,}: score this very text")
    if not n_bytes:
        return np.zeros(0)
    lengths = np.maximum(surprisals.end - surprisals.start, 1)
    first = np.cumsum(lengths) - lengths  # of each token among all the bytes that the tokens cover
    places = np.repeat(surprisals.start - first, lengths) + np.arange(lengths.sum())
    shares = np.repeat(surprisals.nats / lengths, lengths)
    return np.bincount(np.minimum(places, n_bytes - 1), shares, n_bytes).astype(np.float64)


def byte_classes(text: str, known_words: Set[str]) -> NDArray[np.int8]:
    """The class of every UTF-8 byte, as its place in `CLASSES`; what surrounds an unknown word keeps its own class."""
    kinds = kinds_of(text)
    classes = kinds + np.int8(1)
    first, last = _cores(kinds)
    unknown = np.array([word not in known_words for word in _normalised(text, first, last)], bool)
    depth = np.zeros(len(kinds) + 1, np.int8)
    depth[first[unknown]] += 1
    depth[last[unknown]] -= 1
    classes[np.cumsum(depth[:-1]) > 0] = UNKNOWN_WORDS
    return np.repeat(classes, byte_lengths(text))


def words_of(text: str) -> set[str]:
    """The words of a text in the form in which they are compared: without case and surrounding punctuation."""
    return set(_normalised(text, *_cores(kinds_of(text))))


def _cores(kinds: Kinds) -> tuple[Places, Places]:
    """[first, last) of every word without the punctuation around it; words of nothing else have none."""
    white = is_white(kinds)
    words = np.cumsum(white)  # the same number within a word, another in the next
    solid = np.flatnonzero(~white & (kinds != PUNCTUATION))
    if not len(solid):
        return solid, solid
    changes = np.diff(words[solid]) > 0
    return solid[np.append(True, changes)], solid[np.append(changes, True)] + 1


def _normalised(text: str, first: Places, last: Places) -> list[str]:
    return [text[a:b].casefold() for a, b in zip(first.tolist(), last.tolist(), strict=True)]
