"""Finished runs as the members of a mixture: what its run folder keeps of them, and how they are read from there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from seqlab.core.errors import DamageError
from seqlab.core.files import canonical_json, sha256_of
from seqlab.core.registry import MIXTURE
from seqlab.core.settings.fields import from_table, to_table, with_changes
from seqlab.core.settings.lm import LMSettings
from seqlab.evaluation.mixed import Readings
from seqlab.models.gate import Fit
from seqlab.models.mixture import MixtureLM, prefix_of
from seqlab.training.checkpoint import without_prefix

MEMBERS = "members.json"
FIT_TOKENS = 1 << 18  # of held-out text: a dozen weights need no more

Restore = Callable[[LMSettings, Mapping[str, bytes], dict[str, Tensor], str], Any]


@dataclass(frozen=True)
class Member:
    """A finished run: its name, who it is, its settings, its model, and the files that are its own."""

    name: str
    identity: str
    settings: LMSettings
    model: Any
    files: Mapping[str, bytes]

    def about(self) -> dict[str, Any]:
        """As members.json holds it. The text is the mixture's."""
        settings = to_table(with_changes(self.settings, {"data": {"text": ""}}))
        return {"name": self.name, "identity": self.identity, "settings": settings, "files": sorted(self.files)}


@dataclass
class Members:
    """What is to be mixed, or what a run folder keeps of that (then there are no models here); and what was found."""

    files: Mapping[str, bytes]
    models: Sequence[Any] = ()
    readings: dict[str, Readings] = field(default_factory=dict)
    fit: Fit | None = None

    @property
    def names(self) -> list[str]:
        return member_names(self.files)

    @property
    def kinds(self) -> list[str]:
        return [about["settings"]["model"]["kind"] for about in _read(self.files)]

    @property
    def checksums(self) -> dict[str, str]:
        return {"members": sha256_of(canonical_json([about["identity"] for about in _read(self.files)]))}

    @property
    def facts(self) -> dict[str, Any]:
        """For the record."""
        about = [
            {"name": one["name"], "model": one["settings"]["model"]["kind"], "identity": one["identity"]}
            for one in _read(self.files)
        ]
        if self.fit is None:
            return {"mixture": {"members": about}}
        features = self.readings["validation"].features[:FIT_TOKENS]
        shares = self.fit.gate.log_weights(features).exp().mean(0).tolist()
        members = [one | {"weight": share} for one, share in zip(about, shares, strict=True)]
        fitted = {"fitted_on": "validation", "tokens": len(features), "per_context": self.fit.gate.per_context}
        return {"mixture": {**fitted, "members": members}}


def members_of(members: Sequence[Member]) -> Members:
    files = {MEMBERS: canonical_json([member.about() for member in members])}
    for k, member in enumerate(members):
        files |= {_own_name(k, name): content for name, content in member.files.items()}
    return Members(files, [member.model for member in members])


def kept_members(settings: LMSettings, files: Mapping[str, bytes]) -> Members | None:
    """Those that a run folder keeps; None if it holds no mixture."""
    if settings.model.kind != MIXTURE:
        return None
    return Members({name: content for name, content in files.items() if name == MEMBERS or name.startswith("member-")})


def member_names(files: Mapping[str, bytes]) -> list[str]:
    return [about["name"] for about in _read(files)]


def members_again(files: Mapping[str, bytes], models: Sequence[Any]) -> list[Member]:
    """The members of a mixture, to be mixed with others."""
    found = []
    for k, (about, model) in enumerate(zip(_read(files), models, strict=True)):
        settings = from_table(LMSettings, about["settings"], MEMBERS)
        own = {name: files[_own_name(k, name)] for name in about["files"]}
        found.append(Member(about["name"], about["identity"], settings, model, own))
    return found


def restored(restore: Restore, files: Mapping[str, bytes], weights: dict[str, Tensor], source: str) -> MixtureLM:
    """The mixture that a run folder holds; `restore` makes the model of one member."""
    shared = {name: content for name, content in files.items() if name != MEMBERS and not name.startswith("member-")}
    models = []
    for k, about in enumerate(_read(files)):
        settings = from_table(LMSettings, about["settings"], MEMBERS)
        own = {name: files[_own_name(k, name)] for name in about["files"]}
        models.append(restore(settings, shared | own, without_prefix(prefix_of(k), weights), source).eval())
    return MixtureLM.from_members(models, weights, source)


def _own_name(member: int, name: str) -> str:
    return f"member-{member + 1}-{name}"


def _read(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    if MEMBERS not in files:
        raise DamageError(f"{MEMBERS} is missing from the run folder; restore it from a copy")
    found: list[dict[str, Any]] = json.loads(files[MEMBERS])
    return found
