"""How a cost grows: the slope of its logarithm over that of the size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope b of ln cost = a + b ln size, least squares."""
    x, y = np.log(np.asarray(sizes, float)), np.log(np.asarray(costs, float))
    x = x - x.mean()
    return float(x @ y / (x @ x))


def last_exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Between the two largest sizes: nearest to the limit."""
    return exponent(sizes[-2:], costs[-2:])
