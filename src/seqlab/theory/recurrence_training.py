"""Claims about training recurrences: what vanishing and exploding gradients do, and what gates do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqlab.layers import GRU, LSTM, RNN
from seqlab.theory.instances import fill, normal, orthogonal, stream, uniform, with_norm
from seqlab.theory.intervals import proves
from seqlab.theory.jacobians import error, jacobian, relative_error, spectral_norm
from seqlab.theory.ledger import LEDGER, Evidence, at_least, at_most, between, evidence, exactly
from seqlab.theory.recurrent_nets import Net, put, random_net, resting, slopes_of_layer
from seqlab.training.optim import SGD, Adam

claim = LEDGER.of("recurrence")


# --------------------------------------------------------------------------- vanishing

Part = Callable[[Tensor], Tensor]  # of the terms of dJ/dW by lag (T, H, H): what is said to vanish, (H, H)


@claim(
    "rnn.weight-updates-negligible",
    statement=r"Vanishing gradients make the updates of the weights negligible.",
    conditions=r"With shared weights $\frac{dJ}{dW} = \sum_k \frac{dJ}{dh_k} \frac{\partial^+ h_k}{\partial W}$: "
    r"only the terms of long lags $T - k$ vanish, those of short lags keep their size. The net trains and ignores what "
    r"lies far back. A gradient that is small as a whole makes small updates under SGD; Adam divides its size away.",
    verdict="conditional",
    method="identity",
    right=lambda terms: terms[len(terms) // 2 :].sum(0),
    wrong={
        "the whole gradient": lambda terms: terms.sum(0),
        "the short lags": lambda terms: terms[: len(terms) // 2].sum(0),
    },
    about=("seqlab.layers:RNN", "seqlab.training.optim:SGD", "seqlab.training.optim:Adam"),
)
def weight_updates_negligible(seed: int, form: Part) -> Evidence:
    draw = stream(seed, "rnn.weight-updates-negligible")
    long = random_net(draw, with_norm(draw, 5, 0.5), time=80, form="post")
    readout = normal(draw, 5)
    short = Net(long.layer, long.x[-20:], long.h0)
    terms = by_lag(long, readout)
    whole, of_short = terms.sum(0), by_lag(short, readout).sum(0)
    g = normal(draw, 5)
    moves = {kind: moved(kind, 1e-4 * g).norm() / moved(kind, g).norm() for kind in (SGD, Adam)}
    return evidence(
        at_most("what is said to vanish over ‖dJ/dW‖, T = 80", form(terms).norm() / whole.norm(), 1e-9),
        at_most("‖∂h_T/∂h_0‖, T = 80", long.norm(), 1e-20),
        at_most("sum over lags against the layer's gradient", relative_error(whole, by_layer(long, readout)), 1e-12),
        between("‖dJ/dW‖ at T = 80 over T = 20", whole.norm() / of_short.norm(), 0.999, 1.001),
        between("step of SGD on 10⁻⁴ g over that on g", moves[SGD], 0.99e-4, 1.01e-4),
        between("the same of Adam", moves[Adam], 0.9, 1.001),
    )


def by_lag(net: Net, readout: Tensor) -> Tensor:
    """dJ/dh_k ∂⁺h_k/∂W of J = readoutᵀ h_T, the last step first.    (T, H, H)"""
    _, _, seen = net.layer.watch(net.x[None], net.h0[None, None])
    hidden = seen["l0.hidden"]
    deltas = torch.autograd.grad(hidden[-1][0] @ readout, hidden)
    before = [net.h0[None], *hidden]
    terms = [torch.outer((d * (1 - h**2))[0], old[0]) for d, h, old in zip(deltas, hidden, before, strict=False)]
    return torch.stack(terms[::-1]).detach()


def by_layer(net: Net, readout: Tensor) -> Tensor:
    """dJ/dW, by the layer's own backward pass."""
    (found,) = torch.autograd.grad(net.run(net.h0) @ readout, net.layer.get_parameter("weight_hh_l0"))
    return found


def moved(optimiser: type[Any], g: Tensor) -> Tensor:
    """The first step on this gradient, learning rate 1."""
    theta = torch.zeros_like(g).requires_grad_()
    theta.grad = g
    optimiser([{"params": [theta], "lr": 1.0}], betas=(0.9, 0.99), eps=1e-8, bias_correction=True).step()
    return theta.detach()


# --------------------------------------------------------------------------- exploding

Factor = Callable[[float], float]  # ηL -> |θ_{t+1} / θ_t|


def descent(rate: float, curvature: float, steps: int) -> Tensor:
    """θ_0 = 1, θ_1, … of SGD on ½Lθ²."""
    theta = torch.ones(1, dtype=torch.float64, requires_grad=True)
    optimiser = SGD([{"params": [theta], "lr": rate}])
    path = [theta.detach().clone()]
    for _ in range(steps):
        theta.grad = curvature * theta.detach()
        optimiser.step()
        path.append(theta.detach().clone())
    return torch.cat(path)


