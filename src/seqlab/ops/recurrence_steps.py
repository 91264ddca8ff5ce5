"""Recurrent cells one step after the other: plain, out of place, differentiable any number of times.

Two callers: gradients of gradients, which the kernels of `recurrence` do not form themselves, and looking inside. Each
step reads the very tensors that are listed for the step before, so that the gradient by one of them is the total
derivative, through all later steps.

Time runs first, and entry t of a list belongs to position t of the text, also where the steps run backwards from each
sequence's end. `ended` (T, B, 1) says where a sequence has no step: entries are zero there.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

# What each cell gives at every step; first what its next step reads.
RNN = ("hidden",)
RNN_PRE = ("activation", "hidden")
GRU = ("hidden", "r", "z", "candidate")
LSTM = ("hidden", "c", "i", "f", "o", "candidate")

Seen = dict[str, list[Tensor]]
Parts = tuple[Tensor, ...]
Mask = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, Parts, Mask], Parts]


def rnn(
    x: Tensor, g0: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, phi: str, ended: Tensor | None, back: bool = False
) -> Seen:
    """g_t = φ(W_ih x_t + W_hh g_{t−1} + b).    x (T, B, D), g0 (B, H) -> T of (B, H)"""

    def step(a: Tensor, before: Parts, mask: Mask) -> Parts:
        return (mask(getattr(torch, phi)(a + F.linear(before[0], w_hh))),)

    return _looped(RNN, step, F.linear(x, w_ih, bias), (g0,), ended, back)


def rnn_pre(
    x: Tensor, g0: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, phi: str, ended: Tensor | None, back: bool = False
) -> Seen:
    """h_t = W_ih x_t + W_hh g_{t−1} + b,  g_t = φ(h_t).    x (T, B, D), g0 (B, H) -> T of (B, H)"""

    def step(a: Tensor, before: Parts, mask: Mask) -> Parts:
        h = mask(a + F.linear(before[0], w_hh))
        return mask(getattr(torch, phi)(h)), h

    return _looped(RNN_PRE, step, F.linear(x, w_ih, bias), (g0,), ended, back)


def gru(
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor,
    b_hh: Tensor,
    ended: Tensor | None,
    back: bool = False,
) -> Seen:
    """r, z = σ(W x_t + b + U h + c),  ĥ = tanh(W x_t + b + r ∘ (U h + c)),  h' = h + z ∘ (ĥ − h).

    x (T, B, D), h0 (B, H), w_ih (3H, D), w_hh (3H, H), biases (3H,) -> T of (B, H)
    """

    def step(a: Tensor, before: Parts, mask: Mask) -> Parts:
        h = before[0]
        a_r, a_z, a_x = a.chunk(3, -1)
        c_r, c_z, a_h = F.linear(h, w_hh, b_hh).chunk(3, -1)
        r, z = mask(torch.sigmoid(a_r + c_r)), mask(torch.sigmoid(a_z + c_z))
        candidate = mask(torch.tanh(a_x + r * a_h))
        return mask(h + z * (candidate - h)), r, z, candidate

    return _looped(GRU, step, F.linear(x, w_ih, b_ih), (h0,), ended, back)


def lstm(
    x: Tensor,
    state: tuple[Tensor, Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    bias: Tensor,
    ended: Tensor | None,
    back: bool = False,
) -> Seen:
    """i, f, o = σ(W x_t + U h + b),  c̃ = tanh(W x_t + U h + b),  c' = f ∘ c + i ∘ c̃,  h' = o ∘ tanh(c').

    x (T, B, D), h and c (B, H), w_ih (4H, D), w_hh (4H, H), bias (4H,), gates i, f, c̃, o -> T of (B, H)
    """

    def step(a: Tensor, before: Parts, mask: Mask) -> Parts:
        h, c = before
        a_i, a_f, a_c, a_o = (a + F.linear(h, w_hh)).chunk(4, -1)
        i, f, o = (mask(torch.sigmoid(gate)) for gate in (a_i, a_f, a_o))
        candidate = mask(torch.tanh(a_c))
        c = mask(f * c + i * candidate)
        return mask(o * torch.tanh(c)), c, i, f, o, candidate

    return _looped(LSTM, step, F.linear(x, w_ih, bias), state, ended, back)


def _looped(names: Sequence[str], step: Step, inputs: Tensor, start: Parts, ended: Tensor | None, back: bool) -> Seen:
    """u_t = step(a_t, u_{t−1}), or u_t = step(a_t, u_{t+1}) back from each sequence's end.

    a (T, B, ·), start: parts (B, H) -> for each name T of (B, H)
    """
    found: list[Parts] = []
    before = start
    for t in reversed(range(len(inputs))) if back else range(len(inputs)):
        found.append(step(inputs[t], before, _mask(ended, t)))
        before = found[-1][: len(start)]
        if back and ended is not None:  # those that begin at t − 1 at the latest still have their start before them
            before = tuple(torch.where(ended[t], old, new) for old, new in zip(start, before, strict=True))
    in_text_order = found[::-1] if back else found
    return {name: [parts[k] for parts in in_text_order] for k, name in enumerate(names)}


def _mask(ended: Tensor | None, t: int) -> Mask:
    return (lambda value: value) if ended is None else (lambda value: value.masked_fill(ended[t], 0.0))


def final(values: Sequence[Tensor], start: Tensor, lengths: Tensor | None, back: bool = False) -> Tensor:
    """The value after each sequence's last step; that of an empty sequence is the start.    T of (B, H) -> (B, H)"""
    if lengths is None:
        return values[0 if back else -1]
    last = torch.zeros_like(lengths) if back else (lengths - 1).clamp(min=0)
    found = torch.stack(list(values))[last, torch.arange(len(start), device=start.device)]
    return torch.where((lengths > 0)[:, None], found, start)
