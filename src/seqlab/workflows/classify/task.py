"""Text classification as a task: which batches, which objective, which figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from seqlab.core.errors import UsageError
from seqlab.core.reporting import Reporter
from seqlab.core.settings.classify import ClassifySettings, check_said_of_classifier, fill_classify
from seqlab.core.settings.fields import filled, with_changes
from seqlab.core.units import human_count, number_of
from seqlab.data.label_batches import LabelBatches
from seqlab.data.sources import full_place, stem_of
from seqlab.evaluation.decisions import logits_of
from seqlab.runs.run import Run
from seqlab.runs.session import Session
from seqlab.runs.task import PICTURES, Kept, Task
from seqlab.training.objectives import Labels, Score
from seqlab.training.plan import Learning
from seqlab.workflows.classify.build import class_weights, outline_classifier, start_from_data, validations
from seqlab.workflows.classify.data import Prepared, prepare_texts, read_sizes
from seqlab.workflows.classify.measure import VALIDATION_ERRORS, measure_run, quick_validation
from seqlab.workflows.classify.report import write_report

if TYPE_CHECKING:
    from seqlab.workflows.classify.run import ClassifierRun


LIBRARIES = 64 << 20  # bytes of those that fit the baselines
BYTES_PER_PLACE = 40  # of a word or pair of words in a text, while the baselines are fitted (docs/benchmarks.md)


class Classifying(Task):
    kind: ClassVar[str] = "classify"
    unit: ClassVar[str] = "nats_per_text"
    counted: ClassVar[str] = "texts"
    settings_type: ClassVar[type] = ClassifySettings
    may_move: ClassVar[tuple[str, ...]] = ("data",)

    # ---- settings

    def fill(self, settings: ClassifySettings) -> ClassifySettings:
        return fill_classify(settings)

    def check(self, settings: ClassifySettings, said: Mapping[str, Any]) -> None:
        if not settings.data.data:
            raise UsageError("no data are named; for example: seqlab classify train my.csv --text review --label stars")
        check_said_of_classifier(settings, said)

    def name(self, settings: ClassifySettings) -> str:
        return f"{stem_of(settings.data.data)}-{settings.model.kind}"

    def summary(self, settings: ClassifySettings, data: Prepared) -> dict[str, str]:
        return {"model": settings.model.kind, "data": data.source.name}

    def way_on(self, folder: Path) -> str:
        return f"'seqlab classify train --out {folder} --resume'"

    # ---- data and model

    def prepare(self, settings: ClassifySettings, reporter: Reporter, kept: Kept | None = None) -> Prepared:
        return prepare_texts(settings, reporter, kept)

    def settle(self, settings: ClassifySettings, data: Prepared) -> ClassifySettings:
        changes: dict[str, dict[str, Any]] = {"data": {"data": full_place(settings.data.data)}}
        if settings.model.vectors is not None:
            changes["model"] = {"vectors": full_place(settings.model.vectors)}
        if settings.model.kind == "average" and settings.training.eval_every is None:
            changes["training"] = {"eval_every": validations(settings, len(data.split.train))}
        return with_changes(settings, changes)

    def build(self, settings: ClassifySettings, data: Prepared, reporter: Reporter) -> Any:
        model = self.outline(settings, data.files)
        start_from_data(model, settings, data)
        return model

    def outline(self, settings: ClassifySettings, files: Mapping[str, bytes]) -> nn.Module:
        model: nn.Module = outline_classifier(settings, read_sizes(files))
        return model

    # ---- training and measuring

    def smaller(self, settings: ClassifySettings) -> tuple[str, ...]:
        return ("width", "bucket_bits") if settings.model.kind == "average" else ("width", "length", "vocab_size")

    def learning(self, settings: ClassifySettings, data: Prepared, model: Any) -> Learning:
        training = settings.training
        batches = LabelBatches(data.inputs, data.split.train, data.truth, filled(training.batch), training.seed)
        return Learning(batches, Labels(class_weights(settings, data)), {"batch": batches.batch})

    def validate(self, model: Any, data: Prepared) -> Score:
        return quick_validation(model, data)

    def read_held_out(self, model: Any, data: Prepared) -> None:
        logits_of(model, data.inputs, data.split.validation)

    def later_bytes(self, data: Prepared) -> int:
        return PICTURES + LIBRARIES + BYTES_PER_PLACE * data.places

    def measure(self, run: Run, data: Prepared, reporter: Reporter) -> dict[str, Any]:
        return measure_run(run, data, reporter)

    def report(self, run: Run, data: Prepared) -> None:
        write_report(run, data)

    def describe(self, session: Session) -> None:
        data, settings, record = session.data, session.settings, session.record
        note, warn = session.reporter.note, session.reporter.warn
        parts = " / ".join(f"{count:,}" for count in record["texts"].values())
        note(
            f"{data.source.name}: {len(data.source.texts):,} texts, {parts} (train / validation / test), "
            f"{len(data.labels):,} classes"
        )
        for line in data.notes:
            note(line)
        for line in data.leaks:
            warn(line)
        if settings.model.kind == "average" and settings.model.bayes is None and not data.sizes.bayes:
            warn(
                f"{data.sizes.features:,} features times {len(data.labels):,} classes are too many for naive Bayes: "
                "this is the plain averaging network, without it; merge rare classes to have it"
            )
        known = "features" if settings.model.kind == "average" else "words"
        note(
            f"{settings.model.kind}: {human_count(data.sizes.features)} {known}, "
            f"{human_count(record['parameters'])} parameters; {number_of(record['steps'], 'step')} of "
            f"{number_of(record['batch'], 'text')}; {number_of(record['threads'], 'thread')}, "
            f"seed {settings.training.seed}"
        )

    def shown(self, data: Prepared, loss: float, speed: float) -> dict[str, str]:
        return {"loss": f"loss {loss:.3f}", "speed": f"{human_count(speed)} texts/s"}

    def shown_validation(self, score: Score) -> str:
        return f"validation {score.value:.3f}, {1 - score.figures[VALIDATION_ERRORS]:.1%} right"

    @property
    def run_type(self) -> type[ClassifierRun]:
        from seqlab.workflows.classify.run import ClassifierRun

        return ClassifierRun

    def trial(self, folder: Path) -> dict[str, Any]:
        table = folder / "trial.csv"
        words = ("good", "fine", "bad", "poor")
        rows = [
            f'"{words[k % 4]} film number {k * k % 97}",{"negative" if k % 4 > 1 else "positive"}' for k in range(200)
        ]
        table.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8", newline="")
        sizes = dict(model="gru", width=8, dropout=0.2, batch=8, vocab_size=50)
        return sizes | {"data": str(table), "budget": "12steps", "eval_every": 4}
