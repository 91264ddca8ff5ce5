"""Decide new texts with a trained classifier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from seqlab.core.reporting import Reporter
from seqlab.data.labelled import read_unlabelled
from seqlab.runs.run import load
from seqlab.training.determinism import deterministic
from seqlab.workflows.classify.run import ClassifierRun, Prediction


def texts_to_predict(
    texts: Sequence[str], source: str | None, column: str | None, encoding: str, reporter: Reporter
) -> list[str]:
    """The texts given, or those of a file or of standard input ('-')."""
    if source is None:
        return list(texts)
    found, notes = read_unlabelled(source, text=column, encoding=encoding)
    for line in notes:
        reporter.note(line)
    return found


def predict_texts(
    folder: str | Path, texts: Sequence[str], *, threads: int | None = None, reporter: Reporter | None = None
) -> list[Prediction]:
    reporter = reporter or Reporter()
    run: ClassifierRun = load(folder, "classify")
    with deterministic(threads or run.record["threads"]), reporter.task("deciding", len(texts)):
        return run.predict(texts, reporter.advance)


def predict_lines(folder: str | Path, lines: Iterator[str], *, threads: int | None = None) -> Iterator[Prediction]:
    """One prediction for each line as it comes."""
    run: ClassifierRun = load(folder, "classify")
    with deterministic(threads or run.record["threads"]):
        for line in lines:
            yield run.predict([line])[0]
