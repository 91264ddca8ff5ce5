"""What a run that goes on cannot be told otherwise. Nothing here needs torch or data."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from seqlab.core.errors import UsageError
from seqlab.core.settings.fields import cost_flags, dashed, flags_of, value_of, with_flags
from seqlab.core.units import parse_budget
from seqlab.runs.folder import RunFolder


def refuse_conflicts(
    folder: RunFolder,
    settings: Any,
    record: Mapping[str, Any],
    said: Mapping[str, Any],
    threads: int | None,
    may_move: Collection[str],
) -> None:
    """Refuse what conflicts with the settings and the record that a folder has; the budget is checked apart."""
    if folder.identity is None:
        usable = folder.model_file.exists() and record.get("steps")
        way = f"go on from its weights with --from {folder.path} and another --out" if usable else "train it anew"
        raise UsageError(f"{folder.path} was written by an older seqlab: it can be used, not resumed; {way}")
    if threads not in (None, record["threads"]):
        raise UsageError(
            f"--threads {threads} conflicts with the run's {record['threads']}; leave it out to resume exactly"
        )
    known, free = flags_of(type(settings)), {*may_move, "budget"} | cost_flags(type(settings))
    with_flags(settings, said)  # refuses unknown names
    for name, value in said.items():
        have = value_of(settings, *known[name])
        if name not in free and value != have:
            raise UsageError(
                f"--{dashed(name)} {value} conflicts with {have} in {folder.settings_file}; leave it out to resume, "
                "or start another run with another --out"
            )


def longer_budget(wanted: str | None, have: str) -> str | None:
    """The new budget if it is longer than the run's; a shorter one or another unit is refused."""
    if wanted is None or parse_budget(wanted) == parse_budget(have):
        return None
    new, old = parse_budget(wanted), parse_budget(have)
    if new.unit != old.unit or new.amount < old.amount:
        raise UsageError(
            f"--budget {wanted} conflicts with the run's {have}; a resumed run takes a longer one of its unit"
        )
    return wanted
