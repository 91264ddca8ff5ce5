"""Opening a run to write text with it."""

from __future__ import annotations

from pathlib import Path

import torch

from seqlab.core.reporting import Reporter
from seqlab.core.settings import check_threads
from seqlab.workflows.run import Run, load


def open_for_generation(folder: str | Path, prompt: str, threads: int | None, reporter: Reporter) -> Run:
    """The run, with a warning if the prompt holds what its training never saw.

    One thread by default: a single token is too little work to share.
    """
    check_threads(threads)
    torch.set_num_threads(threads or 1)
    run = load(folder)
    unknown = run.tokenizer.encode(prompt).unknown
    if unknown.any():
        reporter.warn(f"{int(unknown.sum())} of {len(unknown)} prompt tokens were never seen in training")
    return run
