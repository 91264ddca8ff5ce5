"""State: what a model must remember between two calls. State in, state out; never hidden on a module.

Recurrent state has torch's layout (layers·directions, B, H), for the LSTM the tuple (h, c). Every other
state is an object of its own with the batch first, which knows how to reorder and detach itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

State = Any  # a tensor, a tuple of states, a BatchFirstState, or None


@dataclass(frozen=True)
class BatchFirstState:
    """Base of every state that is not recurrent: its tensors have the batch as first dimension."""

    def map(self, change: Callable[[Tensor], Tensor]) -> BatchFirstState:
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: change(v) for k, v in tensors.items() if isinstance(v, Tensor)})


def map_state(state: State, recurrent: Callable[[Tensor], Tensor], batch_first: Callable[[Tensor], Tensor]) -> State:
    """Apply a change to every tensor of a state, knowing where its batch dimension is."""
    if state is None:
        return None
    if isinstance(state, Tensor):
        return recurrent(state)
    if isinstance(state, BatchFirstState):
        return state.map(batch_first)
    if isinstance(state, (tuple, list)):
        return type(state)(map_state(part, recurrent, batch_first) for part in state)
    raise TypeError(f"not a state: {type(state).__name__}")


def reorder(state: State, index: Tensor) -> State:
    """The state whose batch entry b is the old entry index[b] (beams, shuffled batches)."""
    return map_state(state, lambda h: h.index_select(1, index), lambda x: x.index_select(0, index))


def detach(state: State) -> State:
    """The same state without its history: what truncated backpropagation through time carries on."""
    return map_state(state, torch.Tensor.detach, torch.Tensor.detach)


def split_state(state: State, parts: int) -> list[State]:
    """Cut a state along the batch into equal parts."""
    if state is None:
        return [None] * parts

    def part(k: int) -> State:
        return map_state(state, lambda h: h.chunk(parts, 1)[k], lambda x: x.chunk(parts, 0)[k])

    return [part(k) for k in range(parts)]


def tensors_of(state: State) -> list[Tensor]:
    """Every tensor of a state, in a fixed order (to save it)."""
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_state(state, keep, keep)
    return found
