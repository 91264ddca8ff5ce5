"""What stands behind a gradient's way: one-step Jacobians, gates, attention, and the ratio of updates to weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.core.taps import tap_names, taps
from seqlab.layers.recurrent import RNN, Recurrent

GATES = ("r", "z", "i", "f", "o")
SHUT, OPEN = 0.05, 0.95
STEEPEST = {"tanh": 1.0, "relu": 1.0, "sigmoid": 0.25}  # γ: the largest slope of φ
BINS = 20


# --------------------------------------------------------------------------- one step


@dataclass(frozen=True)
class StepJacobian:
    """∂s_t/∂s_{t−1} of one layer, s its state: h, of an LSTM (h, c)."""

    layer: int
    position: int
    frobenius: float
    spectral_norm: float  # the largest singular value
    spectral_radius: float  # the largest |eigenvalue|


def step_jacobians(layer: Recurrent, x: Tensor, places: Sequence[int]) -> list[StepJacobian]:
    """Of every layer at some positions (≥ 1) of one sequence x (T, D)."""
    found = []
    for number in range(layer.num_layers):
        one = single_layer(layer, number)
        with torch.no_grad():
            y, _ = one(x[None])
        for place in places:
            with torch.no_grad():
                _, state = one(x[None, :place])
            jacobian = step_jacobian(one, x[place], state)
            values = torch.linalg.svdvals(jacobian)
            found.append(
                StepJacobian(
                    number,
                    place,
                    float(jacobian.norm()),
                    float(values.max()),
                    float(torch.linalg.eigvals(jacobian).abs().max()),
                )
            )
        x = y[0]
    return found


def single_layer(layer: Recurrent, number: int) -> Recurrent:
    """One layer of several, forwards, as a layer of its own."""
    width = layer.input_size if number == 0 else layer.hidden_size * layer.directions
    options: dict[str, Any] = {"bias": layer.bias}
    if isinstance(layer, RNN):
        options |= {"nonlinearity": layer.nonlinearity, "form": layer.form}
    with torch.random.fork_rng(devices=[]):
        one = type(layer)(width, layer.hidden_size, **options)
    weights = {name: getattr(layer, name.replace("_l0", f"_l{number}")) for name, _ in one.named_parameters()}
    one.to(next(iter(weights.values())))
    one.load_state_dict(weights)
    return one.eval()


def step_jacobian(layer: Recurrent, x: Tensor, state: Any) -> Tensor:
    """∂s'/∂s at one input x (D,) and one state, parts (1, 1, H): a copy of the step for each row.    (n, n)"""
    parts = state if isinstance(state, tuple) else (state,)
    width = layer.hidden_size
    n = width * len(parts)
    copies = [part.detach().expand(1, n, width).clone().requires_grad_() for part in parts]
    _, after = layer(x.expand(n, 1, -1), tuple(copies) if isinstance(state, tuple) else copies[0])
    joint = torch.cat([part[0] for part in (after if isinstance(after, tuple) else (after,))], -1)
    gradients = torch.autograd.grad(joint.diagonal().sum(), copies)
    return torch.cat([gradient[0] for gradient in gradients], -1)


def bound_of(layer: RNN, number: int = 0) -> float:
    """δ = γ‖W‖: through this layer alone a gradient grows by no more than this with each step back."""
    weight = getattr(layer, f"weight_hh_l{number}").detach().double()
    return STEEPEST[layer.nonlinearity] * float(torch.linalg.matrix_norm(weight, 2))


# --------------------------------------------------------------------------- gates and attention


@dataclass(frozen=True)
class Gate:
    """How open a gate stands, over sequences, positions and units."""

    name: str
    shut: float  # share below 0.05
    open: float  # share above 0.95
    mean: float
    histogram: tuple[int, ...]  # over [0, 1]


@dataclass(frozen=True)
class Head:
    """One head's attention, over sequences and those queries that have a choice."""

    name: str
    head: int
    entropy: float  # nats
    evenness: float  # entropy over that of an even distribution
    jacobian: float  # mean ‖diag(p) − p pᵀ‖_F of the softmax: how much scores can still move the weights


