"""Claims about the LSTM: gradients of its weights through all steps, and how gradients shrink and grow.

W_g are the candidate's weights of the input, C̃_t = tanh(W_g x_t + U_g h_{t−1}); J = Σ_t ℓ_t(h_t).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from seqlab.diagnostics.gradient_flow import gradient_flow
from seqlab.layers import LSTM
from seqlab.ops import recurrence
from seqlab.ops.reference.recurrence import CellWeights
from seqlab.theory.instances import normal, orthogonal, stream
from seqlab.theory.jacobians import error, relative_error
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, at_least, at_most, between, evidence, exactly
from seqlab.theory.lstm_steps import (
    HIDDEN,
    INPUT,
    Step,
    alike,
    by_weight,
    cell_paths,
    draw_weights,
    hidden_paths,
    layer_of,
    look,
    total,
)

SETTING = (
    r"The gates $f_t$ (forget), $i_t$ (input) and $o_t$ (output) are each $\sigma(W x_t + U h_{t-1} + b)$ with "
    r"weights of their own, $\tilde C_t = \tanh(W_g x_t + U_g h_{t-1} + b_g)$, the cell is $C_t = f_t \circ "
    r"C_{t-1} + i_t \circ \tilde C_t$ and the output $h_t = o_t \circ \tanh C_t$. $J$ is the loss."
)
claim = LEDGER.of("lstm", SETTING)

CELL_PATHS, ALL_PATHS = ("i", "f", "candidate"), ("i", "f", "candidate", "o")


# --------------------------------------------------------------------------- a training example


@dataclass(frozen=True)
class Example:
    """A sequence with J = Σ_t ½‖h_t − target_t‖², from h_0 = C_0 = 0."""

    weights: CellWeights
    x: Tensor  # (T, D)
    targets: Tensor  # (T, H)

    def watched(self) -> tuple[list[Step], Tensor]:
        """The steps, and J, with gradients recorded."""
        layer = layer_of(self.weights)
        layer.weight_ih_l0.requires_grad_()
        start = self.x.new_zeros(1, self.targets.shape[1])
        steps = look(layer, self.x, start, start)
        losses = [((step.h[0] - target) ** 2).sum() / 2 for step, target in zip(steps, self.targets, strict=True)]
        return steps, torch.stack(losses).sum()


Gradient = Callable[[Example], Tensor]  # dJ/dW_g, (H·D,)


def drawn_example(draw: torch.Generator, time: int = 6) -> Example:
    return Example(draw_weights(draw), normal(draw, time, INPUT), normal(draw, time, HIDDEN))


def smallest_example(time: int) -> Example:
    """One unit, all weights and biases 1/2, inputs 1, −1, 1, …, targets 0."""
    x = (-1.0) ** torch.arange(time, dtype=torch.float64)[:, None]
    return Example(alike(0.5), x, 0 * x)


def true_gradient(example: Example) -> Tensor:
    """By seqlab's kernel and its own backward pass."""
    w_ih, w_hh, b, _ = example.weights
    w_ih, start = w_ih.clone().requires_grad_(), example.x.new_zeros(1, w_hh.shape[1])
    h, _ = recurrence.lstm(example.x[:, None], start, start, w_ih, w_hh, b)
    (found,) = torch.autograd.grad(((h[:, 0] - example.targets) ** 2).sum() / 2, w_ih)
    return found.chunk(4)[2].flatten()


# --------------------------------------------------------------------------- forward recursions


