"""Train a text classifier: start a run, or go on with one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqlab.core.reporting import Reporter
from seqlab.runs.train import train
from seqlab.workflows.classify.request import check_train
from seqlab.workflows.classify.run import ClassifierRun
from seqlab.workflows.classify.task import Classifying


def train_classifier(
    data: str | Path | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    config: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    stop: Callable[[], bool] | None = None,
    **flags: Any,
) -> ClassifierRun:
    """Train a classifier on labelled texts and measure it; returns the run, whose folder holds everything.

    `flags` are the settings of the command line with underscores: text="review", label="stars", model="average", …
    """
    said = flags if data is None else flags | {"data": str(data)}
    check_train(said, out=out, resume=resume, config=config, threads=threads)
    run: ClassifierRun = train(
        Classifying(), said, out=out, resume=resume, config=config, threads=threads, reporter=reporter, stop=stop
    )
    return run
