"""Attention as pure functions. Masks are boolean, True means "may be attended to"."""

import torch
import torch.nn.functional as F
from torch import Tensor


def banded_causal_mask(queries: int, keys: int, window: int, device: torch.device | None = None) -> Tensor:
    """Which of S keys each of the last T positions may see: itself and the window−1 before it.

        mask[i, j] = (p − window < j ≤ p),  p = S − T + i        (T, S)

    The queries are the last T of the S positions, so that a cache only adds keys on the left.
    """
    position = torch.arange(keys - queries, keys, device=device)[:, None]
    key = torch.arange(keys, device=device)
    return (key <= position) & (key > position - window)


def banded_attention(q: Tensor, k: Tensor, v: Tensor, window: int, dropout: float = 0.0) -> Tensor:
    """softmax(q kᵀ/√d + band) v for the last T of S positions.

    q (B, N, T, d), k and v (B, N, S, d) -> (B, N, T, d). Where the band hides nothing that causality
    does not, torch's fused causal kernel serves.
    """
    queries, keys = q.shape[-2], k.shape[-2]
    if queries == keys and keys <= window:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
    if queries == 1 and keys <= window:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
    mask = banded_causal_mask(queries, keys, window, q.device)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
