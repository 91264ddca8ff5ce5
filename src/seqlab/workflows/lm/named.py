"""Runs by name, one or several with '+' between, and which can be mixed. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqlab.core.errors import UsageError
from seqlab.core.settings.fields import check_threads, from_table
from seqlab.core.settings.lm import LMSettings
from seqlab.core.units import parse_split
from seqlab.runs.folder import RunFolder, Stored, check_writable

EXAMPLE = "seqlab lm mix runs/a runs/b --out runs/both"


@dataclass(frozen=True)
class Candidate:
    """A run, as far as mixing asks about it."""

    name: str
    settings: LMSettings
    record: dict[str, Any]

    @property
    def tokens(self) -> str:
        return f"{self.settings.tokenizer.kind}, {self.record['vocab_size']:,} tokens"


def require_weights(folder: RunFolder) -> Stored:
    """Refuse a run that has learnt nothing yet."""
    stored = folder.read()
    if not folder.model_file.exists():
        raise UsageError(
            f"{folder.path} has no trained weights yet; go on with 'seqlab lm train --out {folder.path} --resume'"
        )
    return stored


def runs_named(name: str | Path) -> list[Path]:
    """The run folders that a name holds: one, or several with '+' between; a folder's own name may hold a '+'."""
    pieces = str(name).split("+")
    found = _cut(pieces) or ([Path(name)] if Path(name).is_dir() or len(pieces) == 1 else None)
    if found is None and not all(pieces):
        raise UsageError(f"'{name}' names nothing beside a '+'; name runs on both sides, such as runs/a+runs/b")
    return found or [Path(piece) for piece in pieces]


def _cut(pieces: list[str]) -> list[Path] | None:
    """The pieces joined so that each is a run, the longest first; None if there is no such way."""
    if not pieces:
        return []
    for size in range(len(pieces), 0, -1):
        head, rest = Path("+".join(pieces[:size])), None
        if RunFolder(head).has_run():
            rest = _cut(pieces[size:])
        if rest is not None:
            return [head, *rest]
    return None


def check_named(name: str | Path) -> None:
    """Refuse, in one line, a name that is neither a run nor several that can be mixed."""
    folders = runs_named(name)
    if len(folders) == 1:
        require_weights(RunFolder(name))
    else:
        check_mix(folders)


def check_mix(
    folders: Sequence[Path], out: str | Path | None = None, threads: int | None = None, *, others: int = 0
) -> None:
    """Refuse, in one line, what `mix` could never do; `others` are runs that are loaded already."""
    check_threads(threads)
    if len(folders) + others < 2:
        raise UsageError(f"a mixture needs at least two runs; for example: {EXAMPLE}")
    candidates = []
    for folder in folders:
        stored = require_weights(RunFolder(folder))
        if stored.kind != "lm":
            raise UsageError(f"{folder} holds a run of kind '{stored.kind}', not 'lm'")
        candidates.append(Candidate(str(folder), from_table(LMSettings, stored.table, str(folder)), stored.record))
    check_alike(candidates)
    if out is not None:
        if not RunFolder(out).is_free():
            raise UsageError(f"{out} exists already; choose another --out")
        check_writable(Path(out))


def check_alike(candidates: Sequence[Candidate]) -> None:
    """Refuse runs that are not of one text, one split and one tokenizer; says what differs."""
    for other in candidates[1:]:
        _refuse_difference(candidates[0], other)


def _refuse_difference(one: Candidate, other: Candidate) -> None:
    both, data = f"{one.name} and {other.name} cannot be mixed", (one.settings.data, other.settings.data)
    if one.record["text_sha256"] != other.record["text_sha256"]:
        names = one.record["text_name"], other.record["text_name"]
        differ = f"one is of {names[0]}, the other of {names[1]}"
        if names[0] == names[1]:
            differ = f"their texts, both called {names[0]}, differ"
        raise UsageError(f"{both}: {differ}; train both on one text")
    if parse_split(data[0].split) != parse_split(data[1].split):
        differ = f"one has --split {data[0].split}, the other {data[1].split}"
        raise UsageError(f"{both}: {differ}, so one has learnt what the other holds out; train both on one split")
    if data[0].normalise != data[1].normalise:
        words = [some.normalise or "none" for some in data]
        raise UsageError(f"{both}: one has --normalise {words[0]}, the other {words[1]}; train both on one text")
    if one.record["tokenizer_sha256"] != other.record["tokenizer_sha256"]:
        raise UsageError(
            f"{both}: their tokenizers differ ({one.tokens}; {other.tokens}); the pieces of one overlap those of the "
            "other, so mixed at token boundaries they are no distribution over strings: train both with one tokenizer"
        )
