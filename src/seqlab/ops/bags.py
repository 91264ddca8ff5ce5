"""Sums over bags: what the rows of a table that a text's features name add up to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def bag_sums(table: Tensor, features: Tensor, rows: Tensor, size: int, values: Tensor | None = None) -> Tensor:
    """s_b = Σ_{p: rows_p = b} table[features_p] ∘ values_p.

    table (F, C), features (P,), rows (P,) in 0…size−1, values (P, C) or None for ones -> (size, C).
    The gradient of the table is one scatter-add; that of the values is not formed.
    """
    sums: Tensor = _BagSums.apply(table, features, rows, size, values)  # type: ignore[no-untyped-call]
    return sums


class _BagSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, features: Tensor, rows: Tensor, size: int, values: Tensor | None) -> Tensor:
        ctx.shape = table.shape
        ctx.save_for_backward(features, rows, *(() if values is None else (values,)))
        picked = table[features] if values is None else table[features] * values
        return table.new_zeros(size, table.shape[1]).index_add_(0, rows, picked)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """∂L/∂table[f] = Σ_{p: features_p = f} ∂L/∂s_{rows_p} ∘ values_p"""
        features, rows, *values = ctx.saved_tensors
        given = grads[0][rows]
        if values:
            given = given * values[0]
        return given.new_zeros(ctx.shape).index_add_(0, features, given), None, None, None, None
