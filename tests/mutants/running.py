"""A copy of the tree in a temporary folder, where changes are made and tests run, one process at a time."""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import py_compile
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.mutants.changes import Mutant
from tests.mutants.choosing import Known

LEFT_BEHIND = {".git", ".venv", "build", "dist", "runs"}  # at the top of the tree
LEAST_LIMIT, TIMES = 30.0, 10.0  # a test may compute for so many seconds, or so many times as long as before
RECORDING_LIMIT = 600.0
NOTHING_WRONG, NOTHING_COLLECTED = 0, 5  # of pytest's exit codes


@dataclass(frozen=True)
class Found:
    seen: bool
    by: str | None = None


class Tree:
    """The copy; as a context manager, it is removed at the end."""

    def __init__(self, source: Path, before: Sequence[str] = ()) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        self.root, self.before = self.folder / "tree", list(before)
        self.package = self.root / "src/seqlab"
        caches = shutil.ignore_patterns("__pycache__", ".*_cache", ".hypothesis", "*.egg-info")
        shutil.copytree(
            source,
            self.root,
            ignore=lambda at, names: caches(at, names) | (LEFT_BEHIND if at == str(source) else set()),
        )
        # Compiled files that are checked by what the source holds, not by its time: a change is never overlooked.
        compileall.compile_dir(self.package, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """With one change made; a look at the unchanged source in between is possible by `note`."""
        self.change = mutant
        try:
            yield
        finally:
            del self.change

    def note(self, file: str) -> list[dict[str, Any]]:
        """Run a file's tests on the unchanged source: how long each took and which functions it ran."""
        code, events = self._pytest([file], {}, RECORDING_LIMIT, record=True)
        ended = [event for event in events if "ends" in event]
        failed = [event["ends"] for event in ended if event["failed"]]
        if code not in (NOTHING_WRONG, NOTHING_COLLECTED):
            said = f"{file}: without any change {len(failed)} of {len(ended)} tests fail (code {code}): {failed[:3]}"
            if len(failed) == len(ended):
                raise RuntimeError(said)
            print(said, file=sys.stderr)
        return ended

    def run(self, tests: Sequence[Known]) -> Found:
        """Run tests with the change made; the first that fails, or does not end in time, has seen it."""
        if not tests:
            return Found(False)
        limits = {known.test: max(LEAST_LIMIT, TIMES * known.seconds) for known in tests}
        path = self.package / self.change.path
        original = path.read_bytes()
        path.write_bytes(self.change.applied(original))
        try:
            code, events = self._pytest([known.test for known in tests], limits, max(limits.values()), record=False)
        finally:
            path.write_bytes(original)
        if code == NOTHING_WRONG:
            return Found(False)
        failed = [event["ends"] for event in events if event.get("failed")]
        ended = {event["ends"] for event in events if "ends" in event}
        cut_off = [event["begins"] for event in events if "begins" in event and event["begins"] not in ended]
        by = failed[0] if failed else f"{cut_off[0]} (did not end)" if cut_off else f"importing (code {code})"
        return Found(True, by)

    def _pytest(
        self, tests: Sequence[str], limits: dict[str, float], limit: float, *, record: bool
    ) -> tuple[int, list[dict[str, Any]]]:
        """Its exit code and what the plugin wrote."""
        events, task, names = (self.folder / name for name in ("events.jsonl", "watch.json", "tests.txt"))
        events.write_text("")
        names.write_text("\n".join(tests) + "\n")
        package = str(self.package)
        written = {"events": str(events), "limits": limits, "limit": limit, "package": package, "record": record}
        task.write_text(json.dumps(written))
        options = ["-q", "-n", "0", "-m", "not long", "-p", "tests.mutants.watching", "-p", "no:cacheprovider"]
        stop = [] if record else ["-x"]
        command = [*self.before, sys.executable, "-m", "pytest", *options, *stop, f"--basetemp={self.folder / 'tmp'}"]
        paths = {"PYTHONPATH": str(self.root / "src"), "MUTANTS_WATCH": str(task)}
        process = subprocess.Popen(
            [*command, f"@{names}"],
            cwd=self.root,
            env=os.environ | paths | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):  # what a test left running ends with it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return code, [json.loads(line) for line in events.read_text().splitlines()]
