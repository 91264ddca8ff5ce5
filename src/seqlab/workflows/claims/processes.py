"""Several processes share the claims: each gets one, answers, and gets the next.

A question and an answer are a line of JSON each. A process that dies costs the claim that it had; another takes its
place. Interrupted, all are ended at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import seqlab

Answer = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Question:
    """What is asked of every claim."""

    seed: int
    forms: bool  # the wrong forms too
    file: str | None  # whose claims


def answers(ids: Sequence[str], question: Question, jobs: int) -> Iterator[Answer]:
    """In the order in which they come."""
    crew = Crew(ids, question)
    try:
        crew.start(jobs)
        for _ in ids:
            yield crew.answers.get()
    finally:
        crew.end()


class Crew:
    """Threads of this process, each with a process of its own that does the work."""

    def __init__(self, ids: Sequence[str], question: Question) -> None:
        self.question, self.answers = question, queue.SimpleQueue[Answer]()
        self._ids, self._over = iter(ids), False
        self._lock = threading.Lock()
        self._working: set[subprocess.Popen[str]] = set()

    def start(self, jobs: int) -> None:
        for _ in range(jobs):
            threading.Thread(target=self._serve, daemon=True).start()

    def end(self) -> None:
        with self._lock:
            self._over = True
            for process in self._working:
                process.kill()

    def _next(self) -> str | None:
        with self._lock:
            return None if self._over else next(self._ids, None)

    def _serve(self) -> None:
        process = None
        while (id := self._next()) is not None:
            try:
                process = process or self._begin()
            except OSError as error:
                self.answers.put((id, _without_evidence(f"no process could be started: {error.strerror}")))
                continue
            if (line := _asked(process, id)).endswith("\n"):
                self.answers.put((id, json.loads(line)))
            else:
                code, process = self._close(process), None
                self.answers.put((id, _without_evidence(f"its process ended with code {code}")))
        if process:
            self._close(process)

    def _begin(self) -> subprocess.Popen[str]:
        """A process that knows the question. In a session of its own, so that Ctrl-C is answered here alone."""
        command = [sys.executable, "-P", "-m", "seqlab.workflows.claims.worker"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "encoding": "utf-8"}
        with self._lock:
            process = subprocess.Popen(command, env=_surroundings(), start_new_session=True, **pipes)
            self._working.add(process)
            if self._over:
                process.kill()
        _tell(process, json.dumps(asdict(self.question)))
        return process

    def _close(self, process: subprocess.Popen[str]) -> int:
        """Its exit code: it ends when there is nothing more to read."""
        with contextlib.suppress(OSError):
            process.communicate()
        with self._lock:
            self._working.discard(process)
        return process.wait()


def _asked(process: subprocess.Popen[str], id: str) -> str:
    """The line that it answers; nothing if it died."""
    _tell(process, id)
    assert process.stdout is not None
    return process.stdout.readline()


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it died: the answer that does not come says so
        process.stdin.write(f"{line}\n")
        process.stdin.flush()


def _without_evidence(trouble: str) -> dict[str, Any]:
    return {"evidence": None, "trouble": trouble, "seconds": 0.0, "forms": []}


def _surroundings() -> dict[str, str]:
    """This very seqlab, and one thread."""
    root = str(Path(seqlab.__file__).parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
