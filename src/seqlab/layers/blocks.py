"""Transformer blocks."""

from torch import Tensor, nn

from seqlab.layers.attention import CausalSelfAttention, KeyValueCache


class DecoderBlock(nn.Module):
    """Pre-norm:  x ← x + Attention(LN(x)),  x ← x + MLP(LN(x)).   x (B, T, D) -> (B, T, D), cache"""

    def __init__(self, attention: CausalSelfAttention, width: int, *, dropout: float = 0.0, expansion: int = 4) -> None:
        super().__init__()
        self.attention = attention
        self.norm_attention = nn.LayerNorm(width)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, expansion * width), nn.GELU(), nn.Linear(expansion * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, state: KeyValueCache | None = None) -> tuple[Tensor, KeyValueCache]:
        mixed, state = self.attention(self.norm_attention(x), state)
        x = x + self.dropout(mixed)
        return x + self.dropout(self.mlp(self.norm_mlp(x))), state