def look_inside(model: nn.Module, run: Callable[[], Any]) -> tuple[list[Gate], list[Head]]:
    """Gates and heads in one forward pass."""
    names = tap_names(model)
    gates = [name for name in names if name.rpartition(".")[2] in GATES]
    heads = [name for name in names if name.endswith(".weights")]
    if not gates and not heads:
        return [], []
    with taps(model, *gates, *heads) as seen, torch.no_grad():
        run()
        return [_gate(name, seen[name]) for name in gates], [h for name in heads for h in _heads(name, seen, name)]


def _gate(name: str, values: Tensor) -> Gate:
    v = values.double()
    counts = torch.histc(v, BINS, 0.0, 1.0).long().tolist()
    return Gate(
        name, float((v < SHUT).double().mean()), float((v > OPEN).double().mean()), float(v.mean()), tuple(counts)
    )


def _heads(name: str, seen: Any, tap: str) -> list[Head]:
    steps = _attention_rows(seen, tap)
    found = []
    for head in range(steps[0].shape[1]):
        entropies, even, jacobians = [], [], []
        for p in steps:
            p = p[:, head].double().reshape(-1, p.shape[-1])
            visible = (p > 0).sum(-1)
            p, visible = p[visible > 1], visible[visible > 1]
            entropies.append(-torch.special.xlogy(p, p).sum(-1))
            even.append(visible.double().log())
            jacobians.append(softmax_jacobian_norm(p))
        entropy, most = torch.cat(entropies), torch.cat(even)
        if len(entropy):
            norm = float(torch.cat(jacobians).mean())
            found.append(Head(name, head, float(entropy.mean()), float((entropy / most).mean()), norm))
    return found


def _attention_rows(seen: Any, tap: str) -> list[Tensor]:
    """(B, N, T, S) of attention layers; (B, 1, L) for each step of an attentive RNN, and of pooling: one head."""
    try:
        steps: list[Tensor] = seen.steps(tap)
    except UsageError:  # it does not come in steps
        whole: Tensor = seen[tap]
        return [whole if whole.ndim == 4 else whole[:, None]]
    return [step[:, None] for step in steps if step.shape[-1] > 1]


def softmax_jacobian_norm(p: Tensor) -> Tensor:
    """‖diag(p) − p pᵀ‖_F, from positive terms only, so that nothing cancels where one p is nearly 1.    (…, S) -> (…)

    ‖·‖² = Σ_i p_i² ((1 − p_i)² + Σ_{j≠i} p_j²),    1 − p_i = Σ_{j≠i} p_j
    """
    largest, place = p.max(-1, keepdim=True)
    others = p.scatter(-1, place, 0.0)
    rest, squares = others.sum(-1, keepdim=True), others.square().sum(-1, keepdim=True)
    of_largest = largest.square() * (rest.square() + squares)
    of_others = others.square() * ((1 - others).square() + largest.square() + squares - others.square())
    return (of_largest + of_others.sum(-1, keepdim=True)).squeeze(-1).sqrt()


# --------------------------------------------------------------------------- parameters


@dataclass(frozen=True)
class Parameter:
    name: str
    weight: float  # ‖θ‖
    gradient: float  # ‖∂L/∂θ‖, L the mean loss
    update: float  # ‖Δθ‖/‖θ‖ of one step of the optimiser


def parameter_ratios(
    model: nn.Module,
    loss: Callable[[nn.Module], Tensor],
    optimiser: Callable[[nn.Module], torch.optim.Optimizer],
) -> list[Parameter]:
    """One step on a copy: the model itself does not change."""
    trial = copy.deepcopy(model)
    stepping = optimiser(trial)
    torch.autograd.backward(loss(trial).mean())
    gradients = {name: 0.0 if w.grad is None else float(w.grad.norm()) for name, w in trial.named_parameters()}
    before = {name: w.detach().clone() for name, w in trial.named_parameters()}
    stepping.step()
    found = []
    for name, weight in trial.named_parameters():
        size = float(before[name].norm())
        moved = float((weight.detach() - before[name]).norm())
        found.append(Parameter(name, size, gradients[name], moved / size if size else float("nan")))
    return found


def layers_of(model: nn.Module) -> dict[str, Recurrent]:
    """The recurrent layers, by their path."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Recurrent)}


def histogram_edges() -> NDArray[np.float64]:
    return np.linspace(0.0, 1.0, BINS + 1)
