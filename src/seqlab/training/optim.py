"""The optimisers: AdamW with decoupled weight decay on matrices only, and plain SGD."""

from typing import Any

import torch
from torch import nn

from seqlab.core.settings.fields import filled
from seqlab.core.settings.training import TrainingSettings
from seqlab.core.traits import LOOKED_UP, NORM_LAYERS

ADAMW_BETAS = (0.9, 0.99)


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """The trained parameters in two groups for an optimiser, each in the model's own order; an empty one is left out.

    Matrices decay. Biases and norms do not, nor do tables whose rows are looked up: a row that a batch does not use
    would shrink for nothing.
    """
    exempt = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, (*LOOKED_UP, *NORM_LAYERS))
        for parameter in module.parameters(recurse=False)
    }
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decayed = {id(parameter) for parameter in trained if parameter.ndim >= 2} - exempt
    groups = [
        {"params": [p for p in trained if id(p) in decayed], "weight_decay": weight_decay},
        {"params": [p for p in trained if id(p) not in decayed], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def build_optimiser(
    model: nn.Module,
    learning_rate: float,
    weight_decay: float,
    betas: tuple[float, float] = ADAMW_BETAS,
    *,
    kind: str = "adamw",
) -> torch.optim.Optimizer:
    """θ ← θ(1 − ηλ) for the matrices, then for all the adaptive step (torch's fused AdamW) or θ − η∇ (sgd)."""
    groups = decay_groups(model, weight_decay)
    if kind == "sgd":
        # torch's SGD adds λθ to the gradient: without momentum that is the same as shrinking by 1 − ηλ.
        return torch.optim.SGD(groups, lr=learning_rate)
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=True)


def optimiser_for(model: nn.Module, training: TrainingSettings) -> torch.optim.Optimizer:
    """The one that filled training settings ask for."""
    rate, decay = filled(training.learning_rate), filled(training.weight_decay)
    return build_optimiser(model, rate, decay, kind=training.optimiser)


def set_learning_rate(optimiser: torch.optim.Optimizer, learning_rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = learning_rate


def optimiser_facts(optimiser: torch.optim.Optimizer) -> dict[str, object]:
    """What the settings do not say of it, for the record."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in _constants(optimiser).items()}


def _constants(optimiser: torch.optim.Optimizer) -> dict[str, object]:
    known = ("betas", "eps", "momentum", "dampening", "nesterov", "amsgrad")
    return {name: optimiser.defaults[name] for name in known if name in optimiser.defaults}
