"""RNNs of seqlab with a given recurrent matrix, and their derivatives through time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor
from torch.nn import Module

from seqlab.layers import RNN
from seqlab.theory.instances import fill, normal
from seqlab.theory.jacobians import gradient, jacobian, spectral_norm

STEEPEST = {"tanh": 1.0, "sigmoid": 0.25}  # γ = max |φ'|


@dataclass(frozen=True)
class Net:
    """A layer, what it reads, x (T, D), and where it starts, h_0 (H,)."""

    layer: RNN
    x: Tensor
    h0: Tensor

    @property
    def phi(self) -> str:
        return self.layer.nonlinearity

    @property
    def w(self) -> Tensor:
        return self.layer.get_parameter("weight_hh_l0").detach()

    def run(self, h: Tensor, first: int = 0, last: int | None = None) -> Tensor:
        """h_last, if h is h_first.    (H,)"""
        _, state = self.layer(self.x[None, first:last], h[None, None])
        assert isinstance(state, Tensor)
        return state[0, 0]

    def path(self) -> Tensor:
        """h_0, …, h_T    (T + 1, H)"""
        y, _ = self.layer(self.x[None], self.h0[None, None])
        return torch.cat([self.h0[None], y[0].detach()])

    def jacobian(self, first: int = 0, last: int | None = None) -> Tensor:
        """∂h_last/∂h_first, by autograd.    (H, H)"""
        return jacobian(lambda h: self.run(h, first, last), self.path()[first])

    def norm(self) -> float:
        """‖∂h_T/∂h_0‖"""
        return spectral_norm(self.jacobian())


def random_net(draw: torch.Generator, w: Tensor, phi: str = "tanh", time: int = 8, form: str = "pre") -> Net:
    """Everything but W is normal."""
    layer = RNN(2, len(w), nonlinearity=phi, form=form)
    fill(layer, draw)
    put(layer, weight_hh_l0=w)
    return Net(layer, normal(draw, time, 2), normal(draw, len(w)))


def resting(w: Tensor, phi: str = "tanh", time: int = 8) -> Net:
    """h_t = 0 at every step, where φ is steepest: x = 0 and b = −W φ(0)."""
    layer = RNN(2, len(w), nonlinearity=phi, form="pre").double()
    zero = torch.zeros(len(w), dtype=torch.float64)
    put(layer, weight_ih_l0=1.0, weight_hh_l0=w, bias_ih_l0=-w @ getattr(torch, phi)(zero), bias_hh_l0=0.0)
    return Net(layer, torch.zeros(time, 2, dtype=torch.float64), zero)


def put(layer: Module, **values: Tensor | float) -> None:
    """These numbers into the parameters of these names."""
    with torch.no_grad():
        for name, value in values.items():
            layer.get_parameter(name).copy_(torch.as_tensor(value, dtype=torch.float64))


def slope(phi: str, h: Tensor) -> Tensor:
    """φ'(h), written without φ's value: 1/cosh²(h), for the sigmoid 1/(4 cosh²(h/2))."""
    wide, steepest = (h, 1.0) if phi == "tanh" else (h / 2, 0.25)
    return steepest / torch.cosh(wide).square()


def slopes_of_layer(phi: str, a: Tensor) -> Tensor:
    """φ'(a) as the layer's backward pass has it: one unit, one step, W = 0.    (N,) -> (N,)"""
    layer = RNN(1, 1, nonlinearity=phi, bias=False).double()
    put(layer, weight_ih_l0=1.0, weight_hh_l0=0.0)
    return gradient(lambda a: layer(a[:, None, None])[0].sum(), a)


def ordered(factors: Iterable[Tensor], size: int) -> Tensor:
    """A_k ⋯ A_2 A_1: the latest on the left; no factor gives the identity."""
    start: Tensor = torch.eye(size, dtype=torch.float64)
    return reduce(lambda done, factor: factor @ done, factors, start)
