"""Derivatives by autograd, as matrices in numerator layout: (∂y/∂x)_{ij} = ∂y_i/∂x_j."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def jacobian(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """∂f/∂x at x, both flattened.    (numbers of f(x), numbers of x)"""
    found = torch.autograd.functional.jacobian(f, x.detach())  # type: ignore[no-untyped-call]
    rows: Tensor = found.reshape(-1, x.numel())
    return rows


def gradient(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Of a number."""
    at = x.detach().requires_grad_()
    (found,) = torch.autograd.grad(f(at), at, allow_unused=True)
    return torch.zeros_like(x) if found is None else found


def recorded(y: Tensor, by: Tensor) -> Tensor:
    """∂y/∂by as autograd recorded it while y was computed: the total derivative.    (numbers of y, numbers of by)"""
    rows = [torch.autograd.grad(one, by, retain_graph=True, allow_unused=True)[0] for one in y.flatten()]
    return torch.stack([torch.zeros_like(by) if row is None else row for row in rows]).reshape(-1, by.numel())


def largest(a: Tensor) -> float:
    return float(a.detach().abs().max()) if a.numel() else 0.0


def error(a: Tensor, b: Tensor) -> float:
    """max |a − b|; infinite where the shapes differ."""
    return largest(a - b) if a.shape == b.shape else float("inf")


def relative_error(a: Tensor, b: Tensor) -> float:
    """‖a − b‖ / ‖b‖; infinite where the shapes differ."""
    return float((a - b).detach().norm() / b.detach().norm()) if a.shape == b.shape else float("inf")


def spectral_norm(a: Tensor) -> float:
    return float(torch.linalg.matrix_norm(a.detach(), 2))
