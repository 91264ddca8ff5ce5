"""Claims about the LSTM: derivatives of one step, and the paths that a closed forget gate leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch import Tensor

from seqlab.ops.reference.recurrence import CellWeights
from seqlab.theory.instances import normal, orthogonal, stream
from seqlab.theory.jacobians import jacobian, recorded, relative_error, spectral_norm
from seqlab.theory.ledger import LEDGER, Evidence, at_least, at_most, evidence, exactly
from seqlab.theory.lstm_steps import (
    HIDDEN,
    INPUT,
    SHUT,
    Step,
    by_weight,
    candidate_rows,
    cell_of_the_layer,
    cell_paths,
    draw_weights,
    hidden_paths,
    layer_of,
    look,
    total,
)
from seqlab.theory.symbols import step as line
from seqlab.theory.symbols import vanishes

SETTING = (
    r"The gates $f_t$ (forget), $i_t$ (input) and $o_t$ (output) are each $\sigma(W x_t + U h_{t-1} + b)$ with "
    r"weights of their own, $\tilde C_t = \tanh(W_g x_t + U_g h_{t-1} + b_g)$, the cell is $C_t = f_t \circ "
    r"C_{t-1} + i_t \circ \tilde C_t$ and the output $h_t = o_t \circ \tanh C_t$."
)
claim = LEDGER.of("lstm", SETTING)

Instance = tuple[CellWeights, Tensor, Tensor, Tensor]  # weights, x (T, D), h_0 and C_0 (1, H)
Derivative = Callable[[CellWeights, Tensor, Tensor, Tensor], Tensor]
Slope = Callable[[Any, Any], Any]  # of o and tanh C
TwoSteps = Callable[[Step, Step, Tensor], tuple[Tensor, Tensor]]  # -> direct and total ∂C_t/∂C_{t−1}
Immediate = Callable[[Step], Tensor]  # what multiplies x_t in ∂⁺C_t/∂W_g, (1, H)
PATHS = ("i", "f", "candidate", "o")


def drawn(draw: torch.Generator, time: int = 1, **biases: float) -> Instance:
    weights = draw_weights(draw, **biases)
    return weights, normal(draw, time, INPUT), normal(draw, 1, HIDDEN, scale=0.5), normal(draw, 1, HIDDEN)


def first_step(weights: CellWeights, x: Tensor, h: Tensor, c: Tensor) -> Step:
    return look(layer_of(weights), x[:1], h, c)[0]


# --------------------------------------------------------------------------- a closed forget gate


def by_autograd(weights: CellWeights, x: Tensor, h: Tensor, c: Tensor) -> Tensor:
    """∂h_t/∂h_{t−1} of the layer at fixed C_{t−1}."""
    return jacobian(lambda past: cell_of_the_layer(x, past, c, weights)[0], h)


def by_the_forget_gate(weights: CellWeights, x: Tensor, h: Tensor, c: Tensor) -> Tensor:
    """As if all that reaches the past passed f_t."""
    step = first_step(weights, x, h, c)
    return (step.cell_to_hidden * step.f[0]).diag()


def by_all_but_the_output(weights: CellWeights, x: Tensor, h: Tensor, c: Tensor) -> Tensor:
    return total(hidden_paths(first_step(weights, x, h, c), weights.w_hh), ("i", "f", "candidate"))


@claim(
    "lstm.forget-zero-flows",
    statement=r"$f_t = 0$ does not block the error: it still reaches $h_{t-1}$.",
    note=r"It blocks the direct path $C_t \to C_{t-1}$ only.",
    verdict="true",
    method="identity",
    right=by_autograd,
    wrong={"all passes the forget gate": by_the_forget_gate, "the output gate left out": by_all_but_the_output},
    about=("seqlab.layers:LSTM",),
)
def forget_zero_flows(seed: int, form: Derivative) -> Evidence:
    instance = drawn(stream(seed, "lstm.forget-zero-flows"), f=SHUT)
    weights, x, h, c = instance
    found, step = form(*instance), first_step(*instance)
    summed = total(hidden_paths(step, weights.w_hh))
    direct = jacobian(lambda past: cell_of_the_layer(x, h, past, weights)[1], c)
    return evidence(
        at_least("‖∂h_t/∂h_{t−1}‖ at f_t = 0", spectral_norm(found), 0.01),
        at_most("relative difference from the sum over the gates", relative_error(found, summed), 1e-10),
        exactly("largest entry of f_t", step.f.max(), 0),
        exactly("‖∂C_t/∂C_{t−1}‖, the direct path", spectral_norm(direct), 0),
    )


@claim(
    "lstm.forget-zero-paths",
    statement=r"At $f_t = 0$ the paths to $h_{t-1}$ that remain are those through $i_t$ and $\tilde{C}_t$.",
    conditions=r"Only if $o_t$ does not read $h_{t-1}$. In general the path through $o_t$ remains too, with the factor "
    r"$\tanh C_t \circ o_t (1 - o_t)$. That through $f_t$ itself has the factor $C_{t-1} f_t (1 - f_t) \to 0$.",
    verdict="conditional",
    method="identity",
    right=PATHS,
    wrong={
        "i and the candidate only": ("i", "candidate"),
        "the candidate only": ("candidate",),
        "o only": ("o",),
    },
    about=("seqlab.layers:LSTM",),
)
def forget_zero_paths(seed: int, form: tuple[str, ...]) -> Evidence:
    draw = stream(seed, "lstm.forget-zero-paths")
    weights, x, h, c = drawn(draw, f=SHUT)
    paths = hidden_paths(first_step(weights, x, h, c), weights.w_hh)
    found = by_autograd(weights, x, h, c)
    blind = weights.w_hh.clone()  # the output gate does not read the past
    blind[3 * HIDDEN :] = 0
    without = weights._replace(w_hh=blind)
    two = total(hidden_paths(first_step(without, x, h, c), blind), ("i", "candidate"))
    closing = [forget_path(weights, bias, x, h, c) for bias in (-10.0, -20.0)]
    return evidence(
        at_most("relative error of the paths at f_t = 0", relative_error(total(paths, form), found), 1e-10),
        at_least("‖J − (i and candidate paths)‖", spectral_norm(found - total(paths, ("i", "candidate"))), 1e-3),
        at_most("i and candidate alone, where o is blind", relative_error(two, by_autograd(without, x, h, c)), 1e-10),
        at_most("‖path through f‖, bias −20 over bias −10", closing[1] / closing[0], 1e-3),
    )


def forget_path(weights: CellWeights, bias: float, x: Tensor, h: Tensor, c: Tensor) -> float:
    """Its norm where the forget gate has this bias."""
    b = weights.b_ih.clone()
    b[HIDDEN : 2 * HIDDEN] = bias
    at = weights._replace(b_ih=b)
    return spectral_norm(hidden_paths(first_step(at, x, h, c), at.w_hh)["f"])


LONG, GAIN = 20, 2.0


def through_the_candidate(i: float, o: float, f: float) -> float:
    """(i o ‖U_c‖)^T"""
    return float((i * o * GAIN) ** LONG)


@claim(
    "lstm.forget-summary",
    statement=r"A small $f_t$ does not by itself make gradients vanish: $f_t \to 0$ closes the direct path of the cell "
    r"only; the paths to $h_{t-1}$ through $i_t$, $\tilde{C}_t$ and $o_t$ remain.",
    note=r"At $x = h = C = 0$ and $f = 0$, $\lVert \partial h_T / \partial h_0 \rVert = (i\, o\, \lVert U_c \rVert)^T$ "
    r"for a multiple $U_c$ of an orthogonal matrix. The answer that a small $f_t$ must lead to vanishing gradients "
    r"counts the direct path only.",
    verdict="true",
    method="identity",
    right=through_the_candidate,
    wrong={
        "the direct path only": lambda i, o, f: f**LONG,
        "the output gate dropped": lambda i, o, f: (i * GAIN) ** LONG,
    },
    about=("seqlab.layers:LSTM",),
)
def forget_summary(seed: int, form: Callable[[float, float, float], float]) -> Evidence:
    draw = stream(seed, "lstm.forget-summary")
    weights = draw_weights(draw, f=SHUT, i=2.0, o=2.0, candidate=0.0)
    weights.w_hh[2 * HIDDEN : 3 * HIDDEN] = GAIN * orthogonal(draw, HIDDEN)
    zeros, gate = torch.zeros(1, HIDDEN, dtype=torch.float64), float(torch.sigmoid(torch.tensor(2.0).double()))
    layer, x = layer_of(weights), torch.zeros(1, LONG, INPUT, dtype=torch.float64)
    found = spectral_norm(jacobian(lambda h: layer(x, (h[None], zeros[None]))[0][:, -1], zeros))
    cell = jacobian(lambda c: cell_of_the_layer(x[:, 0], zeros, c, weights)[1], zeros)
    return evidence(
        at_least(f"‖∂h_T/∂h_0‖ at f = 0, T = {LONG}", found, 1.0),
        at_most("relative difference from the formula", form(gate, gate, 0.0) / found - 1, 1e-9),
        exactly("‖∂C_t/∂C_{t−1}‖, the direct path", spectral_norm(cell), 0),
    )


# --------------------------------------------------------------------------- one step


def output_slope(o: Any, squashed: Any) -> Any:
    return o * (1 - squashed**2)


@claim(
    "lstm.dh-dC",
    statement=r"$\frac{\partial h_t}{\partial C_t} = \mathrm{diag}(o_t \circ (1 - \tanh^2 C_t))$.",
    verdict="true",
    method="symbolic",
    right=output_slope,
    wrong={
        "the square dropped": lambda o, squashed: o * (1 - squashed),
        "the output gate dropped": lambda o, squashed: 1 - squashed**2,
        "the slope of σ": lambda o, squashed: o * squashed * (1 - squashed),
    },
    about=("seqlab.layers:LSTM",),
)
def hidden_by_cell(seed: int, form: Slope) -> Evidence:
    o, c = sympy.symbols("o C", real=True)
    slope = sympy.diff(o * sympy.tanh(c), c)
    weights, x, h, cell = drawn(stream(seed, "lstm.dh-dC"))
    step = first_step(weights, x, h, cell.requires_grad_())
    said = form(step.o, torch.tanh(step.c))[0].diag()
    return evidence(
        vanishes("difference from the derivative", slope - form(o, sympy.tanh(c))),
        at_most("relative difference from the layer's", relative_error(said, recorded(step.h, step.c)), 1e-10),
        steps=(line(r"\frac{\partial}{\partial C} o \tanh C", slope),),
    )


def diagonal_and_past(before: Step, now: Step, w_hh: Tensor) -> tuple[Tensor, Tensor]:
    """diag(f_t), and with it (∂C_t/∂h_{t−1}) diag(o_{t−1} (1 − tanh² C_{t−1}))."""
    direct = now.f[0].diag()
    return direct, direct + total(cell_paths(now, w_hh)) @ before.cell_to_hidden.diag()


def diagonal_twice(before: Step, now: Step, w_hh: Tensor) -> tuple[Tensor, Tensor]:
    return now.f[0].diag(), now.f[0].diag()


def by_input_gate(before: Step, now: Step, w_hh: Tensor) -> tuple[Tensor, Tensor]:
    direct = now.i[0].diag()
    return direct, direct + total(cell_paths(now, w_hh)) @ before.cell_to_hidden.diag()


@claim(
    "lstm.dC-dC",
    statement=r"$\frac{\partial C_t}{\partial C_{t-1}} = \mathrm{diag}(f_t)$.",
    conditions=r"As the direct partial derivative, $h_{t-1}$ held fixed. The total one adds "
    r"$\frac{\partial C_t}{\partial h_{t-1}} \mathrm{diag}(o_{t-1} \circ (1 - \tanh^2 C_{t-1}))$.",
    verdict="conditional",
    method="identity",
    right=diagonal_and_past,
    wrong={"also as the total derivative": diagonal_twice, "the input gate": by_input_gate},
    about=("seqlab.layers:LSTM",),
)
def cell_by_cell(seed: int, form: TwoSteps) -> Evidence:
    weights, x, h, c = drawn(stream(seed, "lstm.dC-dC"), time=2)
    before, now = look(layer_of(weights), x, h, c.requires_grad_())
    direct, whole = form(before, now, weights.w_hh)
    past, cell = before.h.detach(), before.c.detach()
    fixed = jacobian(lambda at: cell_of_the_layer(x[1:], past, at, weights)[1], cell)
    found = recorded(now.c, before.c)
    return evidence(
        at_most("relative error of the direct derivative", relative_error(direct, fixed), 1e-10),
        at_most("relative error of the total derivative", relative_error(whole, found), 1e-10),
        at_least("‖total − diag(f_t)‖", spectral_norm(found - now.f[0].diag()), 1e-3),
    )


def input_and_slope(step: Step) -> Tensor:
    """i (1 − c̃²): ∂⁺C_t = i ∂⁺c̃"""
    return step.i * (1 - step.candidate**2)


@claim(
    "lstm.dC-dW-immediate",
    statement=r"$\frac{\partial C_t}{\partial W_g} = i_t \frac{\partial \tilde{C}_t}{\partial W_g}$, with "
    r"$\tilde{C}_t = \tanh(W_g x_t + U_g h_{t-1})$.",
    conditions=r"As the immediate derivative, $h_{t-1}$ and $C_{t-1}$ held fixed. The total one also has "
    r"$f_t \frac{\partial C_{t-1}}{\partial W_g}$ and what $f_t$, $i_t$ and $\tilde{C}_t$ owe to $h_{t-1}$.",
    verdict="conditional",
    method="identity",
    right=input_and_slope,
    wrong={
        "the input gate dropped": lambda step: 1 - step.candidate**2,
        "the forget gate": lambda step: step.f * (1 - step.candidate**2),
        "the slope of σ": lambda step: step.i * step.candidate * (1 - step.candidate),
    },
    about=("seqlab.layers:LSTM",),
)
def cell_by_weight(seed: int, form: Immediate) -> Evidence:
    weights, x, h, c = drawn(stream(seed, "lstm.dC-dW-immediate"), time=2)
    layer = layer_of(weights)
    layer.weight_ih_l0.requires_grad_()
    steps, states = look(layer, x, h, c), [(h, c)]
    states.append((steps[0].h.detach(), steps[0].c.detach()))
    found = [candidate_rows(look(layer, x[t : t + 1], *states[t])[0].c, layer) for t in range(2)]
    said = [by_weight(form(step), x[t]) for t, step in enumerate(steps)]
    apart = max(relative_error(a, b) for a, b in zip(said, found, strict=True))
    whole, first = candidate_rows(steps[1].c, layer), candidate_rows(steps[0].c, layer)
    hidden = candidate_rows(steps[0].h, layer)
    chained = found[1] + steps[1].f[0].diag() @ first + total(cell_paths(steps[1], weights.w_hh)) @ hidden
    return evidence(
        at_most("relative error, both steps", apart, 1e-10),
        at_least("‖total − immediate‖ at the second step", spectral_norm(whole - found[1]), 1e-3),
        at_most("relative error of the total one as a chain", relative_error(chained, whole), 1e-10),
    )


import seqlab.theory.lstm_through_time  # noqa: E402, F401 - the rest of the subject
