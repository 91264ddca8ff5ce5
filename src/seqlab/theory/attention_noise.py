"""Claims about one head that averages two values while its keys are noisy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy
import torch
from scipy.special import ndtr
from torch import Tensor

from seqlab.diagnostics.attention_experiments import even_variance, failing_formula
from seqlab.theory.attention_scene import LENGTH_VARIANCE, A, B, Scene, asked, noisy, scene, spread_of, stretched
from seqlab.theory.instances import stream
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, at_least, at_most, between, evidence
from seqlab.theory.sampling import mean_of, meets, share_of, variance_of
from seqlab.theory.symbols import step, vanishes

SETTING = (
    r"A query $q$ looks at $n$ keys $k_i$ with values $v_i$: scores $s_i = k_i^\top q$, weights $\alpha_i = "
    r"e^{s_i} / \sum_j e^{s_j}$, output $c = \sum_i \alpha_i v_i$; $a$ and $b$ are two of the keys, and each "
    r"$k_i$ lies near its mean $\mu_i$; the means are orthonormal. $\alpha$ without an index is a variance, "
    r"$\sigma$ the logistic function."
)
claim = LEDGER.of("attention", SETTING)

KEYS, DRAWS = 6, 4000
Law = Callable[[float, float], float]  # of λ and α

# --------------------------------------------------------------------------- noise in every direction


def shares(draw: torch.Generator, world: Scene, sharpness: float, noise: float) -> tuple[Tensor, Tensor]:
    """Weights and output of q = λ(μ_a + μ_b) on noisy keys.    (draws, n), (draws, d)"""
    return asked(sharpness * world.both, noisy(draw, world.means, noise, DRAWS), world.values)


@claim(
    "attn.small-noise",
    statement=r"With keys $k_i \sim N(\mu_i, \alpha I)$ around orthonormal means, $q = \lambda (\mu_a + \mu_b)$ gives "
    r"$c \approx \frac{1}{2} (v_a + v_b)$.",
    verdict="conditional",
    conditions=r"$\lambda \gg \ln n$ and $\lambda^2 \alpha \ll 1$. Each score has a standard deviation of "
    r"$\lambda \sqrt{2 \alpha}$, and between $a$ and $b$ the weight of $a$ is $\sigma(\lambda z)$ with "
    r"$z \sim N(0, 4 \alpha)$: for fixed $\alpha > 0$ the average is lost as $\lambda \to \infty$.",
    method="sampling",
    right=lambda sharpness, noise: 4 * noise * sharpness**2,
    wrong={
        "only one of the two keys is noisy": lambda sharpness, noise: 2 * noise * sharpness**2,
        "the length of the query does not matter": lambda sharpness, noise: 4 * noise,
        "the difference has the spread of one score": lambda sharpness, noise: 2 * noise * sharpness,
    },
    about=("seqlab.layers:MultiHeadAttention", "seqlab.diagnostics.attention_experiments:even_variance"),
)
def small_noise(seed: int, form: Law) -> Evidence:
    draw = stream(seed, "attn.small-noise")
    world = scene(draw, KEYS)
    weights, _ = shares(draw, world, 10.0, 1e-3)
    faint, _ = shares(draw, world, 2.0, 1e-3)
    sharp, _ = shares(draw, world, 1000.0, 1e-3)
    _, c = shares(draw, world, 20.0, 1e-9)
    predicted = even_variance(1.0, form(10.0, 1e-3))
    return evidence(
        meets("λ = 10, α = 0.001: variance of ln(α_a/α_b)", variance_of(_odds(weights)), form(10.0, 1e-3)),
        meets("the same: variance of the weight of k_a", variance_of(weights[:, A]), predicted, 1e-3 * predicted),
        at_most("λ = 2, α = 0.001: mean weight of k_a", faint[:, A].mean(), 0.42),
        at_least("λ = 1000, α = 0.001: standard deviation of the weight of k_a", sharp[:, A].std(), 0.45),
        at_most("λ = 20, α = 1e-9: largest ‖c − ½(v_a + v_b)‖", (c - world.middle).norm(dim=-1).max(), 0.01),
    )


def _odds(weights: Tensor) -> Tensor:
    """ln(α_a/α_b) = s_a − s_b"""
    return weights[:, A].log() - weights[:, B].log()


@claim(
    "attn.small-noise-relative",
    statement=r"With $\Sigma_i = \alpha I$ and vanishingly small $\alpha$, $q = C (\mu_a + \mu_b)$ with $C \gg 0$ "
    r"averages $v_a$ and $v_b$.",
    verdict="conditional",
    conditions=r"Small is relative to $C$: $C^2 \alpha \ll 1$. The weight of $a$ has the variance of "
    r"$\sigma(N(0, 4 C^2 \alpha))$, which depends on $C^2 \alpha$ alone.",
    method="sampling",
    right=lambda sharpness, noise: even_variance(sharpness, 4 * noise),
    wrong={
        "by the noise alone": lambda sharpness, noise: even_variance(1.0, 4 * noise),
        "by C α": lambda sharpness, noise: even_variance(math.sqrt(sharpness), 4 * noise),
    },
    about=("seqlab.layers:MultiHeadAttention", "seqlab.diagnostics.attention_experiments:even_variance"),
)
def small_noise_relative(seed: int, form: Law) -> Evidence:
    draw = stream(seed, "attn.small-noise-relative")
    world, findings = scene(draw, KEYS), []
    for sharpness, noise in ((20.0, 1e-2), (20.0, 1e-4), (40.0, 2.5e-5), (20.0, 1e-8)):
        weights, _ = shares(draw, world, sharpness, noise)
        what = f"C = {sharpness:g}, α = {noise:g}: variance of the weight of k_a"
        findings.append(meets(what, variance_of(weights[:, A]), form(sharpness, noise)))
    return evidence(*findings)


# --------------------------------------------------------------------------- one key of random length


@claim(
    "attn.magnitude-noise",
    statement=r"If $k_a = (1 + \gamma) \mu_a$ with $\gamma \sim N(0, \frac{1}{2})$, $q = \lambda (\mu_a + \mu_b)$ "
    r"gives $\alpha_a = \sigma(\lambda \gamma)$: $c$ swings between $v_a$ and $v_b$, and varies much more than "
    r"under small noise.",
    note=r"$\frac{1}{2}$ is the variance; the covariance is $\alpha I + \frac{1}{2} \mu_a \mu_a^\top$. "
    r"$E[\alpha_a] = \frac{1}{2}$; as $\lambda \to \infty$ its variance tends to $\frac{1}{4}$ and the total variance "
    r"of $c$ to $\frac{1}{4} \lVert v_a - v_b \rVert^2$.",
    verdict="true",
    method="sampling",
    right=LENGTH_VARIANCE,
    wrong={
        "½ read as the standard deviation": LENGTH_VARIANCE**2,
        "½ added in every direction": 2 * LENGTH_VARIANCE,
        "the length does not matter": 0.0,
    },
    about=("seqlab.layers:MultiHeadAttention", "seqlab.diagnostics.attention_experiments:even_variance"),
)
def magnitude_noise(seed: int, form: float) -> Evidence:
    draw = stream(seed, "attn.magnitude-noise")
    world = scene(draw, KEYS)
    gamma, keys = stretched(draw, world.means, DRAWS)
    weights, _ = asked(20 * world.both, keys, world.values)
    _, c = asked(1000 * world.both, keys, world.values)
    quiet, _ = shares(draw, world, 20.0, 1e-6)
    limit = float((world.values[A] - world.values[B]).square().sum()) / 4
    spread = variance_of(weights[:, A])
    return evidence(
        meets("λ = 20: variance of the weight of k_a", spread, even_variance(20.0, form)),
        meets("variance of ln(α_a/α_b)/λ", variance_of(_odds(weights) / 20), form),
        meets("mean weight of k_a", mean_of(weights[:, A]), 0.5),
        at_most("largest |α_a − σ(λγ)|", (weights[:, A] - torch.sigmoid(20 * gamma)).abs().max(), 1e-7),
        at_least(
            "that variance over the one under small noise, α = 1e-6", weights[:, A].var() / quiet[:, A].var(), 100
        ),
        meets("λ = 1000: total variance of c over ¼‖v_a − v_b‖²", mean_of(spread_of(c) / limit), 1.0, 0.01),
    )


def balanced(sharpness: float, variance: float = LENGTH_VARIANCE) -> float:
    """P(0.1 < σ(λγ) < 0.9) = P(|γ| < ln 9/λ)"""
    return float(2 * ndtr(math.log(9) / (sharpness * math.sqrt(variance))) - 1)


@claim(
    "attn.magnitude-balanced",
    statement=r"If the length of $k_a$ varies, $c$ is a balanced average of $v_a$ and $v_b$ when $k_a$ is near its "
    r"mean.",
    verdict="conditional",
    conditions=r"Near means $|\gamma| = O(1/\lambda)$: the probability that each of the two has more than a tenth, "
    r"$P(|\gamma| < \ln 9 / \lambda)$, tends to 0 as $\lambda$ grows. For large $\lambda$ $c$ is $v_a$ or $v_b$, each "
    r"with probability $\frac{1}{2}$, and rarely between.",
    method="sampling",
    right=balanced,
    wrong={
        "balanced whatever λ is": lambda sharpness: balanced(5.0),
        "½ read as the standard deviation": lambda sharpness: balanced(sharpness, 0.25),
        "always": lambda sharpness: 1.0,
    },
    about=("seqlab.layers:MultiHeadAttention",),
)
def magnitude_balanced(seed: int, form: Callable[[float], float]) -> Evidence:
    draw, findings = stream(seed, "attn.magnitude-balanced"), []
    world = scene(draw, KEYS)
    _, keys = stretched(draw, world.means, 2 * DRAWS)
    for sharpness in (5.0, 20.0, 100.0):
        weights, c = asked(sharpness * world.both, keys, world.values)
        even = _odds(weights).abs() < math.log(9)
        what = f"λ = {sharpness:g}: probability that both of the two have more than a tenth"
        findings.append(meets(what, share_of(even), form(sharpness)))
    first = (c - world.values[A]).norm(dim=-1) < (c - world.values[B]).norm(dim=-1)
    return evidence(*findings, meets("λ = 100: probability that c is nearer to v_a", share_of(first), 0.5))


def below(x: Any) -> Any:
    """P(γ ≤ x) of γ ~ N(0, ½)"""
    return (1 + sympy.erf(x)) / 2


@claim(
    "attn.key-range",
    statement=r"If $k_a \sim N(\mu_a, \alpha I + \frac{1}{2} \mu_a \mu_a^\top)$ then "
    r"$k_a \in [0.5 \mu_a, 1.5 \mu_a]$.",
    correction=r"$\gamma$ is normal with variance $\frac{1}{2}$: that interval holds "
    r"$\mathrm{erf}(\frac{1}{2}) = 52\%$ of the draws, and $\Phi(-\sqrt 2) = 7.9\%$ even point the other way.",
    verdict="false",
    method="symbolic",
    right=sympy.erf(sympy.Rational(1, 2)),
    wrong={AS_STATED: sympy.Integer(1), "½ read as the standard deviation": sympy.erf(1 / sympy.sqrt(2))},
    about=("seqlab.diagnostics.attention_experiments:failing_formula", "seqlab.layers:MultiHeadAttention"),
)
def key_range(seed: int, form: Any) -> Evidence:
    x, half = sympy.Symbol("x", real=True), sympy.Rational(1, 2)
    density = sympy.exp(-(x**2)) / sympy.sqrt(sympy.pi)
    inside, against = below(half) - below(-half), below(-1)
    draw = stream(seed, "attn.key-range")
    world = scene(draw, KEYS)
    gamma, keys = stretched(draw, world.means, DRAWS)
    weights, _ = asked(world.means[A], keys, world.values)
    lengths = weights[:, A].log() - weights[:, B].log()  # what a query sees of 1 + γ
    seen = share_of((lengths >= 0.5) & (lengths <= 1.5))
    lost = failing_formula(1e9, LENGTH_VARIANCE, 0.0, KEYS)
    shortest = float(1 + gamma.min())
    return evidence(
        vanishes("P(½ ≤ 1 + γ ≤ 1½) less what is said", inside - form),
        vanishes("the slope of P(γ ≤ x) less its density", sympy.diff(below(x), x) - density),
        meets("share of 4,000 keys in that range, as a query sees them", seen, float(form)),
        at_most("P(1 + γ ≤ 0) less seqlab's probability that a sharp head loses the key", float(against) - lost, 1e-6),
        steps=(
            step(r"\frac{d}{dx} P(\gamma \le x)", density),
            step(r"P(\gamma \le x)", below(x)),
            step(r"P(|\gamma| \le \frac{1}{2})", sympy.simplify(inside)),
            step(r"P(1 + \gamma \le 0)", against),
        ),
        counterexample=rf"The shortest of {DRAWS:,} keys is ${shortest:.2f} \mu_a$.",
    )


TwoTerms = Callable[[float, float], float]  # of the length γ and of C


@claim(
    "attn.alpha-two-term",
    statement=r"With $k_a = \gamma \mu_a$, $\gamma \sim N(1, \frac{1}{2})$ and $q = C (\mu_a + \mu_b)$, "
    r"$\alpha_a = e^{\gamma C} / (e^C + e^{\gamma C})$: near 0 at $\gamma = 0.5$ and near 1 at $\gamma = 1.5$.",
    verdict="conditional",
    conditions=r"The $n - 2$ other keys are left out, which changes $\alpha_a$ by less than $(n-2) e^{-C}$. Near 0 and "
    r"near 1 need $C/2 \gg 1$.",
    method="identity",
    right=lambda length, sharpness: 1 / (1 + math.exp(sharpness * (1 - length))),
    wrong={
        "γ read as the deviation from 1": lambda length, sharpness: 1 / (1 + math.exp(-sharpness * length)),
        "a and b swapped": lambda length, sharpness: 1 / (1 + math.exp(sharpness * (length - 1))),
    },
    about=("seqlab.layers:MultiHeadAttention",),
)
def alpha_two_term(seed: int, form: TwoTerms) -> Evidence:
    draw = stream(seed, "attn.alpha-two-term")
    world, excess, far = scene(draw, 10), 0.0, 0.0
    found = {}
    for sharpness in (2.0, 10.0, 30.0):
        for length in (-0.5, 0.5, 1.0, 1.5):
            keys = world.means.clone()
            keys[A] *= length
            found[length, sharpness] = float(asked(sharpness * world.both, keys, world.values)[0][0, A])
            off = abs(found[length, sharpness] - form(length, sharpness))
            excess = max(excess, off / (8 * math.exp(-sharpness)))
            far = max(far, off if sharpness == 30 else 0.0)
    return evidence(
        at_most("largest |difference| from the formula over (n − 2) e^{−C}", excess, 1.0),
        at_most("C = 30: largest difference", far, 1e-11),
        at_most("C = 30, γ = 0.5: weight of k_a", found[0.5, 30.0], 1e-6),
        at_least("C = 30, γ = 1.5: weight of k_a", found[1.5, 30.0], 1 - 1e-6),
        between("C = 2, γ = 0.5: weight of k_a, which is not near 0", found[0.5, 2.0], 0.1, 0.3),
    )
