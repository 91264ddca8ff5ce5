"""Batches of sentence pairs by number: batch k is a function of the pairs, the seed and k alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.core.errors import UsageError
from seqlab.core.seeding import numpy_generator
from seqlab.core.types import IGNORED, PaddedBatch, PairBatch

Ids = NDArray[np.int32]
Places = NDArray[np.int64]
JITTER = 3.0  # tokens: pairs of nearly the same length meet in other batches in every epoch


@dataclass(frozen=True)
class Rows:
    """Sequences of ids one after the other; row k is `ids[offsets[k]:offsets[k + 1]]`."""

    ids: Ids
    offsets: Places

    @classmethod
    def of(cls, rows: Sequence[NDArray[np.int64]]) -> Rows:
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
        ids = np.concatenate([np.zeros(0, np.int64), *rows]).astype(np.int32)
        return cls(ids, offsets.astype(np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Ids:
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    @property
    def sizes(self) -> Places:
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs as ids: pair p is row `source[p]` of the sources and the same row of target `target[p]`."""

    sources: Rows
    targets: tuple[Rows, ...]
    source: Places
    target: Places
    end: int  # stands at the end of every source and target
    first_tag: int  # the tag of target 0

    def __len__(self) -> int:
        return len(self.source)

    @property
    def sizes(self) -> tuple[Places, Places]:
        """Tokens of each pair, with the end: of the source and of the target."""
        by_target = np.stack([rows.sizes for rows in self.targets])
        return self.sources.sizes[self.source] + 1, by_target[self.target, self.source] + 1

    def batch(self, pairs: Places) -> PairBatch:
        sources = [self.sources[self.source[p]] for p in pairs]
        targets = [self.targets[self.target[p]][self.source[p]] for p in pairs]
        longest = max(map(len, targets), default=0) + 1
        inputs = np.full((len(pairs), longest), self.end, np.int64)
        wanted = np.full((len(pairs), longest), IGNORED, np.int64)
        inputs[:, 0] = self.first_tag + self.target[pairs]
        for row, ids in enumerate(targets):
            inputs[row, 1 : len(ids) + 1] = ids
            wanted[row, : len(ids)] = ids
            wanted[row, len(ids)] = self.end
        count = sum(map(len, targets)) + len(targets)
        source = source_batch(sources, self.end)
        return PairBatch(source, torch.from_numpy(inputs), torch.from_numpy(wanted), count)


def source_batch(sources: Sequence[NDArray[np.integer]], end: int) -> PaddedBatch:
    """Sources with the end behind each, padded with it."""
    longest = max(map(len, sources), default=0) + 1
    ids = np.full((len(sources), longest), end, np.int64)
    for row, tokens in enumerate(sources):
        ids[row, : len(tokens)] = tokens
    return PaddedBatch(torch.from_numpy(ids), torch.tensor([len(tokens) + 1 for tokens in sources]))


class PairBatches:
    """Every pair once an epoch, pairs of similar length together, in random order.

    A batch holds as many pairs as have `tokens` tokens, source and target padded. How large the batches are is decided
    once, by the sorted lengths, so that every epoch has as many of them.
    """

    def __init__(self, pairs: Pairs, chosen: Places, tokens: int, seed: int) -> None:
        """`chosen` are the pairs to learn from."""
        self._pairs, self._chosen, self._seed = pairs, chosen, seed
        source, target = pairs.sizes
        self._lengths = np.maximum(source, target)[chosen].astype(np.float64)
        self._edges = _cut(np.sort(self._lengths), tokens)
        self.count_per_step = max(1, int(target[chosen].sum()) // self.steps_per_epoch)
        self._order: Callable[[int], list[Places]] = lru_cache(maxsize=2)(self._shuffled)

    @property
    def steps_per_epoch(self) -> int:
        return len(self._edges) - 1

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> PairBatch:
        epoch, k = divmod(step, self.steps_per_epoch)
        chosen = self._order(epoch)[k]
        if not 0 <= rank < world or len(chosen) < world:
            raise UsageError(
                f"a batch of {len(chosen)} pairs cannot be shared by {world} processes; take larger batches"
            )
        return self._pairs.batch(chosen[rank::world])

    def _shuffled(self, epoch: int) -> list[Places]:
        draw = numpy_generator(self._seed, "order", epoch)
        order = np.argsort(self._lengths + draw.uniform(0, JITTER, len(self._lengths)), kind="stable")
        order = self._chosen[order]
        batches = [order[a:b] for a, b in zip(self._edges[:-1], self._edges[1:], strict=True)]
        return [batches[k] for k in draw.permutation(len(batches))]


def _cut(lengths: NDArray[np.float64], tokens: int) -> list[int]:
    """Where batches of ascending lengths end: one more pair would make more than `tokens`, padding counted."""
    edges, start = [0], 0
    for k, length in enumerate(lengths):
        if k > start and length * (k + 1 - start) > tokens:
            edges.append(k)
            start = k
    return [*edges, len(lengths)]
