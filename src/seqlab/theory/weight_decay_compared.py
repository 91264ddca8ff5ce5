"""What weight decay is worth under gradient descent and under Adam: an experiment in settings that are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqlab.theory.instances import normal, stream, uniform
from seqlab.theory.ledger import LEDGER, Evidence, Finding, at_least, between, evidence, exactly
from seqlab.theory.sampling import mean_of
from seqlab.training.optim import SGD, Adam, AdamL2, PlainOptimiser

claim = LEDGER.of("optimisation")

SETTINGS, EACH, STEPS = 3, 800, 400  # settings that are drawn; features of each size; pieces that are learnt from
PENALTIES = (0.0, *(2.0**k for k in range(-2, 4)))
SIZES, SIGNALS, NOISES = (4.0, 8.0), (0.5, 2.0), (2.0, 4.0)  # between which a setting is drawn


@dataclass(frozen=True)
class World:
    """Least squares with features that do not overlap, half of them of size 1, half of size r. A feature of size s has
    the true weight θ* and, from few examples, the estimate y = θ* + N(0, 1)/s; its part of the test error is
    s² (θ − θ*)².    (2, settings, 2 · EACH): of the first half s θ* has variance v, of the second θ* has
    """

    size: Tensor
    truth: Tensor
    estimate: Tensor
    spread: Tensor  # of the gradients of a feature of size 1

    def gradient(self, theta: Tensor, noise: Tensor) -> Tensor:
        """Of a small piece of the examples: its noise grows with the size of the feature."""
        return self.size**2 * (theta - self.estimate) + self.spread * self.size * noise

    def error(self, theta: Tensor) -> Tensor:
        return self.size**2 * (theta - self.truth) ** 2


def drawn(seed: int) -> World:
    """Of each setting: the size r of the larger features, the variance v of the signal, the noise."""
    draw = stream(seed, "wd")
    ratio, signal, spread = (uniform(draw, SETTINGS, 1, low=a, high=b) for a, b in (SIZES, SIGNALS, NOISES))
    size = torch.cat([torch.ones(SETTINGS, EACH, dtype=torch.float64), ratio.expand(-1, EACH)], 1).expand(2, -1, -1)
    truth = signal.sqrt() * normal(draw, *size.shape) / torch.stack([size[0], torch.ones_like(size[0])])
    return World(size, truth, truth + normal(draw, *size.shape) / size, spread.expand_as(size))


# The rate of each, and the decay that stands for a penalty of about 1 on a feature of size 1.
CHOICES: dict[type[PlainOptimiser], tuple[float, float, dict[str, Any]]] = {
    SGD: (0.02, 1.0, {}),
    Adam: (0.06, 1 / 3, {"betas": (0.9, 0.99), "eps": 1e-8, "bias_correction": True}),
    AdamL2: (0.06, 1.0, {"betas": (0.9, 0.99), "eps": 1e-8, "bias_correction": True}),
}


def trained(make: type[PlainOptimiser], here: World, seed: int) -> Tensor:
    """With each penalty: the mean weights of the second half of the training.    (penalties, 2, settings, features)"""
    rate, unit, constants = CHOICES[make]
    weights = [nn.Parameter(torch.zeros_like(here.truth)) for _ in PENALTIES]
    groups = [{"params": [w], "weight_decay": p * unit} for w, p in zip(weights, PENALTIES, strict=True)]
    optimiser = make(groups, lr=rate, **constants)
    draw, total = stream(seed, "wd", "pieces"), torch.zeros(len(PENALTIES), *here.truth.shape, dtype=torch.float64)
    for t in range(STEPS):
        noise = normal(draw, *here.truth.shape)
        for weight in weights:
            weight.grad = here.gradient(weight.detach(), noise)
        optimiser.step()
        if t >= STEPS // 2:
            total += torch.stack([weight.detach() for weight in weights])
    return total / (STEPS - STEPS // 2)


@dataclass(frozen=True)
class Errors:
    """Test errors of the features, with the best penalty of each world and setting, and without one."""

    best: Tensor
    none: Tensor

    @classmethod
    def of(cls, make: type[PlainOptimiser], here: World, seed: int) -> Errors:
        errors = here.error(trained(make, here, seed))
        chosen = errors.mean(-1).argmin(0)[None, ..., None].expand(1, *errors.shape[1:])
        return cls(errors.gather(0, chosen)[0], errors[0])

    def share(self, world: int) -> float:
        """Best over none, in the setting where it helps least."""
        return float((self.best[world].mean(-1) / self.none[world].mean(-1)).max())


SIDES = {"contributions": -1.0, "weights": 1.0}  # of Adam's error less that of gradient descent


@claim(
    "wd.equally-good",
    statement=r"Weight decay does not work equally well with gradient descent and with Adam. Which is better depends "
    r"on the data: with the best decay of each, Adam where features contribute alike to the output, gradient descent "
    r"where their weights are alike.",
    conditions=r"Shown for least squares in settings drawn at random: features of two sizes, one 4 to 8 times the "
    r"other, that do not overlap, noisy gradients, and the best of seven penalties for each optimiser and setting. "
    r"Of other losses, and of features that overlap, it says nothing.",
    note=r"Gradient descent with decay minimises $L + \gamma \lVert\theta\rVert^2$. Decoupled decay in Adam penalises "
    r"each weight in proportion to the size of its gradients. Both are better than no decay.",
    verdict="empirical",
    method="sampling",
    right=Adam,
    wrong={"L2 put into Adam's gradient": AdamL2, "gradient descent itself": SGD},
    about=("seqlab.training.optim:SGD", "seqlab.training.optim:Adam", "seqlab.training.optim:AdamL2"),
)
def equally_good(seed: int, form: type[PlainOptimiser]) -> Evidence:
    here = drawn(seed)
    adam, descent = (Errors.of(make, here, seed) for make in (form, SGD))
    findings: list[Finding] = []
    for world, (alike, side) in enumerate(SIDES.items()):
        apart = side * (adam.best - descent.best)[world]
        pooled = mean_of(apart.flatten())
        better = "gradient descent" if side > 0 else "Adam"
        findings += [
            Finding(f"{alike} alike: test error that {better} saves", pooled.mean, (0.02, 1.0), pooled.interval),
            at_least("the lower end of that interval", pooled.interval[0], 0.0),
            exactly(f"settings of {SETTINGS} in which it is better", (apart.mean(-1) > 0).sum(), SETTINGS),
            between("gradient descent: with the best decay over without, at most", descent.share(world), 0.0, 0.97),
            between("Adam: with the best decay over without, at most", adam.share(world), 0.0, 0.97),
        ]
    return evidence(*findings)
