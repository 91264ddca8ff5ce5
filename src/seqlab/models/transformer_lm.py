"""Decoder-only Transformer language model, pre-norm, with a sliding window."""

from typing import Any

import torch
from torch import Tensor, nn

from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import POSITIONS
from seqlab.core.state import State
from seqlab.core.traits import Traits
from seqlab.layers import DecoderBlock, LearnedPosition, MultiHeadAttention, RotaryPosition, SinusoidalPosition

INITIAL_STD = 0.02
EMBEDDING_STD = 0.5


class TransformerLM(nn.Module):
    """ids (B, T) in 0…V (V is the begin id) -> logits (B, T, V).

    Beyond its context C every layer attends to the last C positions (banded attention), the same whether
    the text is fed whole, in pieces or from a cache. The linear kinds of attention see the whole past instead.
    Learned positions end at C.
    """

    def __init__(
        self,
        vocab_size: int,
        width: int,
        depth: int,
        heads: int,
        context: int,
        *,
        attention: str = "softmax",
        positions: str = "rotary",
        dropout: float = 0.0,
        tied: bool = False,
    ) -> None:
        super().__init__()
        self.vocab_size, self.context, self.tied = vocab_size, context, tied
        # Attention is cut into windows of `context`; with learned positions everything ends there.
        self.traits = Traits(window=context, max_positions=context if positions == "learned" else None)
        self.embedding = nn.Embedding(vocab_size + 1, width)
        self.position, rotary = _positions(positions, width, heads, context)
        window = context if attention == "softmax" else None
        self.blocks = nn.ModuleList(
            DecoderBlock(
                MultiHeadAttention(width, heads, kind=attention, dropout=dropout, window=window, rotary=rotary),
                dropout=dropout,
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, vocab_size, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Normal with std 0.02; what writes to the residual stream is scaled by 1/√(2·depth).

        An embedding that is not also the output layer starts larger, or the first layers have little to attend to.
        """
        for name, weight in self.named_parameters():
            if weight.ndim < 2:
                continue
            if name == "embedding.weight" and not self.tied:
                nn.init.normal_(weight, std=EMBEDDING_STD)
                continue
            writes_to_stream = name.endswith(("project_out.weight", "mlp.2.weight"))
            scale = (2 * len(self.blocks)) ** -0.5 if writes_to_stream else 1.0
            nn.init.normal_(weight, std=INITIAL_STD * scale)
        if self.tied:
            del self.output.weight  # the embedding serves

    def forward(self, ids: Tensor, state: State = None) -> tuple[Tensor, State]:
        caches: Any = state if state is not None else (None,) * len(self.blocks)
        x = self.embedding(ids)
        if self.position is not None:
            x = self.position(x, 0 if state is None else caches[0].position)
        x = self.dropout(x)
        new_caches = []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, cache = block(x, cache)
            new_caches.append(cache)
        x = self.norm(x)
        tied_weight = self.embedding.weight[: self.vocab_size]
        logits = nn.functional.linear(x, tied_weight) if self.tied else self.output(x)
        return logits, tuple(new_caches)


def _positions(
    kind: str, width: int, heads: int, context: int
) -> tuple[SinusoidalPosition | LearnedPosition | None, RotaryPosition | None]:
    if kind == "rotary":
        return None, RotaryPosition(width // heads)
    if kind == "sinusoidal":
        return SinusoidalPosition(width), None
    if kind == "learned":
        return LearnedPosition(context, width), None
    raise UsageError(f"positions '{kind}' are not known{nearest(kind, POSITIONS)}")
