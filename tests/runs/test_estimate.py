"""What a training says before its first step, what it refuses, and that every remedy it names is one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import nonsense
from tests.contracts.parity import Parity
from tests.diagnostics.test_machine import calibration
from tests.runs.test_resume import assert_identical, outcome
from torch import nn

from seqlab.core.eager import without_numbers
from seqlab.core.errors import UsageError
from seqlab.core.reporting import Reporter
from seqlab.diagnostics import forecast
from seqlab.diagnostics.forecast import Memory, StepSeconds
from seqlab.runs import estimate, session
from seqlab.runs.estimate import Estimate, Traded, check_memory, check_weights, validations_in
from seqlab.runs.folder import RunFolder
from seqlab.runs.session import begin
from seqlab.runs.task import Task, find_task
from seqlab.runs.train import asked_settings, train
from seqlab.training import plan
from seqlab.training.plan import measure_validation

TRAINED = ("lm", "classify", "translate")


class Heard(Reporter):
    listening = True

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(autouse=True)
def steps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading and the report would hide what a small step holds; and every piece is tried, however slow the machine."""
    monkeypatch.setattr(forecast, "QUICK", 1e3)
    monkeypatch.setattr(Task, "later_bytes", lambda *_: 0)
    for kind in TRAINED:
        monkeypatch.setattr(type(find_task(kind)), "later_bytes", lambda *_: 0)
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


def with_said(asked: Asked, said: dict[str, Any]) -> Asked:
    task, settings, data = asked
    groups: dict[str, dict[str, Any]] = {}
    for name, value in said.items():
        group = "model" if hasattr(settings.model, name) else "training"
        groups.setdefault(group, {})[name] = value
    changed = {name: dataclasses.replace(getattr(settings, name), **values) for name, values in groups.items()}
    return task, task.fill(dataclasses.replace(settings, **changed)), data


def checked(asked: Asked) -> Memory:
    """What every training does before it begins."""
    task, settings, data = asked
    check_weights(task, settings, data)
    model = task.build(settings, data, Reporter())
    learning = task.learning(settings, data, model)
    assert learning is not None
    return check_memory(task, settings, model, learning, data)


def refusal(asked: Asked) -> str:
    with pytest.raises(UsageError) as caught:
        checked(asked)
    line = str(caught.value)
    assert "\n" not in line
    return line


def remedy_of(line: str) -> dict[str, Any]:
    """The flags of '--recompute --accumulate 4 would fit, …'; none where none is named with its value."""
    words = re.fullmatch(r".*; (--.*) would fit(?:, with the same gradients)?", line)
    if words is None:
        return {}
    found = re.findall(r"--([a-z-]+)(?: (\d+))?", words[1])
    return {name.replace("-", "_"): int(value) if value else True for name, value in found}


# --------------------------------------------------------------------------- remedies

CHOOSE = r"; choose a smaller --[a-z-]+(, --[a-z-]+)*( or --[a-z-]+)?( \(they would fit with --width \d+\))?$"

CASES: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "lm gru": ("lm", dict(batch=16, context=16), {"accumulate", "context", "width"}),
    "lm gru, for a time": ("lm", dict(batch=16, context=16, budget="60s"), {"accumulate", "context", "width"}),
    "lm gru, already in pieces": ("lm", dict(batch=16, context=16, accumulate=4), {"accumulate", "context", "width"}),
    "lm transformer": (
        "lm",
        dict(model="transformer", heads=2, batch=4, context=64, depth=2),
        {"accumulate", "recompute", "context", "width"},
    ),
    "lm bigram": ("lm", dict(model="bigram", depth=None, dropout=None, width=64), {"width"}),
    "classify gru": ("classify", dict(batch=16), {"accumulate", "width"}),
    "classify transformer": (
        "classify",
        dict(model="transformer", heads=2, batch=16, width=16, depth=2),
        {"accumulate", "recompute", "width"},
    ),
    "translate transformer": ("translate", dict(depth=2, decoder_depth=1), {"accumulate", "recompute", "width"}),
    "translate gru": ("translate", dict(model="gru", heads=None, width=32), {"accumulate", "width"}),
}


