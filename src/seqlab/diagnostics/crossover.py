"""From which length on linear attention is faster than exact softmax attention on this machine, or needs less memory.

    r(n) = ln (linear / softmax)        the crossing is where r becomes negative for good

The least length of the grid from which on r < 0, at it and at all longer ones; then, between it and the length before,
where the line through both (in ln n) meets zero.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.seeding import numpy_generator
from seqlab.diagnostics.timed_layers import Case, Shape, Timer, counted, in_turns

Numbers = NDArray[np.float64]
LINEAR = ("separable", "random_features")
KINDS = ("softmax", *LINEAR)
WHATS = ("forward", "training", "bytes")
START, NEVER = 0.0, math.inf  # smaller at every length of the grid; at the longest not
LONGEST = 1 << 18  # positions: what has not become less by then never does
RESAMPLES, LEVEL = 2000, 0.95


# --------------------------------------------------------------------------- the crossing


def crossing(lengths: Sequence[float], ratios: Sequence[float] | Numbers) -> float:
    """The length at which ratios = linear/softmax fall below 1 for good; START or NEVER outside the grid.

    ln n* = ln n_{k−1} + r_{k−1}/(r_{k−1} − r_k) · (ln n_k − ln n_{k−1})
    """
    if not ratios[-1] < 1:
        return NEVER
    k = len(lengths) - 1
    while k and ratios[k - 1] < 1:
        k -= 1
    if k == 0:
        return START
    before, after = math.log(ratios[k - 1]), math.log(ratios[k])
    share = before / (before - after)
    return math.exp((1 - share) * math.log(lengths[k - 1]) + share * math.log(lengths[k]))


def crossing_interval(lengths: Sequence[float], linear: Numbers, softmax: Numbers, seed: int) -> tuple[float, float]:
    """The crossing of medians over rounds that are drawn with replacement, both sides of a round together.

    linear, softmax (R, lengths), seconds -> the 95 % interval; its ends may be START and NEVER.
    """
    draw = numpy_generator(seed, "crossover")
    picked = draw.integers(len(linear), size=(RESAMPLES, len(linear)))
    ratios = np.median(linear[picked], 1) / np.median(softmax[picked], 1)
    found = np.sort([crossing(lengths, row) for row in ratios])
    low, high = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    return float(found[int(low * (RESAMPLES - 1))]), float(found[math.ceil(high * (RESAMPLES - 1))])


def counted_crossing(softmax: Shape, linear: Shape, what: str) -> float:
    """The least length at which the formula of the linear kind gives less; START where that is 1, or NEVER."""

    def fewer(length: int) -> bool:
        return counted(linear.at("length", length)).of(what) < counted(softmax.at("length", length)).of(what)

    last = 1
    while not fewer(last):
        if last == LONGEST:
            return NEVER
        last *= 2
    found = last // 2 + 1 + bisect.bisect_left(range(last // 2 + 1, last), True, key=fewer)
    return START if found == 1 else float(found)


# --------------------------------------------------------------------------- what is found


@dataclass(frozen=True, eq=False)
class Curve:
    """One kind of attention over the lengths: what a pass takes in seconds, or a step at its peak in bytes."""

    kind: str
    causal: bool
    what: str
    lengths: list[int]
    rounds: Numbers  # (R, lengths); of bytes R = 1

    @property
    def medians(self) -> list[float]:
        return [float(one) for one in np.median(self.rounds, 0)]


@dataclass(frozen=True, eq=False)
class Crossover:
    """A linear kind beside softmax. `interval` is None for bytes, which are the same each time."""

    linear: Curve
    softmax: Curve
    length: float
    interval: tuple[float, float] | None
    counted: float  # by the formulas: in operations, or in bytes that are kept

    @property
    def kind(self) -> str:
        return self.linear.kind

    @property
    def causal(self) -> bool:
        return self.linear.causal

    @property
    def what(self) -> str:
        return self.linear.what

    @property
    def ratios(self) -> list[float]:
        """linear/softmax at every length."""
        return [a / b for a, b in zip(self.linear.medians, self.softmax.medians, strict=True)]


# --------------------------------------------------------------------------- measuring


def measure_curves(
    base: Shape,
    lengths: Sequence[int],
    rounds: int,
    timer: Timer | None = None,
    advance: Callable[[int], None] = lambda done: None,
) -> list[Curve]:
    """Softmax and the linear kinds, causal and not, at all lengths, in turns; nothing is timed that is not finite."""
    kinds = [(kind, causal) for causal in (False, True) for kind in KINDS]
    cases = [Case(shape) for shape in shapes_of(base, lengths)]
    for case in cases:
        case.check()
    bytes_held = np.array([case.peak_bytes() for case in cases]).reshape(1, len(lengths), len(kinds))
    runs = [run for case in cases for run in case.runs()]
    seconds = np.array(in_turns(runs, rounds, timer, advance)).reshape(rounds, len(lengths), len(kinds), 2)
    measured: dict[str, Any] = {"forward": seconds[..., 0], "training": seconds[..., 1], "bytes": bytes_held}
    return [
        Curve(kind, causal, what, list(lengths), measured[what][:, :, k])
        for what in WHATS
        for k, (kind, causal) in enumerate(kinds)
    ]


def shapes_of(base: Shape, lengths: Sequence[int]) -> list[Shape]:
    """All kinds at a length take their turns one after the other."""
    return [
        replace(base, kind=kind, length=length, causal=causal)
        for length in lengths
        for causal in (False, True)
        for kind in KINDS
    ]


def crossovers_of(curves: Sequence[Curve], base: Shape, seed: int) -> list[Crossover]:
    """Every linear kind beside the softmax of the same quantity."""
    exact = {(curve.what, curve.causal): curve for curve in curves if curve.kind == "softmax"}
    found = []
    for curve in (curve for curve in curves if curve.kind != "softmax"):
        softmax = exact[curve.what, curve.causal]
        ratios = [a / b for a, b in zip(curve.medians, softmax.medians, strict=True)]
        timed = curve.what != "bytes"
        interval = crossing_interval(curve.lengths, curve.rounds, softmax.rounds, seed) if timed else None
        own = replace(base, kind=curve.kind, causal=curve.causal)
        by_formula = counted_crossing(replace(own, kind="softmax"), own, curve.what)
        found.append(Crossover(curve, softmax, crossing(curve.lengths, ratios), interval, by_formula))
    return found
