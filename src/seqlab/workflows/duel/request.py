"""What can be refused of a duel before torch is loaded."""

from __future__ import annotations

from typing import Any

from seqlab.core.settings.duel import DuelSettings, check_duel
from seqlab.core.settings.fields import check_threads
from seqlab.data.sources import check_encoding, check_source


def check_compare(text: str, asked: dict[str, Any], said: dict[str, Any], threads: int | None) -> None:
    """Refuse, in one line, what `compare_lms` could never do."""
    check_threads(threads)
    check_duel(DuelSettings(**asked), said)
    check_encoding(said.get("encoding", "utf-8"))
    check_source(text)
