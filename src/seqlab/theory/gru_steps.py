"""GRUs to make claims about: the layer with given weights, what happens inside a step, and cells that differ from it.

Weights are stacked by gate, r, z, ĥ; x is (B, D), h (B, H).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from seqlab.layers import GRU
from seqlab.ops.reference.recurrence import CellWeights
from seqlab.theory.instances import normal, uniform

GATES = ("r", "z", "candidate")
SATURATED = 1000.0  # a bias at which σ is exactly 1, and at −1000 exactly 0, in float64
INPUT, HIDDEN = 3, 4


class Step(NamedTuple):
    """One step of a batch, (B, H) each."""

    h: Tensor
    r: Tensor
    z: Tensor
    candidate: Tensor


def draw_weights(draw: torch.Generator, **biases: float) -> CellWeights:
    """Normal ones; `z=−30` gives the update gate about this bias."""
    b, c = normal(draw, 3 * HIDDEN), normal(draw, 3 * HIDDEN)
    weights = CellWeights(normal(draw, 3 * HIDDEN, INPUT), normal(draw, 3 * HIDDEN, HIDDEN), b, c)
    return biased(weights, **biases)


def biased(weights: CellWeights, **biases: float) -> CellWeights:
    b = weights.b_ih.clone()
    for name, value in biases.items():
        b.view(3, HIDDEN)[GATES.index(name)] += value
    return weights._replace(b_ih=b)


def layer_of(weights: CellWeights) -> GRU:
    """seqlab's layer with these weights, in float64."""
    with torch.random.fork_rng(devices=[]):
        made = GRU(INPUT, HIDDEN, recurrent_init="uniform").double()
    named = zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), weights, strict=True)
    made.load_state_dict(dict(named))
    return made.requires_grad_(False)


def drawn_states(draw: torch.Generator, count: int = 64) -> tuple[Tensor, Tensor]:
    """x, and h within (−1, 1), where every state that begins there stays."""
    return normal(draw, count, INPUT), uniform(draw, count, HIDDEN, low=-1, high=1)


def watched(x: Tensor, h: Tensor, weights: CellWeights) -> Step:
    """What the layer shows of one step."""
    _, _, seen = layer_of(weights).watch(x[:, None], h[None])
    return Step(*(seen[f"l0.{name}"][0] for name in ("hidden", "r", "z", "candidate")))


# --------------------------------------------------------------------------- cells


def cell_of_the_layer(x: Tensor, h: Tensor, weights: CellWeights) -> Tensor:
    y: Tensor
    y, _ = layer_of(weights)(x[:, None], h[None])
    return y[:, 0]


def parts(x: Tensor, h: Tensor, weights: CellWeights) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """r, z before their σ; W x + b, U h + c."""
    a_r, a_z, a_x = (x @ weights.w_ih.T + weights.b_ih).chunk(3, -1)
    c_r, c_z, a_h = (h @ weights.w_hh.T + weights.b_hh).chunk(3, -1)
    return a_r + c_r, a_z + c_z, a_x, a_h


def gates_exchanged(x: Tensor, h: Tensor, weights: CellWeights) -> Tensor:
    """h' = z ∘ h + (1 − z) ∘ ĥ"""
    r, z, a_x, a_h = parts(x, h, weights)
    z = torch.sigmoid(z)
    return z * h + (1 - z) * torch.tanh(a_x + torch.sigmoid(r) * a_h)


def reset_of_everything(x: Tensor, h: Tensor, weights: CellWeights) -> Tensor:
    """ĥ = tanh(r ∘ (W x + b + U h + c))"""
    r, z, a_x, a_h = parts(x, h, weights)
    return h + torch.sigmoid(z) * (torch.tanh(torch.sigmoid(r) * (a_x + a_h)) - h)


def piecewise_linear_gates(x: Tensor, h: Tensor, weights: CellWeights) -> Tensor:
    """Gates that reach 0 and 1."""
    r, z, a_x, a_h = parts(x, h, weights)
    r, z = ((a / 6 + 0.5).clamp(0, 1) for a in (r, z))
    return h + z * (torch.tanh(a_x + r * a_h) - h)


def candidate_added(x: Tensor, h: Tensor, weights: CellWeights) -> Tensor:
    """h' = h + z ∘ ĥ"""
    r, z, a_x, a_h = parts(x, h, weights)
    return h + torch.sigmoid(z) * torch.tanh(a_x + torch.sigmoid(r) * a_h)
