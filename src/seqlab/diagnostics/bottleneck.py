"""Which part of a model takes most operations, and at what length that changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from seqlab.core.errors import UsageError
from seqlab.diagnostics.cost import Cost

LONGEST = 1 << 24  # positions: a part that has not overtaken by then never does
TOGETHER = {"scores": "scores and mixing", "mixing": "scores and mixing"}  # both grow with every pair of positions


@dataclass(frozen=True)
class Bottleneck:
    """The part with most operations, and where that moves: the least length at which another takes as many or more."""

    part: str
    share: float  # of all operations
    since: int | None  # the length from which on it has been the largest; None: from the first position on
    before: str | None  # what was the largest there
    until: int | None  # the length at which another overtakes it; None: none ever does
    after: str | None  # which


def bottleneck(cost: Cost) -> Bottleneck:
    """Of bare self-attention of width d: 8nd² for the projections, 4n²d for scores and mixing, equal at n = 2d.

    A window that the length has not reached grows with it: a model is made for the length that it is used at.
    """
    shares = _grouped(cost)
    windowed = _grouped(cost.at(cost.length, False)) != shares
    part = max(shares, key=lambda name: shares[name])
    if not any(shares.values()):
        raise UsageError("the model multiplies nothing, so it has no bottleneck")

    def rivals(length: int) -> list[str]:
        """Parts that take as many operations or more at this length."""
        found = _grouped(cost.at(length, windowed))
        return [name for name in found if name != part and found[name] >= found[part]]

    def largest(length: int) -> bool:
        found = _grouped(cost.at(length, windowed))
        return found[part] == max(found.values())

    until = _first(lambda length: bool(rivals(length)), cost.length)
    since = None if largest(1) else _first(largest, 1)
    return Bottleneck(
        part,
        shares[part] / sum(shares.values()),
        since,
        None if since is None else max(others := _grouped(cost.at(since - 1, windowed)), key=lambda name: others[name]),
        until,
        None if until is None else rivals(until)[0],
    )


def _grouped(cost: Cost) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in cost.parts:
        name = TOGETHER.get(part.name, part.name)
        found[name] = found.get(name, 0) + part.flops_forward
    return found


def _first(holds: Callable[[int], bool], start: int) -> int | None:
    """The least length from `start` on at which something holds that then goes on to hold."""
    low, high = start, start
    while not holds(high):
        low, high = high, 2 * high
        if high > LONGEST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
