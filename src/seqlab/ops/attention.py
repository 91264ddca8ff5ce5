"""Softmax attention as pure functions: scores → weights → mix, and all three at once on torch's fused kernel.

Masks are boolean, True means "may be attended to". A row with nothing to attend to has weights zero and mixes to
zero, forward and backward.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from seqlab.ops.masks import banded_causal_mask

ROWS = 512  # of queries whose mask, or whose weights under dropout, are held at once


def dot_scores(q: Tensor, k: Tensor) -> Tensor:
    """e_ij = q_iᵀ k_j.    q (…, T, d), k (…, S, d) -> (…, T, S)"""
    return q @ k.transpose(-1, -2)


def scaled_scores(q: Tensor, k: Tensor) -> Tensor:
    """e_ij = q_iᵀ k_j / √d.    q (…, T, d), k (…, S, d) -> (…, T, S)"""
    return dot_scores(q * q.shape[-1] ** -0.5, k)


def additive_scores(q: Tensor, k: Tensor, W_1: Tensor, W_2: Tensor, v: Tensor) -> Tensor:
    """e_ij = vᵀ tanh(W_1 q_i + W_2 k_j).    q (…, T, d), k (…, S, d), W_1 and W_2 (a, d), v (a,) -> (…, T, S)"""
    return torch.tanh(F.linear(q, W_1)[..., :, None, :] + F.linear(k, W_2)[..., None, :, :]) @ v


def attention_weights(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax over the keys that the mask allows; zero elsewhere, and in a row where it allows none.

    scores (…, T, S), mask broadcast to it -> (…, T, S). Both fills write zeros in the backward pass, so the NaN of
    an empty row reaches nobody.
    """
    if mask is None:
        return torch.softmax(scores, -1)
    return torch.softmax(scores.masked_fill(~mask, -torch.inf), -1).masked_fill(~mask, 0.0)


def mix(weights: Tensor, v: Tensor) -> Tensor:
    """out_i = Σ_j a_ij v_j.    weights (…, T, S), v (…, S, d) -> (…, T, d)"""
    return weights @ v


def shared_by(u: Tensor, heads: int) -> Tensor:
    """Grouped heads: each of the N_kv serves N/N_kv neighbouring heads.    (B, N_kv, S, d) -> (B, N, S, d)"""
    return u if u.shape[1] == heads else u.repeat_interleave(heads // u.shape[1], 1)


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    key_mask: Tensor | None = None,
    causal: bool = False,
    window: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """mix(softmax(q kᵀ/√d + mask), v) on torch's fused kernel: memory grows with T + S, not with T·S.

    q (B, N, T, d), k and v (B, N, S, d), or fewer heads that N is a multiple of, key_mask (B, S) -> (B, N, T, d).
    Causal: the queries are the last T of the S positions, and each sees itself and what stands before it, at most
    `window` positions in all.

    Dropout acts on weights, which the fused kernel never forms: with it they are formed, for a block of queries at a
    time where there are many, and once more for the gradient: more time, and memory for one block's weights.
    """
    queries, keys = q.shape[-2], k.shape[-2]
    if queries == 0 or keys == 0:
        return q.new_zeros(*q.shape[:-1], v.shape[-1])
    hides_nothing = not causal or (queries == 1 and (window is None or keys <= window))
    if hides_nothing and q.shape[1] != k.shape[1]:  # heads that share keys are queries of one head
        grouped = q.reshape(q.shape[0], k.shape[1], -1, q.shape[-1])
        return softmax_attention(grouped, k, v, key_mask=key_mask, dropout=dropout).reshape(*q.shape[:-1], -1)
    k, v = shared_by(k, q.shape[1]), shared_by(v, q.shape[1])
    at_once = dropout == 0 or queries <= ROWS
    if at_once and key_mask is None and hides_nothing:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
    if at_once and key_mask is None and queries == keys and causal and (window is None or keys <= window):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
    if at_once and hides_nothing:
        assert key_mask is not None
        return F.scaled_dot_product_attention(q, k, v, attn_mask=key_mask[:, None, None], dropout_p=dropout)

    def visible(first: int, last: int) -> Tensor:
        band = torch.ones(1, keys, dtype=torch.bool, device=q.device)
        if causal:
            band = banded_causal_mask(last - first, keys - queries + last, window, q.device)
        return band if key_mask is None else band & key_mask[:, None, None, : band.shape[1]]

    return _by_rows(q, k, v, visible, dropout)


def _by_rows(q: Tensor, k: Tensor, v: Tensor, visible: Callable[[int, int], Tensor], dropout: float) -> Tensor:
    """Attention for a block of queries at a time, so that no mask and no weights of T × S are ever held.

    `visible(first, last)` is the mask of those queries over the keys up to the last of them. The gradient makes both
    again, or it would hold those of all blocks; dropout then draws what it drew the first time.
    """

    def block(part: Tensor, k: Tensor, v: Tensor, first: int) -> Tensor:
        mask = visible(first, first + part.shape[-2])
        seen = mask.shape[-1]
        return F.scaled_dot_product_attention(
            part, k[..., :seen, :], v[..., :seen, :], attn_mask=mask, dropout_p=dropout
        )

    parts = torch.split(q, ROWS, -2)
    if len(parts) == 1:
        return block(q, k, v, 0)
    if not torch.is_grad_enabled():
        return torch.cat([block(part, k, v, n * ROWS) for n, part in enumerate(parts)], -2)
    again = [checkpoint(block, part, k, v, n * ROWS, use_reentrant=False) for n, part in enumerate(parts)]
    return torch.cat(again, -2)
