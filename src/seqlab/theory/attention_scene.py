"""What claims about attention are tested on: a query before some keys, asked of seqlab's own layer.

Keys lie near orthonormal means μ_i, each with a value v_i. Weights come from the layer's formula and outputs from its
fused kernel, so that both of its paths are seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqlab.diagnostics.attention_experiments import asking, attended, constant, plain_attention
from seqlab.theory.instances import normal, orthogonal

A, B = 0, 1  # the two keys that are asked for
LENGTH_VARIANCE = 0.5  # of a key (1 + γ)μ_a


@dataclass(frozen=True)
class Scene:
    means: Tensor  # (n, n), orthonormal rows
    values: Tensor  # (n, n)

    @property
    def both(self) -> Tensor:
        """μ_a + μ_b"""
        return self.means[A] + self.means[B]

    @property
    def middle(self) -> Tensor:
        """½(v_a + v_b)"""
        return (self.values[A] + self.values[B]) / 2


def scene(draw: torch.Generator, keys: int) -> Scene:
    return Scene(orthogonal(draw, keys), normal(draw, keys, keys))


def asked(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """α = softmax(k q) and c = Σ α_i v_i of one head.

    q (d,) or (draws, d), k and v (n, d) or (draws, n, d) -> (draws, n), (draws, d)
    """
    k = k if k.ndim == 3 else k[None]
    draws = max(len(k), len(q) if q.ndim == 2 else 1)
    q, k = q.expand(draws, -1)[:, None], k.expand(draws, -1, -1)
    layer, v = plain_attention(k.shape[-1]), v.expand_as(k)
    with torch.no_grad():
        return attended(layer, q, k, v)[1][:, 0, 0], layer(q, k, v)[0][:, 0]


def asked_by_heads(queries: Sequence[Tensor], k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Weights of heads with a query each, and the mean of what they find.

    queries (d,) each, k (n, d) or (draws, n, d), v (n, d) -> (draws, heads, n), (draws, d)
    """
    k = k if k.ndim == 3 else k[None]
    layer, one, v = asking(queries), constant(len(k), k.shape[-1]), v.expand_as(k)
    with torch.no_grad():
        return attended(layer, one, k, v)[1][:, :, 0], layer(one, k, v)[0][:, 0]


def noisy(draw: torch.Generator, means: Tensor, noise: float, draws: int) -> Tensor:
    """k_i = μ_i + √α ε_i.    (draws, n, d)"""
    return means + math.sqrt(noise) * normal(draw, draws, *means.shape)


def stretched(draw: torch.Generator, means: Tensor, draws: int) -> tuple[Tensor, Tensor]:
    """γ ~ N(0, ½) and keys of which the first is (1 + γ)μ_a.    (draws,), (draws, n, d)"""
    gamma = math.sqrt(LENGTH_VARIANCE) * normal(draw, draws)
    keys = means.repeat(draws, 1, 1)
    keys[:, A] *= (1 + gamma)[:, None]
    return gamma, keys


def spread_of(outputs: Tensor) -> Tensor:
    """‖c − mean‖² of each draw, whose mean is the total variance.    (draws, d) -> (draws,)"""
    away: Tensor = (outputs - outputs.mean(0)).square().sum(-1)
    return away