@dataclass(frozen=True)
class Recursion:
    """dJ/dW_g = Σ_t (∂J/∂h_t) dh_t with

        dC_t = i ∂⁺C̃_t + f dC_{t−1} + K dh_{t−1}
        dh_t = o (1 − tanh² C_t) (i ∂⁺C̃_t + f dC_{t−1}) + L dh_{t−1}

    in_cell    the gates of which K = ∂C_t/∂h_{t−1} holds the paths
    in_hidden  those of L = ∂h_t/∂h_{t−1}, at fixed C_{t−1}
    errors     ∂J/∂h_t: local, of ℓ_t alone, or total, as backpropagation gives it
    """

    in_cell: tuple[str, ...] = CELL_PATHS
    in_hidden: tuple[str, ...] = ALL_PATHS
    errors: str = "local"

    def __call__(self, example: Example) -> Tensor:
        steps, loss = example.watched()
        by_hidden = torch.autograd.grad(loss, [step.h for step in steps])
        w_hh = example.weights.w_hh
        d_cell = d_hidden = torch.zeros(w_hh.shape[1], w_hh.shape[1] * example.x.shape[1], dtype=w_hh.dtype)
        gradient = d_cell[0]
        for t, step in enumerate(steps):
            direct = by_weight(step.i * (1 - step.candidate**2), example.x[t]) + step.f[0].detach().diag() @ d_cell
            d_cell = direct + total(cell_paths(step, w_hh), self.in_cell) @ d_hidden
            along = total(hidden_paths(step, w_hh), self.in_hidden) @ d_hidden
            d_hidden = step.cell_to_hidden.detach().diag() @ direct + along
            errors = (step.h - example.targets[t])[0].detach() if self.errors == "local" else by_hidden[t][0]
            gradient = gradient + errors @ d_hidden
        return gradient


def by_cell_errors(example: Example) -> Tensor:
    """Σ_t (dJ/dC_t) ∂⁺C_t/∂W_g, with total dJ/dC_t."""
    steps, loss = example.watched()
    by_cell = torch.autograd.grad(loss, [step.c for step in steps])
    terms = [
        given[0] @ by_weight(step.i * (1 - step.candidate**2), x)
        for given, step, x in zip(by_cell, steps, example.x, strict=True)
    ]
    return torch.stack(terms).sum(0)


def by_local_errors(example: Example) -> Tensor:
    """Σ_t (∂ℓ_t/∂h_t) ∂⁺h_t/∂W_g: nothing goes back in time."""
    steps, _ = example.watched()
    terms = [
        (step.h - target)[0].detach() @ by_weight(step.cell_to_hidden * step.i * (1 - step.candidate**2), x)
        for target, step, x in zip(example.targets, steps, example.x, strict=True)
    ]
    return torch.stack(terms).sum(0)


TWO_TERMS, ONLY_OUTPUT = Recursion(in_cell=()), Recursion(in_cell=(), in_hidden=("o",))


@claim(
    "lstm.grad-Wg",
    statement=r"$\frac{dJ}{dW_g} = \sum_t \frac{\partial J}{\partial h_t} \left[ o_t (1 - \tanh^2 C_t) \left( i_t "
    r"\frac{\partial \tilde{C}_t}{\partial W_g} + f_t \frac{\partial C_{t-1}}{\partial W_g} \right) + "
    r"\frac{\partial h_t}{\partial h_{t-1}} \frac{\partial h_{t-1}}{\partial W_g} \right]$.",
    conditions=r"$J = \sum_t \ell_t(h_t)$, and $\frac{\partial J}{\partial h_t}$ is the local $\frac{\partial \ell_t}"
    r"{\partial h_t}$; $\frac{\partial \tilde{C}_t}{\partial W_g}$ is immediate; $\frac{\partial C_{t-1}}{\partial "
    r"W_g}$ and $\frac{\partial h_{t-1}}{\partial W_g}$ are total; $\frac{\partial h_t}{\partial h_{t-1}}$ is taken "
    r"at fixed $C_{t-1}$ and holds the paths of all four gates. The symbols do not say which is meant.",
    verdict="conditional",
    method="identity",
    right=Recursion(),
    wrong={
        "the path through o only": Recursion(in_hidden=("o",)),
        "the path through o left out": Recursion(in_hidden=CELL_PATHS),
        "total errors": Recursion(errors="total"),
    },
    about=("seqlab.ops.recurrence:lstm", "seqlab.layers:LSTM"),
)
def weight_gradient(seed: int, form: Gradient) -> Evidence:
    example, small = drawn_example(stream(seed, "lstm.grad-Wg")), smallest_example(3)
    truth = true_gradient(example)
    return evidence(
        at_most("relative error against backpropagation", relative_error(form(example), truth), 1e-10),
        at_most("the same for one unit and three steps", relative_error(form(small), true_gradient(small)), 1e-10),
        at_least("size of the gradient", truth.norm(), 1e-3),
    )


