"""Figures of a classifier: its own, calibrated, and those of the baselines on the same texts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.reporting import Reporter
from seqlab.core.units import number_of
from seqlab.data.word_ids import IdRows
from seqlab.evaluation.calibration import Calibration, calibration, fit_temperature, softmax
from seqlab.evaluation.classification import Classification, accuracy_of, figures_of
from seqlab.evaluation.decisions import logits_of
from seqlab.evaluation.paired import Paired, against_baselines, luck_sentence
from seqlab.evaluation.text_baselines import Baseline
from seqlab.runs.run import Run
from seqlab.training.objectives import Score
from seqlab.workflows.classify.data import Prepared, Texts

VALIDATION_ERRORS = "validation_error_rate"  # logged beside each validation
QUICK_WORDS = 100_000  # read on the way; all validation texts are read at the end
LIKELY = 0.5  # ln T: temperatures between a third and three, unless many texts say otherwise
HELD_OUT = ("validation", "test")
FEW_STEPS, MANY_TIMES = 100, 10  # so few may be too few; as many times of them are worth a try


def quick_validation(model: Any, data: Prepared) -> Score:
    """Nats per validation text, and the share of them that is decided wrongly.

    Models that read word by word are slow: of them only so many texts, evenly spaced, are asked for on the way.
    """
    rows = data.split.validation
    if isinstance(data.inputs, IdRows):
        words = int(data.inputs.sizes[rows].sum())
        count = max(1, min(len(rows), len(rows) * QUICK_WORDS // max(words, 1)))
        rows = rows[np.linspace(0, len(rows) - 1, count).astype(np.int64)]
    z = logits_of(model, data.inputs, rows)
    truth = data.truth[rows]
    nats = -np.log(softmax(z)[np.arange(len(rows)), truth].clip(min=np.finfo(float).tiny))
    return Score(float(nats.mean()), {VALIDATION_ERRORS: float(np.mean(z.argmax(1) != truth))})


@dataclass(frozen=True)
class Measured:
    """Everything known of a model on one part."""

    part: str
    logits: NDArray[np.float64]
    truth: NDArray[np.int64]
    temperature: float
    figures: Classification
    before: Calibration
    after: Calibration

    @property
    def probabilities(self) -> NDArray[np.float64]:
        return softmax(self.logits, self.temperature)

    @property
    def right(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.logits.argmax(1) == self.truth
        return found


def measure_part(model: Any, data: Prepared, part: str, temperature: float, reporter: Reporter) -> Measured:
    rows = data.rows(part)
    with reporter.task(f"deciding the {part} texts", len(rows)):
        z = logits_of(model, data.inputs, rows, progress=reporter.advance)
    truth = data.truth[rows]
    probabilities = softmax(z, temperature)
    clusters = data.split.clusters[rows]
    figures = figures_of(truth, probabilities, data.labels, clusters=clusters)
    before, after = (calibration(truth, p, clusters=clusters) for p in (softmax(z), probabilities))
    return Measured(part, z, truth, temperature, figures, before, after)


def deciding_part(data: Texts) -> str:
    """The test texts, or the validation texts if there are no others."""
    return "test" if len(data.split.test) else "validation"


def measure_run(run: Run, data: Prepared, reporter: Reporter) -> dict[str, Any]:
    """The last line of a run: its figures on both held-out parts, and the baselines'."""
    rows = data.split.validation
    temperature = fit_temperature(logits_of(run.model, data.inputs, rows), data.truth[rows], spread=LIKELY)
    parts = [part for part in HELD_OUT if len(data.rows(part))]
    measured = {part: measure_part(run.model, data, part, temperature, reporter) for part in parts}
    run.measured.update(measured)
    best = measured[deciding_part(data)]
    compared = compare_with_baselines(run, data, best, reporter)
    accuracy = best.figures.accuracy
    return {
        "temperature": temperature,
        **{part: part_json(measured[part]) if part in measured else None for part in HELD_OUT},
        "baselines": [row.as_json() for row in compared],
        "verdict": [row.sentence for row in compared if row.sentence],
        "headline": {"label": f"accuracy ({best.part})", "value": accuracy.value},
    }


def what_to_try(final: dict[str, Any], train_texts: int) -> str | None:
    """A longer budget, where a baseline is ahead of a model whose few steps ended while it was still getting better."""
    accuracy = final["test" if final["test"] else "validation"]["accuracy"]
    behind = any(row["accuracy"] is not None and row["accuracy"] > accuracy for row in final["baselines"])
    steps, still_learning = final["step"], final["best_step"] == final["step"]
    if not behind or not still_learning or not 0 < steps < FEW_STEPS:
        return None
    epochs = math.ceil(MANY_TIMES * final["texts"] / train_texts)
    return f"after {number_of(steps, 'step')} the model was still getting better: try --budget {epochs}epochs"


def part_json(measured: Measured) -> dict[str, Any]:
    found = measured.figures.as_json()
    errors = 1 - measured.figures.accuracy.value
    return found | {"error_rate": errors, "ece": measured.after.ece, "ece_before_temperature": measured.before.ece}


@dataclass(frozen=True)
class Compared:
    """A baseline on the deciding texts, beside the model."""

    baseline: Baseline
    figures: dict[str, Any] | None
    paired: Paired | None
    sentence: str

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.baseline.name, "accuracy": None, "interval": None, "mcnemar_p": None}
        if self.figures is None or self.paired is None:
            return found | {"reason": self.baseline.reason}
        return found | self.figures | {"mcnemar_p": self.paired.adjusted_p, "difference": self.paired.as_json()}


def compare_with_baselines(run: Run, data: Prepared, best: Measured, reporter: Reporter) -> list[Compared]:
    rows, name = data.rows(best.part), run.settings.model.kind
    with reporter.task("fitting the baselines", 2):
        baselines = data.baselines(best.part, run.settings.training.balance, reporter.advance)
    fitted = {b.name: b.decided == best.truth for b in baselines if b.decided is not None}
    tests = against_baselines(best.right, fitted, data.split.clusters[rows])
    compared = []
    for baseline in baselines:
        if baseline.decided is None:
            compared.append(Compared(baseline, None, None, ""))
            continue
        paired = tests[baseline.name]
        accuracy = accuracy_of(fitted[baseline.name], data.split.clusters[rows])
        figures = {"accuracy": accuracy.value, "interval": [accuracy.low, accuracy.high]}
        compared.append(Compared(baseline, figures, paired, luck_sentence(name, baseline.name, paired)))
    return compared
