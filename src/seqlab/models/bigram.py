"""The neural bigram: the next word from the vector of the current one, and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqlab.core.traits import Traits
from seqlab.core.types import PairCounts
from seqlab.layers import OutputHead, TokenEmbedding
from seqlab.ops.pairs import ROWS, pair_nats


class BigramLM(nn.Module):
    """ŷ = softmax(σ(x W₁ + b₁) W₂ + b₂), x the vector of the current word, fixed or trained.

    ids (B, T) -> logits (B, T, V); a bigram remembers nothing, so its state is None.
    """

    traits = Traits(looks_back=1, learns_from="pairs", reads_at_once=True)

    def __init__(self, vocab_size: int, width: int = 50, vector_width: int = 50, train_vectors: bool = True) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.embedding = TokenEmbedding(vocab_size + 1, vector_width)
        self.hidden = nn.Linear(vector_width, width)
        self.output = OutputHead(width, vocab_size)
        nn.init.normal_(self.embedding.weight, std=0.4)  # the spread of GloVe's values
        nn.init.zeros_(self.output.bias)
        self.embedding.weight.requires_grad_(train_vectors)

    def forward(self, ids: Tensor, state: None = None) -> tuple[Tensor, None]:
        return self.output(torch.sigmoid(self.hidden(self.embedding(ids)))), None

    @torch.inference_mode()
    def nats_of(self, ids: NDArray[Any]) -> NDArray[np.float64]:
        """−ln p of every token of a text: each different context is computed once, however long the text is."""
        contexts = np.concatenate([[self.vocab_size], ids[:-1]]).astype(np.int64)[: len(ids)]
        targets = torch.from_numpy(ids.astype(np.int64))
        return self._read_off(contexts, lambda log_p, rows, at: -log_p[rows, targets[at]])

    @torch.inference_mode()
    def mass_of(self, ids: NDArray[Any], places: NDArray[np.int64], tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Σ p over some tokens, had they stood at these places of the text."""
        contexts = np.concatenate([[self.vocab_size], ids]).astype(np.int64)[places]
        chosen = torch.from_numpy(tokens)
        return self._read_off(contexts, lambda log_p, rows, at: log_p[:, chosen].exp().sum(1)[rows])

    def _read_off(self, contexts: NDArray[np.int64], value: Callable[..., Tensor]) -> NDArray[np.float64]:
        """One value for each place, from ln p(· | its context); blocks of contexts, so that memory stays small."""
        different, row = np.unique(contexts, return_inverse=True)
        order = np.argsort(row, kind="stable")
        edges = np.searchsorted(row[order], np.arange(0, len(different) + ROWS, ROWS))
        found = np.zeros(len(contexts))
        for k, (first, last) in enumerate(itertools.pairwise(edges.tolist())):
            block = torch.from_numpy(different[k * ROWS : (k + 1) * ROWS])
            if len(block):
                at = order[first:last]
                log_p = self(block[None])[0][0].log_softmax(-1).double()
                found[at] = value(log_p, torch.from_numpy(row[at] - k * ROWS), at).numpy()
        return found

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
