"""What a person looks at after a run: loss.png, translations.tsv and a self-contained report.html."""

from __future__ import annotations

import csv
import io
from typing import Any

from seqlab.core.files import write_bytes, write_text
from seqlab.core.reporting import Reporter
from seqlab.core.units import human_count, human_seconds, number_of
from seqlab.evaluation.translation import sentence_scores
from seqlab.pages.charts import loss_curve
from seqlab.pages.render import embedded, flat, render, settings_rows
from seqlab.pages.translation_charts import alignment_picture, score_curve
from seqlab.runs.folder import Line
from seqlab.runs.record import learning_curves
from seqlab.workflows.translate.alignment import Alignment, align
from seqlab.workflows.translate.data import Prepared
from seqlab.workflows.translate.measure import TABLE_HEADER, VALIDATION_BLEU, MeasuredTarget, measure_part, table_rows
from seqlab.workflows.translate.run import TranslatorRun

EXAMPLES = 5  # the worst, the best and some in between, of each target
ALIGNED, LONGEST_ALIGNED = 2, 24  # pictures of each target; pieces of the source


def write_report(run: TranslatorRun, data: Prepared) -> None:
    lines = run.metrics
    final = lines[-1]
    measured = run.measured.get("test") or measure_part(run, data, "test", Reporter())
    title = f"{run.settings.model.kind} on {data.parallel.name}"
    unit, counted = run.task.unit, run.task.counted
    training, validation = learning_curves(lines, unit, counted)
    picture = loss_curve(training, validation, counted=counted, unit=unit, title=title) if training else None
    if picture is not None:
        write_bytes(run.folder / "loss.png", picture)
    write_text(run.folder / "translations.tsv", translations_table(data, measured))
    values = {
        "title": title,
        "run": str(run.folder),
        "headline": _headline(run, final),
        "verdict": [(sentence, "BEHIND" in sentence) for sentence in final["verdict"]],
        "header": TABLE_HEADER,
        "rows": table_rows(final["targets"]),
        "signatures": sorted(
            {one["signature"] for one in final["targets"]} | {one["chrf_signature"] for one in final["targets"]}
        ),
        "curve": _curve(lines, data),
        "loss_curve": None if picture is None else embedded(picture),
        "smoothing": run.settings.training.smoothing,
        "targets": [_target(run, data, one) for one in measured],
        "notes": data.notes,
        "settings": settings_rows(run.settings),
        "record": flat(run.record),
    }
    write_text(run.files.report_file, render("translate.html.j2", **values))


def translations_table(data: Prepared, measured: list[MeasuredTarget]) -> str:
    """A row for each test sentence and target: where it stands, source, translation, reference."""
    table = io.StringIO()
    write = csv.writer(table, dialect="excel-tab", lineterminator="\n").writerow
    write(["row", "target", "source", "translation", "reference"])
    for one in measured:
        references = data.references(one.rows, data.languages.tag_of(one.name))
        for row, found, wanted in zip(one.rows.tolist(), one.translations, references, strict=True):
            write([data.parallel.rows[row], one.name, data.parallel.sources[row], found, wanted])
    return table.getvalue()


def _headline(run: TranslatorRun, final: Line) -> list[tuple[str, str]]:
    best = max(final["targets"], key=lambda one: one["bleu"])
    low, high = best["interval"]
    return [
        (
            f"{best['bleu']:.1f}",
            f"BLEU into {best['target']} on {best['n']:,} test sentences ({low:.1f} to {high:.1f})",
        ),
        (f"{best['copying']['bleu']:.1f}", "BLEU of copying the source"),
        (human_count(run.record["parameters"]), "parameters"),
        (human_seconds(final["seconds"]), f"training, {number_of(final['step'], 'step')} ({final['outcome']})"),
    ]


def _curve(lines: list[Line], data: Prepared) -> str | None:
    points = [(line["seconds"], line[VALIDATION_BLEU]) for line in lines if VALIDATION_BLEU in line]
    if len(points) < 2:
        return None
    mean = sum(data.copying.values()) / len(data.copying)
    return embedded(score_curve(points, mean))


def _target(run: TranslatorRun, data: Prepared, one: MeasuredTarget) -> dict[str, Any]:
    references = data.references(one.rows, data.languages.tag_of(one.name))
    scores = sentence_scores(one.translations, references)
    ranked = sorted(range(len(scores)), key=lambda k: (scores[k], int(one.rows[k])))
    middle = ranked[len(ranked) // 2 - EXAMPLES // 2 :][:EXAMPLES]
    groups = [("the worst", ranked[:EXAMPLES]), ("in the middle", middle), ("the best", ranked[-EXAMPLES:][::-1])]
    return {
        "name": one.name,
        "examples": [(name, [_example(data, one, references, scores, k) for k in places]) for name, places in groups],
        "pictures": [embedded(_picture(found)) for found in _alignments(run, data, one)],
    }


def _example(data: Prepared, one: MeasuredTarget, references: list[str], scores: list[float], k: int) -> dict[str, str]:
    row = int(one.rows[k])
    return {
        "what": f"row {data.parallel.rows[row]}, chrF {scores[k]:.1f}",
        "source": data.parallel.sources[row],
        "translation": one.translations[k],
        "reference": references[k],
    }


def _alignments(run: TranslatorRun, data: Prepared, one: MeasuredTarget) -> list[Alignment]:
    """Of some short sentences, evenly spaced: what the decoder attended to for each piece that it wrote."""
    sizes = data.pairs.sources.sizes
    short = [k for k, row in enumerate(one.rows.tolist()) if 4 <= sizes[row] <= LONGEST_ALIGNED and one.translations[k]]
    chosen = short[:: max(1, len(short) // ALIGNED)][:ALIGNED]
    return [align(run, data.parallel.sources[int(one.rows[k])], one.translations[k], one.name) for k in chosen]


def _picture(found: Alignment) -> bytes:
    return alignment_picture(found.source, found.target, found.weights, found.words)
