"""Symbolic proofs: an identity holds if the difference of its sides simplifies to nothing."""

from __future__ import annotations

from typing import Any

import sympy

from seqlab.theory.ledger import Finding


def vanishes(what: str, difference: Any) -> Finding:
    """0 where the expression (each entry of a matrix) is identically zero, else how many entries are not."""
    entries = list(difference) if isinstance(difference, sympy.MatrixBase) else [difference]
    left = [entry for entry in entries if not _is_zero(entry)]
    return Finding(what, float(len(left)), (0.0, 0.0))


def _is_zero(expression: Any) -> bool:
    for reduce in (sympy.expand, sympy.simplify, lambda e: sympy.simplify(e.rewrite(sympy.exp))):
        if reduce(sympy.sympify(expression)) == 0:
            return True
    return False


def step(left: Any, right: Any) -> str:
    """A line of a derivation, as LaTeX."""
    return f"{_latex(left)} = {_latex(right)}"


def _latex(side: Any) -> str:
    return side if isinstance(side, str) else str(sympy.latex(side))
