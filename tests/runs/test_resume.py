"""Exact resume: whatever kills a run, going on ends with the same bits."""

import contextlib
import itertools
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from tests.conftest import tiny_for

import seqlab
from seqlab.core.errors import DamageError, SeqlabError, UsageError
from seqlab.core.registry import MODELS
from seqlab.runs import session
from seqlab.runs.folder import FORMAT, RunFolder
from seqlab.runs.session import Session
from seqlab.training import loop
from seqlab.training.checkpoint import load_tensors
from seqlab.workflows.lm.task import LanguageModelling

TIMES = {"seconds", "seconds_per_step"}


def outcome(folder: Path) -> dict[str, Any]:
    """Everything of a run that is not a time: weights, checkpoint and figures."""
    files = RunFolder(folder)
    weights, best = load_tensors(files.model_file)
    checkpoint, record = load_tensors(files.checkpoint_file)
    record["position"].pop("seconds")
    metrics = [{k: v for k, v in line.items() if k not in TIMES} for line in files.read_metrics()]
    return {"weights": weights, "best": best, "checkpoint": checkpoint, "record": record, "metrics": metrics}


def assert_identical(a: dict[str, Any], b: dict[str, Any]) -> None:
    for part in ("weights", "checkpoint"):
        assert a[part].keys() == b[part].keys()
        for name in a[part]:
            assert torch.equal(a[part][name], b[part][name]), f"{part}: {name}"
    assert (a["best"], a["record"], a["metrics"]) == (b["best"], b["record"], b["metrics"])


class Crash(BaseException):
    """Stands for the process dying on the spot."""


VARIANTS = [(kind, {}) for kind in sorted(MODELS)] + [
    ("bigram", {"full_gradient": False, "optimiser": "sgd"}),
    ("lstm", {"accumulate": 2, "depth": 2, "precision": "float32"}),
    ("lstm", {"precision": "bfloat16"}),
    ("transformer", {"precision": "bfloat16"}),
    ("gru", {"carry": False}),
]


