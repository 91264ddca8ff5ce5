"""Requests to stop, sent as real signals to this very process."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from seqlab.training.interruption import REQUESTS, catch_interruption

INSISTENT = [signal.SIGINT, signal.SIGTERM]


def fail(number: int, _frame: object) -> None:
    raise AssertionError(f"signal {number} was not caught")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Every signal has a handler of this test, whoever started it, and gets its former one back."""
    former = {number: signal.signal(number, fail) for number in REQUESTS}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def test_a_closed_terminal_counts_where_the_system_tells() -> None:
    assert hasattr(signal, "SIGHUP") == (len(REQUESTS) == 3)


@pytest.mark.parametrize("number", REQUESTS)
def test_a_signal_is_a_request(number: int) -> None:
    with catch_interruption() as interrupted:
        assert not interrupted()
        send(number)
        assert interrupted()
    assert signal.getsignal(number) is fail


@pytest.mark.parametrize("first", REQUESTS)
@pytest.mark.parametrize("second", INSISTENT)
def test_a_second_one_interrupts_at_once(first: int, second: int) -> None:
    with pytest.raises(KeyboardInterrupt), catch_interruption():
        send(first)
        send(second)
    assert signal.getsignal(second) is fail


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="the system has no SIGHUP")
def test_a_terminal_that_closes_twice_is_one_request() -> None:
    with catch_interruption() as interrupted:
        send(signal.SIGHUP)
        send(signal.SIGHUP)
        assert interrupted()


@pytest.mark.parametrize("number", REQUESTS)
def test_what_is_ignored_stays_ignored(number: int) -> None:
    signal.signal(number, signal.SIG_IGN)
    with catch_interruption() as interrupted:
        send(number)
        assert not interrupted()
        assert signal.getsignal(number) is signal.SIG_IGN
        other = next(request for request in REQUESTS if request != number)
        send(other)
        assert interrupted()
    assert signal.getsignal(number) is signal.SIG_IGN


def test_stop_counts_beside_the_signals() -> None:
    answer = False
    with catch_interruption(lambda: answer) as interrupted:
        assert not interrupted()
        answer = True
        assert interrupted()
        answer = False
        send(signal.SIGTERM)
        assert interrupted()


def test_outside_the_main_thread_stop_alone_counts() -> None:
    asked, answers = threading.Event(), []

    def run() -> None:
        with catch_interruption() as never, catch_interruption(asked.is_set) as interrupted:
            answers.append((never(), interrupted()))
            answers.extend(signal.getsignal(number) is fail for number in REQUESTS)
            asked.set()
            answers.append((never(), interrupted()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert answers == [(False, False), *[True] * len(REQUESTS), (False, True)]
