"""Train a language model: start a run, or go on with one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqlab.core.reporting import Reporter
from seqlab.runs.train import train
from seqlab.workflows.lm.request import check_train
from seqlab.workflows.lm.run import LMRun
from seqlab.workflows.lm.task import LanguageModelling


def train_lm(
    text: str | Path | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    from_run: str | Path | None = None,
    config: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    stop: Callable[[], bool] | None = None,
    **flags: Any,
) -> LMRun:
    """Train a language model on a text and measure it; returns the run, whose folder holds everything.

    `flags` are the settings of the command line with underscores: model="gru", budget="5m", … `stop` is asked before
    every step: from a thread, ``stop=event.is_set`` ends the run as Ctrl-C would.
    """
    said = flags if text is None else flags | {"text": str(text)}
    check_train(said, out=out, resume=resume, from_run=from_run, config=config, threads=threads)
    run: LMRun = train(
        LanguageModelling(),
        said,
        out=out,
        resume=resume,
        from_run=from_run,
        config=config,
        threads=threads,
        reporter=reporter,
        stop=stop,
    )
    return run
