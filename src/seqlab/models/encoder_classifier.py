"""Classifiers that read a text word by word: embedding, encoder, pooling, softmax."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from seqlab.core.types import RESERVED, PaddedBatch
from seqlab.layers import (
    GRU,
    LSTM,
    RNN,
    BlockStyle,
    EncoderBlock,
    RecurrentEncoder,
    RotaryPosition,
    TokenEmbedding,
    TransformerEncoder,
)
from seqlab.layers.pooling import build_pooling
from seqlab.layers.recurrent import Recurrent

INITIAL_STD = 0.02


class EncoderClassifier(nn.Module):
    """logits = W dropout(pool(encoder(P E[ids]))) + b.    ids (B, T), lengths (B,) -> (B, K)

    P, where there is one, brings vectors of another width to that of the encoder.

    `vocabulary` holds the codes of the words that have an id of their own. Padding is never seen: neither it nor the
    other texts of a batch change what comes out.
    """

    vocabulary: Tensor

    def __init__(
        self,
        encoder: Any,
        pooling: str,
        words: int,
        classes: int,
        width: int,
        *,
        dropout: float = 0.0,
        enter: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.classes = classes
        self.register_buffer("vocabulary", torch.zeros(words, dtype=torch.int64))
        self.embedding = TokenEmbedding(words + RESERVED, width, dropout=dropout)
        self.enter = enter
        self.encoder = encoder
        self.pooling = build_pooling(pooling, encoder.width, encoder.directions)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(encoder.width, classes)

    def forward(self, inputs: PaddedBatch, own: Tensor | None = None) -> Tensor:
        """`own`, the classes of the texts themselves, is of no use here: nothing was counted."""
        return self.decide(self.embedding(inputs.ids), inputs.lengths)

    def decide(self, x: Tensor, lengths: Tensor) -> Tensor:
        """From the words' vectors on.    x (B, T, D) -> (B, K)"""
        x = x if self.enter is None else self.enter(x)
        y = self.pooling(self.encoder(x, lengths), lengths)
        logits: Tensor = self.output(self.dropout(y))
        return logits


class _RecurrentClassifier(EncoderClassifier):
    layer_type: ClassVar[type[Recurrent]]

    def __init__(
        self,
        classes: int,
        words: int,
        width: int,
        depth: int = 1,
        *,
        vector_width: int | None = None,
        bidirectional: bool = True,
        pooling: str = "attention",
        dropout: float = 0.0,
    ) -> None:
        read = width if vector_width is None else vector_width
        layers = self.layer_type(read, width, depth, dropout=dropout, bidirectional=bidirectional)
        super().__init__(RecurrentEncoder(layers), pooling, words, classes, read, dropout=dropout)


class RNNClassifier(_RecurrentClassifier):
    layer_type = RNN


class GRUClassifier(_RecurrentClassifier):
    layer_type = GRU


class LSTMClassifier(_RecurrentClassifier):
    layer_type = LSTM


class TransformerClassifier(EncoderClassifier):
    """Blocks with rotary positions and a key padding mask; the begin id stands first.

    `features` is how many random features a head has, where `attention` estimates softmax with them.
    """

    def __init__(
        self,
        classes: int,
        words: int,
        width: int,
        depth: int,
        heads: int,
        *,
        attention: str = "softmax",
        features: int | None = None,
        vector_width: int | None = None,
        pooling: str = "mean",
        dropout: float = 0.0,
    ) -> None:
        style = BlockStyle(features=features)
        options: Any = dict(kind=attention, dropout=dropout, rotary=RotaryPosition(width // heads))
        blocks = [
            EncoderBlock(style.attention(width, heads, **options), **style.block(width, dropout)) for _ in range(depth)
        ]
        encoder = TransformerEncoder(blocks, style.last_norm(width))
        read = width if vector_width is None else vector_width
        enter = None if read == width else nn.Linear(read, width)
        super().__init__(encoder, pooling, words, classes, read, dropout=dropout, enter=enter)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Normal with std 0.02, as in the language model."""
        for name, weight in self.encoder.named_parameters():
            if weight.ndim >= 2:
                writes_to_stream = name.endswith(("project_out.weight", "mlp.2.weight"))
                scale = (2 * len(self.encoder.blocks)) ** -0.5 if writes_to_stream else 1.0
                nn.init.normal_(weight, std=INITIAL_STD * scale)
