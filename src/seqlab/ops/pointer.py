"""Copying from a source: where in it the next token stands, and a distribution that mixes copying with generating.

x (B, S) are the ids of the source, u (B, T) those that the decoder has read, its first one the tag of the target.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

TINY = 1e-30  # what has no mass is not drawn from; its logarithm must be a number all the same
BEFORE, NOWHERE, UNREAD = -1, -2, -3  # what stands before the source, further before it, and before the tag


def with_past(u: Tensor, reach: int, recent: Tensor | None) -> Tensor:
    """What was read, with the `reach` − 1 ids before it; at the start the tag stands for what precedes the source.

    u (B, T), recent (B, reach − 1) or None at the start -> (B, reach − 1 + T)
    """
    if recent is None:
        recent = u.new_full((len(u), reach - 1), UNREAD)
        u = torch.cat([u.new_full((len(u), 1), BEFORE), u[:, 1:]], 1)
    return torch.cat([recent, u], 1)


def matches(u: Tensor, x: Tensor, kernel: Tensor) -> Tensor:
    """m_ts = Σ_{j<J} Σ_{1≤i≤J} α_ij [u_{t−j} = x_{s−i}]: how well what was read fits what stands before s.

    u (B, J − 1 + T) from `with_past`, x (B, S), kernel α (J, J), its rows j and its columns i counting from the
    farthest -> (B, T, S)
    """
    reach = len(kernel)
    before = x.new_full((len(x), reach), NOWHERE)
    before[:, -1] = BEFORE
    same = (u[:, :, None] == torch.cat([before, x], 1)[:, None, :]).to(kernel.dtype)  # (B, J − 1 + T, J + S)
    found = F.conv2d(same[:, None], kernel[None, None])[:, 0]
    return found[:, :, : x.shape[1]]  # the last column looks at the whole source: nothing stands there


def distances(first: int, queries: int, keys: int, like: Tensor) -> Tensor:
    """|s − t| for t = first, first + 1, …    (T, S)"""
    t = torch.arange(first, first + queries, device=like.device)
    return (torch.arange(keys, device=like.device)[None, :] - t[:, None]).abs().to(like.dtype)


def mixed_nats(generated: Tensor, copy: Tensor, weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """−ln((1 − c) e^g + c Σ_{s: x_s = y} a_s) of each row, c = σ(copy).

    generated g (R,), ln p(y) of what generates; copy (R,), weights a (R, S), x (R, S), y (R,) -> (R,)
    """
    mass = (weights * (x == y[:, None])).sum(-1)
    copied = mass.clamp(min=TINY).log()
    return -torch.logaddexp(F.logsigmoid(-copy) + generated, F.logsigmoid(copy) + copied)


def mixed_logarithms(z: Tensor, copy: Tensor, weights: Tensor, x: Tensor) -> Tensor:
    """ln((1 − c) softmax(z) + c Σ_s a_s [x_s = ·]) of every token.

    z (B, T, V), copy (B, T), weights (B, T, S), x (B, S) -> (B, T, V)
    """
    c, rest = torch.sigmoid(copy)[..., None], torch.sigmoid(-copy)[..., None]  # 1 − c would lose all digits
    p = (rest * torch.softmax(z, -1)).scatter_add(-1, x[:, None, :].expand_as(weights), c * weights)
    return p.clamp(min=TINY).log()
