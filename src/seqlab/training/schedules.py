"""The learning rate as a function of the step."""

import math
from collections.abc import Callable
from dataclasses import dataclass

# d(u): what is left of the way from the peak to the end when a share u of the steps after the warm-up is done.
SHAPES: dict[str, Callable[[float, float], float]] = {
    "constant": lambda u, cooldown: 1.0,
    "linear": lambda u, cooldown: 1 - u,
    "cosine": lambda u, cooldown: (1 + math.cos(math.pi * u)) / 2,
    "stable": lambda u, cooldown: min(1.0, (1 - u) / cooldown) if cooldown else 1.0,
}


@dataclass(frozen=True)
class Schedule:
    """Linear rise over the first `warmup` share of the steps, then decay to `final` (a share of the peak).

    s ≤ w :  η(s) = peak · (s + 1) / (w + 1)
    s > w :  η(s) = peak · (final + (1 − final) · d(u)),   u = (s − w) / (steps − w)
    d(u) = (1 + cos πu)/2 (cosine), 1 − u (linear), 1 (constant), min(1, (1 − u)/c) (stable)

    c = `cooldown` · steps / (steps − w): the share of all steps over which a stable learning rate falls at the end.
    """

    peak: float
    steps: int
    warmup: float
    decay: str
    final: float
    cooldown: float = 0.2

    def __call__(self, step: int) -> float:
        w = round(self.warmup * self.steps)
        if step < w:
            return self.peak * (step + 1) / (w + 1)
        after = max(1, self.steps - w)
        u = min(1.0, (step - w) / after)
        d = SHAPES[self.decay](u, self.cooldown * self.steps / after)
        return self.peak * (self.final + (1 - self.final) * d)
