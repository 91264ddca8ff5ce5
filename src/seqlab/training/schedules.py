"""The learning rate as a function of the step."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Linear rise over the first `warmup` share of the steps, then decay to `final` (a share of the peak).

    s ≤ w :  η(s) = peak · (s + 1) / (w + 1)
    s > w :  η(s) = peak · (final + (1 − final) · d(u)),   u = (s − w) / (steps − w)
    d(u) = (1 + cos πu)/2 (cosine), 1 − u (linear), 1 (constant)
    """

    peak: float
    steps: int
    warmup: float
    decay: str
    final: float

    def __call__(self, step: int) -> float:
        w = round(self.warmup * self.steps)
        if step < w:
            return self.peak * (step + 1) / (w + 1)
        u = min(1.0, (step - w) / max(1, self.steps - w))
        d = {"cosine": (1 + math.cos(math.pi * u)) / 2, "linear": 1 - u, "constant": 1.0}[self.decay]
        return self.peak * (self.final + (1 - self.final) * d)
