"""Language models of equal size: the width at which a kind costs as much as another."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from seqlab.core.errors import UsageError
from seqlab.core.settings.fields import LARGEST, filled
from seqlab.core.settings.lm import LMSettings
from seqlab.diagnostics.cost import count_parameters, training_flops
from seqlab.models.build import outline_lm
from seqlab.workflows.duel.entrants import Cost

NEAR = 0.02  # of the wanted size: a model further off is reported
LEAST_HEAD_WIDTH = 8
NEIGHBOURS = 12  # widths tried around the solution, which may not be divisible as it should


def cost_of(settings: LMSettings, vocab_size: int, match: str = "flops") -> Cost:
    """Counted on an outline without numbers, so that even an enormous model costs no memory.

    A layer that does not say what it costs is refused only where operations are to be equal.
    """
    model = outline_lm(settings, vocab_size)
    try:
        flops: float | None = training_flops(model, filled(settings.training.context))
    except UsageError:
        if match == "flops":
            raise
        flops = None
    return Cost(count_parameters(model), flops)


def solve_width(
    settings: LMSettings, vocab_size: int, match: str, target: float, *, fixed_heads: bool = False
) -> LMSettings:
    """The settings with the width (and heads that divide it) whose cost is nearest to the target."""

    def sized(width: int) -> LMSettings | None:
        return with_width(settings, width, fixed_heads=fixed_heads)

    def cost(candidate: LMSettings) -> float:
        return cost_of(candidate, vocab_size, match).by(match)

    def too_small(width: int) -> bool:
        possible = _next_possible(sized, width)
        return possible is not None and cost(possible) < target

    about = _first_not(too_small, LARGEST)
    reach = max(NEIGHBOURS, 2 * (settings.model.heads or 0))
    near = [sized(width) for width in range(max(1, about - reach), min(LARGEST, about + reach) + 1)]
    candidates = [candidate for candidate in near if candidate is not None]
    return min(candidates, key=lambda candidate: abs(math.log(cost(candidate) / target)))


def with_width(settings: LMSettings, width: int, *, fixed_heads: bool = False) -> LMSettings | None:
    """The settings with another width, or None where it cannot be had.

    The heads follow the width: their own width is even (rotary and sinusoidal positions turn pairs) and stays as
    near as possible to the preset's, between 8 and twice that.
    """
    model = settings.model
    sizes: dict[str, Any] = {"width": width}
    if model.heads is not None:
        preset = filled(model.width) // model.heads
        allowed = [model.heads] if fixed_heads else range(1, width + 1)
        least = min(LEAST_HEAD_WIDTH, width)
        widths = {h: width // h for h in allowed if width % (2 * h) == 0 and least <= width // h <= max(2 * preset, 8)}
        if not widths:
            return None
        sizes["heads"] = min(widths, key=lambda h: abs(math.log(widths[h] / preset)))
    return dataclasses.replace(settings, model=dataclasses.replace(model, **sizes))


def _next_possible(sized: Callable[[int], LMSettings | None], width: int) -> LMSettings | None:
    return next((found for found in map(sized, range(width, LARGEST + 1)) if found is not None), None)


def _first_not(holds: Callable[[int], bool], most: int) -> int:
    """The least number from 1 to `most` at which a condition, once true of all smaller ones, no longer holds."""
    high = 1
    while high < most and holds(high):
        high *= 2
    low, high = high // 2, min(high, most)  # it holds at low (or low is 0), not at high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high
