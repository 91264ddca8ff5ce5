"""The feed-forward network of a block."""

from __future__ import annotations

from torch import Tensor, nn

from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import ACTIVATIONS


class FeedForward(nn.Sequential):
    """Plain:  W_2 φ(W_1 x + b_1) + b_2.    Gated:  W_2 (φ(W_g x + b_g) ∘ (W_1 x + b_1)) + b_2.

    φ: gelu(u) = u Φ(u), gelu_tanh(u) = u/2 (1 + tanh(√(2/π) (u + 0.044715 u³))), relu(u) = max(u, 0),
    silu(u) = u σ(u). `hidden` units, 4·width by default. A gated one stores W_g above W_1: one product serves both.
    """

    def __init__(
        self,
        width: int,
        hidden: int | None = None,
        *,
        activation: str = "gelu",
        gated: bool = False,
        bias: bool = True,
    ) -> None:
        hidden = 4 * width if hidden is None else hidden
        if hidden < 1:
            raise UsageError(f"a feed-forward network of {hidden} hidden units is too small; the least is 1")
        squash = build_activation(activation)
        super().__init__(
            nn.Linear(width, 2 * hidden if gated else hidden, bias=bias),
            Gate(squash) if gated else squash,
            nn.Linear(hidden, width, bias=bias),
        )


class Gate(nn.Module):
    """(g, u) -> φ(g) ∘ u, the two halves of one vector.    (…, 2H) -> (…, H)"""

    def __init__(self, squash: nn.Module) -> None:
        super().__init__()
        self.squash = squash

    def forward(self, both: Tensor) -> Tensor:
        gate, u = both.chunk(2, -1)
        opened: Tensor = self.squash(gate) * u
        return opened


def build_activation(kind: str) -> nn.Module:
    if kind not in ACTIVATIONS:
        raise UsageError(f"activation '{kind}' is not known{nearest(kind, ACTIVATIONS)}")
    kinds: dict[str, nn.Module] = {
        "gelu": nn.GELU(),
        "gelu_tanh": nn.GELU(approximate="tanh"),
        "relu": nn.ReLU(),
        "silu": nn.SiLU(),
    }
    return kinds[kind]
