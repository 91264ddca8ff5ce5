"""Predictions on drawn data: of every kind, of runs of every task, with calibrations good and bad."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.workflows.cost.test_costed_settings import KINDS, asked

import seqlab
from seqlab.core.errors import UsageError
from seqlab.diagnostics import machine
from seqlab.diagnostics.machine import Calibration, Table
from seqlab.runs.task import find_task
from seqlab.runs.train import train
from seqlab.workflows.cost import estimate, predict, words
from seqlab.workflows.cost.drawn import draw, drawn_ids
from seqlab.workflows.cost.estimate import estimate_cost
from seqlab.workflows.cost.request import check_cost
from seqlab.workflows.cost.shapes import build, settled

TINY = dict(width=16, threads=1, batch=4, vocab_size=60)


# --------------------------------------------------------------------------- drawn data


@pytest.mark.parametrize(("task", "kind"), KINDS)
def test_drawn_batches_are_full(task: str, kind: str) -> None:
    """Rows and lengths are those that were counted, and the model learns from them."""
    request = check_cost(task=task, said=dict(model=kind, batch=40, width=16, vocab_size=90))
    settings = settled(request.asked, request.shapes)
    model, data = build(request), draw(dataclasses.replace(request.asked, settings=settings), request.shapes)
    learning = find_task(task).learning(settings, data, model)
    assert learning is not None
    batch: Any = learning.batches(0)
    shapes = request.shapes
    full = (shapes.rows, shapes.length)
    if task == "classify":
        sizes = batch.inputs.offsets.diff() if kind == "average" else batch.inputs.lengths
        assert sizes.tolist() == [shapes.length] * shapes.rows
        if kind == "average":
            assert all(len(set(bag.tolist())) == shapes.length for bag in batch.inputs.features.split(shapes.length))
            assert int(batch.inputs.features.max()) < shapes.vocabulary
    elif kind != "bigram":
        assert batch.inputs.shape == batch.targets.shape == full
    loss = learning.objective(model, batch, None)
    assert torch.isfinite(loss.total)
    assert loss.count == batch.count


def test_drawn_ids_are_as_frequent_as_words() -> None:
    """p(id) = ln((id+2)/(id+1)) / ln(V+1)"""
    ids = drawn_ids(200_000, 50, seed=1)
    assert ids.min() == 0
    assert ids.max() == 49
    for k in (0, 1, 10):
        assert (ids == k).mean() == pytest.approx(math.log((k + 2) / (k + 1)) / math.log(51), rel=0.1)


# --------------------------------------------------------------------------- predicted


@pytest.mark.parametrize(("task", "kind"), KINDS)
def test_every_kind_is_predicted(task: str, kind: str) -> None:
    lengths = dict(context=8) if task == "lm" else dict(length=8)
    found = estimate_cost(task=task, model=kind, budget="30steps", **TINY, **lengths)
    assert found.prediction is not None
    step = found.prediction.step
    assert 0 < step.low <= step.seconds <= step.high
    assert found.steps == 30
    assert found.seconds == pytest.approx(30 * step.seconds)
    memory = found.prediction.memory
    assert memory.peak >= memory.moments == found.cost.optimiser_bytes
    assert found.page is None
    said = found.as_json()
    assert said["seconds_per_step"] == step.seconds
    assert said["peak_bytes"] == memory.peak
    assert said["fits"] in (True, None)


def test_budgets_become_steps() -> None:
    def steps(task: str, seconds: float | None = 0.5, **said: Any) -> int | None:
        request = check_cost(task=task, said=said)
        return predict.steps_of(request.asked, request.shapes, seconds)

    assert steps("lm", budget="60s") == 120
    assert steps("lm", None, budget="60s") is None
    assert steps("lm", budget="7steps") == 7
    assert steps("lm", budget="1000tokens", batch=4, context=8) == 32
    assert steps("lm", budget="3epochs", tokens=1000, batch=4, context=8) == 3 * 31
    assert steps("classify", model="gru", budget="2epochs", texts=100, batch=8) == 2 * 13
    assert steps("classify", model="average") is None
    assert steps("translate", budget="2epochs", pairs=100, batch=64, length=8) == 2 * 13


def test_what_is_too_large_is_counted_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is made."""
    monkeypatch.setattr(predict, "build", None)
    monkeypatch.setattr(estimate, "available_bytes", lambda: 10**9)
    huge = estimate_cost(model="transformer", width=8192, depth=40, heads=64)
    assert huge.prediction is huge.seconds is None
    assert huge.fits is False
    assert "weights, gradients and moments alone need" in str(huge.unpredicted)
    assert "no prediction" in " ".join(words.prediction(huge))
    assert huge.as_json()["seconds_per_step"] is None
    wide = estimate_cost(model="gru", batch=1_000_000, context=1000, width=16, vocab_size=20)
    assert "a batch alone needs" in str(wide.unpredicted)
    piece = estimate_cost(model="transformer", batch=4, context=1_000_000, width=16, heads=2, vocab_size=20)
    assert "the least piece of a batch" in str(piece.unpredicted)
    monkeypatch.setattr(estimate, "available_bytes", lambda: 10**15)
    assert "more than 10 TFLOP" in str(
        estimate_cost(model="transformer", batch=4, context=1_000_000, width=64, vocab_size=20).unpredicted
    )


