"""Train a language model: start a run, or go on with one."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from seqlab.core.errors import UsageError
from seqlab.core.files import make_folder
from seqlab.core.registry import FITTED_MODELS, MODELS, look_up
from seqlab.core.reporting import Reporter
from seqlab.core.settings import (
    DataSettings,
    LMSettings,
    TrainingSettings,
    check_threads,
    dashed,
    fit_lm_settings,
    flags_of,
    from_table,
    with_flags,
)
from seqlab.core.units import parse_budget
from seqlab.data.cache import cache_folder
from seqlab.data.sources import Text, open_text
from seqlab.data.tokenizers import load_tokenizer
from seqlab.models.build import MODEL_SIZES, refuse_unknown_sizes
from seqlab.workflows.corpora import downloading
from seqlab.workflows.fit import fit_run, refit_what_is_missing, refuse_training_settings
from seqlab.workflows.job import Job
from seqlab.workflows.prepared import Prepared
from seqlab.workflows.report import write_report
from seqlab.workflows.run import Run, load
from seqlab.workflows.run_folder import RunFolder, check_writable, numbered_folder, read_toml

CHECKED_APART = ("text", "budget")  # what `--resume` may say anew, after a check of its own


def train_lm(
    text: str | Path | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    from_run: str | Path | None = None,
    config: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    **flags: Any,
) -> Run:
    """Train a language model on a text and measure it; returns the run, whose folder holds everything.

    `flags` are the settings of the command line with underscores: model="gru", budget="5m", …
    """
    reporter = reporter or Reporter()
    if text is not None:
        flags["text"] = str(text)
    with deterministic(threads, resume=resume, out=out), contextlib.ExitStack() as held:
        job = (_resumed if resume else _started)(out, flags, from_run, config, reporter, held)
        if isinstance(job, Path):
            return load(job)
        job.run()
        return job.result


@contextlib.contextmanager
def deterministic(threads: int | None, *, resume: bool, out: str | Path | None) -> Iterator[None]:
    """Deterministic kernels on a known number of threads; what was set before is set again afterwards."""
    check_threads(threads)
    former_threads, former_mode = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    recorded = _recorded_threads(out) if resume else None
    if recorded is not None and threads not in (None, recorded):
        raise UsageError(f"--threads {threads} conflicts with the run's {recorded}; leave it out to resume exactly")
    with torch.random.fork_rng(devices=[]):
        torch.set_num_threads(recorded or threads or former_threads)
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.set_num_threads(former_threads)
            torch.use_deterministic_algorithms(former_mode)


def _recorded_threads(out: str | Path | None) -> int | None:
    folder = RunFolder(out or "")
    if out is None or not folder.has_run():
        return None
    threads: int = folder.read_settings()[1]["threads"]
    return threads


# --------------------------------------------------------------------------- a new run


def _started(
    out: str | Path | None,
    flags: dict[str, Any],
    from_run: Any,
    config: Any,
    reporter: Reporter,
    held: contextlib.ExitStack,
) -> Job | Path:
    """The job to run, or the folder of a run that was fitted at once."""
    if config and from_run:
        raise UsageError("--config and --from both say what the model is; give one of them")
    base = from_table(read_toml(Path(config)), str(config)) if config else LMSettings()
    parent = load(from_run) if from_run else None
    if parent is not None:
        if parent.settings.model.kind in FITTED_MODELS:
            raise UsageError(f"--from {parent.folder}: an n-gram is fitted by counting and cannot be trained further")
        _refuse_other_model(flags, parent)
        base = _settings_like(parent)
    settings = fit_lm_settings(with_flags(base, flags))
    _refuse_what_does_not_apply(flags, settings)
    if not settings.data.text:
        raise UsageError("no text is named; for example: seqlab lm train my.txt")
    folder = _new_folder(out, settings, held)
    with downloading(reporter) as progress:
        text = open_text(settings.data.text, settings.data.encoding, progress=progress)
    settings = _with_place(settings)
    prepared = Prepared.of(text, settings, parent.tokenizer if parent else None, reporter)
    if settings.model.kind in FITTED_MODELS:
        _claim(folder, held)
        fit_run(folder, settings, prepared, flags, reporter)
        return folder.path
    job = Job.begin(folder, settings, prepared, parent, flags, reporter)
    _claim(folder, held)
    job.open_folder()
    return job


def _claim(folder: RunFolder, held: contextlib.ExitStack) -> None:
    """Take the folder for this process alone and mark it as begun."""
    make_folder(folder.path)
    held.enter_context(folder.locked())
    if not folder.is_free():  # another process was faster
        raise UsageError(f"{folder.path} exists already; choose another --out")
    folder.begin()


def _settings_like(parent: Run) -> LMSettings:
    """Settings that go on with a parent's model and tokenizer."""
    context = TrainingSettings(context=parent.settings.training.context)
    data = DataSettings(normalise=parent.settings.data.normalise)
    return LMSettings(data, parent.settings.tokenizer, parent.settings.model, context)


def _refuse_what_does_not_apply(flags: dict[str, Any], settings: LMSettings) -> None:
    kind = settings.model.kind
    refuse_unknown_sizes(kind, flags.keys() & set(MODEL_SIZES))
    if kind in FITTED_MODELS:
        refuse_training_settings(flags, settings)
        return
    if flags.get("carry") and not getattr(look_up(MODELS, kind, "model"), "carries_state", False):
        raise UsageError(f"--carry is not a choice for model '{kind}', which carries no state; leave it out")


