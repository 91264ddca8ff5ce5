"""Claims about the sigmoid, the cross-entropy, and the network with one hidden layer of sigmoid units."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch import Tensor

from seqlab.diagnostics.inside import STEEPEST
from seqlab.layers import GRU, RNN
from seqlab.models.bigram import BigramLM
from seqlab.ops.pairs import pair_nats
from seqlab.ops.pointer import mixed_nats
from seqlab.ops.reference.gradients import (
    cross_entropy_gradient,
    sigmoid_network,
    sigmoid_network_gradients,
    slope,
)
from seqlab.theory.instances import fill, normal, stream
from seqlab.theory.jacobians import error, gradient, jacobian
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, at_least, at_most, evidence, exactly
from seqlab.theory.symbols import step, vanishes
from seqlab.training.objectives import sum_of_nats

claim = LEDGER.of("losses")

OBJECTIVE, PAIRS = "seqlab.training.objectives:sum_of_nats", "seqlab.ops.pairs:pair_nats"
REFERENCE = "seqlab.ops.reference.gradients:"
Z = sympy.Symbol("z", real=True)
SIGMOID = 1 / (1 + sympy.exp(-Z))

OfSigmoid = Callable[[Any], Any]  # σ(z), a number or an expression -> what the claim says


# --------------------------------------------------------------------------- the sigmoid


@claim(
    "sigmoid.reflection",
    statement=r"$\sigma(-z) = 1 - \sigma(z)$.",
    note=r"In floating point $1 - \sigma(z)$ is to be computed as $\sigma(-z)$: at $z = 40$ the first is $0$ in "
    r"float64, the second $4.2 \cdot 10^{-18}$.",
    verdict="true",
    method="symbolic",
    right=lambda s: 1 - s,
    wrong={"odd, like tanh": lambda s: -s, "even": lambda s: s, "the reciprocal": lambda s: 1 / s},
    about=("seqlab.layers:GRU", "seqlab.ops.pointer:mixed_nats"),
)
def reflection(seed: int, form: OfSigmoid) -> Evidence:
    """The GRU takes torch's weights by it; the pointer's ln(1 − c) rests on it."""
    draw = stream(seed, "sigmoid.reflection")
    theirs = torch.nn.GRU(3, 4, batch_first=True)
    fill(theirs, draw)
    x = normal(draw, 2, 5, 3)
    far = torch.tensor(40.0, dtype=torch.float64)
    nowhere, token = torch.zeros(1, 1), torch.ones(1)  # y stands nowhere in the source
    alone = mixed_nats(-torch.ones(1).double(), far[None], nowhere, nowhere, token)
    return evidence(
        vanishes("σ(−z) less the form of σ(z)", SIGMOID.subs(Z, -Z) - form(SIGMOID)),
        at_most(
            "GRU with torch's weights, update gate negated", error(GRU.from_torch(theirs)(x)[0], theirs(x)[0]), 1e-12
        ),
        exactly("1 − σ(40) in float64", 1 - torch.sigmoid(far), 0.0),
        at_most("σ(−40) e⁴⁰ − 1", torch.sigmoid(-far) * math.exp(40) - 1, 1e-12),
        at_most("−ln((1 − σ(40)) e⁻¹) − 41 of the pointer", float(alone) - 41, 1e-11),
        steps=[
            r"\sigma(-z) = \frac{1}{1 + e^{z}} = \frac{e^{-z}}{1 + e^{-z}}",
            r"\frac{e^{-z}}{1 + e^{-z}} = 1 - \frac{1}{1 + e^{-z}} = 1 - \sigma(z)",
        ],
    )


@claim(
    "sigmoid.derivative",
    statement=r"$\sigma'(z) = \sigma(z)(1 - \sigma(z))$.",
    note=r"At most $\frac{1}{4}$, at $z = 0$.",
    verdict="true",
    method="symbolic",
    right=lambda s: slope("sigmoid", s),
    wrong={
        "a factor dropped": lambda s: 1 - s,
        "that of tanh": lambda s: slope("tanh", s),
        "the sign of the second": lambda s: s * (1 + s),
    },
    about=(f"{REFERENCE}slope", "seqlab.layers:RNN", "seqlab.diagnostics.inside:STEEPEST"),
)
def derivative(seed: int, form: OfSigmoid) -> Evidence:
    draw = stream(seed, "sigmoid.derivative")
    layer = RNN(1, 5, nonlinearity="sigmoid")
    fill(layer, draw, 1.0)
    x = normal(draw, 1)
    y = layer(x.view(1, 1, 1))[0].flatten().detach()
    of_the_layer = jacobian(lambda u: layer(u.view(1, 1, 1))[0], x)[:, 0]
    return evidence(
        vanishes("σ′ less the form of σ", sympy.diff(SIGMOID, Z) - form(SIGMOID)),
        exactly("its value at z = 0, and the bound that diagnoses use", form(0.5), STEEPEST["sigmoid"]),
        at_most(
            "from the recurrent layer's own backward pass", error(form(y) * input_weights(layer), of_the_layer), 1e-12
        ),
        steps=[step(r"\sigma'(z)", sympy.diff(SIGMOID, Z)), step(r"\sigma(z)(1-\sigma(z))", SIGMOID * (1 - SIGMOID))],
    )


def input_weights(layer: RNN) -> Tensor:
    return layer.get_parameter("weight_ih_l0").detach()[:, 0]


# --------------------------------------------------------------------------- the cross-entropy

Chain = Callable[[Any, Any, int], Any]  # ∂CE/∂ŷ by j, ∂ŷ/∂θ by [j, i], i -> ∂CE/∂θ_i
THETA = sympy.symbols("theta_1:4", real=True)
TRUTH = sympy.symbols("y_1:4", positive=True)
SOFTMAX = [sympy.exp(t) / sum(sympy.exp(u) for u in THETA) for t in THETA]
CROSS_ENTROPY = -sum(y * sympy.log(p) for y, p in zip(TRUTH, SOFTMAX, strict=True))


def rational(expression: Any) -> Any:
    """With w_i for e^{θ_i}: a quotient of polynomials, which simplifies at once."""
    return expression.subs(dict(zip(map(sympy.exp, THETA), sympy.symbols("w_1:4", positive=True), strict=True)))


def over_outputs(partials: Any, inner: Any, i: int) -> Any:
    """Σ_j (∂CE/∂ŷ_j) (∂ŷ_j/∂θ_i)"""
    return sum(partials[j] * inner[j, i] for j in range(len(partials)))


def single_term(partials: Any, inner: Any, i: int) -> Any:
    return partials[i] * inner[i, i]


def nats(theta: Tensor, target: int) -> Tensor:
    """What a training minimises, of one token.    θ (V,) -> scalar"""
    return sum_of_nats(theta[None, None], torch.tensor([[target]]))


@claim(
    "ce.single-term-chain",
    statement=r"$\frac{\partial CE}{\partial \theta_i} = \frac{\partial CE}{\partial \hat{y}_i} "
    r"\frac{\partial \hat{y}_i}{\partial \theta_i}$ for $\hat{y} = \mathrm{softmax}(\theta)$.",
    correction=r"Every output depends on $\theta_i$: $\frac{\partial CE}{\partial \theta_i} = \sum_j "
    r"\frac{\partial CE}{\partial \hat{y}_j} \frac{\partial \hat{y}_j}{\partial \theta_i}$. The single term is "
    r"$-y_i(1 - \hat{y}_i)$, which is $0$ for every wrong class.",
    verdict="false",
    method="symbolic",
    right=over_outputs,
    wrong={
        AS_STATED: single_term,
        "the sum without that term": lambda p, inner, i: over_outputs(p, inner, i) - single_term(p, inner, i),
    },
    about=(OBJECTIVE,),
)
def single_term_chain(seed: int, form: Chain) -> Evidence:
    partials = [-y / p for y, p in zip(TRUTH, SOFTMAX, strict=True)]
    inner = sympy.Matrix(SOFTMAX).jacobian(sympy.Matrix(THETA))
    off = [rational(sympy.diff(CROSS_ENTROPY, t) - form(partials, inner, i)) for i, t in enumerate(THETA)]
    theta, target = normal(stream(seed, "ce.single-term-chain"), 6), 2
    even = torch.zeros(2, dtype=torch.float64)
    short = [single_term(*pieces(even, 0), i) for i in (0, 1)]
    return evidence(
        vanishes("of three derivatives, wrong", sympy.Matrix(off)),
        at_most(
            "six classes: from the gradient of the training's objective",
            error(torch.stack([form(*pieces(theta, target), i) for i in range(6)]), gradient_of(theta, target)),
            1e-12,
        ),
        steps=[
            step(r"\frac{\partial CE}{\partial \hat{y}_j}", r"-\frac{y_j}{\hat{y}_j}"),
            r"\frac{\partial \hat{y}_j}{\partial \theta_i} = \hat{y}_j (\delta_{ij} - \hat{y}_i)",
            r"\sum_j -\frac{y_j}{\hat{y}_j} \hat{y}_j (\delta_{ij} - \hat{y}_i) = \hat{y}_i \sum_j y_j - y_i",
            r"-\frac{y_i}{\hat{y}_i} \hat{y}_i (1 - \hat{y}_i) = -y_i (1 - \hat{y}_i)",
        ],
        counterexample=rf"$\theta = (0, 0)$, $y = (1, 0)$: the single term gives "
        rf"$({short[0]:g}, {abs(short[1]):g})$, the gradient is "
        rf"$({gradient_of(even, 0)[0]:g}, {gradient_of(even, 0)[1]:g})$.",
    )


def gradient_of(theta: Tensor, target: int) -> Tensor:
    return gradient(lambda t: nats(t, target), theta)


def pieces(theta: Tensor, target: int) -> tuple[Tensor, Tensor]:
    """∂CE/∂ŷ and ∂ŷ/∂θ."""
    y_hat = torch.softmax(theta, -1)
    partials = torch.zeros_like(theta)
    partials[target] = -1 / y_hat[target]
    return partials, jacobian(lambda t: torch.softmax(t, -1), theta)


@claim(
    "ce.gradient",
    statement=r"$\partial CE / \partial \theta = \hat{y} - y$ for $\hat{y} = \mathrm{softmax}(\theta)$ and "
    r"$\sum_j y_j = 1$.",
    note=r"Soft labels too. For counts, or other $y$, it is $\hat{y} \sum_j y_j - y$. The loss is computed from "
    r"$\log \hat{y}$ as a whole, so that large $\theta$ do no harm.",
    verdict="true",
    method="symbolic",
    right=lambda p, y: p - y,
    wrong={
        "the sign": lambda p, y: y - p,
        "the gradient of ŷ": lambda p, y: -y / p,
        "that of squared errors through a sigmoid": lambda p, y: (p - y) * p * (1 - p),
    },
    about=(OBJECTIVE, PAIRS, f"{REFERENCE}cross_entropy_gradient"),
)
def cross_entropy(seed: int, form: Callable[[Any, Any], Any]) -> Evidence:
    slopes = [sympy.diff(CROSS_ENTROPY, t) for t in THETA]
    adding_up = {TRUTH[2]: 1 - TRUTH[0] - TRUTH[1]}
    off = [rational(d - form(p, y)).subs(adding_up) for d, p, y in zip(slopes, SOFTMAX, TRUTH, strict=True)]
    counted = [rational(d - (p * sum(TRUTH) - y)) for d, p, y in zip(slopes, SOFTMAX, TRUTH, strict=True)]
    theta, target = normal(stream(seed, "ce.gradient"), 6), torch.tensor(3)
    truth = torch.nn.functional.one_hot(target, 6).double()
    formed = form(torch.softmax(theta, -1), truth)
    large = torch.tensor([1000.0, -1000.0, 0.0], dtype=torch.float64)
    return evidence(
        vanishes("of three derivatives, wrong", sympy.Matrix(off)),
        vanishes("the same for y of any sum, ŷ Σy − y", sympy.Matrix(counted)),
        at_most("from the gradient of the training's objective", error(formed, gradient_of(theta, 3)), 1e-12),
        at_most("from the one by hand", error(formed, cross_entropy_gradient(theta[None], target[None])[0]), 1e-12),
        at_most("from that of counted pairs", error(7 * formed, of_counted_pairs(theta, 3, 7.0)), 1e-12),
        at_most("θ = ±1000: from (1, −1, 0)", error(gradient_of(large, 1), torch.tensor([1.0, -1, 0]).double()), 1e-12),
        steps=[
            r"CE = -\sum_j y_j \theta_j + \left(\sum_j y_j\right) \log \sum_k e^{\theta_k}",
            step(r"\frac{\partial}{\partial \theta_1} \log \sum_k e^{\theta_k}", SOFTMAX[0]),
        ],
    )


def of_counted_pairs(theta: Tensor, target: int, count: float) -> Tensor:
    """∂J/∂b₂ of a pair seen `count` times, where θ = b₂: n ŷ − c."""
    x, w1, b1, w2 = (torch.zeros(*shape, dtype=theta.dtype) for shape in ((1, 2), (2, 3), (3,), (3, len(theta))))
    pair = torch.tensor([0]), torch.tensor([target]), torch.tensor([count], dtype=theta.dtype)
    return gradient(lambda b2: pair_nats(x, w1, b1, w2, b2, *pair), theta)


# --------------------------------------------------------------------------- one hidden layer


@claim(
    "mlp.jacobian-layout",
    statement=r"$\partial u / \partial h = W_2^\top$ for $u = hW_2 + b_2$, and $\partial z / \partial x = W_1^\top$ "
    r"for $z = xW_1 + b_1$.",
    conditions=r"Numerator layout with row vectors: $(\partial u / \partial h)_{ji} = \partial u_j / \partial h_i$. In "
    r"denominator layout they are $W_2$ and $W_1$.",
    verdict="conditional",
    method="identity",
    right=lambda w: w.T,
    wrong={"denominator layout": lambda w: w, "turned round": lambda w: w.T.flip(0)},
    about=("seqlab.models.bigram:BigramLM",),
)
def jacobian_layout(seed: int, form: Callable[[Tensor], Tensor]) -> Evidence:
    """In seqlab's bigram of a vocabulary of 7 words; and where W_2 is square, so that the shape says nothing."""
    draw = stream(seed, "mlp.jacobian-layout")
    errors = []
    for vocabulary, width in ((7, 5), (5, 5)):
        model = BigramLM(vocabulary, width=width, vector_width=4)
        fill(model, draw)
        w1, w2 = model.hidden.weight.T.detach(), model.output.weight.T.detach()
        x, h = normal(draw, 1, 4), normal(draw, 1, width)
        errors += [error(jacobian(model.hidden, x), form(w1)), error(jacobian(model.output, h), form(w2))]
    return evidence(
        at_most("∂u/∂h, rectangular", errors[1], 1e-14),
        at_most("∂u/∂h, square", errors[3], 1e-14),
        at_most("∂z/∂x", errors[0], 1e-14),
    )


