"""Recurrent layers on torch's kernels: ``y, state = layer(x, state)``, batch first.

Recurrent matrices start orthogonal (every singular value 1), so that early gradients neither vanish nor
explode; the LSTM's forget gate starts open.
"""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from seqlab.core.state import State


class Recurrent(nn.Module):
    """x (B, T, D), state (layers, B, H) or for the LSTM (h, c) -> y (B, T, H), state."""

    kernel_type: ClassVar[Callable[..., nn.RNNBase]]
    gates: ClassVar[int]

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, *, dropout: float = 0.0) -> None:
        super().__init__()
        between = dropout if num_layers > 1 else 0.0
        self.kernel = self.kernel_type(
            input_size, hidden_size, num_layers=num_layers, batch_first=True, dropout=between
        )
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for name, weight in self.kernel.named_parameters():
            if name.startswith("weight_hh"):
                for gate in weight.chunk(self.gates):
                    nn.init.orthogonal_(gate)
            elif name.startswith("weight_ih"):
                nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
            else:
                nn.init.zeros_(weight)

    def forward(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        y, state = self.kernel(x, state)
        return y, state


class RNN(Recurrent):
    """h' = tanh(U x + W h + b)."""

    kernel_type = nn.RNN
    gates = 1


class GRU(Recurrent):
    """z, r = σ(·), ĥ = tanh(W x + b + r ∘ (U h + c)), h' = (1−z) ∘ h + z ∘ ĥ (torch stores −z)."""

    kernel_type = nn.GRU
    gates = 3


class LSTM(Recurrent):
    """i, f, o = σ(·), c̃ = tanh(·), c' = f ∘ c + i ∘ c̃, h' = o ∘ tanh(c')."""

    kernel_type = nn.LSTM
    gates = 4
    forget_bias = 1.0

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        hidden = self.kernel.hidden_size
        for name, bias in self.kernel.named_parameters():
            if name.startswith("bias_ih"):  # of the two added biases only one opens the gate
                bias[hidden : 2 * hidden] = self.forget_bias
