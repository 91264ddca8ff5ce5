"""−ln p of every token of a text, each counted once, with a context fixed by policy.

The text is cut into segments; each is scored after a warm-up of the tokens before it, which are read but
not counted. Where the segments fall depends on the policy alone, never on the batch size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqlab.core.traits import traits_of
from seqlab.core.types import Encoding, Surprisals
from seqlab.core.units import SPELLING_NATS_PER_BYTE
from seqlab.evaluation.spelling import follows_gap, spelling_nats, spelling_of

Look = Callable[[Tensor, Tensor], Tensor]
"""logits (B, T, V) and the tokens that came (B, T) -> float64 (B, T), or (B, T, C)"""
FED_TOKENS = 64  # tokens fed at a time to a model that carries state: the logits stay in memory that is used again
BATCH = 64  # segments scored side by side
FED_WHOLE = 4096  # tokens of such segments at most, or one, where a model with a window reads them whole (docs/log.md)


@dataclass(frozen=True)
class Impossible:
    """Classes that cannot stand at some places of a text, whatever the model thinks: white space after white space."""

    classes: NDArray[np.int64]
    at: NDArray[np.bool_]  # one for each token


@dataclass(frozen=True)
class ContextPolicy:
    """How much a token's prediction may look back on."""

    segment: int  # tokens scored in one go
    warmup: int  # tokens read before them, at least one
    note: str = "the first token of the text follows the begin id"
    complete: bool = False  # the model looks no further back than the warm-up reaches

    def __str__(self) -> str:
        if self.complete:
            seen = "the one token" if self.warmup == 1 else f"the {self.warmup} tokens"
            return f"each token after {seen} before it, which is all that the model looks at; {self.note}"
        return f"segments of {self.segment} tokens, each read after the {self.warmup} tokens before it; {self.note}"


