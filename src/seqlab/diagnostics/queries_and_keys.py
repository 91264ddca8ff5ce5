"""The queries, keys and values of every multi-head attention layer, as one forward pass has them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.layers.attention import MultiHeadAttention
from seqlab.layers.attention_checks import Matrix
from seqlab.layers.attention_state import KeyValueCache, Offset
from seqlab.ops.attention import shared_by


@dataclass(frozen=True, eq=False)
class Asked:
    """One call of a layer, cut into heads, positions turned in: q (B, N, T, d), k and v (B, N, S, d)."""

    q: Tensor
    k: Tensor
    v: Tensor
    causal: bool


def layers_with_heads(model: nn.Module) -> dict[str, MultiHeadAttention]:
    """By path, in the order of the modules."""
    return {path: module for path, module in model.named_modules() if isinstance(module, MultiHeadAttention)}


@torch.no_grad()
def asked_of(model: nn.Module, run: Callable[[], Any]) -> dict[str, Asked]:
    """What each layer was asked in the last call that had a query, by path, in float64.

    Hooks stand on the layers while `run` runs the model; the layers themselves compute as ever.
    """
    found: dict[str, Asked] = {}
    with contextlib.ExitStack() as hooks:
        for path, layer in layers_with_heads(model).items():
            handle = layer.register_forward_pre_hook(_ear(found, path), with_kwargs=True)
            hooks.callback(handle.remove)
        run()
    return found


def _ear(found: dict[str, Asked], path: str) -> Callable[..., None]:
    def hear(layer: Any, given: Any, named: Any) -> None:
        call = inspect.signature(layer.forward).bind(*given, **named)
        call.apply_defaults()
        if call.arguments["query"].shape[1]:  # a translator first has its source projected, with nobody asking
            found[path] = _asked(layer, call.arguments)

    return hear


def _asked(layer: MultiHeadAttention, call: Mapping[str, Any]) -> Asked:
    """q = turn(W_q x), k = turn(W_k y), v = W_v y; keys that were projected before come from the state."""
    key, value, state, causal = (call[name] for name in ("key", "value", "state", "causal"))
    w_q, w_k, w_v = layer.matrices()
    q = _turned(layer, _heads(layer, call["query"], w_q), 0 if causal else call["start"])
    if key is not None and state is None:
        k, v = _turned(layer, _heads(layer, key, w_k), 0), _heads(layer, value, w_v)
    elif key is None and isinstance(state, KeyValueCache):
        k, v = state.keys, state.values
    else:
        raise UsageError("queries and keys are taken from whole texts, not from pieces of them")
    k, v = shared_by(k, layer.n_heads), shared_by(v, layer.n_heads)
    return Asked(q.double(), k.double(), v.double(), causal)


def _heads(layer: MultiHeadAttention, x: Tensor, matrix: Matrix) -> Tensor:
    """(B, T, D) -> (B, heads, T, d)"""
    projected = F.linear(x, *matrix)
    return projected.view(*x.shape[:2], -1, layer.head_width).transpose(1, 2)


def _turned(layer: MultiHeadAttention, u: Tensor, start: Offset) -> Tensor:
    result: Tensor = u if layer.rotary is None else layer.rotary(u, start)
    return result
