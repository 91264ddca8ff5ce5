"""How the blocks of a stack are made: one value for all that models of this kind differ in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from seqlab.layers.attention import MultiHeadAttention
from seqlab.layers.feed_forward import FeedForward
from seqlab.layers.norms import build_norm


@dataclass(frozen=True)
class BlockStyle:
    """The defaults are seqlab's own; docs/layers.md has those of GPT-2, Llama, BERT and Marian."""

    kv_heads: int | None = None  # heads of keys and values; as many as of queries
    head_width: int | None = None  # width/heads
    features: int | None = None  # random features of a head, if that is how attention estimates; 4 for each number
    bias: bool = True  # of queries, keys and values
    bias_out: bool | None = None  # of what attention puts out; as the others
    hidden: int | None = None  # units of the feed-forward network; 4·width
    activation: str = "gelu"
    gated: bool = False
    bias_mlp: bool = True
    norm: str = "layer"
    eps: float | None = None  # that of the norm's kind
    norm_bias: bool = True
    placement: str = "pre"

    def attention(self, width: int, heads: int, **options: Any) -> MultiHeadAttention:
        return MultiHeadAttention(
            width,
            heads,
            n_kv_heads=self.kv_heads,
            head_width=self.head_width,
            features=self.features,
            bias=self.bias,
            bias_out=self.bias_out,
            **options,
        )

    def block(self, width: int, dropout: float = 0.0) -> dict[str, Any]:
        """What a block takes beside its attention."""
        mlp = FeedForward(width, self.hidden, activation=self.activation, gated=self.gated, bias=self.bias_mlp)
        norms = dict(norm=self.norm, eps=self.eps, norm_bias=self.norm_bias, placement=self.placement)
        return dict(mlp=mlp, dropout=dropout, **norms)

    def last_norm(self, width: int) -> nn.Module | None:
        """What a stack ends with: post-norm blocks end with theirs."""
        return None if self.placement == "post" else build_norm(self.norm, width, eps=self.eps, bias=self.norm_bias)
