"""A network that counts lead: the frequent sequences are known at once, and it learns what counts cannot.

    logits_t = z(h_t) + g(h_t) · ln p_ngram(· | the last tokens),      g = softplus(a(h_t) + a_0) > 0

z and a are the outputs of one network, which has a column more than there are tokens. It starts with z = 0 and g = 1:
the n-gram itself. What is normalised is the sum, once, so that it is one distribution.

While it trains, the counts at a token must not have seen it (`models.folds`): they come with the batch.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Self

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors import numpy as arrays
from safetensors.torch import save
from torch import Tensor, nn

from seqlab.core.errors import DamageError
from seqlab.core.state import State
from seqlab.core.traits import Traits, traits_of
from seqlab.layers import OutputHead
from seqlab.models.ngram import NGramLM, RecentTokens
from seqlab.models.ngram_rows import RowTables

GATES = 1  # columns of the network's output beside the tokens
EVEN = math.log(math.e - 1)  # a_0: softplus of it is 1


class Guide:
    """Counts of a text, as a network's guide: never changed, so that copies of a model share them."""

    def __init__(self, counts: NGramLM) -> None:
        self.counts = counts

    @cached_property
    def tables(self) -> RowTables:
        return RowTables.of(self.counts.levels, self.counts.vocab_size)

    def log_rows(self, ids: Tensor, recent: RecentTokens | None, dtype: torch.dtype) -> tuple[Tensor, RecentTokens]:
        """ln p of what follows every token.    ids (B, T) -> (B, T, V)"""
        contexts, recent = self.counts.contexts_after(ids, recent)
        return self.tables.log_rows(contexts, dtype=dtype).view(*ids.shape, -1), recent

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    # ---- saving

    def to_bytes(self) -> bytes:
        return save(self.counts.tensors())

    @classmethod
    def from_bytes(cls, content: bytes, vocab_size: int, order: int, source: str) -> Guide:
        try:
            tensors = {name: torch.from_numpy(values) for name, values in arrays.load(content).items()}
        except (SafetensorError, ValueError, KeyError, TypeError):
            raise DamageError(f"{source} is damaged and was not loaded; restore it from a copy") from None
        return cls(NGramLM.from_tensors(vocab_size, order, tensors, source))


class GuidedLM(nn.Module):
    """ids (B, T) in 0…V (V is the begin id) -> logits (B, T, V).

    The network has V + 1 outputs, and so its begin id is V + 1. Its state stands beside the tokens that the guide
    remembers. `known` (B, T, V) are rows of the guide that the caller has already.
    """

    def __init__(self, network: nn.Module, guide: Guide) -> None:
        super().__init__()
        self.network, self.guide, self.vocab_size = network, guide, guide.counts.vocab_size
        start_level(network)

    @property
    def traits(self) -> Traits:
        own, order = traits_of(self.network), self.guide.counts.order
        return Traits(
            window=own.window,
            looks_back=None if own.looks_back is None else max(own.looks_back, order - 1),
            carries_state=own.carries_state,
            max_positions=own.max_positions,
            stateless=own.stateless,
        )

    def forward(self, ids: Tensor, state: State = None, known: Tensor | None = None) -> tuple[Tensor, State]:
        inner, recent = (None, None) if state is None else state
        z, inner = self.network(ids + (ids == self.vocab_size), inner)
        if known is None:
            known, recent = self.guide.log_rows(ids, recent, z.dtype)
        return guided(z, known), (inner, recent)


def guided(z: Tensor, known: Tensor) -> Tensor:
    """z + softplus(a + a_0) · ln p:   z (B, T, V + 1), its last column a; known (B, T, V) -> (B, T, V)"""
    dtype = torch.float32 if z.dtype == torch.bfloat16 else z.dtype  # of which ln p needs more digits
    logits: Tensor = _Led.apply(z.to(dtype), known.to(dtype))  # type: ignore[no-untyped-call]
    return logits


class _Led(torch.autograd.Function):
    """The same with its gradient, ∂a = Σ_v ∂logits_v · ln p_v · σ(a + a_0), in one piece: torch's own would fill a
    tensor of the size of z for each of the two parts that z is cut into. The counts have no gradient."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, known: Tensor) -> Tensor:
        vocab_size = known.shape[-1]
        a = z[..., vocab_size:] + EVEN
        ctx.save_for_backward(a, known)
        return torch.addcmul(z[..., :vocab_size], F.softplus(a), known)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        a, known = ctx.saved_tensors
        gate = (gradient[..., None, :] @ known[..., None]).squeeze(-1) * torch.sigmoid(a)
        return torch.cat([gradient, gate], -1), None


@torch.no_grad()
def start_level(network: nn.Module) -> None:
    """z = 0 and a = 0, where the output layer has a matrix of its own: what the guide expects is where it starts."""
    head = getattr(network, "output", None)
    if isinstance(head, OutputHead) and not head.tied:
        head.weight.zero_()
