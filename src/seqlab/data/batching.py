"""Batches by number: batch k of a run is a function of the ids, the seed and k alone.

So a run that resumes needs to remember nothing but its step.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.core.errors import DataError
from seqlab.core.seeding import numpy_generator
from seqlab.core.types import Batch

BEGIN_EVERY = 8  # one window in so many starts with the begin id, so that the model learns how texts begin


class StreamBatches:
    """B parallel streams read from left to right, for recurrent state carried from batch to batch.

    Stream b of epoch e starts at r_e + b·L with L = ⌊n/B⌋; r_0 = 0 and later r_e are random, and the text
    is read as a ring, so that no epoch cuts the text where another did. Each epoch starts with `fresh`: the
    begin id stands before the first target of every stream.
    """

    def __init__(self, ids: NDArray[np.integer], begin_id: int, batch: int, context: int, seed: int) -> None:
        self.context = _checked_context(len(ids), context)
        self.batch = min(batch, len(ids) // self.context)
        self.steps_per_epoch = (len(ids) // self.batch) // self.context
        self._ids, self._begin_id, self._seed = ids, begin_id, seed
        self._columns = np.arange(-1, self.context)

    @property
    def tokens_per_step(self) -> int:
        return self.batch * self.context

    def __call__(self, step: int) -> Batch:
        epoch, k = divmod(step, self.steps_per_epoch)
        n = len(self._ids)
        first = 0 if epoch == 0 else int(numpy_generator(self._seed, "order", epoch).integers(n))
        rows = first + np.arange(self.batch) * (n // self.batch) + k * self.context  # of the first targets
        block = torch.from_numpy(self._ids[(rows[:, None] + self._columns) % n].astype(np.int64))
        inputs = block[:, :-1].contiguous()
        if k == 0:
            inputs[:, 0] = self._begin_id
        return Batch(inputs, block[:, 1:].contiguous(), fresh=k == 0)


class WindowBatches:
    """Windows of the text in random order, at most once an epoch (a last batch that is not full is left out).

    Every batch is `fresh`. The begin id stands before the first target of the text, and of one window in eight.
    """

    def __init__(self, ids: NDArray[np.integer], begin_id: int, batch: int, context: int, seed: int) -> None:
        self.context = _checked_context(len(ids), context)
        self._windows = len(ids) // self.context
        self.batch = min(batch, self._windows)
        self.steps_per_epoch = self._windows // self.batch
        self._ids, self._begin_id, self._seed = ids, begin_id, seed
        self._columns = np.arange(-1, self.context)
        self._order = lru_cache(maxsize=1)(self._shuffled)

    @property
    def tokens_per_step(self) -> int:
        return self.batch * self.context

    def _shuffled(self, epoch: int) -> tuple[int, NDArray[np.int64]]:
        generator = numpy_generator(self._seed, "order", epoch)
        spare = len(self._ids) - self._windows * self.context
        return int(generator.integers(spare + 1)), generator.permutation(self._windows)

    def __call__(self, step: int) -> Batch:
        epoch, k = divmod(step, self.steps_per_epoch)
        offset, order = self._order(epoch)
        rows = offset + order[k * self.batch : (k + 1) * self.batch] * self.context  # of the first targets
        block = torch.from_numpy(self._ids[np.maximum(rows[:, None] + self._columns, 0)].astype(np.int64))
        inputs = block[:, :-1].contiguous()
        inputs[::BEGIN_EVERY, 0] = self._begin_id
        inputs[torch.from_numpy(rows == 0), 0] = self._begin_id
        return Batch(inputs, block[:, 1:].contiguous(), fresh=True)


def _checked_context(tokens: int, context: int) -> int:
    if tokens < context:
        raise DataError(
            f"the training text has {tokens:,} tokens, fewer than one context of {context}; "
            "give more text or a smaller --context"
        )
    return context