InputGradient = Callable[..., Tensor]  # x, W_1, b_1, W_2, b_2, targets -> ∂J/∂x


def by_hand(*given: Tensor) -> Tensor:
    return sigmoid_network_gradients(*given).x


def without_slope(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, targets: Tensor) -> Tensor:
    h = torch.sigmoid(x @ w1 + b1)
    return cross_entropy_gradient(h @ w2 + b2, targets) @ w2.T @ w1.T


def half_a_slope(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, targets: Tensor) -> Tensor:
    h = torch.sigmoid(x @ w1 + b1)
    return (cross_entropy_gradient(h @ w2 + b2, targets) @ w2.T * (1 - h)) @ w1.T


def not_transposed(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, targets: Tensor) -> Tensor:
    h = torch.sigmoid(x @ w1 + b1)
    return (cross_entropy_gradient(h @ w2 + b2, targets) @ w2 * h * (1 - h)) @ w1


@claim(
    "mlp.grad-x",
    statement=r"$\partial J / \partial x = [((\hat{y} - y) W_2^\top) \circ h \circ (1 - h)] W_1^\top$ for "
    r"$h = \sigma(xW_1 + b_1)$, $\hat{y} = \mathrm{softmax}(hW_2 + b_2)$ and $J$ the cross-entropy.",
    verdict="true",
    method="identity",
    right=by_hand,
    wrong={"without σ′": without_slope, "half of σ′": half_a_slope, "matrices not transposed": not_transposed},
    about=(f"{REFERENCE}sigmoid_network_gradients", PAIRS),
)
def gradient_of_input(seed: int, form: InputGradient) -> Evidence:
    draw, rows, size = stream(seed, "mlp.grad-x"), 3, 6
    x, w1, w2 = normal(draw, rows, size), normal(draw, size, size), normal(draw, size, size)
    b1, b2 = normal(draw, size), normal(draw, size)
    targets = torch.randint(0, size, (rows,), generator=draw)
    row, once = torch.arange(rows), torch.ones(rows, dtype=x.dtype)
    exact = gradient(lambda u: sum_of_nats(sigmoid_network(u, w1, b1, w2, b2)[None], targets[None]), x)
    counted = gradient(lambda u: pair_nats(u, w1, b1, w2, b2, row, targets, once), x)
    return evidence(
        at_most("largest difference from autograd", error(form(x, w1, b1, w2, b2, targets), exact), 1e-12),
        at_most(
            "of the gradient over counted pairs",
            error(counted, exact),
            1e-12,
        ),
        at_least("largest entry of the gradient", exact.abs().max(), 0.01),
    )
