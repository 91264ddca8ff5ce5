"""Translation as a task: which batches, which objective, which figures."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from seqlab.core.errors import UsageError
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import filled, with_changes
from seqlab.core.settings.translate import TranslateSettings, check_said_of_translator, fill_translate
from seqlab.core.units import human_count, number_of
from seqlab.data.pair_batches import PairBatches
from seqlab.data.sources import full_place, stem_of
from seqlab.runs.run import Run
from seqlab.runs.session import Session
from seqlab.runs.task import Kept, Task
from seqlab.training.objectives import Score, TargetTokens
from seqlab.training.plan import Learning
from seqlab.workflows.translate.build import outline_translator, start_from_data
from seqlab.workflows.translate.data import Prepared, prepare_pairs, read_languages, read_pieces
from seqlab.workflows.translate.measure import VALIDATION_BLEU, measure_run, quick_validation, read_longest
from seqlab.workflows.translate.report import write_report
from seqlab.workflows.translate.request import full_places
from seqlab.workflows.translate.run import TranslatorRun

COPIES_WELL = 10.0  # BLEU of the sources themselves from which on a translator starts as the copier


class Translating(Task):
    kind: ClassVar[str] = "translate"
    unit: ClassVar[str] = "nats_per_piece"
    counted: ClassVar[str] = "pieces"
    settings_type: ClassVar[type] = TranslateSettings
    may_move: ClassVar[tuple[str, ...]] = ("data", "beside")

    # ---- settings

    def fill(self, settings: TranslateSettings) -> TranslateSettings:
        return fill_translate(settings)

    def check(self, settings: TranslateSettings, said: Mapping[str, Any]) -> None:
        if not settings.data.data:
            raise UsageError("no data are named; for example: seqlab translate train pairs.tsv")
        check_said_of_translator(settings, said)

    def name(self, settings: TranslateSettings) -> str:
        return f"{stem_of(settings.data.data)}-{settings.model.kind}"

    def summary(self, settings: TranslateSettings, data: Prepared) -> dict[str, str]:
        return {"model": settings.model.kind, "data": data.parallel.name}

    def way_on(self, folder: Path) -> str:
        return f"'seqlab translate train --out {folder} --resume'"

    # ---- data and model

    def prepare(self, settings: TranslateSettings, reporter: Reporter, kept: Kept | None = None) -> Prepared:
        return prepare_pairs(settings, reporter, kept)

    def settle(self, settings: TranslateSettings, data: Prepared) -> TranslateSettings:
        places = {"data": full_place(settings.data.data), "beside": full_places(settings.data.beside)}
        changes: dict[str, dict[str, Any]] = {"data": {**places, "split": data.split}}
        if settings.model.pointer is None:
            changes["model"] = {"pointer": max(data.copying.values()) >= COPIES_WELL}
        return with_changes(settings, changes)

    def build(self, settings: TranslateSettings, data: Prepared, reporter: Reporter) -> Any:
        model = self.outline(settings, data.files)
        start_from_data(model, data)
        return model

    def outline(self, settings: TranslateSettings, files: Mapping[str, bytes]) -> nn.Module:
        vocabulary = read_pieces(files).vocab_size
        model: nn.Module = outline_translator(settings, vocabulary, len(read_languages(files).targets))
        return model

    # ---- training and measuring

    def smaller(self, settings: TranslateSettings) -> tuple[str, ...]:
        return ("size", "width", "vocab_size")

    def learning(self, settings: TranslateSettings, data: Prepared, model: Any) -> Learning:
        training = settings.training
        batches = PairBatches(data.pairs, data.learnt, filled(training.batch), training.seed)
        return Learning(
            batches, TargetTokens(training.smoothing), {"pairs_per_step": len(data.learnt) // batches.steps_per_epoch}
        )

    def validate(self, model: Any, data: Prepared) -> Score:
        return quick_validation(model, data)

    def read_held_out(self, model: Any, data: Prepared) -> None:
        read_longest(model, data)

    def measure(self, run: Run, data: Prepared, reporter: Reporter) -> dict[str, Any]:
        assert isinstance(run, TranslatorRun)
        return measure_run(run, data, reporter)

    def report(self, run: Run, data: Prepared) -> None:
        assert isinstance(run, TranslatorRun)
        write_report(run, data)

    def describe(self, session: Session) -> None:
        data, settings, record, note = session.data, session.settings, session.record, session.reporter.note
        parts = " / ".join(f"{count:,}" for count in record["rows"].values())
        which = "the last rows" if data.split == "end" else "random rows"
        note(
            f"{data.parallel.name}: {len(data.parallel.sources):,} rows, {parts} (train / validation / test, {which}), "
            f"{data.languages.source} into {', '.join(data.languages.targets)}"
        )
        for line in data.notes:
            note(line)
        copied = ", ".join(f"{score:.1f} into {name}" for name, score in data.copying.items())
        start = (
            "the model starts as the copier" if settings.model.pointer else "the model cannot copy (--pointer lets it)"
        )
        note(f"copying the source has a BLEU of {copied} (validation): {start}")
        note(
            f"{settings.model.kind} {settings.model.size}: width {settings.model.width}, depth {settings.model.depth}, "
            f"{record['pieces']:,} pieces, {human_count(record['parameters'])} parameters; "
            f"{number_of(record['steps'], 'step')} of about {record['pairs_per_step']} pairs; "
            f"{number_of(record['threads'], 'thread')}, seed {settings.training.seed}"
        )

    def shown_validation(self, score: Score) -> str:
        return f"validation {score.value:.3f}, BLEU {score.figures[VALIDATION_BLEU]:.1f}"

    @property
    def run_type(self) -> type[TranslatorRun]:
        return TranslatorRun

    def trial(self, folder: Path) -> dict[str, Any]:
        table, draw = folder / "trial.tsv", random.Random(0)
        words = ["one", "two", "three", "four", "five", "six", "seven"]
        lines = ["digits\twords\tbackwards"]
        for _ in range(80):
            numbers = [draw.randrange(7) for _ in range(draw.randint(2, 5))]
            said = [words[k] for k in numbers]
            lines.append("\t".join([" ".join(map(str, numbers)), " ".join(said), " ".join(said[::-1])]))
        table.write_text("\n".join(lines), encoding="utf-8", newline="")
        sizes = dict(width=16, depth=1, heads=2, batch=160, vocab_size=280, dropout=0.1)
        return sizes | {"data": str(table), "budget": "12steps", "eval_every": 4}
