"""Claims about a recurrence that attends to its own past."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil, log2, sqrt

import torch
from torch import Tensor

from seqlab.layers import AttentiveRNN, MultiHeadAttention
from seqlab.layers.attentive import AttentiveState
from seqlab.theory.instances import fill, normal, stream
from seqlab.theory.jacobians import error, jacobian, largest
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, at_least, at_most, evidence, exactly

claim = LEDGER.of("recurrence")

SCORES = ("dot", "scaled", "additive")
SIZE = 4


def layer(draw: torch.Generator, score: str = "dot", size: int = SIZE) -> AttentiveRNN:
    made = AttentiveRNN(2, size, score=score)
    fill(made, draw)
    return made


def outputs(rnn: AttentiveRNN, x: Tensor) -> Tensor:
    """(T, D) -> (T, H)"""
    y: Tensor = rnn(x[None])[0]
    return y[0]


# --------------------------------------------------------------------------- serial steps


@claim(
    "rnnattn.parallel",
    statement=r"An RNN with attention to its past can be computed for all positions in parallel.",
    correction=r"$h_t = \mathrm{RNN}(x_t, h_{t-1}) + a_t$ still needs $h_{t-1}$: the chain of dependencies has length "
    r"$T$. Attention alone, without the recurrence, is parallel over $t$.",
    verdict="false",
    method="exact",
    right=lambda time: time,
    wrong={AS_STATED: lambda time: 1, "a tree of depth log T": lambda time: ceil(log2(time))},
    about=("seqlab.layers:AttentiveRNN", "seqlab.layers:MultiHeadAttention"),
)
def parallel(seed: int, form: Callable[[int], int]) -> Evidence:
    draw = stream(seed, "rnnattn.parallel")
    time = int(torch.randint(5, 11, (1,), generator=draw))
    rnn, x = layer(draw), normal(draw, time, 2)
    attention, words = fill(MultiHeadAttention(SIZE, 2), draw), normal(draw, 1, time, SIZE)
    whole, _, _ = attention(words, words, words, causal=True)
    single = [attention(words[:, t : t + 1], *[words[:, : t + 1]] * 2)[0] for t in range(time)]
    depth, reached = serial_depth(rnn, x), states_reached(rnn, x)
    return evidence(
        exactly("length of the longest chain of states", depth, form(time)),
        exactly("states that depend on the one before the first, of T", reached, time),
        at_most("attention alone: each position by itself against all", error(torch.cat(single, 1), whole), 1e-12),
        counterexample=two_states(draw),
    )


def two_states(draw: torch.Generator) -> str:
    rnn, x = layer(draw, size=1), normal(draw, 2, 2)
    rate = float(jacobian(partial(step, rnn, x[1]), outputs(rnn, x)[:1].detach()))
    return rf"$T = 2$, width $1$: $h_2$ changes with $h_1$ at the rate ${rate:.3f}$, so that it must wait for it."


def serial_depth(rnn: AttentiveRNN, x: Tensor) -> int:
    """1 + the depth of the deepest state that h_t reads itself, at most over t."""
    hidden = outputs(rnn, x).detach()
    depths = [1]
    for t in range(1, len(x)):
        reads = jacobian(partial(step, rnn, x[t]), hidden[:t]).reshape(SIZE, t, SIZE).abs().sum((0, 2))
        depths.append(1 + max([depth for depth, read in zip(depths, reads, strict=True) if read > 0], default=0))
    return max(depths)


def step(rnn: AttentiveRNN, x: Tensor, past: Tensor) -> Tensor:
    """h_t from x_t and all states before it.    (D,), (t, H) -> (H,)"""
    y: Tensor = rnn(x[None, None], AttentiveState(past[-1][None], past[None]))[0]
    return y[0, 0]


def states_reached(rnn: AttentiveRNN, x: Tensor) -> int:
    """How many h_t change with h_0, which no position may attend to."""
    nothing = torch.zeros(1, 0, SIZE).double()
    found = jacobian(lambda h: rnn(x[None], AttentiveState(h[None], nothing))[0][0], torch.zeros(SIZE).double())
    return int((found.reshape(len(x), -1).abs().amax(1) > 0).sum())


# --------------------------------------------------------------------------- what is attended to


@claim(
    "rnnattn.all-others",
    statement=r"In the RNN with attention to its past, position $t$ attends to the positions $j < t$ and to no other.",
    note=r"To attend to all others is another model: an encoder that has read both directions first.",
    verdict="true",
    method="exact",
    right=lambda time: torch.ones(time, time).tril(-1).bool(),
    wrong={
        "all others": lambda time: ~torch.eye(time).bool(),
        "itself too": lambda time: torch.ones(time, time).tril().bool(),
        "the last one only": lambda time: torch.ones(time, time).tril(-1).triu(-1).bool(),
    },
    about=("seqlab.layers:AttentiveRNN",),
)
def all_others(seed: int, form: Callable[[int], Tensor]) -> Evidence:
    draw, time = stream(seed, "rnnattn.all-others"), 7
    off, ahead, pairs = 0, 0.0, []
    for score in SCORES:
        rnn, x = layer(draw, score), normal(draw, time, 2)
        _, _, seen = rnn.watch(x[None])
        weights = torch.cat(seen["weights"]).detach()
        off += int(((weights > 0) != form(time)).sum())
        pairs.append(int((weights > 0).sum()))
        reads = jacobian(partial(outputs, rnn), x).reshape(time, SIZE, time, 2).abs().amax((1, 3))
        ahead = max(ahead, largest(reads.triu(1)))
    return evidence(
        exactly("pairs that attend and should not, or should and do not", off, 0),
        exactly("pairs that attend, T = 7", max(pairs), time * (time - 1) / 2),
        at_most("largest ∂h_t/∂x_s for s > t", ahead, 0.0),
    )


# --------------------------------------------------------------------------- the equations in an order

Score = Callable[[Tensor, Tensor], Tensor]  # query (H,), keys (t, H) -> (t,)
Pass = Callable[[Tensor, Tensor, Score], Tensor]  # (h̃_t, h_1 … h_{t−1}, score) -> h_t


def attended(query: Tensor, past: Tensor, score: Score) -> Tensor:
    """Σ_l softmax(score(query, h_l)) h_l    (H,)"""
    return torch.softmax(score(query, past), 0) @ past


def once(candidate: Tensor, past: Tensor, score: Score) -> Tensor:
    return candidate + attended(candidate, past, score)


def as_fixed_point(candidate: Tensor, past: Tensor, score: Score) -> Tensor:
    """h_t = h̃_t + a_t(h_t), solved by iteration."""
    h = candidate
    for _ in range(1000):
        before, h = h, candidate + attended(h, past, score)
        if error(h, before) < 1e-12:
            break
    return h


def with_itself(candidate: Tensor, past: Tensor, score: Score) -> Tensor:
    return candidate + attended(candidate, torch.cat([past, candidate[None]]), score)


def by_last_state(candidate: Tensor, past: Tensor, score: Score) -> Tensor:
    return candidate + attended(past[-1], past, score)


@claim(
    "rnnattn.circular",
    statement=r"An RNN with attention to its past is $\tilde h_t = \mathrm{RNN}(x_t, h_{t-1})$, "
    r"$e_{t,l} = \mathrm{score}(\tilde h_t, h_l)$ for $l < t$, $a_t = \sum_{l<t} \mathrm{softmax}(e_t)_l h_l$, "
    r"$h_t = \tilde h_t + a_t$, with $a_1 = 0$.",
    note=r"With $e_{t,l} = \mathrm{score}(h_t, h_l)$ the state $h_t$ would be defined through itself: an equation to "
    r"be solved at each step, with another solution.",
    verdict="true",
    method="identity",
    right=once,
    wrong={
        "scores of h_t itself": as_fixed_point,
        "its own candidate among the keys": with_itself,
        "scores of the state before": by_last_state,
    },
    about=("seqlab.layers:AttentiveRNN", "seqlab.ops.attention:attention_weights", "seqlab.ops.attention:mix"),
)
def circular(seed: int, form: Pass) -> Evidence:
    draw = stream(seed, "rnnattn.circular")
    errors, literal = [], []
    for kind in SCORES:
        rnn, x = layer(draw, kind), normal(draw, 7, 2)
        y = outputs(rnn, x).detach()
        errors.append(error(states(rnn, x, form), y))
        literal.append(error(states(rnn, x, as_fixed_point), y))
    first = torch.tanh(x[0] @ rnn.weight_ih.T + rnn.bias)
    return evidence(
        at_most("largest difference from the layer, three scores", max(errors), 1e-12),
        at_least("the circular equations, solved, differ by", min(literal), 1e-5),
        at_most("h_1 against RNN(x_1, 0), so that a_1 = 0", error(y[0], first), 1e-12),
    )


def states(rnn: AttentiveRNN, x: Tensor, form: Pass) -> Tensor:
    """h_1, …, h_T from the plain equations.    (T, H)"""
    score, found = score_of(rnn), [torch.tanh(x[0] @ rnn.weight_ih.T + rnn.bias)]
    for row in x[1:]:
        candidate = torch.tanh(row @ rnn.weight_ih.T + found[-1] @ rnn.weight_hh.T + rnn.bias)
        found.append(form(candidate, torch.stack(found), score))
    return torch.stack(found).detach()


def score_of(rnn: AttentiveRNN) -> Score:
    if rnn.score == "additive":
        return lambda q, k: torch.tanh(rnn.W_1 @ q + k @ rnn.W_2.T) @ rnn.v
    return lambda q, k: k @ q / (sqrt(SIZE) if rnn.score == "scaled" else 1.0)
