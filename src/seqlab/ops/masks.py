"""Masks are boolean, and True means "may be attended to". Padding is on the right; lengths say where it starts."""

import torch
from torch import Tensor

from seqlab.core.errors import UsageError


def length_mask(lengths: Tensor, time: int) -> Tensor:
    """mask[b, t] = t < lengths[b].    (B,) -> (B, T)"""
    return torch.arange(time, device=lengths.device) < lengths[:, None]


def banded_causal_mask(
    queries: int, keys: int, window: int | None = None, device: torch.device | None = None
) -> Tensor:
    """Which of S keys each of the last T positions may see: itself and the window−1 before it.

        mask[i, j] = (p − window < j ≤ p),  p = S − T + i        (T, S)

    The queries are the last T of the S positions, so that a cache only adds keys on the left. Without a window
    a position sees everything up to itself.
    """
    position = torch.arange(keys - queries, keys, device=device)[:, None]
    key = torch.arange(keys, device=device)
    causal = key <= position
    return causal if window is None else causal & (key > position - window)


def check_lengths(lengths: Tensor, batch: int, time: int) -> Tensor:
    """Lengths that fit a batch (B, T, ·), as int64; refuses what does not."""
    if not isinstance(lengths, Tensor) or lengths.shape != (batch,):
        shape = tuple(lengths.shape) if isinstance(lengths, Tensor) else type(lengths).__name__
        raise UsageError(f"lengths have shape {shape}, but the batch holds {batch} sequences; give a tensor ({batch},)")
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise UsageError(f"lengths are {lengths.dtype}; they must be whole numbers")
    lengths = lengths.long()
    if batch and not 0 <= int(lengths.min()) <= int(lengths.max()) <= time:
        wrong = int(lengths.min()) if int(lengths.min()) < 0 else int(lengths.max())
        raise UsageError(f"a length of {wrong} does not fit sequences of {time} steps; lengths run from 0 to {time}")
    return lengths
