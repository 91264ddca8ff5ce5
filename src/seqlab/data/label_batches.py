"""Batches of labelled texts by number: batch k is a function of the texts, the seed and k alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.core.errors import UsageError
from seqlab.core.seeding import numpy_generator
from seqlab.core.types import BagBatch, LabelBatch, PaddedBatch
from seqlab.data.bags import Bags
from seqlab.data.word_ids import IdRows

Rows = NDArray[np.int64]
Inputs = Bags | IdRows
SORTED_TOGETHER = 32  # batches whose texts are sorted by length, so that little is padded


def input_batch(inputs: Inputs, rows: Rows) -> BagBatch | PaddedBatch:
    """Some texts as a model reads them."""
    if isinstance(inputs, IdRows):
        return inputs.batch(rows)
    taken = inputs.take(rows)
    return BagBatch(torch.from_numpy(taken.features.astype(np.int64)), torch.from_numpy(taken.offsets))


class LabelBatches:
    """Texts in random order, each once an epoch.

    Texts that are padded go into batches of similar length: of so many batches at a time the texts are sorted, and
    the batches shuffled again.
    """

    def __init__(self, inputs: Inputs, rows: Rows, truth: Rows, batch: int, seed: int) -> None:
        """`rows` are those to learn from, `truth` the classes of all."""
        self.batch = min(batch, len(rows))
        self._inputs, self._rows, self._truth, self._seed = inputs, rows, truth, seed
        self._order: Callable[[int], Rows] = lru_cache(maxsize=1)(self._shuffled)

    @property
    def count_per_step(self) -> int:
        return self.batch

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self._rows) // self.batch)

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> LabelBatch:
        epoch, k = divmod(step, self.steps_per_epoch)
        rows = self._order(epoch)[k * self.batch : (k + 1) * self.batch]
        if not 0 <= rank < world or self.batch % world:
            raise UsageError(
                f"a batch of {self.batch} cannot be shared by {world} processes; choose a multiple of {world}"
            )
        rows = rows[rank::world]
        return LabelBatch(input_batch(self._inputs, rows), torch.from_numpy(self._truth[rows]))

    def _shuffled(self, epoch: int) -> Rows:
        draw = numpy_generator(self._seed, "order", epoch)
        order = draw.permutation(self._rows)
        if not isinstance(self._inputs, IdRows):
            return order
        sizes, whole = self._inputs.sizes, len(order) // self.batch * self.batch
        span = SORTED_TOGETHER * self.batch
        for start in range(0, whole, span):
            some = order[start : min(start + span, whole)]
            sorted_batches = some[np.argsort(sizes[some], kind="stable")].reshape(-1, self.batch)
            order[start : start + len(some)] = draw.permutation(sorted_batches).ravel()
        return order
