"""State: what a model must remember between two calls. State in, state out; never hidden on a module.

Recurrent state has torch's layout (layers·directions, B, H), for the LSTM the tuple (h, c). Every other state is a
dataclass of its own with the batch first. What one does with a state is the same for all: reorder, split and join it
along the batch, detach it, pack it for a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.core.errors import DamageError, UsageError

Tensors = dict[str, Tensor]
State = Any  # a tensor, a tuple of states, a BatchFirstState, or None
BATCH_FIRST, BATCH_SECOND = 0, 1  # the dimension of the batch, the second in torch's recurrent layout
PLAIN = (bool, int, float, str)  # what a BatchFirstState may hold beside states
SCRATCH = {"scratch": True}  # metadata of a field that is no part of the state: a changed or loaded one starts without
TENSOR = "tensor"  # how a packed shape speaks of a tensor

_KINDS: dict[str, type[BatchFirstState]] = {}


@dataclass(frozen=True)
class BatchFirstState:
    """Base of every state that is not recurrent: its tensors have the batch as first dimension.

    A subclass is a frozen dataclass whose fields are states, all with the batch first, and plain values (numbers,
    words), which hold for the whole batch; one marked SCRATCH must have a default. Files know a state by its name.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        known = _KINDS.get(cls.__name__, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise UsageError(
                f"two states are called {cls.__name__}, in {known.__module__} and {cls.__module__}; rename one: "
                "files know a state by its name"
            )
        _KINDS[cls.__name__] = cls

    @classmethod
    def part_names(cls) -> list[str]:
        return [f.name for f in fields(cls) if f.metadata != SCRATCH]

    def parts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.part_names()}

    def map(self, change: Callable[[Tensor], Tensor]) -> BatchFirstState:
        changed = {
            name: part if isinstance(part, PLAIN) else map_state(part, change, change)
            for name, part in self.parts().items()
        }
        return type(self)(**changed)

    @classmethod
    def joined(cls, states: Sequence[Self]) -> Self:
        """One state from those of parts of a batch, field by field.

        A subclass that can put sequences of different lengths side by side says here how; what cannot be joined is a
        UsageError.
        """
        return cls(**{name: _joined_part([getattr(s, name) for s in states], cls, name) for name in cls.part_names()})


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
    return map_state(state, lambda h: h.index_select(BATCH_SECOND, index), lambda x: x.index_select(BATCH_FIRST, index))


def detach(state: State) -> State:
    """The same state without its history: what truncated backpropagation through time carries on."""
    return map_state(state, torch.Tensor.detach, torch.Tensor.detach)


def tensors_of(state: State) -> list[Tensor]:
    """Every tensor of a state, in a fixed order."""
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_state(state, keep, keep)
    return found


# --------------------------------------------------------------------------- along the batch


def batch_sizes(state: State) -> set[int]:
    """How many sequences its tensors are for: one number if the state keeps to the layout, none if it has no tensor."""
    sizes: set[int] = set()

    def seen(tensor: Tensor, dim: int) -> Tensor:
        sizes.add(tensor.shape[dim] if tensor.ndim > dim else 0)
        return tensor

    map_state(state, lambda h: seen(h, BATCH_SECOND), lambda x: seen(x, BATCH_FIRST))
    return sizes


def split(state: State, parts: int) -> list[State]:
    """Cut a state along the batch as `torch.chunk` cuts the batch itself: equal parts, the last one perhaps smaller."""
    if parts == 1:
        return [state]

    def part(k: int) -> State:
        return map_state(
            state, lambda h: _chunks(h, parts, BATCH_SECOND)[k], lambda x: _chunks(x, parts, BATCH_FIRST)[k]
        )

    return [part(k) for k in range(parts)]


def _chunks(tensor: Tensor, parts: int, dim: int) -> tuple[Tensor, ...]:
    chunks = tensor.chunk(parts, dim)
    if len(chunks) != parts:
        raise UsageError(
            f"a state of {tensor.shape[dim]} sequences cannot be cut into {parts} parts of one size and a smaller "
            f"last one; cut it into {len(chunks)}"
        )
    return chunks


def join(states: Sequence[State]) -> State:
    """One state from those of parts of a batch: what `split` cut, or sequences of different lengths where they can be.

    A recurrent state is the same however long the text was. A BatchFirstState says for itself what it can join.
    """
    return states[0] if len(states) == 1 else _joined(states, BATCH_SECOND, "the state")


def _joined(states: Sequence[State], dim: int, place: str) -> State:
    """`place` names the state in errors."""
    first = states[0]
    _the_same([_kind_name(state) for state in states], place)
    if first is None:
        return None
    if isinstance(first, Tensor):
        _the_same([f"of shape {_shape_beside(state, dim)}" for state in states], place)
        return torch.cat(list(states), dim)
    if isinstance(first, BatchFirstState):
        return type(first).joined(states)
    if isinstance(first, (tuple, list)):
        _the_same([f"a {_kind_name(state)} of {len(state)}" for state in states], place)
        return type(first)(_joined(parts, dim, place) for parts in zip(*states, strict=True))
    raise TypeError(f"not a state: {type(first).__name__}")