@claim(
    "rnn.weights-grow-exponentially",
    statement=r"Large gradients make weights grow exponentially during training.",
    conditions=r"The gradient grows exponentially with the length of the sequence; the weights then make one or a few "
    r"huge jumps. They grow exponentially over steps where the step is too long for the curvature: on "
    r"$\frac{L}{2}\theta^2$ gradient descent multiplies $\theta$ by $1 - \eta L$, so that it grows if $\eta > 2/L$.",
    verdict="conditional",
    method="identity",
    right=lambda step: abs(1 - step),
    wrong={
        "growth at every step length": lambda step: 1 + step,
        "the limit at 1/L": lambda step: abs(1 - 2 * step),
        "half the curvature": lambda step: abs(1 - step / 2),
    },
    about=("seqlab.training.optim:SGD", "seqlab.layers:RNN"),
)
def weights_grow_exponentially(seed: int, form: Factor) -> Evidence:
    curvature = float(uniform(stream(seed, "rnn.weights-grow-exponentially"), 1, low=0.5, high=5.0))
    ends = {step: float(descent(step / curvature, curvature, 30)[-1].abs()) for step in (2.5, 1.5, 0.5)}
    errors = [abs(form(step) ** 30 / end - 1) for step, end in ends.items()]
    slope, later = one_jump(20)
    return evidence(
        at_most("largest relative error of |θ_30|, ηL = 2.5, 1.5, 0.5", max(errors), 1e-9),
        between("|θ_30/θ_0| at ηL = 2.5", ends[2.5], 1.9e5, 1.93e5),
        at_most("|θ_30/θ_0| at ηL = 1.5", ends[1.5], 1e-8),
        exactly("∂h_20/∂b of one unit at rest, w = 2", slope, 2**20 - 1),
        at_most("its later nine updates over the first", later, 1e-12),
    )


def one_jump(time: int) -> tuple[float, float]:
    """One unit at rest with w = 2 and J = h_T: dJ/db = Σ_{k<T} 2^k, and how far b moves after the first step of SGD."""
    layer = resting(torch.full((1, 1), 2.0).double()).layer
    post = RNN(2, 1).double()
    post.load_state_dict(layer.state_dict())
    bias = post.get_parameter("bias_ih_l0")
    optimiser, x = SGD([{"params": [bias], "lr": 0.01}]), torch.zeros(1, time, 2).double()
    slopes, path = [], [float(bias.detach())]
    for _ in range(10):
        (bias.grad,) = torch.autograd.grad(post(x)[0][0, -1, 0], bias)
        slopes.append(float(bias.grad))
        optimiser.step()
        path.append(float(bias.detach()))
    return slopes[0], abs(path[-1] - path[1]) / abs(path[1] - path[0])


