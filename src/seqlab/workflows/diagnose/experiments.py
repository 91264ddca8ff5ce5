"""Experiments, run and written down: on the terminal, as JSON, as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqlab.core.files import write_text
from seqlab.diagnostics.experiments import Experiment, Finding
from seqlab.diagnostics.optimiser_experiments import optimiser_experiments
from seqlab.pages.experiment_charts import experiment_picture
from seqlab.pages.render import embedded, render
from seqlab.training.determinism import using_threads
from seqlab.workflows.diagnose.asked import check_page

HEADER = ["figure", "predicted", "measured", "95 % interval", "agrees"]


@dataclass(frozen=True)
class Experiments:
    experiments: list[Experiment]
    page: Path

    def as_json(self) -> dict[str, Any]:
        return {"experiments": [one.as_json() for one in self.experiments], "page": str(self.page)}


def diagnose_optimisers(
    *, seed: int = 0, out: str | Path = "optimisers.html", threads: int | None = None
) -> Experiments:
    """What L2 in Adam, decoupled decay, momentum and bias correction do, with figures, and the page `out`."""
    check_page(Path(out))
    with using_threads(threads):
        found = optimiser_experiments(seed=seed)
    write_text(Path(out), experiments_page(found, "What optimisers do"))
    return Experiments(found, Path(out))


def experiments_page(found: Sequence[Experiment], title: str) -> str:
    shown = [
        {
            "name": one.name,
            "question": one.question,
            "answer": one.answer,
            "formula": one.formula,
            "rows": finding_rows(one.findings),
            "pictures": [{"title": p.title, "image": embedded(experiment_picture(p))} for p in one.pictures],
            "settings": ", ".join(f"{name} {value}" for name, value in one.settings.items()),
        }
        for one in found
    ]
    return render("experiments.html.j2", title=title, experiments=shown)


def finding_rows(findings: Sequence[Finding]) -> list[list[str]]:
    return [
        [f.what, f"{f.predicted:.4g}", f"{f.measured:.4g}", _interval(f), "yes" if f.agrees else "NO"] for f in findings
    ]


def _interval(finding: Finding) -> str:
    return "–" if finding.low == finding.high else f"{finding.low:.4g} to {finding.high:.4g}"
