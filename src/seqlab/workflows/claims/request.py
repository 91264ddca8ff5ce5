"""Which claims are meant. Wrong names are refused before torch is loaded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from seqlab.core.errors import DataError, UsageError, nearest
from seqlab.theory.index import IDS, IDS_BY_SUBJECT, nearest_id
from seqlab.theory.ledger import METHODS, VERDICTS


@dataclass(frozen=True)
class Choice:
    """All claims, or those with all that is named here; of the project, or of a file of one's own."""

    ids: tuple[str, ...] = ()
    subject: str | None = None
    verdict: str | None = None
    method: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        said = [f"{name} {value}" for name in ("subject", "verdict", "method") if (value := getattr(self, name))]
        return " and ".join([*said, *([", ".join(self.ids)] if self.ids else [])])


def check_choice(choice: Choice) -> None:
    """The names in a file of one's own are known only once it is read."""
    _refuse_unknown("verdict", choice.verdict, VERDICTS)
    _refuse_unknown("method", choice.method, METHODS)
    if choice.file is None:
        check_names(choice, IDS_BY_SUBJECT, IDS)
        return
    from seqlab.data.sources import checked_path

    if not checked_path(choice.file).is_file():
        raise DataError(f"there is no file '{choice.file}'; name a Python file with claims")


def check_names(choice: Choice, subjects: Collection[str], ids: Sequence[str]) -> None:
    _refuse_unknown("subject", choice.subject, subjects)
    for id in choice.ids:
        if id not in ids:
            close = nearest_id(id, tuple(ids))
            hint = f"did you mean '{close}'?" if close else "'seqlab claims list' shows them all"
            raise UsageError(f"unknown claim '{id}'; {hint}")


def _refuse_unknown(what: str, said: str | None, known: Collection[str]) -> None:
    if said is not None and said not in known:
        raise UsageError(f"unknown {what} '{said}'{nearest(said, known)}")
