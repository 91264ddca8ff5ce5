"""Claims about separable attention: softmax_row(Q) (softmax_col(K)ᵀ V)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from torch import Tensor

from seqlab.diagnostics.cost import cost
from seqlab.layers import MultiHeadAttention
from seqlab.ops import linear_attention as linear
from seqlab.ops.attention import attention_weights, scaled_scores
from seqlab.ops.reference.attention import separable_weights, visible_keys
from seqlab.theory.counting import most_held, multiply_adds, total
from seqlab.theory.instances import normal, stream
from seqlab.theory.jacobians import error, gradient, jacobian, largest
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, at_least, at_most, between, evidence, exactly

SETTING = (
    r"The rows of $Q$, $K$ and $V$, each $n \times d$, are the queries, keys and values of $n$ positions; "
    r"separable attention is $\mathrm{softmax}_{row}(Q) (\mathrm{softmax}_{col}(K)^\top V)$."
)
claim = LEDGER.of("linear_attention", SETTING)

Weights = Callable[[Tensor, Tensor], Tensor]  # q (n, d), k (n, d) -> (n, n)
Mixed = Callable[[Tensor, Tensor, Tensor], Tensor]  # q, k, v (1, 1, n, d) -> (1, 1, n, d)
KERNEL = "seqlab.ops.linear_attention"


def of_the_kernel(q: Tensor, k: Tensor) -> Tensor:
    """The weights that seqlab's sums amount to."""
    return linear.attention_weights(linear.SEPARABLE, q[None, None], k[None, None])[0, 0]


def of_softmax(q: Tensor, k: Tensor) -> Tensor:
    return attention_weights(scaled_scores(q, k))


def rows(u: Tensor) -> Tensor:
    """softmax over the features of each position."""
    return torch.softmax(u, -1)


def columns(u: Tensor) -> Tensor:
    """softmax over the positions of each feature."""
    return torch.softmax(u, -2)


def by_formula(q: Tensor, k: Tensor) -> Tensor:
    return rows(q) @ columns(k).mT


# --------------------------------------------------------------------------- weights


@claim(
    "separable.rows",
    statement=r"Each row of $\mathrm{softmax}_{row}(Q)\, \mathrm{softmax}_{col}(K)^\top$ is a categorical "
    r"distribution over the keys.",
    note=r"A row mixes $d$ distributions over the keys, one for each feature, with weights that sum to 1. "
    r"The columns do not sum to 1.",
    verdict="true",
    method="identity",
    right=of_the_kernel,
    wrong={
        "the two axes swapped": lambda q, k: columns(q) @ rows(k).mT,
        "keys normalised over features": lambda q, k: rows(q) @ rows(k).mT,
        "keys not normalised": lambda q, k: rows(q) @ k.exp().mT,
    },
    about=(f"{KERNEL}:attention_weights",),
)
def row_distributions(seed: int, form: Weights) -> Evidence:
    draw = stream(seed, "separable.rows")
    q, k = normal(draw, 14, 5), normal(draw, 14, 5)
    weights = form(q, k)
    return evidence(
        at_most("largest |row sum − 1|", largest(weights.sum(1) - 1), 1e-12),
        at_least("least weight", weights.min(), 0.0),
        at_most("largest difference from the formula", error(weights, by_formula(q, k)), 1e-12),
        at_least("largest |column sum − 1|", largest(weights.sum(0) - 1), 0.01),
    )


# --------------------------------------------------------------------------- cost


def blank(n: int, d: int) -> tuple[Tensor, ...]:
    """Queries, keys and values of zeros, since a count does not depend on them."""
    return torch.zeros(3, 1, 1, n, d).unbind(0)


@claim(
    "separable.cost",
    statement=r"With $\mathrm{softmax}_{col}(K)^\top V$ computed first, separable attention takes $\Theta(nd^2)$ time "
    r"and $\Theta(nd + d^2)$ space.",
    note=r"Exactly $nd(2d + 1)$ multiply-adds, normaliser included. It is the column softmax of $K$ that stands here; "
    r"the row softmax gives another result.",
    verdict="true",
    method="exact",
    right=lambda q, k, v: linear.attend(linear.SEPARABLE, q, k, v)[0],
    wrong={
        "the n × n weights first": lambda q, k, v: by_formula(q, k) @ v,
        "row softmax of K": lambda q, k, v: rows(q) @ (rows(k).mT @ v),
    },
    about=(f"{KERNEL}:attend",),
)
def linear_cost(seed: int, form: Mixed) -> Evidence:
    draw = stream(seed, "separable.cost")
    q, k, v = (normal(draw, 1, 1, 24, 5) for _ in range(3))
    exact = separable_weights(q, k, visible_keys(24, 24)) @ v
    runs = {(n, d): partial(form, *blank(n, d)) for n, d in product((16, 256, 2048), (4, 64, 256))}
    strays = [total(multiply_adds(run)) - n * d * (2 * d + 1) for (n, d), run in runs.items()]
    spaces = [most_held(run) / (n * d + d**2) for (n, d), run in runs.items()]
    return evidence(
        exactly("sizes that do not take nd(2d + 1) multiply-adds", sum(map(bool, strays)), 0),
        at_most("most numbers held at once over nd + d², n to 2048, d to 256", max(spaces), 3.0),
        at_least("least numbers held over it", min(spaces), 1.0),
        at_most("largest difference from weights times values", error(form(q, k, v), exact), 1e-12),
    )


