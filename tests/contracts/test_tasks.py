"""What every registered task promises: a run that survives anything, and files that belong together.

Registering a task tests it: its `trial` says what to train.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.contracts import parity

import seqlab
from seqlab.core.errors import DamageError, SeqlabError, UsageError
from seqlab.core.registry import TASKS
from seqlab.runs.folder import RunFolder
from seqlab.runs.run import Run, load
from seqlab.runs.session import Session
from seqlab.runs.task import Task, find_task
from seqlab.runs.train import train
from seqlab.training.checkpoint import load_tensors

SCRIPT = Path(__file__).with_name("train_task.py")
LOADED = ("settings.toml", "model.safetensors", "checkpoints/last.safetensors", "metrics.jsonl")
CLOCK = {"seconds", "seconds_per_step", "seconds_per_validation", "seconds_to_fit"}


class Crash(BaseException):
    """Stands for the process dying on the spot."""


@pytest.fixture(params=sorted(TASKS))
def task(request: pytest.FixtureRequest) -> Task:
    return find_task(request.param)


@pytest.fixture
def trained(task: Task, tmp_path: Path) -> Callable[..., Run]:
    """Train the task's trial in a folder of the given name; flags may be changed."""

    def make(name: str = "run", *, resume: bool = False, threads: int = 1, **changes: Any) -> Run:
        data = tmp_path / "data"
        data.mkdir(exist_ok=True)
        said = task.trial(data) | changes
        run: Run = train(task, said, out=tmp_path / name, resume=resume, threads=threads)
        return run

    return make


def facts(folder: Path) -> dict[str, Any]:
    """Everything of a run that is not a time or a path."""
    files = RunFolder(folder)
    checkpoint, position = load_tensors(files.checkpoint_file)
    position["position"].pop("seconds")
    lines = [{k: v for k, v in line.items() if k not in CLOCK} for line in files.read_metrics()]
    record = {k: v for k, v in files.read().record.items() if k not in CLOCK | {"asked"}}
    whole = {"model": files.model_file.read_bytes(), "kept": files.kept(record), "identity": files.identity}
    return whole | {"checkpoint": checkpoint, "position": position, "lines": lines, "record": record}


def assert_same(one: dict[str, Any], two: dict[str, Any]) -> None:
    left, right = one.pop("checkpoint"), two.pop("checkpoint")
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert one == two


# --------------------------------------------------------------------------- the toy itself


def test_the_toy_task_is_registered_and_short() -> None:
    lines = Path(parity.__file__).read_text().splitlines()
    code = [line for line in lines if line.strip() and not line.startswith(("from ", "import "))]
    assert TASKS["parity"].endswith("parity:Parity")
    assert len(code) <= 60


def test_the_toy_task_learns(tmp_path: Path) -> None:
    task = parity.Parity()
    run = train(task, task.trial(tmp_path) | {"budget": "400steps", "eval_every": 50}, out=tmp_path / "run", threads=1)
    assert run.final["headline"]["value"] < 0.35 < run.metrics[0]["train_nats_per_string"]


# --------------------------------------------------------------------------- beginning, ending, loading


def test_it_trains_measures_reports_and_loads(task: Task, trained: Callable[..., Run]) -> None:
    run = trained()
    assert run.final is not None
    assert (run.final["step"], run.final["outcome"]) == (12, "finished")
    assert isinstance(run.final["headline"]["value"], float)
    assert run.files.report_file.exists()
    steps = [line for line in run.metrics if not line.get("final")]
    assert all({f"train_{task.unit}", task.counted, "learning_rate", "gradient_norm"} <= line.keys() for line in steps)
    assert [line["step"] for line in steps if f"validation_{task.unit}" in line] == [4, 8, 12]
    loaded = seqlab.load(run.folder)
    assert type(loaded) is type(run)
    assert loaded.settings == run.settings
    assert loaded.task.kind == task.kind
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, loaded.model.state_dict()[name])


def test_a_kind_that_is_not_wanted_is_refused(trained: Callable[..., Run], task: Task) -> None:
    other = next(kind for kind in TASKS if kind != task.kind)
    with pytest.raises(UsageError, match=f"holds a run of kind '{task.kind}', not '{other}'"):
        load(trained().folder, other)


def test_the_same_run_twice_gives_the_same_bytes(trained: Callable[..., Run], tmp_path: Path) -> None:
    one, two = trained("one"), trained("two")
    assert_same(facts(one.folder), facts(two.folder))
    for path in sorted(p for p in one.folder.rglob("*") if p.suffix in (".txt", ".png", ".json", ".safetensors")):
        if "checkpoints" not in path.parts:  # it says how many seconds have passed
            assert path.read_bytes() == (two.folder / path.relative_to(one.folder)).read_bytes(), path
    texts = [(run.folder / "settings.toml").read_text().split("sha256", 2)[-1] for run in (one, two)]
    assert texts[0] == texts[1]


