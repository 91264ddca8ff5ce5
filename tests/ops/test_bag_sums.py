"""Sums over bags: values and gradients against plain autograd and torch's own bags."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.ops.bags import bag_sums

SHAPES = [  # rows of the table, columns, bags, places
    (1, 1, 1, 1),
    (7, 1, 4, 12),
    (5, 3, 6, 40),
    (50, 8, 3, 9),
    (4, 2, 5, 0),
    (3, 2, 0, 0),
]


def drawn(shape: tuple[int, int, int, int], seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A table, and places whose features repeat and whose bags are partly empty."""
    size, columns, bags, places = shape
    draw = torch.Generator().manual_seed(seed)
    table = torch.randn(size, columns, generator=draw, dtype=torch.float64)
    features = torch.randint(size, (places,), generator=draw)
    rows = torch.randint(max(1, bags - 1), (places,), generator=draw).sort().values
    values = torch.randn(places, columns, generator=draw, dtype=torch.float64)
    return table, features, rows, values


def plain(table: Tensor, features: Tensor, rows: Tensor, size: int, values: Tensor | None) -> Tensor:
    picked = table.index_select(0, features)
    picked = picked if values is None else picked * values
    return torch.cat([picked[:0], *(picked[rows == b].sum(0, keepdim=True) for b in range(size))])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_values_and_gradients(shape: tuple[int, int, int, int], weighted: bool, seed: int) -> None:
    table, features, rows, values = drawn(shape, seed)
    scale = torch.randn(shape[2], shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    found = []
    for sums in (bag_sums, plain):
        leaf = table.clone().requires_grad_()
        out = sums(leaf, features, rows, shape[2], values if weighted else None)
        (out.tanh() * scale).sum().backward()
        assert leaf.grad is not None
        found.append((out.detach(), leaf.grad))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_torchs_own_bags(seed: int) -> None:
    table, features, rows, _ = drawn((5, 3, 6, 40), seed)
    offsets = torch.searchsorted(rows, torch.arange(6))
    leaf, other = table.clone().requires_grad_(), table.clone().requires_grad_()
    ours, theirs = bag_sums(leaf, features, rows, 6), F.embedding_bag(features, other, offsets, mode="sum")
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert not ours[5].any(), "the last bag is empty"
    ours.square().sum().backward()
    theirs.square().sum().backward()
    torch.testing.assert_close(leaf.grad, other.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_gradcheck(weighted: bool) -> None:
    table, features, rows, values = drawn((5, 3, 4, 15))
    given = values if weighted else None
    assert torch.autograd.gradcheck(
        lambda leaf: bag_sums(leaf, features, rows, 4, given), table.requires_grad_(), atol=1e-9
    )


def test_the_order_of_the_places_does_not_matter() -> None:
    table, features, rows, values = drawn((5, 3, 6, 40))
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    shuffled = bag_sums(table, features[order], rows[order], 6, values[order])
    torch.testing.assert_close(shuffled, bag_sums(table, features, rows, 6, values), rtol=0, atol=1e-12)


def test_a_table_that_is_not_trained_needs_no_gradient() -> None:
    table, features, rows, values = drawn((5, 3, 6, 40))
    assert not bag_sums(table, features, rows, 6, values).requires_grad
    single = bag_sums(table.float(), features, rows, 6, values.float())
    assert single.dtype == torch.float32
