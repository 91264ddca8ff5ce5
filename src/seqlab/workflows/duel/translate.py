"""The duel of translators: bits per byte of held-out targets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqlab.core.reporting import Reporter
from seqlab.core.settings.duel import DuelSettings
from seqlab.core.settings.translate import BETWEEN_FILES, TRANSLATE_RULES
from seqlab.data.sources import full_place, stem_of
from seqlab.runs.task import Task
from seqlab.workflows.duel.contest import Contest
from seqlab.workflows.duel.duel import compare_models
from seqlab.workflows.duel.terms import BITS_PER_TARGET_BYTE
from seqlab.workflows.duel.verdict import Duel
from seqlab.workflows.translate.data import Prepared
from seqlab.workflows.translate.measure import bytes_of_pairs, nats_of_each
from seqlab.workflows.translate.request import full_places, joined_places
from seqlab.workflows.translate.run import TranslatorRun
from seqlab.workflows.translate.task import Translating


def compare_translators(
    data: str | Path,
    *beside: str | Path,
    models: str | Sequence[str],
    seeds: int = DuelSettings().seeds,
    out: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    **flags: Any,
) -> Duel:
    """Train every model with every seed for the same time and say which predicts the targets best, if that can be said.

    Repeating the call goes on where it was interrupted; with more seeds it goes on from a finished duel. `flags`
    are settings of `train_translator`, for every model that has them; `budget` is what each model has.
    """
    named = models if isinstance(models, str) else ",".join(models)
    asked = DuelSettings(named, "time", seeds)
    if beside:
        flags["beside"] = joined_places([str(place) for place in beside])
    return compare_models(TranslateContest, str(data), asked, flags, out=out, threads=threads, reporter=reporter)


class TranslateContest(Contest):
    """Sentence pairs; the rows of one source are one block, whose score is the nats of its targets."""

    rules, terms = TRANSLATE_RULES, BITS_PER_TARGET_BYTE
    task: ClassVar[Task] = Translating()
    part = "test"

    def __init__(self, source: str, flags: dict[str, Any], reporter: Reporter) -> None:
        super().__init__(source, flags, reporter)
        self.place = {"data": full_place(source), "beside": full_places(flags.get("beside", ""))}
        settings = self._filled(self.flags_for("transformer") | self.place)
        self.read: Prepared = self.task.prepare(settings, reporter)
        self.name, self.sha256, self.stem = self.read.parallel.name, self.read.parallel.sha256, stem_of(source)

    def prepare(self) -> Prepared:
        return self.read

    @property
    def sources(self) -> list[str]:
        return [place for places in self.place.values() for place in places.split(BETWEEN_FILES) if place]

    @cached_property
    def _pairs(self) -> NDArray[np.int64]:
        return self.read.pairs_of(self.part)

    @cached_property
    def _blocks(self) -> NDArray[np.int64]:
        """The block of each deciding pair: its row."""
        return np.unique(self.read.pairs.source[self._pairs], return_inverse=True)[1]

    @cached_property
    def sizes(self) -> NDArray[Any]:
        return np.bincount(self._blocks, bytes_of_pairs(self.read, self._pairs))

    def score(self, run: TranslatorRun) -> list[float]:
        sums: list[float] = np.bincount(self._blocks, nats_of_each(run.model, self.read, self._pairs)).tolist()
        return sums

    @property
    def basis(self) -> str:
        targets = ", ".join(self.read.languages.targets)
        return f"bits per byte of the {len(self._pairs):,} test targets ({targets})"
