"""Claims about positions."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from seqlab.layers import SinusoidalPosition
from seqlab.theory.instances import stream
from seqlab.theory.jacobians import error
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, at_least, at_most, evidence

claim = LEDGER.of("positions")

Table = Callable[[int, int], Tensor]  # (positions, width) -> (positions, width)
BASE = 10000.0


def of_the_layer(time: int, width: int) -> Tensor:
    """What seqlab adds to a text of zeros."""
    added: Tensor = SinusoidalPosition(width)(torch.zeros(1, time, width, dtype=torch.float64))
    return added[0]


def table(time: int, rates: Tensor) -> Tensor:
    """sin and cos of p·rate, side by side."""
    theta = torch.arange(time, dtype=torch.float64)[:, None] * rates
    return torch.stack([theta.sin(), theta.cos()], -1).flatten(-2)


def by_pair(time: int, width: int) -> Tensor:
    return table(time, BASE ** (-2 * torch.arange(width // 2, dtype=torch.float64) / width))


def by_dimension(time: int, width: int) -> Tensor:
    """i read as the dimension: pair k stands at the dimension 2k, which is doubled once more."""
    return table(time, BASE ** (-4 * torch.arange(width // 2, dtype=torch.float64) / width))


def without_cosines(time: int, width: int) -> Tensor:
    return table(time, BASE ** (-2 * torch.arange(width // 2, dtype=torch.float64) / width)).abs()


@claim(
    "pe.sinusoid",
    statement=r"$PE(p, 2i) = \sin(p / 10000^{2i/d})$ and $PE(p, 2i+1) = \cos(p / 10000^{2i/d})$.",
    note=r"$\lVert PE(p) \rVert^2 = d/2$; $PE(p+k) = R_k PE(p)$ with a rotation $R_k$ that does not depend on $p$; "
    r"so the inner product depends on the distance only. $d$ must be even.",
    verdict="true",
    method="identity",
    right=of_the_layer,
    wrong={"i is the dimension": by_dimension, "the signs are lost": without_cosines},
    about=("seqlab.layers:SinusoidalPosition",),
)
def sinusoid(seed: int, form: Table) -> Evidence:
    width = 2 * int(torch.randint(4, 40, (1,), generator=stream(seed, "pe.sinusoid")))
    pe = form(60, width)
    inner = pe @ pe.T
    along = torch.stack([inner.diagonal(k).max() - inner.diagonal(k).min() for k in range(60)])
    return evidence(
        at_most("largest difference from the formula", error(pe, by_pair(60, width)), 1e-12),
        at_most("‖PE‖² − d/2", error((pe**2).sum(1), torch.full((60,), width / 2).double()), 1e-10),
        at_most("PE(p+7) − R₇ PE(p)", error(pe[7:], rotated(pe[:-7], 7)), 1e-10),
        at_most("inner products at one distance differ by", along.abs().max(), 1e-10),
    )


def rotated(pe: Tensor, steps: int) -> Tensor:
    """R_k PE(p): each pair is turned by k times its rate."""
    width = pe.shape[1]
    angle = steps * BASE ** (-2 * torch.arange(width // 2, dtype=torch.float64) / width)
    sine, cosine = pe[:, 0::2], pe[:, 1::2]
    return torch.stack(
        [sine * angle.cos() + cosine * angle.sin(), cosine * angle.cos() - sine * angle.sin()], -1
    ).flatten(-2)


def slowest_rate(pe: Tensor) -> float:
    """Of the last pair, from its angle at position 1."""
    return math.atan2(float(pe[1, -2]), float(pe[1, -1]))


@claim(
    "pe.index-meaning",
    statement=r"In $PE(p, 2i)$, $i$ is the dimension index.",
    correction=r"$i$ counts pairs of sine and cosine, $0 \le i < d/2$; the dimension is $2i$ or $2i+1$. Read as the "
    r"dimension, the slowest rate is near $10000^{-2}$ instead of $10000^{-1}$.",
    verdict="false",
    method="identity",
    right=by_pair,
    wrong={AS_STATED: by_dimension},
    about=("seqlab.layers:SinusoidalPosition",),
)
def index_meaning(seed: int, form: Table) -> Evidence:
    width = 2 * int(torch.randint(16, 64, (1,), generator=stream(seed, "pe.index-meaning")))
    pe = form(60, width)
    return evidence(
        at_most("largest difference from what the layer adds", error(pe, of_the_layer(60, width)), 1e-12),
        at_least("slowest rate times the base", slowest_rate(pe) * BASE, 1.0),
        counterexample=rf"$d = 4$, $p = 1$, the entry $2$: the layer adds ${of_the_layer(2, 4)[1, 2]:.4f}$, "
        rf"$\sin(1/100)$; with $i$ read as the dimension it were ${by_dimension(2, 4)[1, 2]:.4f}$, $\sin(1/10000)$.",
    )
