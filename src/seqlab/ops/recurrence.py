"""Recurrent cells over all time steps at once: what torch.nn computes, with fewer operations.

Time runs first here, (T, B, ·), so that each step reads and writes contiguous memory. The plain equations and the
derivations of the backward passes stand in `ops/reference`; these are the same sums in another order:

- whatever does not depend on the step before is computed for all steps in one product: U x, and in the backward pass
  the factors that multiply δh;
- each step then is one matrix product and a few elementwise operations, written in place;
- each weight gradient Σ_t δa_tᵀ h_{t−1} is one product over all steps.

Right-padded batches come sorted by length, longest first: `alive[t]` sequences have a step t, and a step computes
those rows only, so nothing ever flows through padding.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.ops import recurrence_steps

Alive = Sequence[int] | None


def rnn(
    x: Tensor, h0: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, phi: str = "tanh", alive: Alive = None
) -> Tensor:
    """g_t = φ(W_ih x_t + W_hh g_{t−1} + b).

    x (T, B, D), h0 (B, H), w_ih (H, D), w_hh (H, H), bias (H,) -> (T, B, H), zero where a sequence has ended
    """
    result: Tensor = _RNN.apply(x, h0, w_ih, w_hh, bias, phi, alive)  # type: ignore[no-untyped-call]
    return result


def gru(x: Tensor, h0: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, alive: Alive = None) -> Tensor:
    """r, z = σ(W x_t + b + U h + c),  ĥ = tanh(W x_t + b + r ∘ (U h + c)),  h' = h + z ∘ (ĥ − h).

    x (T, B, D), h0 (B, H), w_ih (3H, D), w_hh (3H, H), biases (3H,), gates r, z, ĥ -> (T, B, H), zero where a
    sequence has ended
    """
    result: Tensor = _GRU.apply(x, h0, w_ih, w_hh, b_ih, b_hh, alive)  # type: ignore[no-untyped-call]
    return result


def lstm(
    x: Tensor, h0: Tensor, c0: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, alive: Alive = None
) -> tuple[Tensor, Tensor]:
    """i, f, o = σ(W x_t + U h + b),  c̃ = tanh(W x_t + U h + b),  c' = f ∘ c + i ∘ c̃,  h' = o ∘ tanh(c').

    x (T, B, D), h0 and c0 (B, H), w_ih (4H, D), w_hh (4H, H), bias (4H,), gates i, f, c̃, o -> h and c, both (T, B, H),
    zero where a sequence has ended. Several steps without padding are faster in torch.lstm, which has a fused loop for
    them; for one step it would reorder the weights anew.
    """
    if len(x) == 1 and alive is None:
        h, c = torch.lstm_cell(x[0], (h0, c0), w_ih, w_hh, bias)
        return h[None], c[None]
    y, cells = _LSTM.apply(x, h0, c0, w_ih, w_hh, bias, alive)  # type: ignore[no-untyped-call]
    return y, cells


def rnn_activations(
    x: Tensor, g0: Tensor, g: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, alive: Alive = None
) -> Tensor:
    """The pre form's h_t = W_hh g_{t−1} + W_ih x_t + b, given g = φ(h) of every step.    -> (T, B, H)"""
    h = F.linear(x, w_ih, bias) + F.linear(_shifted(g0, g), w_hh)
    ended = _ended(h, alive)
    return h if ended is None else h.masked_fill(ended, 0.0)


def alive_at(lengths: Tensor, time: int) -> list[int]:
    """How many sequences have a step t, for each t.    lengths (B,)"""
    steps = torch.arange(time, device=lengths.device)[:, None]
    counts: list[int] = (lengths > steps).sum(1).tolist()
    return counts


def reverse(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each sequence backwards within its length; padding stays where it is.    (T, B, ·)"""
    if lengths is None:
        return x.flip(0)
    t = torch.arange(x.shape[0], device=x.device)[:, None]
    source = torch.where(t < lengths, lengths - 1 - t, t)
    return x.gather(0, source[..., None].expand_as(x))


def final(y: Tensor, h0: Tensor, lengths: Tensor | None) -> Tensor:
    """The hidden vector at each sequence's length; that of an empty sequence is h0.    y (T, B, H) -> (B, H)"""
    if lengths is None:
        return y[-1]
    last = (lengths - 1).clamp(min=0)[None, :, None].expand(1, *y.shape[1:])
    return torch.where((lengths > 0)[:, None], y.gather(0, last)[0], h0)


# --------------------------------------------------------------------------- kernels

SQUASH = {"tanh": torch.tanh_, "relu": torch.relu_, "sigmoid": torch.sigmoid_}


class _RNN(torch.autograd.Function):
    """See `reference.gradients.rnn_gradients` for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, phi: str, alive: Alive
    ) -> Tensor:
        squash, w_hh_t = SQUASH[phi], w_hh.t()
        y = _affine(x, w_ih, bias)
        h = h0
        for a in _steps(y, alive):
            h = squash(a.addmm_(h[: len(a)], w_hh_t))
        _clear_ended(y, alive)
        ctx.save_for_backward(x, h0, w_ih, w_hh, bias, y)
        ctx.phi, ctx.alive = phi, alive
        return y

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        x, h0, w_ih, w_hh, bias, y = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody wants the gradient of this gradient
            inputs = (x, h0, w_ih, w_hh, bias)
            seen = recurrence_steps.rnn(*inputs, ctx.phi, _ended(x, ctx.alive))
            return *_differentiated([seen["hidden"]], inputs, [grad_y]), None, None
        grad_h = grad_y.clone(memory_format=torch.contiguous_format)
        grad_a = _slope(ctx.phi, y)  # φ'(a), times δg step by step
        grad_h0 = torch.zeros_like(h0)
        into = [grad_h0, *_steps(grad_h, ctx.alive)]
        for t, delta in reversed(list(enumerate(_steps(grad_a, ctx.alive)))):
            delta.mul_(into[t + 1])
            into[t][: len(delta)].addmm_(delta, w_hh)
        _clear_ended(grad_a, ctx.alive)
        before = _shifted(h0, y)
        return (
            _project_back(grad_a, w_ih),
            grad_h0,
            _weight_gradient(grad_a, x),
            _weight_gradient(grad_a, before),
            grad_a.sum((0, 1)),
            None,
            None,
        )


class _GRU(torch.autograd.Function):
    """See `reference.gradients.gru_gradients` for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, alive: Alive
    ) -> Tensor:
        H = h0.shape[1]
        w_hh_t = w_hh.t()
        # One product per step gives W x + b + U h + c for r and z, and U h + c alone for ĥ.
        bias = torch.cat([b_ih[: 2 * H] + b_hh[: 2 * H], b_ih[2 * H :]])
        gates = _affine(x, w_ih, bias)
        candidate = gates[..., 2 * H :].clone(memory_format=torch.contiguous_format)
        gates[..., 2 * H :] = b_hh[2 * H :]
        y = torch.empty_like(candidate)
        h = h0
        for a, n, out in zip(_steps(gates, alive), _steps(candidate, alive), _steps(y, alive), strict=True):
            h = h[: len(a)]
            a.addmm_(h, w_hh_t)
            a[:, : 2 * H].sigmoid_()
            n.addcmul_(a[:, :H], a[:, 2 * H :]).tanh_()
            h = torch.lerp(h, n, a[:, H : 2 * H], out=out)
        _clear_ended(y, alive)
        ctx.save_for_backward(x, h0, w_ih, w_hh, b_ih, b_hh, gates, candidate, y)
        ctx.alive = alive
        return y

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        x, h0, w_ih, w_hh, b_ih, b_hh, gates, candidate, y = ctx.saved_tensors
        if torch.is_grad_enabled():
            inputs = (x, h0, w_ih, w_hh, b_ih, b_hh)
            seen = recurrence_steps.gru(*inputs, _ended(x, ctx.alive))
            return *_differentiated([seen["hidden"]], inputs, [grad_y]), None
        T, B, H = y.shape
        r, z, a_h = gates.view(T, B, 3, H).unbind(2)
        before = _shifted(h0, y)
        keep = 1 - z
        to_input = z * (1 - candidate.square())  # ∂h'/∂a_x, elementwise
        # Factors of δh' in δa_r, δa_z, δa_h; times δh' step by step.
        grad_a = torch.stack([to_input * a_h * r * (1 - r), (candidate - before) * z * keep, to_input * r], 2)
        grad_h = grad_y.clone(memory_format=torch.contiguous_format)
        grad_h0 = torch.zeros_like(h0)
        into = [grad_h0, *_steps(grad_h, ctx.alive)]
        deltas, keeps = _steps(grad_a, ctx.alive), _steps(keep, ctx.alive)
        for t in reversed(range(len(deltas))):
            here, delta, earlier = into[t + 1], deltas[t], into[t][: len(deltas[t])]
            delta.mul_(here[:, None])
            earlier.addcmul_(here, keeps[t]).addmm_(delta.view(len(delta), 3 * H), w_hh)
        grad_x = to_input.mul_(grad_h)
        _clear_ended(grad_a, ctx.alive)
        _clear_ended(grad_x, ctx.alive)
        grad_hh = grad_a.view(T, B, 3 * H)
        grad_b_hh = grad_hh.sum((0, 1))
        grad_w_hh = _weight_gradient(grad_hh, before)
        grad_a[:, :, 2] = grad_x
        grad_ih = grad_hh
        return (
            _project_back(grad_ih, w_ih),
            grad_h0,
            _weight_gradient(grad_ih, x),
            grad_w_hh,
            grad_ih.sum((0, 1)),
            grad_b_hh,
            None,
        )


class _LSTM(torch.autograd.Function):
    """See `reference.gradients.lstm_gradients` for the backward pass. Real steps only are packed, step after step."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor, c0: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, alive: Alive
    ) -> tuple[Tensor, Tensor]:
        H, w_hh_t = h0.shape[1], w_hh.t()
        packing = _Packing(x, alive)
        packed = packing.pack(x)
        gates = torch.addmm(bias, packed, w_ih.t(), out=x.new_empty(len(packed), 4 * H))
        y, cells, squashed = (x.new_empty(len(gates), H) for _ in range(3))
        h, c = h0, c0
        for a, *out in zip(*(packing.steps(tensor) for tensor in (gates, y, cells, squashed)), strict=True):
            a.addmm_(h[: len(a)], w_hh_t)
            a[:, : 2 * H].sigmoid_()
            candidate, o = a[:, 2 * H : 3 * H].tanh_(), a[:, 3 * H :].sigmoid_()
            c = torch.mul(a[:, H : 2 * H], c[: len(a)], out=out[1]).addcmul_(a[:, :H], candidate)
            h = torch.mul(o, torch.tanh(c, out=out[2]), out=out[0])
        ctx.save_for_backward(x, h0, c0, w_ih, w_hh, bias, gates, y, cells, squashed)
        ctx.packing, ctx.alive = packing, alive
        return packing.unpack(y), packing.unpack(cells)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor, grad_cells: Tensor) -> tuple[Tensor | None, ...]:
        x, h0, c0, w_ih, w_hh, bias, gates, y, cells, squashed = ctx.saved_tensors
        if torch.is_grad_enabled():
            inputs = (x, h0, c0, w_ih, w_hh, bias)
            seen = recurrence_steps.lstm(x, (h0, c0), w_ih, w_hh, bias, _ended(x, ctx.alive))
            return *_differentiated([seen["hidden"], seen["c"]], inputs, [grad_y, grad_cells]), None
        packing: _Packing = ctx.packing
        H = h0.shape[1]
        i, f, candidate, o = gates.view(-1, 4, H).unbind(1)
        # Factors of δc' in δa_i, δa_f, δa_c and of δh' in δa_o; times those step by step.
        to_i, to_f = candidate * i * (1 - i), packing.before(c0, cells) * f * (1 - f)
        grad_a = torch.stack([to_i, to_f, i * (1 - candidate.square()), squashed * o * (1 - o)], 1)
        to_cell = o * (1 - squashed.square())  # ∂h'/∂c'
        grad_h0, grad_c0 = torch.zeros_like(h0), torch.zeros_like(c0)
        into_h = [grad_h0, *packing.steps(packing.pack(grad_y).clone())]
        into_c = [grad_c0, *packing.steps(packing.pack(grad_cells).clone())]
        deltas, slopes, forgets = (packing.steps(tensor) for tensor in (grad_a, to_cell, f))
        for t in reversed(range(len(deltas))):
            delta, here = deltas[t], into_c[t + 1].addcmul_(into_h[t + 1], slopes[t])
            delta[:, :3].mul_(here[:, None])
            delta[:, 3].mul_(into_h[t + 1])
            into_c[t][: len(delta)].addcmul_(here, forgets[t])
            into_h[t][: len(delta)].addmm_(delta.view(len(delta), 4 * H), w_hh)
        grad_a = grad_a.view(-1, 4 * H)
        grad_w_ih, grad_w_hh = grad_a.t() @ packing.pack(x), grad_a.t() @ packing.before(h0, y)
        return packing.unpack(grad_a @ w_ih), grad_h0, grad_c0, grad_w_ih, grad_w_hh, grad_a.sum(0), None


class _Packing:
    """The N real steps of a sorted batch as rows, one time step after the other.    (T, B, ·) <-> (N, ·)"""

    def __init__(self, x: Tensor, alive: Alive) -> None:
        self.shape = x.shape[:2]
        ended = _ended(x, alive)
        self.places = None if ended is None else (~ended).flatten().nonzero()[:, 0]
        self.rows = [x.shape[1]] * len(x) if alive is None else [rows for rows in alive if rows]

    def pack(self, tensor: Tensor) -> Tensor:
        flat = tensor.flatten(0, 1)
        return flat if self.places is None else flat.index_select(0, self.places)

    def unpack(self, packed: Tensor) -> Tensor:
        if self.places is not None:
            size = self.shape.numel(), packed.shape[1]
            packed = packed.new_zeros(size).index_copy_(0, self.places, packed)
        return packed.view(*self.shape, -1)

    def steps(self, packed: Tensor) -> Sequence[Tensor]:
        return torch.split(packed, self.rows) if self.rows else ()

    def before(self, start: Tensor, packed: Tensor) -> Tensor:
        """What each row had one step earlier.    start (B, H), (N, H) -> (N, H)"""
        earlier = [start, *self.steps(packed)][: len(self.rows)]
        return torch.cat([step[:rows] for step, rows in zip(earlier, self.rows, strict=True)] or [packed])


def _slope(phi: str, value: Tensor) -> Tensor:
    """φ'(a) from the value φ(a):  tanh 1 − φ²,  sigmoid φ(1 − φ),  relu 1 where φ > 0."""
    if phi == "tanh":
        return 1 - value**2
    if phi == "sigmoid":
        return value * (1 - value)
    return (value > 0).to(value.dtype)


# --------------------------------------------------------------------------- gradients of gradients: slow, rarely asked


def _differentiated(
    outputs: Sequence[list[Tensor]], inputs: tuple[Tensor, ...], grads: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """The backward pass of outputs as autograd forms it, which can be differentiated again.    outputs: T of (B, H)"""
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    stacked = [torch.stack(steps) for steps in outputs]
    found = iter(torch.autograd.grad(stacked, wanted, grads, create_graph=True, materialize_grads=True))
    return tuple(next(found) if tensor.requires_grad else None for tensor in inputs)


# --------------------------------------------------------------------------- small parts


def _steps(tensor: Tensor, alive: Alive) -> Sequence[Tensor]:
    """The rows that each time step computes."""
    if alive is None:
        return tensor.unbind(0)
    return [tensor[t, :rows] for t, rows in enumerate(alive) if rows]


def _clear_ended(tensor: Tensor, alive: Alive) -> None:
    ended = _ended(tensor, alive)
    if ended is not None:
        tensor[ended[..., 0]] = 0


def _ended(tensor: Tensor, alive: Alive) -> Tensor | None:
    """Where a sequence has no step.    (T, B, 1)"""
    if alive is None:
        return None
    rows = torch.arange(tensor.shape[1], device=tensor.device)
    return (rows >= torch.as_tensor(alive, device=tensor.device)[:, None])[..., None]


def _affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x Wᵀ + b over all steps.    (T, B, D) -> (T, B, K)"""
    out = x.new_empty(*x.shape[:2], len(weight))
    torch.addmm(bias, x.flatten(0, 1), weight.t(), out=out.view(-1, len(weight)))
    return out


def _project_back(grad_a: Tensor, weight: Tensor) -> Tensor:
    return (grad_a.flatten(0, 1) @ weight).view(*grad_a.shape[:2], -1)


def _weight_gradient(grad_a: Tensor, factor: Tensor) -> Tensor:
    """Σ_t δa_tᵀ u_t as one product.    (T, B, K), (T, B, J) -> (K, J)"""
    return grad_a.flatten(0, 1).t() @ factor.flatten(0, 1)


def _shifted(h0: Tensor, y: Tensor) -> Tensor:
    """The hidden vector before each step."""
    return torch.cat([h0[None], y[:-1]])
