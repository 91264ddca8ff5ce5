"""LSTMs to make claims about: the layer with given weights, all that happens inside its steps, and its derivatives.

    i, f, o = σ(·),  c̃ = tanh(·),  c_t = f ∘ c_{t−1} + i ∘ c̃,  h_t = o ∘ tanh(c_t)

Weights are stacked by gate, i, f, c̃, o. h and c are (1, H), derivatives (H, ·) in numerator layout.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from seqlab.layers import LSTM
from seqlab.ops.reference.recurrence import CellWeights
from seqlab.theory.instances import normal
from seqlab.theory.jacobians import recorded

GATES = ("i", "f", "candidate", "o")
SHUT = -1000.0  # a bias at which σ is exactly 0 in float64
INPUT, HIDDEN = 3, 4


@dataclass(frozen=True)
class Step:
    """One step, with what it read."""

    c_before: Tensor
    h: Tensor
    c: Tensor
    i: Tensor
    f: Tensor
    candidate: Tensor
    o: Tensor

    @property
    def cell_to_hidden(self) -> Tensor:
        """∂h_t/∂c_t = o (1 − tanh² c), elementwise.    (H,)"""
        return (self.o * (1 - torch.tanh(self.c) ** 2))[0]


def draw_weights(draw: torch.Generator, scale: float = 1.0, **biases: float) -> CellWeights:
    """Normal ones; `f=SHUT` gives the forget gate this bias."""
    b = normal(draw, 4 * HIDDEN, scale=scale)
    for name, value in biases.items():
        b.view(4, HIDDEN)[GATES.index(name)] = value
    w_ih, w_hh = normal(draw, 4 * HIDDEN, INPUT, scale=scale), normal(draw, 4 * HIDDEN, HIDDEN, scale=scale)
    return CellWeights(w_ih, w_hh, b, torch.zeros_like(b))


def alike(value: float, hidden: int = 1) -> CellWeights:
    """All weights and biases equal, one input."""
    b = torch.full((4 * hidden,), value, dtype=torch.float64)
    return CellWeights(b[:, None], b[:, None].expand(-1, hidden).contiguous(), b, torch.zeros_like(b))


def layer_of(weights: CellWeights) -> LSTM:
    """seqlab's layer with these weights, in float64; gradients are recorded for what a test asks for."""
    with torch.random.fork_rng(devices=[]):
        made = LSTM(weights.w_ih.shape[1], weights.w_hh.shape[1], recurrent_init="uniform").double()
    named = zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), weights, strict=True)
    made.load_state_dict(dict(named))
    return made.requires_grad_(False)


def cell_of_the_layer(x: Tensor, h: Tensor, c: Tensor, weights: CellWeights) -> tuple[Tensor, Tensor]:
    """One step of the layer.    x (B, D), h and c (B, H)"""
    y, state = layer_of(weights)(x[:, None], (h[None], c[None]))
    assert isinstance(state, tuple)
    return y[:, 0], state[1][0]


def look(layer: LSTM, x: Tensor, h: Tensor, c: Tensor) -> list[Step]:
    """The steps of one sequence, as the layer lets them be watched.    x (T, D), h and c (1, H)"""
    _, _, seen = layer.watch(x[None], (h[None], c[None]))
    before = [c, *seen["l0.c"]]
    parts = [seen[f"l0.{name}"] for name in ("hidden", "c", "i", "f", "candidate", "o")]
    return [Step(before[t], *(part[t] for part in parts)) for t in range(len(x))]


# --------------------------------------------------------------------------- paths to the step before


def cell_paths(step: Step, w_hh: Tensor) -> dict[str, Tensor]:
    """∂c_t/∂h_{t−1} at fixed c_{t−1}, through each gate.    (H, H)

    i: diag(c̃ i (1 − i)) U_i,   f: diag(c_{t−1} f (1 − f)) U_f,   candidate: diag(i (1 − c̃²)) U_c
    """
    U_i, U_f, U_c, _ = w_hh.chunk(4)
    return {
        "i": (step.candidate * step.i * (1 - step.i))[0].diag() @ U_i,
        "f": (step.c_before * step.f * (1 - step.f))[0].diag() @ U_f,
        "candidate": (step.i * (1 - step.candidate**2))[0].diag() @ U_c,
    }


def hidden_paths(step: Step, w_hh: Tensor) -> dict[str, Tensor]:
    """∂h_t/∂h_{t−1} at fixed c_{t−1}: those through c_t, and o: diag(tanh(c_t) o (1 − o)) U_o.    (H, H)"""
    through_cell = {name: step.cell_to_hidden.diag() @ path for name, path in cell_paths(step, w_hh).items()}
    output = (torch.tanh(step.c) * step.o * (1 - step.o))[0].diag() @ w_hh.chunk(4)[3]
    return through_cell | {"o": output}


def total(paths: dict[str, Tensor], names: Iterable[str] | None = None) -> Tensor:
    """Of those that are named, or of all."""
    chosen = list(paths) if names is None else [name for name in paths if name in names]
    added = torch.stack([paths[name] for name in chosen]).sum(0) if chosen else 0 * next(iter(paths.values()))
    return added.detach()


# --------------------------------------------------------------------------- W_g, the candidate's weights of the input


def candidate_rows(y: Tensor, layer: LSTM) -> Tensor:
    """∂y/∂W_g    (H, H·D)"""
    start = 2 * HIDDEN * INPUT
    return recorded(y, layer.get_parameter("weight_ih_l0"))[:, start : start + HIDDEN * INPUT]


def by_weight(factor: Tensor, x: Tensor) -> Tensor:
    """∂⁺C_k/∂W_kl = factor_k x_l    (H, H·D)"""
    return factor[0].detach().diag() @ torch.kron(torch.eye(factor.shape[1], dtype=x.dtype), x[None])
