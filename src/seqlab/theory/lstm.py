"""Claims about the LSTM: its gates, and what a zero input does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch import Tensor

from seqlab.ops.reference.recurrence import CellWeights, lstm_step
from seqlab.theory.instances import normal, stream, uniform
from seqlab.theory.jacobians import error, largest
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, at_least, at_most, between, evidence, exactly
from seqlab.theory.lstm_steps import (
    HIDDEN,
    INPUT,
    Step,
    alike,
    cell_of_the_layer,
    draw_weights,
    layer_of,
    look,
)

SETTING = (
    r"The gates $f_t$ (forget), $i_t$ (input) and $o_t$ (output) are each $\sigma(W x_t + U h_{t-1} + b)$ with "
    r"weights of their own, $\tilde C_t = \tanh(W_g x_t + U_g h_{t-1} + b_g)$, the cell is $C_t = f_t \circ "
    r"C_{t-1} + i_t \circ \tilde C_t$ and the output $h_t = o_t \circ \tanh C_t$."
)
claim = LEDGER.of("lstm", SETTING)

Cell = Callable[[Tensor, Tensor, Tensor, CellWeights], tuple[Tensor, Tensor]]
Gate = Callable[[Tensor], Tensor]  # before its nonlinearity (B, H) -> (B, H)
Curve = Callable[[Any, Any], Any]  # of z and an exponential function, symbolic or not
Promise = Callable[[Step], Tensor]  # whether each entry, or each cell, keeps it


# --------------------------------------------------------------------------- a zero input


def without_bias(weights: CellWeights) -> CellWeights:
    return weights._replace(b_ih=torch.zeros_like(weights.b_ih))


def still_at_zero(x: Tensor, h: Tensor, c: Tensor, weights: CellWeights) -> tuple[Tensor, Tensor]:
    """No input, no step."""
    new_h, new_c = lstm_step(x, h, c, weights)
    nothing = ~x.any(-1, keepdim=True)
    return torch.where(nothing, h, new_h), torch.where(nothing, c, new_c)


def without_recurrence(x: Tensor, h: Tensor, c: Tensor, weights: CellWeights) -> tuple[Tensor, Tensor]:
    return lstm_step(x, torch.zeros_like(h), c, weights)


def with_candidate_bias(x: Tensor, h: Tensor, c: Tensor, weights: CellWeights) -> tuple[Tensor, Tensor]:
    b = weights.b_ih.clone()
    b[2 * HIDDEN : 3 * HIDDEN] = 1.0
    return lstm_step(x, h, c, weights._replace(b_ih=b))


def with_positive_candidate(x: Tensor, h: Tensor, c: Tensor, weights: CellWeights) -> tuple[Tensor, Tensor]:
    """c̃ = σ(a) in place of tanh(a)."""
    i, f, a, o = (x @ weights.w_ih.T + h @ weights.w_hh.T + weights.b_ih + weights.b_hh).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.sigmoid(a)
    return torch.sigmoid(o) * torch.tanh(c), c


def drawn_states(draw: torch.Generator, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """x = 0, h within (−1, 1), c."""
    x = torch.zeros(count, INPUT, dtype=torch.float64)
    return x, uniform(draw, count, HIDDEN, low=-1, high=1), normal(draw, count, HIDDEN)


@claim(
    "lstm.zero-input",
    statement=r"$x_t = 0$ does not imply $h_t = h_{t-1}$.",
    note=r"At $x_t = 0$ the gates still read $h_{t-1}$, and $C_{t-1}$ still decays by $f_t$.",
    verdict="true",
    method="counterexample",
    right=cell_of_the_layer,
    wrong={"no input, no step": still_at_zero, "the gates do not read the past": without_recurrence},
    about=("seqlab.layers:LSTM",),
)
def zero_input(seed: int, form: Cell) -> Evidence:
    draw = stream(seed, "lstm.zero-input")
    weights, (x, h, c) = without_bias(draw_weights(draw)), drawn_states(draw, 64)
    moved = (form(x, h, c, weights)[0] - h).abs().amax(1)
    number = torch.ones(1, 1, dtype=torch.float64)
    smallest, _ = form(0 * number, 0 * number, 2 * number, alike(0.0))
    apart = error(form(x, h, c, weights)[0], lstm_step(x, h, c, weights)[0])
    return evidence(
        at_least("smallest max |h_t − h_{t−1}| of 64 states at x_t = 0", moved.min(), 1e-3),
        at_most("difference from the equations", apart, 1e-12),
        at_least("|h_t − h_{t−1}| of one unit", smallest.abs(), 0.1),
        counterexample=r"One unit, all weights 0: $h_{t-1} = 0$, $C_{t-1} = 2$, $x_t = 0$ give "
        rf"$h_t = \frac{{1}}{{2}} \tanh 1 = {float(smallest):.3f}$.",
    )


@claim(
    "lstm.zero-input-summary",
    statement=r"$h_t \ne h_{t-1}$ even if $x_t = 0$.",
    conditions=r"Not always: without biases $h_{t-1} = C_{t-1} = 0$ and $x_t = 0$ give $h_t = 0 = h_{t-1}$. Random "
    r"states do move, and so does the zero state of a cell with a bias in the candidate.",
    verdict="conditional",
    method="counterexample",
    right=cell_of_the_layer,
    wrong={
        "the candidate has a bias": with_candidate_bias,
        "the candidate is squashed by σ": with_positive_candidate,
        "no input, no step": still_at_zero,
    },
    about=("seqlab.layers:LSTM",),
)
def zero_input_summary(seed: int, form: Cell) -> Evidence:
    draw = stream(seed, "lstm.zero-input-summary")
    drawn = draw_weights(draw, candidate=1.0)
    weights, (x, h, c) = without_bias(drawn), drawn_states(draw, 64)
    resting, moving = form(x, 0 * h, 0 * c, weights), form(x, h, c, weights)
    return evidence(
        exactly("max |h_t − h_{t−1}| at h = C = x = 0, no biases", largest(resting[0]), 0),
        exactly("max |C_t − C_{t−1}| there", largest(resting[1]), 0),
        at_least("smallest max |h_t − h_{t−1}| of 64 other states", (moving[0] - h).abs().amax(1).min(), 1e-3),
        at_least("max |h_t − h_{t−1}| at h = C = x = 0 with a bias", largest(form(x, 0 * h, 0 * c, drawn)[0]), 0.01),
        counterexample=r"$h_{t-1} = C_{t-1} = 0$, $x_t = 0$, no biases: $h_t = h_{t-1}$.",
    )


# --------------------------------------------------------------------------- gates


def logistic(z: Any, exp: Any) -> Any:
    return 1 / (1 + exp(-z))


def hyperbolic(z: Any, exp: Any) -> Any:
    return (exp(z) - exp(-z)) / (exp(z) + exp(-z))


def without_one(z: Any, exp: Any) -> Any:
    return 1 / exp(-z)


@claim(
    "lstm.gates-nonnegative",
    statement=r"The entries of $f_t$, $i_t$ and $o_t$ lie strictly between 0 and 1.",
    note=r"In real arithmetic. In float32 $\sigma(z)$ rounds to exactly 1 from about $z = 17$ on, and PyTorch gives "
    r"exactly 0 below about $z = -89$.",
    verdict="true",
    method="symbolic",
    right=logistic,
    wrong={"tanh": hyperbolic, "the 1 of the denominator dropped": without_one},
    about=("seqlab.layers:LSTM",),
)
def gates_nonnegative(seed: int, form: Curve) -> Evidence:
    z = sympy.Symbol("z", real=True)
    gate, rest = form(z, sympy.exp), sympy.simplify(1 - form(z, sympy.exp))
    draw = stream(seed, "lstm.gates-nonnegative")
    weights, h, x = draw_weights(draw, 2.0), normal(draw, 1, HIDDEN), normal(draw, 1, INPUT)
    step = look(layer_of(weights), x, h, h)[0]
    found = torch.cat([step.i, step.f, step.o], 1)
    a_i, a_f, _, a_o = (x @ weights.w_ih.T + h @ weights.w_hh.T + weights.b_ih).chunk(4, 1)
    said = form(torch.cat([a_i, a_f, a_o], 1), torch.exp)
    single = torch.arange(-120, 20, 0.25)
    rounded = torch.sigmoid(single)
    return evidence(
        exactly("of 0 < gate and gate < 1, proved for all real z", sum(e.is_positive is True for e in (gate, rest)), 2),
        at_most("difference from the layer's gates", error(said, found), 1e-12),
        at_least("smallest gate of the layer", found.min(), 1e-300),
        at_least("1 − the largest", 1 - found.max(), 1e-16),
        between("float32: exactly 1 from z =", single[rounded == 1].min(), 16.0, 18.0),
        between("float32: exactly 0 up to z =", single[rounded == 0].max(), -104.5, -87.0),
        steps=(rf"g(z) = {sympy.latex(gate)} > 0", rf"1 - g(z) = {sympy.latex(rest)} > 0"),
    )


def keeps_signs(step: Step) -> Tensor:
    """f ∘ C has the signs of C, and is smaller."""
    kept = step.f * step.c_before
    return (kept.sign() == step.c_before.sign()) & (kept.abs() < step.c_before.abs())


def never_all_negative(step: Step) -> Tensor:
    return (step.c >= 0).any(1)


def cell_keeps_sign(step: Step) -> Tensor:
    return step.c.sign() == step.c_before.sign()


@claim(
    "lstm.forget-never-negative",
    statement=r"The forget gate never lets the memory cell become negative in all entries.",
    correction=r"$C_t$ may be negative in every entry: if $C_{t-1} < 0$ and $\tilde{C}_t \le 0$ there. What holds is "
    r"that $f_t \in (0, 1)$ keeps the sign of each entry of $C_{t-1}$ and shrinks its size.",
    verdict="false",
    method="counterexample",
    right=keeps_signs,
    wrong={AS_STATED: never_all_negative, "the whole cell keeps its signs": cell_keeps_sign},
    about=("seqlab.layers:LSTM",),
)
def forget_never_negative(seed: int, form: Promise) -> Evidence:
    draw = stream(seed, "lstm.forget-never-negative")
    layer, h = layer_of(draw_weights(draw, 0.5, candidate=-20.0, i=0.0)), normal(draw, 1, HIDDEN, scale=0.1)
    cells = [sign * uniform(draw, 1, HIDDEN, low=0.01, high=0.1) for sign in (-1, 1) for _ in range(50)]
    steps = [look(layer, 0 * normal(draw, 1, INPUT), h, c)[0] for c in cells]
    negative = sum(bool((s.c < 0).all()) for s in steps[:50])
    one = torch.ones(1, 1, dtype=torch.float64)
    smallest = look(layer_of(alike(0.0)), 0 * one, 0 * one, -one)[0]
    return evidence(
        exactly("cells that break the promise, of 101", sum(not form(s).all() for s in [*steps, smallest]), 0),
        exactly("cells all negative after, of 50 all negative before", negative, 50),
        between("C_t of one unit, all weights 0, C_{t−1} = −1", smallest.c, -0.5 - 1e-12, -0.5 + 1e-12),
        counterexample=rf"One unit, all weights 0: $C_{{t-1}} = -1$ gives $C_t = {float(smallest.c):g}$.",
    )


def gate_of_the_layer(z: Tensor) -> Tensor:
    """The forget gate of a layer that reads z as it is."""
    size = z.shape[1]
    none = torch.zeros(4 * size, size, dtype=z.dtype)
    reads = none.clone()
    reads[size : 2 * size] = torch.eye(size, dtype=z.dtype)
    layer = layer_of(CellWeights(reads, none, none[:, 0], none[:, 0]))
    return torch.cat([look(layer, row[None], 0 * row[None], 0 * row[None])[0].f for row in z])


def shares(z: Tensor) -> Tensor:
    gates = torch.sigmoid(z)
    return gates / gates.sum(1, keepdim=True)


@claim(
    "lstm.gates-not-distribution",
    statement=r"The entries of a gate need not sum to 1.",
    note=r"Each entry is a gate of its own. The sum lies in $(0, H)$; all weights zero give $H/2$, which happens to be "
    r"1 for $H = 2$.",
    verdict="true",
    method="counterexample",
    right=gate_of_the_layer,
    wrong={"softmax": lambda z: torch.softmax(z, 1), "divided by their sum": shares},
    about=("seqlab.layers:LSTM",),
)
def gates_not_distribution(seed: int, form: Gate) -> Evidence:
    sizes = range(1, 7)
    at_zero = [float(form(torch.zeros(1, size, dtype=torch.float64)).sum()) for size in sizes]
    halves = sum(found == size / 2 for found, size in zip(at_zero, sizes, strict=True))
    sums = form(normal(stream(seed, "lstm.gates-not-distribution"), 40, HIDDEN, scale=3.0)).sum(1)
    return evidence(
        exactly("sum of the entries at zero weights, H = 3", at_zero[2], 1.5),
        exactly("sizes of 1 to 6 whose sum is H/2", halves, 6),
        at_least("smallest sum of 40 random gates, H = 4", sums.min(), 0.0),
        between("largest", sums.max(), 1.5, HIDDEN),
        at_least("how much the sums differ", sums.max() - sums.min(), 0.1),
        counterexample=rf"$H = 3$, all weights 0: $f_t = (0.5, 0.5, 0.5)$, whose sum is ${at_zero[2]:g}$.",
    )


import seqlab.theory.lstm_gradients  # noqa: E402, F401 - the rest of the subject
