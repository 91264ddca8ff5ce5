"""What can be refused of a duel before torch is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqlab.core.errors import UsageError
from seqlab.core.settings.duel import DuelSettings, check_duel
from seqlab.core.settings.fields import check_threads
from seqlab.data.sources import check_encoding, check_source
from seqlab.runs.folder import holds_nothing


def check_compare(text: str, asked: dict[str, Any], said: dict[str, Any], out: str | None, threads: int | None) -> None:
    """Refuse, in one line, what `compare_lms` could never do."""
    check_threads(threads)
    check_duel(DuelSettings(**asked), said)
    check_encoding(said.get("encoding", "utf-8"))
    check_source(text)
    if out is not None and Path(out).exists() and not (Path(out) / "duel.json").exists():
        _refuse_taken(Path(out))


def _refuse_taken(place: Path) -> None:
    if not place.is_dir() or not holds_nothing(place):
        raise UsageError(f"{place} exists already and holds no duel; choose another --out")
