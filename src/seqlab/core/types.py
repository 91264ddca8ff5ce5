"""The types that travel between rooms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
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


@dataclass(frozen=True)
class Batch:
    """One training batch. `fresh` says that it continues nothing, so that carried state starts anew."""

    inputs: Tensor  # (B, T) ids
    targets: Tensor  # (B, T) ids, the inputs shifted by one
    fresh: bool

    @property
    def tokens(self) -> int:
        return self.targets.numel()


@dataclass(frozen=True)
class PairCounts:
    """Pairs of neighbouring tokens with how often each was seen: all that a bigram model learns from."""

    contexts: Tensor  # (R) the different first ids
    rows: Tensor  # (P) the place of each pair's first id among the contexts, ascending
    columns: Tensor  # (P) its second id
    counts: Tensor  # (P)
    tokens: int  # their sum

    fresh = True

    @property
    def inputs(self) -> Tensor:
        return self.contexts[None]


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
