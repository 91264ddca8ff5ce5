"""Bytes of a training step: what autograd keeps, and what the optimiser keeps, against the counted ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.diagnostics.cost_cases import CASES, one_step, source_of
from torch import nn

import seqlab
from seqlab.core.settings.training import OPTIMISERS
from seqlab.training.averaging import WeightAverage
from seqlab.training.optim import build_optimiser

CLOSE, ROUGH = 0.05, 0.1  # of what is kept; ROUGH where a fused LSTM or linear attention has a workspace of its own
WORKSPACES = ("lstm", "separable", "random_features")


def kept_bytes(model: nn.Module, batch: int, length: int, source: int) -> int:
    """Bytes of all tensors that one step saves for its backward pass, each storage once, the weights not."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, Any] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage  # alive until all are counted: an address is given out once
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = one_step(model.train(), batch, length, source)
    total = sum(storage.nbytes() for storage in kept.values())
    del loss
    return total


@pytest.mark.parametrize("shape", [(3, 40, 28), (2, 70, 90), (5, 30, 24)])
@pytest.mark.parametrize("name", CASES)
def test_what_is_kept_for_the_backward_pass(name: str, shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    batch, length, source = shape
    model = CASES[name]()
    counted = seqlab.cost(model, batch, length, source_length=source_of(model, source)).saved_bytes
    bound = ROUGH if any(word in name for word in WORKSPACES) else CLOSE
    assert counted == pytest.approx(kept_bytes(model, batch, length, source), rel=bound)


def test_what_a_transformer_keeps_is_exact_but_for_the_loss_s_own_number() -> None:
    for name in ("lm transformer", "lm transformer, kv_heads", "lm transformer, dropout", "lm transformer, window"):
        model = CASES[name]()
        for batch, length in ((2, 5), (3, 40)):
            assert seqlab.cost(model, batch, length).saved_bytes == kept_bytes(model, batch, length, 0) - 4


def test_numbers_of_another_size() -> None:
    model = CASES["lm transformer"]().double()
    assert seqlab.cost(model, 2, 9).saved_bytes == pytest.approx(kept_bytes(model, 2, 9, 0), rel=CLOSE)
    assert seqlab.cost(model, 2, 9).weight_bytes == 8 * sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_what_the_optimiser_keeps(optimiser: str) -> None:
    """After one step; the count of its steps, one for each weight, is left out."""
    for name in ("lm transformer, tied", "lm bigram, fixed", "classify lstm"):
        model = CASES[name]()
        stepping = build_optimiser(model, 0.1, 0.1, kind=optimiser)
        one_step(model, 2, 6, 5).backward()
        stepping.step()
        kept = [value for state in states(stepping) for value in state.values() if is_moment(value)]
        counted = seqlab.cost(model, 2, 6, optimiser=optimiser)
        assert counted.optimiser_bytes == sum(value.numel() * value.element_size() for value in kept)
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        assert counted.gradient_bytes == sum(gradient.numel() * gradient.element_size() for gradient in gradients)


def states(optimiser: Any) -> list[dict[str, Any]]:
    return list(optimiser.state.values())


def is_moment(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim > 0


def test_an_average_of_the_weights_is_one_more_copy() -> None:
    model = CASES["lm gru"]()
    plain, averaged = seqlab.cost(model), seqlab.cost(model, ema=True)
    average = WeightAverage(model, 0.9)
    held = sum(value.numel() * value.element_size() for value in average.weights.values())
    assert averaged.optimiser_bytes - plain.optimiser_bytes == held == plain.weight_bytes
    parts = plain.weight_bytes + plain.gradient_bytes + plain.optimiser_bytes + plain.saved_bytes
    assert plain.memory_bytes == parts
    assert averaged.memory_bytes == parts + held
