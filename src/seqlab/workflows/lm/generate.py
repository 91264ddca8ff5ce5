"""Writing text with a run that lies on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from seqlab.core.reporting import Reporter
from seqlab.core.settings.generation import GenerationSettings
from seqlab.training.determinism import using_threads
from seqlab.workflows.lm.mix import named_run
from seqlab.workflows.lm.run import LMRun


def stream_text(
    folder: str | Path, prompt: str, *, threads: int | None, reporter: Reporter, **how: Any
) -> Iterator[bytes]:
    """The bytes of the continuation, token by token; warns if the prompt holds what training never saw.

    One thread by default: a single token is too little work to share.
    """
    with using_threads(threads or 1):
        run = named_run(folder, reporter)
        _warn_of_unknown(run, [prompt], reporter)
        yield from run.stream(prompt, **how)


def write_texts(
    folder: str | Path, prompts: list[str], *, threads: int | None, reporter: Reporter, **how: Any
) -> list[str]:
    """The continuation of each prompt, all written side by side; prompt k has the seed `seed + k`."""
    with using_threads(threads):
        run = named_run(folder, reporter)
        _warn_of_unknown(run, prompts, reporter)
        parts: list[list[bytes]] = [[] for _ in prompts]
        reporter.start("writing", len(prompts) * GenerationSettings(**how).tokens)
        for done, (row, part) in enumerate(run.stream_each(prompts, **how), start=1):
            parts[row].append(part)
            reporter.advance(done)
        reporter.finish()
    return [b"".join(written).decode() for written in parts]


def _warn_of_unknown(run: LMRun, prompts: list[str], reporter: Reporter) -> None:
    unknown = np.concatenate([run.tokenizer.encode(prompt).unknown for prompt in prompts])
    if unknown.any():
        reporter.warn(f"{int(unknown.sum())} of {len(unknown)} prompt tokens were never seen in training")
