"""Exact moments of polynomials in independent normal numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy


def moment(power: int, mean: Any, sigma: Any) -> Any:
    """E xⁿ of x ~ N(μ, σ²), by  E xⁿ = μ E xⁿ⁻¹ + (n − 1) σ² E xⁿ⁻²."""
    if power < 2:
        return sympy.Integer(1) if power == 0 else mean
    return mean * moment(power - 1, mean, sigma) + (power - 1) * sigma**2 * moment(power - 2, mean, sigma)


def expected(polynomial: Any, normals: Mapping[Any, tuple[Any, Any]]) -> Any:
    """E of a polynomial in independent symbols, each with its (mean, standard deviation)."""
    total = sympy.Integer(0)
    for powers, coefficient in sympy.Poly(polynomial, *normals).terms():
        factors = [moment(n, *of) for n, of in zip(powers, normals.values(), strict=True)]
        total += coefficient * sympy.prod(factors)
    return sympy.expand(total)
