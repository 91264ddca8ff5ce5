"""Layers of a shape, run and timed in turns, and what is counted of them.

shape = Shape("softmax", batch=1, length=512, width=128, heads=4)
case = Case(shape)                     what it reads is drawn from the random stream
rounds = in_turns(case.runs(), 7)      rounds[r][k]: seconds of run k in round r
counted(shape).flops                   operations of a forward pass
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from seqlab.core.eager import without_numbers
from seqlab.core.errors import NotFiniteError
from seqlab.diagnostics.cost import Walk, count_parameters
from seqlab.diagnostics.cost_terms import Term, Use
from seqlab.diagnostics.rehearsal import rehearse
from seqlab.layers import GRU, LSTM, RNN, DecoderBlock, EncoderBlock, MultiHeadAttention

RECURRENT: dict[str, Any] = {"rnn": RNN, "gru": GRU, "lstm": LSTM}
NUMBER = 4  # bytes of a float32
LEAST = 2e-3  # seconds that a measurement lasts, or longer: short calls are repeated
SHARE = 0.8  # of the memory that can be had, which may be asked for
TRANSIENT = 3  # a step's peak is below so many times what it keeps (tests/diagnostics/test_timed_layers.py)


@dataclass(frozen=True)
class Shape:
    """kind: softmax, separable, random_features, a recurrent layer, or block (of a Transformer, with softmax)."""

    kind: str
    batch: int
    length: int
    width: int
    heads: int = 1
    features: int | None = None
    causal: bool = False

    def at(self, axis: str, size: int) -> Shape:
        """The same with another length, width or number of heads."""
        return replace(self, **{axis: size})  # type: ignore[arg-type]

    @property
    def name(self) -> str:
        sizes = f"length {self.length}, width {self.width}"
        return f"{self.kind} ({sizes})" if self.kind in RECURRENT else f"{self.kind} ({sizes}, {self.heads} heads)"


def build(shape: Shape) -> nn.Module:
    if shape.kind in RECURRENT:
        layer: nn.Module = RECURRENT[shape.kind](shape.width, shape.width)
        return layer
    kind = "softmax" if shape.kind == "block" else shape.kind
    features = shape.features if kind == "random_features" else None
    attention = MultiHeadAttention(shape.width, shape.heads, kind=kind, features=features)
    if shape.kind == "block":
        return DecoderBlock(attention) if shape.causal else EncoderBlock(attention)
    return attention


# --------------------------------------------------------------------------- running


@dataclass(frozen=True, eq=False)
class Run:
    """What is timed: a forward pass without gradients, or a training step (forward and backward)."""

    shape: Shape
    what: str  # forward, training
    call: Callable[[], Any]


class Case:
    """A layer with what it reads and the gradient of what it writes, both (B, n, d), drawn from N(0, 1)."""

    def __init__(self, shape: Shape) -> None:
        self.shape, self.layer = shape, build(shape)
        size = (shape.batch, shape.length, shape.width)
        self.x = torch.randn(size, requires_grad=True)
        self.gradient = torch.randn(size)

    def output(self) -> Tensor:
        x, layer = self.x, self.layer
        out = layer(x, x, x, causal=self.shape.causal) if isinstance(layer, MultiHeadAttention) else layer(x)
        y: Tensor = out[0] if isinstance(out, tuple) else out
        return y

    @torch.no_grad()
    def forward(self) -> None:
        self.output()

    def step(self) -> None:
        torch.autograd.backward(self.output(), self.gradient)
        self.forget()

    def forget(self) -> None:
        self.x.grad = None
        self.layer.zero_grad(set_to_none=True)

    def runs(self) -> list[Run]:
        return [Run(self.shape, "forward", self.forward), Run(self.shape, "training", self.step)]

    def peak_bytes(self) -> float:
        """What torch holds at the worst moment of a step beside weights and input: the same each time."""
        return rehearse(self.step, self.layer).peak_bytes

    def check(self) -> None:
        """Nothing is timed whose output or gradient is not finite."""
        y = self.output()
        torch.autograd.backward(y, self.gradient)
        assert self.x.grad is not None
        for what, numbers in (("output", y), ("gradient", self.x.grad)):
            if not bool(torch.isfinite(numbers).all()):
                raise NotFiniteError(f"the {what} of {self.shape.name} is not finite, so it is not timed; try --seed 1")
        self.forget()


Timer = Callable[[Run], float]


class Stopwatch:
    """Mean seconds of a call, over so many that they last `least` seconds together; each is run once before."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter, least: float = LEAST) -> None:
        self.clock, self.least = clock, least
        self._times: dict[Run, int] = {}

    def __call__(self, run: Run) -> float:
        if run not in self._times:
            run.call()
            self._times[run] = max(1, math.ceil(self.least / max(self._lasting(run, 1), 1e-7)))
        return self._lasting(run, self._times[run]) / self._times[run]

    def _lasting(self, run: Run, times: int) -> float:
        start = self.clock()
        for _ in range(times):
            run.call()
        return self.clock() - start


