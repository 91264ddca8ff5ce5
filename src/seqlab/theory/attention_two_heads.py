"""Claims about two heads that ask for a value each, and average what they find, while one key's length is random."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from scipy.special import expit, ndtr
from torch import Tensor

from seqlab.diagnostics.attention_experiments import (
    copying_formula,
    even_variance,
    failing_formula,
    one_head_formula,
    two_heads_formula,
)
from seqlab.theory.attention_scene import LENGTH_VARIANCE, A, B, asked, asked_by_heads, scene, spread_of, stretched
from seqlab.theory.instances import normal, stream
from seqlab.theory.jacobians import largest
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, at_least, at_most, between, evidence
from seqlab.theory.sampling import Sampled, mean_of, meets, share_of, variance_of

SETTING = (
    r"Two heads with the queries $q_1$ and $q_2$ look at the same $n$ keys $k_i$, which lie near orthonormal "
    r"means $\mu_i$, with values $v_i$. Head $j$ gives $c_j$, the mean of the values with the weights "
    r"$\mathrm{softmax}(k_i^\top q_j)$, and $c = \frac{1}{2}(c_1 + c_2)$; $a$ and $b$ are the two keys that are "
    r"asked for."
)
claim = LEDGER.of("attention", SETTING)

KEYS, DRAWS = 8, 4000
FAILING = float(ndtr(-1 / math.sqrt(LENGTH_VARIANCE)))  # P(1 + γ ≤ 0) = Φ(−√2)

# --------------------------------------------------------------------------- which queries

Queries = Callable[[Tensor, int, int], tuple[Tensor, Tensor]]  # (means, a, b) -> the directions of two queries


@claim(
    "mha2.queries",
    statement=r"Two heads with $q_1 = \lambda \mu_a$ and $q_2 = \lambda \mu_b$, averaged, give "
    r"$c = \frac{1}{2} (c_1 + c_2) = \frac{1}{2} (v_a + v_b)$ for $\lambda \gg \ln n$.",
    note=r"The subscripts are those of the two keys that are asked for. $q_1 = \lambda \mu_1$, $q_2 = \lambda \mu_2$ "
    r"is right only if they are the first two.",
    verdict="true",
    method="identity",
    right=lambda means, a, b: (means[a], means[b]),
    wrong={
        "the subscripts 1 and 2": lambda means, a, b: (means[0], means[1]),
        "both heads ask for one": lambda means, a, b: (means[a], means[a]),
        "one query without its scale": lambda means, a, b: (means[a], means[b] / 40),
    },
    about=("seqlab.layers:MultiHeadAttention", "seqlab.diagnostics.attention_experiments:asking"),
)
def queries(seed: int, form: Queries) -> Evidence:
    draw = stream(seed, "mha2.queries")
    world = scene(draw, KEYS)
    a, b = (2 + torch.randperm(KEYS - 2, generator=draw)[:2]).tolist()
    wanted = (world.values[a] + world.values[b]) / 2
    directions = form(world.means, a, b)
    _, sharp = asked_by_heads([40 * q for q in directions], world.means, world.values)
    _, faint = asked_by_heads(list(directions), world.means, world.values)
    return evidence(
        at_most(f"a = {a + 1}, b = {b + 1}, λ = 40: ‖c − ½(v_a + v_b)‖", (sharp[0] - wanted).norm(), 1e-12),
        at_least("the same at λ = 1", (faint[0] - wanted).norm(), 0.1),
    )


@claim(
    "mha2.unscaled-queries",
    statement=r"$q_1 = \mu_a$ and $q_2 = \mu_b$ give $c_1 = v_a$ and $c_2 = v_b$.",
    correction=r"The scores of the other keys are 0, not $-\infty$: $\alpha_a = e / (e + n - 1)$. A query must be "
    r"long: $\lambda \mu_a$ gives the share $p$ at $\lambda = \ln(n-1) + \ln \frac{p}{1-p}$.",
    verdict="false",
    method="identity",
    right=lambda keys: copying_formula(keys, 0.999),
    wrong={AS_STATED: lambda keys: 1.0, "as long as the keys are wide": lambda keys: math.sqrt(keys)},
    about=("seqlab.layers:MultiHeadAttention", "seqlab.diagnostics.attention_experiments:copying_formula"),
)
def unscaled_queries(seed: int, form: Callable[[int], float]) -> Evidence:
    draw, least, furthest, off = stream(seed, "mha2.unscaled-queries"), 1.0, 0.0, 0.0
    for keys in (3, 10, 20):
        world = scene(draw, keys)
        pair = [form(keys) * world.means[n] for n in (A, B)]
        weights, _ = asked_by_heads(pair, world.means, world.values)
        least = min(least, float(weights[0, 0, A]), float(weights[0, 1, B]))
        _, c = asked(pair[0], world.means, world.values)
        reach = (world.values - world.values[A]).norm(dim=-1).max()
        furthest = max(furthest, float((c[0] - world.values[A]).norm() / reach))
        plain, _ = asked(world.means[A], world.means, world.values)
        off = max(off, abs(float(plain[0, A]) - math.e / (math.e + keys - 1)))
    two, _ = asked(torch.eye(2, dtype=torch.float64)[0], torch.eye(2, dtype=torch.float64), torch.eye(2).double())
    return evidence(
        at_least("smallest weight that a head gives to its key", least, 0.999 - 1e-9),
        at_most("largest ‖c_1 − v_a‖ over the distance to the farthest value", furthest, 0.001 + 1e-9),
        at_most("λ = 1: the weight less e/(e + n − 1)", off, 1e-12),
        counterexample=rf"Two keys of length 1 at right angles: $q = \mu_a$ gives $\alpha_a = {float(two[0, 0]):.3f}$.",
    )


# --------------------------------------------------------------------------- one key of random length


@claim(
    "mha2.robust",
    statement=r"If $k_a = (1 + \gamma) \mu_a$ with $\gamma \sim N(0, \frac{1}{2})$, two heads still give $c_1 = v_a$ "
    r"and $c_2 = v_b$.",
    verdict="conditional",
    conditions=r"$c_2$ always, for $\lambda \gg \ln n$. $c_1$ needs $\lambda (1 + \gamma) \gg \ln n$. As "
    r"$\lambda \to \infty$ the first head loses $k_a$ with the probability "
    r"$P(1 + \gamma \le 0) = \Phi(-\sqrt 2) = 0.0786$, "
    r"and then $c_1$ is near the mean of the other values.",
    method="sampling",
    right=lambda sharpness, keys: failing_formula(sharpness, LENGTH_VARIANCE, 0.0, keys),
    wrong={
        "it never fails": lambda sharpness, keys: 0.0,
        "½ read as the standard deviation": lambda s, keys: failing_formula(s, LENGTH_VARIANCE**2, 0.0, keys),
        "a tie between two heads": lambda sharpness, keys: 0.5,
    },
    about=("seqlab.layers:MultiHeadAttention", "seqlab.diagnostics.attention_experiments:failing_formula"),
)
def robust(seed: int, form: Callable[[float, int], float]) -> Evidence:
    draw = stream(seed, "mha2.robust")
    world = scene(draw, KEYS)
    gamma, keys = stretched(draw, world.means, DRAWS)
    weights, _ = asked_by_heads([40 * world.means[A], 40 * world.means[B]], keys, world.values)
    _, c = asked(40 * world.means[A], keys, world.values)
    first, second = weights[:, 0, A], weights[:, 1, B]
    others = world.values[torch.arange(KEYS) != A].mean(0)
    return evidence(
        meets("λ = 40: probability that the first head loses its key", share_of(first < 0.5), form(40.0, KEYS)),
        at_most("that probability at λ = 1e9, less Φ(−√2)", form(1e9, KEYS) - FAILING, 1e-6),
        at_least("smallest weight of k_a where γ > −0.5", first[gamma > -0.5].min(), 1 - 1e-6),
        at_most("largest weight of k_a where γ < −1.4", first[gamma < -1.4].max(), 1e-6),
        at_most("there, ‖c_1 − mean of the other values‖", (c - others)[gamma < -1.4].norm(dim=-1).max(), 1e-4),
        at_least("smallest weight of k_b in the second head", second.min(), 1 - 1e-9),
    )


def correlation(x: Tensor, y: Tensor) -> Sampled:
    """Of two samples: the mean product of what is standardised."""
    x, y = ((u - u.mean()) / u.std() for u in (x, y))
    return mean_of(x * y)


@claim(
    "mha2.independent",
    statement=r"$c_1$ and $c_2$ vary independently, because the queries differ.",
    verdict="conditional",
    conditions=r"They are independent here because all scores of the two heads are jointly normal with covariances "
    r"$q_1^\top \Sigma_i q_2 = \lambda^2 \mu_a^\top \Sigma_i \mu_b = 0$. Queries that merely differ do not give that: "
    r"$q_2 = \lambda (\mu_a + \mu_b)$ does not.",
    method="sampling",
    right=lambda means: means[B],
    wrong={
        "any other query": lambda means: (means[A] + means[B]) / math.sqrt(2),
        "the opposite query": lambda means: -means[A],
    },
    about=("seqlab.layers:MultiHeadAttention", "seqlab.diagnostics.attention_experiments:asking"),
)
def independent(seed: int, form: Callable[[Tensor], Tensor]) -> Evidence:
    draw, noise, sharpness = stream(seed, "mha2.independent"), 0.02, 3.0
    world = scene(draw, KEYS)
    _, keys = stretched(draw, world.means, DRAWS)
    keys = keys + math.sqrt(noise) * normal(draw, *keys.shape)
    pair = world.means[A], form(world.means)
    weights, _ = asked_by_heads([sharpness * q for q in pair], keys, world.values)
    first, second = weights[:, 0, A], weights[:, 1, B]
    scores = [_covariance(world.means, n, noise) for n in range(KEYS)]
    return evidence(
        meets("correlation of the two heads' weights on their keys", correlation(first, second), 0.0),
        meets("correlation of their squared deviations", correlation(*(_away(w) for w in (first, second))), 0.0),
        at_most(
            "largest covariance of scores of the two heads",
            max(abs(float(pair[0] @ s @ pair[1])) for s in scores),
            1e-12,
        ),
    )


def _away(x: Tensor) -> Tensor:
    away: Tensor = (x - x.mean()) ** 2
    return away


def _covariance(means: Tensor, key: int, noise: float) -> Tensor:
    """Σ_i = αI, and ½μ_aμ_aᵀ more for the first key."""
    plain = noise * torch.eye(len(means), dtype=torch.float64)
    return plain + LENGTH_VARIANCE * torch.outer(means[A], means[A]) if key == A else plain


def head_variance(sharpness: float, keys: int) -> float:
    """Var w, w = σ(λ(1 + γ) − ln(n − 1)), γ ~ N(0, ½), by Gauss-Hermite quadrature"""
    x, density = np.polynomial.hermite_e.hermegauss(80)
    density = density / density.sum()
    share = expit(sharpness * (1 + math.sqrt(LENGTH_VARIANCE) * x) - math.log(keys - 1))
    return float(density @ (share - density @ share) ** 2)


@claim(
    "mha2.c1-fluctuates",
    statement=r"Under noise in the length of $k_a$, $c_1$ fluctuates and $c_2$ stays at $v_b$.",
    verdict="conditional",
    conditions=r"$c_1$ moves with $\alpha_a = \sigma(\lambda (1 + \gamma) - \ln(n-1))$, so visibly for queries of "
    r"length 1 or a few. For large $\lambda$, $c_1 \approx v_a$ whenever $1 + \gamma > 0$: it is stable too. $c_2$ "
    r"does not move at all, but is near $v_b$ only if $\lambda \gg \ln n$.",
    method="sampling",
    right=head_variance,
    wrong={
        "c_1 stays": lambda sharpness, keys: 0.0,
        "a tie of two keys": lambda sharpness, keys: even_variance(sharpness, LENGTH_VARIANCE),
        "without the other keys": lambda sharpness, keys: head_variance(sharpness, 2),
    },
    about=("seqlab.layers:MultiHeadAttention", "seqlab.diagnostics.attention_experiments:asking"),
)
def first_fluctuates(seed: int, form: Callable[[float, int], float]) -> Evidence:
    draw = stream(seed, "mha2.c1-fluctuates")
    world = scene(draw, KEYS)
    gamma, keys = stretched(draw, world.means, DRAWS)
    found = {}
    for sharpness in (1.0, 4.0, 200.0):
        found[sharpness], _ = asked_by_heads([sharpness * world.means[n] for n in (A, B)], keys, world.values)
    moved = max(largest(weights[:, 1] - weights[0, 1]) for weights in found.values())
    sharp = found[200.0][:, 0, A][gamma > -0.9]
    return evidence(
        meets("λ = 1: variance of the first head's weight on k_a", variance_of(found[1.0][:, 0, A]), form(1.0, KEYS)),
        meets("λ = 4: the same", variance_of(found[4.0][:, 0, A]), form(4.0, KEYS)),
        at_most("λ = 200, γ > −0.9: its standard deviation", sharp.std(), 1e-7),
        at_most("largest change of any weight of the second head", moved, 1e-12),
        between("λ = 1: the second head's weight on k_b", found[1.0][0, 1, B], 0.25, 0.3),
    )


Variances = Callable[[float, Tensor], tuple[float, float]]  # λ and values -> of one head, of two


def by_formula(sharpness: float, values: Tensor) -> tuple[float, float]:
    return (
        one_head_formula(sharpness, LENGTH_VARIANCE, 0.0, values),
        two_heads_formula(sharpness, LENGTH_VARIANCE, 0.0, values),
    )


def halved(sharpness: float, values: Tensor) -> tuple[float, float]:
    """As if the two heads were two independent copies of the one."""
    one, _ = by_formula(sharpness, values)
    return one, one / 2


def not_averaged(sharpness: float, values: Tensor) -> tuple[float, float]:
    one, two = by_formula(sharpness, values)
    return one, 4 * two


@claim(
    "mha2.variance-reduction",
    statement=r"If $k_a$ has a random length, the mean of two heads with $\lambda \mu_a$ and $\lambda \mu_b$ varies "
    r"less than one head with $\lambda (\mu_a + \mu_b)$.",
    note=r"At large $\lambda$ the total variance is $\frac{1}{4} \lVert v_a - v_b \rVert^2$ for one head and "
    r"$\frac{1}{4} p (1-p) \lVert v_a - \bar v \rVert^2$ for two, with $p = \Phi(-\sqrt 2)$ and $\bar v$ the mean of "
    r"the values beside $v_a$. Most of the gain is not the averaging: no head stands before a tie of $a$ and $b$.",
    verdict="true",
    method="sampling",
    right=by_formula,
    wrong={"halved by averaging": halved, "the mean of two is not halved": not_averaged},
    about=(
        "seqlab.layers:MultiHeadAttention",
        "seqlab.diagnostics.attention_experiments:one_head_formula",
        "seqlab.diagnostics.attention_experiments:two_heads_formula",
    ),
)
def variance_reduction(seed: int, form: Variances) -> Evidence:
    draw, sharpness = stream(seed, "mha2.variance-reduction"), 50.0
    world = scene(draw, KEYS)
    _, keys = stretched(draw, world.means, DRAWS)
    _, c = asked(sharpness * world.both, keys, world.values)
    _, mean = asked_by_heads([sharpness * world.means[n] for n in (A, B)], keys, world.values)
    one, two = spread_of(c), spread_of(mean)
    said = form(sharpness, world.values)
    v, other = world.values[A], world.values[torch.arange(KEYS) != A].mean(0)
    limits = (v - world.values[B]).square().sum() / 4, FAILING * (1 - FAILING) * (v - other).square().sum() / 4
    ratios = [far / float(limit) for far, limit in zip(form(2000.0, world.values), limits, strict=True)]
    return evidence(
        at_least("λ = 50: total variance of one head over that of two", one.mean() / two.mean(), 2.0),
        meets("total variance of one head", mean_of(one), said[0]),
        meets("total variance of two heads", mean_of(two), said[1]),
        between("λ = 2000: one head's over ¼‖v_a − v_b‖²", ratios[0], 0.99, 1.01),
        between("λ = 2000: two heads' over ¼p(1 − p)‖v_a − v̄‖²", ratios[1], 0.99, 1.01),
    )
