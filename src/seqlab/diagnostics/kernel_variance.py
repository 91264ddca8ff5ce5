"""The variance of random features, from formulas and measured.

κ̂ = φ(q)ᵀφ(k) estimates κ = e^{qᵀk} without bias. With u = q + k and x = ‖u‖², κ̂/κ = 1/m Σ_f e^{w_fᵀu − x/2}, so that

    independent w     Var(κ̂/κ) = (e^x − 1)/m
    orthogonal w      Var(κ̂/κ) = (e^x − 1)/m − s (1 − e^{−x} ₁F₁(d; d/2; x/2)),   s = Σ_blocks b(b − 1)/m²

Of two orthogonal directions w, w' with norms of their own, w + w' has a uniform direction and ‖w + w'‖² ~ χ²_{2d};
hence E e^{(w + w')ᵀu} = ₁F₁(d; d/2; x/2), which is less than the e^x of two independent ones.

κ̂/κ is a mean of log-normal numbers. Its square depends on directions that lie 2√x standard deviations out, the error of
that on 4√x. A sample of n directions has seen these only while x is below about ln n/8: beyond, its variance is too
small, and looks certain. Such pairs are left out, and counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy.special import hyp1f1
from torch import Tensor

from seqlab.diagnostics.approximation import DIRECTIONS, Pairs
from seqlab.diagnostics.attention_maps import Change, change_of
from seqlab.diagnostics.drawing import batches
from seqlab.diagnostics.experiments import JUDGED, NEAR, SHOWN
from seqlab.ops.linear_attention import gaussian_directions, positive_features

SAMPLE = 2**17  # directions drawn for each width, m and kind
MEASURED = 16  # pairs of each head, or of each width and logit scale


@dataclass(frozen=True)
class Variance:
    """Of κ̂/κ over draws of m directions, in the mean over pairs."""

    features: int
    orthogonal: bool
    pairs: int  # measured
    share: float  # of all pairs, how many could be
    theory: float
    measured: float
    ratio: Change  # measured over theory, mean over pairs, 95 % over draws

    @property
    def agrees(self) -> bool:
        """1 lies in the interval of 99.9 %, widened by 5 %: a skewed sample is low oftener than its interval says."""
        half = JUDGED / SHOWN * (self.ratio.high - self.ratio.mean)
        return abs(self.ratio.mean - 1) <= half + NEAR

    def as_json(self) -> dict[str, Any]:
        return {
            **{"features": self.features, "directions": DIRECTIONS[self.orthogonal], "pairs": self.pairs},
            **{"share_of_pairs": self.share, "theory": self.theory, "measured": self.measured},
            "ratio": {"mean": self.ratio.mean, "low": self.ratio.low, "high": self.ratio.high},
            "agrees": self.agrees,
        }


def most_measurable(directions: int = SAMPLE) -> float:
    """The largest ‖q + k‖² whose variance so many directions can show: ln n/8."""
    return math.log(directions) / 8


def variance_formula(norms: Tensor, features: int, width: int, *, orthogonal: bool) -> Tensor:
    """Var(κ̂/κ) for pairs with ‖q + k‖² = x.    x (P,) -> (P,)"""
    independent = torch.expm1(norms) / features
    if not orthogonal:
        return independent
    whole, rest = divmod(features, width)
    neighbours = (whole * width * (width - 1) + rest * (rest - 1)) / features**2
    both = torch.as_tensor(hyp1f1(width, width / 2, norms.numpy() / 2)) * torch.exp(-norms)
    return independent - neighbours * (1 - both)


def measurable(pairs: Pairs, directions: int = SAMPLE) -> tuple[Pairs, float]:
    """At most MEASURED of the pairs whose variance can be measured, evenly spaced, and the share of those that can."""
    here = (pairs.norms <= most_measurable(directions)).nonzero()[:, 0]
    some = here[torch.linspace(0, len(here) - 1, min(MEASURED, len(here))).long()]
    return Pairs(pairs.q[some], pairs.k[some]), len(here) / len(pairs.q)


@torch.no_grad()
def squared_errors(
    pairs: Pairs, features: int, *, orthogonal: bool, generator: torch.Generator, directions: int = SAMPLE
) -> Tensor:
    """(κ̂/κ − 1)² of every pair, for R independent draws of m directions; its mean is the variance.    (R, P)"""
    width = pairs.q.shape[-1]
    exact = (pairs.q * pairs.k).sum(-1).exp()

    def estimate(w: Tensor) -> Tensor:
        return (positive_features(pairs.q, w) * positive_features(pairs.k, w)).sum(-1)

    found = []
    for _, size in batches(max(2, directions // features), 2 * features * max(len(pairs.q), width)):
        w = _draws(size, features, width, orthogonal, generator).double()
        found.append((torch.func.vmap(estimate)(w) / exact - 1).square())
    return torch.cat(found)


def _draws(draws: int, features: int, width: int, orthogonal: bool, generator: torch.Generator) -> Tensor:
    """Independent draws of m directions. A draw of orthogonal ones has blocks of its own.    (R, m, d)"""
    rows = -(-features // width) * width
    w = gaussian_directions(draws * rows, width, orthogonal=orthogonal, generator=generator)
    return w.view(draws, rows, width)[:, :features]


def kernel_variance(
    groups: Sequence[Pairs], features: int, *, orthogonal: bool, generator: torch.Generator, directions: int = SAMPLE
) -> list[Variance | None]:
    """Of every group of pairs of one width; None where no pair can be measured. One sample of directions for all."""
    chosen = [measurable(pairs, directions) for pairs in groups]
    joint = Pairs(torch.cat([some.q for some, _ in chosen]), torch.cat([some.k for some, _ in chosen]))
    if not len(joint.q):
        return [None] * len(groups)
    squares = squared_errors(joint, features, orthogonal=orthogonal, generator=generator, directions=directions)
    theory = variance_formula(joint.norms, features, joint.q.shape[-1], orthogonal=orthogonal)
    sizes = [len(some.q) for some, _ in chosen]
    found: list[Variance | None] = []
    parts = zip(torch.split(squares, sizes, 1), torch.split(theory, sizes), chosen, strict=True)
    for own, expected, (some, share) in parts:
        if not len(some.q):
            found.append(None)
            continue
        ratio = change_of((own / expected).mean(1))
        means = float(expected.mean()), float(own.mean())
        found.append(Variance(features, orthogonal, len(some.q), share, *means, ratio))
    return found
