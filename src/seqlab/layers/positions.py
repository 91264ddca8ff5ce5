"""Where a token stands: sinusoidal and learned positions are added to the embedding, rotary ones turn q and k.

A text may go on at any position: `start` is that of the first column, one for all or (B,) one for each sequence.
"""

import functools

import torch
from torch import Tensor, nn

from seqlab.core.errors import UsageError, nearest
from seqlab.core.sizes import check_sinusoidal
from seqlab.core.traits import LookUpTable

BASE = 10000.0
LAYOUTS = ("interleaved", "halves")
PAIRINGS = ("neighbours", "halves")


def angles(positions: Tensor, width: int, base: float = BASE) -> Tensor:
    """θ[p, i] = p / base^{2i/width}, 0 ≤ i < width/2.   positions (…) -> (…, width/2), float64"""
    i = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    return positions.to(torch.float64)[..., None] * base ** (-i / width)


def counted_from(start: int | Tensor, time: int, device: torch.device) -> Tensor:
    """start … start+T−1.    -> (T,), or (B, T) where each sequence has a start of its own"""
    steps = torch.arange(time, device=device)
    return steps + (start if isinstance(start, int) else start[:, None].to(device))


def check_width(x: Tensor, width: int) -> None:
    if x.ndim < 3 or x.shape[-1] != width:
        raise UsageError(f"x has shape {tuple(x.shape)}, but the positions are for a last dimension of {width}")


class SinusoidalPosition(nn.Module):
    """Defined for every position, in one of two layouts:

    interleaved   PE(p, 2i) = sin θ[p, i],  PE(p, 2i+1) = cos θ[p, i]
    halves        PE(p, i) = sin θ[p, i],   PE(p, d/2 + i) = cos θ[p, i]
    """

    def __init__(self, width: int, *, layout: str = "interleaved", base: float = BASE) -> None:
        super().__init__()
        check_sinusoidal(width)
        if layout not in LAYOUTS:
            raise UsageError(f"layout '{layout}' is not known{nearest(layout, LAYOUTS)}")
        self.width, self.layout, self.base = width, layout, base

    def forward(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        """x (B, T, D) -> x + PE."""
        check_width(x, self.width)
        theta = angles(counted_from(start, x.shape[1], x.device), self.width, self.base)
        if self.layout == "halves":
            return x + torch.cat([theta.sin(), theta.cos()], dim=-1).to(x.dtype)
        return x + torch.stack([theta.sin(), theta.cos()], dim=-1).flatten(-2).to(x.dtype)


class LearnedPosition(LookUpTable):
    """One vector for each position below `context`; there is none beyond."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(context, width) * 0.02)

    def forward(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        """x (B, T, D) -> x + table[p]."""
        context, width = self.table.shape
        check_width(x, width)
        end = (start if isinstance(start, int) else int(start.max())) + x.shape[1]
        if end > context:
            raise UsageError(
                f"position {end - 1} is beyond the {context} learned positions; feed at most {context} tokens"
            )
        if isinstance(start, int):
            return x + self.table[start:end]
        return x + self.table[counted_from(start, x.shape[1], x.device)]


class RotaryPosition(nn.Module):
    """Turns each pair of numbers of a head by θ[p, i], so that q·k depends on p_q − p_k alone.

    Pairs are neighbours (u_{2i}, u_{2i+1}), or halves (u_i, u_{i+w/2}) of the first w = `turned` numbers; the others
    stay as they are, and w is the whole head unless said otherwise.
    """

    def __init__(
        self, head_width: int, *, base: float = BASE, pairing: str = "neighbours", turned: int | None = None
    ) -> None:
        super().__init__()
        turned = head_width if turned is None else turned
        if turned % 2 or not 0 < turned <= head_width:
            good = min(turned, head_width) // 2 * 2
            remedy = f"choose {good}" if good > 0 else "choose heads of 2 numbers or more"
            raise UsageError(
                f"rotary positions turn pairs and need an even width per head, not {turned} of {head_width}; {remedy}"
            )
        if pairing not in PAIRINGS:
            raise UsageError(f"pairing '{pairing}' is not known{nearest(pairing, PAIRINGS)}")
        self.head_width, self.base, self.pairing, self.turned = head_width, base, pairing, turned

    def forward(self, u: Tensor, start: int | Tensor = 0) -> Tensor:
        """u (…, B, N, T, d) -> the same, turned."""
        check_width(u, self.head_width)
        if isinstance(start, Tensor) and u.ndim < 4:
            raise UsageError(f"u has shape {tuple(u.shape)}, but a start for each sequence needs (B, heads, T, d)")
        if self.turned < self.head_width:
            return torch.cat([self._turn(u[..., : self.turned], start), u[..., self.turned :]], -1)
        return self._turn(u, start)

    def _turn(self, u: Tensor, start: int | Tensor) -> Tensor:
        """A pair is one complex number, and turning it by θ is multiplying it by e^{iθ}."""
        wide = u.to(torch.float64 if u.dtype == torch.float64 else torch.float32)
        turns = self._turns(start, u.shape[-2], wide)
        if self.pairing == "halves":
            (a, b), (cos, sin) = wide.chunk(2, -1), (turns.real, turns.imag)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(u.dtype)
        if any(stride % 2 for stride in wide.stride()[:-1]) or wide.stride(-1) != 1 or wide.storage_offset() % 2:
            wide = wide.contiguous()  # a complex number begins at every second place
        pairs = torch.view_as_complex(wide.reshape(*u.shape[:-1], self.turned // 2, 2))
        return torch.view_as_real(pairs * turns).flatten(-2).to(u.dtype)

    def _turns(self, start: int | Tensor, time: int, like: Tensor) -> Tensor:
        """e^{iθ}, one for all sequences, (T, w/2), or one for each, (B, 1, T, w/2)."""
        if isinstance(start, int):
            return _turns(start, time, self.turned, self.base, like.dtype, like.device)
        return _complex(angles(counted_from(start, time, like.device), self.turned, self.base), like.dtype)[:, None]


@functools.lru_cache(maxsize=64)  # every layer asks for the same
@torch.inference_mode(False)
def _turns(start: int, time: int, width: int, base: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    return _complex(angles(counted_from(start, time, device), width, base), dtype)


def _complex(theta: Tensor, dtype: torch.dtype) -> Tensor:
    """e^{iθ} for numbers of a type."""
    turns = torch.polar(torch.ones_like(theta), theta)
    return turns.to(torch.complex128 if dtype == torch.float64 else torch.complex64)
