"""Random instances, each from a stream of its own, in float64."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def stream(seed: int, *names: object) -> torch.Generator:
    """The same for the same seed and names, whatever else was drawn."""
    digest = hashlib.sha256(repr((seed, *map(str, names))).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def normal(draw: torch.Generator, *shape: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=draw, dtype=torch.float64)


def uniform(draw: torch.Generator, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    return low + (high - low) * torch.rand(*shape, generator=draw, dtype=torch.float64)


def orthogonal(draw: torch.Generator, size: int) -> Tensor:
    """Q with QᵀQ = I, uniformly distributed."""
    q, r = torch.linalg.qr(normal(draw, size, size))
    turned: Tensor = q * r.diagonal().sign()
    return turned


def with_norm(draw: torch.Generator, size: int, norm: float) -> Tensor:
    """A random square matrix of this spectral norm."""
    w = normal(draw, size, size)
    scaled: Tensor = w * (norm / torch.linalg.matrix_norm(w, 2))
    return scaled


def fill(module: torch.nn.Module, draw: torch.Generator, scale: float = 0.5) -> torch.nn.Module:
    """A module in float64 whose parameters are normal with this standard deviation."""
    module = module.double().eval()
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(normal(draw, *weight.shape, scale=scale))
    return module
