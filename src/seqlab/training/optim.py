"""The optimisers: AdamW with decoupled weight decay on matrices only, and plain SGD."""

import torch
from torch import nn


def decayed(name: str, parameter: nn.Parameter) -> bool:
    """Matrices decay; biases, norm gains and embeddings do not."""
    return parameter.ndim >= 2 and "embedding" not in name


def build_optimiser(
    model: nn.Module,
    learning_rate: float,
    weight_decay: float,
    betas: tuple[float, float] = (0.9, 0.99),
    *,
    kind: str = "adamw",
) -> torch.optim.Optimizer:
    """θ ← θ(1 − ηλ) for the matrices, then for all the adaptive step (torch's fused AdamW) or θ − η∇ (sgd)."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for n, p in named if decayed(n, p)], "weight_decay": weight_decay},
        {"params": [p for n, p in named if not decayed(n, p)], "weight_decay": 0.0},
    ]
    groups = [g for g in groups if g["params"]]
    if kind == "sgd":
        # torch's SGD adds λθ to the gradient: without momentum that is the same as shrinking by 1 − ηλ.
        return torch.optim.SGD(groups, lr=learning_rate)
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=True)


def set_learning_rate(optimiser: torch.optim.Optimizer, learning_rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = learning_rate
