"""When a loss is not finite: which layer was the first."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from seqlab.core.state import tensors_of
from seqlab.training.objectives import Loss


def all_finite(value: Any) -> bool:
    try:
        tensors = tensors_of(value)
    except TypeError:
        return True
    return all(bool(torch.isfinite(t).all()) for t in tensors)


def first_layer_not_finite(model: nn.Module, again: Callable[[], Loss]) -> str | None:
    """The name of the first innermost module, in order of execution, whose output is not finite.

    `again` asks the objective once more. Where it uses weights without calling their module, the first module
    whose weights are not finite is named; where neither shows anything but the loss is bad, the output.
    """
    found: list[str] = []

    def watch(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if not found and not all_finite(output):
                found.append(name)

        return hook

    innermost = [(n, m) for n, m in model.named_modules() if n and not any(m.children())]
    handles = [module.register_forward_hook(watch(name)) for name, module in innermost]
    try:
        with torch.no_grad():
            loss = again()
    finally:
        for handle in handles:
            handle.remove()
    if found or all_finite(loss.total):
        return found[0] if found else None
    bad = (name for name, module in innermost if not all(map(all_finite, module.parameters())))
    return next(bad, "output")  # tied weights: the embedding serves, no module of its own does


def first_gradient_not_finite(model: nn.Module) -> str | None:
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            return name
    return None
