"""Claims about the clipping of gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from seqlab.theory.instances import normal, stream
from seqlab.theory.jacobians import error
from seqlab.theory.ledger import LEDGER, Evidence, at_least, at_most, evidence
from seqlab.training.loop import Plan, clip_gradients
from seqlab.training.schedules import Schedule

claim = LEDGER.of("optimisation")

Gradients = list[Tensor]
Clip = Callable[[Gradients, float], Gradients]


def as_in_training(gradients: Gradients, threshold: float) -> Gradients:
    """What seqlab's loop makes of the gradients of a model's parameters."""
    model = nn.ParameterList([nn.Parameter(torch.zeros_like(g)) for g in gradients])
    for parameter, g in zip(model, gradients, strict=True):
        parameter.grad = g.clone()
    plan = Plan(Schedule(1.0, 1, 0.0, "constant", 0.0), 1, 1, 1, 0, clip=threshold)
    clip_gradients(model, plan)
    return [parameter.grad for parameter in model if parameter.grad is not None]


def joined(gradients: Gradients) -> Tensor:
    return torch.cat([g.flatten() for g in gradients])


def norm(gradients: Gradients) -> float:
    return float(joined(gradients).norm())


def cosine(a: Gradients, b: Gradients) -> float:
    return float(torch.cosine_similarity(joined(a), joined(b), dim=0))


def by_value(gradients: Gradients, threshold: float) -> Gradients:
    return [g.clamp(-threshold, threshold) for g in gradients]


@claim(
    "clip.threshold",
    statement=r"Clipping keeps the norm of the gradient within a threshold $\tau$, against explosion.",
    conditions=r"It does nothing against vanishing gradients. Only clipping by the norm, $g \min(1, \tau / \lVert g "
    r"\rVert)$, keeps the direction. The norm is that of all parameters together, and of the sum over all pieces of a "
    r"batch: it is clipped once, before the optimiser's step.",
    verdict="conditional",
    method="identity",
    right=as_in_training,
    wrong={
        "each number by itself": by_value,
        "each parameter by itself": lambda gradients, tau: [g * min(1.0, tau / norm([g])) for g in gradients],
        "always scaled to the threshold": lambda gradients, tau: [g * tau / norm(gradients) for g in gradients],
        "not at all": lambda gradients, tau: gradients,
    },
    about=("seqlab.training.loop:clip_gradients",),
)
def threshold(seed: int, form: Clip) -> Evidence:
    draw, tau = stream(seed, "clip.threshold"), 1.0
    large = [normal(draw, 4, 5, scale=3.0), normal(draw, 7, scale=0.5)]
    small = [1e-6 * g for g in large]
    clipped, kept = form(large, tau), form(small, tau)
    pieces = [form([g / 2 + away for g, away in zip(large, apart, strict=True)], tau) for apart in (large, small)]
    return evidence(
        at_most("norm of a clipped gradient, less τ = 1", norm(clipped) - tau, 1e-6),
        at_most("1 − cosine with the gradient", 1 - cosine(clipped, large), 1e-12),
        at_most("change of a gradient of norm 1e−5", error(joined(kept), joined(small)), 0.0),
        at_least("clipped by value: 1 − cosine", 1 - cosine(by_value(large, tau), large), 0.01),
        at_least("clipped piece by piece: norm of the sum", norm([a + b for a, b in zip(*pieces, strict=True)]), 1.5),
    )
