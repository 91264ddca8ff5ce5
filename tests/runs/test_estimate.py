"""What a training says before its first step, what it refuses, and that every remedy it names is one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.contracts.parity import Parity
from tests.diagnostics.test_machine import calibration
from tests.runs.test_resume import assert_identical, outcome
from torch import nn

from seqlab.core.errors import UsageError
from seqlab.core.reporting import Reporter
from seqlab.diagnostics import forecast
from seqlab.diagnostics.forecast import Memory, StepSeconds
from seqlab.runs import estimate, session
from seqlab.runs.estimate import Estimate, Traded, validations_in
from seqlab.runs.folder import RunFolder
from seqlab.runs.session import begin
from seqlab.runs.task import Task, find_task
from seqlab.runs.train import asked_settings, train
from seqlab.training import plan

TRAINED = ("lm", "classify", "translate")


class Heard(Reporter):
    listening = True

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(autouse=True)
def steps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading and the report would hide what a small step holds."""
    monkeypatch.setattr(Task, "later_bytes", 0)
    for kind in TRAINED:
        monkeypatch.setattr(type(find_task(kind)), "read_held_out", lambda *_: None)
        monkeypatch.setattr(type(find_task(kind)), "report", lambda *_: None)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """So many bytes can be had."""
    return lambda spare: monkeypatch.setattr(estimate, "available_bytes", lambda: spare)


Asked = tuple[Task, Any, Any]


def asked(kind: str, folder: Path, **flags: Any) -> Asked:
    task = find_task(kind)
    said = task.trial(folder) | {"dropout": 0.0} | flags
    settings = asked_settings(task, {name: value for name, value in said.items() if value is not None})
    data = task.prepare(settings, Reporter())
    return task, task.settle(settings, data), data


# --------------------------------------------------------------------------- trainings


def test_a_resumed_training_is_checked_too(tmp_path: Path, limit: Callable[[int | None], None]) -> None:
    task, stops = find_task("classify"), iter([False] * 5)
    flags = task.trial(tmp_path)
    train(task, flags, out=tmp_path / "run", threads=1, stop=lambda: next(stops, True))
    limit(9000)
    with pytest.raises(UsageError, match="more memory than now"):
        train(task, {}, out=tmp_path / "run", resume=True)
    limit(None)
    heard = Heard()
    assert train(task, {}, out=tmp_path / "run", resume=True, reporter=heard).final["outcome"] == "finished"
    assert any(re.search(r"^estimate: .* for 7 steps and 2 validations$", line) for line in heard.lines)


@pytest.mark.parametrize("kind", TRAINED)
def test_nothing_changes_where_somebody_listens(kind: str, tmp_path: Path) -> None:
    task = find_task(kind)
    flags, heard = task.trial(tmp_path), Heard()
    assert flags.get("dropout")
    train(task, flags, out=tmp_path / "silent", threads=1)
    train(task, flags, out=tmp_path / "heard", threads=1, reporter=heard)
    assert_identical(outcome(tmp_path / "heard"), outcome(tmp_path / "silent"))
    assert sum(line.startswith("estimate: ") for line in heard.lines) == 1
    assert sum(line.startswith("memory: at most ") for line in heard.lines) == 1


def test_recompute_says_what_it_trades_and_changes_nothing(tmp_path: Path) -> None:
    task, heard = find_task("lm"), Heard()
    flags = task.trial(tmp_path) | dict(model="transformer", heads=2, depth=2)
    train(task, flags, out=tmp_path / "plain", threads=1)
    train(task, flags | {"recompute": True}, out=tmp_path / "saving", threads=1, reporter=heard)
    assert_identical(outcome(tmp_path / "saving"), outcome(tmp_path / "plain"))
    lines = [line for line in heard.lines if line.startswith("--recompute: ")]
    assert len(lines) == 1
    assert re.fullmatch(
        r"--recompute: a step holds [\d.]+ kB instead of [\d.]+ kB and takes .* instead of .*", lines[0]
    )


class Normed(Parity):
    """Its model keeps running means, and its validation does not say that it is one."""

    def outline(self, settings: Any, files: Any) -> nn.Module:
        return nn.Sequential(*super().outline(settings, files)[:2], nn.BatchNorm1d(16), nn.Linear(16, 2))  # type: ignore[index]


