"""`watch` of the recurrent layers: the same as calling them, with what happens inside at each step."""

from itertools import product
from typing import Any

import pytest
import torch
from tests.layers.test_recurrent import (
    KINDS,
    SHAPES,
    STRUCTURES,
    build,
    compare,
    random,
    random_state,
    uneven_lengths,
    weights_of,
)
from torch import Tensor
from torch.nn.functional import linear

from seqlab.core.errors import UsageError
from seqlab.core.state import tensors_of
from seqlab.layers import GRU, LSTM, RNN

LENGTHS = torch.tensor([3, 6, 0, 5])


@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_watching_is_the_same_as_calling(kind: str, structure: tuple[int, bool, bool]) -> None:
    num_layers, bidirectional, bias = structure
    for (B, T, D, H), padded, given in product(SHAPES, (False, True), (False, True)):
        layer = build(kind, D, H, num_layers, bidirectional=bidirectional, bias=bias)
        x = random(B, T, D).requires_grad_()
        state = random_state(layer, B) if given else None
        leaves = [t.requires_grad_() for t in tensors_of(state)] if given else []
        lengths = uneven_lengths(B, T) if padded else None
        y, final, seen = layer.watch(x, state, lengths)
        expected, expected_final = layer(x, state, lengths)
        assert type(final) is type(expected_final)
        compare(
            [y, *tensors_of(final)], [expected, *tensors_of(expected_final)], [x, *leaves, *layer.parameters()], 1e-10
        )
        assert sorted(seen) == sorted(layer.watched_names())


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_entries_stand_at_their_positions(kind: str, padded: bool) -> None:
    """Those of the last layer's hidden vectors are the output; beyond a length all are zero."""
    layer, x = build(kind, 2, 3, 2, bidirectional=True), random(4, 6, 2)
    y, _, seen = layer.watch(x, None, LENGTHS if padded else None)
    for values in seen.values():
        assert [value.shape for value in values] == [(4, 3)] * 6
        if padded:
            stacked = torch.stack(values, 1)
            assert torch.count_nonzero(stacked[torch.arange(6) >= LENGTHS[:, None]]) == 0
            assert torch.isfinite(stacked).all()
    hidden = torch.cat([torch.stack(seen[f"l1{side}.hidden"], 1) for side in ("", "_reverse")], -1)
    assert torch.equal(hidden, y)


def steps_of(seen: dict[str, list[Tensor]], place: str, reverse: bool) -> list[dict[str, Tensor]]:
    """What is seen at one layer and direction, in the order of computation."""
    names = [name.removeprefix(f"{place}.") for name in seen if name.startswith(f"{place}.")]
    order = range(len(seen[f"{place}.hidden"]))
    return [{name: seen[f"{place}.{name}"][t] for name in names} for t in (reversed(order) if reverse else order)]


def gates_by_hand(layer: Any, x: Tensor, before: dict[str, Tensor], weights: Any) -> dict[str, Tensor]:
    """One step by the equations, with each name of its own."""
    ih, hh = linear(x, weights.w_ih, weights.b_ih), linear(before.get("activation", before["hidden"]), weights.w_hh)
    if isinstance(layer, LSTM):
        i, f, candidate, o = (ih + hh + weights.b_hh).chunk(4, -1)
        i, f, candidate, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(candidate), torch.sigmoid(o)
        c = f * before["c"] + i * candidate
        return {"i": i, "f": f, "o": o, "candidate": candidate, "c": c, "hidden": o * torch.tanh(c)}
    if isinstance(layer, GRU):
        (x_r, x_z, x_h), (h_r, h_z, h_h) = ih.chunk(3, -1), (hh + weights.b_hh).chunk(3, -1)
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        candidate = torch.tanh(x_h + r * h_h)
        return {"r": r, "z": z, "candidate": candidate, "hidden": (1 - z) * before["hidden"] + z * candidate}
    total, phi = ih + hh + weights.b_hh, getattr(torch, layer.nonlinearity)
    return {"hidden": phi(total)} if layer.form == "post" else {"hidden": total, "activation": phi(total)}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_seen_obeys_the_equations(kind: str) -> None:
    layer, x = build(kind, 2, 3, bidirectional=True), random(4, 6, 2)
    _, _, seen = layer.watch(x)
    for direction, place in enumerate(("l0", "l0_reverse")):
        inputs = x.flip(1) if direction else x
        before = {name: x.new_zeros(4, 3) for name in ("hidden", "activation", "c")}
        if "l0.activation" not in seen:
            before.pop("activation")
        for t, step in enumerate(steps_of(seen, place, bool(direction))):
            expected = gates_by_hand(layer, inputs[:, t], before, weights_of(layer, 0, direction))
            assert expected.keys() == step.keys()
            for name, value in expected.items():
                assert (step[name] - value).abs().max() <= 1e-12, name
            before = step


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_by_a_hidden_vector_is_its_total_derivative(kind: str) -> None:
    """That is: of its own output, and of all that a layer started from it computes."""
    layer, x, cut = build(kind, 2, 3), random(3, 7, 2), 3
    weight = random(3, 7, 3, seed=1)
    y, _, seen = layer.watch(x)
    names = ["l0.hidden", "l0.c"] if kind == "lstm" else ["l0.hidden"]
    found = torch.autograd.grad((y * weight).sum(), [seen[name][cut] for name in names])
    start = [seen[name][cut].detach()[None].requires_grad_() for name in names]
    rest, _ = layer(x[:, cut + 1 :], tuple(start) if kind == "lstm" else start[0])
    hidden, *cell = torch.autograd.grad((rest * weight[:, cut + 1 :]).sum(), start)
    if kind == "lstm":  # c also reaches the output of its own step
        slope = seen["l0.o"][cut] * (1 - torch.tanh(seen["l0.c"][cut]) ** 2)
        cell[0] = cell[0] + slope * (weight[:, cut] + hidden[0])
    for a, b in zip(found, [hidden[0] + weight[:, cut], *(c[0] for c in cell)], strict=True):
        assert (a - b).abs().max() <= 1e-11


