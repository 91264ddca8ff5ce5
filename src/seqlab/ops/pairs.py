"""The loss of a one-hidden-layer bigram network over counted pairs, with its gradient derived by hand.

Pairs (i, j) of a word and the next one, seen c_ij times, are all that a bigram model can learn from, so the
exact gradient over a corpus of any length costs one product of V × H × V:

    h_i = σ(x_i W₁ + b₁),   z_i = h_i W₂ + b₂,   n_i = Σ_j c_ij
    J   = Σ_i n_i ln Σ_j exp z_ij − Σ_ij c_ij z_ij                  total nats

    ∂J/∂z_ij = n_i ŷ_ij − c_ij          with ŷ = softmax(z), the sum of (ŷ − y) over the pairs
    ∂J/∂W₂   = hᵀ ∂J/∂z,   ∂J/∂b₂ = Σ_i ∂J/∂z_i
    ∂J/∂a    = (∂J/∂z W₂ᵀ) ∘ h ∘ (1 − h)                            a = x W₁ + b₁
    ∂J/∂W₁   = xᵀ ∂J/∂a,   ∂J/∂b₁ = Σ_i ∂J/∂a_i,   ∂J/∂x = ∂J/∂a W₁ᵀ
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS = 256  # contexts whose scores over the vocabulary are held at one time


def pair_nats(
    x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, rows: Tensor, columns: Tensor, counts: Tensor
) -> Tensor:
    """J of pairs given as (rows, columns, counts), rows ascending.

    x (R, D), w1 (D, H), b1 (H), w2 (H, V), b2 (V); rows, columns, counts (P) -> scalar
    """
    total: Tensor = _PairNats.apply(x, w1, b1, w2, b2, rows, columns, counts)  # type: ignore[no-untyped-call]
    return total


class _PairNats(torch.autograd.Function):
    """Value and gradient in one pass over blocks of contexts: the scores are never held as a whole."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, *pairs: Tensor) -> Tensor:
        rows, columns, counts = pairs
        h = torch.sigmoid(torch.addmm(b1, x, w1))
        dh, dw2, db2 = torch.empty_like(h), torch.zeros_like(w2), torch.zeros_like(b2)
        total = torch.zeros((), dtype=torch.float64)
        edges = torch.searchsorted(rows, torch.arange(0, len(x) + ROWS, ROWS)).tolist()
        for k, (first, last) in enumerate(itertools.pairwise(edges)):
            block = slice(k * ROWS, (k + 1) * ROWS)
            here = rows[first:last] - k * ROWS
            z = torch.addmm(b2, h[block], w2)
            total += _block_nats(z, here, columns[first:last], counts[first:last])  # z becomes ∂J/∂z
            torch.mm(z, w2.T, out=dh[block])
            dw2.addmm_(h[block].T, z)
            db2 += z.sum(0)
        da = dh * h * (1 - h)
        ctx.save_for_backward(da @ w1.T, x.T @ da, da.sum(0), dw2, db2)
        return total.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return (*(gradient * saved for saved in ctx.saved_tensors), None, None, None)


def _block_nats(z: Tensor, rows: Tensor, columns: Tensor, counts: Tensor) -> Tensor:
    """J of one block of contexts; its scores z are replaced by ∂J/∂z."""
    seen = torch.zeros(len(z), dtype=z.dtype).index_add_(0, rows, counts)
    places = rows * z.shape[1] + columns
    own = z.view(-1)[places].double().dot(counts.double())
    highest = z.max(dim=1, keepdim=True).values
    z.sub_(highest).exp_()
    mass = z.sum(1, keepdim=True)
    nats = (highest + mass.log()).squeeze(1).double().dot(seen.double()) - own
    z.mul_(seen[:, None] / mass)
    z.view(-1).index_add_(0, places, counts, alpha=-1)
    return nats
