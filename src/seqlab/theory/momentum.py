"""Claims about momentum, as a heavy ball and as a running average of gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import Tensor, nn

from seqlab.theory.instances import normal, stream, uniform
from seqlab.theory.jacobians import error
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, at_least, at_most, between, evidence
from seqlab.theory.sampling import draws_for, mean_of, meets
from seqlab.theory.symbols import step, vanishes
from seqlab.training.optim import HeavyBall, PlainOptimiser, RunningAverage, average_rate, heavy_ball_rate

SETTING = (
    r"In step $t$ the gradient is $g_t$ and the weights change by $\Delta\theta_t$; $\alpha$, $\beta$, $\delta$ "
    r"and $\varepsilon$ are numbers."
)
claim = LEDGER.of("optimisation", SETTING)

OPTIM = "seqlab.training.optim"
BETA, DELTA, MU, START = sympy.symbols("beta delta mu v_0", positive=True)
T = sympy.Symbol("t", positive=True, integer=True)
G = [sympy.Symbol(f"g_{t}", real=True) for t in range(1, 7)]


def averages(beta: Any, gradients: Sequence[Any], start: Any = 0) -> list[Any]:
    """v_t = β v_{t−1} + (1 − β) g_t"""
    found = [start]
    for g in gradients:
        found.append(beta * found[-1] + (1 - beta) * g)
    return found[1:]


def ball_steps(alpha: Any, eps: Any, gradients: Sequence[Any]) -> list[Any]:
    """Δθ_t = −v_t,  v_t = α v_{t−1} + ε g_t"""
    found, v = [], 0
    for g in gradients:
        v = alpha * v + eps * g
        found.append(-v)
    return found


def steps_of(make: type[PlainOptimiser], gradients: Tensor, rate: float, **constants: Any) -> Tensor:
    """Δθ_t of seqlab's optimiser on these gradients.    (T, d) -> (T, d)"""
    theta = nn.Parameter(torch.zeros_like(gradients[0]))
    optimiser = make([{"params": [theta]}], lr=rate, **constants)
    path = [theta.detach().clone()]
    for g in gradients:
        theta.grad = g.clone()
        optimiser.step()
        path.append(theta.detach().clone())
    return torch.stack(path).diff(dim=0)


def plain_steps(gradients: Tensor, rate: float, beta: float) -> Tensor:
    """Of seqlab's running average, not corrected."""
    return steps_of(RunningAverage, gradients, rate, momentum=beta, bias_correction=False)


def constants(seed: int, id: str) -> tuple[float, float]:
    """β and δ."""
    draw = stream(seed, id, "constants")
    return float(uniform(draw, 1, low=0.7, high=0.95)), float(uniform(draw, 1, low=0.05, high=0.5))


# --------------------------------------------------------------------------- two rules


@claim(
    "momentum.equivalence",
    statement=r"The rules $v_t = \alpha v_{t-1} + \epsilon g_t$, $\Delta\theta_t = -v_t$ and "
    r"$v_t = \beta v_{t-1} + (1 - \beta) g_t$, $\Delta\theta_t = -\delta v_t$ are the same for $\alpha = \delta\beta$, "
    r"$\epsilon = \delta (1 - \beta)$.",
    correction=r"They are the same for $\alpha = \beta$, $\epsilon = \delta (1 - \beta)$, with a constant $\delta$ and "
    r"$v_0 = 0$ in both. What is stated is right for $\delta = 1$ only: it forgets that $v_{t-1} = "
    r"-\Delta\theta_{t-1} / \delta$ in the second rule.",
    verdict="false",
    method="symbolic",
    right=lambda beta, delta: (beta, heavy_ball_rate(delta, beta)),
    wrong={
        AS_STATED: lambda beta, delta: (delta * beta, delta * (1 - beta)),
        "the rate not scaled": lambda beta, delta: (beta, delta),
    },
    about=(f"{OPTIM}:HeavyBall", f"{OPTIM}:RunningAverage", f"{OPTIM}:heavy_ball_rate", f"{OPTIM}:average_rate"),
)
def equivalence(seed: int, form: Callable[[Any, Any], tuple[Any, Any]]) -> Evidence:
    averaged = sympy.Matrix([-DELTA * v for v in averages(BETA, G[:4])])
    ball = sympy.Matrix(ball_steps(*form(BETA, DELTA), G[:4]))
    beta, delta = constants(seed, "momentum.equivalence")
    alpha, eps = form(beta, delta)
    g = normal(stream(seed, "momentum.equivalence"), 30, 5)
    apart = error(steps_of(HeavyBall, g, eps, momentum=alpha), plain_steps(g, delta, beta))
    stated = ball_steps(0.1 * 0.9, 0.1 * (1 - 0.9), [1.0, 1.0])[1]
    return evidence(
        vanishes("of 4 steps, how many differ", ball - averaged),
        at_most("seqlab's two optimisers over 30 steps differ by", apart, 1e-12),
        at_most("the rate converted there and back, less δ", average_rate(eps, alpha) - delta, 1e-12),
        steps=[step(rf"\Delta\theta_{t + 1}", averaged[t]) for t in (0, 1)],
        counterexample=rf"$\beta = 0.9$, $\delta = 0.1$, $g_1 = g_2 = 1$: the second step is "
        rf"${-0.1 * averages(0.9, [1.0, 1.0])[1]:.4f}$, with the stated constants ${stated:.4f}$.",
    )


