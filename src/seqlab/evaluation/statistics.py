"""How sure a figure is: intervals, paired tests between models, Holm's correction.

The tokens of a text are not independent. The text is cut into blocks of about 250 bytes at white space; a token belongs
to the block in which it starts. With s_b nats and n_b bytes in block b, bits per byte are
Σ s_b / (ln 2 · Σ n_b); `spread` says how far that strays, neighbouring blocks being alike and documents strangers. An
interval is the figure ± what its spread reaches with probability 95 %; two models are compared by the interval of their
difference on the same blocks.

What is scored need not be nats: `scale` is how much of a score makes one unit of the figure. ln 2 nats are a bit;
errors are counted as they are, scale 1. Models that were trained with several seeds are judged in `seeds`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.types import Surprisals
from seqlab.evaluation.spread import FEW_DOCUMENTS, Spread, spread_of

BLOCK_BYTES = 250
FEW_BLOCKS = 120  # about 30 kB: below, the interval is called unreliable
FEW_ROWS = 30  # the same of rows, which are independent
FEW_STRETCHES = 10  # independent ones that the correlation leaves: below, the interval is called too narrow
LEVEL = 0.95
NORMAL = 1.96  # standard errors that a 95 % interval reaches to either side
RESAMPLES = 9_999
NATS_PER_BIT = math.log(2)
GATHERED = 1 << 22  # numbers held at once
WHITE = b" \t\n\r\x0b\x0c"

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Interval:
    """Where the truth lies with 95 % confidence, and what that rests on."""

    low: float
    high: float
    blocks: int
    correlation: float = 0.0  # of neighbouring blocks
    documents: int = 1
    enough: int = FEW_BLOCKS  # blocks

    @property
    def by_documents(self) -> bool:
        """Whether it speaks of other documents; else it speaks of this text alone."""
        return self.documents >= FEW_DOCUMENTS

    @property
    def speaks_of(self) -> str:
        """Of what it says where the truth lies."""
        if self.by_documents:
            return f"other documents of the kind of these {self.documents:,}"
        if self.documents == 1:
            return "this text as a stretch of its own process, not of other texts"
        return f"these {self.documents} documents alone, too few to speak of others"

    @property
    def few(self) -> bool:
        """Too little text to tell how blocks spread. Documents are counted by their own degrees of freedom."""
        return not self.by_documents and self.blocks < self.enough

    @property
    def slow(self) -> bool:
        """Neighbours are so alike that hardly any independent stretches are left:  n (1 − r) / (1 + r) < 10."""
        left = self.blocks * (1 - self.correlation) / (1 + self.correlation)
        return not self.by_documents and not self.few and left < FEW_STRETCHES

    @property
    def caution(self) -> str | None:
        """Why not to trust it, if there is a reason; the blocks are those of a text."""
        return self.caution_about(f"blocks of about {BLOCK_BYTES:,} bytes")

    def caution_about(self, blocks: str) -> str | None:
        """The same, with a word for the blocks."""
        if self.few:
            return f"only {self.blocks} {blocks}: the interval is unreliable"
        if self.slow:
            return f"{blocks} are as alike as neighbours ({self.correlation:.2f}): the interval is too narrow"
        return None


@dataclass(frozen=True)
class Difference:
    """Model a minus model b on the same blocks, in units of the figure; negative: a is better."""

    value: float
    interval: Interval
    p: float


def block_edges(content: bytes, documents: Sequence[int] = (0,), size: int = BLOCK_BYTES) -> Places:
    """Byte positions where the blocks begin, and the end: every `size` bytes, moved on to the next white space.

    A block holds text of one document; `documents` says where each starts.
    """
    white = np.flatnonzero(np.isin(np.frombuffer(content, np.uint8), np.frombuffer(WHITE, np.uint8)))
    ends = [*documents[1:], len(content)]
    parts = [_edges_within(white, start, end, size) for start, end in zip(documents, ends, strict=True)]
    return np.unique(np.concatenate([*parts, [len(content)]])).astype(np.int64)


def _edges_within(white: Places, start: int, end: int, size: int) -> Places:
    """Where the blocks of one document begin."""
    wanted = np.arange(start + size, end, size)
    after = np.searchsorted(white, wanted)
    found = white[after[after < len(white)]]
    edges = np.unique(np.concatenate([[start], found[found < end]]))
    # A tail too short to be a block of its own belongs to the last one.
    return edges[:-1] if len(edges) > 1 and end - edges[-1] < size // 2 else edges


def documents_of(edges: Places, documents: Sequence[int]) -> Places:
    """The document of each block."""
    return np.searchsorted(np.asarray(documents), edges[:-1], side="right") - 1


def block_sums(surprisals: Surprisals, edges: Places) -> Numbers:
    """nats in each block; a token counts where it starts."""
    blocks = np.searchsorted(edges, surprisals.start, side="right") - 1
    return np.bincount(blocks.clip(0, len(edges) - 2), surprisals.nats, len(edges) - 1).astype(np.float64)


def equal_rows(rows: Sequence[Hashable]) -> Places:
    """The block that each row belongs to, (n,): equal rows form one, numbered as they first come."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(row, len(numbers)) for row in rows], np.int64)


def interval_of(
    scores: Numbers, sizes: NDArray[Any], *, documents: Places | None = None, scale: float = NATS_PER_BIT
) -> Interval:
    """The interval of Σ scores / (scale · Σ sizes): bits per byte, if the scores are nats and the sizes bytes."""
    value = float(scores.sum() / sizes.sum()) / scale
    return interval_around(value, spread_of(scores / scale, sizes, documents), scores / sizes, documents)


def interval_around(value: float, spread: Spread, rates: Numbers, documents: Places | None) -> Interval:
    """`value` ± the reach of its spread; nothing on either side where one block tells nothing of how it strays."""
    reach = spread.reach(LEVEL)
    reach = reach if math.isfinite(reach) else 0.0
    count = 1 if documents is None else len(np.unique(documents))
    return Interval(value - reach, value + reach, len(rates), neighbour_correlation(rates), count)


def compare(
    a: Numbers,
    b: Numbers,
    sizes: NDArray[Any],
    *,
    documents: Places | None = None,
    scale: float = NATS_PER_BIT,
) -> Difference:
    """Paired: a − b on the same blocks. p is how often the difference strays by as much as it is from zero."""
    differences = a - b
    value = float(differences.sum() / sizes.sum()) / scale
    spread = spread_of(differences / scale, sizes, documents)
    interval = interval_around(value, spread, differences / sizes, documents)
    return Difference(value, interval, surely(spread.p(value), len(sizes)))


def surely(p: float, blocks: int) -> float:
    """n blocks, or rows, can never be surer than 2^(1−n), however alike they are."""
    return max(p, 2.0 ** (1 - min(blocks, 1000)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: p values that allow for how many there are; the smallest is multiplied by all of them."""
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, k in enumerate(sorted(range(len(p_values)), key=lambda k: p_values[k])):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[k]))
        adjusted[k] = running
    return adjusted


def neighbour_correlation(values: Numbers) -> float:
    """Correlation of each value with the next one; 0 where there is nothing to correlate."""
    if len(values) < 3 or np.ptp(values) == 0:
        return 0.0
    centred = values - values.mean()
    return float((centred[1:] * centred[:-1]).sum() / (centred * centred).sum())