@claim(
    "lstm.grad-Wg-two-term-cell",
    statement=r"The equation of $\frac{dJ}{dW_g}$ closes with $\frac{\partial C_t}{\partial W_g} = i_t \frac{\partial "
    r"\tilde{C}_t}{\partial W_g} + f_t \frac{\partial C_{t-1}}{\partial W_g}$.",
    correction=r"The gates read $h_{t-1}$ too: $dC_t = i_t\, \partial^+ \tilde{C}_t + f_t\, dC_{t-1} + \frac{\partial "
    r"C_t}{\partial h_{t-1}} dh_{t-1}$ with $\frac{\partial C_t}{\partial h_{t-1}} = \mathrm{diag}(C_{t-1} f (1-f)) U_f"
    r" + \mathrm{diag}(\tilde{C}\, i (1-i)) U_i + \mathrm{diag}(i (1 - \tilde{C}^2)) U_g$.",
    note=r"For the first two steps the two terms suffice; the third is the first that shows the error.",
    verdict="false",
    method="identity",
    right=Recursion(),
    wrong={
        AS_STATED: TWO_TERMS,
        "with the path through o only": ONLY_OUTPUT,
        "the path through f left out": Recursion(in_cell=("i", "candidate")),
    },
    about=("seqlab.ops.recurrence:lstm", "seqlab.layers:LSTM"),
)
def two_term_cell(seed: int, form: Gradient) -> Evidence:
    example, small = drawn_example(stream(seed, "lstm.grad-Wg-two-term-cell")), smallest_example(3)
    truth = true_gradient(example)
    missed = relative_error(TWO_TERMS(small), true_gradient(small))
    early = relative_error(TWO_TERMS(smallest_example(2)), true_gradient(smallest_example(2)))
    return evidence(
        at_most("relative error against backpropagation", relative_error(form(example), truth), 1e-10),
        at_least("of the two terms", relative_error(TWO_TERMS(example), truth), 1e-3),
        at_least("of the two terms, with the path through o only", relative_error(ONLY_OUTPUT(example), truth), 1e-3),
        at_most("of the two terms for two steps", early, 1e-10),
        counterexample=r"One unit, all weights and biases $\frac{1}{2}$, inputs $1, -1, 1$, targets 0: relative error "
        f"{missed:.4f}.",
    )


@claim(
    "lstm.grad-Wg-double-count",
    statement=r"$\frac{dJ}{dW_g} = \sum_t \frac{dJ}{dh_t} \frac{dh_t}{dW_g}$ with the total $\frac{dJ}{dh_t}$ that "
    r"backpropagation gives and the total $\frac{dh_t}{dW_g}$.",
    correction=r"Total times total counts each path through several steps several times. Right are $\sum_t "
    r"\frac{dJ}{dC_t} \frac{\partial^+ C_t}{\partial W_g}$, total times immediate, and $\sum_t \frac{\partial \ell_t}"
    r"{\partial h_t} \frac{dh_t}{dW_g}$, local times total.",
    verdict="false",
    method="identity",
    right=by_cell_errors,
    wrong={AS_STATED: Recursion(errors="total"), "local times immediate": by_local_errors},
    about=("seqlab.layers:LSTM", "seqlab.ops.recurrence:lstm"),
)
def double_count(seed: int, form: Gradient) -> Evidence:
    example, small = drawn_example(stream(seed, "lstm.grad-Wg-double-count")), smallest_example(2)
    truth, doubled = true_gradient(example), Recursion(errors="total")
    missed = relative_error(doubled(small), true_gradient(small))
    return evidence(
        at_most("relative error against backpropagation", relative_error(form(example), truth), 1e-10),
        at_most("of local times total", relative_error(Recursion()(example), truth), 1e-10),
        at_least("of total times total", relative_error(doubled(example), truth), 1e-3),
        counterexample=r"One unit, all weights and biases $\frac{1}{2}$, inputs $1, -1$, targets 0: relative error "
        f"{missed:.4f}.",
    )


