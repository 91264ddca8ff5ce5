"""Batches of labelled texts: every text once an epoch, by number, and their pieces and shares make up the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from seqlab.core.errors import UsageError
from seqlab.core.types import BEGIN, BagBatch, LabelBatch, PaddedBatch
from seqlab.data.bags import Bags
from seqlab.data.label_batches import SORTED_TOGETHER, LabelBatches, input_batch
from seqlab.data.word_ids import IdRows
from seqlab.models.averaging import AveragingClassifier
from seqlab.models.encoder_classifier import GRUClassifier
from seqlab.training.objectives import Labels

TEXTS, CLASSES = 53, 3
SIZES = np.random.default_rng(0).integers(1, 30, TEXTS)
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
NAMES = 3 + np.repeat(np.arange(TEXTS), SIZES)  # every place of a text names it
TRUTH = np.random.default_rng(1).integers(CLASSES, size=TEXTS)
ROWS = np.random.default_rng(2).permutation(TEXTS)[:45]
INPUTS: dict[str, Bags | IdRows] = {
    "bags": Bags(NAMES.astype(np.int32), np.ones(len(NAMES), np.uint16), OFFSETS),
    "ids": IdRows(NAMES, OFFSETS),
}


def batches(kind: str, size: int = 8, seed: int = 3, rows: Any = ROWS) -> LabelBatches:
    return LabelBatches(INPUTS[kind], rows, TRUTH, size, seed)


def texts_in(batch: LabelBatch) -> list[int]:
    """Which texts, told by their ids."""
    inputs = batch.inputs
    if isinstance(inputs, PaddedBatch):
        return [int(row) - 3 for row in inputs.ids[:, 0]]
    return [int(inputs.features[start]) - 3 for start in inputs.offsets[:-1]]


@pytest.mark.parametrize("kind", sorted(INPUTS))
@pytest.mark.parametrize("size", [1, 8, 9, 44, 45, 1000])
def test_every_text_once_an_epoch_with_its_label(kind: str, size: int) -> None:
    made = batches(kind, size)
    assert made.count_per_step == min(size, 45)
    assert made.steps_per_epoch == -(-45 // min(size, 45))
    orders = []
    for epoch in range(2):
        steps = [made(epoch * made.steps_per_epoch + k) for k in range(made.steps_per_epoch)]
        found = [text for batch in steps for text in texts_in(batch)]
        assert sorted(found) == sorted(ROWS.tolist())
        assert [label for batch in steps for label in batch.labels.tolist()] == TRUTH[found].tolist()
        assert [batch.count for batch in steps[:-1]] == [made.batch] * (len(steps) - 1)
        assert all(batch.fresh and len(batch.inputs) == batch.count > 0 for batch in steps)
        orders.append(found)
    assert orders[0] != orders[1]


@pytest.mark.parametrize("kind", sorted(INPUTS))
def test_a_batch_is_a_function_of_its_number(kind: str) -> None:
    one, two, other = batches(kind), batches(kind), batches(kind, seed=4)
    backwards = {step: texts_in(one(step)) for step in reversed(range(30))}
    assert all(texts_in(two(step)) == backwards[step] for step in range(30))
    assert any(texts_in(other(step)) != backwards[step] for step in range(6))


@pytest.mark.parametrize("kind", sorted(INPUTS))
@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_processes_share_a_batch(kind: str, world: int) -> None:
    made = batches(kind)
    for step in (0, 3, 5, 11):  # 5 and 11 are the last of an epoch: 5 texts
        whole = made(step)
        parts = [made(step, rank, world) for rank in range(world)]
        assert sorted(text for part in parts for text in texts_in(part)) == sorted(texts_in(whole))
        sizes = [part.count for part in parts]
        assert max(sizes) - min(sizes) <= 1


def test_a_batch_that_cannot_be_shared_is_refused() -> None:
    with pytest.raises(UsageError, match="a batch of 8 cannot be shared by 3 processes; choose a multiple of 3"):
        batches("bags")(0, 0, 3)
    for rank, world in ((2, 2), (-1, 2), (1, 1)):
        with pytest.raises(UsageError, match="cannot be shared"):
            batches("bags")(0, rank, world)


def test_texts_of_similar_length_stand_together() -> None:
    count, size = 64 * 8, 8
    sizes = np.random.default_rng(5).integers(1, 400, count)
    inputs = IdRows(np.full(sizes.sum(), BEGIN), np.concatenate([[0], np.cumsum(sizes)]))
    made = LabelBatches(inputs, np.arange(count), np.zeros(count, np.int64), size, 0)
    lengths = [made(step).inputs.lengths for step in range(made.steps_per_epoch)]
    padded = sum(size * int(some.max()) for some in lengths)
    assert padded < 1.1 * sizes.sum()  # in random order it is about 1.8
    means = [float(some.double().mean()) for some in lengths[:SORTED_TOGETHER]]
    assert means != sorted(means)  # but a step does not know what length comes next
    together = sorted(length for some in lengths[:SORTED_TOGETHER] for length in some.tolist())
    assert together != sorted(sizes.tolist())[: len(together)]


def test_bags_are_not_sorted() -> None:
    order = [SIZES[text] for text in texts_in(batches("bags", 45)(0))]
    assert order != sorted(order)


def model(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "ids":
        return GRUClassifier(CLASSES, TEXTS, 6).double()
    made = AveragingClassifier(CLASSES, TEXTS + 3, width=4, depth=1, hidden=5).double()
    made.count(torch.randint(1, 9, (TEXTS + 3, CLASSES)))
    return made


def gradients(made: nn.Module, pieces: Any, weights: torch.Tensor | None) -> tuple[list[torch.Tensor], float, int]:
    made.zero_grad()
    total, count = 0.0, 0
    for piece in pieces:
        loss = Labels(weights)(made, piece, None)
        loss.total.backward()
        total, count = total + loss.total.item(), count + loss.count
    return [p.grad.clone() for p in made.parameters()], total, count


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("pieces", [1, 2, 3, 8, 50])
@pytest.mark.parametrize("kind", sorted(INPUTS))
def test_the_gradients_of_the_pieces_add_up(kind: str, pieces: int, weighted: bool) -> None:
    batch, made = batches(kind)(1), model(kind)
    cut = batch.cut(pieces)
    assert len(cut) == min(pieces, batch.count)
    assert [text for piece in cut for text in texts_in(piece)] == texts_in(batch)
    assert torch.equal(torch.cat([piece.labels for piece in cut]), batch.labels)
    weights = torch.tensor([0.5, 2.0, 1.0]).double() if weighted else None
    whole, in_pieces = gradients(made, [batch], weights), gradients(made, cut, weights)
    for a, b in zip(whole[0], in_pieces[0], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    assert whole[1] == pytest.approx(in_pieces[1], abs=1e-10)
    assert whole[2] == in_pieces[2] == batch.count


def test_the_objective_is_the_sum_of_weighted_nats() -> None:
    batch, made = batches("bags")(0), model("bags")
    weights = torch.tensor([0.5, 2.0, 1.0]).double()
    logs = torch.log_softmax(made(batch.inputs, batch.labels), -1).detach()
    by_hand = -sum(float(weights[k] * logs[row, k]) for row, k in enumerate(batch.labels.tolist()))
    assert Labels(weights)(made, batch, None).total.item() == pytest.approx(by_hand, abs=1e-12)


def test_parts_of_a_bag_batch() -> None:
    batch = BagBatch(torch.tensor([4, 5, 6, 7, 8]), torch.tensor([0, 2, 2, 5]))
    assert batch.rows.tolist() == [0, 0, 2, 2, 2]
    part = batch.part(1, 3)
    assert (part.features.tolist(), part.offsets.tolist(), part.rows.tolist()) == ([6, 7, 8], [0, 0, 3], [1, 1, 1])
    assert len(batch.part(1, 2)) == 1
    assert isinstance(input_batch(INPUTS["bags"], ROWS[:3]), BagBatch)
