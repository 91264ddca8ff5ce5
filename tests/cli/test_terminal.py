"""What a person sees while a command runs, and how a command ends."""

import errno
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rich.console import Console
from tests.cli.conftest import Command

from seqlab.cli import terminal
from seqlab.cli.main import explained
from seqlab.cli.terminal import TerminalReporter, emit_json, table
from seqlab.core.errors import DamageError, UsageError
from seqlab.runs.folder import numbered_folder

FIGURES = {
    "loss": "loss 1.912",
    "bits": "2.758 bits/char",
    "speed": "81.2 K tok/s",
    "validation": "validation 1.950",
}
SHOW_CURSOR = "\x1b[?25h"


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A reporter on a terminal of a given width, and what was written to it."""
    monkeypatch.setattr(terminal, "SHOW_AFTER", 0.0)
    monkeypatch.setattr(terminal, "BAR_EVERY", 0.0)

    def make(width: int) -> tuple[TerminalReporter, io.StringIO]:
        reporter, written = TerminalReporter(), io.StringIO()
        reporter._console = Console(file=written, force_terminal=True, width=width, highlight=False, markup=False)
        return reporter, written

    return make


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_bar_shows_loss_bits_speed_and_time_left(screen: Any, width: int) -> None:
    reporter, written = screen(width)
    with reporter.task("training", 100):
        reporter.advance(10)
        reporter.advance(40, FIGURES)
    shown = written.getvalue()
    for word in ("training", "40%", "left", "loss 1.912", "2.758 bits/char", "81.2 K tok/s"):
        assert word in shown, word
    assert "…" not in shown
    assert ("validation 1.950" in shown) == (width >= 100)


def test_a_task_that_fails_gives_the_cursor_back(screen: Any) -> None:
    reporter, written = screen(100)
    with pytest.raises(ZeroDivisionError), reporter.task("training", 100):
        reporter.advance(10)
        raise ZeroDivisionError
    assert written.getvalue().endswith((SHOW_CURSOR, SHOW_CURSOR + "\r\x1b[1A\x1b[2K"))


def test_short_tasks_show_nothing(screen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "SHOW_AFTER", 1e9)
    reporter, written = screen(100)
    with reporter.task("encoding", 10):
        reporter.advance(5)
    assert written.getvalue() == ""


class Clock:
    """Stands for a timer: it rings when the test says so."""

    made: ClassVar[list["Clock"]] = []

    def __init__(self, seconds: float, ring: Any, arguments: list[Any]) -> None:
        self.seconds, self.stopped, self.daemon = seconds, False, False
        self.ring = lambda: ring(*arguments)
        self.made.append(self)

    def start(self) -> None: ...

    def cancel(self) -> None:
        self.stopped = True


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> list[Clock]:
    monkeypatch.setattr(Clock, "made", [])
    monkeypatch.setattr(terminal.threading, "Timer", Clock)
    return Clock.made


def test_a_task_that_says_nothing_of_itself_is_named(screen: Any, clocks: list[Clock]) -> None:
    reporter, written = screen(100)
    with reporter.task("counting", None):
        assert (clocks[0].seconds, clocks[0].daemon, written.getvalue()) == (terminal.SHOW_AFTER, True, "")
        clocks[0].ring()
        assert "counting" in written.getvalue()
        assert "0:00:0" in written.getvalue(), "how long it has taken: nobody knows how much there is"
    assert clocks[0].stopped
    before = written.getvalue()
    clocks[0].ring()
    assert written.getvalue() == before, "it is over"


def test_away_from_a_terminal_a_silent_task_has_a_line_now_and_then(clocks: list[Clock]) -> None:
    reporter, written = TerminalReporter(), io.StringIO()
    reporter._console = Console(file=written)
    with reporter.task("reading", None):
        clocks[0].ring()
        clocks[1].ring()
        assert [line.split(" …")[0] for line in written.getvalue().splitlines()] == ["reading"] * 2
        assert [clock.seconds for clock in clocks] == [terminal.SHOW_AFTER] + [terminal.PLAIN_EVERY] * 2
        with reporter.task("encoding", 10):
            clocks[2].ring()
            assert written.getvalue().count("\n") == 2, "the outer task is not what goes on now"
        assert clocks[-1].seconds == terminal.SHOW_AFTER, "the outer task goes on, and so does its clock"
        clocks[-1].ring()
        assert written.getvalue().splitlines()[-1].startswith("reading …")


def test_a_task_that_speaks_for_itself_is_not_named(monkeypatch: pytest.MonkeyPatch, clocks: list[Clock]) -> None:
    monkeypatch.setattr(terminal, "SHOW_AFTER", 0.0)
    monkeypatch.setattr(terminal, "PLAIN_EVERY", 0.0)
    reporter, written = TerminalReporter(), io.StringIO()
    reporter._console = Console(file=written)
    with reporter.task("training", 10):
        reporter.advance(5)
        clocks[0].ring()
    assert written.getvalue().splitlines() == ["training  50%"]
    reporter.advance(6)
    assert written.getvalue().count("\n") == 1, "nothing is going on"


def test_the_first_line_comes_before_torch(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.reporter_for("training on x")
    assert capfd.readouterr().err == "", "it is loaded: what follows comes at once"
    monkeypatch.delitem(sys.modules, "torch")
    terminal.reporter_for("training on x")
    assert capfd.readouterr().err == "training on x: loading torch …\n"


def test_columns_line_up() -> None:
    assert table(["name", "n"], [["a", "1"], ["bbbbb", "22"]]).split("\n") == [
        "name    n",
        "─────  ──",
        "a       1",
        "bbbbb  22",
    ]


WIDE = ["run", "text", "steps", "bits/byte", "time"]
RUNS = [["runs/mine", "a text of many words.txt", "2,000", "1.2345", "3 min 05 s"], ["b", "other.txt", "5", "2.0", ""]]


def test_what_a_narrow_terminal_has_no_room_for_stands_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert len(table(WIDE, RUNS, left=2, key=1).split("\n")) == 4
    monkeypatch.setenv("COLUMNS", "44")
    assert table(WIDE, RUNS, left=2, key=1).split("\n") == [
        "run        text                      steps",
        "─────────  ────────────────────────  ─────",
        "runs/mine  a text of many words.txt  2,000",
        "b          other.txt                     5",
        "",
        "run        bits/byte        time",
        "─────────  ─────────  ──────────",
        "runs/mine     1.2345  3 min 05 s",
        "b                2.0",
    ]


def test_each_row_stands_by_itself_where_two_columns_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    assert table(WIDE, RUNS, left=2, key=1).split("\n") == [
        "runs/mine",
        "  text       a text of many",
        "             words.txt",
        "  steps      2,000",
        "  bits/byte  1.2345",
        "  time       3 min 05 s",
        "",
        "b",
        "  text       other.txt",
        "  steps      5",
        "  bits/byte  2.0",
    ]


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("words", ["runs list", "data list", "claims list --subject gru"])
def test_lists_fit_the_terminal(
    seqlab_command: Command, small_text: Path, monkeypatch: pytest.MonkeyPatch, words: str, width: int
) -> None:
    if words == "runs list":
        seqlab_command("lm", "train", small_text, "--model", "ngram", "--out", f"runs/{'a-long-name-' * 2}")
    monkeypatch.setenv("COLUMNS", str(width))
    answer = seqlab_command(*words.split())
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert len(lines) > 4
    assert max(map(len, lines)) <= width


def test_figures_of_a_training_fit_the_terminal(
    seqlab_command: Command, small_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    trained = seqlab_command("lm", "train", small_text, "--model", "ngram", "--out", "run").out
    table_of_it = trained[: trained.index("test text:")]
    sheet = seqlab_command("lm", "perplexity", "run", "--on", small_text).out
    assert max(map(len, table_of_it.splitlines())) <= 40
    assert [line for line in sheet.splitlines() if line.startswith("  bits/byte")]
    assert not [line for line in sheet.splitlines() if len(line) > 40 and "  " in line], "no row is broken"


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    emit_json({"a": [float("nan"), 1.5], "b": float("inf")})
    assert capsys.readouterr().out.split() == ["{", '"a":', "[", "null,", "1.5", "],", '"b":', "null", "}"]


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (UsageError("wrong"), "wrong", 2),
        (DamageError("torn"), "torn", 1),
        (KeyboardInterrupt(), "interrupted", 1),
        (MemoryError(), "out of memory", 1),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "out of memory", 1),
        (OSError(errno.ENOSPC, "No space left on device"), "standard output: No space left on device", 1),
        (PermissionError(errno.EACCES, "Permission denied", "x/y"), "x/y: Permission denied", 1),
        (KeyError("k"), "unexpected KeyError", 1),
    ],
)
def test_every_error_is_one_line(error: BaseException, message: str, code: int) -> None:
    line, found = explained(error)
    assert message in line
    assert found == code


def test_sigterm_ends_any_command_in_one_line(
    seqlab_command: Command, small_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqlab.workflows.lm import data as prepared

    monkeypatch.setattr(prepared, "prepare", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    answer = seqlab_command("lm", "train", small_text, "--tokenizer", "byte", "--budget", "2steps")
    assert (answer.code, answer.err) == (1, "seqlab: interrupted\n")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert not list(Path("runs").iterdir()), "the folder that was reserved is removed"


def test_runs_started_together_get_folders_of_their_own(tmp_path: Path) -> None:
    with numbered_folder(tmp_path / "runs", "t") as one, numbered_folder(tmp_path / "runs", "t") as two:
        assert (one.name, two.name) == ("t-1", "t-2")
        (two / "file").write_text("x")
    assert [p.name for p in (tmp_path / "runs").iterdir()] == ["t-2"]


@pytest.mark.parametrize(("given", "expected"), [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7")])
def test_waiting_threads_spin_briefly_unless_told_otherwise(given: dict[str, str], expected: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "GOMP_SPINCOUNT"} | given
    script = "import seqlab, os; print(os.environ['GOMP_SPINCOUNT'])"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert answer.stdout.strip() == expected
