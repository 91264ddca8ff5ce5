"""The duel of language models: bits per byte of a text that none has seen, sizes solved for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from seqlab.core.reporting import Reporter
from seqlab.core.settings.duel import LM_RULES, DuelSettings
from seqlab.core.settings.fields import with_changes, with_flags
from seqlab.core.settings.lm import LMSettings, fill_lm
from seqlab.core.units import parse_split
from seqlab.data.prepare import documents_in, read_slice, split_bounds
from seqlab.data.sources import open_text, stem_of
from seqlab.evaluation.statistics import Places, block_edges, block_sums, documents_of
from seqlab.runs.task import Task
from seqlab.workflows.duel.contest import Contest
from seqlab.workflows.duel.duel import compare_models
from seqlab.workflows.duel.entrants import Bought, Cost, Entrant, shown_sizes
from seqlab.workflows.duel.plan import flags_for, sized_settings, with_deviation, with_one_tokenizer
from seqlab.workflows.duel.sizes import cost_of
from seqlab.workflows.duel.terms import BITS_PER_BYTE
from seqlab.workflows.duel.verdict import Duel
from seqlab.workflows.lm.data import Prepared, prepare_text
from seqlab.workflows.lm.measure import on_original
from seqlab.workflows.lm.run import LMRun
from seqlab.workflows.lm.task import LanguageModelling

DEFAULTS = DuelSettings()


def compare_lms(
    text: str | Path,
    *,
    models: str | Sequence[str],
    match: str = DEFAULTS.match,
    seeds: int = DEFAULTS.seeds,
    out: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    **flags: Any,
) -> Duel:
    """Train every model with every seed on equal terms and say which is best, if that can be said.

    Repeating the call goes on where it was interrupted; with more seeds it goes on from a finished duel. `flags`
    are settings of `train_lm`, for every model that has them; `budget` is what each model has.
    """
    named = models if isinstance(models, str) else ",".join(models)
    asked = DuelSettings(named, match, seeds)
    return compare_models(LMContest, str(text), asked, flags, out=out, threads=threads, reporter=reporter)


class LMContest(Contest):
    """A text in blocks of about 250 bytes; the score of a block is its nats."""

    rules, terms = LM_RULES, BITS_PER_BYTE
    task: ClassVar[Task] = LanguageModelling()

    def __init__(self, source: str, flags: dict[str, Any], reporter: Reporter) -> None:
        with reporter.downloading() as progress:
            text = open_text(source, flags.get("encoding", "utf-8"), flags.get("glob", ""), progress=progress)
        self.stem = stem_of(source)
        if not _can_be_read_again(source):
            source, flags = str(text.path), {k: v for k, v in flags.items() if k not in ("encoding", "glob")}
        super().__init__(source, flags, reporter)
        self.name, self.sha256, self.place = text.name, text.sha256, {"text": source}
        asked = with_flags(LMSettings(), flags)
        bounds = split_bounds(text, parse_split(asked.data.split))
        self.said = with_one_tokenizer(flags, bounds["train"][1])
        self.part = "test" if bounds["test"][0] < bounds["test"][1] else "validation"
        self.content = read_slice(text, bounds[self.part])
        self.starts = documents_in(text, bounds[self.part])

    # ---- the data

    def prepare(self) -> Prepared:
        reader = {"model": "bigram"} if "vectors" in self.said else {}  # the one that has use for vectors
        settings = fill_lm(with_flags(LMSettings(), self.said | reader | self.place))
        return prepare_text(settings, self.reporter)

    def data_for(self, kind: str) -> Prepared:
        data: Prepared = self.data
        return data if kind == "bigram" else replace(data, vectors=None)

    @property
    def question(self) -> dict[str, Any]:
        return {"text": self.name, "text_sha256": self.sha256}

    # ---- judging

    @cached_property
    def edges(self) -> Places:
        return block_edges(self.content.encode(), self.starts)

    @property
    def sizes(self) -> Places:
        return np.diff(self.edges)

    @property
    def documents(self) -> Places:
        return documents_of(self.edges, self.starts)

    def score(self, run: LMRun) -> list[float]:
        """Nats of each block: from the table that the run's own measurement made, if it made it just now."""
        measured = run.measured.get(self.part)
        if measured is None:
            with self.reporter.task(f"{run.name}: scoring the {self.part} text in blocks", 1.0):
                surprisals = run.scorer.score(self.content, progress=self.reporter.advance)
        else:
            surprisals = on_original(measured, run.tokenizer, self.content, run.steps)
        sums: list[float] = block_sums(surprisals, self.edges).tolist()
        return sums

    @property
    def basis(self) -> str:
        blocks, documents = len(self.sizes), len(self.starts)
        return (
            f"bits per byte of the {self.part} text, {int(self.sizes.sum()):,} bytes in {blocks:,} "
            f"block{'s' * (blocks != 1)} of {documents:,} document{'s' * (documents != 1)}"
        )

    # ---- who is told what

    def flags_for(self, kind: str) -> dict[str, Any]:
        return flags_for(kind, self.said)

    def plan(self, kinds: Sequence[str], budget: str, match: str) -> list[Entrant]:
        """Solve for the sizes, and turn the budget into steps, once for each model.

        parameters  every model has as many as the first, and the whole budget
        flops       every model has the first one's operations per token, and as many tokens as the budget buys it
        time        every model has its own preset, and the whole budget
        """
        entrants: dict[str, Entrant] = {}
        first: Entrant | None = None
        vocab_size = self.data.tokenizer.vocab_size
        for kind, settings in sized_settings(kinds, budget, match, self.said, vocab_size).items():
            if match == "flops" and first is not None:
                settings = with_changes(settings, {"training": {"budget": f"{first.tokens}tokens"}})
            entrants[kind] = self.trained(kind, settings)
            first = first or entrants[kind]
        if match != "time" and first is not None:
            entrants = {kind: with_deviation(e, first, match, self.reporter) for kind, e in entrants.items()}
        return [entrants[kind] if kind in entrants else self.fitted(kind) for kind in kinds]

    def pinned(self, kind: str, settings: LMSettings) -> dict[str, Any]:
        sizes = flags_for(kind, shown_sizes(settings))
        full_gradient = settings.training.full_gradient
        decided = {} if full_gradient is None else {"full_gradient": full_gradient}
        return {"size": settings.model.size} | sizes | decided

    def cost(self, settings: LMSettings, bought: Bought) -> Cost:
        return cost_of(settings, self.data.tokenizer.vocab_size, match="parameters")


def _can_be_read_again(source: str) -> bool:
    path = Path(source)
    return source != "-" and (path.is_file() or path.is_dir() or not path.exists())
