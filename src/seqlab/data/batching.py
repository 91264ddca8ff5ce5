"""Batches by number: batch k of a run is a function of the ids, the seed and k alone.

So a run that resumes needs to remember nothing but its step. With several processes (`world`), process `rank`
gets its own share of the batch; the shares together are the batch that one process would get.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqlab.core.errors import DataError, UsageError
from seqlab.core.seeding import numpy_generator
from seqlab.core.types import PairCounts, TokenBatch
from seqlab.core.units import number_of

Guide = Callable[[NDArray[np.int64]], Tensor]  # places of a text (B, T) -> ln p of every token there (B, T, V)
FEW_TOKENS = 1_000  # a text that is shorter teaches next to nothing, whatever the settings
BEGIN_EVERY = 8  # one window in so many starts with the begin id, so that the model learns how texts begin


def own_share(rows: int, rank: int, world: int) -> slice:
    """The rows of one process: neighbours, as many for each."""
    if not 0 <= rank < world or rows % world:
        raise UsageError(f"a batch of {rows} cannot be shared by {world} processes; choose a multiple of {world}")
    return slice(rank * (rows // world), (rank + 1) * (rows // world))


class _RowBatches:
    """What both orders share: `batch` rows of `context` targets, each with the inputs that stand before them.

    A guide says what it expects at every target, from the text before it, also of the first target of a row.
    """

    def __init__(
        self, ids: NDArray[Any], begin_id: int, batch: int, context: int, seed: int, guide: Guide | None = None
    ) -> None:
        if len(ids) < context:
            smaller = " or a smaller --context" if len(ids) >= FEW_TOKENS else ": so few teach nothing"
            raise DataError(
                f"the training text has {number_of(len(ids), 'token')}, fewer than one context of {context}; "
                f"give more text{smaller}"
            )
        self.context = context
        self.batch = min(batch, len(ids) // context)
        self._ids, self._begin_id, self._seed, self._guide = ids, begin_id, seed, guide

    @property
    def count_per_step(self) -> int:
        return self.batch * self.context

    def _at(self, first_targets: NDArray[np.int64], begins: NDArray[np.bool_], fresh: bool) -> TokenBatch:
        """The rows whose first targets stand at these positions; where a row begins, the begin id is read first."""
        positions = (first_targets[:, None] + np.arange(-1, self.context)) % len(self._ids)
        block = torch.from_numpy(self._ids[positions].astype(np.int64))
        inputs = block[:, :-1].contiguous()
        inputs[torch.from_numpy(begins), 0] = self._begin_id
        guide = None if self._guide is None else self._guide(positions[:, 1:])
        return TokenBatch(inputs, block[:, 1:].contiguous(), fresh, guide)


class StreamBatches(_RowBatches):
    """B parallel streams read from left to right, for recurrent state carried from batch to batch.

    Stream b of epoch e starts at r_e + b·L with L = ⌊n/B⌋; r_0 = 0 and later r_e are random, and the text
    is read as a ring, so that no epoch cuts the text where another did. Each epoch starts with `fresh`: the
    begin id stands before the first target of every stream.
    """

    def __init__(
        self, ids: NDArray[Any], begin_id: int, batch: int, context: int, seed: int, guide: Guide | None = None
    ) -> None:
        super().__init__(ids, begin_id, batch, context, seed, guide)
        self._starts = lru_cache(maxsize=1)(self._epoch_starts)

    @property
    def steps_per_epoch(self) -> int:
        return len(self._ids) // self.batch // self.context

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> TokenBatch:
        epoch, k = divmod(step, self.steps_per_epoch)
        own = own_share(self.batch, rank, world)
        first_targets = self._starts(epoch)[own] + k * self.context
        return self._at(first_targets, np.full(len(first_targets), k == 0), fresh=k == 0)

    def _epoch_starts(self, epoch: int) -> NDArray[np.int64]:
        n = len(self._ids)
        first = 0 if epoch == 0 else int(numpy_generator(self._seed, "order", epoch).integers(n))
        return first + np.arange(self.batch) * (n // self.batch)


class WindowBatches(_RowBatches):
    """Windows of the text in random order, at most once an epoch (a last batch that is not full is left out).

    Every batch is `fresh`. The begin id stands before the first target of the text, and of one window in eight.
    """

    def __init__(
        self, ids: NDArray[Any], begin_id: int, batch: int, context: int, seed: int, guide: Guide | None = None
    ) -> None:
        super().__init__(ids, begin_id, batch, context, seed, guide)
        self._windows = len(ids) // context
        self._order = lru_cache(maxsize=1)(self._shuffled)

    @property
    def steps_per_epoch(self) -> int:
        return self._windows // self.batch

    def _shuffled(self, epoch: int) -> tuple[int, NDArray[np.int64]]:
        generator = numpy_generator(self._seed, "order", epoch)
        spare = len(self._ids) - self._windows * self.context
        return int(generator.integers(spare + 1)), generator.permutation(self._windows)

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> TokenBatch:
        epoch, k = divmod(step, self.steps_per_epoch)
        offset, order = self._order(epoch)
        own = own_share(self.batch, rank, world)
        first_targets = offset + order[k * self.batch : (k + 1) * self.batch][own] * self.context
        every_eighth = np.arange(self.batch)[own] % BEGIN_EVERY == 0
        return self._at(first_targets, every_eighth | (first_targets == 0), fresh=True)


class PairBatches:
    """Pairs of neighbouring tokens, counted; the begin id stands before the first token.

    Without a size, every step sees all pairs: the exact gradient. With one, so many pairs are drawn in
    random order, each once an epoch (a last batch that is not full is left out).
    """

    def __init__(self, ids: NDArray[Any], begin_id: int, vocab_size: int, size: int | None, seed: int) -> None:
        if not len(ids):
            raise DataError("the training text has no tokens to learn from")
        first = np.concatenate([[begin_id], ids[:-1]]).astype(np.int64)
        self._pairs = first * vocab_size + ids.astype(np.int64)
        self._vocab_size, self._seed = vocab_size, seed
        self.context = 1
        self.batch = len(ids) if size is None else min(size, len(ids))
        self._whole = size is None
        self._counted = lru_cache(maxsize=1)(lambda own: count_pairs(self._pairs[own[0] : own[1]], vocab_size))
        self._order = lru_cache(maxsize=1)(self._shuffled)

    @property
    def count_per_step(self) -> int:
        return self.batch

    @property
    def steps_per_epoch(self) -> int:
        return len(self._pairs) // self.batch

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> PairCounts:
        if self._whole:
            return self._counted((rank * self.batch // world, (rank + 1) * self.batch // world))
        epoch, k = divmod(step, self.steps_per_epoch)
        drawn = self._order(epoch)[k * self.batch : (k + 1) * self.batch][own_share(self.batch, rank, world)]
        return count_pairs(self._pairs[drawn], self._vocab_size)

    def _shuffled(self, epoch: int) -> NDArray[np.int64]:
        return numpy_generator(self._seed, "order", epoch).permutation(len(self._pairs))


def count_pairs(pairs: NDArray[np.int64], vocab_size: int) -> PairCounts:
    """Count pairs given as first · V + second."""
    keys, counts = np.unique(pairs, return_counts=True)
    contexts, rows = np.unique(keys // vocab_size, return_inverse=True)
    return PairCounts(
        contexts=torch.from_numpy(contexts),
        rows=torch.from_numpy(rows),
        columns=torch.from_numpy(keys % vocab_size),
        counts=torch.from_numpy(counts),
        count=len(pairs),
    )
