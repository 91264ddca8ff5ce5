"""Experiments, run and written down: on the terminal, as JSON, as a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqlab.core.errors import UsageError, nearest
from seqlab.core.files import write_text
from seqlab.core.reporting import Reporter
from seqlab.core.settings.experiments import EXPERIMENTS
from seqlab.core.settings.fields import check_group
from seqlab.diagnostics import (
    attention_experiments,
    extraction_experiment,
    optimiser_experiments,
    score_experiments,
    structure_experiments,
)
from seqlab.diagnostics.experiments import AGREES, Experiment, Finding
from seqlab.pages.experiment_charts import experiment_picture
from seqlab.pages.render import embedded, render
from seqlab.training.determinism import using_threads
from seqlab.workflows.diagnose.asked import check_page

NOTE = AGREES
HEADER = ["figure", "predicted", "measured", "95 % interval", "agrees"]
OPTIMISERS = ("decay", "momentum", "bias-correction")
FUNCTIONS: dict[str, Callable[[Any], Experiment]] = {
    "score-variance": score_experiments.score_variance,
    "saturation": score_experiments.saturation,
    "copying": attention_experiments.copying,
    "averaging": attention_experiments.averaging,
    "noisy-length": attention_experiments.noisy_length,
    "extraction": extraction_experiment.extraction,
    "receptive-field": structure_experiments.receptive_field,
    "normalisation": structure_experiments.normalisation,
    "permutation": structure_experiments.permutation,
    "decay": optimiser_experiments.weight_decay,
    "momentum": optimiser_experiments.momentum_forms,
    "bias-correction": optimiser_experiments.bias_correction,
}


@dataclass(frozen=True)
class Experiments:
    experiments: list[Experiment]
    page: Path

    def as_json(self) -> dict[str, Any]:
        return {"experiments": [one.as_json() for one in self.experiments], "page": str(self.page)}


def run_experiment(name: str, *, threads: int | None = None, **settings: Any) -> Experiment:
    """One experiment; `settings` are the fields of its class in `core.settings.experiments`."""
    if name not in EXPERIMENTS:
        raise UsageError(f"the experiment '{name}' is not known{nearest(name, EXPERIMENTS)}")
    fields = EXPERIMENTS[name].__dataclass_fields__
    for field in settings:
        if field not in fields:
            raise UsageError(f"the experiment {name} has no setting '{field}'{nearest(field, fields)}")
    asked = EXPERIMENTS[name](**settings)
    check_group(asked)
    with using_threads(threads):
        return FUNCTIONS[name](asked)


def diagnose_experiments(
    names: Sequence[str] = tuple(EXPERIMENTS),
    *,
    out: str | Path = "experiments.html",
    title: str = "Experiments",
    threads: int | None = None,
    reporter: Reporter | None = None,
    **settings: Any,
) -> Experiments:
    """Some experiments, or all of them, and the page `out`; `settings` go to each."""
    page = Path(out)
    check_page(page)
    reporter = reporter or Reporter()
    found = []
    for name in names:
        with reporter.task(f"experiment {name}", 1.0):
            found.append(run_experiment(name, threads=threads, **settings))
    write_text(page, experiments_page(found, title))
    return Experiments(found, page)


def diagnose_optimisers(
    *, seed: int = 0, out: str | Path = "optimisers.html", threads: int | None = None
) -> Experiments:
    """What L2 in Adam, decoupled decay, momentum and bias correction do, with figures, and the page `out`."""
    return diagnose_experiments(OPTIMISERS, out=out, title="What optimisers do", threads=threads, seed=seed)


def experiments_page(found: Sequence[Experiment], title: str) -> str:
    shown = [
        {
            "name": one.name,
            "question": one.question,
            "answer": one.answer,
            "formula": one.formula,
            "agrees": one.agrees,
            "rows": finding_rows(one.findings),
            "pictures": [{"title": p.title, "image": embedded(experiment_picture(p))} for p in one.pictures],
            "settings": ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in one.settings.items()),
        }
        for one in found
    ]
    return render("experiments.html.j2", title=title, experiments=shown, note=AGREES)


def finding_rows(findings: Sequence[Finding]) -> list[list[str]]:
    return [
        [f.what, f"{f.predicted:.4g}", f"{f.measured:.4g}", _interval(f), "yes" if f.agrees else "NO"] for f in findings
    ]


def _interval(finding: Finding) -> str:
    return "–" if finding.low == finding.high else f"{finding.low:.4g} to {finding.high:.4g}"