@pytest.mark.parametrize("name", CASES)
def test_whatever_is_named_as_a_remedy_fits(
    name: str, tmp_path: Path, limit: Callable[[int | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From just too little memory to far too little: the setting in the line is taken, and passes the same check."""
    kind, flags, expected = CASES[name]
    monkeypatch.setattr(estimate, "LEAST_WIDTH", 4)
    wanted, seen = asked(kind, tmp_path, **flags), set()
    limit(None)
    needed = checked(wanted).needed
    limit(needed)
    assert checked(wanted).needed == needed  # exactly enough is enough
    for share in (0.9, 0.35):
        limit(int(share * needed))
        line = refusal(wanted)
        said = remedy_of(line)
        seen |= said.keys()
        if said:
            assert checked(with_said(wanted, said)).needed <= share * needed, line
        else:
            assert re.search(CHOOSE, line), line
        assert kind == "lm" or "context" not in line
    assert seen <= expected
    assert seen, "no remedy was ever named"


def test_pieces_come_first_and_are_the_fewest(tmp_path: Path, limit: Callable[[int | None], None]) -> None:
    wanted = asked("translate", tmp_path)
    limit(None)
    needed = {pieces: checked(with_said(wanted, {"accumulate": pieces})).needed for pieces in (1, 2, 4)}
    for enough, too_few in ((2, 1), (4, 2)):
        limit(needed[enough])
        assert remedy_of(refusal(wanted)) == {"accumulate": enough}
        limit(needed[enough] - 1)
        assert remedy_of(refusal(wanted)) != {"accumulate": enough}
        assert needed[too_few] > needed[enough]


def test_recompute_comes_before_another_model(tmp_path: Path, limit: Callable[[int | None], None]) -> None:
    wanted = asked("lm", tmp_path, model="transformer", heads=2, depth=4, width=16, batch=1, context=128)
    limit(None)
    needed = checked(with_said(wanted, {"recompute": True})).needed
    assert needed < 0.8 * checked(wanted).needed
    limit(needed)
    line = refusal(wanted)
    assert line.endswith("--recompute would fit, with the same gradients")
    checked(with_said(wanted, remedy_of(line)))


@pytest.mark.parametrize("share", [0.6, 0.2])
def test_long_rows_are_named_shorter(share: float, tmp_path: Path, limit: Callable[[int | None], None]) -> None:
    """Rows so long that shorter ones are rehearsed instead."""
    text = tmp_path / "long.txt"
    text.write_text(nonsense(4500), encoding="utf-8")
    sizes = dict(model="transformer", heads=2, width=8, depth=1, attention="softmax", batch=2, context=4096)
    wanted = asked("lm", tmp_path, **(sizes | {"text": str(text), "recompute": True}))
    assert wanted[1].training.context >= forecast.LONG
    limit(None)
    needed = checked(with_said(wanted, {"accumulate": 2})).needed
    limit(int(share * needed))
    line = refusal(wanted)
    said = remedy_of(line)
    assert said["context"] <= 2048
    assert checked(with_said(wanted, said)).needed <= share * needed, line


def test_where_the_report_alone_does_not_fit_no_setting_is_named(
    tmp_path: Path, limit: Callable[[int | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(find_task("lm")), "later_bytes", lambda *_: 10**9)
    limit(10**8)
    assert refusal(asked("lm", tmp_path)).endswith("; free some memory: measuring and the report alone need 1.0 GB")


def test_a_task_that_names_no_sizes_says_what_else_helps(tmp_path: Path, limit: Callable[[int | None], None]) -> None:
    task = Parity()
    settings = asked_settings(task, task.trial(tmp_path))
    limit(4000)
    assert refusal((task, settings, task.prepare(settings, Reporter()))).endswith("; free some memory")


def test_a_model_without_a_task_is_not_told_of_flags(tmp_path: Path, limit: Callable[[int | None], None]) -> None:
    task, settings, data = asked("lm", tmp_path)
    model = task.build(settings, data, Reporter())
    learning = task.learning(settings, data, model)
    assert learning is not None
    memory, rehearsal = estimate._rehearsed(task, settings, model, learning, data)
    found = estimate.what_fits(model, learning, settings.training, rehearsal, memory, 10.0)
    assert found == "choose a smaller model"


# --------------------------------------------------------------------------- weights and batches


@pytest.mark.parametrize("kind", TRAINED)
def test_weights_that_do_not_fit_are_refused_before_they_are_made(
    kind: str, tmp_path: Path, limit: Callable[[int | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, settings, data = asked(kind, tmp_path, width=512)
    model = task.build(settings, data, Reporter())
    needed = 4 * sum(weight.numel() * weight.element_size() for weight in model.parameters())  # θ, g and Adam's two
    with without_numbers():
        needed += sum(t.numel() * t.element_size() for t in task.outline(settings, data.files).buffers() if t.is_meta)
    monkeypatch.setattr(type(task), "build", lambda *_: pytest.fail("it was made"))
    limit(needed)
    check_weights(task, settings, data)
    limit(needed - 1)
    line = refusal((task, settings, data))
    assert line.startswith("the model's weights, gradients and moments need ")
    assert ("--size" in line) == hasattr(settings.model, "size")
    assert line.endswith(" (they would fit with --width 256)")
    check_weights(*with_said((task, settings, data), {"width": 256}))


def test_weights_that_do_not_learn_have_neither_gradients_nor_moments(
    tmp_path: Path, limit: Callable[[int | None], None]
) -> None:
    wanted = asked("lm", tmp_path, model="bigram", depth=None, dropout=None, train_vectors=False)
    model = wanted[0].build(wanted[1], wanted[2], Reporter())
    sizes = [(weight.numel() * 4, weight.requires_grad) for weight in model.parameters()]
    assert {learns for _, learns in sizes} == {True, False}
    needed = sum(size * (4 if learns else 1) for size, learns in sizes)
    limit(needed)
    check_weights(*wanted)
    limit(needed - 1)
    with pytest.raises(UsageError, match="weights, gradients and moments"):
        check_weights(*wanted)


def test_what_is_fitted_at_once_has_no_weights_to_check(tmp_path: Path, limit: Callable[[int | None], None]) -> None:
    limit(1)
    text = find_task("lm").trial(tmp_path)["text"]
    check_weights(*asked("lm", tmp_path, model="ngram", order=3, **dict.fromkeys(ONLY_NEURAL), text=text))


ONLY_NEURAL = ("width", "depth", "batch", "context", "dropout", "budget", "eval_every")


BATCHES: list[tuple[str, dict[str, Any]]] = [
    ("lm", {"batch": 64}),
    ("lm", {"batch": 4000}),  # more than the text has
    ("lm", {"batch": 64, "model": "bigram", "depth": None, "dropout": None, "full_gradient": False}),
    ("classify", {"batch": 64}),
    ("translate", {"batch": 4000}),
]


@pytest.mark.parametrize(("kind", "flags"), BATCHES)
def test_a_batch_that_is_too_large_to_be_made(kind: str, flags: dict[str, Any], tmp_path: Path) -> None:
    task, settings, data = asked(kind, tmp_path, **flags)
    model = task.build(settings, data, Reporter())

    def check(batch: int, spare: int) -> int:
        _, changed, _ = with_said((task, settings, data), {"batch": batch})
        learning = task.learning(changed, data, model)
        assert learning is not None
        estimate._check_batch(task, changed, model, learning, data, spare)
        count: int = learning.batches.count_per_step
        return count

    count = check(flags["batch"], 10**9)
    spare = count * estimate.BYTES_PER_ITEM  # of which half may be a batch
    with pytest.raises(UsageError) as caught:
        check(flags["batch"], spare)
    words = re.fullmatch(r"a batch of ([\d,]+) \w+ needs .*; choose --batch (\d+) or less", str(caught.value))
    assert words is not None
    assert int(words[1].replace(",", "")) == count
    assert count / 4 <= check(int(words[2]), spare) <= count / 2
    assert check(flags["batch"], 2 * spare) == count


def test_all_pairs_at_once_are_no_batch_that_anybody_chose(tmp_path: Path) -> None:
    task, settings, data = asked("lm", tmp_path, model="bigram", depth=None, dropout=None)
    assert settings.training.full_gradient
    model = task.build(settings, data, Reporter())
    learning = task.learning(settings, data, model)
    assert learning is not None
    estimate._check_batch(task, settings, model, learning, data, 1)


def test_where_the_system_does_not_say_nothing_is_refused(tmp_path: Path, limit: Callable[[int | None], None]) -> None:
    limit(None)
    assert checked(asked("classify", tmp_path)).needed > 0


# --------------------------------------------------------------------------- trainings


def test_a_refused_training_leaves_nothing_and_its_remedy_finishes(
    tmp_path: Path, limit: Callable[[int | None], None]
) -> None:
    wanted = asked("translate", tmp_path)
    flags = wanted[0].trial(tmp_path) | {"dropout": 0.0}
    limit(None)
    limit(int(0.45 * checked(wanted).needed))
    with pytest.raises(UsageError, match="--accumulate 8 would fit, with the same gradients") as caught:
        train(wanted[0], flags, out=tmp_path / "run", threads=1)
    assert not (tmp_path / "run").exists()
    run = train(wanted[0], flags | remedy_of(str(caught.value)), out=tmp_path / "run", threads=1)
    assert (run.final["outcome"], run.final["step"]) == ("finished", 12)


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


def test_what_recompute_is_compared_with_is_the_same_training_without_it(tmp_path: Path) -> None:
    flags = dict(model="transformer", heads=2, depth=3)
    plain, saving = (begun("lm", tmp_path, **flags, recompute=on).expected for on in (False, True))
    assert plain.traded is None
    assert saving.traded.without.step == plain.memory.step > saving.memory.step


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

    measure_validation(model, validate)
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
    begun_session = begun("lm", tmp_path, budget="2s", guide="none")
    assert budgets == [2.0]
    assert plan.LEAST_SHARE * 200 <= begun_session.record["steps"] <= 200
    assert begun_session.record["seconds_per_step"] == 0.01


@pytest.mark.parametrize(("seconds", "speed"), [(0.03, "faster"), (0.005, "slower"), (0.012, None)])
def test_an_estimate_far_from_the_budget_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, speed: str | None
) -> None:
    monkeypatch.setattr(plan, "measure_step", lambda *_: 0.01)
    monkeypatch.setattr(plan, "measure_validation", lambda *_: 0.0)
    monkeypatch.setattr(session, "estimate", lambda *_: Estimate(MEMORY, StepSeconds(seconds, 0, 1, True), 0.0))
    found = begun("lm", tmp_path, budget="2s", guide="none")
    found._say_what_it_takes()
    remark = f"; --budget 2s bought so many at 10 ms a step: the machine was {speed} at that moment" if speed else ""
    assert found.reporter.lines[-2].endswith(f"{200 * seconds:.1f} s for 200 steps and 50 validations{remark}")
    found.position.step = 100
    found._say_what_it_takes()
    assert "machine" not in found.reporter.lines[-2]


def test_what_takes_long_in_planning_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(Heard, "start", lambda _self, task, _total: said.append(task))
    monkeypatch.setattr(Heard, "advance", lambda _self, done: said.append(f"{done:.0%}"))
    begun("lm", tmp_path, budget="3steps", guide="none")
    assert said == ["rehearsing a step: will it fit into memory?", "timing a step", "100%", "timing a validation"]
    monkeypatch.setattr(
        estimate, "calibration_of", lambda progress: progress(1.0) or pytest.fail("the machine is measured")
    )
    monkeypatch.setattr(forecast, "QUICK", 0.0)
    with pytest.raises(pytest.fail.Exception):
        begun("lm", tmp_path, budget="3steps", guide="none")
    assert said[-2:] == ["measuring this machine, once: a step is too long to be timed whole", "100%"]


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