@pytest.mark.parametrize(("kind", "more"), VARIANTS, ids=lambda x: x if isinstance(x, str) else "-".join(x))
def test_a_crash_at_any_write_changes_nothing(
    kind: str,
    more: dict[str, Any],
    small_text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run dies at its k-th replacement of a file, for every k in turn; each time it is resumed."""
    settings = tiny_for(kind, model=kind, dropout=0.2, tokenizer="char", **more)
    seqlab.train_lm(small_text, out=tmp_path / "whole", **settings)
    expected = outcome(tmp_path / "whole")
    replace, budget = os.replace, itertools.count()

    def dying_replace(source: Any, target: Any) -> None:
        if Path(target).is_relative_to(tmp_path / "torn") and next(budget) == die_at:
            raise Crash
        replace(source, target)

    monkeypatch.setattr(os, "replace", dying_replace)
    crashes = 0
    for die_at in range(1, 40, 2):  # noqa: B007 (read by dying_replace)
        budget = itertools.count()
        try:
            seqlab.train_lm(small_text, out=tmp_path / "torn", resume=True, **settings)
        except Crash:
            crashes += 1
        else:
            break
    assert crashes >= 2
    assert_identical(outcome(tmp_path / "torn"), expected)


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_sigkill_at_any_moment_changes_nothing(kind: str, small_text: Path, tmp_path: Path) -> None:
    """A real process, a real SIGKILL, at moments that differ from machine to machine.

    The processes are forks of this one, which has torch loaded; tests/contracts starts some from nothing.
    """
    settings = tiny_for(kind, model=kind, dropout=0.1, budget="300steps", eval_every=20, patience=0)
    torn, kills = tmp_path / "torn", 0

    def train(folder: Path) -> None:
        seqlab.train_lm(small_text, out=folder, resume=True, **settings)

    train(tmp_path / "whole")
    for wanted in (1, 5, 40):  # metrics lines to wait for before the kill
        process = multiprocessing.get_context("fork").Process(target=train, args=(torn,))
        process.start()
        before = _lines(torn)
        while process.is_alive() and _lines(torn) < before + wanted:
            time.sleep(0.001)
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
    train(torn)
    assert kills >= 2
    assert_identical(outcome(torn), outcome(tmp_path / "whole"))


def _lines(folder: Path) -> int:
    metrics = folder / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_save_and_exit_cleanly(stop: signal.Signals, small_text: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "seqlab", "lm", "train", "--out", str(tmp_path / "run")]
    sizes = "--width 16 --batch 4 --context 8 --budget 20000steps --eval-every 50 --threads 1 --patience 0"
    process = subprocess.Popen([*command, str(small_text), *sizes.split()], stderr=subprocess.PIPE, text=True)
    while process.poll() is None and _lines(tmp_path / "run") < 1:
        time.sleep(0.01)
    process.send_signal(stop)
    _, messages = process.communicate()
    assert process.returncode == 0
    assert "interrupted at step" in messages
    assert "--resume" in messages
    step = load_tensors(RunFolder(tmp_path / "run").checkpoint_file)[1]["position"]["step"]
    assert f"step {step:,} of 20,000" in messages


@pytest.fixture
def half_done(small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that died in the middle."""
    folder = tmp_path / "half"
    with monkeypatch.context() as patch:
        patch.setattr(Session, "after_step", lambda self, position: _die(position.step == 7))
        with pytest.raises(Crash):
            seqlab.train_lm(small_text, out=folder, model="gru", **tiny)
    return folder


def _die(now: bool) -> None:
    if now:
        raise Crash


def test_settings_come_from_the_folder(half_done: Path) -> None:
    run = seqlab.train_lm(out=half_done, resume=True)
    assert run.settings.model.kind == "gru"
    assert run.final is not None
    assert run.final["step"] == 12


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"width": 32}, r"--width 32 conflicts with 16 in .*settings.toml"),
        ({"model": "lstm"}, "--model lstm conflicts with gru"),
        ({"seed": 5}, "--seed 5 conflicts with 0"),
        ({"learning_rate": 0.5}, "--learning-rate 0.5 conflicts"),
        ({"threads": 2}, "--threads 2 conflicts with the run's 1"),
        ({"budget": "6steps"}, "--budget 6steps conflicts with the run's 12steps"),
        ({"budget": "60s"}, "--budget 60s conflicts"),
        ({"witdh": 3}, "unknown setting 'witdh'; did you mean 'width'"),
        ({"from_run": "x"}, "leave out --config and --from"),
    ],
)
def test_conflicting_flags_are_refused(half_done: Path, flags: dict[str, Any], message: str) -> None:
    before = outcome_bytes(half_done)
    with pytest.raises(UsageError, match=message):
        seqlab.train_lm(out=half_done, resume=True, **flags)
    assert outcome_bytes(half_done) == before


def outcome_bytes(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_changed_data_is_refused(half_done: Path, small_text: Path) -> None:
    small_text.write_text(small_text.read_text() + "one word more")
    with pytest.raises(UsageError, match="is not the text this run was trained on"):
        seqlab.train_lm(out=half_done, resume=True)


def test_a_longer_budget_goes_on_and_says_what_changes(half_done: Path) -> None:
    from seqlab.core.reporting import Reporter

    class Listener(Reporter):
        lines: ClassVar[list[str]] = []

        def note(self, line: str) -> None:
            self.lines.append(line)

    seqlab.train_lm(out=half_done, resume=True)
    run = seqlab.train_lm(out=half_done, resume=True, budget="20steps", reporter=Listener())
    assert run.final is not None
    assert run.final["step"] == 20
    said = " ".join(Listener.lines)
    assert "12 → 20 steps" in said
    assert "at step 12 the learning rate changes from" in said
    assert [line["step"] for line in run.metrics if line.get("final")] == [20]


def test_a_finished_run_is_left_alone(half_done: Path) -> None:
    seqlab.train_lm(out=half_done, resume=True)
    before = outcome_bytes(half_done)
    seqlab.train_lm(out=half_done, resume=True)
    assert outcome_bytes(half_done) == before


@pytest.mark.parametrize("name", ["settings.toml", "tokenizer.json", "checkpoints/last.safetensors", "metrics.jsonl"])
@pytest.mark.parametrize("where", [0.3, 0.6, 0.97])
def test_damage_is_named_and_nothing_is_loaded(half_done: Path, name: str, where: float) -> None:
    path = half_done / name
    content = bytearray(path.read_bytes())
    position = int(where * len(content))
    while chr(content[position]).isspace():
        position += 1
    content[position] ^= 1
    path.write_bytes(content)
    with pytest.raises(SeqlabError, match=path.name):
        seqlab.train_lm(out=half_done, resume=True)
    assert path.read_bytes() == content


def test_damaged_weights_are_not_loaded(half_done: Path) -> None:
    seqlab.train_lm(out=half_done, resume=True)
    path = half_done / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamageError, match=r"model\.safetensors is damaged"):
        seqlab.load(half_done)


