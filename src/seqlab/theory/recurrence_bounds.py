"""Claims about recurrences: when gradients vanish, when they explode, and what φ and W have to do with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, log, sqrt
from typing import Any

import sympy
import torch
from torch import Tensor

from seqlab.diagnostics.gradient_flow import EXPLODED
from seqlab.layers import RNN
from seqlab.theory.instances import normal, orthogonal, stream, uniform, with_norm
from seqlab.theory.jacobians import spectral_norm
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, at_least, at_most, between, evidence, exactly
from seqlab.theory.recurrent_nets import STEEPEST, Net, random_net, resting, slopes_of_layer
from seqlab.theory.sampling import mean_of, meets
from seqlab.theory.symbols import step, vanishes

SETTING = (
    r"An RNN $h_t = W \varphi(h_{t-1}) + U x_t + b$ with states $h_t$ and inputs $x_t$; $\lambda_1$ is the "
    r"largest eigenvalue."
)
claim = LEDGER.of("recurrence", SETTING)


# --------------------------------------------------------------------------- the activation

Judgement = Mapping[str, Callable[[Any], bool]]  # what is said of max φ', by φ


@claim(
    "rnn.steep-activations",
    statement=r"Gradients explode because sigmoid and $\tanh$ are steep: a factor $\mathrm{diag}(\varphi')$ enlarges "
    r"them.",
    correction=r"Neither is steep: $\max \sigma' = 1/4$ and $\max \tanh' = 1$, so that $\mathrm{diag}(\varphi')$ never "
    r"enlarges a vector. They can only make gradients vanish. Explosion needs $\lVert W \rVert > 1$ with $\tanh$ and "
    r"$\lVert W \rVert > 4$ with the sigmoid.",
    verdict="false",
    method="symbolic",
    right={"tanh": lambda steepest: steepest == 1, "sigmoid": lambda steepest: 4 * steepest == 1},
    wrong={
        AS_STATED: {"tanh": lambda steepest: steepest > 1, "sigmoid": lambda steepest: steepest > 1},
        "the sigmoid as steep as tanh": {
            "tanh": lambda steepest: steepest == 1,
            "sigmoid": lambda steepest: steepest == 1,
        },
    },
    about=("seqlab.ops.recurrence:rnn",),
)
def steep_activations(seed: int, form: Judgement) -> Evidence:
    a = sympy.Symbol("a", real=True)
    sigmoid = 1 / (1 + sympy.exp(-a))
    phis = {"tanh": sympy.tanh(a), "sigmoid": sigmoid}
    below = {"tanh": sympy.tanh(a) ** 2, "sigmoid": (sigmoid - sympy.Rational(1, 2)) ** 2}  # γ − φ', a square
    steepest = {phi: sympy.diff(f, a).subs(a, 0) for phi, f in phis.items()}
    grid = torch.cat([torch.zeros(1).double(), uniform(stream(seed, "rnn.steep-activations"), 200, low=-9, high=9)])
    widest = {phi: float(slopes_of_layer(phi, grid).max()) for phi in phis}
    return evidence(
        exactly("activations of which it is true", sum(bool(form[k](found)) for k, found in steepest.items()), 2),
        *(vanishes(f"γ − φ' − (a square), {k}", steepest[k] - sympy.diff(f, a) - below[k]) for k, f in phis.items()),
        *(at_most(f"largest slope in the layer − γ, {k}", widest[k] - steepest[k], 1e-12) for k in phis),
        steps=(
            step(r"\tanh'(a)", r"1 - \tanh^2(a) \le 1"),
            step(r"\sigma'(a)", r"\frac{1}{4} - (\sigma(a) - \frac{1}{2})^2 \le \frac{1}{4}"),
        ),
        counterexample=rf"At $a = 0$, where both are steepest: $\tanh'(0) = {float(steepest['tanh']):g}$, "
        rf"$\sigma'(0) = {float(steepest['sigmoid']):g}$.",
    )


# --------------------------------------------------------------------------- vanishing and exploding

Scaled = Callable[[Tensor, float], Tensor]  # (W, δ/γ) -> the largest multiple of W that the condition allows


def spectral_radius(w: Tensor) -> float:
    return float(torch.linalg.eigvals(w).abs().max())


@claim(
    "rnn.vanish-sufficient",
    statement=r"If $|\varphi'| \le \gamma$ and $\lambda_1(W^\top W) \le \delta^2/\gamma^2$ with $\delta < 1$, then "
    r"$\lVert \frac{\partial h_T}{\partial h_0} \rVert \le \delta^T \to 0$.",
    note=r"$\lambda_1$ is the largest eigenvalue of $W^\top W$, so that $\lVert W \rVert = \sqrt{\lambda_1}$. The "
    r"largest eigenvalue of $W$ itself does not do.",
    verdict="true",
    method="identity",
    right=lambda w, limit: w * limit / spectral_norm(w),
    wrong={
        "eigenvalues of W": lambda w, limit: w * limit / spectral_radius(w),
        "λ₁ up to δ/γ": lambda w, limit: w * sqrt(limit) / spectral_norm(w),
        "entries up to δ/γ": lambda w, limit: w * limit / float(w.abs().max()),
    },
    about=("seqlab.layers:RNN",),
)
def vanish_sufficient(seed: int, form: Scaled) -> Evidence:
    draw, time, n = stream(seed, "rnn.vanish-sufficient"), 12, 5
    delta = float(uniform(draw, 1, low=0.5, high=0.95))
    q = orthogonal(draw, n)
    matrices = [normal(draw, n, n), 0.2 * torch.eye(n).double() + normal(draw, n, n).triu(1), q]
    norms, tight = [], {}
    for phi, gamma in STEEPEST.items():
        scaled = [form(w, delta / gamma) for w in matrices]
        norms += [made.norm() for w in scaled for made in (random_net(draw, w, phi, time), resting(w, phi, time))]
        tight[phi] = norms[-1] / delta**time  # Q at rest
    return evidence(
        at_most("largest ‖∂h_T/∂h_0‖ / δ^T", max(norms) / delta**time, 1 + 1e-9),
        *(between(f"the same, orthogonal W at rest, {phi}", r, 1 - 1e-9, 1 + 1e-9) for phi, r in tight.items()),
        steps=(
            r"\lVert \frac{\partial h_i}{\partial h_{i-1}} \rVert = \lVert W \mathrm{diag}(\varphi'(h_{i-1})) \rVert "
            r"\le \frac{\delta}{\gamma} \gamma = \delta",
            r"\lVert \frac{\partial h_T}{\partial h_0} \rVert \le \prod_{i=1}^{T} \delta = \delta^T",
        ),
    )


Law = Callable[[float, float, bool], bool]  # (‖W‖, γ, whether the gradient exploded) -> whether the statement holds


def necessary(norm: float, gamma: float, exploded: bool) -> bool:
    return norm > 1 / gamma or not exploded


def sufficient(norm: float, gamma: float, exploded: bool) -> bool:
    return exploded or not norm > 1 / gamma


def breaks(law: Law, nets: Sequence[Net]) -> int:
    """How many of the nets refute it."""
    return sum(not law(spectral_norm(n.w), STEEPEST[n.phi], n.norm() > EXPLODED) for n in nets)


@claim(
    "rnn.explode-threshold",
    statement=r"If $\delta^2/\gamma^2 > 1$ for the bound $\lambda_1(W^\top W) = \delta^2/\gamma^2$, the gradient "
    r"explodes.",
    correction=r"Explosion needs $\lambda_1(W^\top W) > 1/\gamma^2$, and this is necessary only: where every factor "
    r"has norm at most $1$, so has the product. A $W$ above the threshold can still give a gradient that vanishes.",
    verdict="false",
    method="counterexample",
    right=necessary,
    wrong={
        AS_STATED: lambda norm, gamma, exploded: exploded or not norm**2 > 1,
        "above 1/γ² it explodes": sufficient,
        "only below the threshold": lambda norm, gamma, exploded: not exploded or norm <= 1 / gamma,
    },
    about=("seqlab.layers:RNN",),
)
def explode_threshold(seed: int, form: Law) -> Evidence:
    draw, time = stream(seed, "rnn.explode-threshold"), 40
    strict = normal(draw, 5, 5).triu(1)
    nilpotent = random_net(draw, strict * (10 / spectral_norm(strict)), time=time)
    growing = [resting(1.4 / gamma * orthogonal(draw, 5), phi, time) for phi, gamma in STEEPEST.items()]
    below = [resting(0.99 / gamma * orthogonal(draw, 5), phi, time) for phi, gamma in STEEPEST.items()]
    fixed = at_fixed_point(2.0, time)
    factor, point = float(fixed.jacobian(0, 1)), float(torch.tanh(fixed.h0))
    return evidence(
        exactly("nets that refute it", breaks(form, [nilpotent, fixed, *growing, *below]), 0),
        at_most("‖∂h_T/∂h_0‖, nilpotent W of norm 10", nilpotent.norm(), 0.0),
        at_most("factor of one unit, w = 2, against w(1 − g²)", factor - 2 * (1 - point**2), 1e-12),
        at_most("the same unit over T = 40 steps", fixed.norm(), 1e-6),
        counterexample=rf"One unit, $\tanh$, $w = 2 > 1/\gamma = 1$, at its fixed point $h = {float(fixed.h0):.4f}$: "
        rf"each step multiplies by ${factor:.4f}$.",
    )


def at_fixed_point(w: float, time: int) -> Net:
    """One unit with h = w tanh(h), h > 0."""
    made = resting(torch.tensor([[w]]).double(), "tanh", time)
    h = torch.tensor([w]).double()
    for _ in range(200):
        h = w * torch.tanh(h)
    return Net(made.layer, made.x, h)


@claim(
    "rnn.explode-necessary",
    statement=r"$\lambda_1(W^\top W) > 1/\gamma^2$ is necessary for the gradient to explode.",
    note=r"It is not sufficient. At $\lambda_1 = 1/\gamma^2$ the norm of the product never exceeds $1$. With "
    r"$\gamma = 1$ ($\tanh$) the threshold of $\lVert W \rVert$ is $1$, with $\gamma = 1/4$ (sigmoid) it is $4$.",
    verdict="true",
    method="identity",
    right=necessary,
    wrong={
        "it is sufficient": sufficient,
        "necessary and sufficient": lambda norm, gamma, exploded: exploded == (norm > 1 / gamma),
        "λ₁ taken for the norm": lambda norm, gamma, exploded: norm > 1 / gamma**2 or not exploded,
    },
    about=("seqlab.layers:RNN",),
)
def explode_necessary(seed: int, form: Law) -> Evidence:
    draw, time, n = stream(seed, "rnn.explode-necessary"), 40, 4
    at, above = [], []
    for phi, gamma in STEEPEST.items():
        at += [random_net(draw, with_norm(draw, n, level / gamma), phi, time) for level in (0.9, 0.99, 1.0)]
        at.append(resting(orthogonal(draw, n) / gamma, phi, time))
        above += [resting(1.3 / gamma * orthogonal(draw, n), phi, time)]
        above += [random_net(draw, with_norm(draw, n, 1.3 / gamma), phi, time)]
    norms = [one.norm() for one in at]
    return evidence(
        exactly("nets that refute it", breaks(form, at + above), 0),
        at_most("largest ‖∂h_T/∂h_0‖ at the threshold and below, T = 40", max(norms), 1 + 1e-9),
        between("at rest with orthogonal W", norms[-1], 1 - 1e-9, 1 + 1e-9),
        at_least("nets above the threshold that explode", sum(one.norm() > EXPLODED for one in above), 2),
    )


# --------------------------------------------------------------------------- the recurrent matrix at the start

Limit = Callable[[float], tuple[float, float]]  # n times the variance of an entry -> spectral radius, spectral norm


def drawn(kind: str, size: int, draw: torch.Generator) -> Tensor:
    """A recurrent matrix as torch.nn.init draws it, in float64."""
    w = torch.empty(size, size, dtype=torch.float64)
    if kind == "xavier":
        return torch.nn.init.xavier_normal_(w, generator=draw)
    return torch.nn.init.kaiming_normal_(w, generator=draw)


def layer_start(size: int, seed: int) -> Tensor:
    """The recurrent matrix of a new layer of seqlab."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return RNN(2, size).get_parameter("weight_hh_l0").detach().double()