def test_another_seed_or_data_is_another_run(trained: Callable[..., Run], task: Task, tmp_path: Path) -> None:
    one = trained("one")
    assert one.files.identity != trained("two", seed=1).files.identity
    assert one.files.identity != trained("three", budget="8steps").files.identity
    place = {name: value for name, value in task.trial(tmp_path / "data").items() if str(tmp_path) in str(value)}
    moved = {name: str(tmp_path / "moved" / Path(value).name) for name, value in place.items()}
    shutil.copytree(tmp_path / "data", tmp_path / "moved")
    assert one.files.identity == trained("four", **moved).files.identity, "a path decides nothing"
    for value in moved.values():
        Path(value).write_text(Path(value).read_text().replace("1", "3"))
    assert one.files.identity != trained("five", **moved).files.identity


def test_other_data_are_refused(trained: Callable[..., Run], task: Task, tmp_path: Path, monkeypatch: Any) -> None:
    dying_at(monkeypatch, 6)
    with pytest.raises(Crash):
        trained()
    monkeypatch.undo()
    for value in (value for value in task.trial(tmp_path / "data").values() if str(tmp_path) in str(value)):
        Path(value).write_text(Path(value).read_text().replace("1", "3"))
    with pytest.raises(UsageError, match=r"is not (what|the text)"):
        train(task, {}, out=tmp_path / "run", resume=True)


# Two threads of a run wait for those of the test beside it: that half of the test takes minutes and is in check-long.
@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.long)])
def test_the_threads_of_the_run_are_kept(
    trained: Callable[..., Run], task: Task, tmp_path: Path, threads: int, monkeypatch: Any
) -> None:
    whole = trained("whole", threads=threads)
    dying_at(monkeypatch, 6)
    with pytest.raises(Crash):
        trained("torn", threads=threads)
    monkeypatch.undo()
    with pytest.raises(UsageError, match=f"--threads {3 - threads} conflicts with the run's {threads}"):
        train(task, {}, out=tmp_path / "torn", resume=True, threads=3 - threads)
    train(task, {}, out=tmp_path / "torn", resume=True)
    assert_same(facts(tmp_path / "torn"), facts(whole.folder))
    assert torch.get_num_threads() == 1


# --------------------------------------------------------------------------- dying


def dying_at(monkeypatch: Any, step: int) -> None:
    """Have the process die after a step."""

    def die(session: Session, position: Any) -> None:
        if position.step == step:
            raise Crash

    monkeypatch.setattr(Session, "after_step", die)


@dataclass
class Dying:
    """An `os.replace` that dies at its k-th call for a place."""

    place: Path
    left: int
    replace: Callable[..., None]

    def __call__(self, source: Any, target: Any) -> None:
        if Path(target).is_relative_to(self.place):
            self.left -= 1
            if self.left < 0:
                raise Crash
        self.replace(source, target)


def test_a_crash_at_every_replacement_of_a_file(trained: Callable[..., Run], tmp_path: Path, monkeypatch: Any) -> None:
    """The run dies at its k-th replacement of a file, for every k; each torn folder is resumed to the same bits."""
    expected = trained("whole")
    for die_at in range(100):
        folder = tmp_path / f"torn-{die_at}"
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", Dying(folder, die_at, os.replace))
            try:
                trained(folder.name)
            except Crash:
                pass
            else:
                break
        trained(folder.name, resume=True)
        assert_same(facts(folder), facts(expected.folder))
        shutil.rmtree(folder)
    assert die_at >= 9  # mark, kept file, checkpoints, settings, best weights, report


