"""What is learnt: a batch and a model in, a sum with its count out.

An objective is called by the loop as ``loss = objective(model, batch, state)``. It alone knows how the model is
called and what the batch holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.core.state import State
from seqlab.core.types import LabelBatch, PairBatch, PairCounts, TokenBatch


@dataclass(frozen=True)
class Loss:
    """A sum with its count, and what the model is to remember for the next batch (None: nothing)."""

    total: Tensor
    count: int
    state: State = None


@dataclass(frozen=True)
class Score:
    """Of a validation: the lower the value, the better; `figures` are logged beside it."""

    value: float
    figures: dict[str, float]


Objective = Callable[[Any, Any, State], Loss]


@dataclass(frozen=True)
class NextToken:
    """Σ −ln p(next token), for rows of tokens; with `carry` the state goes on to the next batch.

    Where a batch says what counts expect, the model (`models.guided`) is given that. In bfloat16 products and recurrent
    steps round to 8 binary digits; weights, their gradients, the loss and what counts say stay as they are.
    """

    carry: bool
    precision: str = "float32"

    def __call__(self, model: nn.Module, batch: TokenBatch, state: State) -> Loss:
        known = () if batch.guide is None else (batch.guide,)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bfloat16"):
            logits, state = model(batch.inputs, state, *known)
        logits = logits.float() if logits.dtype == torch.bfloat16 else logits
        state = state if self.carry else None  # what nobody carries on is not held while the loss is computed
        return Loss(sum_of_nats(logits, batch.targets), batch.count, state)


def counted_pairs(model: Any, batch: PairCounts, state: State) -> Loss:
    """Σ −ln p(second | first) over counted pairs, differentiated by hand (`ops.pairs`)."""
    return Loss(model.nats_of_pairs(batch), batch.count)


@dataclass(frozen=True)
class TargetTokens:
    """Σ −ln p(token | those before it, the source) over the targets; a share `smoothing` is spread over all tokens."""

    smoothing: float = 0.0

    def __call__(self, model: Any, batch: PairBatch, state: State) -> Loss:
        return Loss(model.nats(batch, self.smoothing), batch.count)


@dataclass(frozen=True)
class Labels:
    """Σ −ln p(class of the text); with weights, each class counts as much as they say."""

    weights: Tensor | None = None  # (K,), of mean 1 over the texts

    def __call__(self, model: nn.Module, batch: LabelBatch, state: State) -> Loss:
        logits = model(batch.inputs, batch.labels)
        return Loss(F.cross_entropy(logits, batch.labels, self.weights, reduction="sum"), batch.count)


def sum_of_nats(logits: Tensor, targets: Tensor) -> Tensor:
    """Σ −ln p(target):  logits (B, T, V), targets (B, T) -> scalar."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
