"""The demonstration: counting alone, learning alone and both together on Shakespeare, beside simple baselines."""

from __future__ import annotations

import contextlib
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqlab.core.errors import DownloadError
from seqlab.core.reporting import ProgressOnly, Reporter
from seqlab.core.settings.training import TrainingSettings
from seqlab.core.units import human_seconds, parse_budget, parse_split
from seqlab.data.overlap import longest_common_passage
from seqlab.data.prepare import split_bounds
from seqlab.data.sources import Text, open_text
from seqlab.evaluation.baselines import BASELINE_ORDER, COMPRESSORS, Baseline, ngram_name
from seqlab.runs.folder import numbered_folder
from seqlab.workflows.lm.baselines import measured_baselines
from seqlab.workflows.lm.run import LMRun
from seqlab.workflows.lm.train import train_lm

CORPUS, OFFLINE_CORPUS = "shakespeare", "pydoc"
PART = "test"  # that everything is measured on
SAMPLE_CHARACTERS = 400
TOKENS = {"char": "characters", "byte": "bytes", "bpe": "BPE tokens", "word": "words"}
SHARE_ALONE = 1 / 3  # of a time budget: what the network is given to learn by itself, for comparison


@dataclass(frozen=True)
class Row:
    """One method on the test text."""

    role: str  # counts, network, both or reading; empty for what else there is
    name: str
    perplexity_per_character: float
    bits_per_byte: float
    effort: str = ""  # what it took
    learns_on: bool = False  # from the test text


@dataclass(frozen=True)
class Demo:
    run: LMRun
    alone: LMRun
    corpus: str
    rows: list[Row]  # the worst first
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
    said: dict[str, Any] = dict(threads=threads)
    with contextlib.ExitStack() as held:
        folder = Path(out or held.enter_context(numbered_folder(Path("runs"), "demo")))
        run = train_lm(text.name, budget=budget, out=folder, reporter=reporter, **said)
        if run.final is None:
            return None
        reporter.note("and the same network by itself, for comparison:")
        beside = folder.with_name(folder.name + "-alone")
        said |= dict(guide="none", tokenizer=run.settings.tokenizer.kind, reporter=ProgressOnly(reporter))
        alone = train_lm(text.name, budget=alone_budget(budget), out=beside, **said)
    if alone.final is None:
        return None
    bounds = split_bounds(text, parse_split(run.settings.data.split))
    written = run.generate("", SAMPLE_CHARACTERS, temperature=0.8, seed=run.settings.training.seed)
    sample = written[:SAMPLE_CHARACTERS]  # a token may be several characters
    reporter.note("measuring what one gets without a neural network …")
    simple = [_simple(found) for found in measured_baselines(text, bounds, PART, reporter=reporter)]
    learnt = [_learnt("network", alone), _learnt("both", run), *_reading(run)]
    rows = sorted([*simple, *learnt], key=lambda row: -row.bits_per_byte)
    return Demo(run, alone, text.name, rows, sample, _copied(sample, text, bounds["train"]))


def alone_budget(budget: str) -> str:
    """A share of a time budget; steps, tokens and epochs as they are."""
    seconds = parse_budget(budget).seconds
    return budget if seconds is None else f"{max(1.0, SHARE_ALONE * seconds):.0f}s"


def _corpus(reporter: Reporter) -> Text:
    try:
        with reporter.downloading() as progress:
            return open_text(CORPUS, progress=progress)
    except DownloadError as error:
        reporter.warn(f"{error}; using '{OFFLINE_CORPUS}' instead, which needs no download")
        return open_text(OFFLINE_CORPUS)


def _simple(found: Baseline) -> Row:
    """A baseline; the longest n-gram of characters is what counting alone comes to."""
    role = "counts" if found.name == ngram_name(BASELINE_ORDER) else ""
    learns_on = found.name in COMPRESSORS
    return Row(role, found.name, found.perplexity_per_character, found.bits_per_byte, learns_on=learns_on)


def _learnt(role: str, run: LMRun) -> Row:
    final = run.final
    assert final is not None
    name, figures = run.settings.model.kind, final[PART]
    if role == "both":
        name += f" led by a {run.settings.model.order}-gram of its {TOKENS[run.settings.tokenizer.kind]}"
    effort = f"{human_seconds(final['seconds'])}, {final['step']:,} steps"
    return Row(role, name, figures["perplexity_per_character"], figures["bits_per_byte"], effort)


def _reading(run: LMRun) -> list[Row]:
    """Both together, as they go on learning from the test text; nothing where that was not measured."""
    figures = (run.final or {}).get("reading_on")
    if not figures:
        return []
    name = "the same, learning on from the test text as compressors do"
    return [Row("reading", name, figures["perplexity_per_character"], figures["bits_per_byte"], learns_on=True)]


def _copied(sample: str, text: Text, bounds: tuple[int, int]) -> str:
    """The longest passage of the sample that stands word for word in the training text."""
    with text.path.open("rb") as file, mmap.mmap(file.fileno(), bounds[1], access=mmap.ACCESS_READ) as training:
        return longest_common_passage(sample.encode(), training).decode("utf-8", "ignore")
