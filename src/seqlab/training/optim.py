"""The optimiser: AdamW with decoupled weight decay on matrices only."""

import torch
from torch import nn


def decayed(name: str, parameter: nn.Parameter) -> bool:
    """Matrices decay; biases, norm gains and embeddings do not."""
    return parameter.ndim >= 2 and "embedding" not in name


def build_optimiser(
    model: nn.Module, learning_rate: float, weight_decay: float, betas: tuple[float, float] = (0.9, 0.99)
) -> torch.optim.AdamW:
    """AdamW on torch's fused kernel; θ ← θ(1 − ηλ) for the matrices, then the adaptive step for all."""
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if decayed(n, p)], "weight_decay": weight_decay},
        {"params": [p for n, p in named if not decayed(n, p)], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=learning_rate, betas=betas, fused=True)


def set_learning_rate(optimiser: torch.optim.Optimizer, learning_rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = learning_rate
