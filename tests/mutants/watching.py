"""A pytest plugin of the sampler: a limit of processor time for every test, and which functions of seqlab it runs.

MUTANTS_WATCH names a JSON file: {events, limits, limit, package, record}. Events are written there as they happen, so
that a test which never ends, or takes the process down with it, is known by its beginning.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

MOST_MEMORY = 12 << 30  # of addresses: a change may ask for more than a machine has
MOST_WAITING = 1800.0  # seconds of a test that waits for something; on a busy machine it may be stopped for long


def pytest_configure(config: pytest.Config) -> None:
    task = json.loads(Path(os.environ["MUTANTS_WATCH"]).read_text())
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    config.pluginmanager.register(_Watch(task), "mutants-watch")


def _processor_seconds() -> float:
    """Of this process and of those that it waited for."""
    return sum(os.times()[:4])


class _Watch:
    def __init__(self, task: dict[str, Any]) -> None:
        self.limits, self.limit, self.package = task["limits"], task["limit"], task["package"] + os.sep
        self.recording = task["record"]
        self.events = open(task["events"], "a", buffering=1)  # noqa: SIM115 (as long as the process)
        self.nowhere = open(os.devnull, "w")  # noqa: SIM115
        self.codes: dict[int, CodeType] = {}
        self.failed = False
        self._limit(self.limit)  # also for importing the tests

    def _limit(self, seconds: float) -> None:
        """From now on; where it is reached, the process ends on the spot, whatever it is doing."""
        signal.setitimer(signal.ITIMER_PROF, seconds)
        faulthandler.dump_traceback_later(MOST_WAITING, exit=True, file=self.nowhere)

    def _say(self, **event: Any) -> None:
        self.events.write(json.dumps(event) + "\n")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._say(begins=item.nodeid)
        self._limit(self.limits.get(item.nodeid, self.limit))
        self.codes, self.failed, begun = {}, False, _processor_seconds()
        if self.recording:
            threading.settrace(self._called)
            sys.settrace(self._called)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            self._limit(self.limit)
            seconds = round(_processor_seconds() - begun, 3)
            self._say(ends=item.nodeid, seconds=seconds, failed=self.failed, functions=self._functions())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        """Called once for every call of a Python function; None: its lines are not followed."""
        code = frame.f_code
        self.codes[id(code)] = code

    def _functions(self) -> list[str]:
        names = set()
        for code in list(self.codes.values()):
            if code.co_filename.startswith(self.package):
                path = code.co_filename.removeprefix(self.package)
                names.add(f"{path}::{code.co_qualname.partition('.<locals>.<')[0]}")
        return sorted(names)
