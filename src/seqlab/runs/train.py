"""Start a run of any task, or go on with one: what every `train` command and function does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from seqlab.core.errors import UsageError
from seqlab.core.files import make_folder
from seqlab.core.machine import usable_cores
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import check_threads, cost_flags, from_table, with_flags
from seqlab.core.units import number_of, parse_budget
from seqlab.runs.conflicts import longer_budget, refuse_conflicts
from seqlab.runs.folder import RunFolder, check_writable, numbered_folder, read_config, record_of
from seqlab.runs.run import Run, load, open_settings
from seqlab.runs.session import begin, go_on, open_folder
from seqlab.runs.task import Kept, Task
from seqlab.training.determinism import deterministic
from seqlab.training.plan import StepCount


def train(
    task: Task,
    said: dict[str, Any],
    *,
    out: str | Path | None = None,
    resume: bool = False,
    from_run: str | Path | None = None,
    config: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    stop: Callable[[], bool] | None = None,
    data: Any = None,
) -> Any:
    """Train, measure, report; returns the run, whose folder holds everything.

    `said` are the flags that a person named. `stop` is asked before every step whether to save and leave. `data` that
    is prepared already is not prepared again.
    """
    reporter = reporter or Reporter()
    check_threads(threads)
    if threads is not None and threads > usable_cores():
        cores = number_of(usable_cores(), "core")
        reporter.warn(f"--threads {threads:,} on {cores}: threads that share a core wait for each other")
    if resume and out is None:
        raise UsageError("--resume needs the run's folder: --out runs/…")
    folder = None if out is None else RunFolder(out)
    if folder is not None and resume and not folder.has_run() and folder.is_free() and said:
        reporter.note(f"{folder.path} holds no run yet: starting it")
        resume = False
    if folder is not None and resume:
        if config or from_run:
            raise UsageError("--resume reads its settings from the folder; leave out --config and --from")
        return _resume(task, folder, said, threads, reporter, stop, data)
    with deterministic(threads):
        return _start(task, folder, said, from_run, config, reporter, stop, data)


# --------------------------------------------------------------------------- a new run


def _start(
    task: Task,
    folder: RunFolder | None,
    said: dict[str, Any],
    from_run: Any,
    config: Any,
    reporter: Reporter,
    stop: Callable[[], bool] | None,
    data: Any,
) -> Run:
    parent = load(from_run, task.kind) if from_run and not config else None
    settings = asked_settings(task, said, parent, config, from_run)
    with contextlib.ExitStack() as held:
        folder = _new_folder(folder, task, settings, held)
        if data is None:
            with reporter.task("reading the data", None):
                data = task.prepare(settings, reporter, None if parent is None else Kept(parent.kept))
        recorded = _recorded_steps(task, settings, said, config, data, reporter)
        with reporter.task("planning the training", None):
            session = begin(task, folder, settings, data, said, parent, reporter, recorded)
        session.stop = stop
        _claim(folder, held)
        open_folder(session)
        return session.run()


def asked_settings(
    task: Task, said: Mapping[str, Any], parent: Run | None = None, config: Any = None, from_run: Any = None
) -> Any:
    """The settings of a new run, checked and filled in as far as that needs no data."""
    if config and from_run:
        raise UsageError("--config and --from both say what the model is; give one of them")
    base = task.settings_type()
    if config:
        base = from_table(task.settings_type, read_config(config, task.kind), str(config))
    if parent is not None:
        base = task.inherit(parent, said)
    settings = task.fill(with_flags(base, said))
    task.check(settings, said)
    return settings


def _recorded_steps(
    task: Task, settings: Any, said: Mapping[str, Any], config: Any, data: Any, reporter: Reporter
) -> StepCount | None:
    """The steps that a time bought in the run that is repeated; none where anything else is asked for than then."""
    if config is None or said.keys() - {*task.may_move, *cost_flags(task.settings_type)}:
        return None
    record, budget = record_of(config), settings.training.budget
    if not record.get("steps") or parse_budget(budget).seconds is None or record["checksums"] != data.checksums:
        return None
    steps = number_of(record["steps"], "step")
    reporter.note(
        f"repeating the {steps} that --budget {budget} bought in {config}; say a --budget to have it timed anew"
    )
    return StepCount(record["steps"], record.get("seconds_per_step"), record.get("seconds_per_validation"))


def _new_folder(folder: RunFolder | None, task: Task, settings: Any, held: contextlib.ExitStack) -> RunFolder:
    if folder is None:
        folder = RunFolder(held.enter_context(numbered_folder(Path("runs"), task.name(settings))))
    if not folder.is_free():
        raise UsageError(f"{folder.path} exists already; go on with --resume or choose another --out")
    check_writable(folder.path)
    return folder


def _claim(folder: RunFolder, held: contextlib.ExitStack) -> None:
    """Take the folder for this process alone."""
    make_folder(folder.path)
    held.enter_context(folder.locked())
    if not folder.is_free():  # another process was faster
        raise UsageError(f"{folder.path} exists already; choose another --out")


# --------------------------------------------------------------------------- an old run


def _resume(
    task: Task,
    folder: RunFolder,
    said: dict[str, Any],
    threads: int | None,
    reporter: Reporter,
    stop: Callable[[], bool] | None,
    data: Any,
) -> Run:
    _, settings, record = open_settings(folder, task.kind)
    refuse_conflicts(folder, settings, record, said, threads, task.may_move)
    task.check(settings, said)
    longer = longer_budget(said.get("budget"), settings.training.budget, record)
    cost = {name: said[name] for name in cost_flags(type(settings)) & said.keys()}
    settings = with_flags(settings, cost)
    with deterministic(record["threads"]), folder.locked():
        kept = folder.kept(record)
        if data is None:
            named = {name: said[name] for name in task.may_move if name in said}
            earlier = Kept(kept, record["checksums"], bool(named))
            with reporter.task("reading the data", None):
                data = task.prepare(with_flags(settings, named), reporter, earlier)
        _refuse_other_data(data, record, folder)
        if folder.final() is not None and folder.model_file.exists() and longer is None:
            return _finished(folder, record, data, reporter)
        with reporter.task("planning the training", None):
            session = go_on(task, folder, settings, record, data, longer, reporter)
        if cost:
            session.write_settings()
        session.stop = stop
        return session.run()


def _finished(folder: RunFolder, record: dict[str, Any], data: Any, reporter: Reporter) -> Run:
    run: Run = load(folder.path)
    if not folder.report_file.exists():  # killed between the last figure and the report
        run.task.report(run, data)
    if record["steps"]:
        reporter.note(f"{folder.path} has finished; a longer --budget would go on")
    else:
        reporter.note(f"{folder.path} was fitted in one go: there is nothing to resume")
    return run


def _refuse_other_data(data: Any, record: dict[str, Any], folder: RunFolder) -> None:
    """Whatever was read now must be what was read then; what need not be read again is not compared."""
    for name, checksum in data.checksums.items():
        if checksum != record["checksums"].get(name, checksum):
            raise UsageError(
                f"the {name} is not what the run in {folder.path} was trained on (its checksum differs); restore it, "
                "or start another run with another --out"
            )
