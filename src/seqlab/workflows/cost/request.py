"""What is asked, without torch: of a run in a folder, or of settings alone. Wrong use is answered at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqlab.core.errors import UsageError
from seqlab.core.files import check_targets
from seqlab.core.registry import FITTED_MODELS, MIXTURE
from seqlab.core.settings.cost import (
    AVERAGE_LENGTH,
    COSTED,
    TRAINING,
    Asked,
    Shapes,
    assumed_of_bigram,
    check_bag,
    refuse_epochs_without_a_size,
    refuse_unknown_flags,
    settings_of,
    shapes_of,
    sizes_of,
)
from seqlab.core.settings.fields import check_settings, check_threads, dashed, filled, from_table, with_flags
from seqlab.runs.folder import RunFolder, Stored

PAGE = "cost.html"
OF_A_MODEL = ("vocab_size", "classes", "targets")  # sizes of data that a run's model fixes


@dataclass(frozen=True)
class Request:
    """Settings and shapes whose costs are asked for; of a run, its folder and what it recorded."""

    asked: Asked
    shapes: Shapes
    run: Path | None = None
    steps: int | None = None  # that a run has planned

    @property
    def settings(self) -> Any:
        return self.asked.settings

    @property
    def task(self) -> str:
        return self.asked.task


def check_cost(
    run: str | Path | None = None,
    *,
    task: str | None = None,
    out: str | Path | None = None,
    calibration: str | Path | None = None,
    calibrate: bool = False,
    threads: int | None = None,
    said: Mapping[str, Any],
) -> Request:
    """Refuse, in one line, what has no costs to predict."""
    check_threads(threads)
    if run is not None:
        RunFolder(run).read()
        out = out or Path(run) / PAGE
    check_targets({"--out": None if out is None else str(out)})
    if calibration is not None and not calibrate and not Path(calibration).is_file():
        raise UsageError(f"--calibration {calibration}: there is no such file; make it with --calibrate added")
    if run is not None:
        return _of_run(Path(run), task, said)
    asked = settings_of(task or "lm", said)
    return Request(asked, shapes_of(asked))


# --------------------------------------------------------------------------- a run


def _of_run(folder: Path, task: str | None, said: Mapping[str, Any]) -> Request:
    stored = RunFolder(folder).read()
    if stored.kind not in COSTED:
        raise UsageError(
            f"{folder} holds a run of kind '{stored.kind}', whose batches are not known here; count its model with "
            "seqlab.cost from Python"
        )
    if task is not None and task != stored.kind:
        raise UsageError(f"--task {task} does not fit {folder}, a run of kind '{stored.kind}'; leave it out")
    known = COSTED[stored.kind]
    settings: Any = from_table(known.settings_type, stored.table, str(folder))
    _refuse_fixed(folder, stored.kind, settings, said)
    flags = {name: value for name, value in said.items() if name in TRAINING}
    changed = with_flags(settings, flags)
    check_settings(changed)
    known.check_said(changed, flags)
    sizes = sizes_of(stored.kind, said)
    if getattr(sizes, known.examples) is None:
        sizes = dataclasses.replace(sizes, **{known.examples: _examples(stored)})
    refuse_epochs_without_a_size(stored.kind, changed, sizes, said)
    asked = Asked(stored.kind, changed, sizes, set(said))
    steps = None if "budget" in said else stored.record["steps"]
    return Request(asked, _shapes_of_run(asked, stored), folder, steps)


def _refuse_fixed(folder: Path, task: str, settings: Any, said: Mapping[str, Any]) -> None:
    """What a run's model is can no longer be said."""
    kind = settings.model.kind
    if kind in FITTED_MODELS:
        how = "made of runs" if kind == MIXTURE else "counted"
        raise UsageError(f"{folder} has a model '{kind}', which is {how}, not trained: it has no steps to predict")
    if "model" in said:
        raise UsageError(f"{folder} and --model both say what the model is; give one of them")
    refuse_unknown_flags(task, said)
    for name in said:
        if name in OF_A_MODEL or (name in COSTED[task].flags and name not in TRAINING):
            raise UsageError(f"{folder} has its own {name.replace('_', ' ')}; leave out --{dashed(name)}")
    context = getattr(settings.training, "context", None)
    learned = getattr(settings.model, "positions", None) == "learned"
    if learned and said.get("context") is not None and said["context"] > context:
        raise UsageError(
            f"--context {said['context']:,} is beyond the {context:,} learned positions of {folder}; "
            f"give {context:,} or less"
        )


def _examples(stored: Stored) -> int | None:
    """Texts or pairs that the run learns from; tokens are recorded where a step reads all of them."""
    record = stored.record
    if stored.table["training"].get("full_gradient"):
        return int(record["batch"])
    if stored.kind == "classify":
        return int(record["texts"]["train"])
    return int(record["pairs_learnt_from"]) if stored.kind == "translate" else None


def _shapes_of_run(asked: Asked, stored: Stored) -> Shapes:
    """Sizes that the run recorded, where nothing else is said."""
    record, sizes, training = stored.record, asked.sizes, asked.settings.training
    said = "batch" in asked.said or asked.settings.model.kind == "bigram"  # whose record counts tokens
    rows = filled(training.batch) if said else record.get("batch", training.batch)
    if stored.kind == "lm":
        known, length = record["vocab_size"], filled(training.context)
        return Shapes(known, rows, length, examples=sizes.tokens, assumed=assumed_of_bigram(asked, known))
    if stored.kind == "translate":
        return _shapes_of_translator(asked, stored)
    model, known = asked.settings.model, record["features"]
    assumed: tuple[str, ...] = ()
    bags = model.kind == "average"
    length = sizes.length or (min(AVERAGE_LENGTH, known) if bags else filled(model.length))
    if bags:
        check_bag(length, known)
    if sizes.length is None:
        words = "words and n-grams" if bags else "words, the most that is read"
        assumed = (f"texts of {length:,} {words} (--length)",)
    return Shapes(known, rows, length, classes=record["classes"], examples=sizes.texts, assumed=assumed)


def _shapes_of_translator(asked: Asked, stored: Stored) -> Shapes:
    """Pairs as long as the run's were on average: tokens of a batch / pairs of a batch."""
    sizes, record = asked.sizes, stored.record
    assumed: tuple[str, ...] = ()
    length = sizes.length
    if length is None:
        length = max(2, round(stored.table["training"]["batch"] / max(1, record["pairs_per_step"])))
        assumed = (f"pairs of {length:,} pieces, as its batches hold on average (--length)",)
    rows = max(1, filled(asked.settings.training.batch) // max(length, sizes.source_length or length))
    targets = len(str(record["targets"]).split(","))
    return Shapes(record["pieces"], rows, length, sizes.source_length, 2, targets, sizes.pairs, assumed)
