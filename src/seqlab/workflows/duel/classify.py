"""The duel of classifiers: the share of held-out texts that each decides wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqlab.core.reporting import Reporter
from seqlab.core.settings.classify import CLASSIFY_RULES, ClassifySettings, fill_classify
from seqlab.core.settings.duel import DuelSettings
from seqlab.core.settings.fields import with_flags
from seqlab.data.labelled import kept_source
from seqlab.data.sources import stem_of
from seqlab.evaluation.decisions import logits_of
from seqlab.runs.task import Task
from seqlab.workflows.classify.data import Prepared, Texts, prepared_for, read_texts
from seqlab.workflows.classify.measure import deciding_part
from seqlab.workflows.classify.run import ClassifierRun
from seqlab.workflows.classify.task import Classifying
from seqlab.workflows.duel.contest import Contest
from seqlab.workflows.duel.duel import compare_models
from seqlab.workflows.duel.terms import ERROR_RATE
from seqlab.workflows.duel.verdict import Duel


def compare_classifiers(
    data: str | Path,
    *,
    models: str | Sequence[str],
    seeds: int = DuelSettings().seeds,
    out: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    **flags: Any,
) -> Duel:
    """Train every model with every seed for the same time and say which errs least, if that can be said.

    Repeating the call goes on where it was interrupted; with more seeds it goes on from a finished duel. `flags`
    are settings of `train_classifier`, for every model that has them; `budget` is what each model has.
    """
    named = models if isinstance(models, str) else ",".join(models)
    asked = DuelSettings(named, "time", seeds)
    return compare_models(ClassifyContest, str(data), asked, flags, out=out, threads=threads, reporter=reporter)


class ClassifyContest(Contest):
    """Rows of labelled text; those that repeat a text or share a group are one block, whose score is its errors."""

    rules, terms = CLASSIFY_RULES, ERROR_RATE
    task: ClassVar[Task] = Classifying()

    def __init__(self, source: str, flags: dict[str, Any], reporter: Reporter) -> None:
        super().__init__(source, flags, reporter)
        # Buckets for every kind at once: those that the averaging network reads.
        settings = fill_classify(with_flags(ClassifySettings(), self.flags_for("average") | {"data": source}))
        self.texts: Texts = read_texts(settings, reporter)
        read = self.texts.source
        place = kept_source(read.sha256) or source if source == "-" else source
        self.name, self.sha256, self.stem, self.place = read.name, read.sha256, stem_of(source), {"data": place}
        self.part = deciding_part(self.texts)
        self._prepared: dict[str, Prepared] = {}

    # ---- the data

    def prepare(self) -> Texts:
        return self.texts

    def data_for(self, kind: str) -> Prepared:
        if kind not in self._prepared:
            settings = self._filled(self.flags_for(kind) | {"model": kind})
            self._prepared[kind] = prepared_for(settings.model, self.texts, self.reporter)
        return self._prepared[kind]

    # ---- judging

    @cached_property
    def blocks(self) -> NDArray[np.int64]:
        """The block of each deciding row."""
        clusters = self.texts.split.clusters[self.texts.rows(self.part)]
        return np.unique(clusters, return_inverse=True)[1]

    @property
    def sizes(self) -> NDArray[Any]:
        return np.bincount(self.blocks)

    def score(self, run: ClassifierRun) -> list[float]:
        measured = run.measured.get(self.part)
        rows = self.texts.rows(self.part)
        if measured is None:
            data = self.data_for(run.settings.model.kind)
            wrong = logits_of(run.model, data.inputs, rows).argmax(1) != self.texts.truth[rows]
        else:
            wrong = ~measured.right
        sums: list[float] = np.bincount(self.blocks, wrong.astype(np.float64)).tolist()
        return sums

    @property
    def basis(self) -> str:
        rows, different = len(self.blocks), len(self.sizes)
        repeated = "" if rows == different else f", of which {different:,} are different or of different groups"
        return f"error rate on the {self.part} texts: {rows:,}{repeated}"
