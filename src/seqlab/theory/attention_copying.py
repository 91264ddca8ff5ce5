"""Claims about one query: when attention copies one value, and when it averages two."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy
import torch
from mpmath import iv
from torch import Tensor

from seqlab.diagnostics.attention_experiments import averaging_formula
from seqlab.ops.attention import attention_weights
from seqlab.theory.attention_scene import A, B, asked, scene
from seqlab.theory.instances import normal, stream, uniform
from seqlab.theory.intervals import proves
from seqlab.theory.jacobians import error, largest
from seqlab.theory.ledger import LEDGER, Evidence, at_least, at_most, between, evidence, exactly
from seqlab.theory.symbols import step, vanishes

SETTING = (
    r"A query $q$ looks at $n$ keys $k_i$ with values $v_i$: scores $s_i = k_i^\top q$, weights $\alpha_i = "
    r"e^{s_i} / \sum_j e^{s_j}$, output $c = \sum_i \alpha_i v_i$; $a$ and $b$ are two of the keys."
)
claim = LEDGER.of("attention", SETTING)

# --------------------------------------------------------------------------- where the weight goes


def gap_needed(n: Any, epsilon: Any) -> Any:
    return sympy.log((n - 1) * (1 - epsilon) / epsilon)


@claim(
    "attn.concentrates",
    statement=r"$\alpha$ puts almost all weight on $j$ if and only if $k_j^\top q \gg k_i^\top q$ for all $i \ne j$: "
    r"$\alpha_j \ge 1 - \epsilon$ exactly when $\sum_{i \ne j} e^{-(s_j - s_i)} \le \epsilon / (1 - \epsilon)$, "
    r"and gaps of $\ln((n-1)(1-\epsilon)/\epsilon)$ to all $n - 1$ others suffice.",
    note=r"How large a gap must be grows with the logarithm of the number of keys.",
    verdict="true",
    method="symbolic",
    right=gap_needed,
    wrong={
        "the number of keys is forgotten": lambda n, epsilon: sympy.log((1 - epsilon) / epsilon),
        "the key itself is counted": lambda n, epsilon: sympy.log(n * (1 - epsilon) / epsilon),
    },
    about=("seqlab.layers:MultiHeadAttention", "seqlab.ops.attention:attention_weights"),
)
def concentrates(seed: int, form: Callable[[Any, Any], Any]) -> Evidence:
    n, epsilon = sympy.symbols("n epsilon", positive=True)
    weight = 1 / (1 + (n - 1) * sympy.exp(-form(n, epsilon)))
    draw = stream(seed, "attn.concentrates")
    share = 10 ** float(uniform(draw, 1, low=-4, high=-1))
    gap, world = float(form(20, share)), scene(draw, 20)
    weights, _ = asked(gap * world.means[A], world.means, world.values)
    scores = normal(draw, 2000, 20, scale=5.0)
    first = attention_weights(scores)[:, 0]
    rest = (scores[:, 1:] - scores[:, :1]).exp().sum(-1)
    rest_of, bound = sympy.Symbol("R", positive=True), epsilon / (1 - epsilon)
    above = 1 / (1 + rest_of) - (1 - epsilon)
    return evidence(
        vanishes("weight at that gap to all others, less 1 − ε", weight - (1 - epsilon)),
        vanishes(
            "α − (1 − ε) less a positive multiple of ε/(1 − ε) − R, with α = 1/(1 + R)",
            above - (1 - epsilon) / (1 + rest_of) * (bound - rest_of),
        ),
        at_most("the same, measured with 20 keys", float(weights[0, A]) - (1 - share), 1e-12),
        at_most("α_j (1 + Σ e^{−gap}) − 1", error(first * (1 + rest), torch.ones(2000).double()), 1e-11),
        exactly(
            "of 2,000 draws, those in which only one side of the equivalence holds",
            ((first >= 1 - share) != (rest <= share / (1 - share))).sum(),
            0,
        ),
        steps=(
            r"\alpha_j = \frac{1}{1 + R}, \quad R = \sum_{i \ne j} e^{-(s_j - s_i)}",
            step(r"\alpha_j - (1 - \epsilon)", (1 - epsilon) / (1 + rest_of) * (bound - rest_of)),
            r"Gaps of at least $g$ to all $n - 1$ others: $R \le (n - 1) e^{-g}$",
            step(r"g", form(n, epsilon)),
            step(r"\frac{1}{1 + (n - 1) e^{-g}}", sympy.simplify(weight)),
        ),
    )


Keys = Callable[[Tensor], Tensor]  # (draws, n, d) -> (draws, n, d)


def equally_long(keys: Tensor) -> Tensor:
    return torch.nn.functional.normalize(keys, dim=-1)


@claim(
    "attn.concentrates-similarity",
    statement=r"The key with almost all the weight is the one most similar to $q$.",
    verdict="conditional",
    conditions=r"Only for keys of equal norm: a long key wins with a smaller cosine. And to be the most similar is not "
    r"enough: the gap of the scores decides, not the cosine, so a short $q$ spreads its weight.",
    method="identity",
    right=equally_long,
    wrong={"keys of any length": lambda keys: keys, "equal largest entries": lambda k: k / k.abs().amax(-1, True)},
    about=("seqlab.layers:MultiHeadAttention",),
)
def concentrates_similarity(seed: int, form: Keys) -> Evidence:
    draw = stream(seed, "attn.concentrates-similarity")
    q, keys = normal(draw, 500, 4), form(normal(draw, 500, 6, 4))
    weights, _ = asked(q, keys, keys)
    cosines = torch.cosine_similarity(q[:, None], keys, -1)
    plane = torch.eye(2, dtype=torch.float64)
    slanted = torch.stack([plane[0], 20 * (plane[0] + plane[1])])  # cosines 1 and 0.71
    long, _ = asked(plane[0], slanted, plane)
    short, _ = asked(0.1 * plane[0], plane, plane)
    return evidence(
        exactly(
            "of 500 draws, those in which the largest weight is not on the most similar key",
            (weights.argmax(-1) != cosines.argmax(-1)).sum(),
            0,
        ),
        at_least("two keys: weight of the long one with cosine 0.71, beside cosine 1", long[0, 1], 0.999),
        between("two keys: weight of the one with cosine 1, if ‖q‖ = 0.1", short[0, 0], 0.5, 0.6),
    )


# --------------------------------------------------------------------------- what is read


@claim(
    "attn.copy",
    statement=r"If $\alpha_j \approx 1$ then $c \approx v_j$: "
    r"$\lVert c - v_j \rVert \le (1 - \alpha_j) \max_i \lVert v_i - v_j \rVert$.",
    note=r"With two keys the two sides are equal.",
    verdict="true",
    method="identity",
    right=lambda rest, distances: rest * distances.amax(-1),
    wrong={
        "the mean distance": lambda rest, distances: rest * distances.sum(-1) / (distances.shape[-1] - 1),
        "the rest squared": lambda rest, distances: rest**2 * distances.amax(-1),
        "twice the rest": lambda rest, distances: 2 * rest * distances.amax(-1),
    },
    about=("seqlab.layers:MultiHeadAttention",),
)
def copy(seed: int, form: Callable[[Tensor, Tensor], Tensor]) -> Evidence:
    draw, ratios = stream(seed, "attn.copy"), []
    for keys in (2, 6):
        q, k, v = normal(draw, 400, 6), normal(draw, 400, keys, 6), normal(draw, 400, keys, 6)
        weights, c = asked(q, k, v)
        distances = (v - v[:, :1]).norm(dim=-1)
        ratios.append((c - v[:, 0]).norm(dim=-1) / form(weights[:, 1:].sum(-1), distances))
    return evidence(
        between("two keys: largest ‖c − v_j‖ over its bound", ratios[0].max(), 1 - 1e-6, 1 + 1e-6),
        between("two keys: smallest", ratios[0].min(), 1 - 1e-6, 1 + 1e-6),
        at_most("six keys: largest", ratios[1].max(), 1 + 1e-6),
        steps=(
            r"c - v_j = \sum_{i \ne j} \alpha_i (v_i - v_j)",
            r"\lVert c - v_j \rVert \le \sum_{i \ne j} \alpha_i \lVert v_i - v_j \rVert \le (1 - \alpha_j) "
            r"\max_i \lVert v_i - v_j \rVert",
        ),
    )


LONGEST_GAP = 60.0


@claim(
    "attn.concentrates-copies",
    statement=r"$k_j^\top q \gg k_i^\top q$ for all $i \ne j$ implies $\alpha_j \approx 1$ and $c \approx v_j$: where "
    r"all gaps are at least $g$, $1 - \alpha_j \le (n-1) e^{-g}$.",
    note=r"So $\lVert c - v_j \rVert \le (n-1) e^{-g} \max_i \lVert v_i - v_j \rVert$.",
    verdict="true",
    method="interval",
    right=lambda n, g: (n - 1) * math.exp(-g),
    wrong={
        "the others are counted once": lambda n, g: math.exp(-g),
        "falls with the square of the gap": lambda n, g: (n - 1) / g**2,
        "twice as fast": lambda n, g: (n - 1) * math.exp(-2 * g),
    },
    about=("seqlab.layers:MultiHeadAttention",),
)
def concentrates_copies(seed: int, form: Callable[[int, float], float]) -> Evidence:
    proofs = [
        proves(lambda x, y: 1 - 1 / (1 + iv.exp(-x) + iv.exp(-y)), [(g, LONGEST_GAP)] * 2, form(3, g), most=100)
        for g in (2.0, 5.0, 10.0)
    ]
    draw = stream(seed, "attn.concentrates-copies")
    world, ratios = scene(draw, 8), []
    distance = (world.values - world.values[A]).norm(dim=-1).max()
    for gap in (4.0, 8.0, 16.0):
        weights, c = asked(gap * world.means[A], world.means, world.values)
        rest = weights[0, torch.arange(8) != A].sum()
        ratios.append((float(rest) / form(8, gap), float((c[0] - world.values[A]).norm() / distance) / form(8, gap)))
    _, c = asked(40 * world.means[A], world.means, world.values)
    return evidence(
        at_least("boxes that prove it for 3 keys and all gaps from 2, 5 or 10 to 60; the fewest", min(proofs), 1),
        between("8 keys: (1 − α_j) over its bound at a gap of 16", ratios[-1][0], 0.999, 1),
        at_most("largest ‖c − v_j‖ over its bound", max(r for _, r in ratios), 1),
        at_most("‖c − v_j‖ at a gap of 40", (c[0] - world.values[A]).norm(), 1e-13),
        steps=(
            r"1 - \alpha_j = \frac{R}{1 + R} \le R, \quad R = \sum_{i \ne j} e^{-(s_j - s_i)}",
            r"R \le (n - 1) e^{-g}",
        ),
    )


# --------------------------------------------------------------------------- averaging two


@claim(
    "attn.average-two",
    statement=r"On orthonormal keys $q = \lambda (k_a + k_b)$ with $\lambda \gg 0$ gives $\alpha_a = \alpha_b = "
    r"\frac{1}{2}$, so $c = \frac{1}{2} (v_a + v_b)$.",
    verdict="conditional",
    conditions=r"Exactly $\alpha_a = \alpha_b = e^\lambda / (2 e^\lambda + n - 2)$, which is below $\frac{1}{2}$ by "
    r"$(n-2) / (2 (2 e^\lambda + n - 2))$ for $n > 2$ keys. That is near $\frac{1}{2}$ if $\lambda \gg \ln n$.",
    method="identity",
    right=averaging_formula,
    wrong={
        "always one half": lambda n, sharpness: 0.5,
        "n others": lambda n, sharpness: 1 / (2 + n * math.exp(-sharpness)),
        "the second is forgotten": lambda n, sharpness: 1 / (1 + (n - 1) * math.exp(-sharpness)),
    },
    about=("seqlab.layers:MultiHeadAttention", "seqlab.diagnostics.attention_experiments:averaging_formula"),
)
def average_two(seed: int, form: Callable[[int, float], float]) -> Evidence:
    draw = stream(seed, "attn.average-two")
    off, short = 0.0, 0.0
    for n in (3, 10, 30):
        world, sharpness = scene(draw, n), float(uniform(draw, 1, low=0.5, high=6.0))
        weights, _ = asked(sharpness * world.both, world.means, world.values)
        off = max(off, largest(weights[0, [A, B]] - form(n, sharpness)))
        missing = (n - 2) / (2 * (2 * math.exp(sharpness) + n - 2))
        short = max(short, abs(0.5 - float(weights[0, A]) - missing))
    _, c = asked(40 * world.both, world.means, world.values)
    small, _ = asked(world.both, world.means, world.values)
    return evidence(
        at_most("largest difference of the two weights from what is said", off, 1e-12),
        at_most("largest difference of what is missing to ½ from its formula", short, 1e-12),
        at_most("30 keys: ‖c − ½(v_a + v_b)‖ at λ = 40", (c[0] - world.middle).norm(), 1e-12),
        at_most("30 keys: weight of k_a at λ = 1", small[0, A], 0.1),
    )


def share_of_two(sharpness: Any, keys: Any) -> Any:
    return sympy.exp(sharpness) / (keys - 2 + 2 * sympy.exp(sharpness))


def softmax_of_two(sharpness: Any, keys: int) -> Any:
    """The first weight of q = C(e_1 + e_2) on the keys e_1, …, e_m."""
    eye = sympy.eye(keys)
    q = sharpness * (eye.row(0) + eye.row(1))
    scores = [(eye.row(i) * q.T)[0] for i in range(keys)]
    return sympy.exp(scores[0]) / sum(sympy.exp(s) for s in scores)


@claim(
    "attn.average-two-limit",
    statement=r"With $m$ orthonormal keys and $q = C (k_a + k_b)$, "
    r"$\alpha_a = \alpha_b = e^C / (m - 2 + 2 e^C) \to \frac{1}{2}$ as $C \to \infty$.",
    verdict="true",
    method="symbolic",
    right=share_of_two,
    wrong={
        "only one of two is counted": lambda c, m: sympy.exp(c) / (m - 1 + sympy.exp(c)),
        "m others": lambda c, m: sympy.exp(c) / (m + 2 * sympy.exp(c)),
    },
    about=("seqlab.diagnostics.attention_experiments:averaging_formula",),
)
def average_two_limit(seed: int, form: Callable[[Any, Any], Any]) -> Evidence:
    sharpness, m = sympy.Symbol("C", positive=True), sympy.Symbol("m", positive=True)
    differences = [softmax_of_two(sharpness, keys) - form(sharpness, keys) for keys in (2, 3, 5, 8)]
    limit = sympy.limit(form(sharpness, m), sharpness, sympy.oo)
    at = float(uniform(stream(seed, "attn.average-two-limit"), 1, low=1.0, high=10.0))
    computed = [averaging_formula(keys, at) - float(form(at, keys)) for keys in (2, 5, 20)]
    return evidence(
        vanishes("weights of 2, 3, 5 and 8 keys, less the formula", sympy.Matrix(differences)),
        vanishes("the limit less ½", limit - sympy.Rational(1, 2)),
        at_most("largest difference from seqlab's formula", max(map(abs, computed)), 1e-12),
        steps=(
            step(r"\alpha_a", form(sharpness, m)),
            step(r"\frac{1}{2} - \alpha_a", sympy.factor(sympy.Rational(1, 2) - form(sharpness, m))),
            step(r"\lim_{C \to \infty} \alpha_a", limit),
        ),
    )
