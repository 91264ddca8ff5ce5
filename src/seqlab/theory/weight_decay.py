"""Claims about weight decay, L2 penalties, and what Adam makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch import Tensor, nn

from seqlab.diagnostics.optimiser_experiments import l2_formula
from seqlab.theory.instances import normal, stream, uniform
from seqlab.theory.jacobians import error, gradient, largest
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, at_least, at_most, between, evidence
from seqlab.theory.sampling import mean_of, meets
from seqlab.theory.symbols import step, vanishes
from seqlab.training.optim import (
    SGD,
    Adam,
    AdamL2,
    HeavyBall,
    PlainOptimiser,
    RunningAverage,
    build_optimiser,
)

SETTING = (
    r"$\theta$ are the weights, $L$ is the loss, $\eta$ the learning rate; $\gamma$ and $\lambda$ are "
    r"strengths; $\hat m$ and $\hat v$ are the moments of Adam, corrected for their bias."
)
claim = LEDGER.of("optimisation", SETTING)

OPTIM = "seqlab.training.optim"
ETA, GAMMA = sympy.symbols("eta gamma", positive=True)
THETA = sympy.Symbol("theta", real=True)
LOSS = sympy.Function("L")(THETA)
ADAM: dict[str, Any] = {"betas": (0.9, 0.99), "eps": 1e-8, "bias_correction": True}

Gradient = Callable[[Tensor], Tensor]
Rule = Callable[[Any, Any], Any]  # (η, γ) -> how fast weights decay


def descend(
    optimiser: torch.optim.Optimizer, gradient_of: Gradient, steps: int, rate: Callable[[int], float] | None = None
) -> Tensor:
    """The one parameter of the optimiser, after every step.    (steps, d)"""
    group = optimiser.param_groups[0]
    (theta,) = group["params"]
    path = []
    for t in range(steps):
        if rate is not None:
            group["lr"] = rate(t)
        theta.grad = gradient_of(theta.detach())
        optimiser.step()
        path.append(theta.detach().clone())
    return torch.stack(path)


def of(make: type[torch.optim.Optimizer], start: Tensor, **constants: Any) -> torch.optim.Optimizer:
    return make([{"params": [nn.Parameter(start.clone())]}], **constants)


def bowl(seed: int, id: str, size: int = 6) -> tuple[Callable[[Tensor], Tensor], Tensor, Tensor]:
    """L(θ) = ½ Σ a (θ − c)², its a and c."""
    draw = stream(seed, id, "bowl")
    a, c = uniform(draw, size, low=0.5, high=2.0), normal(draw, size)
    return lambda theta: (a * (theta - c) ** 2).sum() / 2, a, c


def penalised(loss: Callable[[Tensor], Tensor], penalty: float) -> Gradient:
    """∇(L + γ‖θ‖²) by autograd."""
    return lambda theta: gradient(lambda at: loss(at) + penalty * (at**2).sum(), theta)


# --------------------------------------------------------------------------- L2


@claim(
    "l2.sgd-equivalence",
    statement=r"Gradient descent on $L + \gamma \lVert\theta\rVert^2$ is weight decay, "
    r"$\theta \leftarrow (1 - \lambda)\theta - \eta \nabla L$, with $\lambda = 2\eta\gamma$.",
    conditions=r"Plain gradient descent. With a schedule $\lambda_t = 2\eta_t\gamma$. With momentum only if the decay "
    r"goes through the velocity too.",
    verdict="conditional",
    method="symbolic",
    right=lambda eta, gamma: 2 * eta * gamma,
    wrong={"the 2 dropped": lambda eta, gamma: eta * gamma, "the rate dropped": lambda eta, gamma: 2 * gamma},
    about=(f"{OPTIM}:SGD", f"{OPTIM}:HeavyBall"),
)
def sgd_equivalence(seed: int, form: Rule) -> Evidence:
    by_penalty = THETA - ETA * sympy.diff(LOSS + GAMMA * THETA**2, THETA)
    by_decay = (1 - form(ETA, GAMMA)) * THETA - ETA * sympy.diff(LOSS, THETA)
    loss, _, _ = bowl(seed, "l2.sgd-equivalence")
    start, eta, gamma = normal(stream(seed, "l2.sgd-equivalence"), 6), 0.1, 0.3

    def apart(make: type[PlainOptimiser], rate: Callable[[int], float], **constants: Any) -> float:
        """seqlab multiplies weights by 1 − η · weight_decay."""
        decay = form(eta, gamma) / eta
        one = descend(of(make, start, lr=eta, **constants), penalised(loss, gamma), 20, rate)
        two = descend(of(make, start, lr=eta, weight_decay=decay, **constants), penalised(loss, 0.0), 20, rate)
        return error(one, two)

    return evidence(
        vanishes("terms left over of one step", by_penalty - by_decay),
        at_most("seqlab's SGD: the two paths differ by", apart(SGD, lambda t: eta), 1e-12),
        at_most("the same with a falling rate", apart(SGD, lambda t: eta * (1 - t / 20)), 1e-12),
        at_least("with momentum 0.9 they differ by", apart(HeavyBall, lambda t: eta, momentum=0.9), 1e-3),
        steps=[step(r"\theta - \eta \nabla (L + \gamma\theta^2)", sympy.collect(sympy.expand(by_penalty), THETA))],
    )


MAKES: dict[str, tuple[type[PlainOptimiser], float, dict[str, Any]]] = {
    "adam-l2": (AdamL2, 0.05, ADAM),
    "sgd": (SGD, 0.3, {}),
    "momentum": (HeavyBall, 0.05, {"momentum": 0.9}),
    "momentum-average": (RunningAverage, 0.3, {"momentum": 0.9, "bias_correction": False}),
}


@claim(
    "l2.only-sgd",
    statement=r"L2 regularisation works with plain gradient descent only.",
    correction=r"Under any optimiser that finds a minimum, the weights go to the minimum of $L + \gamma "
    r"\lVert\theta\rVert^2$, which is nearer to 0. What other optimisers lose is the equivalence with weight decay.",
    verdict="false",
    method="identity",
    right=lambda kind, a, gamma: a / (a + 2 * gamma),
    wrong={
        AS_STATED: lambda kind, a, gamma: a / (a + 2 * gamma) if kind == "sgd" else torch.ones_like(a),
        "the 2 dropped": lambda kind, a, gamma: a / (a + gamma),
    },
    about=tuple(f"{OPTIM}:{make.__name__}" for make, _, _ in MAKES.values()),
)
def any_optimiser(seed: int, form: Callable[[str, Tensor, float], Tensor]) -> Evidence:
    """What is left of the weights c that minimise L alone, where L = ½ Σ a (θ − c)²."""
    loss, a, c = bowl(seed, "l2.only-sgd")
    gamma, steps, away = 0.3, 200, {}
    for kind, (make, rate, constants) in MAKES.items():
        decay, penalty = (2 * gamma, 0.0) if make is AdamL2 else (0.0, gamma)
        made = of(make, torch.zeros_like(c), lr=rate, weight_decay=decay, **constants)
        found = descend(made, penalised(loss, penalty), steps, lambda t, peak=rate: peak * (1 - t / steps))[-1]  # type: ignore[misc]
        away[kind] = error(found, form(kind, a, gamma) * c)
    still: dict[str, Any] = dict(lr=0.01, weight_decay=0.1, **ADAM)
    l2, decoupled = (
        float(descend(of(kind, torch.ones(1).double(), **still), torch.zeros_like, 200)[-1]) for kind in (AdamL2, Adam)
    )
    return evidence(
        *(at_most(f"{kind}: distance from what L2 leaves", distance, 0.01) for kind, distance in away.items()),
        at_most("decoupled, no other gradient: 200 steps less (1 − ηλ)²⁰⁰", decoupled - (1 - 0.001) ** 200, 1e-12),
        between("Adam with L2, the same: what is left of 1", l2, -0.1, 0.1),
        counterexample=rf"$L = 0$, $\theta = 1$, $\eta = 0.01$, $\lambda = 0.1$: after 200 steps L2 in Adam has left "
        rf"${l2:.4f}$, weight decay ${decoupled:.4f}$. Both regularise, but not alike.",
    )


# --------------------------------------------------------------------------- Adam


@claim(
    "adam.l2-line",
    statement=r"Adam with L2 takes its moments of $g = \nabla L + \lambda\theta$.",
    conditions=r"The penalty $\frac{\lambda}{2} \lVert\theta\rVert^2$ gives this $\lambda$; "
    r"$\gamma \lVert\theta\rVert^2$ gives $\lambda = 2\gamma$. The $\lambda = 2\eta\gamma$ of weight decay is another "
    r"one: it contains the rate.",
    verdict="conditional",
    method="symbolic",
    right=lambda eta, gamma: 2 * gamma,
    wrong={"the 2 dropped": lambda eta, gamma: gamma, "the λ of weight decay": lambda eta, gamma: 2 * eta * gamma},
    about=(f"{OPTIM}:AdamL2", f"{OPTIM}:Adam"),
)
def l2_line(seed: int, form: Rule) -> Evidence:
    left = sympy.diff(LOSS + GAMMA * THETA**2, THETA) - (sympy.diff(LOSS, THETA) + form(ETA, GAMMA) * THETA)
    loss, _, _ = bowl(seed, "adam.l2-line")
    start, eta, gamma = normal(stream(seed, "adam.l2-line"), 6), 0.05, 0.3
    constants: dict[str, Any] = dict(lr=eta, betas=ADAM["betas"], eps=ADAM["eps"], weight_decay=form(eta, gamma))
    mine = descend(of(AdamL2, start, bias_correction=True, **constants), penalised(loss, 0.0), 30)
    torchs = descend(of(torch.optim.Adam, start, **constants), penalised(loss, 0.0), 30)
    whole = descend(of(Adam, start, lr=eta, **ADAM), penalised(loss, gamma), 30)
    return evidence(
        vanishes("terms left over of the gradient", left),
        at_most("seqlab's Adam on the penalised loss, from its Adam with L2", error(whole, mine), 1e-11),
        at_most("and from torch's", error(whole, torchs), 1e-11),
        steps=[step(r"\nabla (L + \gamma\theta^2)", sympy.diff(LOSS + GAMMA * THETA**2, THETA))],
    )


Step = Callable[[Tensor, Tensor, float, float], Tensor]  # m̂, v̂, η, ε -> Δθ


def by_hand(form: Step, gradients: Tensor, eta: float, eps: float) -> Tensor:
    """Δθ_t for moments that are computed here.    (T, d)"""
    (first, second), moves = ADAM["betas"], []
    m, v = torch.zeros_like(gradients[0]), torch.zeros_like(gradients[0])
    for t, g in enumerate(gradients, 1):
        m, v = first * m + (1 - first) * g, second * v + (1 - second) * g**2
        moves.append(form(m / (1 - first**t), v / (1 - second**t), eta, eps))
    return torch.stack(moves)


@claim(
    "adam.denominator",
    statement=r"Adam moves by $\Delta\theta = -\eta\, \hat m / \sqrt{\hat v + \epsilon}$.",
    correction=r"$\Delta\theta = -\eta\, \hat m / (\sqrt{\hat v} + \epsilon)$: the constant stands outside the root, "
    r"and there is one step size.",
    note=r"The two differ where $\hat v$ is small: inside the root $\epsilon$ is compared with $g^2$.",
    verdict="false",
    method="counterexample",
    right=lambda m, v, eta, eps: -eta * m / (v.sqrt() + eps),
    wrong={
        AS_STATED: lambda m, v, eta, eps: -eta * m / (v + eps).sqrt(),
        "no constant": lambda m, v, eta, eps: -eta * m / v.sqrt(),
        "a second step size": lambda m, v, eta, eps: -eta * 0.1 * m / (v.sqrt() + eps),
    },
    about=(f"{OPTIM}:Adam",),
)
def denominator(seed: int, form: Step) -> Evidence:
    draw, eta, eps = stream(seed, "adam.denominator"), 0.01, 1e-8
    found = {}
    for size in (1e-6, 1.0):
        g = normal(draw, 10, 5, scale=size)
        constants: dict[str, Any] = dict(lr=eta, betas=ADAM["betas"], eps=eps)
        moves = by_hand(form, g, eta, eps).cumsum(0)
        for name, made in (
            ("seqlab", of(Adam, torch.zeros(5).double(), bias_correction=True, **constants)),
            ("torch", of(torch.optim.Adam, torch.zeros(5).double(), **constants)),
        ):
            rows = iter(g)
            found[name, size] = error(descend(made, lambda _, rows=rows: next(rows).clone(), 10), moves)  # type: ignore[misc]
    tiny = 1e-6
    return evidence(
        *(at_most(f"gradients of {size:g}: from {name}'s Adam", away, 1e-11) for (name, size), away in found.items()),
        counterexample=rf"$g = 10^{{-6}}$, $\epsilon = 10^{{-8}}$, first step: outside the root "
        rf"$-{tiny / (tiny + eps):.4f}\,\eta$, inside $-{tiny / math.sqrt(tiny**2 + eps):.4f}\,\eta$.",
    )


# --------------------------------------------------------------------------- how fast weights shrink

Rate = Callable[[float, float, float], float]  # η, λ, size of the gradients -> shrinkage for each step
RATE, DECAY, LONG = 0.01, 0.1, 300


def shrinkage(make: type[PlainOptimiser], scale: float, seed: int, pairs: int) -> Tensor:
    """−ln(mean of a pair)/steps of weights from 1 whose gradients are noise, each pair with opposite noise: what the
    noise does by itself cancels.    (pairs,)"""
    draw = stream(seed, "shrinkage", scale)

    def noise(_: Tensor) -> Tensor:
        g = normal(draw, pairs, scale=scale)
        return torch.cat([g, -g])

    last = descend(of(make, torch.ones(2 * pairs).double(), lr=RATE, weight_decay=DECAY, **ADAM), noise, LONG)[-1]
    return -last.view(2, pairs).mean(0).log() / LONG


@claim(
    "adam.l2-large-less",
    statement=r"With L2 in Adam, weights with large gradients are regularised less.",
    conditions=r"The noise of the gradients outweighs $\lambda\theta$ in $\hat v$. Then a weight shrinks by about "
    r"$\eta\lambda\theta / \sqrt{\hat v}$ in a step: inversely to the size of its gradients.",
    verdict="conditional",
    method="sampling",
    right=lambda eta, decay, scale: eta * decay / scale,
    wrong={
        "all alike": lambda eta, decay, scale: eta * decay,
        "large gradients more": lambda eta, decay, scale: eta * decay * scale,
        "inversely to the square": lambda eta, decay, scale: eta * decay / scale**2,
    },
    about=(f"{OPTIM}:AdamL2", "seqlab.diagnostics.optimiser_experiments:l2_formula"),
)
def large_less(seed: int, form: Rate) -> Evidence:
    small, large = 1.0, 10.0
    rates = {scale: shrinkage(AdamL2, scale, seed, 2000) for scale in (small, large)}
    said = {scale: form(RATE, DECAY, scale) for scale in rates}
    ratio = float(rates[small].mean() / rates[large].mean())
    return evidence(
        between(
            "shrinkage at scale 1 over that at scale 10", ratio, *(said[small] / said[large] * x for x in (0.9, 1.1))
        ),
        *(
            meets(f"over the formula, scale {s:g}", mean_of(found / said[s]), 1.0, slack=0.08)
            for s, found in rates.items()
        ),
        at_most("seqlab's formula over this, less 1", l2_formula(RATE, DECAY, large) / said[large] - 1, 0.01),
    )


@claim(
    "adam.decoupled-uniform",
    statement=r"Decoupled weight decay in Adam shrinks all weights at the same rate, by the factor $1 - \eta\lambda$ "
    r"in each step, however large their gradients are.",
    verdict="true",
    method="identity",
    right=lambda eta, decay, scale: -math.log1p(-eta * decay),
    wrong={
        "as L2 does": lambda eta, decay, scale: eta * decay / scale,
        "large gradients more": lambda eta, decay, scale: eta * decay * scale,
        "without the rate": lambda eta, decay, scale: -math.log1p(-decay),
    },
    about=(f"{OPTIM}:Adam", f"{OPTIM}:build_optimiser"),
)
def decoupled_uniform(seed: int, form: Rate) -> Evidence:
    """The step is odd in the gradients: a pair with opposite gradients shows the decay alone."""
    away = {
        scale: largest(shrinkage(Adam, scale, seed, 20) / form(RATE, DECAY, scale) - 1) for scale in (0.1, 1.0, 10.0)
    }
    model = nn.ParameterList([nn.Parameter(torch.ones(4, 4, dtype=torch.float64))])
    fused = build_optimiser(model, RATE, DECAY, ADAM["betas"])
    steps = [iter(normal(stream(seed, "adam.decoupled-uniform"), 20, 4, 4)) for _ in range(2)]
    torchs = descend(fused, lambda _: next(steps[0]).clone(), 20)
    mine = descend(
        of(Adam, torch.ones(4, 4).double(), lr=RATE, weight_decay=DECAY, **ADAM), lambda _: next(steps[1]).clone(), 20
    )
    return evidence(
        *(at_most(f"shrinkage over the formula, less 1, scale {s:g}", found, 1e-9) for s, found in away.items()),
        at_most("seqlab's path from torch's AdamW", error(mine, torchs), 1e-12),
    )
