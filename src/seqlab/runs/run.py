"""A run as it stands in its folder: settings, record, figures, and the model with its best weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from seqlab.core.errors import UsageError
from seqlab.core.settings.fields import from_table
from seqlab.runs.folder import Line, RunFolder
from seqlab.runs.task import Task, find_task
from seqlab.training.checkpoint import load_tensors, save_tensors


@dataclass(eq=False)
class Run:
    """What a run folder holds. The model is in evaluation mode and has the best weights."""

    task: Task
    files: RunFolder
    settings: Any
    record: dict[str, Any]
    kept: Mapping[str, bytes]  # the task's own files
    model: Any
    step: int  # that the weights are from

    @property
    def folder(self) -> Path:
        return self.files.path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def metrics(self) -> list[Line]:
        return self.files.read_metrics()

    @property
    def final(self) -> Line | None:
        return self.files.final()

    @property
    def interrupted(self) -> bool:
        """Whether the run has not finished: Ctrl-C, SIGTERM or a crash; `resume=True` goes on with it."""
        return self.final is None

    @cached_property
    def measured(self) -> dict[str, Any]:
        """What `measure` found and the folder has no room for, kept for whoever asks right after training."""
        return {}

    def __repr__(self) -> str:
        state = "interrupted" if self.interrupted else "finished"
        name = self.task.name(self.settings)
        return f"{type(self).__name__}({str(self.folder)!r}, {name}, weights of step {self.step:,}, {state})"


def load(folder: str | Path, kind: str | None = None) -> Any:
    """The run in a folder, of whatever kind it is (or of the `kind` wanted); every file that is read is checked."""
    files = RunFolder(folder)
    task, settings, record = open_settings(files, kind)
    if not files.model_file.exists():
        raise UsageError(f"{folder} has no trained weights yet; go on with {task.way_on(files.path)}")
    kept = files.kept(record)
    weights, best = load_own(files, files.model_file)
    model = task.restore(settings, kept, weights, str(files.model_file))
    return task.run_type(task, files, settings, record, kept, model.eval(), best["step"])


def open_settings(files: RunFolder, kind: str | None = None) -> tuple[Task, Any, dict[str, Any]]:
    """The task that a folder's run is of, its settings and the record."""
    stored = files.read()
    if kind is not None and stored.kind != kind:
        raise UsageError(f"{files.path} holds a run of kind '{stored.kind}', not '{kind}'")
    task = find_task(stored.kind)
    return task, from_table(task.settings_type, stored.table, str(files.settings_file)), stored.record


def save_own(files: RunFolder, path: Path, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
    """Tensors that name the run they belong to."""
    save_tensors(path, tensors, record | {"run": files.identity})


def load_own(files: RunFolder, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors of this very run."""
    tensors, record = load_tensors(path)
    files.check_identity(path, record.pop("run", None))
    return tensors, record