def policy_for(model: Any) -> ContextPolicy:
    """A window of the model's own, half of it warm-up; without one, 1,024 tokens after 256.

    A model that says how many tokens it looks back on is given exactly those.
    """
    traits = traits_of(model)
    if traits.looks_back is not None:
        return ContextPolicy(segment=1024, warmup=max(1, traits.looks_back), complete=True)
    if traits.window is None:
        return ContextPolicy(segment=1024, warmup=256)
    warmup = max(1, traits.window // 2)
    return ContextPolicy(segment=max(1, traits.window - warmup), warmup=warmup)


def segment_starts(tokens: int, policy: ContextPolicy, most_tokens: int | None = None) -> NDArray[np.int64]:
    """Where the segments start; with `most_tokens`, evenly spaced ones that hold about so many tokens."""
    starts: NDArray[np.int64] = np.arange(0, tokens, policy.segment)
    if most_tokens is None or tokens <= most_tokens:
        return starts
    wanted = max(1, most_tokens // policy.segment)
    evenly: NDArray[np.int64] = starts[np.linspace(0, len(starts) - 1, wanted).round().astype(int)]
    return evenly


@torch.inference_mode()
def nats_of_ids(
    model: Any,
    ids: NDArray[Any],
    begin_id: int,
    policy: ContextPolicy,
    *,
    batch: int = BATCH,
    starts: NDArray[np.int64] | None = None,
    impossible: Impossible | None = None,
    progress: Callable[[float], None] | None = None,
) -> NDArray[np.float64]:
    """nats of the tokens in the segments (all of them by default), in the order of the text."""
    if traits_of(model).reads_at_once and starts is None:
        return _nats_at_once(model, ids, impossible)
    how: dict[str, Any] = dict(batch=batch, starts=starts, impossible=impossible, progress=progress)
    return look_at_ids(model, ids, begin_id, policy, _nats_of_targets, **how)


@torch.inference_mode()
def look_at_ids(
    model: Any,
    ids: NDArray[Any],
    begin_id: int,
    policy: ContextPolicy,
    look: Look,
    *,
    batch: int = BATCH,
    starts: NDArray[np.int64] | None = None,
    impossible: Impossible | None = None,
    progress: Callable[[float], None] | None = None,
) -> NDArray[np.float64]:
    """What `look` finds at each of the same tokens: one number, or a row of them."""
    was_training = model.training
    model.eval()
    if traits_of(model).window is not None:
        batch = max(1, min(batch, FED_WHOLE // (policy.segment + policy.warmup)))
    try:
        starts = segment_starts(len(ids), policy) if starts is None else starts
        scored: list[NDArray[np.float64]] = []
        for k in range(0, len(starts), batch):
            scored.extend(_look_at_segments(model, ids, begin_id, policy, starts[k : k + batch], look, impossible))
            if progress:
                progress(len(scored) / len(starts))
        return np.concatenate(scored) if scored else np.zeros(0)
    finally:
        model.train(was_training)


def _look_at_segments(
    model: Any,
    ids: NDArray[Any],
    begin_id: int,
    policy: ContextPolicy,
    starts: NDArray[np.int64],
    look: Look,
    impossible: Impossible | None,
) -> list[NDArray[np.float64]]:
    """Rows [start − warmup, start + segment): the first id of a row is only read.

    A row that would begin before the text begins with the begin id and is shorter; rows are padded on
    the right, where nothing is counted.
    """
    first = np.maximum(starts - policy.warmup + 1, 0)  # position of the first *target* in the row
    last = np.minimum(starts + policy.segment, len(ids))
    length = int((last - first).max())
    rows = np.zeros((len(starts), length + 1), np.int64)
    barred = np.zeros((len(starts), length), bool)
    for row, bar, a, b in zip(rows, barred, first, last, strict=True):
        row[0] = begin_id if a == 0 else ids[a - 1]
        row[1 : 1 + b - a] = ids[a:b]
        if impossible is not None:
            bar[: b - a] = impossible.at[a:b]
    classes = None if impossible is None or not barred.any() else torch.from_numpy(impossible.classes)
    traits = traits_of(model)
    in_pieces = traits.window is None and not traits.stateless
    fed = _Rows(torch.from_numpy(rows), torch.from_numpy(starts - first), torch.from_numpy(barred), classes)
    seen = _feed(model, fed, look, in_pieces=in_pieces)
    return [n[s - a : b - a] for n, s, a, b in zip(seen, starts, first, last, strict=True)]


def _nats_at_once(model: Any, ids: NDArray[Any], impossible: Impossible | None) -> NDArray[np.float64]:
    """From a model that scores a whole text itself; what cannot follow gives its mass to the rest."""
    nats: NDArray[np.float64] = model.nats_of(ids)
    if impossible is not None:
        places = np.flatnonzero(impossible.at)
        nats[places] += np.log1p(-model.mass_of(ids, places, impossible.classes))
    return nats


@dataclass(frozen=True)
class _Rows:
    """Rows of ids that are read side by side."""

    ids: Tensor  # (B, L + 1)
    counted_from: Tensor  # (B) where the warm-up of each ends
    barred: Tensor  # (B, L) where the impossible classes cannot stand
    impossible: Tensor | None


def _feed(model: Any, rows: _Rows, look: Look, *, in_pieces: bool) -> NDArray[np.float64]:
    """(B, L) or (B, L, C), in pieces with state for models without a window of their own; zeros for warm-up pieces."""
    inputs, targets = rows.ids[:, :-1], rows.ids[:, 1:]
    found = torch.zeros(0)
    step = FED_TOKENS if in_pieces else max(1, inputs.shape[1])
    state = None
    for k in range(0, inputs.shape[1], step):
        piece = slice(k, k + step)
        logits, state = model(inputs[:, piece], state)
        if rows.impossible is not None:
            row, column = rows.barred[:, piece].nonzero(as_tuple=True)
            logits[row[:, None], column[:, None], rows.impossible] = -torch.inf
        counted = rows.counted_from < k + step
        if counted.all():
            warm = max(0, int(rows.counted_from.min()) - k)
            where: tuple[Any, slice] = slice(None), slice(k + warm, k + step)
            logits = logits[:, warm:]
        elif counted.any():
            where, logits = (counted, piece), logits[counted]
        else:
            continue
        seen = look(logits, targets[where])
        if not len(found):
            found = seen.new_zeros((*inputs.shape, *seen.shape[2:]))
        found[where] = seen
    return found.numpy()


def _nats_of_targets(logits: Tensor, targets: Tensor) -> Tensor:
    """−ln softmax(z)_target in one fused pass; logits (B, T, V), targets (B, T)."""
    return -logits.log_softmax(-1).gather(-1, targets[..., None]).squeeze(-1).double()


class ModelScorer:
    """A model with its tokenizer, as a `Scorer`."""

    def __init__(self, model: Any, tokenizer: Any, policy: ContextPolicy | None = None) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.policy = policy or policy_for(model)

    @cached_property
    def spelling(self) -> Any:
        return spelling_of(self.tokenizer)

    def encode(self, text: str) -> Encoding:
        encoding: Encoding = self.tokenizer.encode(text)
        return encoding

    def score(self, text: str, *, batch: int = BATCH, progress: Callable[[float], None] | None = None) -> Surprisals:
        """−ln p of every token; unknown ones pay for their class and their spelling."""
        encoding = self.encode(text)
        impossible = impossible_in(encoding, text, self.tokenizer)
        nats = self.nats(encoding.ids, batch=batch, impossible=impossible, progress=progress)
        return charge(nats, encoding, text, self.spelling, impossible)

    def nats(self, ids: NDArray[Any], **how: Any) -> NDArray[np.float64]:
        """−ln p of every token as the model sees it; how: `batch`, `impossible` and `progress` of `nats_of_ids`."""
        return nats_of_ids(self.model, ids, self.tokenizer.begin_id, self.policy, **how)


def impossible_in(encoding: Encoding, text: str, tokenizer: Any) -> Impossible | None:
    after_gap = follows_gap(encoding, text, tokenizer)
    return None if after_gap is None else Impossible(tokenizer.gap_ids, after_gap)


def charge(
    nats: NDArray[np.float64], encoding: Encoding, text: str, spelling: Any, impossible: Impossible | None
) -> Surprisals:
    """Unknown tokens pay for their class (already in `nats`) and for their spelling."""
    if not encoding.unknown.any():
        spelled = np.zeros(len(nats))
    elif spelling is None:
        spelled = flat_spelling(encoding)
    else:
        spelled = spelling_nats(encoding, text, spelling, None if impossible is None else impossible.at)
    return Surprisals(nats + spelled, encoding.start, encoding.end, encoding.unknown, spelled, encoding.lossy)


def unavoidable_nats(text: str, tokenizer: Any) -> float:
    """What the unknown tokens of a text cost, whatever the model: their spelling."""
    encoding = tokenizer.encode(text)
    impossible = impossible_in(encoding, text, tokenizer)
    return charge(np.zeros(len(encoding)), encoding, text, spelling_of(tokenizer), impossible).total


def flat_spelling(encoding: Encoding) -> NDArray[np.float64]:
    """For tokenizers whose training text is not known: an unknown token pays 8 bits for each byte it covers."""
    lengths = (encoding.end - encoding.start).astype(np.float64)
    return SPELLING_NATS_PER_BYTE * lengths * encoding.unknown
