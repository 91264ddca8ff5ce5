"""Ratios that mean something on a noisy machine: both sides alternate in one run, and the medians are compared."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def alternate(sides: Sequence[Callable[[], Any]], repetitions: int, warm_up: int = 2) -> list[float]:
    """Median seconds of each side; the sides take turns, so that a slow moment meets all of them."""
    seconds: list[list[float]] = [[] for _ in sides]
    for repetition in range(warm_up + repetitions):
        for side, measured in zip(sides, seconds, strict=True):
            start = time.perf_counter()
            side()
            if repetition >= warm_up:
                measured.append(time.perf_counter() - start)
    return [statistics.median(measured) for measured in seconds]


def geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of log cost over log size, by least squares: 1 is linear."""
    x, y = [math.log(s) for s in sizes], [math.log(c) for c in costs]
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


def largest_difference(mine: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    """Relative to the largest entry of each."""
    pairs = [(a.detach(), b.detach()) for a, b in zip(mine, theirs, strict=True)]
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-12)) for a, b in pairs)


def verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def two_threads() -> None:
    torch.set_num_threads(2)