# --------------------------------------------------------------------------- shrinking and growing

Direct = Callable[[Tensor], Tensor]  # gates f_t of all steps (T, H) -> ∂C_T/∂C_0, (H,)


def unlooped(draw: torch.Generator, forget_bias: float, spread: float) -> CellWeights:
    """Without U, so that the direct path is the only one; `spread` scales how f_t follows the input."""
    weights = draw_weights(draw, f=forget_bias)
    weights.w_hh.zero_()
    weights.w_ih[HIDDEN : 2 * HIDDEN] *= spread
    return weights


def cell_gradient(layer: LSTM, x: Tensor) -> Tensor:
    """∂C_T/∂C_0 of a layer without U, which is diagonal.    x (T, D) -> (H,)"""
    start = torch.zeros(1, 1, HIDDEN, dtype=torch.float64)
    c = start.clone().requires_grad_()
    _, state = layer(x[None], (start, c))
    assert isinstance(state, tuple)
    (found,) = torch.autograd.grad(state[1].sum(), c)
    return found.flatten()


@claim(
    "lstm.forget-gate-mitigates",
    statement=r"$f_t \approx 1$ gives $\frac{\partial C_t}{\partial C_{t-1}} \approx 1$, so that gradients flow "
    r"through time unhindered.",
    conditions=r"On the direct path only, whose factor is $\prod_t f_t$, and only while $\sum_t (1 - f_t)$ stays "
    r"bounded: $1 - \sum_t (1 - f_t) \le \prod_t f_t \le e^{-\sum_t (1 - f_t)}$. Into the cell and out of it the "
    r"factors $i (1 - \tilde{C}^2)$ and $o (1 - \tanh^2 C)$ remain.",
    verdict="conditional",
    method="identity",
    right=lambda f: f.prod(0),
    wrong={
        "unhindered": lambda f: torch.ones_like(f[0]),
        "the last gate only": lambda f: f[-1],
        "to first order": lambda f: 1 - (1 - f).sum(0),
    },
    about=("seqlab.layers:LSTM",),
)
def forget_gate_mitigates(seed: int, form: Direct) -> Evidence:
    draw = stream(seed, "lstm.forget-gate-mitigates")
    x = normal(draw, 1000, INPUT)
    weights = unlooped(draw, 4.0, 0.5)
    gates = torch.sigmoid(x[:200] @ weights.w_ih[HIDDEN : 2 * HIDDEN].T + 4.0)
    varied, lost = cell_gradient(layer_of(weights), x[:200]), (1 - gates).sum(0)
    still = unlooped(draw, 0.0, 0.0)
    constant = torch.tensor([0.99, 0.99, 0.999, 0.999], dtype=torch.float64)
    still.b_ih[HIDDEN : 2 * HIDDEN] = torch.logit(constant)
    held = cell_gradient(layer_of(still), x)
    return evidence(
        between("∂C_T/∂C_0 over 1000 steps at f = 0.99", held[0], 4.3e-5, 4.33e-5),
        between("∂C_T/∂C_0 over 1000 steps at f = 0.999", held[2], 0.367, 0.369),
        at_most("relative error of the product for these", relative_error(form(constant.expand(1000, -1)), held), 1e-9),
        at_most("relative error of the product, gates that vary", relative_error(form(gates), varied), 1e-9),
        exactly("units outside the two bounds", ((varied < 1 - lost) | (varied > torch.exp(-lost))).sum(), 0),
    )


