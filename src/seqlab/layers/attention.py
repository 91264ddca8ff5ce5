"""Causal self-attention with a key/value cache and a sliding window."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.core.state import BatchFirstState
from seqlab.layers.positions import RotaryPosition
from seqlab.ops.attention import softmax_attention


@dataclass(frozen=True)
class KeyValueCache(BatchFirstState):
    """Keys and values of the last window−1 positions, (B, N, S, d), and how many positions went before."""

    keys: Tensor
    values: Tensor
    position: int


class CausalSelfAttention(nn.Module):
    """softmax(q kᵀ/√d) v over itself and the window−1 positions before, in N heads of width D/N."""

    def __init__(
        self,
        width: int,
        heads: int,
        window: int,
        *,
        dropout: float = 0.0,
        rotary: RotaryPosition | None = None,
    ) -> None:
        super().__init__()
        if width % heads:
            raise UsageError(f"width {width} cannot be cut into {heads} heads; choose a multiple of {heads}")
        self.heads, self.window, self.dropout, self.rotary = heads, window, dropout, rotary
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)

    def forward(self, x: Tensor, state: KeyValueCache | None = None) -> tuple[Tensor, KeyValueCache]:
        B, T, D = x.shape
        heads = self.project_in(x).view(B, T, 3, self.heads, D // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each (B, N, T, d)
        start = 0 if state is None else state.position
        if self.rotary is not None:
            q, k = self.rotary(q, start), self.rotary(k, start)
        if state is not None:
            k, v = torch.cat([state.keys, k], 2), torch.cat([state.values, v], 2)
        mixed = softmax_attention(
            q, k, v, causal=True, window=self.window, dropout=self.dropout if self.training else 0.0
        )
        out = self.project_out(mixed.transpose(1, 2).reshape(B, T, D))
        kept = max(0, k.shape[2] - (self.window - 1))
        return out, KeyValueCache(k[:, :, kept:], v[:, :, kept:], start + T)
