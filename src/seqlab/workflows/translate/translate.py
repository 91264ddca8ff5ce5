"""Translate sentences with a trained run, into one target or many, and say what encoding once has saved."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqlab.core.errors import DataError
from seqlab.core.reporting import Reporter
from seqlab.data.labelled import given_or_read as given_or_read
from seqlab.runs.run import load
from seqlab.training.determinism import deterministic
from seqlab.workflows.translate.interpreter import Translation
from seqlab.workflows.translate.run import TranslatorRun

STRANGE = 0.5  # of the letters were never seen in training: they are read byte by byte


@dataclass(frozen=True)
class Translated:
    """Every source with its translations into every target."""

    sources: list[str]
    targets: list[str]
    found: dict[str, list[list[Translation]]]  # by target, for each source, best first
    encoding_seconds: float
    decoding_seconds: float

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"source": source, "target": name, "text": self.found[name][k][0].text}
            | ({"alternatives": [one.text for one in self.found[name][k][1:]]} if len(self.found[name][k]) > 1 else {})
            for k, source in enumerate(self.sources)
            for name in self.targets
        ]

    @property
    def saved(self) -> str:
        """What one encoding for all targets has saved, where there are several."""
        others = len(self.targets) - 1
        if not others:
            return ""
        seconds = others * self.encoding_seconds
        share = seconds / (seconds + self.encoding_seconds + self.decoding_seconds)
        return (
            f"the sources were encoded once for {others + 1} targets: {others} encodings saved "
            f"({seconds:.2f} s, {share:.0%} of the time that separate runs would take)"
        )


def translate_sentences(
    folder: str | Path,
    sources: Sequence[str],
    to: Sequence[str] = (),
    *,
    threads: int | None = None,
    reporter: Reporter | None = None,
    **how: Any,
) -> Translated:
    """Into every target of `to` (all that the run knows, if none is named)."""
    reporter = reporter or Reporter()
    run: TranslatorRun = load(folder, "translate")
    targets = list(to) or list(run.targets)
    for name in targets:
        run.languages.tag_of(name)
    if not sources:
        raise DataError("there is nothing to translate; give one sentence at least")
    warn_of_strange(run, sources, reporter)
    with deterministic(threads or run.record["threads"]):
        begun = time.perf_counter()
        with reporter.task("reading", len(sources)):
            encoding = run.encode(sources, reporter.advance)
        encoded = time.perf_counter()
        found = {}
        for name in targets:
            with reporter.task(f"translating into {name}", len(sources)):
                found[name] = run.hypotheses(encoding, name, progress=reporter.advance, **how)
    seconds = (encoded - begun, time.perf_counter() - encoded)
    return Translated(list(sources), targets, found, *seconds)


def translate_lines(
    folder: str | Path,
    lines: Iterator[str],
    to: Sequence[str] = (),
    *,
    threads: int | None = None,
    reporter: Reporter | None = None,
    **how: Any,
) -> Iterator[Translated]:
    """Each line as it comes, the same as all of them together would be."""
    run: TranslatorRun = load(folder, "translate")
    targets = list(to) or list(run.targets)
    with deterministic(threads or run.record["threads"]):
        run.hypotheses(run.encode([]), targets[0], **how)  # options that cannot be are refused before anything is read
        for number, line in enumerate(lines):
            warn_of_strange(run, [line], reporter or Reporter())
            encoding = run.encode([line])
            found = {name: run.hypotheses(encoding, name, first=number, **how) for name in targets}
            yield Translated([line], targets, found, 0.0, 0.0)


def warn_of_strange(run: TranslatorRun, sources: Sequence[str], reporter: Reporter) -> None:
    """Nothing is cut and nothing is unknown, but some sentences are unlike all that was learnt from."""
    sizes = [len(ids) for ids in run.tokenizer.encode_each([" ".join(text.split()) for text in sources])]
    limit = run.settings.tokenizer.length
    if longer := sum(size > limit for size in sizes):
        reporter.warn(
            f"{longer:,} of {len(sources):,} sentences have more than {limit} pieces, the longest that was trained on; "
            "they are translated whole, and probably badly: give sentence by sentence"
        )
    if strange := sum(_share_of_strange_letters(run, text) > STRANGE for text in sources):
        reporter.warn(
            f"{strange:,} of {len(sources):,} sentences are in a script that was hardly seen in training: they are "
            "read byte by byte"
        )


def _share_of_strange_letters(run: TranslatorRun, text: str) -> float:
    """Letters beyond ASCII that have no piece of their own: training has hardly seen them."""
    letters = [letter for letter in text if letter.isalpha()]
    beyond = sorted({letter for letter in letters if not letter.isascii()})
    pieces = run.tokenizer.encode_each(beyond)
    strange = {letter for letter, ids in zip(beyond, pieces, strict=True) if len(ids) > 1}
    return sum(letter in strange for letter in letters) / max(1, len(letters))
