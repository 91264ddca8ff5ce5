"""Claims about layer and batch normalisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import sympy
import torch
from torch import Tensor

from seqlab.layers.norms import TokenBatchNorm, build_norm
from seqlab.ops.reference.gradients import batch_norm_gradients, layer_norm_gradients
from seqlab.theory.instances import fill, normal, stream
from seqlab.theory.jacobians import error, jacobian, largest, relative_error
from seqlab.theory.ledger import LEDGER, Evidence, at_least, at_most, between, evidence, exactly
from seqlab.theory.sampling import mean_of, meets
from seqlab.theory.symbols import vanishes

claim = LEDGER.of("normalisation")

BATCH, LAYER = "seqlab.layers:TokenBatchNorm", "seqlab.layers.norms:build_norm"
REFERENCE = "seqlab.ops.reference.gradients:"


# --------------------------------------------------------------------------- batch normalisation


def log_growth(draw: torch.Generator, *, steps: int = 20, size: int = 128, shared: bool = False) -> float:
    """ln of the factor by which ‖∂L/∂h‖² grows with each step back through  h ← relu(norm(h W)).

    One W and one normalisation for all steps (a recurrent network) with `shared`, else a W of its own for each.
    """
    norm = TokenBatchNorm(size).double()
    weights = [normal(draw, size, size, scale=size**-0.5) for _ in range(1 if shared else steps)]
    hidden = [normal(draw, 1, size, size).requires_grad_()]
    for t in range(steps):
        hidden.append(torch.relu(norm(hidden[-1] @ weights[t % len(weights)])))
    loss = (hidden[-1] * normal(draw, *hidden[-1].shape)).sum()
    squares = [float(g.square().sum()) for g in torch.autograd.grad(loss, hidden)]
    return math.log(squares[1] / squares[-1]) / (steps - 1)


@claim(
    "bn.prevents-extreme",
    statement=r"Batch normalisation prevents extreme gradients in recurrent networks.",
    conditions=r"It keeps activations at one size, not gradients. At the start of a training, without skip "
    r"connections and with ReLU, the squared gradient grows by about $\frac{\pi}{\pi - 1} \approx 1.47$ with each step "
    r"back, in depth and in time. In a recurrent network its statistics also differ from step to step and with the "
    r"lengths of a batch, which is why layer normalisation is preferred there.",
    verdict="conditional",
    method="sampling",
    right=math.pi / (math.pi - 1),
    wrong={"gradients keep their size": 1.0, "they halve": 0.5, "they double": 2.0},
    about=(BATCH,),
)
def prevents_extreme(seed: int, form: float) -> Evidence:
    draw = stream(seed, "bn.prevents-extreme")
    deep = mean_of(torch.tensor([math.exp(log_growth(draw)) for _ in range(4)]))
    recurrent = [log_growth(draw, shared=True) for _ in range(4)]
    average = sum(recurrent) / len(recurrent)
    return evidence(
        meets("growth of the squared gradient per layer", deep, form, 0.03),
        between("growth per step of a recurrent network", math.exp(average), 0.9 * form, 1.1 * form),
        at_least("growth over 50 such steps", math.exp(50 * average), 1e6),
    )


Support = Callable[[bool, Tensor, Tensor], Tensor]  # training; same column, same element -> what an output depends on


@claim(
    "bn.dependence",
    statement=r"An output $y_{ij}$ of batch normalisation depends on $x_{ij}$ and on $x_{i'j}$ of the other examples, "
    r"and on nothing else.",
    conditions=r"In training. In evaluation the running statistics serve, and $y_{ij}$ depends on $x_{ij}$ alone. "
    r"Padding is no example.",
    verdict="conditional",
    method="identity",
    right=lambda training, column, element: column if training else element,
    wrong={
        "the column in evaluation too": lambda training, column, element: column,
        "never the others": lambda training, column, element: element,
    },
    about=(BATCH, f"{REFERENCE}batch_norm_gradients"),
)
def batch_dependence(seed: int, form: Support) -> Evidence:
    draw, lengths = stream(seed, "bn.dependence"), torch.tensor([4, 2])
    norm, x = TokenBatchNorm(3), normal(draw, 2, 4, 3)
    fill(norm, draw, 1.0)
    found = {mode: jacobian(partial(norm.train(mode), lengths=lengths), x) for mode in (False, True)}
    real = torch.arange(4) < lengths[:, None]
    token, feature = real.flatten().repeat_interleave(3), torch.arange(3).repeat(8)
    column = (feature[:, None] == feature) & token[:, None] & token
    wrong = {mode: ((j != 0) != form(mode, column, column & torch.eye(24).bool())).sum() for mode, j in found.items()}
    grad = normal(draw, 2, 4, 3)
    backwards = (grad.flatten() @ found[True]).view_as(x)
    by_hand = batch_norm_gradients(x[real], norm.weight.detach(), grad[real])
    return evidence(
        exactly("pairs of 24 numbers whose dependence is another, training", wrong[True], 0),
        exactly("the same in evaluation", wrong[False], 0),
        at_most("gradient of the padding", largest(backwards[~real]), 0.0),
        at_most("gradient in training, from the one by hand", error(backwards[real], by_hand.x), 1e-12),
    )


# --------------------------------------------------------------------------- layer normalisation


def over_time(width: int) -> Callable[[Tensor], Tensor]:
    """The statistics taken over the positions of a text."""
    return lambda x: (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)


@claim(
    "ln.dependence",
    statement=r"An output $y_{ij}$ of layer normalisation depends on the features $x_{ij'}$ of its own example, and on "
    r"no other example.",
    note="An example is one position of one text.",
    verdict="true",
    method="identity",
    right=lambda width: fill(build_norm("layer", width), stream(0, "gain"), 1.0),
    wrong={
        "batch normalisation": lambda width: TokenBatchNorm(width).double().train(),
        "over time": over_time,
        "elementwise": lambda width: torch.tanh,
    },
    about=(LAYER,),
)
def layer_dependence(seed: int, form: Callable[[int], Callable[[Tensor], Tensor]]) -> Evidence:
    found = jacobian(form(4), normal(stream(seed, "ln.dependence"), 2, 3, 4))
    row = torch.arange(6).repeat_interleave(4)
    own = row[:, None] == row
    return evidence(
        at_most("largest derivative across examples", largest(found[~own]), 0.0),
        exactly("derivatives within an example that are 0, of 96", (found[own] == 0).sum(), 0),
    )


RowJacobian = Callable[[Tensor, Tensor, float], Tensor]  # x (d,), γ (d,), ε -> (d, d)


def row_jacobian(x: Tensor, gain: Tensor, eps: float, *, mean: bool = True, deviation: bool = True) -> Tensor:
    """γ_i/s ([i = j] − 1/d − z_i z_j/d): the second term comes through the mean, the third through s."""
    d, s = len(x), torch.sqrt(x.var(unbiased=False) + eps)
    z = (x - x.mean()) / s
    inner = torch.eye(d, dtype=x.dtype) - mean * torch.ones(d, d, dtype=x.dtype) / d - deviation * z.outer(z) / d
    return gain[:, None] * inner / s


@claim(
    "ln.elementwise",
    statement=r"Layer normalisation acts on each example, over its features, and not elementwise: "
    r"$\partial y_i/\partial x_j = \frac{\gamma_i}{s}(\delta_{ij} - \frac{1}{d} - \frac{z_i z_j}{d})$.",
    note=r"$z = (x - \bar{x})/s$ and $s^2 = \frac{1}{d}\sum_i (x_i - \bar{x})^2 + \epsilon$. Only gain and bias are "
    r"elementwise.",
    verdict="true",
    method="identity",
    right=row_jacobian,
    wrong={
        "elementwise": lambda x, gain, eps: row_jacobian(x, gain, eps, mean=False, deviation=False),
        "the deviation held fixed": lambda x, gain, eps: row_jacobian(x, gain, eps, deviation=False),
        "the mean held fixed": lambda x, gain, eps: row_jacobian(x, gain, eps, mean=False),
    },
    about=(LAYER, f"{REFERENCE}layer_norm_gradients"),
)
def elementwise(seed: int, form: RowJacobian) -> Evidence:
    draw, d = stream(seed, "ln.elementwise"), 6
    norm = build_norm("layer", d, eps=0.1)
    fill(norm, draw, 1.0)
    gain, x = norm.get_parameter("weight").detach(), normal(draw, d)
    found = jacobian(norm, x)
    by_hand = layer_norm_gradients(x.expand(d, d), gain, torch.eye(d, dtype=x.dtype), 0.1).x
    return evidence(
        at_most("largest difference from autograd", error(form(x, gain, 0.1), found), 1e-12),
        at_most("of the gradient by hand", error(by_hand, found), 1e-12),
        at_least("largest derivative of one feature by another", largest(found - found.diag().diag()), 0.01),
    )


def away_from_bias(x: Tensor, gain: Tensor, eps: float = 0.0) -> float:
    """‖y − β1‖ of the layer, β = 0.7."""
    norm = build_norm("layer", len(x), eps=eps).double()
    with torch.no_grad():
        norm.get_parameter("weight").copy_(gain)
        norm.get_parameter("bias").fill_(0.7)
        return float((norm(x) - 0.7).norm())


@claim(
    "ln.norm",
    statement=r"$\lVert y - \beta\mathbf{1} \rVert_2 = \gamma\sqrt{d}$ for $y = \mathrm{LayerNorm}(x)$.",
    conditions=r"$\gamma > 0$ and $\beta$ are numbers, $\epsilon = 0$, $x$ is not constant, the variance is taken with "
    r"$1/d$. For $\gamma < 0$ it is $|\gamma|\sqrt{d}$; for a vector $\gamma$, $\lVert\gamma\circ z\rVert$; with "
    r"$\epsilon > 0$, $|\gamma|\sqrt{d\sigma^2/(\sigma^2+\epsilon)}$; with $1/(d-1)$, $|\gamma|\sqrt{d-1}$.",
    verdict="conditional",
    method="symbolic",
    right=lambda gain, d: gain * sympy.sqrt(d),
    wrong={
        "the variance with 1/(d − 1)": lambda gain, d: gain * sympy.sqrt(d - 1),
        "the gain forgotten": lambda gain, d: sympy.sqrt(d),
        "d without its root": lambda gain, d: gain * d,
    },
    about=(LAYER,),
)
def norm_of_output(seed: int, form: Callable[[Any, int], Any]) -> Evidence:
    draw, scale = stream(seed, "ln.norm"), sympy.Symbol("gamma", positive=True)
    outputs = [[scale * z for z in standardised(sympy.symbols(f"x_1:{d + 1}", real=True))] for d in (2, 3)]
    squares = [sympy.cancel(sum(y**2 for y in ys)) - form(scale, len(ys)) ** 2 for ys in outputs]
    one, rows = torch.ones((), dtype=torch.float64), [normal(draw, d) for d in (3, 9, 64)]
    x, gain, variance = rows[1], normal(draw, 9), float(rows[1].var(unbiased=False))
    z = (x - x.mean()) / math.sqrt(variance)
    other = 2 * (x - x.mean()) / x.std()
    apart = [away_from_bias(u, 2 * one) - float(form(2.0, len(u))) for u in rows]
    return evidence(
        vanishes("squares of γz that do not sum to it, d = 2, 3", sympy.Matrix(squares)),
        at_most("largest difference of the layer, d = 3, 9, 64", max(map(abs, apart)), 1e-12),
        at_most("γ = −2: from |γ|√d", away_from_bias(x, -2 * one) - 6, 1e-12),
        at_most("a vector γ: from ‖γ ∘ z‖", away_from_bias(x, gain) - (gain * z).norm(), 1e-12),
        at_most("ε = 0.1", away_from_bias(x, one, 0.1) - 3 * math.sqrt(variance / (variance + 0.1)), 1e-12),
        at_most("variance with 1/(d − 1): from γ√(d − 1)", other.norm() - 2 * math.sqrt(8), 1e-12),
        exactly("a constant x has no norm", math.isnan(away_from_bias(torch.ones(9).double(), one)), True),
        steps=[
            r"\lVert \gamma z \rVert^2 = \gamma^2 \frac{\sum_i (x_i - \bar{x})^2}{\frac{1}{d} \sum_i (x_i - "
            r"\bar{x})^2} = \gamma^2 d",
        ],
    )


Entries = Callable[[Sequence[Any]], list[Any]]  # of numbers or of symbols


def standardised(x: Sequence[Any], *, divisor: int = 0, centred: bool = True, root: bool = True) -> list[Any]:
    """z_i = (x_i − x̄)/√(Σ_j (x_j − x̄)²/d)"""
    middle = sum(x) / len(x) if centred else 0
    variance = sum((u - middle) ** 2 for u in x) / (divisor or len(x))
    return [(u - middle) / (sympy.sqrt(variance) if root else variance) for u in x]


@claim(
    "ln.z-properties",
    statement=r"$z^\top\mathbf{1} = 0$ and $\lVert z \rVert_2 = \sqrt{d}$ for $z = (x - \bar{x})/\sigma$.",
    note=r"$\sigma^2 = \frac{1}{d}\sum_i (x_i - \bar{x})^2$ is not $0$.",
    verdict="true",
    method="symbolic",
    right=standardised,
    wrong={
        "the variance with 1/(d − 1)": lambda x: standardised(x, divisor=len(x) - 1),
        "not centred": lambda x: standardised(x, centred=False),
        "divided by the variance": lambda x: standardised(x, root=False),
    },
    about=(LAYER,),
)
def z_properties(seed: int, form: Entries) -> Evidence:
    symbols = [sympy.symbols(f"x_1:{d + 1}", real=True) for d in (2, 3)]
    forms = [form(x) for x in symbols]
    x = normal(stream(seed, "ln.z-properties"), 64)
    z = build_norm("layer", 64, eps=0.0).double()(x).detach()
    numbers = torch.tensor([float(u) for u in form(x.tolist())], dtype=torch.float64)
    return evidence(
        vanishes("sums that are not 0, d = 2, 3", sympy.Matrix([sum(z) for z in forms])),
        vanishes(
            "squares that do not sum to d", sympy.Matrix([sympy.cancel(sum(u**2 for u in z) - len(z)) for z in forms])
        ),
        at_most("from the layer, d = 64", relative_error(numbers, z), 1e-12),
        at_most("‖z‖ − 8 of the layer", z.norm() - 8, 1e-12),
        steps=[
            r"\sum_i (x_i - \bar{x}) = d\bar{x} - d\bar{x} = 0",
            r"\sum_i z_i^2 = \frac{\sum_i (x_i - \bar{x})^2}{\frac{1}{d}\sum_i (x_i - \bar{x})^2} = d",
        ],
    )
