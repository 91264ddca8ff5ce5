"""What weight decay is worth under gradient descent and under Adam: an experiment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqlab.theory.instances import normal, stream
from seqlab.theory.ledger import LEDGER, Evidence, Finding, between, evidence
from seqlab.theory.sampling import mean_of
from seqlab.training.optim import SGD, Adam, AdamL2, PlainOptimiser

claim = LEDGER.of("optimisation")

SCALES, NOISE = (1.0, 4.0), 4.0
PENALTIES = (0.0, 0.5, 1.0, 2.0, 4.0)
EACH, STEPS = 1500, 600  # features of each size; pieces that are learnt from


@dataclass(frozen=True)
class World:
    """Least squares with features that do not overlap. A feature of size s has the true weight θ* and, from few
    examples, the estimate y = θ* + N(0, 1)/s; its part of the test error is s² (θ − θ*)².
    """

    size: Tensor
    truth: Tensor
    estimate: Tensor

    def gradient(self, theta: Tensor, noise: Tensor) -> Tensor:
        """Of a small piece of the examples: its noise grows with the size of the feature."""
        return self.size**2 * (theta - self.estimate) + NOISE * self.size * noise

    def error(self, theta: Tensor) -> Tensor:
        return self.size**2 * (theta - self.truth) ** 2


def both_worlds(seed: int) -> World:
    """First features of which s θ* has variance 1, then as many of which θ* has."""
    draw = stream(seed, "wd")
    size = torch.tensor(SCALES, dtype=torch.float64).repeat_interleave(EACH)
    truth = torch.cat([normal(draw, len(size)) / size, normal(draw, len(size))])
    size = size.repeat(2)
    return World(size, truth, truth + normal(draw, len(size)) / size)


# The rate of each, and the decay that stands for a penalty of 1 on a feature of size 1.
CHOICES: dict[type[PlainOptimiser], tuple[float, float, dict[str, Any]]] = {
    SGD: (0.02, 1.0, {}),
    Adam: (0.06, 1 / NOISE, {"betas": (0.9, 0.99), "eps": 1e-8, "bias_correction": True}),
    AdamL2: (0.06, 1.0, {"betas": (0.9, 0.99), "eps": 1e-8, "bias_correction": True}),
}


def trained(make: type[PlainOptimiser], here: World, seed: int) -> Tensor:
    """With each penalty: the mean of the weights over the second half of the training.    (penalties, features)"""
    rate, unit, constants = CHOICES[make]
    weights = [nn.Parameter(torch.zeros_like(here.truth)) for _ in PENALTIES]
    groups = [{"params": [w], "weight_decay": p * unit} for w, p in zip(weights, PENALTIES, strict=True)]
    optimiser = make(groups, lr=rate, **constants)
    draw, total = stream(seed, "wd", "pieces"), torch.zeros(len(PENALTIES), len(here.truth), dtype=torch.float64)
    for t in range(STEPS):
        noise = normal(draw, len(here.truth))
        for weight in weights:
            weight.grad = here.gradient(weight.detach(), noise)
        optimiser.step()
        if t >= STEPS // 2:
            total += torch.stack([weight.detach() for weight in weights])
    return total / (STEPS - STEPS // 2)


def best_and_none(make: type[PlainOptimiser], here: World, seed: int) -> list[tuple[Tensor, Tensor]]:
    """In each of the two worlds, test errors of the features with the best penalty, and without one."""
    errors = here.error(trained(make, here, seed)).chunk(2, 1)
    return [(found[found.mean(1).argmin()], found[0]) for found in errors]


@claim(
    "wd.equally-good",
    statement=r"Weight decay does not work equally well with gradient descent and with Adam. Which is better depends "
    r"on the data: with the best decay of each, Adam where features contribute alike to the output, gradient descent "
    r"where their weights are alike.",
    note=r"Gradient descent with decay minimises $L + \gamma \lVert\theta\rVert^2$. Decoupled decay in Adam penalises "
    r"each weight in proportion to the size of its gradients. Both are better than no decay. Least squares with "
    r"features of size 1 and 4, five penalties for each.",
    verdict="empirical",
    method="sampling",
    right=Adam,
    wrong={"L2 put into Adam's gradient": AdamL2, "gradient descent itself": SGD},
    about=("seqlab.training.optim:SGD", "seqlab.training.optim:Adam", "seqlab.training.optim:AdamL2"),
)
def equally_good(seed: int, form: type[PlainOptimiser]) -> Evidence:
    here = both_worlds(seed)
    findings: list[Finding] = []
    found = zip(WANTED.items(), best_and_none(form, here, seed), best_and_none(SGD, here, seed), strict=True)
    for (alike, wanted), (adam, adam_without), (descent, without) in found:
        apart = mean_of(adam - descent)
        what = f"{alike} alike: test error with Adam less that of gradient descent"
        share, adams = descent.mean() / without.mean(), adam.mean() / adam_without.mean()
        findings += [
            Finding(what, apart.mean, wanted, apart.interval),
            between(f"{alike} alike, gradient descent: with the best decay over without", share, 0.0, 0.95),
            between(f"{alike} alike, Adam: with the best decay over without", adams, 0.0, 0.95),
        ]
    return evidence(*findings)


WANTED = {"contributions": (-1.0, -0.06), "weights": (0.025, 1.0)}
