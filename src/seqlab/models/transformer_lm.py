"""Decoder-only Transformer language model with a sliding window."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import POSITIONS
from seqlab.core.sizes import check_heads, check_sinusoidal
from seqlab.core.state import State
from seqlab.core.traits import Traits
from seqlab.layers import (
    BlockStyle,
    DecoderBlock,
    LearnedPosition,
    OutputHead,
    RotaryPosition,
    SinusoidalPosition,
    TokenEmbedding,
)
from seqlab.layers.recompute import called

INITIAL_STD = 0.02
EMBEDDING_STD = 0.5


class TransformerLM(nn.Module):
    """ids (B, T) in 0…V (V is the begin id) -> logits (B, T, V).

    Beyond its context C every layer attends to the last C positions (banded attention), the same whether
    the text is fed whole, in pieces or from a cache. The linear kinds of attention see the whole past instead.
    Learned positions end at C. `style` says how the blocks are made, and `rotary` and `sinusoidal` are what the two
    kinds of positions can be told (`layers.positions`).
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
        style: BlockStyle | None = None,
        rotary: dict[str, Any] | None = None,
        sinusoidal: dict[str, Any] | None = None,
        embedding_scale: float = 1.0,
        output_bias: bool = False,
    ) -> None:
        super().__init__()
        style = BlockStyle() if style is None else style
        self.vocab_size, self.context = vocab_size, context
        # Attention is cut into windows of `context`; with learned positions everything ends there.
        self.traits = Traits(window=context, max_positions=context if positions == "learned" else None)
        if positions == "sinusoidal":
            check_sinusoidal(width, heads)
        added = _added_position(positions, width, context, sinusoidal or {})
        turned = _rotary(width, heads, style, rotary or {}) if positions == "rotary" else None
        self.embedding = TokenEmbedding(vocab_size + 1, width, scale=embedding_scale, position=added, dropout=dropout)
        window = context if attention == "softmax" else None
        self.blocks = nn.ModuleList(
            DecoderBlock(
                style.attention(width, heads, kind=attention, dropout=dropout, window=window, rotary=turned),
                **style.block(width, dropout),
            )
            for _ in range(depth)
        )
        self.norm = style.last_norm(width)
        self.output = OutputHead(width, vocab_size, bias=output_bias, tied=tied)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Normal with std 0.02; what writes to the residual stream is scaled by 1/√(2·depth).

        An embedding that is not also the output layer starts larger, or the first layers have little to attend to.
        """
        for name, weight in self.named_parameters():
            if weight.ndim < 2 or name == "output.weight":
                continue
            if name == "embedding.weight" and not self.output.tied:
                nn.init.normal_(weight, std=EMBEDDING_STD)
                continue
            writes_to_stream = name.endswith(("project_out.weight", "mlp.2.weight"))
            scale = (2 * len(self.blocks)) ** -0.5 if writes_to_stream else 1.0
            nn.init.normal_(weight, std=INITIAL_STD * scale)
        self.output.start(INITIAL_STD)

    def forward(self, ids: Tensor, state: State = None) -> tuple[Tensor, State]:
        caches: Any = state if state is not None else (None,) * len(self.blocks)
        x = self.embedding(ids, 0 if state is None else caches[0].position)
        after = []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, cache = called(block, x, cache)
            after.append(cache)
        x = x if self.norm is None else self.norm(x)
        return self.output(x, self.embedding), tuple(after)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Runs of earlier versions call the learned positions by another name."""
        if f"{prefix}position.table" in state_dict:
            state_dict[f"{prefix}embedding.position.table"] = state_dict.pop(f"{prefix}position.table")
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _added_position(
    kind: str, width: int, context: int, sinusoidal: dict[str, Any]
) -> SinusoidalPosition | LearnedPosition | None:
    if kind not in POSITIONS:
        raise UsageError(f"positions '{kind}' are not known{nearest(kind, POSITIONS)}")
    if kind == "sinusoidal":
        return SinusoidalPosition(width, **sinusoidal)
    return LearnedPosition(context, width) if kind == "learned" else None


def _rotary(width: int, heads: int, style: BlockStyle, options: dict[str, Any]) -> RotaryPosition:
    if style.head_width is None:
        check_heads(width, heads, style.kv_heads, in_pairs="turned" not in options)
    return RotaryPosition(style.head_width or width // heads, **options)
