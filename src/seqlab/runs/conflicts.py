"""What a run that goes on cannot be told otherwise. Nothing here needs torch or data."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from seqlab.core.errors import UsageError
from seqlab.core.settings.fields import cost_flags, dashed, flags_of, value_of, with_flags
from seqlab.core.units import number_of, parse_budget
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


def longer_budget(wanted: str | None, have: str, record: Mapping[str, Any]) -> str | None:
    """The new budget if it is longer than the run's, None if it is the same; refuses a shorter one.

    Steps, tokens and epochs lengthen any run; a time only one whose steps were timed. How many steps tokens and
    epochs are is known only where the data are.
    """
    if wanted is None or parse_budget(wanted) == parse_budget(have):
        return None
    new, old = parse_budget(wanted), parse_budget(have)
    if new.unit == "seconds" and "seconds_per_step" not in record:
        raise UsageError(
            f"--budget {wanted} conflicts with the run's {have}, of which no step was timed; "
            "say how many steps, tokens or epochs it shall have in all"
        )
    if new.unit == "steps" and new.amount == record["steps"]:
        return None
    shorter = new.amount < (record["steps"] if new.unit == "steps" else old.amount)
    if shorter and new.unit in (old.unit, "steps"):
        refuse_shorter(wanted, have, record["steps"])
    return wanted


def refuse_shorter(wanted: str, have: str, steps: int) -> NoReturn:
    raise UsageError(
        f"--budget {wanted} conflicts with the run's {have} ({number_of(steps, 'step')}); "
        "a resumed run takes a longer one"
    )
