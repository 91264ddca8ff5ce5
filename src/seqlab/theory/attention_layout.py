"""Claims about many heads: how features are cut into them, what they cost, how far they hear."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from seqlab.diagnostics.cost import cost
from seqlab.diagnostics.structure_experiments import offsets, receptive_field_formula, spread
from seqlab.layers import GRU, MultiHeadAttention
from seqlab.ops.attention import attention_weights, mix, scaled_scores
from seqlab.ops.masks import length_mask
from seqlab.theory.counting import multiply_adds, total
from seqlab.theory.instances import fill, normal, stream
from seqlab.theory.jacobians import error, jacobian
from seqlab.theory.ledger import LEDGER, Evidence, at_most, evidence, exactly

claim = LEDGER.of("attention")

# --------------------------------------------------------------------------- cutting into heads

Layout = Callable[[MultiHeadAttention, Tensor, Tensor], Tensor]  # layer, x (B, T, D), lengths (B,) -> (B, T, D)
Cut = Callable[[Tensor, int], Tensor]  # (B, T, D), heads -> (B·heads, T, D/heads)


def head_by_head(u: Tensor, heads: int) -> Tensor:
    """b t (n d) -> (b n) t d"""
    B, T, D = u.shape
    return u.view(B, T, heads, D // heads).transpose(1, 2).reshape(B * heads, T, D // heads)


def interleaved(u: Tensor, heads: int) -> Tensor:
    """b t (d n) -> (b n) t d"""
    B, T, D = u.shape
    return u.view(B, T, D // heads, heads).permute(0, 3, 1, 2).reshape(B * heads, T, D // heads)


def each_repeated(mask: Tensor, heads: int) -> Tensor:
    """b s -> (b n) s"""
    return mask.repeat_interleave(heads, 0)


def all_repeated(mask: Tensor, heads: int) -> Tensor:
    """b s -> (n b) s"""
    return mask.repeat(heads, 1)


def cut_by(cut: Cut = head_by_head, masks: Callable[[Tensor, int], Tensor] = each_repeated) -> Layout:
    """Self-attention in which the heads are rows of one larger batch."""

    def attend(layer: MultiHeadAttention, x: Tensor, lengths: Tensor) -> Tensor:
        (B, T, D), heads = x.shape, layer.n_heads
        q, k, v = (cut(torch.nn.functional.linear(x, W, b), heads) for W, b in layer.matrices())
        mask = masks(length_mask(lengths, T), heads)[:, None]
        mixed = mix(attention_weights(scaled_scores(q, k), mask), v)
        merged = mixed.view(B, heads, T, D // heads).transpose(1, 2).reshape(B, T, D)
        out: Tensor = layer.project_out(merged)
        return out

    return attend


def of_torch(layer: MultiHeadAttention, x: Tensor, lengths: Tensor) -> Tensor:
    """torch.nn.MultiheadAttention with the same weights; its mask says which keys to leave out."""
    hidden = ~length_mask(lengths, x.shape[1])
    out: Tensor = layer.to_torch()(x, x, x, key_padding_mask=hidden, need_weights=True)[0]
    return out


@claim(
    "mha.code-layout",
    statement=r"Cutting the features of $q$, $k$ and $v$ as b t (n d) $\to$ (b n) t d, repeating the padding mask as "
    r"b s $\to$ (b n) s and merging back computes multi-head attention.",
    note=r"The mask must be repeated in the same order (b n). In the order (n b) heads silently get the masks of other "
    r"sequences. Where nothing may be attended to, torch's layer gives NaN, seqlab's the bias of the output.",
    verdict="true",
    method="identity",
    right=cut_by(),
    wrong={
        "the mask repeated as (n b)": cut_by(masks=all_repeated),
        "the features cut as (d n)": cut_by(cut=interleaved),
    },
    about=("seqlab.layers:MultiHeadAttention", "seqlab.ops.attention:attention_weights"),
)
@torch.no_grad()
def code_layout(seed: int, form: Layout) -> Evidence:
    draw, layer = stream(seed, "mha.code-layout"), MultiHeadAttention(12, 3)
    fill(layer, draw)
    x, lengths = normal(draw, 3, 6, 12), torch.tensor([6, 2, 4])
    expected = of_torch(layer, x, lengths)
    fast, formula = (layer(x, x, x, key_lengths=lengths, need_weights=w)[0] for w in (False, True))
    empty = torch.tensor([6, 0, 4])
    nothing = layer(x, x, x, key_lengths=empty)[0][1]
    return evidence(
        at_most("largest difference from torch's layer", error(form(layer, x, lengths), expected), 1e-12),
        at_most("seqlab's fused layer less torch's", error(fast, expected), 1e-12),
        at_most("seqlab's layer by the formula less torch's", error(formula, expected), 1e-12),
        at_most("a sequence without keys: output less its bias", (nothing - layer.project_out.bias).abs().max(), 1e-12),
        exactly("the same in torch: numbers that are NaN", of_torch(layer, x, empty)[1].isnan().sum(), 6 * 12),
    )


# --------------------------------------------------------------------------- what heads cost


def of_any_number(length: int, width: int, heads: int) -> int:
    """4nd² + 2n²d"""
    return 4 * length * width**2 + 2 * length**2 * width


@claim(
    "mha.parallel-advantage",
    statement=r"Parallel computation over positions is an advantage of multi-head attention over recurrent networks.",
    verdict="conditional",
    conditions=r"It is one of self-attention with any number of heads, not of many heads. At equal $d$ the cost, "
    r"$4 n d^2 + 2 n^2 d$ multiply-adds, does not depend on the number of heads.",
    method="exact",
    right=of_any_number,
    wrong={
        "every head is as wide as the model": lambda n, d, heads: 4 * n * d**2 + 2 * heads * n**2 * d,
        "many heads are cheaper": lambda n, d, heads: 4 * n * d**2 + 2 * n**2 * d // heads,
    },
    about=("seqlab.diagnostics.cost:cost", "seqlab.layers:MultiHeadAttention", "seqlab.layers:GRU"),
)
def parallel_advantage(seed: int, form: Callable[[int, int, int], int]) -> Evidence:
    draw, off, alone = stream(seed, "mha.parallel-advantage"), 0.0, 0.0
    x = normal(draw, 1, 32, 64)
    for heads in (1, 2, 4, 8):
        layer: Any = fill(MultiHeadAttention(64, heads), draw, 0.1)
        done = total(multiply_adds(partial(layer, x, x, x, need_weights=True)))
        off += abs(done - form(32, 64, heads)) + abs(done - cost(layer, batch=1, length=32).flops_forward / 2)
        with torch.no_grad():
            whole, one = layer(x, x, x)[0], layer(x[:, 20:21], x, x)[0]
        alone = max(alone, error(one, whole[:, 20:21]))
    recurrent: Any = fill(GRU(4, 4), draw)
    steps = normal(draw, 1, 8, 4)
    waits = jacobian(lambda h: recurrent(steps, h[None, None])[0], normal(draw, 4)).reshape(8, 16).abs().amax(1)
    return evidence(
        exactly("multiply-adds at n = 32 and d = 64, counted with 8 heads", done, form(32, 64, 8)),
        exactly("1, 2, 4 and 8 heads: differences from the formula, and from seqlab's own count", off, 0),
        at_most("one position computed without the others' outputs: largest difference", alone, 1e-12),
        exactly("steps of a GRU that wait for the state before the first, of 8", (waits > 0).sum(), 8),
    )


# --------------------------------------------------------------------------- how far heads hear


def heard(pattern: Sequence[Tensor]) -> int:
    """Positions that reach the first: those it holds, and those that its heads' targets held a layer below."""
    reached = {0}
    for targets in reversed(pattern):
        reached |= {int(t) for place in reached for t in targets[place]}
    return len(reached)


