"""Attention whose cost grows linearly with the length: separable, and with positive random features.

Both send every key j to features f with logarithmic weights β_jf and read them with row weights:

    random features   out_i = Σ_f e^{α_if} S_f / Σ_f e^{α_if} z_f
    separable         out_i = Σ_f softmax_f(q_i)_f S_f / z_f
    S_f = Σ_j e^{β_jf} v_j,   z_f = Σ_j e^{β_jf},   over all keys, or causally over j ≤ i

S and z do not depend on the query, so they are all that has to be remembered of the past (`FeatureSums`).

Nothing overflows or vanishes, however large a key is. Each feature has a level, a constant c_f that divides its sums
and multiplies its row weights, and cancels. All keys: c_f = max_j β_jf. Causal: the sequence is cut into chunks; c_f
lies halfway between the largest β_f that the chunk's first row (with any key to see) sees and its last row's. Where
these two lie too far apart for the number format the chunks are halved, so that the level never drowns an early row
under the keys of a later one: the past is the same whatever the future holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.core.state import BatchFirstState

CHUNK = 64
SEGMENT = 512  # positions whose intermediate results are held at once: small enough to stay near the processor
# The largest spread of log weights inside a chunk. Its exponential must neither overflow nor vanish: half of it is
# divided by the other half, and the backward pass divides once more.
SPREAD = {torch.float64: 650.0, torch.float32: 80.0, torch.bfloat16: 80.0, torch.float16: 9.0}


@dataclass(frozen=True)
class FeatureSums(BatchFirstState):
    """What the keys so far add up to: e^{−level} (S, z) with one level for each feature."""

    sums: Tensor  # (B, N, F, d + 1), the last column is z
    level: Tensor  # (B, N, F)


# --------------------------------------------------------------------------- features


def gaussian_directions(
    features: int, width: int, *, orthogonal: bool = False, generator: torch.Generator | None = None
) -> Tensor:
    """w_1 … w_m ~ N(0, I).    -> (m, d), float32

    Orthogonal: blocks of d mutually orthogonal directions (rows of a random orthogonal matrix), each with the norm of
    an independent Gaussian vector. Every single w is still N(0, I), so the kernel estimate stays unbiased; its
    variance falls.
    """
    w = torch.randn(features, width, generator=generator)
    if not orthogonal:
        return w
    blocks = -(-features // width)
    q, r = torch.linalg.qr(torch.randn(blocks, width, width, generator=generator))
    signs = torch.diagonal(r, dim1=-2, dim2=-1).sign()  # makes the orthogonal matrix uniformly distributed
    rotations: Tensor = (q * signs[:, None]).reshape(blocks * width, width)[:features]
    return rotations * w.square().sum(1, keepdim=True).sqrt()


def log_features(u: Tensor, w: Tensor) -> Tensor:
    """log φ(u)_f = w_fᵀu − ‖u‖²/2 − ½ log m.    u (…, d), w (m, d) -> (…, m)"""
    constant = (u.square().sum(-1, keepdim=True) + math.log(len(w))) / 2
    return F.linear(u, w).sub_(constant)


def positive_features(u: Tensor, w: Tensor) -> Tensor:
    """φ(u) = m^{−1/2} e^{−‖u‖²/2} (e^{w_1ᵀu}, …, e^{w_mᵀu}): E[φ(q)ᵀφ(k)] = e^{qᵀk}.    (…, d) -> (…, m)"""
    return log_features(u, w).exp()


@dataclass(frozen=True)
class Features:
    """How queries become row weights and keys become β, and which of the two ways of reading is meant."""

    rows: Callable[[Tensor], Tensor]  # (B, N, T, d) -> (B, N, T, F)
    keys: Callable[[Tensor], Tensor]
    per_feature: bool  # separable: each feature is normalised by itself; else the whole row is
    fresh: bool  # rows and keys give new tensors, which may be overwritten


SEPARABLE = Features(rows=lambda q: q, keys=lambda k: k, per_feature=True, fresh=False)


def random_features(w: Tensor) -> Features:
    """Those of softmax(q kᵀ/√d): α and β are log features of q/d^{1/4} and k/d^{1/4}.    w (m, d)

    α goes without its constant −‖q‖²/2 − ½ log m, which divides out of every row.
    """

    def scaled(u: Tensor) -> Tensor:
        return u * math.pow(u.shape[-1], -0.25)

    return Features(
        rows=lambda q: F.linear(scaled(q), w), keys=lambda k: log_features(scaled(k), w), per_feature=False, fresh=True
    )


# --------------------------------------------------------------------------- attention


def attend(
    features: Features,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    key_mask: Tensor | None = None,
    causal: bool = False,
    past: FeatureSums | None = None,
) -> tuple[Tensor, FeatureSums]:
    """Linear attention, a segment of positions at a time.

    q (B, N, T, d), k and v (B, N, S, d), key_mask (B, S) -> (B, N, T, d), the sums over all keys. Causal: T = S, and
    `past` holds the keys before these.
    """
    beta = (_hidden(features.keys(part), key_mask, n) for n, part in enumerate(_segments(k)))
    if not causal:
        for logs, values in zip(beta, _segments(v), strict=True):
            past = add_keys(logs, values, past)
        assert past is not None
        return ask(features, q, past), past
    outputs = []
    for part, logs, values in zip(_segments(q), beta, _segments(v), strict=True):
        rows = features.rows(part)
        out, past = causal_sums(rows, logs, values, past, per_feature=features.per_feature, overwrite=features.fresh)
        outputs.append(out)
    assert past is not None
    return torch.cat(outputs, -2), past


def ask(features: Features, q: Tensor, sums: FeatureSums) -> Tensor:
    """What queries read from sums that are there already.    (B, N, T, d)"""
    parts = [read(features.rows(part), sums, per_feature=features.per_feature) for part in _segments(q)]
    return torch.cat(parts, -2)


def attention_weights(
    features: Features, q: Tensor, k: Tensor, *, key_mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """The weights that `attend` never forms: it mixes values as W v, so the identity as values gives W I = W.

    q (B, N, T, d), k (B, N, S, d), key_mask (B, S) -> (B, N, T, S)
    """
    S = k.shape[-2]
    identity = torch.eye(S, dtype=k.dtype, device=k.device).expand(*k.shape[:2], S, S)
    return attend(features, q, k, identity, key_mask=key_mask, causal=causal)[0]


def _segments(x: Tensor) -> tuple[Tensor, ...]:
    return torch.split(x, SEGMENT, -2)


def _hidden(beta: Tensor, key_mask: Tensor | None, segment: int) -> Tensor:
    """β of a segment with −inf where the mask hides the key."""
    if key_mask is None:
        return beta
    mask = key_mask[:, segment * SEGMENT : segment * SEGMENT + beta.shape[-2]]
    return beta.masked_fill(~mask[:, None, :, None], -torch.inf)


# --------------------------------------------------------------------------- sums over keys


def add_keys(beta: Tensor, v: Tensor, past: FeatureSums | None = None) -> FeatureSums:
    """S_f and z_f over these keys and those before.

    beta (B, N, S, F) with −inf at padding, v (B, N, S, d), past or None -> FeatureSums
    """
    level = beta.detach().amax(-2) if beta.shape[-2] else beta.new_full((*beta.shape[:2], beta.shape[3]), -torch.inf)
    if past is not None:
        level = torch.maximum(level, past.level)
    sums = (beta - _finite(level)[..., None, :]).exp_().transpose(-1, -2) @ _with_ones(v)
    if past is not None:
        sums = sums + past.sums * _decay(past.level, level)
    return FeatureSums(sums, level)


def read(rows: Tensor, sums: FeatureSums, *, per_feature: bool) -> Tensor:
    """What a query takes from the sums.    rows (B, N, T, F) -> (B, N, T, d)

    `per_feature`: separable (each feature is normalised by itself); else random features (the whole row is).
    """
    if per_feature:
        values = sums.sums[..., :-1] / _or_one(sums.sums[..., -1:])
        return torch.softmax(rows, -1) @ values
    return _normalised(_row_weights(rows, sums.level[..., None, :]) @ sums.sums)


def causal_sums(
    rows: Tensor,
    beta: Tensor,
    v: Tensor,
    past: FeatureSums | None = None,
    *,
    per_feature: bool,
    overwrite: bool = False,
) -> tuple[Tensor, FeatureSums]:
    """Row i reads the sums over the keys before and up to its own.

    rows and beta (B, N, T, F), v (B, N, T, d) -> (B, N, T, d), the sums after the last key. `overwrite`: rows and beta
    are not needed afterwards.

    Inside a chunk of c rows: a triangle of c × c weights. Before it: the sums carried over.
    With k' = e^{β − c_f} and q' = the row weights times e^{c_f}:  out = tril(q' k'ᵀ) v + q' S_before
    """
    T = rows.shape[-2]
    if T <= 1 or len(rows) == 0:
        sums = add_keys(beta, v, past)
        return read(rows, sums, per_feature=per_feature), sums
    chunk, level, upto = _safe_chunks(beta.detach(), past)
    rows, beta = _cut(rows, chunk, 0.0), _cut(beta, chunk, -torch.inf)  # (B, N, C, c, F)
    values = _cut(_with_ones(v), chunk, 0.0)
    keys = _plus(beta, -level[..., None, :], overwrite).exp_()
    carried, after = _carry(keys, values, past, level, upto)
    if per_feature:
        mass = keys.cumsum(-2) + carried[..., None, :, -1]
        queries = torch.softmax(rows, -1) / _or_one(mass)
    else:
        queries = _row_weights(rows, level[..., None, :], overwrite)
    out = (queries @ keys.transpose(-1, -2)).tril_() @ values
    out += queries @ carried
    out = out[..., :-1] if per_feature else _normalised(out)
    return out.flatten(2, 3)[:, :, :T], after


def _carry(
    keys: Tensor, values: Tensor, past: FeatureSums | None, level: Tensor, upto: Tensor
) -> tuple[Tensor, FeatureSums]:
    """The sums before each chunk, at the chunk's level, and those after the last.    -> (B, N, C, F, d + 1)

    S_{n+1} = (S_n + k'ᵀv) e^{c_n − c_{n+1}}. Levels never fall: c_{n+1} is at least the largest β up to the end of n.
    """
    added = keys.transpose(-1, -2) @ values
    last = upto[:, :, -1]
    onward = _decay(level, torch.cat([level[:, :, 1:], last[:, :, None]], 2))
    sums = torch.zeros_like(added[:, :, 0]) if past is None else past.sums * _decay(past.level, level[:, :, 0])
    carried = []
    for new, decay in zip(added.unbind(2), onward.unbind(2), strict=True):
        before, sums = sums, (sums + new).mul_(decay)
        carried.append(before if added.requires_grad else new.copy_(before))  # no second tensor of this size
    return torch.stack(carried, 2) if added.requires_grad else added, FeatureSums(sums, last)


# --------------------------------------------------------------------------- levels


def _safe_chunks(beta: Tensor, past: FeatureSums | None) -> tuple[int, Tensor, Tensor]:
    """The largest size of chunks whose spread the number format bears, and their `_levels`."""
    chunk = min(CHUNK, beta.shape[-2])
    level, upto = _levels(beta, past, chunk)
    while chunk > 1 and _spread(level, upto) > SPREAD[beta.dtype]:
        chunk = -(-chunk // 2)
        level, upto = _levels(beta, past, chunk)
    return chunk, level, upto


def _levels(beta: Tensor, past: FeatureSums | None, chunk: int) -> tuple[Tensor, Tensor]:
    """For each chunk and feature: its level, and the largest β up to its end.    (B, N, C, F)"""
    cut = _cut(beta, chunk, -torch.inf)
    upto = cut.amax(-2)
    start = upto.new_full(upto[:, :, :1].shape, -torch.inf) if past is None else past.level[:, :, None]
    upto = torch.cat([start, upto], 2).cummax(2).values
    upto, before = upto[:, :, 1:], upto[:, :, :-1]
    seen_first = torch.maximum(before, cut[..., 0, :])
    if bool((seen_first == -torch.inf).any()):  # a row that sees no key needs no level: the first one that does decides
        seen_first = torch.maximum(before, _first_visible(cut))
    return _finite((seen_first + upto) / 2), upto


def _first_visible(beta: Tensor) -> Tensor:
    """β of the first key that is not hidden, −inf if all are.    (…, c, F) -> (…, F)"""
    first = (beta > -torch.inf).int().argmax(-2, keepdim=True)
    return beta.gather(-2, first).squeeze(-2)


def _spread(level: Tensor, upto: Tensor) -> float:
    """By how much a level lies above what a row under it has seen, at most, times two."""
    return float((2 * (upto - level)).nan_to_num(neginf=0.0).amax())


def _decay(old: Tensor, new: Tensor) -> Tensor:
    """e^{old − new} to move sums from one level to a higher one; no sums (old = −inf) stay none.    (…, F, 1)"""
    return (old - _finite(new)).clamp(max=0.0).exp()[..., None]


def _finite(level: Tensor) -> Tensor:
    """A level of −inf means that there was no key; any number then serves."""
    return level.masked_fill(level == -torch.inf, 0.0)


# --------------------------------------------------------------------------- small parts


def _plus(x: Tensor, y: Tensor, overwrite: bool) -> Tensor:
    """x + y, in the place of x where that is allowed and no gradient needs x."""
    return x.add_(y) if overwrite and not x.requires_grad else x + y


def _row_weights(rows: Tensor, level: Tensor, overwrite: bool = False) -> Tensor:
    """e^{α + level}, divided by its largest in each row (which cancels)."""
    shifted = _plus(rows, _finite(level), overwrite)
    return shifted.sub_(shifted.detach().amax(-1, keepdim=True)).exp_()


def _normalised(out: Tensor) -> Tensor:
    return out[..., :-1] / _or_one(out[..., -1:])


def _or_one(mass: Tensor) -> Tensor:
    """Where there was nothing to attend to, zero is divided by one."""
    return mass.masked_fill(mass == 0, 1.0)


def _with_ones(v: Tensor) -> Tensor:
    """(v, 1): the last column sums the weights themselves."""
    return F.pad(v, (0, 1), value=1.0)


def _cut(x: Tensor, chunk: int, filler: float) -> Tensor:
    """(B, N, T, ·) -> (B, N, C, chunk, ·), filled up at the end."""
    missing = -x.shape[-2] % chunk
    if missing:
        x = F.pad(x, (0, 0, 0, missing), value=filler)
    return x.reshape(*x.shape[:2], -1, chunk, x.shape[-1])