def test_running_means_do_not_move_where_somebody_listens(tmp_path: Path) -> None:
    for name, reporter in (("silent", Reporter()), ("heard", Heard())):
        train(Normed(), Parity().trial(tmp_path), out=tmp_path / name, threads=1, reporter=reporter)
    assert_identical(outcome(tmp_path / "heard"), outcome(tmp_path / "silent"))


@pytest.mark.parametrize("training", [True, False])
def test_a_validation_is_timed_in_evaluation_mode(training: bool) -> None:
    model, modes = nn.Dropout().train(training), []
    torch.manual_seed(1)
    before = torch.get_rng_state()

    def validate() -> None:
        modes.append(model.training)
        torch.rand(1)

    estimate._seconds_to_validate(model, validate)
    assert modes == [False]
    assert model.training is training
    assert torch.equal(torch.get_rng_state(), before)


# --------------------------------------------------------------------------- steps of a time budget


def begun(kind: str, folder: Path, **flags: Any) -> Any:
    task, settings, data = asked(kind, folder, **flags)
    return begin(task, RunFolder(folder / "run"), settings, data, {}, None, Heard())


def test_the_steps_of_a_time_budget_are_timed_not_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the estimate says: the step that is timed takes 0.01 s here, and 2 s buy at most 200 of them."""
    budgets: list[float] = []
    monkeypatch.setattr(plan, "measure_step", lambda *given: budgets.append(given[3]) or 0.01)
    monkeypatch.setattr(session, "estimate", lambda *_: Estimate(MEMORY, StepSeconds(1e9, 1e9, 1e9, True), 1e9))
    begun_session = begun("lm", tmp_path, budget="2s")
    assert budgets == [2.0]
    assert plan.LEAST_SHARE * 200 <= begun_session.record["steps"] <= 200
    assert begun_session.record["seconds_per_step"] == 0.01


def test_nobody_listens_so_nothing_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "estimate", lambda *_: pytest.fail("timed for nobody"))
    task, settings, data = asked("lm", tmp_path)
    assert begin(task, RunFolder(tmp_path / "run"), settings, data, {}, None, Reporter()).expected is None


# --------------------------------------------------------------------------- what is said

MEMORY = Memory(process=400_000_000, weights=1_000_000, moments=2_000_000, step=30_000_000, reading=5_000_000)


def test_the_lines_of_an_estimate() -> None:
    found = Estimate(MEMORY, StepSeconds(0.25, 0.2, 0.4, timed=True), validation=2.0)
    assert found.lines(100, 5) == [
        "estimate: 250 ms a step (200 ms to 400 ms, timed), 35 s for 100 steps and 5 validations",
        "memory: at most 432 MB; 400 MB are held now, 2.0 MB for the optimiser, 30 MB for a step, 5.0 MB for measuring",
    ]
    priced = dataclasses.replace(found, step=StepSeconds(90, 60, 120, timed=False))
    assert priced.lines(1000, 5)[0] == (
        "estimate: 1 min 30 s a step (1 min 00 s to 2 min 00 s, from the calibration of this machine), "
        "25 h 00 min for 1,000 steps and 5 validations"
    )
    traded = dataclasses.replace(found, traded=Traded(dataclasses.replace(MEMORY, step=90_000_000), 0.125))
    assert traded.lines(100, 5)[2] == (
        "--recompute: a step holds 30 MB instead of 90 MB and takes 250 ms instead of 125 ms"
    )


def test_the_last_step_is_always_validated() -> None:
    assert [validations_in(steps, 4) for steps in (1, 4, 5, 8, 12)] == [1, 1, 2, 2, 3]


def test_a_calibration_is_made_only_for_steps_that_are_too_long_to_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: list[Any] = []
    monkeypatch.setattr(estimate, "calibration_of", lambda **watched: asked_for.append(watched) or calibration())
    quick = begun("classify", tmp_path)
    assert not asked_for
    assert quick.expected.step.timed
    monkeypatch.setattr(forecast, "QUICK", 0.0)
    slow = begun("classify", tmp_path)
    assert len(asked_for) == 1
    assert not slow.expected.step.timed
    assert "from the calibration of this machine" in slow.expected.lines(1, 1)[0]
    assert slow.expected.step.low < slow.expected.step.seconds < slow.expected.step.high