def start(task: Task, tmp_path: Path, *more: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    (tmp_path / "data").mkdir(exist_ok=True)
    words = [sys.executable, str(SCRIPT), task.kind, str(tmp_path / "run"), str(tmp_path / "data"), *more]
    return subprocess.Popen([*before, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_lines(folder: Path, wanted: int, process: subprocess.Popen[str]) -> None:
    metrics = folder / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_bytes().count(b"\n") >= wanted):
        time.sleep(0.005)


LONG = {"budget": "600steps", "eval_every": 50, "patience": 0}


def test_sigkill_and_signals(task: Task, trained: Callable[..., Run], tmp_path: Path) -> None:
    """SIGKILL, then SIGTERM, then SIGHUP, on real processes; then it ends as if nothing had happened."""
    for stop, wanted in ((signal.SIGKILL, 1), (signal.SIGTERM, 30), (signal.SIGHUP, 60)):
        process = start(task, tmp_path, *(f"{name}={value}" for name, value in LONG.items()))
        wait_for_lines(tmp_path / "run", wanted, process)
        process.send_signal(stop)
        said, messages = process.communicate()
        if stop is signal.SIGKILL:
            assert process.returncode == -signal.SIGKILL, messages
        else:
            assert (process.returncode, said.strip()) == (0, "interrupted"), messages
    trained("run", resume=True, **LONG)
    trained("whole", **LONG)
    assert_same(facts(tmp_path / "run"), facts(tmp_path / "whole"))


def test_under_nohup_it_goes_on(task: Task, tmp_path: Path) -> None:
    process = start(task, tmp_path, "budget=600steps", "eval_every=200", before=("nohup",))
    wait_for_lines(tmp_path / "run", 1, process)
    process.send_signal(signal.SIGHUP)
    said, messages = process.communicate()
    assert (process.returncode, said.strip().splitlines()[-1]) == (0, "finished"), messages


def test_a_run_in_a_thread_can_be_stopped(task: Task, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    said = task.trial(tmp_path / "data") | {"budget": "100000steps", "patience": 0, "eval_every": 50_000}
    event, found = threading.Event(), []

    def work() -> None:
        found.append(train(task, said, out=tmp_path / "run", threads=1, stop=event.is_set))

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive() and not (tmp_path / "run" / "settings.toml").exists():
        time.sleep(0.01)
    event.set()
    thread.join(60)
    assert not thread.is_alive()
    assert found[0].interrupted


# --------------------------------------------------------------------------- damage and strangers


def test_two_writers(trained: Callable[..., Run], task: Task, tmp_path: Path) -> None:
    run = trained()
    with run.files.locked():
        with pytest.raises(UsageError, match="another process is training in"):
            trained(resume=True, budget="20steps")
        (tmp_path / "held").mkdir()
        with RunFolder(tmp_path / "held").locked(), pytest.raises(UsageError, match="another process is training in"):
            trained("held")
    assert trained(resume=True, budget="20steps").final["step"] == 20  # type: ignore[index]
    assert not list(run.folder.glob(".lock"))


def test_leftovers_of_killed_writes_are_removed(trained: Callable[..., Run], tmp_path: Path) -> None:
    run = trained()
    leftovers = [run.folder / ".model.safetensors.123.partial", run.folder / "checkpoints" / ".last.x.7.partial"]
    for path in leftovers:
        path.write_bytes(b"half")
    trained(resume=True, budget="14steps")
    assert not any(path.exists() for path in leftovers)


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


@pytest.fixture
def half_done(trained: Callable[..., Run], tmp_path: Path, monkeypatch: Any) -> Path:
    with monkeypatch.context() as patch:
        dying_at(patch, 9)
        with pytest.raises(Crash):
            trained("half")
    return tmp_path / "half"


def test_damage_anywhere_is_named(half_done: Path, task: Task) -> None:
    """One flipped bit in any file that is loaded; nothing of it is used, nothing is written."""
    kept = sorted(RunFolder(half_done).read().record["files"])
    for name in (*LOADED, *kept):
        path = half_done / name
        content = path.read_bytes()
        for where in (0.2, 0.5, 0.8, 0.99):
            position = int(where * len(content))
            while chr(content[position]).isspace():
                position += 1
            path.write_bytes(flipped(content, position))
            with pytest.raises(SeqlabError, match=path.name):
                load(half_done)
                train(task, {}, out=half_done, resume=True)
                seqlab.load(half_done).metrics  # noqa: B018
            path.write_bytes(content)
    assert train(task, {}, out=half_done, resume=True).final["step"] == 12


def test_a_missing_file_is_named(half_done: Path, task: Task) -> None:
    kept = sorted(RunFolder(half_done).read().record["files"])
    for name in ("checkpoints/last.safetensors", "metrics.jsonl", *kept):
        path = half_done / name
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(DamageError, match=path.name):
            train(task, {}, out=half_done, resume=True)
        path.write_bytes(content)


@pytest.mark.parametrize("name", LOADED)
def test_a_file_of_another_run_is_refused(
    half_done: Path, trained: Callable[..., Run], task: Task, tmp_path: Path, name: str, monkeypatch: Any
) -> None:
    """Another seed makes the same shapes and the same steps: nothing but the identity tells the two apart."""
    with monkeypatch.context() as patch:
        dying_at(patch, 9)
        with pytest.raises(Crash):
            trained("other", seed=1)
    own = (half_done / name).read_bytes()
    shutil.copy(tmp_path / "other" / name, half_done / name)
    before = {p: p.read_bytes() for p in half_done.rglob("*") if p.is_file()}
    with pytest.raises(DamageError, match="belongs to another run"):
        if name == "model.safetensors":
            load(half_done)
        train(task, {}, out=half_done, resume=True)
    if name == "metrics.jsonl":
        with pytest.raises(DamageError, match=r"metrics\.jsonl belongs to another run"):
            load(half_done).metrics  # noqa: B018
    assert {p: p.read_bytes() for p in half_done.rglob("*") if p.is_file()} == before
    (half_done / name).write_bytes(own)
    assert train(task, {}, out=half_done, resume=True).final["step"] == 12


def test_every_line_and_tensor_file_names_the_run(trained: Callable[..., Run]) -> None:
    run = trained()
    identity = run.files.identity
    assert identity is not None
    lines = [json.loads(line) for line in run.files.metrics_file.read_text().splitlines()]
    assert {line["run"] for line in lines} == {identity[:16]}
    for path in (run.files.model_file, run.files.checkpoint_file):
        assert load_tensors(path)[1]["run"] == identity
    longer = trained(resume=True, budget="16steps")
    assert longer.files.identity == identity == RunFolder(longer.folder).identity, "kept by resume"
