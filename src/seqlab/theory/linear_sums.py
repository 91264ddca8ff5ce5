"""Claims about attention with feature maps: f(Q) (f(K)ᵀ V), its normaliser, and its causal form."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from seqlab.ops import linear_attention as linear
from seqlab.ops.attention import attention_weights, dot_scores, softmax_attention
from seqlab.ops.reference.attention import random_feature_weights, visible_keys
from seqlab.theory.counting import most_held, multiply_adds, total
from seqlab.theory.exponents import exponent
from seqlab.theory.instances import normal, stream
from seqlab.theory.jacobians import error, relative_error
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, at_most, between, evidence, exactly

SETTING = (
    r"The rows of $Q$, $K$ and $V$, each $n \times d$, are the queries, keys and values of $n$ positions; the "
    r"map $f$ makes $m$ features of each query and each key."
)
claim = LEDGER.of("linear_attention", SETTING)

Mixed = Callable[[Tensor, Tensor, Tensor], Tensor]  # q, k, v (1, 1, n, d) -> (1, 1, n, d)
ByFeatures = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # and directions w (m, d)
KERNEL = "seqlab.ops.linear_attention"


def kernel(q: Tensor, k: Tensor) -> Tensor:
    """A = exp(Q Kᵀ)"""
    return dot_scores(q, k).exp()


def row_sums(a: Tensor) -> Tensor:
    return a.sum(-1, keepdim=True)


# --------------------------------------------------------------------------- softmax as a kernel


@claim(
    "linattn.DinvA",
    statement=r"$\mathrm{softmax}_{row}(Q K^\top) V = D^{-1} A V$ with $A = \exp(Q K^\top)$ entry by entry and "
    r"$D = \mathrm{diag}(A \mathbf{1})$.",
    verdict="true",
    method="identity",
    right=lambda q, k, v: kernel(q, k) @ v / row_sums(kernel(q, k)),
    wrong={
        "D holds column sums": lambda q, k, v: kernel(q, k) @ v / row_sums(kernel(q, k).mT),
        "D on the side of the values": lambda q, k, v: kernel(q, k) @ (v / row_sums(kernel(q, k))),
        "no D": lambda q, k, v: kernel(q, k) @ v,
    },
    about=("seqlab.ops.attention:softmax_attention",),
)
def normalised_kernel(seed: int, form: Mixed) -> Evidence:
    draw, n, d = stream(seed, "linattn.DinvA"), 9, 4
    q, k, v = (normal(draw, 1, 1, n, d) for _ in range(3))
    fused = softmax_attention(q * math.sqrt(d), k, v)  # the kernel divides by √d
    return evidence(
        at_most("largest difference from seqlab's softmax attention", error(form(q, k, v), fused), 1e-12),
        at_most("change when each row of scores moves by a constant", moved(form, q, k, v), 1e-12),
    )


def moved(form: Mixed, q: Tensor, k: Tensor, v: Tensor) -> float:
    """D takes out of each row what is the same for all keys: c of k + c adds qᵀc to the scores of a row."""
    return error(form(q, k + 0.5, v), form(q, k, v))


@claim(
    "linattn.A-entries",
    statement=r"$A = \exp(Q K^\top)$ is $n \times d$, with entries $\exp(q_{ij} k_{ij})$.",
    correction=r"$A$ is $n \times n$ with $A_{ij} = \exp(\sum_l q_{il} k_{jl})$. The matrix that is stated is the "
    r"elementwise $\exp(Q \odot K)$.",
    verdict="false",
    method="counterexample",
    right=kernel,
    wrong={
        AS_STATED: lambda q, k: (q * k).exp(),
        "a sum of exponentials": lambda q, k: (q[:, None] * k[None]).exp().sum(-1),
    },
    about=("seqlab.ops.attention:dot_scores",),
)
def entries(seed: int, form: Callable[[Tensor, Tensor], Tensor]) -> Evidence:
    draw, n, d = stream(seed, "linattn.A-entries"), 6, 3
    q, k = normal(draw, n, d), normal(draw, n, d)
    a, ones = form(q, k), torch.ones(1, 2, dtype=torch.float64)
    one_by_one = [
        [math.exp(sum(x * y for x, y in zip(q_i, k_j, strict=True))) for k_j in k.tolist()] for q_i in q.tolist()
    ]
    return evidence(
        exactly("columns of A, n = 6, d = 3", a.shape[1], n),
        at_most(
            "relative difference from the entries one by one",
            relative_error(a, torch.tensor(one_by_one, dtype=a.dtype)),
            1e-12,
        ),
        at_most(
            "rows over their sums, from softmax weights", error(a / row_sums(a), attention_weights(q @ k.T)), 1e-12
        ),
        counterexample=rf"$n = 1$, $d = 2$, $Q = K = (1, 1)$: $A$ is the one number ${float(kernel(ones, ones)):.3f}$, "
        rf"the elementwise form has two, ${float((ones * ones).exp()[0, 0]):.3f}$ each.",
    )


# --------------------------------------------------------------------------- the order of the products


def phi(u: Tensor, w: Tensor) -> Tensor:
    """Features of u/d^{1/4}, so that their products stand for e^{qᵀk/√d}."""
    return linear.positive_features(u * u.shape[-1] ** -0.25, w)


def sums_first(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return linear.attend(linear.random_features(w), q, k, v)[0]


def weights_first(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    a = phi(q, w) @ phi(k, w).mT
    return a @ v / row_sums(a)


def values_mapped(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """f(V) has m columns, not d."""
    return phi(q, w) @ (phi(k, w).mT @ phi(v, w)) / normaliser(q, k, w)


def normaliser(q: Tensor, k: Tensor, w: Tensor) -> Tensor:
    return phi(q, w) @ phi(k, w).sum(-2)[..., None]


def blank(n: int, d: int, m: int) -> tuple[Tensor, ...]:
    """Queries, keys, values and directions of zeros, since a count does not depend on them."""
    return *torch.zeros(3, 1, 1, n, d).unbind(0), torch.zeros(m, d)


@claim(
    "linattn.reorder",
    statement=r"Kernel attention computed as $f(Q)(f(K)^\top V)$ takes $\Theta(nmd)$ time and $\Theta(nm + nd)$ space, "
    r"instead of $\Theta(n^2 d)$ and $\Theta(n^2 + nd)$.",
    conditions=r"$V$ is not mapped, $f(K)$ is transposed, and each row is divided by $f(Q)(f(K)^\top \mathbf{1})$. The "
    r"sums take $md$ more space, which is no more than the rest where $d$ or $m$ is $O(n)$.",
    verdict="conditional",
    method="exponent",
    right=sums_first,
    wrong={
        "the n × n weights first": weights_first,
        "V is mapped too": values_mapped,
        "no normaliser": lambda q, k, v, w: phi(q, w) @ (phi(k, w).mT @ v),
    },
    about=(f"{KERNEL}:attend", f"{KERNEL}:random_features"),
)
def reordered(seed: int, form: ByFeatures) -> Evidence:
    draw, lengths, d, m = stream(seed, "linattn.reorder"), (256, 512, 1024, 2048), 16, 64
    q, k, v = (normal(draw, 1, 1, 20, 5) for _ in range(3))
    w = normal(draw, 12, 5)
    exact = random_feature_weights(q, k, w, visible_keys(20, 20)) @ v
    runs = {n: partial(form, *blank(n, d, m)) for n in lengths}
    counted = [total(multiply_adds(run)) for run in runs.values()]
    most = max(most_held(run) / (2 * n * m + n * d + m * d) for n, run in runs.items())
    return evidence(
        between("exponent of multiply-adds in n", exponent(lengths, counted), 0.999, 1.001),
        exactly(
            "multiply-adds over 2nmd of features and 2nm(d + 1) of sums", counted[-1] / (2048 * m * (4 * d + 2)), 1
        ),
        between("numbers held at once over 2nm + nd + md, at most", most, 0.0, 2.0),
        at_most("largest difference from weights times values", error(form(q, k, v, w), exact), 1e-11),
    )


# --------------------------------------------------------------------------- the causal form


def prefix_sums(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return linear.attend(linear.random_features(w), q, k, v, causal=True)[0]


def own_key_left_out(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """Sums over j < i."""
    later = prefix_sums(q[..., 1:, :], k[..., :-1, :], v[..., :-1, :], w)
    return torch.cat([v[..., :1, :], later], -2)


def normalised_by_all(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return (phi(q, w) @ phi(k, w).mT).tril() @ v / normaliser(q, k, w)


def keys_rescaled(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """The features of each key divided by their own maximum, which does not cancel."""
    keys = phi(k, w) / phi(k, w).amax(-1, keepdim=True)
    a = (phi(q, w) @ keys.mT).tril()
    return a @ v / row_sums(a)


@claim(
    "linattn.causal-prefix",
    statement=r"The causal form needs prefix sums only: $S_i = \sum_{j \le i} f(k_j) v_j^\top$ and "
    r"$z_i = \sum_{j \le i} f(k_j)$ give $o_i = f(q_i)^\top S_i / f(q_i)^\top z_i$.",
    note=r"Time $\Theta(nmd)$, and $m(d+1)$ numbers to remember, whatever $n$ is. All $S_i$ held at once take $nmd$.",
    verdict="true",
    method="identity",
    right=prefix_sums,
    wrong={
        "the own key left out": own_key_left_out,
        "the normaliser sees all keys": normalised_by_all,
        "each key divided by its own maximum": keys_rescaled,
    },
    about=(f"{KERNEL}:causal_sums", f"{KERNEL}:attend"),
)
def causal_prefixes(seed: int, form: ByFeatures) -> Evidence:
    draw, n, d, m = stream(seed, "linattn.causal-prefix"), 150, 6, 16
    q, k, v = (normal(draw, 1, 1, n, d) for _ in range(3))
    w = normal(draw, m, d)
    masked = random_feature_weights(q, k, w, visible_keys(n, n, causal=True)) @ v
    _, after = linear.attend(linear.random_features(w), q, k, v, causal=True)
    remembered, lengths = after.sums * after.level.exp()[..., None], (128, 256, 512, 1024)
    counted = [total(multiply_adds(partial(prefix_sums, *blank(n, d, m)))) for n in lengths]
    return evidence(
        at_most("largest difference from the masked n × n form", error(form(q, k, v, w), masked), 1e-10),
        at_most("what is remembered, from Σ f(k)vᵀ", relative_error(remembered[..., :-1], phi(k, w).mT @ v), 1e-12),
        at_most("and from Σ f(k)", relative_error(remembered[..., -1], phi(k, w).sum(-2)), 1e-12),
        exactly("numbers remembered over m(d + 1)", (after.sums.numel()) / (m * (d + 1)), 1),
        between("exponent of multiply-adds in n", exponent(lengths, counted), 0.999, 1.001),
    )
