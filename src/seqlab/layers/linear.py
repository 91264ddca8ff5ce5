"""A linear layer that is also fast for one row, as when a text is written token by token."""

import torch
from torch import Tensor, nn

LARGE = 1 << 17  # weights; smaller products cost less than the two operations that replace them


class Linear(nn.Linear):
    """y = x Wᵀ + b.    (…, D) -> (…, K)

    One row without gradients: y_k = Σ_d W_kd x_d as an elementwise product and a sum, which run on every core. BLAS's
    product of a matrix and a vector ran on one, at a third of the speed at which the weights can be read
    (docs/benchmarks.md).
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() != self.in_features or self.weight.numel() < LARGE or torch.is_grad_enabled():
            return super().forward(x)
        y = (self.weight * x.reshape(-1)).sum(-1)
        return (y if self.bias is None else y + self.bias).view(*x.shape[:-1], -1)