@claim(
    "mha.receptive-field",
    statement=r"With $k$ heads that each look at one position and a residual connection, $n$ layers hear of $(k+1)^n$ "
    r"positions.",
    verdict="conditional",
    conditions=r"An upper bound, reached where all positions that are looked at differ; a text of length $T$ caps it: "
    r"$\min(T, (k+1)^n)$. Only what values carry is counted: which position wins an argmax depends on all keys. "
    r"Without the residual it is $k^n$.",
    method="exact",
    right=receptive_field_formula,
    wrong={
        "the residual is forgotten": lambda k, n, T: min(T, k**n),
        "it grows by k with each layer": lambda k, n, T: min(T, k * n + 1),
        "the text has no end": lambda k, n, T: (k + 1) ** n,
    },
    about=(
        "seqlab.layers:MultiHeadAttention",
        "seqlab.diagnostics.structure_experiments:receptive_field_formula",
        "seqlab.diagnostics.structure_experiments:spread",
    ),
)
def receptive_field(seed: int, form: Callable[[int, int, int], int]) -> Evidence:
    draw, off, above, differ = stream(seed, "mha.receptive-field"), 0, 0, 0
    for k, n, T in ((1, 4, 32), (2, 3, 32), (3, 2, 32), (2, 3, 20)):
        off += abs(spread([offsets(k, layer, T) for layer in range(n)], T) - form(k, n, T))
        for _ in range(5):
            pattern = list(torch.randint(0, T, (n, T, k), generator=draw))
            found = spread(pattern, T)
            above += found > form(k, n, T)
            differ += found != heard(pattern)
    alone = spread([offsets(3, layer, 32, base=3) + 1 for layer in range(2)], 32, residual=False)
    return evidence(
        exactly("positions heard of beside the formula, four stacks that spread best", off, 0),
        exactly("of 20 random patterns, those that hear of more", above, 0),
        exactly("of these, those in which gradients reach other than the paths do", differ, 0),
        exactly("two layers of 3 heads without the residual: positions", alone, 9),
    )
