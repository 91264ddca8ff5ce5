"""Claims about the GRU: what its two gates do, and its two forms.

    r, z = σ(W x + U h + b),  ĥ = tanh(W x + b + r ∘ (U h + c)),  h_t = (1 − z) ∘ h_{t−1} + z ∘ ĥ

Weights are stacked by gate, r, z, ĥ, as in torch; there z and 1 − z are exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch import Tensor, nn

from seqlab.layers import GRU
from seqlab.ops.reference.recurrence import CellWeights
from seqlab.theory.exponents import exponent
from seqlab.theory.gru_steps import (
    HIDDEN,
    INPUT,
    SATURATED,
    biased,
    candidate_added,
    cell_of_the_layer,
    draw_weights,
    drawn_states,
    gates_exchanged,
    parts,
    piecewise_linear_gates,
    reset_of_everything,
    watched,
)
from seqlab.theory.instances import fill, normal, stream
from seqlab.theory.jacobians import error, jacobian, largest, relative_error, spectral_norm
from seqlab.theory.ledger import LEDGER, Evidence, at_least, at_most, between, evidence, exactly
from seqlab.theory.symbols import step as line
from seqlab.theory.symbols import vanishes

SETTING = (
    r"$z_t$ (update) and $r_t$ (reset) are each $\sigma(W x_t + U h_{t-1} + b)$ with weights of their own, "
    r"$\hat h_t = \tanh(W x_t + b + r_t \circ (U h_{t-1} + c))$, and $h_t = (1 - z_t) \circ h_{t-1} + z_t \circ "
    r"\hat h_t$."
)
claim = LEDGER.of("gru", SETTING)

Cell = Callable[[Tensor, Tensor, CellWeights], Tensor]  # x (B, D), h (B, H) -> (B, H)
Derivative = Callable[[Tensor, Tensor, CellWeights], Tensor]  # x (1, D), h (1, H) -> ∂h_t/∂x_t (H, D)
Conversion = Callable[[nn.GRU], GRU]
Placement = Callable[[Any, Any, Any], Any]  # diag(r), U, h -> what r leaves of the past


# --------------------------------------------------------------------------- the update gate


@claim(
    "gru.update-gate-closed",
    statement=r"$z_t \to 0$ implies $h_t \to h_{t-1}$; exactly, $h_t - h_{t-1} = z_t \circ (\hat{h}_t - h_{t-1})$.",
    note=r"So $|h_t - h_{t-1}| \le z_t \circ (1 + |h_{t-1}|)$, at most $2 z_t$ if $|h_0| \le 1$. It depends on the "
    r"convention: in torch.nn.GRU $z$ and $1 - z$ are exchanged, and the same sentence is false.",
    verdict="true",
    method="identity",
    right=cell_of_the_layer,
    wrong={"z and 1 − z exchanged": gates_exchanged, "the candidate added": candidate_added},
    about=("seqlab.layers:GRU",),
)
def update_gate_closed(seed: int, form: Cell) -> Evidence:
    draw = stream(seed, "gru.update-gate-closed")
    weights, (x, h) = draw_weights(draw), drawn_states(draw)
    step, moved = watched(x, h, weights), form(x, h, weights) - h
    closed = form(x, h, biased(weights, z=-SATURATED)) - h
    nearly = biased(weights, z=-30.0)
    return evidence(
        at_most("largest difference of the two sides", error(moved, step.z * (step.candidate - h)), 1e-12),
        between("largest |h_t − h_{t−1}| over z(1 + |h_{t−1}|)", (moved.abs() / (step.z * (1 + h.abs()))).max(), 0, 1),
        between("largest |h_t − h_{t−1}| over 2z", (moved.abs() / (2 * step.z)).max(), 0, 1),
        at_most("largest |h_t − h_{t−1}|, gate bias −30", largest(form(x, h, nearly) - h), 1e-7),
        exactly("largest |h_t − h_{t−1}| at z = 0", largest(closed), 0),
    )


def input_by_autograd(x: Tensor, h: Tensor, weights: CellWeights) -> Tensor:
    return jacobian(lambda at: cell_of_the_layer(at, h, weights), x)


def input_paths(x: Tensor, h: Tensor, weights: CellWeights) -> tuple[Tensor, Tensor]:
    """Through z: diag(ĥ − h) diag(z(1 − z)) W_z; through ĥ: diag(z) diag(1 − ĥ²)(W + diag((U h + c) r(1 − r)) W_r)."""
    W_r, W_z, W = weights.w_ih.chunk(3)
    step, a_h = watched(x, h, weights), parts(x, h, weights)[3]
    by_gate = ((step.candidate - h) * step.z * (1 - step.z))[0].diag() @ W_z
    by_reset = (a_h * step.r * (1 - step.r))[0].diag() @ W_r
    return by_gate, (step.z * (1 - step.candidate**2))[0].diag() @ (W + by_reset)


@claim(
    "gru.closed-ignores-input",
    statement=r"With $z_t \approx 0$ the GRU ignores the current input.",
    note=r"In the limit: $\frac{\partial h_t}{\partial x_t} = \mathrm{diag}(\hat{h}_t - h_{t-1})\, \mathrm{diag}(z (1 "
    r"- z)) W_z + \mathrm{diag}(z) \frac{\partial \hat{h}_t}{\partial x_t}$, and both terms are of the order of $z$.",
    verdict="true",
    method="identity",
    right=input_by_autograd,
    wrong={
        "z and 1 − z exchanged": lambda x, h, weights: jacobian(lambda at: gates_exchanged(at, h, weights), x),
        "the path through the gate dropped": lambda x, h, weights: input_paths(x, h, weights)[1],
        "the path through the candidate dropped": lambda x, h, weights: input_paths(x, h, weights)[0],
    },
    about=("seqlab.layers:GRU",),
)
def closed_ignores_input(seed: int, form: Derivative) -> Evidence:
    draw = stream(seed, "gru.closed-ignores-input")
    weights, (x, h) = draw_weights(draw), drawn_states(draw, 1)
    closing = [biased(weights, z=-bias) for bias in (8.0, 12.0, 16.0, 20.0)]
    gates = [float(watched(x, h, at).z.norm()) for at in closing]
    norms = [spectral_norm(form(x, h, at)) for at in closing]
    summed = sum(input_paths(x, h, weights), torch.zeros(()))
    return evidence(
        between("slope of ln ‖∂h_t/∂x_t‖ over ln ‖z‖", exponent(gates, norms), 0.99, 1.01),
        at_most("relative difference from the two terms", relative_error(form(x, h, weights), summed), 1e-10),
        at_most("‖∂h_t/∂x_t‖, gate bias −20", norms[-1], 1e-5),
    )


@claim(
    "gru.reset-overwrites",
    statement=r"$z_t \to 1$ and $r_t \to 0$ imply $h_t \to \tanh(W x_t + b)$: the cell does not remember the past well "
    r"then, it overwrites it.",
    note=r"$|h_t - \tanh(W x_t + b)| \le (1 - z_t) |h_{t-1} - \hat{h}_t| + r_t |U h_{t-1} + c|$, entry by entry. The "
    r"gates read $h_{t-1}$, but where they saturate their slopes vanish.",
    verdict="true",
    method="identity",
    right=cell_of_the_layer,
    wrong={"z and 1 − z exchanged": gates_exchanged, "the reset gate on the input too": reset_of_everything},
    about=("seqlab.layers:GRU",),
)
def reset_overwrites(seed: int, form: Cell) -> Evidence:
    draw = stream(seed, "gru.reset-overwrites")
    weights, (x, h) = draw_weights(draw), drawn_states(draw)
    _, _, a_x, a_h = parts(x, h, weights)
    excess = []
    for bias in (0.0, 2.0, 5.0):
        at = biased(weights, z=bias, r=-bias)
        step = watched(x, h, at)
        bound = (1 - step.z) * (h - step.candidate).abs() + step.r * a_h.abs()
        excess.append((form(x, h, at) - torch.tanh(a_x)).abs() - bound)
    overwritten = biased(weights, z=SATURATED, r=-SATURATED)
    limit = form(x, h, overwritten)
    return evidence(
        at_most("|h_t − tanh(W x_t + b)| at z = 1, r = 0", error(limit, torch.tanh(a_x)), 1e-12),
        at_most("largest excess over the bound", torch.stack(excess).max().clamp(min=0), 1e-12),
        at_most(
            "effect of another past at z = 1, r = 0",
            error(limit, form(x, -h, biased(weights, z=SATURATED, r=-SATURATED))),
            1e-12,
        ),
    )


@claim(
    "gru.feedforward-limit",
    statement=r"As $z_t \to 1$ and $r_t \to 0$ the past is not remembered at all, and the cell is a feed-forward "
    r"layer.",
    conditions=r"In the limit only: $\sigma$ is never exactly 0 or 1, so that $\frac{\partial h_t}{\partial h_{t-1}}$ "
    r"is of the order of $e^{-a}$ where $\pm a$ stands before $\sigma$: small, but not 0. Floating point may round it "
    r"to 0.",
    verdict="conditional",
    method="identity",
    right=cell_of_the_layer,
    wrong={"gates that reach 0 and 1": piecewise_linear_gates, "z and 1 − z exchanged": gates_exchanged},
    about=("seqlab.layers:GRU",),
)
def feedforward_limit(seed: int, form: Cell) -> Evidence:
    draw = stream(seed, "gru.feedforward-limit")
    weights, (x, h) = draw_weights(draw), drawn_states(draw, 1)
    biases = (10.0, 15.0, 20.0)
    norms = [past_norm(form, x, h, biased(weights, z=bias, r=-bias)) for bias in biases]
    gone = past_norm(form, x, h, biased(weights, z=SATURATED, r=-SATURATED))
    rate = math.log(norms[2] / norms[1]) / (biases[2] - biases[1]) if min(norms) > 0 else math.inf
    return evidence(
        between("‖∂h_t/∂h_{t−1}‖ at gate biases 20 and −20", norms[2], 1e-14, 1e-4),
        between("slope of its logarithm over the bias", rate, -1.02, -0.98),
        exactly("‖∂h_t/∂h_{t−1}‖ where the gates round to 1 and 0", gone, 0),
    )


def past_norm(cell: Cell, x: Tensor, h: Tensor, weights: CellWeights) -> float:
    """‖∂h_t/∂h_{t−1}‖"""
    return spectral_norm(jacobian(lambda past: cell(x, past, weights), h))


# --------------------------------------------------------------------------- torch's form


def copied(module: nn.GRU, *negated: str) -> GRU:
    """seqlab's layer with torch's weights, the update gate's rows negated in those whose name begins so."""
    layer = GRU.from_torch(module)
    stored = {}
    for name, weight in module.state_dict().items():
        reset, update, candidate = weight.chunk(3)
        stored[name] = torch.cat([reset, -update if name.startswith(negated) else update, candidate])
    layer.load_state_dict(stored)
    return layer