def in_turns(
    runs: Sequence[Run], rounds: int, timer: Timer | None = None, advance: Callable[[int], None] = lambda done: None
) -> list[list[float]]:
    """Seconds of every run in every round. The runs take turns, so that a slow moment meets all of them."""
    timer, found = timer or Stopwatch(), []
    for number in range(rounds):
        measured = []
        for k, run in enumerate(runs):
            advance(number * len(runs) + k)
            measured.append(timer(run))
        found.append(measured)
    return found


# --------------------------------------------------------------------------- counting


@dataclass(frozen=True)
class Counted:
    """By the formulas: operations of the forward pass and of a step; bytes that a step keeps, gradients included."""

    forward: float
    training: float
    bytes: float

    def of(self, what: str) -> float:
        return float(getattr(self, what))


def counted(shape: Shape) -> Counted:
    products, kept = terms_of(shape)
    forward = sum(term.value for term in products)
    return Counted(
        forward,
        forward + sum(term.value * term.backward for term in products),
        sum(term.value for term in kept),
    )


def terms_of(shape: Shape) -> tuple[list[Term], list[Term]]:
    """Terms of the operations, and of the bytes: activations that are kept, and the gradients of the weights."""
    terms = list(Walk(outline(shape)).terms(Use(shape.batch, shape.length, causal=shape.causal)))
    gradients = [replace(term, coefficient=NUMBER) for term in terms if term.what == "parameters"]
    return [term for term in terms if term.what == "flops"], [t for t in terms if t.what == "saved"] + gradients


def outline(shape: Shape) -> nn.Module:
    """The layer without numbers in it; batch and length are no part of it."""
    return _outlined(replace(shape, batch=1, length=1))


@functools.lru_cache(128)
def _outlined(shape: Shape) -> nn.Module:
    with without_numbers():
        return build(shape)


# --------------------------------------------------------------------------- will it fit?


def held_bytes(shape: Shape) -> float:
    """Weights, input and the gradient of the output: there as long as the case is."""
    numbers = 2 * shape.batch * shape.length * shape.width
    return NUMBER * (numbers + count_parameters(outline(shape)))


def step_bytes(shape: Shape) -> float:
    """More than a step holds at its peak."""
    vectors = 4 * shape.batch * shape.length * shape.width
    return TRANSIENT * counted(shape).bytes + NUMBER * vectors


def that_fit(shapes: Iterable[Shape], spare: float | None) -> list[Shape]:
    """Those that fit into the memory that can be had, the smallest first: all cases are held, one of them runs."""
    found: list[Shape] = []
    held = 0.0
    for shape in sorted(shapes, key=lambda one: held_bytes(one) + step_bytes(one)):
        if spare is not None and held + held_bytes(shape) + step_bytes(shape) > SHARE * spare:
            break
        held += held_bytes(shape)
        found.append(shape)
    return found
