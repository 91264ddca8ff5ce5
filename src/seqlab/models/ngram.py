"""n-grams with interpolated modified Kneser–Ney smoothing: fitted by counting, not trained.

    p_k(w | c) = max(a(c w) − D_k(a), 0) / Σ_v a(c v)  +  γ_k(c) · p_{k−1}(w | shorter c)
    γ_k(c)     = [D_k(1) N_1(c) + D_k(2) N_2(c) + D_k(3) N_3+(c)] / Σ_v a(c v)
    p_0(w)     = 1 / V

The adjusted count a is the plain count at the highest order and for what follows the beginning of the
text; below, it is the number of different tokens that stand before the n-gram. N_i(c) counts the
continuations of c with a = i. A context that was never followed by anything leaves p_{k−1} as it is.

Discounts (Chen and Goodman), from the counts of counts n_i of each order, with Y = n_1 / (n_1 + 2 n_2):

    D(1) = 1 − 2Y n_2/n_1,   D(2) = 2 − 3Y n_3/n_2,   D(3+) = 3 − 4Y n_4/n_3

Where one of n_1 … n_4 is zero, or a discount falls outside ]0, i], that order takes 0.5, 1, 1.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqlab.core.errors import DamageError, DataError
from seqlab.core.settings.lm import ORDER
from seqlab.core.state import BatchFirstState, join_at_the_end
from seqlab.core.traits import Traits
from seqlab.models.counting import NOT_SEEN, Ids, adjusted_counts, count_grams, discounts_from

MOST_TOKENS = 1 << 28  # of training text: beyond it the counts would not fit into an ordinary memory
Probabilities = NDArray[np.float64]


@dataclass(frozen=True)
class RecentTokens(BatchFirstState):
    """What an n-gram remembers: the tokens that may still be part of a context, (B, < order)."""

    ids: Tensor

    @classmethod
    def joined(cls, states: Sequence[Self]) -> Self:
        """Before a text that has just begun stands what no n-gram holds, so that its contexts begin there."""
        return cls(join_at_the_end([state.ids for state in states], 1, NOT_SEEN))


@dataclass(frozen=True)
class Level:
    """The n-grams of one order. A key is (index of the context among the n-grams one shorter) · S + (last token)."""

    keys: Ids  # ascending; the place of a key is the index of that n-gram as a context of the next order
    counts: Ids  # adjusted counts
    discounts: tuple[float, ...]
    symbols: int  # S: the vocabulary and the begin id
    n_contexts: int

    @cached_property
    def starts(self) -> Ids:
        """Where the continuations of each context begin among the keys, and where the last ones end."""
        followers = np.bincount(self.keys // self.symbols, minlength=self.n_contexts)
        return np.concatenate([[0], np.cumsum(followers)])

    @cached_property
    def _discount(self) -> Probabilities:
        return np.array([0.0, *self.discounts])[np.minimum(self.counts, 3)]

    @cached_property
    def _totals(self) -> Ids:
        return np.bincount(self.keys // self.symbols, self.counts, self.n_contexts).astype(np.int64)

    @cached_property
    def own(self) -> Probabilities:
        """(a − D(a)) / Σ a for each n-gram."""
        totals = self._totals[self.keys // self.symbols]
        own: Probabilities = (self.counts - self._discount) / np.maximum(totals, 1)
        return own

    @cached_property
    def shorter_share(self) -> Probabilities:
        """γ for each context; 1 where nothing followed."""
        taken = np.bincount(self.keys // self.symbols, self._discount, self.n_contexts)
        return np.where(self._totals > 0, taken / np.maximum(self._totals, 1), 1.0)

    def find(self, contexts: Ids, tokens: Ids) -> Ids:
        """The index of each n-gram, NOT_SEEN for those that training never met."""
        wanted = contexts * self.symbols + tokens
        places = np.searchsorted(self.keys, wanted).clip(max=len(self.keys) - 1)
        return np.where((contexts != NOT_SEEN) & (self.keys[places] == wanted), places, NOT_SEEN)

    def interpolate(self, contexts: Ids, grams: Ids, shorter: Probabilities) -> Probabilities:
        """p_k from p_{k−1}; a context that training never met changes nothing."""
        share = np.where(contexts == NOT_SEEN, 1.0, self.shorter_share[contexts])
        own = np.where(grams == NOT_SEEN, 0.0, self.own[grams])
        mixed: Probabilities = own + share * shorter
        return mixed


class NGramLM(nn.Module):
    """Interpolated modified Kneser–Ney of a fixed order; obeys ``logits, state = lm(ids, state)``."""

    def __init__(self, vocab_size: int, order: int = 5, levels: tuple[Level, ...] = ()) -> None:
        super().__init__()
        ORDER.check("order", order)
        self.vocab_size, self.order, self.levels = vocab_size, order, levels

    @classmethod
    def fit(cls, ids: NDArray[Any], vocab_size: int, order: int = 5) -> NGramLM:
        """Count the n-grams of a text given as ids below `vocab_size`."""
        model = cls(vocab_size, order)
        if not 0 < len(ids) <= MOST_TOKENS:
            raise DataError(f"n-grams count a text of 1 to {MOST_TOKENS:,} tokens; this one has {len(ids):,}")
        symbols = vocab_size + 1
        tokens = np.concatenate([[vocab_size], ids]).astype(np.int64)
        counted = [grams for grams, _ in count_grams(tokens, symbols, order)]
        model.levels = tuple(
            Level(grams.keys, counts, discounts_from(counts), symbols, grams.n_contexts)
            for grams, counts in zip(counted, adjusted_counts(counted, vocab_size), strict=True)
        )
        return model

    @property
    def learnt(self) -> int:
        """How many numbers were learnt: one count for each n-gram."""
        return sum(len(level.keys) for level in self.levels)

    @property
    def traits(self) -> Traits:
        return Traits(looks_back=self.order - 1, learns_from="counts", reads_at_once=True)

    # ---- saving

    def tensors(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {"sizes": torch.tensor([self.vocab_size, self.order], device="cpu")}
        for k, level in enumerate(self.levels, start=1):
            found[f"keys.{k}"] = torch.from_numpy(level.keys)
            found[f"counts.{k}"] = torch.from_numpy(level.counts.astype(np.int32))
            found[f"discounts.{k}"] = torch.tensor(level.discounts, dtype=torch.float64, device="cpu")
        return found

    @classmethod
    def from_tensors(cls, vocab_size: int, order: int, tensors: dict[str, Tensor], source: str) -> NGramLM:
        """The model saved as `tensors`; a table of another vocabulary or order is refused."""
        try:
            said = tensors.pop("sizes").tolist()
        except KeyError:
            raise DamageError(f"{source} is no table of n-grams: 'sizes' is missing") from None
        if said != [vocab_size, order]:
            raise DamageError(
                f"{source} has n-grams of order {said[1]} over {said[0]:,} tokens; this run has order {order} "
                f"over {vocab_size:,}: restore it from a copy"
            )
        return cls(vocab_size, order, _levels_from(vocab_size, tensors, source))

    # ---- using

    def nats_of(self, ids: NDArray[Any]) -> Probabilities:
        """−ln p of every token of a text, each after the begin id and all that stands before it."""
        nats: Probabilities = -np.log(self._probabilities(ids, None, None))
        return nats

    def mass_of(self, ids: NDArray[Any], places: Ids, tokens: Ids) -> Probabilities:
        """Σ p over some tokens, had they stood at these places of the text."""
        mass = np.zeros(len(places))
        for token in tokens:
            mass += self._probabilities(ids, places, int(token))
        return mass

    def _probabilities(self, ids: NDArray[Any], places: Ids | None, token: int | None) -> Probabilities:
        """p of what stands at the places (everywhere if None), or of `token` in their stead."""
        text = np.concatenate([[self.vocab_size], ids]).astype(np.int64)
        chosen = np.arange(1, len(text)) if places is None else places + 1
        wanted = text[chosen] if token is None else np.full(len(chosen), token)
        p = np.full(len(chosen), 1 / self.vocab_size)
        contexts = np.zeros(len(text), np.int64)
        for level in self.levels:
            here = contexts[chosen]
            p = level.interpolate(here, level.find(here, wanted), p)
            if level is not self.levels[-1]:
                contexts = _shifted(level.find(contexts, text))
        return p

    def forward(self, ids: Tensor, state: RecentTokens | None = None) -> tuple[Tensor, RecentTokens]:
        """ids (B, T) -> log-probabilities (B, T, V) as logits."""
        contexts, state = self.contexts_after(ids, state)
        p = np.full((ids.numel(), self.vocab_size + 1), 1 / self.vocab_size)
        for level, here in zip(self.levels, contexts, strict=True):
            _spread(level, here, p)
        logits = torch.from_numpy(np.log(p[:, : self.vocab_size])).view(*ids.shape, self.vocab_size)
        return logits, state

    def contexts_after(self, ids: Tensor, state: RecentTokens | None = None) -> tuple[list[Ids], RecentTokens]:
        """What each order knows of the text up to and including every token: an index or NOT_SEEN.    (B · T,) each"""
        known = ids if state is None else torch.cat([state.ids, ids], dim=1)
        tokens = known.numpy()
        found = []
        contexts = ending = np.zeros(tokens.shape, np.int64)  # the empty n-gram stands before and at every position
        for level in self.levels:
            found.append(ending[:, -ids.shape[1] :].reshape(-1))
            ending = level.find(contexts, tokens)
            contexts = _shifted(ending)
        keep = max(0, known.shape[1] - (self.order - 1))
        return found, RecentTokens(known[:, keep:])


def _spread(level: Level, contexts: Ids, p: Probabilities) -> None:
    """p_{k−1} -> p_k over the whole vocabulary, in place; one row for each context."""
    rows = np.flatnonzero(contexts != NOT_SEEN)
    found = contexts[rows]
    p[rows] *= level.shorter_share[found, None]
    first, last = level.starts[found], level.starts[found + 1]
    sizes = last - first
    places = np.repeat(first - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes) + np.arange(sizes.sum())
    p[np.repeat(rows, sizes), level.keys[places] % level.symbols] += level.own[places]


def _shifted(grams: Ids) -> Ids:
    """What ended one position before, along the last dimension."""
    moved = np.empty_like(grams)
    moved[..., 0] = NOT_SEEN
    moved[..., 1:] = grams[..., :-1]
    return moved


def _levels_from(vocab_size: int, tensors: dict[str, Tensor], source: str) -> tuple[Level, ...]:
    levels: list[Level] = []
    for k in range(1, 1 + len(tensors) // 3):
        try:
            keys, counts = tensors[f"keys.{k}"].numpy(), tensors[f"counts.{k}"].numpy().astype(np.int64)
            discounts = tuple(tensors[f"discounts.{k}"].tolist())
        except KeyError as error:
            raise DamageError(f"{source} is no table of n-grams: {error} is missing") from None
        n_contexts = len(levels[-1].keys) if levels else 1
        levels.append(Level(keys, counts, discounts, vocab_size + 1, n_contexts))
    return tuple(levels)
