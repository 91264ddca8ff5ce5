"""The corpora that come with packages, for whoever talks to a person."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
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
    with downloading(reporter) as progress:
        text = load_corpus(name, progress=progress)
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


@contextlib.contextmanager
def downloading(reporter: Reporter) -> Iterator[Callable[[int, int | None], None]]:
    """A callback for downloads; the reporter's task starts with the first bytes and ends with the block."""
    with contextlib.ExitStack() as tasks:

        def progress(done: int, total: int | None) -> None:
            if done and not started:
                started.append(True)
                tasks.enter_context(reporter.task("downloading", total))
            reporter.advance(done)

        started: list[bool] = []
        yield progress
