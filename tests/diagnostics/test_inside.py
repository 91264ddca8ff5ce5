"""What is seen inside one step: its Jacobian, gates, heads, and how far a weight would move; float64 throughout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from seqlab.core.taps import taps
from seqlab.diagnostics.gradient_flow import last_loss
from seqlab.diagnostics.inside import (
    layers_of,
    look_inside,
    parameter_ratios,
    single_layer,
    softmax_jacobian_norm,
    step_jacobian,
    step_jacobians,
)
from seqlab.layers import GRU, LSTM, RNN
from seqlab.models import build_lm
from seqlab.training.optim import build_optimiser

V = 13


def lm(kind: str, width: int = 16, **sizes: Any) -> Any:
    return build_lm(kind, V, width=width, seed=1, **sizes).double().eval()


def tokens(batch: int, time: int, seed: int = 0) -> Tensor:
    return torch.randint(0, V, (batch, time + 1), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("make", [RNN, GRU, LSTM])
def test_a_product_of_one_step_jacobians_is_the_whole(make: Any) -> None:
    """∂y_T/∂y_t through the chain: what `step_jacobian` gives, multiplied, is what autograd finds over many steps."""
    torch.manual_seed(2)
    layer = make(5, 6).double()
    x = torch.randn(7, 5, dtype=torch.float64)
    with torch.no_grad():
        _, state = layer(x[None, :3])
    parts = state if isinstance(state, tuple) else (state,)
    product, now = torch.eye(6 * len(parts), dtype=torch.float64), state
    for place in range(3, 7):
        product = step_jacobian(layer, x[place], now) @ product
        with torch.no_grad():
            _, now = layer(x[None, place : place + 1], now)

    def end(*given: Tensor) -> Tensor:
        shaped = tuple(part.view(1, 1, 6) for part in given)
        _, after = layer(x[None, 3:], shaped if isinstance(state, tuple) else shaped[0])
        return torch.cat([part.reshape(-1) for part in (after if isinstance(after, tuple) else (after,))])

    whole = torch.autograd.functional.jacobian(end, tuple(part.reshape(-1) for part in parts))
    assert (torch.cat(whole, -1) - product).abs().max() < 1e-12


def test_one_layer_of_several_is_that_layer() -> None:
    torch.manual_seed(3)
    layer = GRU(4, 6, 2).double().eval()
    x = torch.randn(1, 5, 4, dtype=torch.float64)
    y = single_layer(layer, 1)(single_layer(layer, 0)(x)[0])[0]
    assert (y - layer(x)[0]).abs().max() < 1e-12
    found = step_jacobians(layer, x[0], [1, 4])
    assert [(j.layer, j.position) for j in found] == [(0, 1), (0, 4), (1, 1), (1, 4)]
    assert all(j.spectral_radius <= j.spectral_norm <= j.frobenius * (1 + 1e-12) for j in found)
    first = single_layer(layer, 0)
    with torch.no_grad():
        _, before = first(x[:, :4])
    there = step_jacobian(first, x[0, 4], before)  # from the state after four positions to that after five
    assert found[1].frobenius == pytest.approx(float(there.norm()), rel=1e-12)


def test_the_norm_of_the_softmax_jacobian() -> None:
    p = torch.softmax(torch.randn(20, 7, dtype=torch.float64), -1)
    plain = torch.stack([(torch.diag(row) - torch.outer(row, row)).norm() for row in p])
    assert (softmax_jacobian_norm(p) - plain).abs().max() < 1e-12
    assert softmax_jacobian_norm(torch.tensor([1.0, 0.0])) == 0
    saturated = torch.tensor([0.0, -40.0], dtype=torch.float64).softmax(-1)  # ‖·‖ = 2 p_1 p_2
    exact = 2 * float(saturated[1])
    assert softmax_jacobian_norm(saturated).item() == pytest.approx(exact, rel=1e-12, abs=0)


def test_gates_heads_and_parameters() -> None:
    gru, transformer = lm("gru"), lm("transformer", depth=2, heads=2)
    ids = tokens(3, 10)
    gates, heads = look_inside(gru, lambda: gru(ids[:, :-1]))
    assert [gate.name for gate in gates] == ["recurrent.l0.r", "recurrent.l0.z"]
    assert not heads
    assert all(sum(gate.histogram) == 3 * 10 * 16 for gate in gates)
    assert all(0 <= gate.shut + gate.open <= 1 for gate in gates)
    gates, heads = look_inside(transformer, lambda: transformer(ids[:, :-1]))
    assert not gates
    assert [(head.name, head.head) for head in heads] == [
        (f"blocks.{k}.attention.weights", h) for k in range(2) for h in range(2)
    ]
    assert all(0.5 < head.evenness <= 1 for head in heads), "untrained attention is nearly even"
    with taps(transformer, "blocks.1.attention.weights") as seen, torch.no_grad():
        transformer(ids[:, :-1])
    p = seen["blocks.1.attention.weights"][:, 1, 1:]  # the first query has no choice
    entropy = -torch.special.xlogy(p, p).sum(-1)
    even = torch.arange(2, 11).double().log()
    assert heads[3].entropy == pytest.approx(float(entropy.mean()), rel=1e-9)
    assert heads[3].evenness == pytest.approx(float((entropy / even).mean()), rel=1e-9)
    before = {name: w.detach().clone() for name, w in gru.named_parameters()}
    found = parameter_ratios(gru, lambda m: last_loss(m, ids), lambda m: build_optimiser(m, 0.01, 0.0))
    assert all(torch.equal(before[name], w) for name, w in gru.named_parameters()), "the model does not change"
    used = [row for row in found if row.gradient > 0]
    assert used
    assert all(row.update > 0 for row in used if row.weight > 0)
    assert list(layers_of(gru)) == ["recurrent"]