def test_a_torn_last_line_of_metrics_is_dropped(half_done: Path) -> None:
    path = half_done / "metrics.jsonl"
    whole = len(RunFolder(half_done).read_metrics())
    with path.open("ab") as file:
        file.write(b'{"step": 8, "tok')
    assert len(RunFolder(half_done).read_metrics()) == whole
    assert seqlab.train_lm(out=half_done, resume=True).final is not None


def test_leftovers_of_a_crash_do_no_harm(
    half_done: Path, small_text: Path, tiny: dict[str, Any], tmp_path: Path
) -> None:
    (half_done / ".model.safetensors.123.partial").write_bytes(b"half")
    (half_done / "checkpoints" / ".last.safetensors.123.partial").write_bytes(b"half")
    seqlab.train_lm(out=half_done, resume=True)
    seqlab.train_lm(small_text, out=tmp_path / "whole", model="gru", **tiny)
    assert_identical(outcome(half_done), outcome(tmp_path / "whole"))


def test_folders_of_another_kind_or_version_are_refused(half_done: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for old, new, message in (
        (
            'kind = "lm"',
            'kind = "classifier"',
            "holds a run of kind 'classifier', which this seqlab does not know; known: .*lm",
        ),
        (f"format = {FORMAT}", "format = 99", f"has format 99; this seqlab reads format {FORMAT}"),
    ):
        shutil.copytree(half_done, other)
        settings = other / "settings.toml"
        settings.write_text(settings.read_text().replace(old, new))
        with pytest.raises(UsageError, match=message):
            seqlab.train_lm(out=other, resume=True)
        with pytest.raises(UsageError, match=message):
            seqlab.load(other)
        shutil.rmtree(other)
    with pytest.raises(UsageError, match="there is no run folder"):
        seqlab.load(tmp_path / "nothing")
    with pytest.raises(UsageError, match="it has no settings.toml"):
        seqlab.load(tmp_path)


def test_two_processes_do_not_train_in_one_folder(half_done: Path) -> None:
    with RunFolder(half_done).locked(), pytest.raises(UsageError, match="another process is training in"):
        seqlab.train_lm(out=half_done, resume=True)
    assert seqlab.train_lm(out=half_done, resume=True).final is not None


def test_a_run_killed_after_stopping_early_stays_stopped(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny | {"budget": "400steps", "eval_every": 2, "patience": 2, "learning_rate": 0.3, "decay": "constant"}
    whole = seqlab.train_lm(small_text, out=tmp_path / "whole", model="rnn", **settings)
    with monkeypatch.context() as patch:
        patch.setattr(Session, "_finish", lambda self, outcome: _die(True))
        with pytest.raises(Crash):
            seqlab.train_lm(small_text, out=tmp_path / "torn", model="rnn", **settings)
    seqlab.train_lm(out=tmp_path / "torn", resume=True)
    assert whole.final["outcome"] == "stopped early"
    assert_identical(outcome(tmp_path / "torn"), outcome(tmp_path / "whole"))
    longer = seqlab.train_lm(out=tmp_path / "torn", resume=True, budget="500steps", reporter=None)
    assert longer.final["step"] > whole.final["step"]


def test_a_crash_while_lengthening_is_mended_by_saying_it_again(
    half_done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was written before the crash, the longer budget can still be given, and the run reaches it."""
    seqlab.train_lm(out=half_done, resume=True)
    for place in (RunFolder, "cut_metrics"), (Session, "save"), (RunFolder, "write"):
        folder = tmp_path / place[1]
        shutil.copytree(half_done, folder)
        with monkeypatch.context() as patch:
            patch.setattr(*place, lambda *_: _die(True))
            with pytest.raises(Crash):
                seqlab.train_lm(out=folder, resume=True, budget="20steps")
        run = seqlab.train_lm(out=folder, resume=True, budget="20steps")
        assert run.final is not None
        assert run.final["step"] == 20
    with monkeypatch.context() as patch:
        patch.setattr(Session, "run", lambda _self: _die(True))
        with pytest.raises(Crash):
            seqlab.train_lm(out=half_done, resume=True, budget="20steps")
    assert seqlab.train_lm(out=half_done, resume=True).final["step"] == 20  # type: ignore[index]


def test_a_report_that_a_crash_prevented_is_written_later(half_done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(LanguageModelling, "report", lambda *_: _die(True))
        with pytest.raises(Crash):
            seqlab.train_lm(out=half_done, resume=True)
    before = RunFolder(half_done).metrics_file.read_bytes()
    assert not (half_done / "report.html").exists()
    seqlab.train_lm(out=half_done, resume=True)
    assert (half_done / "report.html").exists()
    assert RunFolder(half_done).metrics_file.read_bytes() == before, "the test text is not scored again"


@pytest.mark.parametrize("lines", [0, 3])
def test_metrics_that_lost_lines_are_found(half_done: Path, lines: int) -> None:
    path = half_done / "metrics.jsonl"
    kept = path.read_bytes().split(b"\n")[:lines]
    path.write_bytes(b"".join(line + b"\n" for line in kept))
    with pytest.raises(DamageError, match=r"metrics\.jsonl is damaged"):
        seqlab.train_lm(out=half_done, resume=True)


def test_seconds_of_training_never_fall_after_a_resume(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three sittings, each with a clock of its own; what a crash lost is lost, what was saved stays counted."""
    for dies_at in (6, 10, None):
        with monkeypatch.context() as patch:
            clock = itertools.count(1000 - 100 * (dies_at or 0))
            patch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda clock=clock: float(next(clock))))
            patch.setattr(Session, "after_step", lambda self, position, at=dies_at: _die(position.step == at))
            with contextlib.nullcontext() if dies_at is None else pytest.raises(Crash):
                seqlab.train_lm(small_text, out=tmp_path / "run", resume=True, guide="none", **tiny)
    lines = seqlab.load(tmp_path / "run").metrics
    # the clock is read after each step and after its line; saved were steps 4 and 8, with the lines up to there
    assert [line["seconds"] for line in lines] == [1, 3, 5, 7, 8, 10, 12, 14, 15, 17, 19, 21, 22]


def test_resume_is_exact_on_two_threads(small_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = dict(
        width=64, batch=16, context=16, budget="12steps", eval_every=4, threads=2, dropout=0.1
    )
    seqlab.train_lm(small_text, out=tmp_path / "whole", **settings)
    with monkeypatch.context() as patch:
        patch.setattr(Session, "after_step", lambda self, position: _die(position.step == 7))
        with pytest.raises(Crash):
            seqlab.train_lm(small_text, out=tmp_path / "torn", **settings)
    seqlab.train_lm(out=tmp_path / "torn", resume=True)
    assert_identical(outcome(tmp_path / "torn"), outcome(tmp_path / "whole"))


def test_the_periodic_save_bounds_what_a_crash_costs(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SAVE_SECONDS", 0.0)
    original = Session.after_step

    def dying(self: Session, position: Any) -> None:
        original(self, position)
        _die(position.step == 6)

    monkeypatch.setattr(Session, "after_step", dying)
    with pytest.raises(Crash):
        seqlab.train_lm(small_text, out=tmp_path / "run", **tiny)
    saved = load_tensors(RunFolder(tmp_path / "run").checkpoint_file)[1]["position"]["step"]
    assert saved == 6


def test_an_interrupted_run_gives_its_best_weights_and_resumes_exactly(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seqlab.train_lm(small_text, out=tmp_path / "whole", dropout=0.2, **tiny)
    original = Session.after_step

    def interrupting(self: Session, position: Any) -> None:
        original(self, position)
        if position.step == 6:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "after_step", interrupting)
        run = seqlab.train_lm(small_text, out=tmp_path / "torn", dropout=0.2, **tiny)
    assert run.final is None
    assert run.step == 4
    seqlab.train_lm(out=tmp_path / "torn", resume=True)
    assert_identical(outcome(tmp_path / "torn"), outcome(tmp_path / "whole"))
