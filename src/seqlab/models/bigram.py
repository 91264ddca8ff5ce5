"""The neural bigram: the next word from the vector of the current one, and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.core.types import PairCounts
from seqlab.ops.pairs import pair_nats


class BigramLM(nn.Module):
    """ŷ = softmax(σ(x W₁ + b₁) W₂ + b₂), x the vector of the current word, fixed or trained.

    ids (B, T) -> logits (B, T, V); a bigram remembers nothing, so its state is None.
    """

    looks_back = 1
    learns_from_pairs = True

    def __init__(self, vocab_size: int, width: int = 50, vector_width: int = 50, train_vectors: bool = True) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.embedding = nn.Embedding(vocab_size + 1, vector_width)
        self.hidden = nn.Linear(vector_width, width)
        self.output = nn.Linear(width, vocab_size)
        nn.init.normal_(self.embedding.weight, std=0.4)  # the spread of GloVe's values
        nn.init.zeros_(self.output.bias)
        self.embedding.weight.requires_grad_(train_vectors)

    def forward(self, ids: Tensor, state: None = None) -> tuple[Tensor, None]:
        return self.output(torch.sigmoid(self.hidden(self.embedding(ids)))), None

    def nats_of_pairs(self, pairs: PairCounts) -> Tensor:
        """Total nats of counted pairs, differentiated by hand (`ops.pairs`)."""
        x = self.embedding(pairs.contexts)
        weights = (self.hidden.weight.T, self.hidden.bias, self.output.weight.T, self.output.bias)
        return pair_nats(x, *weights, pairs.rows, pairs.columns, pairs.counts.to(x.dtype))

    @torch.no_grad()
    def set_vectors(self, vectors: Tensor, known: Tensor) -> None:
        """Use these vectors for the ids that have one; the others keep their random start, at the same spread."""
        spread = vectors[known].std() if known.any() else torch.tensor(0.4)
        self.embedding.weight.mul_(spread / 0.4)
        self.embedding.weight[: self.vocab_size][known] = vectors[known]