def _new_folder(out: str | Path | None, settings: LMSettings, held: contextlib.ExitStack) -> RunFolder:
    if out is None:
        out = held.enter_context(numbered_folder(Path("runs"), f"{stem_of(settings.data.text)}-{settings.model.kind}"))
    folder = RunFolder(out)
    if not folder.is_free():
        raise UsageError(f"{folder.path} exists already; go on with --resume or choose another --out")
    check_writable(folder.path)
    return folder


def stem_of(source: str) -> str:
    """What folders that belong to a text are called by."""
    stem = Path(source).name.split(".")[0] or "text"
    return "stdin" if source == "-" else stem[:60]


def _with_place(settings: LMSettings) -> LMSettings:
    """Name files by their full path, so that the run can be resumed from anywhere."""
    named = Path(settings.data.text)
    place = str(named.resolve()) if named.is_file() or named.is_dir() else settings.data.text
    return dataclasses.replace(settings, data=dataclasses.replace(settings.data, text=place))


def _refuse_other_model(flags: dict[str, Any], parent: Run) -> None:
    """`--from` goes on with the parent's model and tokenizer; only what it does not fix may be said."""
    for name, (group, f) in flags_of(LMSettings).items():
        fixed = group in ("model", "tokenizer") and f.name != "dropout"
        fixed = fixed or f.name == "normalise" or (f.name == "context" and hasattr(parent.model, "context"))
        if fixed and name in flags:
            have = getattr(getattr(parent.settings, group), f.name)
            if flags[name] != have:
                raise UsageError(
                    f"--{dashed(name)} {flags[name]} conflicts with --from {parent.folder}, "
                    f"which has {have or 'none'}; leave it out"
                )


# --------------------------------------------------------------------------- an old run


def _resumed(
    out: str | Path | None,
    flags: dict[str, Any],
    from_run: Any,
    config: Any,
    reporter: Reporter,
    held: contextlib.ExitStack,
) -> Job | Path:
    """The job to go on with, or the folder of a run that has finished."""
    if out is None:
        raise UsageError("--resume needs the run's folder: --out runs/…")
    folder = RunFolder(out)
    if not folder.has_run() and folder.is_free() and flags.get("text"):
        reporter.note(f"{folder.path} holds no run yet: starting it")
        return _started(out, flags, from_run, config, reporter, held)
    settings, record = folder.read_settings()
    held.enter_context(folder.locked())
    if config or from_run:
        raise UsageError("--resume reads its settings from the folder; leave out --config and --from")
    _refuse_conflicts(flags, settings, folder)
    text = _same_text(flags.get("text"), settings, record)
    if settings.model.kind in FITTED_MODELS:
        refuse_training_settings(flags, settings)
        prepared = Prepared.of(text, settings, load_tokenizer(folder.tokenizer_file), reporter)
        refit_what_is_missing(folder, settings, prepared, record, reporter)
        return folder.path
    longer = _longer_budget(flags.get("budget"), settings)
    prepared = Prepared.of(text, settings, load_tokenizer(folder.tokenizer_file), reporter)
    if folder.final() is not None and not longer:
        if not folder.report_file.exists():  # killed between the last figure and the report
            write_report(load(folder.path), prepared.overlap, text)
        reporter.note(f"{folder.path} has finished; a longer --budget would go on")
        return folder.path
    return Job.resume(folder, settings, record, prepared, longer, reporter)


def _refuse_conflicts(flags: dict[str, Any], settings: LMSettings, folder: RunFolder) -> None:
    known = flags_of(LMSettings)
    with_flags(settings, flags)  # refuses unknown names
    for name, value in flags.items():
        group, f = known[name]
        have = getattr(getattr(settings, group), f.name)
        if name not in CHECKED_APART and value != have:
            raise UsageError(
                f"--{dashed(name)} {value} conflicts with {have} in {folder.settings_file}; leave it out to resume, "
                "or start another run with another --out"
            )


def _same_text(named: str | None, settings: LMSettings, record: dict[str, Any]) -> Text:
    """The run's text; what came through a pipe is taken from the cache unless it is named, and so read, again."""
    source, encoding = named or settings.data.text, settings.data.encoding
    if named is None and not Path(source).is_file() and not Path(source).is_dir():
        spooled = cache_folder() / "texts" / f"{record['text_sha256']}.txt"
        source, encoding = (str(spooled), "utf-8") if spooled.exists() else (source, encoding)
    text = open_text(source, encoding)
    if text.sha256 != record["text_sha256"]:
        raise UsageError(
            f"{source} is not the text this run was trained on (its checksum differs); restore it, "
            "or go on from the weights with --from"
        )
    return text


def _longer_budget(wanted: str | None, settings: LMSettings) -> str | None:
    """The new budget if it is longer than the run's; a shorter one or another unit is refused."""
    have = settings.training.budget
    if wanted is None or parse_budget(wanted) == parse_budget(have):
        return None
    new, old = parse_budget(wanted), parse_budget(have)
    if new.unit != old.unit or new.amount < old.amount:
        raise UsageError(
            f"--budget {wanted} conflicts with the run's {have}; a resumed run takes a longer one of its unit"
        )
    return wanted
