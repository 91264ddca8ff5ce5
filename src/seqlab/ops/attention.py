"""Attention as pure functions. Masks are boolean, True means "may be attended to"."""

import torch.nn.functional as F
from torch import Tensor

from seqlab.ops.masks import banded_causal_mask


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
