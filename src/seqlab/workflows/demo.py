"""The demonstration: a character model on Shakespeare, beside what one gets without a neural network."""

from __future__ import annotations

import contextlib
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqlab.core.errors import DownloadError
from seqlab.core.reporting import Reporter
from seqlab.core.settings.training import TrainingSettings
from seqlab.core.units import parse_split
from seqlab.data.overlap import longest_common_passage
from seqlab.data.prepare import read_slice, split_bounds
from seqlab.data.sources import Text, open_text
from seqlab.evaluation.baselines import Baseline, baselines
from seqlab.runs.folder import numbered_folder
from seqlab.workflows.lm.run import LMRun
from seqlab.workflows.lm.train import train_lm

CORPUS, OFFLINE_CORPUS = "shakespeare", "pydoc"
SAMPLE_CHARACTERS = 400


@dataclass(frozen=True)
class Demo:
    run: LMRun
    corpus: str
    rows: list[tuple[str, float, float]]  # name, perplexity per character, bits per byte
    sample: str
    copied: str


def run_demo(
    *,
    budget: str = TrainingSettings().budget,
    out: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
) -> Demo | None:
    """Train, measure, compare; None if it was interrupted (the run folder can be resumed)."""
    reporter = reporter or Reporter()
    text = _corpus(reporter)
    with contextlib.ExitStack() as held:
        folder = out or held.enter_context(numbered_folder(Path("runs"), "demo"))
        run = train_lm(text.name, tokenizer="char", budget=budget, out=folder, threads=threads, reporter=reporter)
    if run.final is None:
        return None
    bounds = split_bounds(text, parse_split(run.settings.data.split))
    sample = run.generate("", SAMPLE_CHARACTERS, temperature=0.8, seed=run.settings.training.seed)
    reporter.note("measuring what one gets without a neural network (half a minute) …")
    train, validation = (read_slice(text, bounds[name]) for name in ("train", "validation"))
    rows = _ranked(run.final["validation"], run.settings.model.kind, baselines(train, validation))
    return Demo(run, text.name, rows, sample, _copied(sample, text, bounds["train"]))


def _corpus(reporter: Reporter) -> Text:
    try:
        with reporter.downloading() as progress:
            return open_text(CORPUS, progress=progress)
    except DownloadError as error:
        reporter.warn(f"{error}; using '{OFFLINE_CORPUS}' instead, which needs no download")
        return open_text(OFFLINE_CORPUS)


def _ranked(figures: dict[str, Any], kind: str, simple: list[Baseline]) -> list[tuple[str, float, float]]:
    own = (f"seqlab {kind}", figures["perplexity_per_character"], figures["bits_per_byte"])
    others = [(b.name, b.perplexity_per_character, b.bits_per_byte) for b in simple]
    return sorted([own, *others], key=lambda row: -row[2])


def _copied(sample: str, text: Text, bounds: tuple[int, int]) -> str:
    """The longest passage of the sample that stands word for word in the training text."""
    with text.path.open("rb") as file, mmap.mmap(file.fileno(), bounds[1], access=mmap.ACCESS_READ) as training:
        return longest_common_passage(sample.encode(), training).decode("utf-8", "ignore")