def _joined_part(parts: list[Any], kind: type[BatchFirstState], name: str) -> Any:
    place = f"{kind.__name__}.{name}"
    plain = all(isinstance(part, PLAIN) for part in parts)
    return _the_same(parts, place) if plain else _joined(parts, BATCH_FIRST, place)


def _shape_beside(tensor: Tensor, dim: int) -> str:
    """Its shape without the batch."""
    return str(tuple(size if k != dim else "batch" for k, size in enumerate(tensor.shape))).replace("'", "")


def join_at_the_end(parts: Sequence[Tensor], dim: int, filler: float = 0) -> Tensor:
    """Tensors with the batch first, joined so that they end together: shorter ones have the filler before them.

    (B_k, …, S_k, …) -> (Σ B_k, …, max S_k, …), S being at `dim`
    """
    behind = (0,) * 2 * (parts[0].ndim - 1 - dim)
    missing = [max(part.shape[dim] for part in parts) - part.shape[dim] for part in parts]
    filled = [F.pad(part, (*behind, n, 0), value=filler) if n else part for part, n in zip(parts, missing, strict=True)]
    return torch.cat(filled, BATCH_FIRST)


def join_masks(masks: Sequence[Tensor | None], like: Sequence[Tensor]) -> Tensor | None:
    """Which of what `join_at_the_end` put together is real; None if all of it is.

    masks (B_k, S_k) or None, like (B_k, …, S_k, ·) -> (Σ B_k, max S_k)
    """
    sizes = [(len(part), part.shape[-2]) for part in like]
    if all(mask is None for mask in masks) and len({length for _, length in sizes}) == 1:
        return None
    real = [
        torch.ones(size, dtype=torch.bool, device=part.device) if mask is None else mask
        for mask, size, part in zip(masks, sizes, like, strict=True)
    ]
    return join_at_the_end(real, 1)


def _the_same(values: list[Any], place: str) -> Any:
    for value in values:
        if value != values[0]:
            raise _unlike(place, values[0], value)
    return values[0]


def _kind_name(state: State) -> str:
    if state is None:
        return "None"
    return "a tensor" if isinstance(state, Tensor) else type(state).__name__


def _unlike(place: str, one: Any, other: Any) -> UsageError:
    return UsageError(
        f"cannot join parts of a batch: {place} is {one} in one and {other} in another; join parts that were fed alike"
    )


# --------------------------------------------------------------------------- for files


def pack(state: State, prefix: str = "") -> tuple[Any, Tensors]:
    """A state as (its shape in JSON values, copies of its tensors by name); names begin with the prefix.

    The shape of a tensor is "tensor", of a tuple a list, of a BatchFirstState {"state": its name, "fields": {…}}; a
    plain value among its fields is {"value": …}.
    """
    if state is None:
        return None, {}
    if isinstance(state, Tensor):
        return TENSOR, {prefix: state.detach().clone()}
    if isinstance(state, BatchFirstState):
        packed = {name: _pack_field(part, f"{prefix}.{name}") for name, part in state.parts().items()}
        shapes = {name: shape for name, (shape, _) in packed.items()}
        return {"state": type(state).__name__, "fields": shapes}, _merged(packed.values())
    if isinstance(state, (tuple, list)):
        parts = [pack(part, f"{prefix}.{k}") for k, part in enumerate(state)]
        return [shape for shape, _ in parts], _merged(parts)
    raise TypeError(f"not a state: {type(state).__name__}")


def _pack_field(part: Any, prefix: str) -> tuple[Any, Tensors]:
    return ({"value": part}, {}) if isinstance(part, PLAIN) else pack(part, prefix)


def _merged(packed: Iterable[tuple[Any, Tensors]]) -> Tensors:
    return {name: tensor for _, tensors in packed for name, tensor in tensors.items()}


def unpack(shape: Any, tensors: Tensors, prefix: str = "") -> State:
    """The state that `pack` packed. A file names states, never code: a name that no class here has is refused."""
    if shape is None:
        return None
    if shape == TENSOR:
        if prefix not in tensors:
            raise DamageError(f"a saved state is damaged: its tensor '{prefix}' is missing")
        return tensors[prefix].clone()
    if isinstance(shape, list):
        return tuple(unpack(part, tensors, f"{prefix}.{k}") for k, part in enumerate(shape))
    if isinstance(shape, dict) and shape.keys() == {"state", "fields"} and isinstance(shape["fields"], dict):
        return _unpack_fields(shape["state"], shape["fields"], tensors, prefix)
    raise DamageError(f"a saved state is damaged: '{prefix}' cannot have the shape {shape}")


def _unpack_fields(name: Any, shapes: dict[str, Any], tensors: Tensors, prefix: str) -> BatchFirstState:
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise DamageError(
            f"a saved state is a '{name}', which is not known here; import the model that it belongs to first"
        )
    if shapes.keys() != set(kind.part_names()):
        raise DamageError(f"a saved {name} has the fields {', '.join(shapes)}, not {', '.join(kind.part_names())}")
    return kind(**{part: _unpack_field(shapes[part], tensors, f"{prefix}.{part}") for part in shapes})


def _unpack_field(shape: Any, tensors: Tensors, prefix: str) -> Any:
    if isinstance(shape, dict) and shape.keys() == {"value"} and isinstance(shape["value"], PLAIN):
        return shape["value"]
    return unpack(shape, tensors, prefix)
