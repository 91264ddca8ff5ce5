"""From ids to vectors, and from vectors to logits: every model begins and ends here."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.core.traits import LookUpTable
from seqlab.layers.positions import LearnedPosition, SinusoidalPosition

AddedPosition = SinusoidalPosition | LearnedPosition


class TokenEmbedding(LookUpTable):
    """x = dropout(norm(s·E[id] + P[p] + K[type])), each part where there is one.    ids (B, T) -> (B, T, D)

    `rows` ids have a vector. `scale` is s; `position` adds P; `types` is the number of rows of K (which of two
    sentences a token belongs to, say); `norm` is a module of its own.
    """

    def __init__(
        self,
        rows: int,
        width: int,
        *,
        scale: float = 1.0,
        position: AddedPosition | None = None,
        types: int = 0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.width, self.scale = width, scale
        self.weight = nn.Parameter(torch.empty(rows, width))
        nn.init.normal_(self.weight)
        self.position = position
        self.types = nn.Parameter(torch.randn(types, width) * 0.02) if types else None
        self.norm = norm
        self.dropout = dropout

    def forward(self, ids: Tensor, start: int | Tensor = 0, types: Tensor | None = None) -> Tensor:
        """`start` is the position of the first column; `types` (B, T) are all 0 unless said."""
        x = F.embedding(ids, self.weight)
        if self.scale != 1.0:
            x = x * self.scale
        if self.position is not None:
            x = self.position(x, start)
        if self.types is not None:
            x = x + F.embedding(torch.zeros_like(ids) if types is None else types, self.types)
        elif types is not None:
            raise UsageError("this embedding knows no types; make it with types=2 or more, or leave them out")
        if self.norm is not None:
            x = self.norm(x)
        return F.dropout(x, self.dropout, self.training)

    def extra_repr(self) -> str:
        return f"{len(self.weight)}, {self.width}"


class OutputHead(nn.Linear):
    """logits = W y + b.    (B, T, D) -> (B, T, V)

    Tied, it has no W of its own: the first V rows of the embedding's table serve, and `forward` is given the
    embedding.
    """

    def __init__(self, width: int, vocab_size: int, *, bias: bool = True, tied: bool = False) -> None:
        super().__init__(width, vocab_size, bias=bias)
        self.tied = tied
        if tied:
            self.register_parameter("weight", None)

    def start(self, std: float) -> None:
        """Draws W, tied or not, so that whatever is drawn next is the same."""
        nn.init.normal_(torch.empty(self.out_features, self.in_features) if self.tied else self.weight, std=std)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor, embedding: TokenEmbedding | None = None) -> Tensor:
        if not self.tied:
            return F.linear(input, self.weight, self.bias)
        if embedding is None:
            raise UsageError("a tied head has no matrix of its own: give it the embedding too, head(y, embedding)")
        return F.linear(input, embedding.weight[: self.out_features], self.bias)
