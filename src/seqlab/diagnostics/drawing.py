"""Random numbers for experiments, and what a sample says of a mean and a variance."""

from __future__ import annotations

import math

import torch
from torch import Tensor

AT_ONCE = 2_000_000  # numbers drawn at a time


def normal(draw: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def frame(draw: torch.Generator, width: int) -> Tensor:
    """Orthonormal rows.    (d, d)"""
    found: Tensor = torch.linalg.qr(normal(draw, width, width))[0]
    return found


def batches(total: int, each: int) -> list[tuple[int, int]]:
    """(first, size) of pieces of `total` draws of `each` numbers, a few million numbers at a time."""
    size = max(1, min(total, AT_ONCE // max(each, 1)))
    return [(first, min(size, total - first)) for first in range(0, total, size)]


def variance_of(values: Tensor) -> tuple[float, float]:
    """The variance and its standard error √((m₄ − s⁴)/n)."""
    away = values - values.mean()
    second, fourth = float(away.square().mean()), float(away.pow(4).mean())
    return second * len(values) / (len(values) - 1), math.sqrt(max(fourth - second**2, 0.0) / len(values))


def mean_of(values: Tensor) -> tuple[float, float]:
    """The mean and its standard error."""
    return float(values.mean()), float(values.std()) / math.sqrt(len(values))