Powers = Callable[[Tensor, float, int], Tensor]  # U_c, f, T -> ∂C_T/∂C_0 at rest with i = o = 1/2
GAIN, TIME = 12.0, 31


def cell_and_hidden(U: Tensor, f: float, time: int) -> Tensor:
    """(f I + i o U_c)^T"""
    power: Tensor = torch.linalg.matrix_power(f * torch.eye(len(U), dtype=U.dtype) + U / 4, time)
    return power


def magnitude_kept(U: Tensor, f: float, time: int) -> Tensor:
    return torch.eye(len(U), dtype=U.dtype)


def forget_gates_alone(U: Tensor, f: float, time: int) -> Tensor:
    return f**time * torch.eye(len(U), dtype=U.dtype)


@claim(
    "lstm.maintains-magnitude",
    statement=r"LSTMs prevent vanishing and exploding gradients: they keep the gradient's magnitude.",
    correction=r"Vanishing is mitigated, exploding is not prevented: the paths through $h_{t-1}$ have factors of the "
    r"size of $\lVert U \rVert$. At rest, $x = h = C = 0$, $\frac{\partial C_T}{\partial C_0} = (f I + i\, o\, U_c)^T$ "
    r"with $U_c$ the candidate's recurrent weights. Against explosion gradients are clipped.",
    verdict="false",
    method="counterexample",
    right=cell_and_hidden,
    wrong={AS_STATED: magnitude_kept, "the forget gates alone": forget_gates_alone},
    about=("seqlab.layers:LSTM", "seqlab.diagnostics.gradient_flow:gradient_flow"),
)
def maintains_magnitude(seed: int, form: Powers) -> Evidence:
    draw = stream(seed, "lstm.maintains-magnitude")
    weights, turn = draw_weights(draw, i=0.0, o=0.0, candidate=0.0, f=1.0), orthogonal(draw, HIDDEN)
    f, W_c = float(torch.sigmoid(torch.tensor(1.0).double())), weights.w_ih.chunk(4)[2]
    flows, apart = {}, []
    for gain in (GAIN, 0.0):
        weights.w_hh[2 * HIDDEN : 3 * HIDDEN] = gain * turn
        flows[gain] = gradient_flow(layer_of(weights), torch.zeros(1, TIME, INPUT, dtype=torch.float64))
        said = torch.stack([(form(gain * turn, f, lag) @ W_c / 4).norm() for lag in range(TIME)])
        apart.append(error(torch.from_numpy(flows[gain].curve[0]).log(), said.log()))
    curve, single = flows[GAIN].curve[0], one_unit(4.0)
    return evidence(
        at_least("‖∂h_T/∂x_1‖ over ‖∂h_T/∂x_T‖, 30 steps apart", curve[30] / curve[0], 1e6),
        at_most("largest difference of ln ‖∂h_T/∂x_t‖ from the formula", max(apart), 1e-8),
        exactly("called exploding", flows[GAIN].verdict.word == "exploding", 1),
        at_most("growth per step with U = 0, less f", flows[0.0].verdict.growth.rate - f, 1e-8),
        counterexample=rf"One unit at rest, $i = o = 1/2$, $f = {f:.2f}$, $U_c = 4$: $\partial h_T / \partial x_t$ "
        rf"grows ${single[1] / single[0]:.2f}$ times in a step, ${single[10] / single[0]:,.0f}$ times in 10 and "
        rf"${single[30] / single[0]:,.0f}$ times in 30.",
    )


def one_unit(gain: float) -> Tensor:
    """|∂h_T/∂x_t| by the lag T − t, of one unit whose candidate alone reads the past."""
    reads, bias = (torch.zeros(4, 1, dtype=torch.float64) for _ in range(2))
    reads[2], bias[1] = gain, 1.0
    weights = CellWeights(torch.ones_like(reads), reads, bias[:, 0], 0 * bias[:, 0])
    flow = gradient_flow(layer_of(weights), torch.zeros(1, TIME, 1, dtype=torch.float64))
    return torch.from_numpy(flow.curve[0])
