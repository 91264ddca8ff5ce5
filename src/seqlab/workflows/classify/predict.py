"""Decide new texts with a trained classifier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from seqlab.core.reporting import Reporter
from seqlab.data.labelled import given_or_read as given_or_read
from seqlab.runs.run import load
from seqlab.training.determinism import deterministic
from seqlab.workflows.classify.run import ClassifierRun, Prediction


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
