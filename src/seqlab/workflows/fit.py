"""Models that are fitted in one go: count, measure, report."""

from __future__ import annotations

import time
from typing import Any

from seqlab.core.errors import UsageError
from seqlab.core.registry import FITTED_MODELS, look_up
from seqlab.core.reporting import Reporter
from seqlab.core.settings import LMSettings, dashed, fitted, flags_of
from seqlab.core.units import human_count
from seqlab.evaluation.surprisal import policy_for
from seqlab.training.checkpoint import save_tensors
from seqlab.workflows.measure import score_parts
from seqlab.workflows.prepared import Prepared
from seqlab.workflows.record import facts_of
from seqlab.workflows.report import write_report
from seqlab.workflows.run import load
from seqlab.workflows.run_folder import RunFolder


def refuse_training_settings(flags: dict[str, Any], settings: LMSettings) -> None:
    """What is fitted by counting has no steps, no learning rate and no size."""
    for name, (group, _) in flags_of(LMSettings).items():
        if name in flags and (group == "training" or name == "size"):
            raise UsageError(
                f"--{dashed(name)} does not apply: model '{settings.model.kind}' is fitted by counting; leave it out"
            )


def fit_run(
    folder: RunFolder, settings: LMSettings, prepared: Prepared, flags: dict[str, Any], reporter: Reporter
) -> None:
    """Fit, score the held-out parts, write everything; a folder that was not finished can be begun anew."""
    tokenizer, train = prepared.tokenizer, prepared.parts["train"]
    begun = time.perf_counter()
    with reporter.task("counting", None):
        fit = look_up(FITTED_MODELS, settings.model.kind, "model").fit
        model = fit(train.ids, tokenizer.vocab_size, fitted(settings.model.order))
    seconds = time.perf_counter() - begun
    reporter.note(
        f"{prepared.text.name}: {human_count(train.facts.tokens)} {settings.tokenizer.kind} tokens, "
        f"{human_count(model.learnt)} n-grams up to order {model.order}"
    )
    save_tensors(folder.model_file, model.tensors(), {"step": 0})
    tokenizer.save(folder.tokenizer_file)
    folder.metrics_file.unlink(missing_ok=True)
    line = {"final": True, "step": 0, "best_step": 0, "outcome": "fitted", "seconds": seconds}
    line |= {"tokens": train.facts.tokens, "context": str(policy_for(model))}
    folder.append_metrics(line | score_parts(model, prepared, reporter))
    folder.write_settings(settings, facts_of(prepared, model.learnt, flags))
    write_report(load(folder.path), prepared.overlap, prepared.text)


def refit_what_is_missing(
    folder: RunFolder, settings: LMSettings, prepared: Prepared, record: dict[str, Any], reporter: Reporter
) -> None:
    """A run that is whole stays as it is; a lost table, figure or report is made again."""
    if not folder.model_file.exists() or folder.final() is None:
        fit_run(folder, settings, prepared, record["asked"], reporter)
    elif not folder.report_file.exists():
        write_report(load(folder.path), prepared.overlap, prepared.text)
    else:
        reporter.note(f"{folder.path} was fitted in one go: there is nothing to resume")
