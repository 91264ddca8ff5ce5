"""Several processes share a batch: their parts together are the batch that one process would get."""

import numpy as np
import pytest
import torch

from seqlab.core.errors import UsageError
from seqlab.core.types import PairCounts
from seqlab.data.batching import PairBatches, StreamBatches, WindowBatches

V = 11
IDS = np.random.default_rng(0).integers(V, size=700)


@pytest.mark.parametrize("world", [1, 2, 3, 6])
@pytest.mark.parametrize("make", [StreamBatches, WindowBatches])
def test_rows_are_shared(make: type, world: int) -> None:
    batches = make(IDS, V, 6, 5, seed=3)
    for step in (0, 1, 7, batches.steps_per_epoch, 3 * batches.steps_per_epoch + 2):
        whole = batches(step)
        parts = [batches(step, rank, world) for rank in range(world)]
        assert torch.equal(torch.cat([part.inputs for part in parts]), whole.inputs)
        assert torch.equal(torch.cat([part.targets for part in parts]), whole.targets)
        assert {part.fresh for part in parts} == {whole.fresh}
        assert sum(part.count for part in parts) == whole.count == batches.count_per_step


def table(batch: PairCounts) -> torch.Tensor:
    counts = torch.zeros(V + 1, V, dtype=torch.long)
    counts[batch.contexts[batch.rows], batch.columns] = batch.counts
    return counts


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("size", [None, 64])
def test_pairs_are_shared(size: int | None, world: int) -> None:
    batches = PairBatches(IDS, V, V, size, seed=3)
    for step in (0, 5, 23):
        parts = [batches(step, rank, world) for rank in range(world)]
        assert torch.equal(sum(table(part) for part in parts), table(batches(step)))
        assert sum(part.count for part in parts) == batches.count_per_step


def test_the_order_of_the_calls_does_not_matter() -> None:
    one, two = (StreamBatches(IDS, V, 6, 5, seed=3) for _ in range(2))
    backwards = {step: one(step, 1, 2) for step in reversed(range(60))}
    assert all(torch.equal(two(step, 1, 2).inputs, backwards[step].inputs) for step in range(60))


def test_a_batch_that_cannot_be_shared_is_refused() -> None:
    with pytest.raises(UsageError, match="a batch of 6 cannot be shared by 4 processes; choose a multiple of 4"):
        WindowBatches(IDS, V, 6, 5, seed=3)(0, 0, 4)
    with pytest.raises(UsageError, match="cannot be shared"):
        WindowBatches(IDS, V, 6, 5, seed=3)(0, 2, 2)
