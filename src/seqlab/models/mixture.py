"""Several finished language models as one: at every place their probabilities are mixed.

    p(· | before) = Σ_m w_m(f) p_m(· | before)

The weights (`models.gate`) depend on f alone, a few numbers that the members know before the token: of every member how
sure it is, of an n-gram also how long the longest context is that training met, and how much of its probability is left
to the shorter ones. A sum of distributions with weights that add up to 1 is a distribution: the logits are its
logarithms, in float64. The state is the members' states side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqlab.core.errors import DamageError
from seqlab.core.state import State
from seqlab.core.traits import Traits, traits_of
from seqlab.models.counting import NOT_SEEN, Ids
from seqlab.models.gate import Gate, constant_gate
from seqlab.models.guided import Guide
from seqlab.models.ngram import NGramLM, RecentTokens

BIAS, SLOPES = "gate.bias", "gate.slopes"
ROW_FEATURES, MATCH_FEATURES = 2, 2


class MixtureLM(nn.Module):
    """ids (B, T) -> log-probabilities (B, T, V) as logits; all members have the same tokens."""

    def __init__(self, members: Sequence[Any], gate: Gate | None = None) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.counts = [Guide(member) if isinstance(member, NGramLM) else None for member in members]
        self.vocab_size: int = members[0].vocab_size
        nothing = torch.zeros(0, len(members), dtype=torch.float64)
        self.gate = gate or constant_gate(nothing, features_in(members))

    @property
    def traits(self) -> Traits:
        """It reads on and on; to be scored, its members are read each in its own way (`evaluation.mixed`)."""
        all_traits = [traits_of(member) for member in self.members]
        back = [traits.looks_back for traits in all_traits if traits.looks_back is not None]
        ends = [traits.max_positions for traits in all_traits if traits.max_positions is not None]
        return Traits(
            looks_back=max(back) if len(back) == len(all_traits) else None,
            max_positions=min(ends, default=None),
            learns_from="runs",
        )

    @property
    def learnt(self) -> int:
        """How many numbers its members have learnt."""
        return sum(_learnt(member) for member in self.members)

    def forward(self, ids: Tensor, state: tuple[State, ...] | None = None) -> tuple[Tensor, tuple[State, ...]]:
        rows, features, after = [], [], []
        before = (None,) * len(self.members) if state is None else state
        for member, counts, inner in zip(self.members, self.counts, before, strict=True):
            if counts is None:
                logits, inner = member(ids, inner)
                log_p = logits.double().log_softmax(-1)
                known = row_features(log_p)
            else:
                log_p, known, inner = read_counts(counts, ids, inner)
            rows.append(log_p)
            features.append(known)
            after.append(inner)
        log_weights = self.gate.log_weights(torch.cat(features, -1))
        together = torch.stack([log_p + log_weights[..., m, None] for m, log_p in enumerate(rows)])
        return together.logsumexp(0), tuple(after)

    # ---- saving

    def tensors(self) -> dict[str, Tensor]:
        found = {BIAS: self.gate.bias, SLOPES: self.gate.slopes}
        for k, member in enumerate(self.members):
            own = member.tensors() if isinstance(member, NGramLM) else member.state_dict()
            found |= {f"{prefix_of(k)}{name}": tensor for name, tensor in own.items()}
        return found

    @classmethod
    def from_members(cls, members: Sequence[Any], tensors: Mapping[str, Tensor], source: str) -> MixtureLM:
        """Members that were read already, with the weights saved beside them."""
        if BIAS not in tensors or SLOPES not in tensors:
            raise DamageError(f"{source} is no mixture: its weights are missing; restore it from a copy")
        gate, wanted = Gate(tensors[BIAS], tensors[SLOPES]), (features_in(members), len(members))
        if gate.slopes.shape != wanted or gate.bias.shape != wanted[1:]:
            found = tuple(gate.slopes.shape)
            raise DamageError(
                f"{source} has weights of shape {found}, its members need {wanted}; restore it from a copy"
            )
        return cls(members, gate)


def prefix_of(member: int) -> str:
    """How the names of a member's tensors begin."""
    return f"member-{member + 1}/"


def _learnt(member: Any) -> int:
    return member.learnt if isinstance(member, NGramLM) else sum(weight.numel() for weight in member.parameters())


# --------------------------------------------------------------------------- what the members know before the token


def features_in(members: Sequence[Any]) -> int:
    return sum(ROW_FEATURES + MATCH_FEATURES * isinstance(member, NGramLM) for member in members)


def row_features(log_p: Tensor) -> Tensor:
    """How sure a member is: the entropy H = −Σ p ln p, and H².    (…, V) -> (…, 2)"""
    entropy = torch.special.entr(log_p.exp()).sum(-1).double()
    return torch.stack([entropy, entropy.square()], -1)


def read_counts(counts: Guide, ids: Tensor, recent: RecentTokens | None) -> tuple[Tensor, Tensor, RecentTokens]:
    """Of an n-gram: ln p (B, T, V), features (B, T, K) and what it remembers.    ids (B, T)"""
    contexts, recent = counts.counts.contexts_after(ids, recent)
    log_p = counts.tables.log_rows(contexts).double().log_softmax(-1)
    known = torch.cat([row_features(log_p), match_features(counts.counts, contexts)], -1)
    return log_p.view(*ids.shape, -1), known.view(*ids.shape, -1), recent


def match_features(member: NGramLM, contexts: Sequence[Ids]) -> Tensor:
    """How long the longest context is that training met something after, and ln γ of it.

    contexts as `contexts_after` gives them, (P,) each -> (P, 2)
    """
    longest, left = np.zeros(len(contexts[0])), np.ones(len(contexts[0]))
    for k, (level, here) in enumerate(zip(member.levels, contexts, strict=True)):
        share = np.where(here == NOT_SEEN, 1.0, level.shorter_share[here])
        met = share < 1
        longest[met], left[met] = k, share[met]
    return torch.from_numpy(np.stack([longest, np.log(left)], 1))
