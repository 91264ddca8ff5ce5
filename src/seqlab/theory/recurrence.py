"""Claims about recurrences: their Jacobians and their two forms. The files beside it have the rest of the subject."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import sympy
import torch
from torch import Tensor

from seqlab.diagnostics.gradient_flow import gradient_flow
from seqlab.layers import RNN
from seqlab.ops.reference.recurrence import CellWeights, rnn_step, rnn_step_pre
from seqlab.theory.instances import normal, orthogonal, stream, with_norm
from seqlab.theory.jacobians import error, relative_error
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, at_least, at_most, between, evidence, exactly
from seqlab.theory.recurrent_nets import STEEPEST, Net, ordered, random_net, resting, slope

SETTING = r"An RNN $h_t = W \varphi(h_{t-1}) + U x_t + b$ with states $h_t$ and inputs $x_t$."
claim = LEDGER.of("recurrence", SETTING)


# --------------------------------------------------------------------------- the Jacobian


def chain(net: Net) -> Tensor:
    """W diag(φ'(h_{T−1})) ⋯ W diag(φ'(h_0))"""
    return ordered((net.w * slope(net.phi, h) for h in net.path()[:-1]), len(net.w))


def one_factor_for_all(net: Net) -> Tensor:
    return ordered([net.w * slope(net.phi, net.h0)] * len(net.x), len(net.w))


def without_slopes(net: Net) -> Tensor:
    return ordered([net.w] * len(net.x), len(net.w))


@claim(
    "rnn.bptt-product",
    statement=r"In an RNN $\frac{\partial h_T}{\partial h_0} = \frac{\partial h_T}{\partial h_{T-1}} \cdots "
    r"\frac{\partial h_1}{\partial h_0}$, a product of $T$ one-step Jacobians, so that its norm can fall or grow "
    r"geometrically in $T$.",
    note=r"With $W = sQ$, $Q$ orthogonal, at rest in $0$ the norm is $s^T$.",
    verdict="true",
    method="identity",
    right=chain,
    wrong={"one factor to the power T": one_factor_for_all, "the slopes left out": without_slopes},
    about=("seqlab.layers:RNN", "seqlab.diagnostics.gradient_flow:gradient_flow"),
)
def bptt_product(seed: int, form: Callable[[Net], Tensor]) -> Evidence:
    draw = stream(seed, "rnn.bptt-product")
    nets = [random_net(draw, normal(draw, 5, 5, scale=0.7), phi) for phi in STEEPEST]
    q = orthogonal(draw, 5)
    rates = {s: flow_rate(resting(s * q, time=30)) for s in (0.8, 1.25)}
    return evidence(
        at_most("largest relative error", max(relative_error(form(net), net.jacobian()) for net in nets), 1e-12),
        *(between(f"growth per step, W = {s} Q", rate, s - 1e-9, s + 1e-9) for s, rate in rates.items()),
    )


def flow_rate(net: Net) -> float:
    """As seqlab measures it, from the gradient of the last output by each input."""
    return gradient_flow(net.layer, net.x[None]).verdict.growth.rate


Step = Callable[[Tensor, Tensor, Tensor], Tensor]  # (W, φ'(h_{t−1}), φ'(h_t)) -> ∂h_t/∂h_{t−1}


def transposed(w: Tensor, before: Tensor, after: Tensor) -> Tensor:
    return w.T * before


@claim(
    "rnn.jacobian",
    statement=r"$\frac{\partial h_t}{\partial h_{t-1}} = W^\top \mathrm{diag}(\varphi'(h_{t-1}))$ for "
    r"$h_t = W\varphi(h_{t-1}) + Ux_t + b$.",
    correction=r"$W \mathrm{diag}(\varphi'(h_{t-1}))$ in numerator layout, its transpose "
    r"$\mathrm{diag}(\varphi'(h_{t-1})) W^\top$ in denominator layout. The stated product is neither. The bound "
    r"$\gamma\lVert W \rVert$ survives, since $\lVert W^\top \rVert = \lVert W \rVert$.",
    verdict="false",
    method="identity",
    right=lambda w, before, after: w * before,
    wrong={
        AS_STATED: transposed,
        "the slopes of the step after": lambda w, before, after: w * after,
        "the slopes on the left": lambda w, before, after: before[:, None] * w,
    },
    about=("seqlab.layers:RNN", "seqlab.ops.recurrence:rnn_activations"),
)
def one_step(seed: int, form: Step) -> Evidence:
    draw = stream(seed, "rnn.jacobian")
    nets = {(phi, n): random_net(draw, normal(draw, n, n), phi, time=1) for phi in STEEPEST for n in (1, 2, 5)}
    errors = {key: relative_error(form(*step_parts(net)), net.jacobian()) for key, net in nets.items()}
    example = shifted_units()
    return evidence(
        at_most("largest relative error of ∂h_t/∂h_{t−1}", max(errors.values()), 1e-12),
        at_most("of its transpose", max(transposed_error(form, net) for net in nets.values()), 1e-12),
        counterexample=rf"Two units, $W = {rows(example.w)}$, row by row, $\varphi' = {row(step_parts(example)[1])}$: "
        rf"the Jacobian is ${rows(example.jacobian())}$, the stated product "
        rf"${rows(transposed(*step_parts(example)))}$. One unit shows nothing: a number is its own transpose.",
    )


def shifted_units() -> Net:
    """Two units: the first takes over the second, which is forgotten."""
    made = resting(torch.tensor([[0.0, 1.0], [0.0, 0.0]]).double(), time=1)
    return Net(made.layer, made.x, torch.tensor([0.0, 1.0]).double())


def step_parts(net: Net) -> tuple[Tensor, Tensor, Tensor]:
    before, after = (slope(net.phi, h) for h in net.path())
    return net.w, before, after


def transposed_error(form: Step, net: Net) -> float:
    """In the denominator layout: (∂h_t/∂h_{t−1})_{ij} = ∂(h_t)_j/∂(h_{t−1})_i."""
    w, before, _ = step_parts(net)
    return relative_error(form(*step_parts(net)).T, before[:, None] * w.T)


def row(numbers: Tensor) -> str:
    return "(" + ", ".join(f"{float(number):.2f}" for number in numbers) + ")"


def rows(matrix: Tensor) -> str:
    return "(" + "; ".join(row(numbers)[1:-1] for numbers in matrix) + ")"


Product = Callable[[Sequence[Tensor], int, int], Tensor]  # (J, k, t), J[i] = ∂h_i/∂h_{i−1}, J[0] is not used


def latest_left(steps: Sequence[Tensor], first: int, last: int) -> Tensor:
    return ordered(steps[first + 1 : last + 1], len(steps[1]))


@claim(
    "rnn.product-range",
    statement=r"$\frac{\partial h_t}{\partial h_k} = \prod_{k < i \le t} \frac{\partial h_i}{\partial h_{i-1}}$: "
    r"$t - k$ factors, the latest on the left.",
    note=r"The product over $k < i < t$ is one factor short; for $t = k + 1$ it is empty.",
    verdict="true",
    method="identity",
    right=latest_left,
    wrong={
        "k < i < t": lambda steps, k, t: ordered(steps[k + 1 : t], len(steps[1])),
        "k ≤ i ≤ t": lambda steps, k, t: ordered(steps[max(k, 1) : t + 1], len(steps[1])),
        "the latest on the right": lambda steps, k, t: ordered(steps[t:k:-1], len(steps[1])),
    },
    about=("seqlab.layers:RNN",),
)
def product_range(seed: int, form: Product) -> Evidence:
    draw = stream(seed, "rnn.product-range")
    one = random_net(draw, normal(draw, 4, 4), time=6)
    steps = [torch.eye(4).double(), *(one.jacobian(i - 1, i) for i in range(1, 7))]
    pairs = list(combinations(range(7), 2))
    errors = [relative_error(form(steps, k, t), one.jacobian(k, t)) for k, t in pairs]
    return evidence(
        at_most("largest relative error", max(errors), 1e-12),
        exactly("pairs k < t for which it holds", sum(wrong < 1e-12 for wrong in errors), len(pairs)),
    )


# --------------------------------------------------------------------------- pre and post form

Start = Callable[[Tensor, str], Tensor]  # (h_0, φ) -> g_0


def squashed(h: Tensor, phi: str) -> Tensor:
    found: Tensor = getattr(torch, phi)(h)
    return found


@claim(
    "rnn.reparam",
    statement=r"$h_t = W\varphi(h_{t-1}) + Ux_t + b$ and $g_t = \varphi(Wg_{t-1} + Ux_t + b)$ are the same "
    r"recurrence, with $g_t = \varphi(h_t)$.",
    conditions=r"The starts must agree: $g_0 = \varphi(h_0)$. So $g_0$ must lie in the range of $\varphi$: with "
    r"$\tanh$ no $h_0$ gives $g_0 = 1.5$, with the sigmoid no finite one gives $g_0 = 0$.",
    verdict="conditional",
    method="identity",
    right=squashed,
    wrong={
        "the same start": lambda h, phi: h,
        "both start at zero": lambda h, phi: torch.zeros_like(h),
    },
    about=("seqlab.layers:RNN", "seqlab.ops.recurrence:rnn_activations"),
)
def reparam(seed: int, form: Start) -> Evidence:
    draw, n = stream(seed, "rnn.reparam"), 5
    w = with_norm(draw, n, 0.9)
    w[-1] = (w[0] + w[1]) / 2  # no inverse
    errors, plain, unsaid = [], [], []
    for phi in ("tanh", "sigmoid", "relu"):
        pre = random_net(draw, w, phi, time=20)
        post = with_form(pre, "post", form(pre.h0, phi))
        errors.append(error(squashed(pre.path()[1:], phi), post.path()[1:]))
        plain.append(max(error(pre.path(), by_equation(pre)), error(post.path(), by_equation(post))))
        unsaid.append(error(squashed(pre.layer(pre.x[None])[0], phi), post.layer(post.x[None])[0]))
    reach = torch.tanh(torch.linspace(-30, 30, 2001).double()).max()
    return evidence(
        at_most("largest |φ(h_t) − g_t| over 20 steps, W of rank 4", max(errors), 1e-12),
        at_most("either form against its equation, step by step", max(plain), 1e-12),
        at_most("both layers without a given start", max(unsaid), 1e-12),
        at_least("least distance of tanh from 1.5", 1.5 - reach, 0.5),
        exactly("rank of W, 5 units", torch.linalg.matrix_rank(w), 4),
    )


def with_form(net: Net, form: str, start: Tensor) -> Net:
    """The same weights, which have the same names in both forms."""
    layer = RNN(2, len(net.w), nonlinearity=net.phi, form=form).double()
    layer.load_state_dict(net.layer.state_dict())
    return Net(layer, net.x, start)


def by_equation(net: Net) -> Tensor:
    """The path as the plain equations give it.    (T + 1, H)"""
    weights = CellWeights(*(weight.detach() for weight in net.layer.parameters()))
    step = rnn_step if net.layer.form == "post" else rnn_step_pre
    path = [net.h0[None]]
    for x in net.x:
        path.append(step(x[None], path[-1], weights, net.phi))
    return torch.cat(path)


Recover = Callable[[Tensor, Tensor, Tensor], Tensor]  # (W, h_{t−1}, W φ(h_{t−1})) -> φ(h_{t−1})


@claim(
    "rnn.reparam-proof",
    statement=r"The two forms of the RNN are the same because $\varphi(h_{t-1}) = W^{-1}(h_t - Ux_t - b)$.",
    correction=r"$W$ need not have an inverse, and none is needed: "
    r"$g_t = \varphi(h_t) = \varphi(W\varphi(h_{t-1}) + Ux_t + b) = \varphi(Wg_{t-1} + Ux_t + b)$.",
    verdict="false",
    method="counterexample",
    right=lambda w, before, difference: torch.tanh(before),
    wrong={
        AS_STATED: lambda w, before, difference: torch.linalg.inv_ex(w).inverse @ difference,
        "with the pseudo-inverse": lambda w, before, difference: torch.linalg.pinv(w) @ difference,
    },
    about=("seqlab.layers:RNN",),
)
def reparam_proof(seed: int, form: Recover) -> Evidence:
    draw, n = stream(seed, "rnn.reparam-proof"), 5
    w = torch.randint(-3, 4, (n, n), generator=draw).double() + 4 * torch.eye(n).double()
    w[-1] = w[0]
    pre = random_net(draw, w / 8, time=10)
    u, _, *biases = (weight.detach() for weight in pre.layer.parameters())
    inputs, path = pre.x @ u.T + sum(biases), pre.path()
    found = torch.stack([form(pre.w, h, after - a) for h, after, a in zip(path, path[1:], inputs, strict=False)])
    post = with_form(pre, "post", torch.tanh(pre.h0)).path()[:-1]
    ones, g = torch.ones(2, 2).double(), torch.tensor([[0.5, 0.0], [0.0, 0.5]]).double()
    return evidence(
        at_most("largest difference from g_{t−1} of the post form", error(found.nan_to_num(torch.inf), post), 1e-9),
        at_most("difference of the two products of the counterexample", error(ones @ g[0], ones @ g[1]), 0.0),
        exactly("determinant of 8W, in integers", sympy.Matrix(w.long().tolist()).det(), 0),
        counterexample=rf"Two units, all entries of $W$ are $1$: $g = (0.5, 0)$ and $g = (0, 0.5)$ give the same "
        rf"$Wg = {row(ones @ g[0])}$, so that nothing can tell them apart.",
    )


# The other claims of the subject, in the order in which they are listed.
from seqlab.theory import recurrence_bounds, recurrence_training, recurrence_attentive  # noqa: E402, F401, I001
