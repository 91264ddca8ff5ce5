"""One step of each recurrent cell, and the loop over time.

Weights of a cell are stacked by gate along the first dimension, in torch's order: GRU r, z, ĥ; LSTM i, f, c̃, o.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from seqlab.core.errors import UsageError, nearest

NONLINEARITIES: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
}


class CellWeights(NamedTuple):
    """Of one layer in one direction; K gates."""

    w_ih: Tensor  # (K·H, D), multiplies the input
    w_hh: Tensor  # (K·H, H), multiplies the hidden vector
    b_ih: Tensor  # (K·H,)
    b_hh: Tensor  # (K·H,)


def nonlinearity(name: str) -> Callable[[Tensor], Tensor]:
    if name not in NONLINEARITIES:
        raise UsageError(f"nonlinearity '{name}' is not known{nearest(name, NONLINEARITIES)}")
    return NONLINEARITIES[name]


def rnn_step(x: Tensor, g: Tensor, weights: CellWeights, phi: str = "tanh") -> Tensor:
    """One step of the RNN, post form:  g' = φ(W g + U x + b).    x (B, D), g (B, H) -> g' (B, H)"""
    U, W, b, b_hh = weights
    return nonlinearity(phi)(g @ W.T + x @ U.T + b + b_hh)


def rnn_step_pre(x: Tensor, h: Tensor, weights: CellWeights, phi: str = "tanh") -> Tensor:
    """One step of the RNN, pre form:  h' = W φ(h) + U x + b.    x (B, D), h (B, H) -> h' (B, H)"""
    U, W, b, b_hh = weights
    return nonlinearity(phi)(h) @ W.T + x @ U.T + b + b_hh


def gru_step(x: Tensor, h: Tensor, weights: CellWeights) -> Tensor:
    """One step of the GRU, reset after the product.

        r  = σ(W_r x + U_r h + b_r + c_r)      reset gate
        z  = σ(W_z x + U_z h + b_z + c_z)      update gate: 1 overwrites
        ĥ  = tanh(W x + b + r ∘ (U h + c))     candidate
        h' = (1 − z) ∘ h + z ∘ ĥ

    x (B, D), h (B, H) -> h' (B, H). torch.nn.GRU stores −a_z, so that its update gate is 1 − z.
    """
    W_r, W_z, W = weights.w_ih.chunk(3)
    U_r, U_z, U = weights.w_hh.chunk(3)
    b_r, b_z, b = weights.b_ih.chunk(3)
    c_r, c_z, c = weights.b_hh.chunk(3)
    r = torch.sigmoid(x @ W_r.T + h @ U_r.T + b_r + c_r)
    z = torch.sigmoid(x @ W_z.T + h @ U_z.T + b_z + c_z)
    candidate = torch.tanh(x @ W.T + b + r * (h @ U.T + c))
    return (1 - z) * h + z * candidate


def lstm_step(x: Tensor, h: Tensor, c: Tensor, weights: CellWeights) -> tuple[Tensor, Tensor]:
    """One step of the LSTM.

        i  = σ(W_i x + U_i h + b_i)            input gate
        f  = σ(W_f x + U_f h + b_f)            forget gate
        c̃  = tanh(W_c x + U_c h + b_c)         candidate
        o  = σ(W_o x + U_o h + b_o)            output gate
        c' = f ∘ c + i ∘ c̃
        h' = o ∘ tanh(c')

    x (B, D), h and c (B, H) -> h', c' (B, H). Each b is the sum of the two stored biases.
    """
    W_i, W_f, W_c, W_o = weights.w_ih.chunk(4)
    U_i, U_f, U_c, U_o = weights.w_hh.chunk(4)
    b_i, b_f, b_c, b_o = (weights.b_ih + weights.b_hh).chunk(4)
    i = torch.sigmoid(x @ W_i.T + h @ U_i.T + b_i)
    f = torch.sigmoid(x @ W_f.T + h @ U_f.T + b_f)
    candidate = torch.tanh(x @ W_c.T + h @ U_c.T + b_c)
    o = torch.sigmoid(x @ W_o.T + h @ U_o.T + b_o)
    c = f * c + i * candidate
    return o * torch.tanh(c), c


def loop(step: Callable[..., Tensor], x: Tensor, h: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """h_t = step(x_t, h_{t−1}); beyond a length the output is zero and the state stands still.

    step (x, h) -> h'; x (B, T, D), h (B, H), lengths (B,) -> y (B, T, H), h (B, H)
    """
    outputs = []
    for t in range(x.shape[1]):
        new = step(x[:, t], h)
        alive = _alive(t, x, lengths)
        h = torch.where(alive, new, h)
        outputs.append(torch.where(alive, new, torch.zeros_like(new)))
    return _stack(outputs, x, h), h


def lstm_loop(
    x: Tensor, h: Tensor, c: Tensor, weights: CellWeights, lengths: Tensor | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """As `loop`, for the two vectors of the LSTM.    -> y (B, T, H), (h, c)"""
    outputs = []
    for t in range(x.shape[1]):
        new_h, new_c = lstm_step(x[:, t], h, c, weights)
        alive = _alive(t, x, lengths)
        h, c = torch.where(alive, new_h, h), torch.where(alive, new_c, c)
        outputs.append(torch.where(alive, new_h, torch.zeros_like(new_h)))
    return _stack(outputs, x, h), (h, c)


def _alive(t: int, x: Tensor, lengths: Tensor | None) -> Tensor:
    """Which sequences have a step t.    (B, 1)"""
    if lengths is None:
        lengths = torch.full((x.shape[0],), x.shape[1], device=x.device)
    return (t < lengths)[:, None]


def _stack(outputs: list[Tensor], x: Tensor, h: Tensor) -> Tensor:
    return torch.stack(outputs, 1) if outputs else x.new_zeros(x.shape[0], 0, h.shape[1])
