"""From the vectors of a sequence to one: y (B, T, D), lengths (B,) -> (B, D).

Padding is not seen; a sequence of length 0 gives zeros.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import POOLINGS
from seqlab.ops.attention import attention_weights
from seqlab.ops.masks import check_lengths, length_mask


class Pooling(nn.Module):
    def forward(self, y: Tensor, lengths: Tensor | None = None) -> Tensor:
        if y.ndim != 3:
            raise UsageError(f"y has shape {tuple(y.shape)}, but pooling reads (batch, time, width)")
        B, T, D = y.shape
        lengths = torch.full((B,), T, device=y.device) if lengths is None else check_lengths(lengths, B, T).to(y.device)
        if T == 0:
            return y.new_zeros(B, D)
        real = length_mask(lengths, T)
        pooled = self.pool(y.masked_fill(~real[..., None], 0.0), real, lengths)
        return pooled.masked_fill((lengths == 0)[:, None], 0.0)

    @abstractmethod
    def pool(self, y: Tensor, real: Tensor, lengths: Tensor) -> Tensor:
        """y (B, T, D) with zeros in the padding, real (B, T), lengths (B,) -> (B, D); what is empty may be anything."""


class MeanPooling(Pooling):
    """Σ_t y_t / length"""

    def pool(self, y: Tensor, real: Tensor, lengths: Tensor) -> Tensor:
        return y.sum(1) / lengths.clamp(min=1)[:, None]


class MaxPooling(Pooling):
    """max_t y_t, each feature for itself"""

    def pool(self, y: Tensor, real: Tensor, lengths: Tensor) -> Tensor:
        hidden = ~real | (lengths == 0)[:, None]
        return y.masked_fill(hidden[..., None], torch.finfo(y.dtype).min).amax(1)


class FirstPooling(Pooling):
    """y_1: for encoders whose first token stands for the whole"""

    def pool(self, y: Tensor, real: Tensor, lengths: Tensor) -> Tensor:
        return y[:, 0]


class LastPooling(Pooling):
    """What each direction of a recurrent layer ended with: y_length of the forward half, y_1 of the backward half."""

    def __init__(self, directions: int = 1) -> None:
        super().__init__()
        self.directions = directions

    def pool(self, y: Tensor, real: Tensor, lengths: Tensor) -> Tensor:
        last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, y.shape[2])
        ended = y.gather(1, last)[:, 0]
        if self.directions == 1:
            return ended
        return torch.cat([ended.chunk(2, -1)[0], y[:, 0].chunk(2, -1)[1]], -1)


class AttentionPooling(Pooling):
    """Σ_t α_t y_t,  α = softmax_t(vᵀ tanh(W y_t + b)) over the real t"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, width)
        self.v = nn.Parameter(torch.randn(width) * width**-0.5)

    def weights(self, y: Tensor, real: Tensor) -> Tensor:
        """α.    (B, T)"""
        scores = torch.tanh(self.project(y)) @ self.v
        return attention_weights(scores, real)

    def pool(self, y: Tensor, real: Tensor, lengths: Tensor) -> Tensor:
        return torch.einsum("bt,btd->bd", self.weights(y, real), y)


def build_pooling(kind: str, width: int, directions: int = 1) -> Pooling:
    """One of POOLINGS for vectors of a width, from an encoder that reads in one or two directions."""
    if kind not in POOLINGS:
        raise UsageError(f"pooling '{kind}' is not known{nearest(kind, POOLINGS)}")
    kinds: dict[str, Callable[[], Pooling]] = {
        "last": lambda: LastPooling(directions),
        "mean": MeanPooling,
        "max": MaxPooling,
        "attention": lambda: AttentionPooling(width),
        "first": FirstPooling,
    }
    return kinds[kind]()
