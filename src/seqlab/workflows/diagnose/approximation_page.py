"""The page of `diagnose approximation`."""

from __future__ import annotations

from typing import Any

from seqlab.diagnostics.approximation import DIRECTIONS
from seqlab.pages.approximation_charts import Panel, approximation_picture
from seqlab.pages.render import embedded, render
from seqlab.workflows.diagnose import approximation_words as words

OTHERS = ["case", "directions", "m", "total variation", "Frobenius", "output", "unresolved pairs"]


def approximation_page(found: Any) -> str:
    groups = dict.fromkeys(case.group for case in found.cases)
    return render(
        "approximation.html.j2",
        basis=found.basis,
        answer=found.answer,
        sentences=[(words.sentence(case), case.found.beating is not None) for case in found.cases],
        pictures=[{"name": name, "image": _picture(found, name)} for name in groups],
        header=words.header(found),
        rows=words.rows(found),
        notes=words.NOTES,
        others_header=OTHERS,
        others=[row for case in found.cases for row in _others(case)],
        variance=words.variance_sentence(found),
        variance_header=words.VARIANCE_HEADER,
        variances=words.variance_rows(found),
        variance_notes=words.VARIANCE_NOTES,
    )


def _picture(found: Any, group: str) -> str:
    return embedded(approximation_picture([_panel(case) for case in found.cases if case.group == group]))


def _panel(case: Any) -> Panel:
    one, curves = case.found, {}
    for orthogonal, name in DIRECTIONS.items():
        points = [(e.method.features, e.variation.mean, e.variation.low, e.variation.high) for e in one.of(orthogonal)]
        if points:
            curves[name] = points
    title = (
        f"head {case.number}, logit scale {one.logit_scale:.2g}"
        if case.scale is None
        else f"logit scale {case.scale:g}"
    )
    return Panel(title, curves, one.uniform.variation.mean, one.separable.variation.mean)


def _others(case: Any) -> list[list[str]]:
    """All three errors of every method, with their intervals."""
    one, found = case.found, []
    for error in (one.uniform, one.separable, *one.random):
        random = error.method.kind == "random"
        named = (
            [DIRECTIONS[error.method.orthogonal], str(error.method.features)] if random else [error.method.kind, "–"]
        )
        shown = [
            "–" if change is None else f"{change.mean:.3f} ({change.low:.3f} to {change.high:.3f})"
            for change in (error.variation, error.frobenius, error.output)
        ]
        share = f"{100 * one.pairs.unresolved(error.method.features):.0f} %" if random else "–"
        found.append([case.number, *named, *shown, share])
    return found