def growth(w: Tensor, v: Tensor, steps: int = 50) -> float:
    """Per step: (‖W^50 v‖ / ‖v‖)^{1/50}"""
    after = torch.linalg.matrix_power(w, steps) @ v
    return exp(log(float(after.norm() / v.norm())) / steps)


@claim(
    "init.xavier-he",
    statement=r"Xavier or He initialisation stabilises the training of an RNN.",
    conditions=r"Both are made for one pass per layer. A square $W$ with independent entries of variance $s/n$ has a "
    r"spectral radius near $\sqrt{s}$ and a norm near $2\sqrt{s}$. With Xavier ($s = 1$) repeated products keep their "
    r"size, though single steps can double it; with He ($s = 2$) they grow by $\sqrt{2}$ per step.",
    note=r"An orthogonal $W$, with all singular values $1$, is the choice for a recurrence.",
    verdict="conditional",
    method="sampling",
    right=lambda s: (sqrt(s), 2 * sqrt(s)),
    wrong={
        "the norm is the radius": lambda s: (sqrt(s), sqrt(s)),
        "He as stable as Xavier": lambda s: (1.0, 2.0),
        "the variance for the deviation": lambda s: (s, 2 * s),
    },
    about=("seqlab.layers:RNN",),
)
def xavier_he(seed: int, form: Limit) -> Evidence:
    size, draw = 200, stream(seed, "init.xavier-he")
    findings, v = [], normal(draw, size)
    for kind, s in (("xavier", 1.0), ("he", 2.0)):
        matrices = [drawn(kind, size, draw) for _ in range(5)]
        radius, norm, rate = (
            mean_of(torch.tensor([measure(w) for w in matrices], dtype=torch.float64))
            for measure in (spectral_radius, spectral_norm, lambda w: growth(w, v))
        )
        findings += [
            meets(f"spectral radius, {kind}, n = {size}", radius, form(s)[0], slack=0.1),
            meets(f"spectral norm, {kind}", norm, form(s)[1], slack=0.1),
            meets(f"growth per step over 50 products, {kind}", rate, form(s)[0], slack=0.1),
        ]
    new = layer_start(size, seed)
    return evidence(
        *findings,
        between("the same, a new layer of seqlab", growth(new, v), 1 - 1e-5, 1 + 1e-5),
        at_most("its singular values − 1", (torch.linalg.svdvals(new) - 1).abs().max(), 1e-5),
    )
