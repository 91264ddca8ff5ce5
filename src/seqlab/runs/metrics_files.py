"""The metrics for the tools that people have: a table beside metrics.jsonl, and events for TensorBoard.

Both are made from the lines of metrics.jsonl and never read again: what counts is there.
"""

from __future__ import annotations

import csv
import importlib.util
import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from seqlab.core.errors import UsageError
from seqlab.core.files import write_failures, write_text

Line = dict[str, Any]
Row = dict[str, int | float]
EVENTS = "tensorboard"  # their folder, inside the run folder


def numbers_of(line: Line, above: str = "") -> Row:
    """The numbers of a line by name; those inside others are called outer.inner, those of a list outer.0, outer.1 …"""
    found: Row = {}
    for name, value in line.items():
        if isinstance(value, list):
            value = {str(k): inside for k, inside in enumerate(value)}
        if isinstance(value, dict):
            found |= numbers_of(value, f"{above}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[above + name] = value
    return found


class MetricsTable:
    """metrics.csv: one row for each line on the way, one column for each number that any of them has."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._columns: list[str] = []

    def add(self, line: Line, every_line: Callable[[], list[Line]]) -> None:
        """Append a row; a number that no line had before makes the table anew, from all lines."""
        if line.get("final"):
            return
        row = numbers_of(line)
        if not row.keys() <= set(self._columns) or not self.file.exists():
            self.write(every_line())
            return
        with write_failures(self.file), self.file.open("a", encoding="utf-8", newline="") as file:
            file.write(self._written([row]))

    def write(self, lines: Iterable[Line]) -> None:
        rows = [numbers_of(line) for line in lines if not line.get("final")]
        self._columns = list(dict.fromkeys(name for row in rows for name in row))
        write_text(self.file, self._written([dict(zip(self._columns, self._columns, strict=True)), *rows]))

    def _written(self, rows: Iterable[dict[str, Any]]) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerows([row.get(name, "") for name in self._columns] for row in rows)
        return out.getvalue()


class Events:
    """Events for TensorBoard in the run folder: every number of every line, by its name, at its step."""

    def __init__(self, run: Path, step: int) -> None:
        """What an earlier process wrote of steps after `step` counts no more."""
        check_tensorboard(wanted=True)
        from torch.utils.tensorboard import SummaryWriter

        folder = run / EVENTS
        with write_failures(folder):
            self._writer: Any = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def add(self, line: Line) -> None:
        row = numbers_of(line)
        step = row.pop("step")
        for name, value in row.items():
            self._writer.add_scalar(f"final/{name}" if line.get("final") else name, value, step)

    def close(self) -> None:
        self._writer.close()


def check_tensorboard(*, wanted: bool) -> None:
    """Refuse what needs a package that is not there, before anything is trained."""
    if wanted and importlib.util.find_spec("tensorboard") is None:
        raise UsageError("--tensorboard needs the package tensorboard: pip install 'seqlab[tensorboard]'")
