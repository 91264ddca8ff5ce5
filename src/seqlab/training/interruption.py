"""Ctrl-C, SIGTERM and a closed terminal as a polite request: finish the step, save, leave."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

HANGUP = getattr(signal, "SIGHUP", None)  # Windows has none
REQUESTS = [number for number in (signal.SIGINT, signal.SIGTERM, HANGUP) if number is not None]


@contextlib.contextmanager
def catch_interruption(stop: Callable[[], bool] | None = None) -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether to stop: Ctrl-C, SIGTERM or SIGHUP has come, or `stop` says so.

    A second Ctrl-C or SIGTERM interrupts at once; a second SIGHUP does not, since a terminal that closes may send
    several. Only the main thread may handle signals: in any other, `stop` alone counts.
    """
    asked = threading.Event()

    def ask(number: int, _frame: Any) -> None:
        if asked.is_set() and number != HANGUP:
            raise KeyboardInterrupt
        asked.set()

    def should_stop() -> bool:
        return asked.is_set() or (stop is not None and stop())

    in_main_thread = threading.current_thread() is threading.main_thread()
    with _handled_by(ask) if in_main_thread else contextlib.nullcontext():
        yield should_stop


@contextlib.contextmanager
def _handled_by(ask: Callable[[int, Any], None]) -> Iterator[None]:
    """Let `ask` hear of the requests; one that is ignored, as SIGHUP is under nohup, stays ignored."""
    # None: a handler that Python did not install and could not put back.
    heard = [number for number in REQUESTS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    former = {number: signal.signal(number, ask) for number in heard}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
