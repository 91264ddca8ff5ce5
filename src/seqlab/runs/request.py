"""What can be refused before torch is loaded and before any data is read, whatever the task."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqlab.core.errors import UsageError
from seqlab.core.settings.fields import check_settings, check_threads, from_table, with_flags
from seqlab.runs.conflicts import longer_budget, refuse_conflicts
from seqlab.runs.folder import RunFolder, check_writable, read_config
from seqlab.runs.metrics_files import check_tensorboard


@dataclass(frozen=True)
class Request:
    """What a `train` command was told."""

    said: dict[str, Any]
    out: str | Path | None
    resume: bool
    from_run: str | Path | None
    config: str | Path | None
    threads: int | None


@dataclass(frozen=True)
class Checks:
    """What a task has to say to it."""

    kind: str
    settings_type: type
    may_move: tuple[str, ...]
    new: Callable[[Any, dict[str, Any]], None]  # settings asked for, what was said: refuses what cannot start
    said: Callable[[Any, Collection[str]], None]  # settings, what was said: refuses what the model does not have


def check_request(request: Request, checks: Checks) -> None:
    """Refuse, in one line, what could never be trained or resumed."""
    said, out, resume, config = request.said, request.out, request.resume, request.config
    check_threads(request.threads)
    asked = with_flags(checks.settings_type(), said)
    check_settings(asked)
    check_tensorboard(wanted=asked.training.tensorboard)
    if resume and out is None:
        raise UsageError("--resume needs the run's folder: --out runs/…")
    if config and request.from_run:
        raise UsageError("--config and --from both say what the model is; give one of them")
    if config is not None and not resume:
        checks.new(
            with_flags(from_table(checks.settings_type, read_config(config, checks.kind), str(config)), said), said
        )
    if out is not None and resume and not (RunFolder(out).is_free() and said):
        return _check_resumed(RunFolder(out), request, checks)
    if config is None and request.from_run is None and (not resume or said):
        checks.new(asked, said)
    if out is not None and not resume:
        if not RunFolder(out).is_free():
            raise UsageError(f"{out} exists already; go on with --resume or choose another --out")
        check_writable(Path(out))


def _check_resumed(folder: RunFolder, request: Request, checks: Checks) -> None:
    stored = folder.read()
    if request.from_run or request.config:
        raise UsageError("--resume reads its settings from the folder; leave out --config and --from")
    if stored.kind != checks.kind:
        raise UsageError(f"{folder.path} holds a run of kind '{stored.kind}', not '{checks.kind}'")
    settings: Any = from_table(checks.settings_type, stored.table, str(folder.settings_file))
    checks.said(settings, request.said)
    refuse_conflicts(folder, settings, stored.record, request.said, request.threads, checks.may_move)
    longer_budget(request.said.get("budget"), settings.training.budget, stored.record)