def test_what_does_not_fit_says_what_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "available_bytes", lambda: 1000)
    found = estimate_cost(model="gru", **TINY, context=8)
    assert found.fits is False
    said = words.fits(found)
    assert said.startswith("it does not fit")
    assert "choose a smaller --size" in said


# --------------------------------------------------------------------------- the calibration


@pytest.fixture
def quick_calibration(monkeypatch: pytest.MonkeyPatch) -> list[Calibration]:
    """One that takes no time; the list has one more each time one is made."""
    made: list[Calibration] = []

    def calibrate(progress: Any = None) -> Calibration:
        tables = {kind: Table(((1.0,),) * axes, (1e-6,)) for kind, axes in machine.KINDS.items()}
        made.append(Calibration(machine.machine_identity(), tables, 1e-6, 1e-3))
        return made[-1]

    monkeypatch.setattr(machine, "calibrate", calibrate)
    return made


def test_a_calibration_is_made_when_asked_for(quick_calibration: list[Calibration], tmp_path: Path) -> None:
    file = tmp_path / "here.json"
    said: dict[str, Any] = dict(model="gru", context=8, **TINY)
    estimate_cost(**said)
    assert not quick_calibration, "a quick step is timed whole"
    estimate_cost(**said, calibrate=True, calibration=file)
    assert len(quick_calibration) == 1
    assert file.is_file()
    estimate_cost(**said, calibration=file)
    assert len(quick_calibration) == 1
    file.write_text(file.read_text().replace('"threads": 1', '"threads": 99'))
    with pytest.raises(UsageError, match="calibrated on another machine"):
        estimate_cost(**said, calibration=file)
    file.write_text("{")
    with pytest.raises(UsageError, match="holds no calibration"):
        estimate_cost(**said, calibration=file)


# --------------------------------------------------------------------------- runs


@pytest.mark.parametrize("kind", ["lm", "classify", "translate"])
def test_a_run_of_every_task(kind: str, tmp_path: Path) -> None:
    task = find_task(kind)
    folder = tmp_path / "data"
    folder.mkdir()
    run = train(task, task.trial(folder), out=tmp_path / "run", threads=1)
    found = estimate_cost(run.folder, threads=1)
    shapes = found.request.shapes
    learnt = seqlab.cost(run, shapes.rows, shapes.length)
    assert (found.cost.parameters, found.cost.parts) == (run.record["parameters"], learnt.parts)
    assert found.steps == run.record["steps"] == 12
    assert found.page == run.folder / "cost.html"
    page = found.page.read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 2
    assert "http" not in page
    again = estimate_cost(
        run.folder, threads=1, batch=40, budget="5steps", optimiser="sgd", out=tmp_path / "other.html"
    )
    assert again.steps == 5
    assert again.cost.optimiser_bytes == 0
    assert again.cost.batch == (40 if kind != "translate" else 40 // shapes.length)
    assert again.page == tmp_path / "other.html"
    with pytest.raises(UsageError, match="has its own width; leave out --width"):
        estimate_cost(run.folder, width=8)
    with pytest.raises(UsageError, match="both say what the model is"):
        estimate_cost(run.folder, model="gru")


def test_learned_positions_of_a_run_end(tmp_path: Path) -> None:
    task = find_task("lm")
    said = task.trial(tmp_path) | dict(model="transformer", positions="learned", heads=2, budget="2steps")
    train(task, said, out=tmp_path / "run", threads=1)
    with pytest.raises(UsageError, match="--context 9 is beyond the 8 learned positions"):
        check_cost(tmp_path / "run", said=dict(context=9))
    assert check_cost(tmp_path / "run", said=dict(context=4)).shapes.length == 4


def test_a_bigram_reads_the_whole_text_in_each_step(tmp_path: Path) -> None:
    task = find_task("lm")
    said = dict(text=task.trial(tmp_path)["text"], model="bigram", budget="2steps", batch=4, context=8)
    run = train(task, said, out=tmp_path / "run", threads=1)
    request = check_cost(run.folder, said=dict(budget="3epochs"))
    assert (request.shapes.rows, request.shapes.length, request.shapes.examples) == (4, 8, run.record["batch"])
    assert predict.steps_of(request.asked, request.shapes, None) == 3
    data = draw(request.asked, request.shapes)
    assert len(data.parts["train"].ids) == run.record["batch"]
    assumed = " ".join(asked("lm", model="bigram").request.shapes.assumed)
    assert "a text of 100,000 tokens (--tokens), all of it in each step" in assumed


def test_a_counted_run_has_no_steps(tmp_path: Path) -> None:
    task = find_task("lm")
    text = task.trial(tmp_path)["text"]
    train(task, dict(text=text, model="ngram", tokenizer="char"), out=tmp_path / "run", threads=1)
    with pytest.raises(UsageError, match="counted, not trained"):
        check_cost(tmp_path / "run", said={})