@claim(
    "gru.torch-equivalence",
    statement=r"This cell equals PyTorch's after the change $z_{\mathrm{torch}} = 1 - z$.",
    note=r"$\sigma(-a) = 1 - \sigma(a)$: the update gate's weights and biases are negated. Both put the reset gate "
    r"after $U h$, with a bias inside it, and store the gates in the order $r$, $z$, candidate.",
    verdict="true",
    method="identity",
    right=GRU.from_torch,
    wrong={
        "nothing negated": lambda module: copied(module, "none"),
        "weights negated, biases not": lambda module: copied(module, "weight"),
        "the biases of x only": lambda module: copied(module, "weight", "bias_ih"),
    },
    about=("seqlab.layers:GRU",),
)
def torch_equivalence(seed: int, form: Conversion) -> Evidence:
    draw = stream(seed, "gru.torch-equivalence")
    module = fill(new_torch_gru(), draw)
    assert isinstance(module, nn.GRU)
    layer, x = form(module), normal(draw, 5, 7, INPUT)
    expected, last = module(x)
    y, state = layer(x)
    again, _ = layer.to_torch()(x)
    plain = copied(module, "none")(x)[0]
    assert isinstance(state, Tensor)
    return evidence(
        at_most("largest difference from torch.nn.GRU, 2 layers, both directions", error(y, expected), 1e-12),
        at_most("of the last states", error(state, last), 1e-12),
        at_most("of the layer converted back", error(again, expected), 1e-12),
        at_least("largest difference with nothing negated", largest(plain - expected), 0.01),
    )


