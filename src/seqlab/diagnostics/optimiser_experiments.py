"""What optimisers do, on weights whose gradients are known: weight decay in Adam, momentum, bias correction."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from seqlab.core.settings.experiments import BiasCorrection, MomentumForms, WeightDecay
from seqlab.diagnostics.experiments import Experiment, Finding, Line, Picture, described, estimated, exact
from seqlab.training.optim import Adam, AdamL2, HeavyBall, PlainOptimiser, RunningAverage, average_rate

BETAS, EPS = (0.9, 0.99), 1e-12
ROUNDING = 1e-12
Schedule = Callable[[int], float]


def weight_decay(asked: WeightDecay) -> Experiment:
    """How fast weights shrink whose gradients are noise of a large and of a small scale, with L2 and decoupled."""
    rate_of = {"adam-l2": l2_formula, "decoupled": decoupled_formula}
    findings, lines = [], []
    rates: dict[tuple[str, str], float] = {}
    for kind, make in (("adam-l2", AdamL2), ("decoupled", Adam)):
        for name, scale in (("large", asked.large), ("small", asked.small)):
            draw = torch.Generator().manual_seed(4 * asked.seed + len(rates))
            theta, path = _shrunk(make, scale, asked, draw)
            rate, error = _rate(theta, asked.steps)
            expected = rate_of[kind](asked.learning_rate, asked.decay, scale)
            what = f"{kind}, {name} gradients (scale {scale:g}): shrinkage per step"
            findings.append(estimated(what, expected, rate, error))
            lines.append(Line(f"{kind}, {name} gradients", [float(k) for k in range(0, asked.steps + 1, _EVERY)], path))
            rates[kind, name] = rate
    ratio = rates["adam-l2", "small"] / rates["adam-l2", "large"]
    even = rates["decoupled", "small"] / rates["decoupled", "large"]
    answer = (
        f"With L2 in Adam's gradient the weights with small gradients are shrunk {ratio:.1f} times as fast as those "
        f"with large ones; decoupled, {even:.2f} times: alike."
    )
    return described(
        "decay",
        asked,
        "L2 in Adam: θ shrinks by ηλθ/√v with each step, √v the size of its gradients; decoupled: by ηλθ",
        answer,
        findings,
        [Picture("Mean weight, from 1", "step", "mean weight", lines)],
    )


def l2_formula(rate: float, decay: float, scale: float) -> float:
    """ηλ/√v, v = scale² + λ²: the gradient of a weight of 1 contains its own decay"""
    return rate * decay / math.hypot(scale, decay)


def decoupled_formula(rate: float, decay: float, scale: float) -> float:
    """ηλ, whatever the gradients"""
    return rate * decay


_EVERY = 10


def _shrunk(make: type[Adam], scale: float, asked: WeightDecay, draw: torch.Generator) -> tuple[Tensor, list[float]]:
    """The weights after training on noise alone, from 1, and their mean on the way."""
    theta = nn.Parameter(torch.ones(asked.weights, dtype=torch.float64))
    group = {"params": [theta], "weight_decay": asked.decay}
    optimiser = make([group], lr=asked.learning_rate, betas=BETAS, eps=EPS, bias_correction=True)
    path = [1.0]
    for step in range(1, asked.steps + 1):
        theta.grad = scale * torch.randn(asked.weights, generator=draw, dtype=torch.float64)
        optimiser.step()
        if step % _EVERY == 0:
            path.append(float(theta.detach().mean()))
    return theta.detach(), path


def _rate(theta: Tensor, steps: int) -> tuple[float, float]:
    """−ln(mean)/steps, with its standard error by the delta method."""
    mean = float(theta.mean())
    error = float(theta.std()) / math.sqrt(len(theta)) / mean
    return -math.log(mean) / steps, error / steps


# --------------------------------------------------------------------------- momentum


def momentum_forms(asked: MomentumForms) -> Experiment:
    """The heavy ball and the running average on one quadratic bowl, with the learning rate converted."""
    size, steps, momentum, learning_rate = asked.size, asked.steps, asked.momentum, asked.learning_rate
    draw = torch.Generator().manual_seed(asked.seed)
    bowl = torch.rand(size, generator=draw, dtype=torch.float64) + 0.05
    start = torch.randn(size, generator=draw, dtype=torch.float64)
    delta = average_rate(learning_rate, momentum)

    def falling(peak: float) -> Schedule:
        return lambda step: peak * (1 - step / steps)

    def gap(ball: Schedule, average: Schedule, corrected: bool = False) -> list[float]:
        one = _path(HeavyBall, bowl, start, steps, ball, momentum, corrected=False)
        other = _path(RunningAverage, bowl, start, steps, average, momentum, corrected=corrected)
        return [float((a - b).abs().max()) for a, b in zip(one, other, strict=True)]

    same = gap(lambda _: learning_rate, lambda _: delta)
    moving = gap(falling(learning_rate), falling(delta))
    corrected = gap(lambda _: learning_rate, lambda _: delta, corrected=True)
    rounding = ROUNDING * max(1.0, float(start.abs().max()))
    findings = [exact("largest difference of the two paths, α = β, ε = δ(1 − β)", 0.0, max(same), rounding)]
    steps_axis = [float(k) for k in range(1, steps + 1)]
    drawn = [("a falling learning rate", moving), ("bias correction", corrected), ("the same constants", same)]
    answer = (
        f"The two forms are one: at most {max(same):.0e} apart over {steps} steps. With a learning rate that falls "
        f"they part by up to {max(moving):.2g}, since the ball keeps old rates in its speed; with bias correction "
        f"by up to {max(corrected):.2g}."
    )
    return described(
        "momentum",
        asked,
        "v = αv + εg, θ − v and v = βv + (1 − β)g, θ − δv follow one path if α = β and ε = δ(1 − β)",
        answer,
        findings,
        [
            Picture(
                "How far the two paths are apart",
                "step",
                "largest difference of a weight",
                [Line(name, steps_axis, [max(value, 1e-18) for value in values]) for name, values in drawn],
                log_y=True,
            )
        ],
    )


def _path(
    make: type[PlainOptimiser],
    bowl: Tensor,
    start: Tensor,
    steps: int,
    rate: Schedule,
    momentum: float,
    *,
    corrected: bool,
) -> list[Tensor]:
    """Down ½ Σ a_i θ_i²."""
    theta = nn.Parameter(start.clone())
    optimiser = make([{"params": [theta]}], momentum=momentum, bias_correction=corrected)
    found = []
    for step in range(steps):
        theta.grad = bowl * theta.detach()
        optimiser.param_groups[0]["lr"] = rate(step)
        optimiser.step()
        found.append(theta.detach().clone())
    return found


# --------------------------------------------------------------------------- bias correction


def bias_correction(asked: BiasCorrection) -> Experiment:
    """The size of Adam's steps down a constant slope, with and without correcting its averages."""
    steps, betas, learning_rate = asked.steps, (asked.beta1, asked.beta2), asked.learning_rate
    gradient = float(torch.rand((), generator=torch.Generator().manual_seed(asked.seed), dtype=torch.float64) + 0.5)
    sizes = {name: _step_sizes(gradient, steps, betas, learning_rate, name == "corrected") for name in _FORMS}
    expected = {
        "corrected": [1.0] * steps,
        "not corrected": [uncorrected_formula(t, *betas) for t in range(1, steps + 1)],
    }
    findings: list[Finding] = []
    for name in _FORMS:
        for t in (1, 10, steps):
            what = f"{name}: step {t} as a multiple of the learning rate"
            findings.append(exact(what, expected[name][t - 1], sizes[name][t - 1], 1e-9))
    largest = max(sizes["not corrected"])
    answer = (
        f"Without correction the first step is {sizes['not corrected'][0]:.2f} times the learning rate and the largest "
        f"{largest:.2f} times, since the average of squares lags more than that of gradients; corrected, each is 1."
    )
    axis = [float(t) for t in range(1, steps + 1)]
    lines = [Line(name, axis, sizes[name]) for name in _FORMS]
    lines.append(Line("(1 − β₁ᵗ)/√(1 − β₂ᵗ)", axis, expected["not corrected"], dashed=True))
    return described(
        "bias-correction",
        asked,
        "on a constant gradient a step is η (1 − β₁ᵗ)/√(1 − β₂ᵗ) without it, η with it",
        answer,
        findings,
        [Picture("Size of a step", "step t", "multiple of the learning rate", lines)],
    )


_FORMS = ("corrected", "not corrected")


def uncorrected_formula(step: int, beta1: float, beta2: float) -> float:
    """(1 − β₁ᵗ)/√(1 − β₂ᵗ)"""
    return (1 - beta1**step) / math.sqrt(1 - beta2**step)


def _step_sizes(gradient: float, steps: int, betas: tuple[float, float], rate: float, corrected: bool) -> list[float]:
    theta = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimiser = Adam([{"params": [theta]}], lr=rate, betas=betas, eps=EPS, bias_correction=corrected)
    found = []
    for _ in range(steps):
        before = float(theta.detach())
        theta.grad = torch.full((1,), gradient, dtype=torch.float64)
        optimiser.step()
        found.append((before - float(theta.detach())) / rate)
    return found
