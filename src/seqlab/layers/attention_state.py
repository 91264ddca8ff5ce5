"""What attention remembers: keys and values, or sums over them; how a cache grows and forgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from seqlab.core.state import SCRATCH, BatchFirstState, join_at_the_end, join_masks
from seqlab.ops.linear_attention import FeatureSums

Offset = int | Tensor  # how many positions went before: one number, or (B,) where lengths differ
LEAST_CAPACITY = 64


@dataclass
class Buffers:
    """Keys and values with room to spare at the end, shared by the caches that grew out of each other."""

    keys: Tensor  # (B, N, capacity, d)
    values: Tensor
    filled: int


@dataclass(frozen=True)
class KeyValueCache(BatchFirstState):
    """Softmax attention remembers keys and values, (B, N, S, d); `mask` (B, S) says which are real.

    Without gradients they are views into buffers that a later cache fills further, so that a token costs no copy of
    all those before it. What a cache shows never changes: it is extended in place only if nobody did so before.
    """

    keys: Tensor
    values: Tensor
    position: Offset
    mask: Tensor | None = None
    buffers: Buffers | None = field(default=None, metadata=SCRATCH)

    @property
    def batch(self) -> int:
        return len(self.keys)

    @classmethod
    def joined(cls, states: Sequence[Self]) -> Self:
        """Keys of different number end together: a window counts from the end, and new keys come after all."""
        if len({state.keys.shape[2] for state in states}) > 1:
            states = [state._without_padding() for state in states]
        keys, values = [state.keys for state in states], [state.values for state in states]
        mask = join_masks([state.mask for state in states], keys)
        return cls(join_at_the_end(keys, 2), join_at_the_end(values, 2), _joint_position(states), mask)

    def since(self, first: int) -> Self:
        """The cache without the keys before `first`; without a mask if all that are left are real."""
        mask = self.mask
        if first and mask is not None:
            mask = None if mask[:, first:].all() else mask[:, first:]
        return replace(self, keys=self.keys[:, :, first:], values=self.values[:, :, first:], mask=mask)

    def packed(self) -> Self:
        """The same with the keys and values of each head side by side in memory: quicker to read many times."""
        return replace(self, keys=self.keys.contiguous(), values=self.values.contiguous())

    def _without_padding(self) -> Self:
        """The cache without what is padding in all its sequences, at the beginning."""
        if self.mask is None or self.mask.numel() == 0:
            return self
        return self.since(int(self.mask.any(0).int().argmax()))


@dataclass(frozen=True)
class FeatureCache(FeatureSums):
    """The linear kinds remember sums over the keys, which do not grow with the text."""

    position: Offset = 0

    @property
    def batch(self) -> int:
        return len(self.sums)

    @classmethod
    def joined(cls, states: Sequence[Self]) -> Self:
        """Sums are the same size however many keys are in them."""
        sums, level = (torch.cat(parts) for parts in zip(*((s.sums, s.level) for s in states), strict=True))
        return cls(sums, level, _joint_position(states))


AttentionState = KeyValueCache | FeatureCache


def extended(
    past: KeyValueCache | None, k: Tensor | None, v: Tensor | None, mask: Tensor | None, following: Offset
) -> KeyValueCache:
    """The cache with the new keys at its end, of which the mask (B, S) says which are real; `following` comes next."""
    if k is None or v is None:
        assert past is not None
        stranger = torch.is_grad_enabled() and past.keys.is_inference()  # autograd may not keep such a tensor
        return replace(past, keys=past.keys.clone(), values=past.values.clone()) if stranger else past
    if past is None:
        return KeyValueCache(k, v, following, mask)
    mask = _joint_mask(past, k, mask)
    if torch.is_grad_enabled() or past.buffers is None:  # what was just reordered, as beams are, seldom grows twice
        keys, values = torch.cat([past.keys, k], 2), torch.cat([past.values, v], 2)
        full = None if torch.is_grad_enabled() else Buffers(keys, values, keys.shape[2])
        return KeyValueCache(keys, values, following, mask, full)
    buffers, first = _with_room(past, k.shape[2])
    last = buffers.filled + k.shape[2]
    buffers.keys[:, :, buffers.filled : last] = k
    buffers.values[:, :, buffers.filled : last] = v
    buffers.filled = last
    return KeyValueCache(buffers.keys[:, :, first:last], buffers.values[:, :, first:last], following, mask, buffers)


def _joint_mask(past: KeyValueCache, k: Tensor, mask: Tensor | None) -> Tensor | None:
    """The mask of old and new keys; None where all of them are real.    (B, S)"""
    if mask is None and past.mask is None:
        return None
    old = past.keys.new_ones(past.keys.shape[::2], dtype=torch.bool) if past.mask is None else past.mask
    new = k.new_ones(k.shape[::2], dtype=torch.bool) if mask is None else mask
    return torch.cat([old, new], 1)


def _with_room(past: KeyValueCache, more: int) -> tuple[Buffers, int]:
    """Buffers that end with what `past` shows and have room for more, and where it begins in them."""
    buffers, length = past.buffers, past.keys.shape[2]
    if buffers is not None and buffers.filled + more <= buffers.keys.shape[2]:
        first = buffers.filled - length
        writable = torch.is_inference_mode_enabled() or not buffers.keys.is_inference()
        if writable and first >= 0 and past.keys.data_ptr() == buffers.keys[:, :, first:].data_ptr():
            return buffers, first
    B, N, _, d = past.keys.shape
    capacity = max(LEAST_CAPACITY, 2 * (length + more))
    keys, values = (old.new_empty(B, N, capacity, d) for old in (past.keys, past.values))
    keys[:, :, :length], values[:, :, :length] = past.keys, past.values
    return Buffers(keys, values, length), 0


def cut_to_window(cache: KeyValueCache, window: int | None) -> KeyValueCache:
    """What a later position can still see: the last window−1."""
    if window is None:
        return cache
    return cache.since(max(0, cache.keys.shape[2] - (window - 1)))


def _joint_position(states: Sequence[KeyValueCache | FeatureCache]) -> Offset:
    """One number where it is the same for all, else (B,)."""
    positions = [state.position for state in states]
    if not any(isinstance(p, Tensor) for p in positions) and len(set(positions)) == 1:
        return positions[0]
    each = [p if isinstance(p, Tensor) else torch.full((s.batch,), p) for s, p in zip(states, positions, strict=True)]
    return torch.cat(each)
