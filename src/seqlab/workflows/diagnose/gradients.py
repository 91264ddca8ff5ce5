"""The gradient doctor: a run, or untrained models, examined; a verdict, a remedy, a page."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqlab.core.errors import UsageError, nearest
from seqlab.core.files import write_text
from seqlab.core.reporting import Reporter
from seqlab.core.seeding import torch_generator
from seqlab.core.settings.diagnose import KINDS, GradientSettings
from seqlab.core.settings.fields import check_group, filled
from seqlab.runs.run import Run, load
from seqlab.training.determinism import using_threads
from seqlab.training.optim import build_optimiser, optimiser_for
from seqlab.workflows.diagnose.asked import check_page, heads_for
from seqlab.workflows.diagnose.cures import Cure, Tried, build_untrained, suggested, try_cures
from seqlab.workflows.diagnose.examine import Examined, examine
from seqlab.workflows.diagnose.gradients_page import gradients_page
from seqlab.workflows.diagnose.readings import reading_of, token_reading
from seqlab.workflows.lm.run import LMRun

VOCABULARY = 256  # of random sequences, for untrained models
UNTRAINED_RATE = 1e-3  # at which the update of an untrained model is shown
PAGE = "gradients.html"


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What was examined, on what, and what came of it."""

    models: list[Examined]
    basis: str  # what was measured, on what, with what seed
    cures: dict[str, list[Cure]]  # by model
    tried: dict[str, list[Tried]]  # by model; empty unless asked for
    page: Path | None = None

    def as_json(self) -> dict[str, Any]:
        """The verdict is that on the first model, or on the only one."""
        return {
            "basis": self.basis,
            **self.models[0].summary(),
            "models": [model.as_json() for model in self.models],
            "cures": {name: [dataclasses.asdict(cure) for cure in cures] for name, cures in self.cures.items()},
            "tried": {name: [_tried_json(row) for row in rows] for name, rows in self.tried.items()},
            "page": None if self.page is None else str(self.page),
        }


def _tried_json(row: Tried) -> dict[str, Any]:
    verdict = dataclasses.asdict(row.verdict)
    return {"cure": row.name, "note": row.note, "verdict": verdict.pop("word"), **verdict}


def diagnose_gradients(
    run: str | Path | None = None,
    *,
    text: str | Path | None = None,
    try_each: bool = False,
    out: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    **asked: Any,
) -> Diagnosis:
    """Examine the run in a folder, or untrained models (`model="rnn,gru"`), and write the page `out`.

    `asked` are the fields of GradientSettings. A run is examined on `text`, or on its own validation text.
    """
    settings = GradientSettings(**asked)
    check_group(settings)
    reporter = reporter or Reporter()
    page = Path(out) if out is not None else (Path() if run is None else Path(run)) / PAGE
    check_page(page, asked=out is not None)
    with using_threads(threads):
        if run is None:
            found = _untrained(settings, text, try_each, reporter)
        else:
            found = _of_run(Path(run), settings, asked, text, try_each, reporter)
    write_text(page, gradients_page(found.models, found.basis, found.cures, found.tried))
    return dataclasses.replace(found, page=page)


# --------------------------------------------------------------------------- untrained models


def _untrained(settings: GradientSettings, text: Any, try_each: bool, reporter: Reporter) -> Diagnosis:
    kinds = [kind.strip() for kind in settings.model.split(",") if kind.strip()]
    if not kinds:
        raise UsageError("name a run folder, or an untrained model: --model rnn")
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"--model '{kind}' has no gradient over time, or is not known{nearest(kind, KINDS)}")
        if kinds.count(kind) > 1:
            raise UsageError(f"--model names '{kind}' twice; name each once")
    if text is not None:
        raise UsageError("--text is for a run, which has a tokenizer; an untrained model reads random tokens")
    draw = torch_generator(settings.seed, "sequences")
    ids = torch.randint(0, VOCABULARY, (settings.sequences, settings.length + 1), generator=draw)
    models, tried = [], {}
    for kind in kinds:
        sizes = _sizes_of(kind, settings)
        model = build_untrained(kind, VOCABULARY, sizes, settings.init, settings.seed)
        with reporter.task(f"examining {kind}", 1.0):
            models.append(examine(kind, kind, model, token_reading(ids, "random tokens"), _untrained_optimiser))
        if try_each:
            with reporter.task(f"trying remedies for {kind}", 1.0):
                tried[kind] = try_cures(kind, VOCABULARY, sizes, ids, settings.init, settings.seed)
    basis = (
        f"untrained models of width {settings.width}, depth {settings.depth}, initialisation {settings.init}; "
        f"{settings.sequences} sequences of {settings.length} random tokens; seed {settings.seed}; float64"
    )
    return Diagnosis(models, basis, {found.name: suggested(found, settings.init) for found in models}, tried)


def _untrained_optimiser(model: Any) -> torch.optim.Optimizer:
    return build_optimiser(model, UNTRAINED_RATE, 0.0)


def _sizes_of(kind: str, settings: GradientSettings) -> dict[str, Any]:
    sizes: dict[str, Any] = {"width": settings.width, "depth": settings.depth, "dropout": 0.0}
    if kind == "transformer":
        sizes["heads"] = heads_for(settings.width)
    return sizes | ({"context": settings.length} if kind in ("attentive-rnn", "transformer") else {})


# --------------------------------------------------------------------------- runs


def _of_run(
    folder: Path, settings: GradientSettings, asked: dict[str, Any], text: Any, try_each: bool, reporter: Reporter
) -> Diagnosis:
    for name in ("model", "width", "depth", "init"):
        if name in asked:
            raise UsageError(f"--{name} is for an untrained model; the run {folder} has its own")
    run: Run = load(folder)
    kind = run.settings.model.kind
    if isinstance(run, LMRun) and kind not in KINDS:
        raise UsageError(f"the run {folder} is a {kind}: it carries nothing over time, so that no gradient flows there")
    reading = reading_of(run, settings.length, settings.sequences, text, reporter)
    training = run.settings.training
    with reporter.task(f"examining {run.name}", 1.0):
        found = examine(run.name, kind, run.model, reading, lambda trial: optimiser_for(trial, training))
    tried = {}
    if try_each:
        if not isinstance(run, LMRun) or reading.ids is None:
            raise UsageError("--try is for language models and for untrained ones; leave it out")
        with reporter.task("trying remedies", 1.0):
            sizes = _sizes_of_run(run, reading.ids.shape[1] - 1)
            vocab_size = run.tokenizer.vocab_size
            tried[found.name] = try_cures(kind, vocab_size, sizes, reading.ids, "default", settings.seed)
    basis = (
        f"the run {run.name} (step {run.step:,}) on {reading.what}; float64; updates: a first step of "
        f"{training.optimiser} at learning rate {filled(training.learning_rate):g}"
    )
    if found.left_out:
        basis += f"; without {', '.join(found.left_out)}, which is called position by position"
    return Diagnosis([found], basis, {found.name: suggested(found)}, tried)


def _sizes_of_run(run: LMRun, length: int) -> dict[str, Any]:
    model = run.settings.model
    sizes = {name: getattr(model, name) for name in ("width", "depth", "heads", "score")} | {"dropout": 0.0}
    sizes |= {"context": length} if model.kind in ("attentive-rnn", "transformer") else {}
    return {name: value for name, value in sizes.items() if value is not None}
