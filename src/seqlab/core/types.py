"""The types that travel between rooms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqlab.core.state import State


class LanguageModel(Protocol):
    """Every language model: ``logits, state = lm(ids, state)``, ids (B, T) -> logits (B, T, V).

    Ids run from 0 to V: the last one, V, is the begin id, which is read but never predicted.
    Feeding a text in pieces with the state equals feeding it whole.
    """

    vocab_size: int

    def __call__(self, ids: Tensor, state: State = None) -> tuple[Tensor, State]: ...


class Batch(Protocol):
    """What one step learns from. `count` units are in it (tokens, labels …): losses are divided by that."""

    @property
    def count(self) -> int: ...

    @property
    def fresh(self) -> bool:
        """It continues nothing, so that carried state starts anew."""

    def cut(self, pieces: int) -> Sequence[Batch]:
        """At most so many batches whose gradients add up to that of the whole, in the order of a split state."""


class Batches(Protocol):
    """Batch k is a function of k alone; with several processes, each has its own part of it."""

    @property
    def count_per_step(self) -> int: ...

    @property
    def steps_per_epoch(self) -> int: ...

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> Batch: ...


@dataclass(frozen=True)
class TokenBatch:
    """Rows of tokens, each to be predicted from those before it."""

    inputs: Tensor  # (B, T) ids
    targets: Tensor  # (B, T) ids, the inputs shifted by one
    fresh: bool
    guide: Tensor | None = None  # (B, T, V) ln p of every token by counts that have not seen the targets

    @property
    def count(self) -> int:
        return self.targets.numel()

    def cut(self, pieces: int) -> Sequence[TokenBatch]:
        pieces = min(pieces, len(self.inputs))
        inputs, targets = self.inputs.chunk(pieces), self.targets.chunk(pieces)
        guides: Sequence[Tensor | None] = [None] * len(inputs) if self.guide is None else self.guide.chunk(pieces)
        parts = zip(inputs, targets, guides, strict=True)
        return [TokenBatch(some, wanted, self.fresh, guide) for some, wanted, guide in parts]


@dataclass(frozen=True)
class PairCounts:
    """Pairs of neighbouring tokens with how often each was seen: all that a bigram model learns from."""

    contexts: Tensor  # (R) the different first ids
    rows: Tensor  # (P) the place of each pair's first id among the contexts, ascending
    columns: Tensor  # (P) its second id
    counts: Tensor  # (P)
    count: int  # their sum

    fresh = True

    def cut(self, pieces: int) -> Sequence[PairCounts]:
        """It stays whole: its gradient is formed block by block, so that nothing would be saved."""
        return [self]


# --------------------------------------------------------------------------- labelled texts

PADDING, UNKNOWN, BEGIN, RESERVED = 0, 1, 2, 3  # ids of padding, unknown words and the beginning; words come after


@dataclass(frozen=True)
class BagBatch:
    """Texts as bags: the features of text b are `features[offsets[b]:offsets[b + 1]]`, each once."""

    features: Tensor  # (P,)
    offsets: Tensor  # (B + 1,)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def rows(self) -> Tensor:
        """The text that each feature belongs to.    (P,)"""
        return torch.repeat_interleave(torch.arange(len(self)), self.offsets.diff())

    def part(self, start: int, end: int) -> BagBatch:
        first, last = int(self.offsets[start]), int(self.offsets[end])
        return BagBatch(self.features[first:last], self.offsets[start : end + 1] - first)


@dataclass(frozen=True)
class PaddedBatch:
    """Texts as rows of ids, padded on the right."""

    ids: Tensor  # (B, T)
    lengths: Tensor  # (B,)

    def __len__(self) -> int:
        return len(self.lengths)

    def part(self, start: int, end: int) -> PaddedBatch:
        return PaddedBatch(self.ids[start:end], self.lengths[start:end])


class Classifier(Protocol):
    """Every text classifier: ``logits = model(inputs, own)``, texts -> (B, K).

    In training `own` (B,) are the texts' own classes: a model that has counted them leaves them out again. Neither
    padding nor the other texts of a batch change what comes out.
    """

    classes: int

    def __call__(self, inputs: Any, own: Tensor | None = None) -> Tensor: ...


@dataclass(frozen=True)
class LabelBatch:
    """Texts with their classes."""

    inputs: BagBatch | PaddedBatch
    labels: Tensor  # (B,)

    fresh = True

    @property
    def count(self) -> int:
        return len(self.labels)

    def cut(self, pieces: int) -> Sequence[LabelBatch]:
        pieces = min(pieces, self.count)
        edges = [k * self.count // pieces for k in range(pieces + 1)]
        return [LabelBatch(self.inputs.part(a, b), self.labels[a:b]) for a, b in pairwise(edges)]


# --------------------------------------------------------------------------- translation

IGNORED = -1  # a target that is padding: nothing is to be predicted there


@dataclass(frozen=True)
class PairBatch:
    """Sources with their targets, padded on the right."""

    source: PaddedBatch
    inputs: Tensor  # (B, T) what the decoder reads: the tag of the target, then its tokens
    targets: Tensor  # (B, T) what it is to predict: the tokens, then the end; IGNORED in the padding
    count: int  # targets that are real

    fresh = True

    def cut(self, pieces: int) -> Sequence[PairBatch]:
        rows = len(self.inputs)
        pieces = min(pieces, rows)
        edges = [k * rows // pieces for k in range(pieces + 1)]
        return [self._part(a, b) for a, b in pairwise(edges)]

    def _part(self, start: int, end: int) -> PairBatch:
        targets = self.targets[start:end]
        count = int((targets != IGNORED).sum())
        return PairBatch(self.source.part(start, end), self.inputs[start:end], targets, count)


class Scorer(Protocol):
    """Anything that can score text: a run, a model with its tokenizer, a stranger, a reader of normalised text."""

    @property
    def policy(self) -> object:
        """What a prediction may look back on; ``str`` of it says so to a person."""

    def score(self, text: str, *, progress: Callable[[float], None] | None = None) -> Surprisals:
        """−ln p of every token."""


@dataclass(frozen=True)
class Encoding:
    """Token ids with the byte spans [start, end) that they cover; the spans partition the text."""

    ids: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    unknown: NDArray[np.bool_]
    lossy: bool = False  # other texts have these ids too: white space or case was dropped

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Surprisals:
    """−ln p of every token with its byte span: the one table every perplexity derives from."""

    nats: NDArray[np.float64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    unknown: NDArray[np.bool_]
    spelling: NDArray[np.float64]  # the share of `nats` that unknown tokens pay for their spelling
    lossy: bool = False  # the tokenizer dropped part of the text: the figures are not those of a string
    restoration: NDArray[np.float64] | None = None  # the share that undoes a normalisation, if there was one

    def __len__(self) -> int:
        return len(self.nats)

    @property
    def total(self) -> float:
        """Total nats, summed exactly enough that the order of the tokens does not show."""
        return float(np.sum(self.nats))
