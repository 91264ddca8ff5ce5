"""Train a translator: start a run, or go on with one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqlab.core.reporting import Reporter
from seqlab.runs.train import train
from seqlab.workflows.translate.request import check_train, joined_places
from seqlab.workflows.translate.run import TranslatorRun
from seqlab.workflows.translate.task import Translating


def train_translator(
    data: str | Path | None = None,
    *beside: str | Path,
    out: str | Path | None = None,
    resume: bool = False,
    config: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    stop: Callable[[], bool] | None = None,
    **flags: Any,
) -> TranslatorRun:
    """Train a translator on aligned texts and measure it; returns the run, whose folder holds everything.

    `data` is a table, or a text file whose translations lie `beside` it line by line, or an aligned corpus. `flags` are
    the settings of the command line with underscores: to="de,fr", budget="1h", model="gru", …
    """
    said = dict(flags) if data is None else flags | {"data": str(data)}
    if beside:
        said["beside"] = joined_places([str(place) for place in beside])
    if isinstance(said.get("to"), (list, tuple)):
        said["to"] = ",".join(said["to"])
    check_train(said, out=out, resume=resume, config=config, threads=threads)
    run: TranslatorRun = train(
        Translating(), said, out=out, resume=resume, config=config, threads=threads, reporter=reporter, stop=stop
    )
    return run
