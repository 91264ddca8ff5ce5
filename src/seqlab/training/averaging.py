"""A running average of the weights: less noise than the last ones have, at the price of a copy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn


class WeightAverage:
    """θ̄_t = Σ_{i≤t} dᵗ⁻ⁱ θ_i / Σ_{i≤t} dᵗ⁻ⁱ, that is θ̄ ← θ̄ + (1 − d)/(1 − dᵗ) (θ − θ̄); d is the memory."""

    def __init__(self, model: nn.Module, memory: float) -> None:
        self.memory = memory
        self.weights: dict[str, Tensor] = {name: w.detach().clone() for name, w in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """After step number `step`, which counts from 1."""
        share = (1 - self.memory) / (1 - self.memory**step)
        torch._foreach_lerp_(list(self.weights.values()), [w.detach() for w in model.parameters()], share)

    @contextlib.contextmanager
    def inside(self, model: nn.Module) -> Iterator[None]:
        """The model with the averaged weights; its own return afterwards, to the last bit."""
        self._exchange(model)
        try:
            yield
        finally:
            self._exchange(model)

    @torch.no_grad()
    def _exchange(self, model: nn.Module) -> None:
        for name, weight in model.named_parameters():
            kept = self.weights[name]
            held = weight.detach().clone()
            weight.copy_(kept)
            kept.copy_(held)

    def load(self, weights: dict[str, Tensor]) -> None:
        for name, weight in weights.items():
            self.weights[name].copy_(weight)
