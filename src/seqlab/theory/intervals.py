"""Inequalities over whole ranges: interval arithmetic encloses every value of a function on a box, rounding included.

f ≤ bound on a box is proved when the enclosure of f over each of some small boxes that cover it lies below the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpmath import iv

Box = tuple[tuple[float, float], ...]
Function = Callable[..., Any]  # of intervals; iv.exp, iv.log, … in place of math's


def enclosure(f: Function, box: Box) -> tuple[float, float]:
    """Numbers between which f lies everywhere on the box."""
    found = f(*(iv.mpf(list(side)) for side in box))
    return float(found.a), float(found.b)


def proves(f: Function, box: Sequence[tuple[float, float]], bound: float, most: int = 20_000) -> int:
    """How many boxes prove f ≤ bound everywhere; 0 where a box refutes it, or `most` are not enough."""
    left, used = [tuple(box)], 0
    while left:
        here = left.pop()
        used += 1
        if used > most:
            return 0
        if enclosure(f, here)[1] <= bound:
            continue
        middle = tuple(((a + b) / 2, (a + b) / 2) for a, b in here)
        if enclosure(f, middle)[0] > bound:
            return 0  # the bound is broken at this point
        left.extend(_halves(here))
    return used


def _halves(box: Box) -> list[Box]:
    """Cut at the middle of its longest side."""
    k = max(range(len(box)), key=lambda i: box[i][1] - box[i][0])
    a, b = box[k]
    middle = (a + b) / 2
    return [(*box[:k], side, *box[k + 1 :]) for side in ((a, middle), (middle, b))]