def new_torch_gru() -> nn.GRU:
    with torch.random.fork_rng(devices=[]):
        return nn.GRU(INPUT, HIDDEN, 2, batch_first=True, bidirectional=True)


# --------------------------------------------------------------------------- the place of the reset gate


def two_units() -> tuple[Any, Any, Any]:
    """diag(r), U and h of symbols."""
    r = sympy.diag(*sympy.symbols("r_1 r_2"))
    return r, sympy.Matrix(2, 2, sympy.symbols("U_11 U_12 U_21 U_22")), sympy.Matrix(sympy.symbols("h_1 h_2"))


def after(r: Any, U: Any, h: Any) -> Any:
    """r ∘ (U h)"""
    return r @ (U @ h)


def before(r: Any, U: Any, h: Any) -> Any:
    """U (r ∘ h)"""
    return U @ (r @ h)


@claim(
    "gru.reset-placement",
    statement=r"$r \circ (U h)$ and $U (r \circ h)$ make different cells.",
    note=r"$r \circ (U h) - U (r \circ h) = (D U - U D) h$ with $D = \mathrm{diag}(r)$, whose entries are $(r_k - r_l) "
    r"U_{kl}$: they agree for all $h$ exactly if $U$ commutes with $D$, as where all $r_k$ are equal or $U$ is "
    r"diagonal. seqlab and torch.nn.GRU have the first form.",
    verdict="true",
    method="symbolic",
    right=after,
    wrong={"the reset gate before U": before, "no reset gate": lambda r, U, h: U @ h},
    about=("seqlab.layers:GRU",),
)
def reset_placement(seed: int, form: Placement) -> Evidence:
    draw = stream(seed, "gru.reset-placement")
    weights, (x, h) = draw_weights(draw), drawn_states(draw, 1)
    step, U, c = watched(x, h, weights), weights.w_hh.chunk(3)[2], weights.b_hh.chunk(3)[2]
    r = step.r[0]
    candidate = torch.tanh(parts(x, h, weights)[2][0] + form(r.diag(), U, h[0]) + r * c)
    other = [form(*case) - before(*case) for case in special_cases(r, U, h[0])]
    general = largest(form(r.diag(), U, h[0]) - before(r.diag(), U, h[0]))
    D, V, past = two_units()
    difference = (form(D, V, past) - before(D, V, past)).expand()
    commutator = D @ V - V @ D
    return evidence(
        vanishes("difference from the commutator", difference - commutator @ past),
        at_most("difference from the layer's candidate", error(candidate, step.candidate[0]), 1e-12),
        at_least("largest difference of the two, in general", general, 1e-3),
        at_most("of the two where all r are equal", largest(other[0]), 1e-12),
        at_most("of the two where U is diagonal", largest(other[1]), 1e-12),
        steps=(line(r"r \circ (U h) - U (r \circ h)", difference), line("D U - U D", commutator)),
    )


def special_cases(r: Tensor, U: Tensor, h: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """All r equal; U diagonal."""
    return [(r[:1].expand(len(r)).diag(), U, h), (r.diag(), U.diagonal().diag(), h)]