def core_flops(kind: str, d_model: int, heads: int, length: int) -> float:
    """What the layer computes between its projections, as seqlab counts it."""
    with torch.device("meta"):
        counted = cost(MultiHeadAttention(d_model, heads, kind=kind), batch=1, length=length)
    return counted.part("scores").flops_forward + counted.part("mixing").flops_forward


@claim(
    "separable.efficient",
    statement=r"Separable attention is cheaper than softmax attention for $n \gg d$: $2nd^2$ multiply-adds against "
    r"$2n^2 d$, equal at $n = d$.",
    note=r"$d$ is the width of a head.",
    verdict="true",
    method="exact",
    right=lambda d_model, heads: d_model // heads,
    wrong={
        "equal at the width of the model": lambda d_model, heads: d_model,
        "equal at twice a head's width": lambda d_model, heads: 2 * d_model // heads,
        "equal at the square of a head's width": lambda d_model, heads: (d_model // heads) ** 2,
    },
    about=("seqlab.diagnostics.cost:cost", "seqlab.layers:MultiHeadAttention"),
)
def crossover(seed: int, form: Callable[[int, int], int]) -> Evidence:
    draw = stream(seed, "separable.efficient")
    d, heads = (2 ** int(torch.randint(low, high, (), generator=draw)) for low, high in ((4, 7), (1, 4)))
    equal = form(d * heads, heads)

    def ratio(n: int) -> float:
        return core_flops("softmax", d * heads, heads, n) / core_flops("separable", d * heads, heads, n)

    q, k, v = blank(16 * d, d)
    separable = total(multiply_adds(lambda: linear.attend(linear.SEPARABLE, q, k, v)))
    softmax = total(multiply_adds(lambda: of_softmax(q, k) @ v))
    return evidence(
        exactly("softmax over separable at 64 times the crossover", ratio(64 * equal), 64),
        exactly("at the crossover", ratio(equal), 1),
        exactly("at half of it", ratio(equal // 2), 0.5),
        between("at n = 16d, as torch counts what is computed", softmax / separable, 16 / (1 + 1 / d), 16),
    )


# --------------------------------------------------------------------------- expressiveness


def identity_weights(form: Weights, wanted: Tensor) -> Tensor:
    """Weights of Q = ln P and K = 40 I: softmax_col(K) is nearly I, so that P is what is left."""
    return form(wanted.log(), 40.0 * torch.eye(len(wanted), dtype=wanted.dtype))


def random_feature_weights(q: Tensor, k: Tensor) -> Tensor:
    """With four times as many features as q has numbers."""
    w = linear.gaussian_directions(4 * q.shape[1], q.shape[1], generator=stream(0, "directions")).to(q.dtype)
    return linear.attention_weights(linear.random_features(w), q[None, None], k[None, None])[0, 0]


@claim(
    "separable.less-expressive",
    statement=r"Separable attention can express fewer weight matrices than softmax attention.",
    conditions=r"$n > d$: its weights have rank at most $d$, those of softmax reach rank $n$. For $d \ge n$ every "
    r"row-stochastic $P$ is a limit of separable weights, $P = P \cdot I$.",
    note=r"Every row is a mixture of the same $d$ distributions over the keys.",
    verdict="conditional",
    method="identity",
    right=of_the_kernel,
    wrong={
        "softmax attention": of_softmax,
        "4d random features": random_feature_weights,
        "one feature only": lambda q, k: by_formula(q[:, :1], k[:, :1]),
    },
    about=(f"{KERNEL}:attention_weights", "seqlab.ops.attention:attention_weights"),
)
def less_expressive(seed: int, form: Weights) -> Evidence:
    draw, n, d = stream(seed, "separable.less-expressive"), 20, 4
    q, k = normal(draw, n, d, scale=2.0), normal(draw, n, d, scale=2.0)
    wanted = torch.softmax(normal(draw, 6, 6, scale=2.0), -1)
    return evidence(
        exactly("rank of separable weights, n = 20, d = 4", torch.linalg.matrix_rank(form(q, k)), d),
        exactly("rank of softmax weights", torch.linalg.matrix_rank(of_softmax(q, k)), n),
        at_most("n = d = 6: distance from any stochastic matrix", error(identity_weights(form, wanted), wanted), 1e-9),
    )


def depends_on(weights: Weights, q: Tensor, k: Tensor) -> Tensor:
    """Which numbers of K the weight of query 1 on key 1 changes with.    (n, d)"""
    return gradient(lambda keys: weights(q, keys)[0, 0], k) != 0


@claim(
    "separable.reason",
    statement=r"Separable attention is less expressive because it uses information up to the $d$-th value, softmax "
    r"attention up to the $n$-th.",
    correction=r"In both, one weight depends on all $n d$ numbers of $K$. The reasons are the rank, at most $d$, and "
    r"that no non-linearity acts on each row of scores.",
    verdict="false",
    method="counterexample",
    right=lambda n, d: torch.ones(n, d, dtype=torch.bool),
    wrong={
        AS_STATED: lambda n, d: (torch.arange(n) < d)[:, None].expand(n, d),
        "the key's own numbers only": lambda n, d: (torch.arange(n) == 0)[:, None].expand(n, d),
    },
    about=(f"{KERNEL}:attention_weights",),
)
def not_what_is_read(seed: int, form: Callable[[int, int], Tensor]) -> Evidence:
    draw, n, d = stream(seed, "separable.reason"), 9, 3
    q, k = normal(draw, n, d), normal(draw, n, d)
    used = {name: depends_on(weights, q, k) for name, weights in WEIGHTS.items()}
    zero = torch.zeros(2, 1, dtype=torch.float64)
    change = float(gradient(lambda keys: of_the_kernel(zero, keys)[0, 0], zero)[1, 0])
    return evidence(
        exactly("separable: numbers of K wrongly said to matter, or not to", (used["separable"] ^ form(n, d)).sum(), 0),
        exactly("softmax: the same", (used["softmax"] ^ form(n, d)).sum(), 0),
        exactly("rank of separable weights, n = 9, d = 3", torch.linalg.matrix_rank(of_the_kernel(q, k)), d),
        counterexample=rf"$d = 1$, $n = 2$, $Q = K = 0$: the weight on key 1 changes with key 2, which lies beyond "
        rf"the $d$-th, at the rate ${change:.4f}$.",
    )


WEIGHTS: dict[str, Weights] = {"separable": of_the_kernel, "softmax": of_softmax}


# --------------------------------------------------------------------------- causality


def causally(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return linear.attend(linear.SEPARABLE, q[None, None], k[None, None], v[None, None], causal=True)[0][0, 0]


def masked_afterwards(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return by_formula(q, k).tril() @ v


def renormalised(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    kept = by_formula(q, k).tril()
    return kept / kept.sum(1, keepdim=True) @ v


def leak(form: Mixed, q: Tensor, k: Tensor, v: Tensor) -> float:
    """The largest derivative of an output by a key that comes later."""
    n, d = k.shape
    by_key = jacobian(lambda keys: form(q, keys, v), k).view(n, d, n, d).abs().amax((1, 3))
    return largest(by_key.triu(1))


@claim(
    "separable.causal",
    statement=r"The column softmax of separable attention is normalised over all keys, later ones included: masking "
    r"the weights afterwards does not make it causal, a normaliser for each prefix, $\sum_{j \le i}$, does.",
    verdict="true",
    method="identity",
    right=causally,
    wrong={
        "weights masked afterwards": masked_afterwards,
        "masked afterwards, rows divided by their sums": renormalised,
        "the own key left out": lambda q, k, v: torch.cat([v[:1], causally(q[1:], k[:-1], v[:-1])]),
    },
    about=(f"{KERNEL}:causal_sums",),
)
def not_causal(seed: int, form: Mixed) -> Evidence:
    draw, n = stream(seed, "separable.causal"), 7
    q, k, v = (normal(draw, n, 3) for _ in range(3))
    exact = (separable_weights(q[None, None], k[None, None], visible_keys(n, n, causal=True)) @ v)[0, 0]
    return evidence(
        at_least("masked afterwards: largest derivative by a later key", leak(masked_afterwards, q, k, v), 1e-3),
        at_least("masked afterwards, rows divided by their sums: the same", leak(renormalised, q, k, v), 1e-3),
        at_most("a normaliser for each prefix: the same", leak(form, q, k, v), 0.0),
        at_most("largest difference from the rows one by one", error(form(q, k, v), exact), 1e-12),
        at_most("last row against the form that sees all", error(form(q, k, v)[-1], (by_formula(q, k) @ v)[-1]), 1e-12),
    )
