"""What a person looks at after a run: loss.png, predictions.csv and a self-contained report.html."""

from __future__ import annotations

import csv
import io
from typing import Any

from seqlab.core.files import write_bytes, write_text
from seqlab.core.reporting import Reporter
from seqlab.core.units import human_count, human_seconds, number_of
from seqlab.evaluation.calibration import Calibration
from seqlab.pages.charts import loss_curve
from seqlab.pages.class_charts import accuracy_picture, confusion_picture, reliability_picture
from seqlab.pages.render import embedded, flat, render, settings_rows
from seqlab.runs.folder import Line
from seqlab.runs.record import learning_curves
from seqlab.runs.run import Run
from seqlab.workflows.classify.data import Prepared
from seqlab.workflows.classify.errors import ErrorAnalysis
from seqlab.workflows.classify.errors_page import error_values
from seqlab.workflows.classify.errors_words import calibration_sentence
from seqlab.workflows.classify.measure import Measured, deciding_part, measure_part

SHOWN_CLASSES = 50
DIAGONAL = "On the diagonal, of the texts decided with 80 % confidence 80 % are right."
FEW_CLASSES = 5  # whose confusions need no wide picture


def write_report(run: Run, data: Prepared, errors: ErrorAnalysis | None = None) -> None:
    """Write all three; with an error analysis the page has that too."""
    lines = run.files.read_metrics()
    final, measured = lines[-1], measured_again(run, data)
    title = f"{run.settings.model.kind} on {data.source.name}"
    unit, counted = run.task.unit, run.task.counted
    training, validation = learning_curves(lines, unit, counted)
    picture = loss_curve(training, validation, counted=counted, unit=unit, title=title) if training else None
    if picture is not None:
        write_bytes(run.folder / "loss.png", picture)
    write_text(run.folder / "predictions.csv", predictions_table(data, measured))
    values = _values(run, data, final, measured) | error_values(run, data, errors)
    values |= {"title": title, "loss_curve": None if picture is None else embedded(picture)}
    write_text(run.files.report_file, render("classify.html.j2", **values))


def measured_again(run: Run, data: Prepared, reporter: Reporter | None = None) -> Measured:
    """What `measure` found, or, in another process than that, what it finds again."""
    part = deciding_part(data)
    if part not in run.measured:
        final = run.final
        temperature = 1.0 if final is None else final["temperature"]
        run.measured[part] = measure_part(run.model, data, part, temperature, reporter or Reporter())
    found: Measured = run.measured[part]
    return found


def predictions_table(data: Prepared, measured: Measured) -> str:
    """A row for each held-out text: where it stands, its label, what was predicted, how surely, and the text."""
    table = io.StringIO()
    write = csv.writer(table, lineterminator="\n").writerow
    write(["row", "label", "predicted", "probability", "text"])
    probabilities = measured.probabilities
    for place, row in enumerate(data.rows(measured.part)):
        best = int(probabilities[place].argmax())
        names = (data.labels[int(measured.truth[place])], data.labels[best])
        write([data.source.rows[row], *names, f"{probabilities[place, best]:.6f}", data.source.texts[row]])
    return table.getvalue()


def _values(run: Run, data: Prepared, final: Line, measured: Measured) -> dict[str, Any]:
    figures = measured.figures
    name = run.settings.model.kind
    fitted = [row for row in final["baselines"] if row["accuracy"] is not None]
    accuracies = [(name, figures.accuracy.value, figures.accuracy.low, figures.accuracy.high)]
    accuracies += [(row["name"], row["accuracy"], *row["interval"]) for row in fitted]
    shown = sorted(figures.classes, key=lambda one: -one.support)[:SHOWN_CLASSES]
    confusion = None
    if figures.confusion is not None:
        title = f"{measured.part} texts of {data.source.name}"
        confusion = embedded(confusion_picture(figures.confusion, data.labels, title))
    return {
        "headline": _headline(run, final, measured),
        "accuracy_picture": embedded(accuracy_picture(accuracies)),
        "verdict": [(sentence, "BEHIND" in sentence) for sentence in final["verdict"]],
        "not_fitted": [(row["name"], row["reason"]) for row in final["baselines"] if row["accuracy"] is None],
        "train_texts": f"{len(data.split.train):,}",
        "n": f"{figures.n:,}",
        "part": measured.part,
        "clustered": figures.accuracy.limits is not None,
        "classes": [_class_row(one) for one in shown],
        "more_classes": f"{len(figures.classes) - len(shown):,}" if len(figures.classes) > len(shown) else "",
        "macro_f1": _with_interval(figures.macro_f1, *figures.macro_f1_interval),
        "confusion_picture": confusion,
        "few_classes": len(data.labels) <= FEW_CLASSES,
        "reliability_picture": _reliability(measured),
        "calibration": f"{calibration_sentence(measured)} {DIAGONAL}",
        "leaks": data.leaks,
        "notes": data.notes,
        "settings": settings_rows(run.settings),
        "record": flat(run.record),
        "run": str(run.folder),
    }


def _headline(run: Run, final: Line, measured: Measured) -> list[tuple[str, str]]:
    accuracy = measured.figures.accuracy
    linear = [row for row in final["baselines"] if row["accuracy"] is not None]
    best = max(linear, key=lambda row: row["accuracy"])
    return [
        (
            f"{100 * accuracy.value:.1f} %",
            f"of {accuracy.n:,} {measured.part} texts right ({100 * accuracy.low:.1f} to {100 * accuracy.high:.1f} %)",
        ),
        (f"{100 * best['accuracy']:.1f} %", f"the best baseline: {best['name']}"),
        (human_count(run.record["parameters"]), "parameters"),
        (human_seconds(final["seconds"]), f"training, {number_of(final['step'], 'step')} ({final['outcome']})"),
    ]


def _class_row(one: Any) -> list[str]:
    shares = [_with_interval(rate.value, rate.low, rate.high) for rate in (one.precision, one.recall)]
    return [one.label, f"{one.support:,}", f"{one.predicted:,}", *shares, _with_interval(one.f1, *one.f1_interval)]


def _with_interval(value: float, low: float, high: float) -> str:
    return "–" if value != value else f"{value:.3f} ({low:.3f} to {high:.3f})"


def _bins(found: Calibration) -> list[tuple[float, float, float, float, int]]:
    return [(one.confidence, one.accuracy.value, one.accuracy.low, one.accuracy.high, one.n) for one in found.bins]


def _reliability(measured: Measured) -> str:
    before, after = measured.before, measured.after
    title = f"Confidence and accuracy on the {measured.part} texts"
    return embedded(reliability_picture(_bins(before), _bins(after), before.ece, after.ece, title))
