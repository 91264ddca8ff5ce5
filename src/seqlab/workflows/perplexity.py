"""The perplexity sheet: every run on every text, in every unit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from seqlab.core.reporting import Reporter
from seqlab.core.settings import check_threads
from seqlab.data.sources import read_text
from seqlab.evaluation.perplexity import figures_of
from seqlab.workflows.run import load

Row = dict[str, Any]


def perplexity_sheet(
    runs: Sequence[str | Path],
    texts: Sequence[str],
    *,
    encoding: str = "utf-8",
    threads: int | None = None,
    reporter: Reporter | None = None,
) -> list[Row]:
    """One row of figures for each run and text. Unknown tokens pay for their spelling; nothing is refused."""
    reporter = reporter or Reporter()
    check_threads(threads)
    torch.set_num_threads(threads or torch.get_num_threads())
    loaded = [load(folder) for folder in runs]
    read = [read_text(source, encoding) for source in texts]
    rows = []
    for run in loaded:
        for text, content in read:
            with reporter.task(f"scoring {text.name} with {run.name}", 1.0):
                surprisals = run.scorer.score(content, progress=reporter.advance)
            figures = figures_of(surprisals, content)
            if text.sha256 == run.record["text_sha256"]:
                reporter.warn(f"{text.name} is the very text that {run.name} was trained on: its figures flatter")
            if figures.unknown:
                reporter.warn(
                    f"{text.name}: {figures.unknown:,} of {figures.tokens:,} tokens ({figures.unknown_rate:.2%}) were "
                    f"never seen in training by {run.name}; each pays for an unknown class and 8 bits per byte"
                )
            rows.append(
                {
                    "model": str(run.folder),
                    "text": text.name,
                    **figures.as_json(),
                    "closed_vocabulary": False,
                    "context": str(run.scorer.policy),
                    "interval": None,
                }
            )
    return rows
