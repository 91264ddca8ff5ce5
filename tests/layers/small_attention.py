"""A small layer of attention, random inputs in float64, and a close comparison."""

from typing import Any

import torch
from torch import Tensor

from seqlab.layers import MultiHeadAttention

KINDS = ["softmax", "separable", "random_features"]
B, D, N = 3, 12, 3


def build(kind: str = "softmax", **options: Any) -> MultiHeadAttention:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        layer = MultiHeadAttention(D, N, kind=kind, **options).double()
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.normal_(std=0.6)
    return layer


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(a: Tensor, b: Tensor, tolerance: float = 1e-11) -> bool:
    return bool(torch.isfinite(a).all()) and torch.allclose(a, b, rtol=0, atol=tolerance)
