"""Encoders: the vectors of a whole sequence, each of which has seen all of it.

y = encoder(x, lengths),  x (B, T, D), lengths (B,) -> y (B, T, width), zero in the padding. `directions` says what
the last vector of a sequence is (`LastPooling`).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.layers.blocks import EncoderBlock, cleared
from seqlab.layers.norms import normalise
from seqlab.layers.recompute import called
from seqlab.layers.recurrent import Recurrent


class RecurrentEncoder(nn.Module):
    """A recurrent layer from its zero state; in both directions each vector has seen all the others."""

    def __init__(self, recurrent: Recurrent) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.directions = recurrent.directions
        self.width = recurrent.hidden_size * recurrent.directions

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        y: Tensor = self.recurrent(x, None, lengths)[0]
        return y


class TransformerEncoder(nn.Module):
    """Blocks one above the other, and the norm that a stack of pre-norm blocks ends with."""

    directions = 1

    def __init__(self, blocks: Sequence[EncoderBlock], norm: nn.Module | None = None) -> None:
        super().__init__()
        if not blocks:
            raise UsageError("an encoder has one block or more, not 0")
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm
        self.width = blocks[0].attention.d_model

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        for block in self.blocks:
            x = called(block, x, lengths)
        return x if self.norm is None else cleared(normalise(self.norm, x, lengths), lengths)
