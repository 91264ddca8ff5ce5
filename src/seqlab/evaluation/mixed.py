"""−ln p of a mixture on a text, each member read in its own way: with its own window, warm-up and state.

A mixture needs of a member no more than the probability of the token that came and the features that it knew before
(`models.mixture`). So a member that was trained in windows is read in windows beside one that reads on and on, each as
it would be alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqlab.evaluation.surprisal import BATCH, ContextPolicy, Impossible, ModelScorer, look_at_ids, policy_for
from seqlab.models.gate import mixed
from seqlab.models.guided import Guide
from seqlab.models.mixture import MixtureLM, features_in, read_counts, row_features

AT_ONCE = 1 << 21  # numbers in the rows that an n-gram forms together: 16 MB

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Readings:
    """What the members of a mixture made of each token of a text."""

    log_p: Tensor  # (N, M) of the token that came
    features: Tensor  # (N, K) known before it
    barred: Tensor | None = None  # (N, M) mass of what could not stand there, 0 elsewhere

    def nats(self, log_weights: Tensor) -> NDArray[np.float64]:
        """−ln p of each token with ln w (N, M); what cannot follow gives its mass to the rest."""
        found = -mixed(self.log_p, log_weights)
        if self.barred is not None:
            found = found + torch.log1p(-(log_weights.exp() * self.barred).sum(-1))
        nats: NDArray[np.float64] = found.numpy()
        return nats

    def nats_alone(self, member: int) -> NDArray[np.float64]:
        log_weights = torch.full_like(self.log_p, -torch.inf)
        log_weights[:, member] = 0
        return self.nats(log_weights)

    def first(self, tokens: int) -> Readings:
        return Readings(self.log_p[:tokens], self.features[:tokens])


@torch.inference_mode()
def read_members(
    model: MixtureLM,
    ids: NDArray[Any],
    begin_id: int,
    *,
    batch: int = BATCH,
    impossible: Impossible | None = None,
    progress: Progress | None = None,
) -> Readings:
    """Every member reads the text, each by its own policy."""
    if not len(ids):
        empty = torch.zeros(0, len(model.members), dtype=torch.float64)
        return Readings(empty, torch.zeros(0, features_in(list(model.members)), dtype=torch.float64))
    look = _Look(None if impossible is None else torch.from_numpy(impossible.classes))
    columns = []
    for k, (member, counts) in enumerate(zip(model.members, model.counts, strict=True)):
        shown = _share(progress, k, len(model.members))
        if counts is None:
            seen = look_at_ids(member, ids, begin_id, policy_for(member), look, batch=batch, progress=shown)
            columns.append(torch.from_numpy(seen))
        else:
            columns.append(_read_counts(counts, ids, look, shown))
    log_p, features = (torch.cat([some[:, where] for some in columns], 1) for where in (slice(1), slice(2, None)))
    barred = None
    if impossible is not None:
        barred = torch.cat([some[:, 1:2] for some in columns], 1) * torch.from_numpy(impossible.at)[:, None]
    return Readings(log_p, features, barred)


@dataclass(frozen=True)
class _Look:
    """Of rows and the tokens that came: ln p of these, the mass of some classes, features.    (B, T, 2 + K)"""

    classes: Tensor | None

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        log_p = logits.log_softmax(-1)
        return torch.cat([self.of_tokens(log_p, targets), row_features(log_p)], -1)

    def of_tokens(self, log_p: Tensor, targets: Tensor) -> Tensor:
        came = log_p.gather(-1, targets[..., None]).double()
        mass = torch.zeros_like(came) if self.classes is None else log_p[..., self.classes].exp().sum(-1, True).double()
        return torch.cat([came, mass], -1)


def _read_counts(counts: Guide, ids: NDArray[Any], look: _Look, progress: Progress | None) -> Tensor:
    """An n-gram looks back so little that pieces of any length are the whole."""
    text = torch.from_numpy(np.concatenate([[counts.counts.vocab_size], ids]).astype(np.int64))[None]
    step = max(1, AT_ONCE // counts.counts.vocab_size)
    found, recent = [], None
    for k in range(0, len(ids), step):
        targets = text[:, k + 1 : k + 1 + step]
        log_p, known, recent = read_counts(counts, text[:, k : k + targets.shape[1]], recent)
        found.append(torch.cat([look.of_tokens(log_p, targets), known], -1)[0])
        if progress:
            progress(min(1.0, (k + step) / len(ids)))
    return torch.cat(found)


def _share(progress: Progress | None, k: int, members: int) -> Progress | None:
    return None if progress is None else lambda done: progress((k + done) / members)


# --------------------------------------------------------------------------- as a scorer


@dataclass(frozen=True)
class MixedPolicy:
    """Each member looks back as it would alone."""

    names: tuple[str, ...]
    policies: tuple[ContextPolicy, ...]

    def __str__(self) -> str:
        note = self.policies[0].note
        ways = [str(policy).removesuffix(f"; {note}") for policy in self.policies]
        each = "; ".join(f"{name}: {way}" for name, way in zip(self.names, ways, strict=True))
        return f"each member in its own way ({each}); {note}"


def policies_of(model: MixtureLM, names: Sequence[str]) -> MixedPolicy:
    return MixedPolicy(tuple(names), tuple(policy_for(member) for member in model.members))


class MixtureScorer(ModelScorer):
    """A mixture with its tokenizer, as a `Scorer`; `names` are those of its members."""

    def __init__(self, model: MixtureLM, tokenizer: Any, names: Sequence[str]) -> None:
        super().__init__(model, tokenizer)
        self.policy: Any = policies_of(model, names)

    def nats(self, ids: NDArray[Any], **how: Any) -> NDArray[np.float64]:
        readings = read_members(self.model, ids, self.tokenizer.begin_id, **how)
        return readings.nats(self.model.gate.log_weights(readings.features))
