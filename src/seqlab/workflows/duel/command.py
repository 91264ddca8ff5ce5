"""The command that makes a duel again, or goes on with it."""

from __future__ import annotations

import shlex
from typing import Any

from seqlab.core.settings.fields import dashed
from seqlab.workflows.duel.contest import Contest
from seqlab.workflows.duel.folder import DuelFolder, Record


def command_of(folder: DuelFolder, record: Record, contest: Contest) -> str:
    """What may be typed into a shell; whatever was not said is left out."""
    question, rules = record.question, contest.rules
    asked = {rules.flag: ",".join(question["models"]), "budget": question["budget"], "seeds": record.seeds}
    asked |= {"match": question["match"]} if len(rules.matches) > 1 else {}
    said = {name: value for name, value in question["settings"].items() if name not in contest.place}
    asked |= said | {"threads": question["threads"], "out": folder.path}
    words = ["seqlab", *rules.command, *contest.sources]
    return shlex.join(words + [word for name, value in asked.items() for word in _flag(name, value)])


def _flag(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{'' if value else 'no-'}{dashed(name)}"]
    return [f"--{dashed(name)}", str(value)]
