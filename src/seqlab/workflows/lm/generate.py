"""Writing text with a run that lies on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqlab.core.reporting import Reporter
from seqlab.runs.run import load
from seqlab.training.determinism import using_threads
from seqlab.workflows.lm.run import LMRun


def stream_text(
    folder: str | Path, prompt: str, *, threads: int | None, reporter: Reporter, **how: Any
) -> Iterator[bytes]:
    """The bytes of the continuation, token by token; warns if the prompt holds what training never saw.

    One thread by default: a single token is too little work to share.
    """
    with using_threads(threads or 1):
        run: LMRun = load(folder, "lm")
        unknown = run.tokenizer.encode(prompt).unknown
        if unknown.any():
            reporter.warn(f"{int(unknown.sum())} of {len(unknown)} prompt tokens were never seen in training")
        yield from run.stream(prompt, **how)
