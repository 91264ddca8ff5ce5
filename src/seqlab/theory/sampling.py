"""Monte Carlo whose errors are budgeted: an interval that is nearly never wrong, and enough draws to be right.

mean ± Z · sd/√n        Z = 4.5: a right constant is missed once in 150,000 checks
n ≥ ((Z + P) · sd/gap)² a constant that is `gap` away is rejected with probability Φ(P), P = 4.5 too
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from seqlab.theory.ledger import Finding, Limits

Z, POWER = 4.5, 4.5


@dataclass(frozen=True)
class Sampled:
    mean: float
    interval: Limits


def mean_of(samples: Tensor) -> Sampled:
    """Of independent draws."""
    mean, stray = float(samples.mean()), Z * float(samples.std()) / math.sqrt(len(samples))
    return Sampled(mean, (mean - stray, mean + stray))


def variance_of(samples: Tensor) -> Sampled:
    """Of independent draws: the mean of squared deviations, which are nearly independent for many draws."""
    return mean_of((samples - samples.mean()) ** 2)


def share_of(hits: Tensor) -> Sampled:
    """Wilson's interval of a probability, which is right for rare and common ones."""
    n, p = len(hits), float(hits.double().mean())
    centre, spread = p + Z**2 / (2 * n), Z * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    return Sampled(p, ((centre - spread) / (1 + Z**2 / n), (centre + spread) / (1 + Z**2 / n)))


def meets(what: str, sampled: Sampled, exact: float, slack: float = 0.0) -> Finding:
    """The interval holds the exact value (or one `slack` away, where that is a limit or an approximation)."""
    return Finding(what, sampled.mean, (exact - slack, exact + slack), sampled.interval)


def draws_for(deviation: float, gap: float) -> int:
    """How many draws reject a constant that is `gap` away from the right one."""
    return math.ceil(((Z + POWER) * deviation / gap) ** 2)


def median(samples: Tensor) -> float:
    return float(torch.quantile(samples.double(), 0.5))