@claim(
    "momentum.sign",
    statement=r"A running average moves by $\Delta\theta_t = -\delta\beta \Delta\theta_{t-1} - \delta (1-\beta) g_t$.",
    correction=r"$\Delta\theta_t = +\beta \Delta\theta_{t-1} - \delta (1 - \beta) g_t$: momentum goes on in its "
    r"direction, and $\delta$ is in $\Delta\theta_{t-1}$ already.",
    verdict="false",
    method="symbolic",
    right=lambda beta, delta: beta,
    wrong={
        AS_STATED: lambda beta, delta: -delta * beta,
        "only the sign wrong": lambda beta, delta: -beta,
        "only δ too often": lambda beta, delta: delta * beta,
    },
    about=(f"{OPTIM}:RunningAverage",),
)
def sign(seed: int, form: Callable[[Any, Any], Any]) -> Evidence:
    """The factor of Δθ_{t−1}."""
    moves = [-DELTA * v for v in averages(BETA, G[:4])]
    left = [moves[t] - form(BETA, DELTA) * moves[t - 1] + DELTA * (1 - BETA) * G[t] for t in range(1, 4)]
    beta, delta = constants(seed, "momentum.sign")
    g = normal(stream(seed, "momentum.sign"), 20, 5)
    found = plain_steps(g, delta, beta)
    second = -0.1 * averages(0.9, [1.0, 1.0])[1]
    return evidence(
        vanishes("of 3 steps, how many differ", sympy.Matrix(left)),
        at_most(
            "seqlab's steps, from this",
            error(found[1:], form(beta, delta) * found[:-1] - delta * (1 - beta) * g[1:]),
            1e-12,
        ),
        steps=[step(r"\Delta\theta_2 + \delta (1 - \beta) g_2", sympy.factor(moves[1] + DELTA * (1 - BETA) * G[1]))],
        counterexample=rf"$\beta = 0.9$, $\delta = 0.1$, $g_1 = g_2 = 1$: $\Delta\theta_2 = {second:.4f}$; as "
        rf"stated it were ${-0.1 * 0.9 * -0.01 - 0.1 * (1 - 0.9):.4f}$.",
    )


# --------------------------------------------------------------------------- what an average holds


@claim(
    "momentum.unroll",
    statement=r"$v_t = \beta v_{t-1} + (1 - \beta) g_t$ is $v_t = (1 - \beta) \sum_{i=1}^t \beta^{t-i} g_i$.",
    conditions=r"$v_0 = 0$; otherwise $\beta^t v_0$ is added.",
    verdict="conditional",
    method="symbolic",
    right=lambda beta, g: (1 - beta) * sum(beta ** (len(g) - 1 - i) * g[i] for i in range(len(g))),
    wrong={
        "the newest gradient weighed down": lambda beta, g: (
            (1 - beta) * sum(beta ** (len(g) - i) * g[i] for i in range(len(g)))
        ),
        "the oldest counts most": lambda beta, g: (1 - beta) * sum(beta**i * g[i] for i in range(len(g))),
        "the factor dropped": lambda beta, g: sum(beta ** (len(g) - 1 - i) * g[i] for i in range(len(g))),
    },
    about=(f"{OPTIM}:RunningAverage",),
)
def unrolled(seed: int, form: Callable[[Any, Any], Any]) -> Evidence:
    last = averages(BETA, G, START)[-1]
    beta, _ = constants(seed, "momentum.unroll")
    g = normal(stream(seed, "momentum.unroll"), 12, 5)
    return evidence(
        vanishes("terms left over at t = 6, beside β⁶ v₀", last - form(BETA, G) - BETA**6 * START),
        at_most("seqlab's average at t = 12, from this", error(-plain_steps(g, 1.0, beta)[-1], form(beta, g)), 1e-12),
        steps=[step(rf"v_{t}", sympy.collect(sympy.expand(averages(BETA, G[:t], START)[-1]), G)) for t in (1, 2)],
    )