@pytest.mark.parametrize("kind", ["rnn", "rnn-pre", "gru", "lstm"])
def test_the_total_derivative_ends_where_a_sequence_ends(kind: str) -> None:
    layer, x = build(kind, 2, 3, bidirectional=True), random(4, 6, 2)
    y, final, seen = layer.watch(x, None, LENGTHS)
    loss = y.square().sum() + sum(part.square().sum() for part in tensors_of(final))
    for name, values in seen.items():
        if not name.endswith((".hidden", ".c")):
            continue
        for t, gradient in enumerate(torch.autograd.grad(loss, values, retain_graph=True)):
            alive = t < LENGTHS
            assert torch.count_nonzero(gradient[~alive]) == 0, name
            assert bool((gradient[alive] != 0).any(1).all()), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", ["rnn", "rnn-pre", "gru", "lstm"])
def test_dropout_falls_on_the_same_entries(kind: str, dtype: torch.dtype) -> None:
    for bidirectional, lengths in product((False, True), (None, LENGTHS)):
        layer = build(kind, 2, 8, 3, bidirectional=bidirectional, dropout=0.5).to(dtype)
        x, found = random(4, 6, 2).to(dtype), []
        for run in (layer, layer.watch):
            torch.manual_seed(11)
            found.append(run(x, None, lengths)[0])
        assert (found[0] - found[1]).abs().max() <= (1e-10 if dtype == torch.float64 else 1e-5)
        assert (found[0] - layer(x, None, lengths)[0]).abs().max() > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_watch_and_wrong_use(kind: str) -> None:
    layer = build(kind, 2, 3, 2, bidirectional=True)
    for B, T in ((2, 0), (0, 4), (0, 0)):
        y, state, seen = layer.watch(torch.zeros(B, T, 2, dtype=torch.float64))
        assert y.shape == (B, T, 6)
        assert all(part.shape == (4, B, 3) for part in tensors_of(state))
        assert list(seen) == layer.watched_names()
        assert all([value.shape for value in values] == [(B, 3)] * T for values in seen.values())
    with pytest.raises(UsageError, match=r"x has shape \(2, 5\)"):
        layer.watch(torch.zeros(2, 5))


def test_names() -> None:
    assert build("rnn", 2, 3, 2).watched_names() == ["l0.hidden", "l1.hidden"]
    assert sorted(build("rnn-pre", 2, 3).watched_names()) == ["l0.activation", "l0.hidden"]
    assert build("gru", 2, 3, bidirectional=True).watched_names() == [
        *("l0.hidden", "l0.r", "l0.z", "l0.candidate"),
        *("l0_reverse.hidden", "l0_reverse.r", "l0_reverse.z", "l0_reverse.candidate"),
    ]
    assert set(build("lstm", 2, 3).watched_names()) == {f"l0.{n}" for n in ("hidden", "c", "i", "f", "o", "candidate")}


@pytest.mark.parametrize("layer_type", [RNN, GRU, LSTM])
def test_mixed_precision_stops_neither_padding_nor_watching(layer_type: Any) -> None:
    layer, x, lengths = layer_type(3, 4), torch.randn(2, 3, 3), torch.tensor([3, 1])
    plain = layer(x, None, lengths)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x, None, lengths)[0]
        watched = layer.watch(x, None, lengths)[0]
    for found in (y, watched):
        assert torch.allclose(found.float(), plain, atol=0.05)
    y.sum().backward()
