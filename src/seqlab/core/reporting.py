"""What a long job tells whoever watches. Nothing below the command line prints; it calls a reporter."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

ByteProgress = Callable[[int, int | None], None]
"""Called with the bytes fetched or read so far and the total, where that is known."""


class Reporter:
    """Silent. The command line has one that talks to a terminal."""

    listening: bool = False  # whether anybody hears it: what is worked out only to be said is worth the time

    def note(self, line: str) -> None:
        """Something worth knowing."""

    def warn(self, line: str) -> None:
        """Something to look at."""

    @contextlib.contextmanager
    def task(self, name: str, total: float | None) -> Iterator[None]:
        """A task that counts up to `total`; it ends however its block ends."""
        self.start(name, total)
        try:
            yield
        finally:
            self.finish()

    def start(self, task: str, total: float | None) -> None:
        """A task begins."""

    def advance(self, done: float, figures: dict[str, str] | None = None) -> None:
        """The task has reached `done`; `figures` (name -> words) are worth showing beside the bar."""

    def finish(self) -> None:
        """The task has ended."""

    @contextlib.contextmanager
    def downloading(self) -> Iterator[ByteProgress]:
        """A callback for downloads; the task starts with the first bytes and ends with the block."""
        with contextlib.ExitStack() as tasks:

            def progress(done: int, total: int | None) -> None:
                if done and not started:
                    started.append(True)
                    tasks.enter_context(self.task("downloading", total))
                self.advance(done)

            started: list[bool] = []
            yield progress


class ProgressOnly(Reporter):
    """Passes on how far tasks are, and nothing that is said."""

    def __init__(self, whole: Reporter) -> None:
        self._whole = whole

    def start(self, task: str, total: float | None) -> None:
        self._whole.start(task, total)

    def advance(self, done: float, figures: dict[str, str] | None = None) -> None:
        self._whole.advance(done, figures)

    def finish(self) -> None:
        self._whole.finish()
