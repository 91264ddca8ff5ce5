"""Every kind of attention as an explicit matrix of weights; tests compare the fast paths with these."""

import torch
from torch import Tensor

from seqlab.ops.masks import banded_causal_mask


def visible_keys(
    queries: int, keys: int, *, key_mask: Tensor | None = None, causal: bool = False, window: int | None = None
) -> Tensor:
    """The full mask, (1 or B, 1, T, S)."""
    mask = torch.ones(queries, keys, dtype=torch.bool)
    if causal:
        mask = banded_causal_mask(queries, keys, window)
    return mask[None, None] if key_mask is None else mask & key_mask[:, None, None]


def softmax_weights(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    """a_ij = e^{q_iᵀk_j/√d} / Σ_l e^{q_iᵀk_l/√d} over the keys that row i may see.

    q (B, N, T, d), k (B, N, S, d), mask broadcast to (B, N, T, S) -> (B, N, T, S)
    """
    scores = torch.einsum("bntd,bnsd->bnts", q, k) / q.shape[-1] ** 0.5
    return _share(scores, mask)


def separable_weights(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    """a_ij = Σ_f softmax_f(q_i)_f · softmax over the keys l that row i may see (k_lf)_j.

    With a mask that is the same for every row this is softmax_row(Q) softmax_col(K)ᵀ; with a causal mask it is the
    variant in which each feature is normalised by its prefix sum.    q, k (B, N, T or S, F) -> (B, N, T, S)
    """
    rows = [_separable_row(q[:, :, i], k, mask[:, :, i]) for i in range(q.shape[2])]
    return torch.stack(rows, 2) if rows else q.new_zeros(*q.shape[:3], k.shape[2])


def _separable_row(q_i: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    by_feature = _share(k.transpose(-1, -2), mask[:, :, None])  # (B, N, F, S)
    return torch.einsum("bnf,bnfs->bns", torch.softmax(q_i, -1), by_feature)


def random_feature_weights(q: Tensor, k: Tensor, w: Tensor, mask: Tensor) -> Tensor:
    """a_ij = φ(q_i)ᵀφ(k_j) / Σ_l φ(q_i)ᵀφ(k_l) with q and k divided by d^{1/4}.

    φ(u) = m^{−1/2} e^{−‖u‖²/2} (e^{w_1ᵀu}, …); the sums are taken in the logarithm.    w (m, d) -> (B, N, T, S)
    """
    scale = q.shape[-1] ** -0.25
    alpha, beta = _log_features(q * scale, w), _log_features(k * scale, w)
    log_kernel = torch.logsumexp(alpha[:, :, :, None] + beta[:, :, None], -1)
    return _share(log_kernel, mask)


def _log_features(u: Tensor, w: Tensor) -> Tensor:
    m = torch.tensor(float(len(w)), dtype=u.dtype)
    return torch.stack([u @ w_f - (u * u).sum(-1) / 2 - torch.log(m) / 2 for w_f in w], -1)


def _share(scores: Tensor, mask: Tensor) -> Tensor:
    """softmax over the last dimension where the mask allows; zeros where it allows nothing."""
    mask = mask.expand_as(scores)
    return torch.softmax(scores.masked_fill(~mask, -torch.inf), -1).masked_fill(~mask, 0.0)
