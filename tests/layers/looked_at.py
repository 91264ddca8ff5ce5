"""Layers with weights away from their start, random inputs in float64, and a close comparison."""

from typing import Any

import torch
from torch import Tensor

B, T, D, H = 3, 5, 4, 6


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def spread(module: Any) -> Any:
    """In float64, with every weight away from its start."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        for weight in module.double().parameters():
            weight.normal_(std=0.6)
    return module


def close(a: Tensor, b: Tensor, tolerance: float = 1e-10) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=tolerance)
