"""Talking to a person: progress, notes and tables on standard error, results on standard output."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from seqlab.core.errors import DataError
from seqlab.core.reporting import Reporter
from seqlab.core.units import human_seconds

BAR_EVERY = 0.25  # seconds between two movements of the bar: drawing it takes time from the training
MOST_PARTS = 4  # tables below each other, of one that is too wide; beyond, each row stands by itself
PLAIN_EVERY = 10.0  # seconds between lines when standard error is not a terminal
SHOW_AFTER = 2.0  # seconds before a task is worth a bar


class TerminalReporter(Reporter):
    """A bar on a terminal, plain lines elsewhere; nothing for tasks under two seconds. All on standard error.

    A task that says nothing of itself for that long is named by a clock of its own.
    """

    listening = True

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False, markup=False)
        self._bar: Any = None
        self._figures: dict[str, str] = {}
        self._clock: threading.Timer | None = None
        self._now: tuple[str, float | None] | None = None
        self._drawing = threading.Lock()

    def note(self, line: str) -> None:
        self._console.print(line, soft_wrap=not self._console.is_terminal)

    def warn(self, line: str) -> None:
        self.note(f"warning: {line}")

    @contextlib.contextmanager
    def task(self, name: str, total: float | None) -> Iterator[None]:
        """A task inside another takes its place; then the outer one is shown again."""
        outer = self._now
        try:
            with super().task(name, total):
                yield
        finally:
            if outer is not None:
                self.start(*outer)

    def start(self, task: str, total: float | None) -> None:
        self.finish()
        self._task, self._total, self._figures = task, total, {}
        self._now = (task, total)
        self._begun = self._shown = time.monotonic()
        self._first: float | None = None
        self._wind_up(SHOW_AFTER)

    def _wind_up(self, seconds: float) -> None:
        self._clock = threading.Timer(seconds, self.still_at_it, [self._begun])
        self._clock.daemon = True
        self._clock.start()

    def still_at_it(self, begun: float) -> None:
        """The task that began then is worth a bar, or now and then a line, if it shows nothing by itself."""
        with self._drawing:
            if self._now is None or begun != self._begun:
                return
            if self._console.is_terminal:
                if self._bar is None:
                    self._move_bar(self._first or 0)
                return
            if self._shown == begun:
                self.note(f"{self._task} … {human_seconds(time.monotonic() - begun)}")
            self._wind_up(PLAIN_EVERY)

    def advance(self, done: float, figures: dict[str, str] | None = None) -> None:
        self._figures |= figures or {}
        if self._first is None:
            self._first = done
        now = time.monotonic()
        if now - self._begun < SHOW_AFTER:
            return
        live = self._console.is_terminal
        if now - self._shown < (BAR_EVERY if live else PLAIN_EVERY):
            return
        with self._drawing:
            if self._now is None:
                return
            self._shown = now
            if live:
                self._move_bar(done)
            else:
                self.note(self._plain_line(done, now))

    def finish(self) -> None:
        with self._drawing:
            self._now = None
            if self._clock is not None:
                self._clock.cancel()
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def _move_bar(self, done: float) -> None:
        if self._bar is None:
            from rich.progress import Progress

            self._bar = Progress(*self._columns(), console=self._console, transient=True, refresh_per_second=4)
            self._bar.start()
            self._bar.add_task(self._task, total=self._total, completed=self._first or 0, words="")
        self._bar.update(self._bar.task_ids[0], completed=done, words=self._words())

    def _columns(self) -> list[Any]:
        """Of a task that does not say how much there is: that it goes on, and for how long."""
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        bar = [TextColumn("{task.description}"), BarColumn(bar_width=24 if self._console.width >= 110 else 8)]
        if self._total is None:
            return [*bar, TimeElapsedColumn(), TextColumn("{task.fields[words]}")]
        share = TextColumn("{task.percentage:>3.0f}%")
        return [*bar, share, TimeRemainingColumn(compact=True), TextColumn("left  {task.fields[words]}")]

    def _words(self) -> str:
        """As many figures as fit beside the bar, the first ones first."""
        room = self._console.width - len(self._task) - (46 if self._console.width >= 110 else 30)
        words = list(self._figures.values())
        while words and len("  ".join(words)) > room:
            words.pop()
        return "  ".join(words)

    def _plain_line(self, done: float, now: float) -> str:
        words = [self._task, *([f"{done / self._total:.0%}"] if self._total else []), *self._figures.values()]
        if self._total and self._first is not None and done > self._first:
            left = (now - self._begun) * (self._total - done) / (done - self._first)
            words.append(f"{human_seconds(left)} left")
        return "  ".join(words)


def reporter_for(work: str) -> TerminalReporter:
    """A reporter that has said what begins: what does it is loaded first, which takes a few seconds."""
    reporter = TerminalReporter()
    if "torch" not in sys.modules:
        reporter.note(f"{work}: loading torch …")
    return reporter


def emit_json(value: dict[str, Any]) -> None:
    print(json.dumps(_finite(value), ensure_ascii=False, indent=1, allow_nan=False))


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: both become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value


def table(header: list[str], rows: list[list[str]], *, left: int = 1, key: int | None = None) -> str:
    """Columns lined up; the first `left` to the left, the rest to the right.

    On a terminal that is too narrow for them they stand in a few tables below each other, each with the `key` columns
    (those on the left, unless said otherwise), or each row by itself, a line for each cell.
    """
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]
    key = left if key is None else key

    def lines(columns: Sequence[int]) -> str:
        def line(row: list[str]) -> str:
            return "  ".join(row[k].ljust(widths[k]) if k < left else row[k].rjust(widths[k]) for k in columns).rstrip()

        return "\n".join([line(header), "  ".join("─" * widths[k] for k in columns), *map(line, rows)])

    room = terminal_width()
    if room is None or _span(widths) <= room:
        return lines(range(len(widths)))
    parts = _parts(widths, key, room)
    if len(parts) > MOST_PARTS or any(_span([widths[k] for k in part]) > room for part in parts):
        return "\n\n".join(_row_by_itself(header, row, key, room) for row in rows)
    return "\n\n".join(map(lines, parts))


def terminal_width() -> int | None:
    """Columns of the terminal that standard output is, or of COLUMNS; None: nobody says."""
    return shutil.get_terminal_size((0, 0)).columns or None


def _span(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _parts(widths: Sequence[int], key: int, room: int) -> list[list[int]]:
    """The columns in turn, as many as fit beside the key columns, which stand in every part."""
    first = list(range(key))
    parts: list[list[int]] = []
    for column in range(key, len(widths)):
        if parts and _span([widths[k] for k in [*parts[-1], column]]) <= room:
            parts[-1].append(column)
        else:
            parts.append([*first, column])
    return parts


def _row_by_itself(header: list[str], row: list[str], key: int, room: int) -> str:
    """The key cells as a heading, below it a line for each other cell."""
    label = max(map(len, header[key:]), default=0)
    lines = textwrap.wrap("  ".join(cell for cell in row[:key] if cell), room)
    for name, cell in zip(header[key:], row[key:], strict=True):
        if cell:
            begin = f"  {name:<{label}}  "
            lines += textwrap.wrap(begin + cell, max(room, label + 12), subsequent_indent=" " * len(begin))
    return "\n".join(lines)


def typed_lines(stream: BinaryIO) -> Iterator[str]:
    """Lines of UTF-8 as they come; a byte-order mark before the first is no text."""
    for number, line in enumerate(stream, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(
                f"standard input, line {number:,}: byte {line[error.start]:#04x} is not valid UTF-8; "
                "convert it, or give the file with --file and --encoding"
            ) from None
