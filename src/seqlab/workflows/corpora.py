"""The corpora that come with packages, for whoever talks to a person."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqlab.core.reporting import Reporter
from seqlab.data.corpora import CORPORA, load_corpus


def described_corpora() -> list[dict[str, Any]]:
    keys = ("name", "summary", "licence", "package", "megabytes")
    return [{key: getattr(corpus, key) for key in keys} for corpus in CORPORA.values()]


@dataclass(frozen=True)
class CorpusFacts:
    path: Path
    facts: dict[str, Any]

    def beginning(self, characters: int) -> str:
        with self.path.open(encoding="utf-8", newline="") as file:
            return file.read(max(0, characters))


def fetch_corpus(name: str, reporter: Reporter) -> CorpusFacts:
    """Fetch, check and cache a corpus; what was read and what is handed on."""
    text = load_corpus(name, progress=download_progress(reporter))
    facts = {
        "name": text.name,
        "licence": text.licence,
        "comes with": text.package,
        "read": f"{text.bytes_read:,} bytes in {text.members} members, joined by newlines and cleaned",
        "bytes": text.bytes,
        "sha256": text.sha256,
        "path": str(text.path),
    }
    return CorpusFacts(text.path, facts)


def download_progress(reporter: Reporter) -> Callable[[int, int | None], None]:
    """A callback for downloads that starts the reporter's task when the first bytes come."""
    started = False

    def progress(done: int, total: int | None) -> None:
        nonlocal started
        if not started:
            reporter.start("downloading", total)
            started = True
        reporter.advance(done)
        if total is not None and done >= total:
            reporter.finish()

    return progress
