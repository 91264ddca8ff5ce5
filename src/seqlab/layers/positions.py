"""Where a token stands: sinusoidal and learned positions are added to the embedding, rotary ones turn q and k."""

import functools

import torch
from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.core.traits import LookUpTable


def angles(positions: Tensor, width: int) -> Tensor:
    """θ[p, i] = p / 10000^{2i/width}, 0 ≤ i < width/2.   positions (T,) -> (T, width/2), float64"""
    i = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    return positions.to(torch.float64)[:, None] * 10000.0 ** (-i / width)


def check_width(x: Tensor, width: int) -> None:
    if x.ndim < 3 or x.shape[-1] != width:
        raise UsageError(f"x has shape {tuple(x.shape)}, but the positions are for a last dimension of {width}")


class SinusoidalPosition(nn.Module):
    """PE(p, 2i) = sin θ[p, i], PE(p, 2i+1) = cos θ[p, i]; defined for every position."""

    def __init__(self, width: int) -> None:
        super().__init__()
        if width % 2:
            raise UsageError(f"sinusoidal positions need an even width, not {width}")
        self.width = width

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (B, T, D) at positions start … start+T−1 -> x + PE."""
        check_width(x, self.width)
        theta = angles(torch.arange(start, start + x.shape[1], device=x.device), self.width)
        return x + torch.stack([theta.sin(), theta.cos()], dim=-1).flatten(-2).to(x.dtype)


class LearnedPosition(LookUpTable):
    """One vector for each position below `context`; there is none beyond."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(context, width) * 0.02)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        context, width = self.table.shape
        check_width(x, width)
        end = start + x.shape[1]
        if end > context:
            raise UsageError(
                f"position {end - 1} is beyond the {context} learned positions; feed at most {context} tokens"
            )
        return x + self.table[start:end]


class RotaryPosition(nn.Module):
    """Turns each pair (u_{2i}, u_{2i+1}) of a head by θ[p, i], so that q·k depends on p_q − p_k alone."""

    def __init__(self, head_width: int) -> None:
        super().__init__()
        if head_width % 2:
            raise UsageError(f"rotary positions need an even width per head, not {head_width}")
        self.head_width = head_width

    def forward(self, u: Tensor, start: int | Tensor = 0) -> Tensor:
        """u (…, B, N, T, d) at positions start … start+T−1 -> the same, turned. `start` may differ by sequence, (B,).

        A pair is one complex number, and turning it by θ is multiplying it by e^{iθ}.
        """
        check_width(u, self.head_width)
        wide = u.to(torch.float64 if u.dtype == torch.float64 else torch.float32)
        if isinstance(start, Tensor):
            turns = torch.stack([_turns(int(s), u.shape[-2], self.head_width, wide.dtype, u.device) for s in start])
            turns = turns[:, None]
        else:
            turns = _turns(start, u.shape[-2], self.head_width, wide.dtype, u.device)
        if any(stride % 2 for stride in wide.stride()[:-1]) or wide.stride(-1) != 1 or wide.storage_offset() % 2:
            wide = wide.contiguous()  # a complex number begins at every second place
        pairs = torch.view_as_complex(wide.reshape(*u.shape[:-1], self.head_width // 2, 2))
        return torch.view_as_real(pairs * turns).flatten(-2).to(u.dtype)


@functools.lru_cache(maxsize=64)  # every layer asks for the same
@torch.inference_mode(False)
def _turns(start: int, length: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """e^{iθ[p, i]} for p = start … start+length−1.    (length, width/2), complex"""
    theta = angles(torch.arange(start, start + length, device=device), width)
    return torch.polar(torch.ones_like(theta), theta).to(
        torch.complex128 if dtype == torch.float64 else torch.complex64
    )
