"""Ctrl-C and SIGTERM as a polite request: finish the step, save, leave."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def catch_interruption() -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether Ctrl-C or SIGTERM has come; a second one interrupts at once."""
    asked = threading.Event()

    def ask(number: int, _frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set  # only the main thread may handle signals
        return
    former = {s: signal.signal(s, ask) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