@claim(
    "momentum.bias",
    statement=r"$\mathbb{E}[v_t] = (1 - \beta^t)\, \mathbb{E}[g]$ for gradients of equal mean, with $v_0 = 0$.",
    note="Equal means suffice; the gradients need not be independent.",
    verdict="true",
    method="symbolic",
    right=lambda beta, t: 1 - beta**t,
    wrong={
        "no bias": lambda beta, t: sympy.Integer(1),
        "one step too late": lambda beta, t: 1 - beta ** (t - 1),
        "the weight of the newest only": lambda beta, t: 1 - beta,
        "what is missing": lambda beta, t: beta**t,
    },
    about=(f"{OPTIM}:RunningAverage",),
)
def bias(seed: int, form: Callable[[Any, Any], Any]) -> Evidence:
    """By induction over t, for every t."""
    grows = BETA * form(BETA, T - 1) + (1 - BETA)
    beta, mean, steps, draw = 0.9, 2.0, 6, stream(seed, "momentum.bias")
    noise = normal(draw, steps, draws_for(1.0, 0.08))
    for t in range(1, steps):
        noise[t] = 0.9 * noise[t - 1] + 0.19**0.5 * noise[t]  # correlated, with variance 1
    v = -plain_steps(mean + noise, 1.0, beta)[-1]
    return evidence(
        vanishes("terms left over from t − 1 to t", form(BETA, T) - grows),
        vanishes("and at t = 0", form(BETA, sympy.Integer(0))),
        meets("seqlab's average at t = 6, β = 0.9, E[g] = 2", mean_of(v), mean * float(form(beta, steps))),
        steps=[step(r"\mathbb{E}[v_t]", r"\beta\, \mathbb{E}[v_{t-1}] + (1 - \beta)\, \mathbb{E}[g]")],
    )


def corrected(gradients: Sequence[Any], beta: Any) -> list[Any]:
    """v̂_t = v_t / (1 − β^t)"""
    return [v / (1 - beta**t) for t, v in enumerate(averages(beta, gradients), 1)]


def stored_back(gradients: Sequence[Any], beta: Any) -> list[Any]:
    v, found = 0, []
    for t, g in enumerate(gradients, 1):
        v = (beta * v + (1 - beta) * g) / (1 - beta**t)
        found.append(v)
    return found


@claim(
    "momentum.bias-correction",
    statement=r"$v_t / (1 - \beta^t)$ is unbiased, and the correction fades as $t$ grows.",
    note=r"It must not be stored back into $v_t$: the next average would start from it.",
    verdict="true",
    method="symbolic",
    right=corrected,
    wrong={
        "stored back into v": stored_back,
        "not corrected": lambda g, beta: averages(beta, g),
        "divided by 1 − β at every step": lambda g, beta: [v / (1 - beta) for v in averages(beta, g)],
    },
    about=(f"{OPTIM}:RunningAverage",),
)
def bias_correction(seed: int, form: Callable[[Sequence[Any], Any], list[Any]]) -> Evidence:
    """v̂ is a sum of gradients with weights that add up to 1, so that its mean is theirs."""
    mean = sympy.Symbol("m", real=True)
    of_equal = sympy.Matrix([sympy.cancel(v - mean) for v in form([mean] * len(G), BETA)])
    beta, g = 0.9, normal(stream(seed, "momentum.bias-correction"), 100, 4)
    seqlabs = -steps_of(RunningAverage, g, 1.0, momentum=beta, bias_correction=True)
    ones = torch.ones(100, 1, dtype=torch.float64)
    return evidence(
        vanishes("of 6 steps on gradients of mean m, those whose v̂ has another mean", of_equal),
        at_most(
            "random gradients: v̂ from seqlab's, over 100 steps", error(torch.stack(form(list(g), beta)), seqlabs), 1e-12
        ),
        between("correction at t = 100, β = 0.9", 1 / -plain_steps(ones, 1.0, beta)[-1], 1.0, 1.0001),
        at_least("stored back into v: v₅ for gradients of 1", stored_back(list(ones), beta)[4], 100.0),
        steps=[
            step(
                r"\mathbb{E}[v_t]",
                r"(1 - \beta) \sum_{i=1}^t \beta^{t-i}\, \mathbb{E}[g] = (1 - \beta^t)\, \mathbb{E}[g]",
            ),
            step(r"\mathbb{E}[v_t] / (1 - \beta^t)", r"\mathbb{E}[g]"),
        ],
    )