@dataclass(frozen=True)
class Saturation:
    """low · e^{−rate |a|} ≤ φ'(a) ≤ high · e^{−rate |a|}"""

    rate: int
    low: float
    high: float

    def ratio(self, s: Any) -> Any:
        """tanh'(a) e^{rate |a|}, with s = e^{−2|a|}: tanh'(a) = 4s/(1 + s)²."""
        return 4 * s ** (1 - self.rate // 2) / (1 + s) ** 2


@claim(
    "rnn.loss-saturation",
    statement=r"A saturated unit has nearly no gradient: $e^{-2|a|} \le \tanh'(a) \le 4e^{-2|a|}$. A loss that rises "
    r"quickly under large gradients diverges.",
    note=r"To call divergence a 'saturation of the loss' turns the word around: where something saturates, "
    r"gradients are small.",
    verdict="true",
    method="interval",
    right=Saturation(2, 1, 4),
    wrong={
        "saturation means large gradients": Saturation(-2, 1, 4),
        "twice as fast": Saturation(4, 1, 4),
        "the factor 4 dropped": Saturation(2, 1, 1),
    },
    about=("seqlab.layers:RNN", "seqlab.training.optim:SGD"),
)
def loss_saturation(seed: int, form: Saturation) -> Evidence:
    a = uniform(stream(seed, "rnn.loss-saturation"), 50, low=1, high=10) * torch.tensor([1.0, -1.0]).repeat(25)
    measured = slopes_of_layer("tanh", a) * (form.rate * a.abs()).exp()
    saturated = slopes_of_layer("tanh", torch.tensor([15.0]).double())
    whole = [(0.0, 1.0)]  # s = e^{−2|a|} of every a
    theta = descent(2.5, 1.0, 10)
    return evidence(
        at_most("slope of a unit of the layer at a = 15", saturated, 1e-12),
        at_least("boxes that prove the upper bound, for every a", proves(form.ratio, whole, form.high), 1),
        at_least("boxes that prove the lower bound", proves(lambda s: -form.ratio(s), whole, -form.low), 1),
        at_most("largest slope in the layer over the upper bound", measured.max() / form.high, 1 + 1e-6),
        at_least("smallest over the lower bound", measured.min() / form.low, 1 - 1e-6),
        at_least(
            "growth of the gradient in 10 steps that diverge, ηL = 2.5", (theta[-1] / theta[0]).abs(), 1.5**10 - 1e-6
        ),
    )


# --------------------------------------------------------------------------- gates

Gates = Mapping[str, Tensor]  # of one step
Direct = Mapping[str, Callable[[Gates], Tensor]]  # the factor of the direct path in one step, by layer
GATES = {"GRU": ("z", "r"), "LSTM": ("i", "f", "o")}


@claim(
    "rnn.gating-helps",
    statement=r"The gates of LSTM and GRU regulate the flow of gradients.",
    conditions=r"They give a direct path with the factor $f_t$ (LSTM, from $c_{t-1}$ to $c_t$) or $1 - z_t$ (GRU). "
    r"They bound neither the path through $h_{t-1}$ nor explosion: large recurrent weights make the gradient of a GRU "
    r"grow.",
    verdict="conditional",
    method="identity",
    right={"GRU": lambda g: 1 - g["z"], "LSTM": lambda g: g["f"]},
    wrong={
        "the update gate itself": {"GRU": lambda g: g["z"], "LSTM": lambda g: g["f"]},
        "the input gate": {"GRU": lambda g: 1 - g["z"], "LSTM": lambda g: g["i"]},
        "a path without a gate": {"GRU": lambda g: torch.ones_like(g["z"]), "LSTM": lambda g: torch.ones_like(g["f"])},
    },
    about=("seqlab.layers:GRU", "seqlab.layers:LSTM"),
)
def gating_helps(seed: int, form: Direct) -> Evidence:
    draw = stream(seed, "rnn.gating-helps")
    errors, closed = [], []
    for layer in (GRU(3, 4), LSTM(3, 4)):
        fill(layer, draw)
        x, start, kind = normal(draw, 6, 3), normal(draw, 4), type(layer).__name__
        holding = memory_jacobian(held(layer), x, start)
        closed.append(error(holding, torch.eye(4).double()))
        put(layer, weight_hh_l0=0.0)  # nothing but the direct path is left
        product = torch.stack([form[kind](gates) for gates in gates_of(layer, x)]).prod(0)
        errors.append(error(product.diag(), memory_jacobian(layer, x, start)))
    return evidence(
        at_most("product of factors against the Jacobian without other paths", max(errors), 1e-12),
        at_most("‖J − I‖ over 6 steps, the gates hold the memory", max(closed), 1e-6),
        at_least("‖∂h_T/∂h_0‖ of a GRU with U = 20 Q at rest, T = 5", wild_gru(draw, 5), 1e3),
        at_least("the same, T = 40", wild_gru(draw, 40), 1e20),
    )


def gates_of(layer: GRU | LSTM, x: Tensor) -> list[dict[str, Tensor]]:
    """Of each step, from zero states.    T of {name: (H,)}"""
    _, _, seen = layer.watch(x[None])
    names = GATES[type(layer).__name__]
    return [{name: seen[f"l0.{name}"][t][0].detach() for name in names} for t in range(len(x))]


def memory_jacobian(layer: GRU | LSTM, x: Tensor, start: Tensor) -> Tensor:
    """∂h_T/∂h_0 of a GRU, ∂c_T/∂c_0 of an LSTM with h_0 = 0.    (H, H)"""

    def final(memory: Tensor) -> Tensor:
        here = memory[None, None]
        state = layer(x[None], (torch.zeros_like(here), here) if isinstance(layer, LSTM) else here)[1]
        found: Tensor = (state[1] if isinstance(state, tuple) else state)[0, 0]
        return found

    return jacobian(final, start)


def held(layer: GRU | LSTM) -> GRU | LSTM:
    """A copy whose gates keep what is remembered: z = 0, or f = 1 and i = 0, up to e^{−25}."""
    size = layer.hidden_size
    copied = type(layer)(layer.input_size, size).double()
    copied.load_state_dict(layer.state_dict())
    bias = copied.get_parameter("bias_ih_l0").detach().clone().view(-1, size)  # a row for each gate
    if isinstance(layer, GRU):
        bias[1] = -25.0
    else:
        bias[0], bias[1] = -25.0, 25.0
    put(copied, bias_ih_l0=bias.flatten())
    return copied


def wild_gru(draw: torch.Generator, time: int) -> float:
    """‖∂h_T/∂h_0‖ at h = 0 with no input: z = r = ½, a step has I/2 + U/4."""
    layer = fill(GRU(1, 4, bias=False), draw)
    put(layer, weight_hh_l0=torch.cat([normal(draw, 8, 4), 20 * orthogonal(draw, 4)]))
    zeros = torch.zeros(1, time, 1).double()
    return spectral_norm(jacobian(lambda h: layer(zeros, h[None, None])[1][0, 0], torch.zeros(4).double()))
