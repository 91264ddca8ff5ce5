"""Claims about attention: its weights, its matrix form, and what the order of tokens does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import Tensor

from seqlab.diagnostics.attention_experiments import plain_attention
from seqlab.layers import AttentiveRNN, MeanPooling, MultiHeadAttention
from seqlab.ops.attention import attention_weights, dot_scores, mix, softmax_attention
from seqlab.theory.instances import fill, normal, stream
from seqlab.theory.jacobians import error, gradient
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, Finding, at_least, at_most, evidence, exactly
from seqlab.theory.symbols import step, vanishes

claim = LEDGER.of("attention")

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]  # q (T, d), k (S, d), v (S, d) -> (T, d)
Weights = Callable[[Tensor, Tensor], Tensor]  # scores (T, S), mask (T, S) -> (T, S)

# --------------------------------------------------------------------------- the matrix form


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q kᵀ) v on the fused kernel, which divides by √d."""
    q = q * math.sqrt(q.shape[-1])
    return softmax_attention(q[None, None], k[None, None], v[None, None])[0, 0]


def over_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return mix(torch.softmax(dot_scores(q, k), 0), v)


def scaled_after(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The factor that belongs to the scores stands behind the softmax."""
    return mix(attention_weights(dot_scores(q, k)) / math.sqrt(q.shape[-1]), v)


def one_by_one(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Σ_j e^{q_i·k_j} v_j / Σ_j e^{q_i·k_j}, number by number."""
    rows = []
    for query in q:
        powers = [sum(a * b for a, b in zip(query, key, strict=True)).exp() for key in k]
        rows.append(sum(p * value for p, value in zip(powers, v, strict=True)) / sum(powers))
    return torch.stack(rows)


@claim(
    "attn.matrix-form",
    statement=r"Row $i$ of $\mathrm{softmax}(QK^\top)V$ is $\sum_j \alpha_{ij} v_j$ with "
    r"$\alpha_{ij} = e^{q_i^\top k_j} / \sum_l e^{q_i^\top k_l}$.",
    note=r"The softmax runs over the keys, the last axis. With as many queries as keys a softmax over the wrong axis "
    r"has the right shape.",
    verdict="true",
    method="identity",
    right=fused,
    wrong={"softmax over the queries": over_queries, "a scale behind the softmax": scaled_after},
    about=("seqlab.ops.attention:softmax_attention",),
)
def matrix_form(seed: int, form: Attention) -> Evidence:
    draw = stream(seed, "attn.matrix-form")
    values, slopes = [], []
    for queries, keys in ((3, 5), (4, 4)):
        q, k, v, pull = (normal(draw, n, 4) for n in (queries, keys, keys, queries))
        values.append(error(form(q, k, v), one_by_one(q, k, v)))
        for n in range(3):
            slopes.append(error(_slope(form, (q, k, v), n, pull), _slope(one_by_one, (q, k, v), n, pull)))
    return evidence(
        at_most("largest difference from the sum over single keys", max(values), 1e-12),
        at_most("the same for the gradients to Q, K and V", max(slopes), 1e-12),
    )


def _slope(f: Attention, of: tuple[Tensor, Tensor, Tensor], place: int, pull: Tensor) -> Tensor:
    """∂ Σ pull ∘ f(q, k, v) to one of the three."""
    return gradient(lambda x: (pull * f(*[x if n == place else u for n, u in enumerate(of)])).sum(), of[place])


# --------------------------------------------------------------------------- scores and their weights


def one_key_too_many(scores: Tensor, mask: Tensor) -> Tensor:
    """The sum runs over l ≤ t, the weights over l < t."""
    return attention_weights(scores, mask | mask.roll(1, -1)) * mask


def without_exponential(scores: Tensor, mask: Tensor) -> Tensor:
    some = scores * mask
    return some / some.sum(-1, keepdim=True)


def scores_by_hand(layer: AttentiveRNN, q: Tensor, k: Tensor) -> Tensor:
    """qᵀk, qᵀk/√H or vᵀtanh(W_1 q + W_2 k) of each row.    (B, H) -> (B,)"""
    if layer.score == "additive":
        return torch.tanh(q @ layer.W_1.T + k @ layer.W_2.T) @ layer.v
    return (q * k).sum(-1) / (1 if layer.score == "dot" else math.sqrt(layer.hidden_size))


@claim(
    "attn.score-functions",
    statement=r"The scores $h_t^\top h_l$, $h_t^\top h_l / \sqrt d$ and $v^\top \tanh(W_1 h_t + W_2 h_l)$ give weights "
    r"$\alpha_{tl} = e^{s_{tl}} / \sum_{m<t} e^{s_{tm}}$, $l < t$, that are positive and sum to 1.",
    note=r"The sum in the denominator runs over exactly the positions that are attended to.",
    verdict="true",
    method="identity",
    right=attention_weights,
    wrong={"the sum has one key more": one_key_too_many, "no exponential": without_exponential},
    about=("seqlab.layers:AttentiveRNN", "seqlab.ops.attention:attention_weights"),
)
@torch.no_grad()
def score_functions(seed: int, form: Weights) -> Evidence:
    draw, sums, least, away, off = stream(seed, "attn.score-functions"), 0.0, 1.0, 0.0, 0.0
    for score in ("dot", "scaled", "additive"):
        layer = AttentiveRNN(3, 5, score=score)
        fill(layer, draw)
        _, _, seen = layer.watch(normal(draw, 2, 6, 3))
        for t in range(1, 6):
            query, before = seen["candidate"][t], seen["hidden"][:t]
            expected = torch.stack([scores_by_hand(layer, query, h) for h in before], -1)
            mask = (torch.arange(6) < t).expand(2, 6)
            weights = form(torch.nn.functional.pad(expected, (0, 6 - t), value=0.3), mask)
            sums = max(sums, error(weights.sum(-1), torch.ones(2).double()))
            least = min(least, float(weights[:, :t].min()))
            away = max(away, error(seen["weights"][t], weights))
            off = max(off, error(seen["scores"][t][:, :t], expected))
    return evidence(
        at_most("largest |1 − Σα| of three scores", sums, 1e-12),
        at_least("smallest weight", least, 1e-9),
        at_most("the layer's scores differ from the formulas by", off, 1e-12),
        at_most("the layer's weights differ by", away, 1e-12),
    )


# --------------------------------------------------------------------------- a distribution


def not_shifted(scores: Tensor) -> Tensor:
    return scores.exp() / scores.exp().sum(-1, keepdim=True)


def others_only(scores: Tensor) -> Tensor:
    """An index slip: the sum leaves out the key itself."""
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return powers / (powers.sum(-1, keepdim=True) - powers)


@claim(
    "attn.categorical",
    statement=r"The weights $\alpha_i = e^{k_i^\top q} / \sum_j e^{k_j^\top q}$ are a categorical distribution: "
    r"$\alpha_i > 0$ and $\sum_i \alpha_i = 1$.",
    note=r"In floating point the largest score is subtracted first, and a weight may still underflow to 0.",
    verdict="true",
    method="identity",
    right=attention_weights,
    wrong={"the largest score is not subtracted": not_shifted, "the sum leaves out the key itself": others_only},
    about=("seqlab.ops.attention:attention_weights",),
)
def categorical(seed: int, form: Callable[[Tensor], Tensor]) -> Evidence:
    draw = stream(seed, "attn.categorical")
    usual = form(normal(draw, 200, 8, scale=3.0))
    huge = form(normal(draw, 200, 8, scale=1e4))
    ones = torch.ones(200).double()
    return evidence(
        at_most("largest |1 − Σα|", error(usual.sum(-1), ones), 1e-12),
        at_least("smallest weight, scores of size 3", usual.min(), 1e-14),
        at_most("largest |1 − Σα|, scores of size 10,000", error(huge.sum(-1), ones), 1e-12),
        at_least("of those 1,600 weights, exactly 0", (huge == 0).sum(), 1),
    )


Numbers = Sequence[Any]


def softmax(scores: Numbers) -> list[Any]:
    return [sympy.exp(s) / sum(sympy.exp(r) for r in scores) for s in scores]


def sum_of_others(scores: Numbers) -> list[Any]:
    return [sympy.exp(s) / sum(sympy.exp(r) for r in scores if r is not s) for s in scores]


def sigmoids(scores: Numbers) -> list[Any]:
    """Each between 0 and 1, but nothing makes them sum to 1."""
    return [1 / (1 + sympy.exp(-s)) for s in scores]


def not_positive(what: str, expressions: Numbers) -> Finding:
    return exactly(what, sum(not sympy.together(e).is_positive for e in expressions), 0)


@claim(
    "attn.categorical-closed",
    statement=r"$0 \le \alpha_i \le 1$ and $\sum_i \alpha_i = 1$.",
    note=r"For finite scores and two or more keys both inequalities are strict.",
    verdict="true",
    method="symbolic",
    right=softmax,
    wrong={"the sum leaves out the key itself": sum_of_others, "a sigmoid of each score": sigmoids},
    about=("seqlab.ops.attention:attention_weights",),
)
def categorical_closed(seed: int, form: Callable[[Numbers], list[Any]]) -> Evidence:
    scores = sympy.symbols("s_1:4", real=True)
    weights = form(scores)
    numbers = normal(stream(seed, "attn.categorical-closed"), 3)
    known = dict(zip(scores, numbers.tolist(), strict=True))
    computed = torch.tensor([float(w.subs(known)) for w in weights], dtype=torch.float64)
    return evidence(
        vanishes("Σα − 1", sum(weights) - 1),
        not_positive("weights that are not proved positive", weights),
        not_positive("differences 1 − α that are not proved positive", [1 - w for w in weights]),
        at_most(
            "largest difference from seqlab's weights", error(attention_weights(numbers[None])[0], computed), 1e-12
        ),
        steps=(
            step(r"\alpha_1", weights[0]),
            step(r"1 - \alpha_1", sympy.together(1 - weights[0])),
            step(r"\sum_i \alpha_i", sympy.simplify(sum(weights))),
        ),
    )


# --------------------------------------------------------------------------- the order of tokens

Function = Callable[[Tensor], Tensor]  # (T, d) -> (T, d)
Reordered = Callable[[Function, Tensor, Tensor], Tensor]  # what f(X[order]) is said to be
KINDS = ("softmax", "separable", "random_features")


def self_attention(layer: MultiHeadAttention) -> Function:
    return lambda x: layer(x[None], x[None], x[None])[0][0]


def cycle(draw: torch.Generator, length: int) -> Tensor:
    """An order in which every token moves on in one circle, so that it is not its own inverse."""
    around = torch.randperm(length, generator=draw)
    order = torch.empty_like(around)
    order[around] = around.roll(1)
    return order


@claim(
    "attn.permutation",
    statement=r"Self-attention without positions is permutation-invariant: $SA(PX) = SA(X)$.",
    correction=r"It is equivariant: $SA(PX) = P \, SA(X)$. Invariant are the output of one fixed query when "
    r"keys and values are permuted together, and the mean of all outputs.",
    verdict="false",
    method="identity",
    right=lambda f, x, order: f(x)[order],
    wrong={AS_STATED: lambda f, x, order: f(x), "the inverse order": lambda f, x, order: f(x)[order.argsort()]},
    about=("seqlab.layers:MultiHeadAttention", "seqlab.layers:MeanPooling"),
)
@torch.no_grad()
def permutation(seed: int, form: Reordered) -> Evidence:
    draw, away, fixed, pooled = stream(seed, "attn.permutation"), 0.0, 0.0, 0.0
    for kind in KINDS:
        layer = MultiHeadAttention(8, 2, kind=kind)
        fill(layer, draw)
        if kind == "random_features":
            layer.redraw(draw)
        x, order, f = normal(draw, 7, 8), cycle(draw, 7), self_attention(layer)
        away = max(away, error(f(x[order]), form(f, x, order)))
        query, mean = normal(draw, 1, 1, 8), MeanPooling()
        before, after = (layer(query, y[None], y[None])[0] for y in (x, x[order]))
        fixed = max(fixed, error(before, after))
        pooled = max(pooled, error(mean(f(x)[None]), mean(f(x[order])[None])))
    return evidence(
        at_most("three kinds: largest difference of SA(PX) from what is said", away, 1e-10),
        at_most("one fixed query: largest change when keys and values trade places", fixed, 1e-10),
        at_most("mean of all outputs: largest change", pooled, 1e-10),
        counterexample=_two_tokens(),
    )


def _two_tokens() -> str:
    f, x = self_attention(plain_attention(1)), torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    (a, b), (c, d) = f(x).flatten().tolist(), f(x.flip(0)).flatten().tolist()
    return (
        rf"Two tokens of width 1, $W_Q = W_K = W_V = 1$: $X = (0, 1)$ gives $({a:.3f}, {b:.3f})$, the same tokens as "
        rf"$(1, 0)$ give $({c:.3f}, {d:.3f})$."
    )


from seqlab.theory import attention_copying as attention_copying  # noqa: E402
from seqlab.theory import attention_layout as attention_layout  # noqa: E402
from seqlab.theory import attention_noise as attention_noise  # noqa: E402
from seqlab.theory import attention_subspaces as attention_subspaces  # noqa: E402
from seqlab.theory import attention_two_heads as attention_two_heads  # noqa: E402
