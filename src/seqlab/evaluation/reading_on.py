"""A model that goes on learning from the text that it reads, as a compressor does.

Weights stand still while a text is scored; a compressor has learnt from every byte by the time it comes to the next. So
that like meets like, counts of the text read so far are laid over what the model says (Pitman–Yor, each kind of token
discounted once): with c(x) how often token x came after the last L tokens before, C = Σ c, N how many different ones,

    p₀(x) = the model
    p_k(x) = ([c(x) − d_k]₊ + (θ_k + d_k N) p_{k−1}(x)) / (θ_k + C)        L = LENGTHS[k − 1]

which sums to one wherever p₀ does. θ_k > 0 and 0 < d_k < 1 are fitted to the text that has been read when 1,024, 2,048,
4,096 … tokens of it have been; before, p₀ is all there is. So nothing is used of a token, or of what comes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqlab.core.types import Encoding, Scorer, Surprisals
from seqlab.evaluation.normalised import NormalisedScorer

LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)  # of the contexts, in tokens (docs/log.md)
FIRST_FIT = 1024  # tokens read before anything is fitted
MOST_FITTED = 65_536  # tokens that a fit looks at, the last ones
BYTES_A_TOKEN = 250  # held at most
FIT_STEPS, FIT_RATE = 40, 0.15
MOST_NATS = 500.0  # a model that gives a token less is taken to give it e⁻⁵⁰⁰: what follows has room above zero
STRENGTH_AT_FIRST, DISCOUNT_AT_FIRST = 1e4, 0.9  # next to nothing but the model

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class CountsBefore:
    """Of contexts of one length, at every token: what had been counted before it."""

    token: Integers  # c: how often this token came after this context
    context: Integers  # C: how often any token did
    kinds: Integers  # N: how many different ones


def reading_on(nats: Numbers, ids: Integers, progress: Callable[[float], None] | None = None) -> Numbers:
    """−ln p_K of every token from −ln p₀ (T) and the tokens (T); what stands before a token decides, nothing else."""
    counts, model = _Counts(ids), torch.from_numpy(nats)
    weights, found, fitted = _first_weights(), [model[:FIRST_FIT]], 0
    for piece in _pieces(len(ids)):
        if piece.start >= 2 * fitted:
            fitted, read = piece.start, slice(max(0, piece.start - MOST_FITTED), piece.start)
            weights = _fit(weights, model[read], counts.at(read))
        found.append(_nats(model[piece], counts.at(piece), weights))
        if progress:
            progress(piece.stop / len(ids))
    together: Numbers = torch.cat(found).numpy()
    return together


def _pieces(tokens: int) -> Iterator[slice]:
    """[1024, 2048), [2048, 4096) … to the end of the text, none longer than a fit looks at."""
    start = FIRST_FIT
    while start < tokens:
        yield slice(start, min(2 * start, start + MOST_FITTED, tokens))
        start = min(2 * start, start + MOST_FITTED)


# --------------------------------------------------------------------------- counting


def counts_before(ids: Integers, lengths: Sequence[int]) -> Iterator[CountsBefore]:
    """For every length; what lies before the text is one token of its own."""
    ids = np.unique(ids, return_inverse=True)[1].astype(np.int64)
    vocabulary = int(ids.max(initial=0)) + 2
    context: Integers = np.zeros(len(ids), np.int64)
    for length in range(1, max(lengths) + 1):
        before = np.concatenate([np.full(min(length, len(ids)), -1), ids[:-length]]) + 1
        context = np.unique(context * vocabulary + before, return_inverse=True)[1]
        if length in lengths:
            yield _counts(context, context * vocabulary + ids)


def _counts(context: Integers, with_token: Integers) -> CountsBefore:
    token = _times_before(with_token)
    return CountsBefore(token, _times_before(context), _sums_before(context, token == 0))


def _times_before(keys: Integers) -> Integers:
    """How often the key at each place stood before it."""
    return _sums_before(keys, np.ones(len(keys), np.int64))


def _sums_before(keys: Integers, values: NDArray[Any]) -> Integers:
    """Σ of the values at earlier places with the same key."""
    order = np.argsort(keys, kind="stable")
    values = values[order].astype(np.int64)
    sums = np.cumsum(values) - values
    begins = np.diff(keys[order], prepend=-1) != 0
    at_begin = np.maximum.accumulate(np.where(begins, np.arange(len(keys)), 0))
    found: Integers = np.empty(len(keys), np.int64)
    found[order] = sums - sums[at_begin]
    return found


# --------------------------------------------------------------------------- one length over the other


@dataclass(frozen=True)
class _Weights:
    """Of every length; ln θ and the logit of d, which have no limits to mind."""

    log_strength: Tensor  # (K)
    discount_logit: Tensor  # (K)


class _Counts:
    """The counts of all lengths as tensors (3, T): of the token, of its context, of the kinds after that."""

    def __init__(self, ids: Integers) -> None:
        self.rows = [
            torch.from_numpy(np.stack([found.token, found.context, found.kinds]).astype(np.int32))
            for found in counts_before(ids, LENGTHS)
        ]

    def at(self, where: slice) -> list[Tensor]:
        return [row[:, where].double() for row in self.rows]


def _nats(model: Tensor, counts: list[Tensor], weights: _Weights) -> Tensor:
    """−ln p_K (T) from −ln p₀ (T)."""
    p = (-model.clamp(max=MOST_NATS)).exp()
    strengths, discounts = weights.log_strength.exp(), weights.discount_logit.sigmoid()
    for (token, context, kinds), strength, discount in zip(counts, strengths, discounts, strict=True):
        counted = (token > 0) * (token - discount)
        p = (counted + (strength + discount * kinds) * p) / (strength + context)
    return -p.log()


def _first_weights() -> _Weights:
    strength, discount = torch.tensor([[STRENGTH_AT_FIRST], [DISCOUNT_AT_FIRST]], dtype=torch.float64)
    return _Weights(strength.log().repeat(len(LENGTHS)), discount.logit().repeat(len(LENGTHS)))


def _fit(weights: _Weights, model: Tensor, counts: list[Tensor]) -> _Weights:
    """Adam from where the weights were, for the least mean surprise of what has been read."""
    learnt = [weights.log_strength.clone().requires_grad_(), weights.discount_logit.clone().requires_grad_()]
    optimiser = torch.optim.Adam(learnt, lr=FIT_RATE)
    with torch.enable_grad():
        for _ in range(FIT_STEPS):
            optimiser.zero_grad()
            torch.autograd.backward(_nats(model, counts, _Weights(*learnt)).mean())
            optimiser.step()
    return _Weights(*(one.detach() for one in learnt))


# --------------------------------------------------------------------------- as a scorer


class Reads(Protocol):
    """A scorer whose tokens can be told apart."""

    @property
    def policy(self) -> object: ...

    @property
    def encode(self) -> Callable[[str], Encoding]: ...

    def score(self, text: str, *, progress: Callable[[float], None] | None = None) -> Surprisals: ...


class ReadingOn:
    """A scorer that goes on learning: spelling is paid as before, the tokens are what is learnt."""

    def __init__(self, scorer: Reads) -> None:
        self.scorer = scorer
        self.policy = f"{scorer.policy}; and counts of all of the text before"

    def score(self, text: str, *, progress: Callable[[float], None] | None = None) -> Surprisals:
        table = self.scorer.score(text, progress=progress)
        nats = reading_on(table.nats - table.spelling, self.scorer.encode(text).ids)
        return replace(table, nats=nats + table.spelling)


def that_reads_on(scorer: Scorer) -> Scorer:
    """The same scorer, going on to learn from the tokens that it reads: after a normalisation, if there is one."""
    if isinstance(scorer, NormalisedScorer):
        return NormalisedScorer(that_reads_on(scorer.scorer), scorer.steps)
    return ReadingOn(cast(Reads, scorer))
