"""Estimates of every task, kind and size: what is counted adds up and is what `seqlab.cost` counts."""

from __future__ import annotations

import ast
import dataclasses
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

import seqlab
from seqlab.core.errors import UsageError
from seqlab.core.registry import CLASSIFIERS, MODELS, TRANSLATORS, look_up
from seqlab.core.settings import classify, lm, translate
from seqlab.core.settings.cost import COSTED, NOT_COUNTED, cost_fields
from seqlab.core.settings.fields import flags_of
from seqlab.core.settings.training import SIZES
from seqlab.diagnostics import machine
from seqlab.diagnostics.cost import count_parameters
from seqlab.diagnostics.machine import Calibration, Table
from seqlab.models import build_lm
from seqlab.runs.task import find_task
from seqlab.runs.train import train
from seqlab.workflows.cost import estimate, predict, words
from seqlab.workflows.cost.drawn import draw, drawn_ids
from seqlab.workflows.cost.estimate import CostEstimate, counted, estimate_cost
from seqlab.workflows.cost.record import as_json
from seqlab.workflows.cost.request import check_cost
from seqlab.workflows.cost.shapes import build, settled

TINY = dict(width=16, threads=1, batch=4, vocab_size=60)
PRESETS = [
    *(("lm", kind, size) for kind in MODELS for size in SIZES),
    *(("classify", kind, None) for kind in CLASSIFIERS),
    *(("translate", kind, size) for kind in TRANSLATORS for size in SIZES),
]
KINDS = [(task, kind) for task, kind, size in PRESETS if size in (None, "small")]


def asked(task: str, **said: Any) -> CostEstimate:
    """Counted only."""
    return counted(check_cost(task=task, said=said))


def value_of(formula: str, symbols: dict[str, int]) -> Fraction:
    """Sums of products; a factor is a number, a symbol, or a small expression in brackets."""
    return sum((product(text, symbols) for text in formula.split(" + ")), Fraction(0))


def product(text: str, symbols: dict[str, int]) -> Fraction:
    found = Fraction(1)
    for factor in text.split("·"):
        found *= Fraction(symbols[factor]) if factor in symbols else expression(factor, symbols)
    return found


def expression(text: str, symbols: dict[str, int]) -> Fraction:
    """Such as (n_t+1)/2."""

    def walk(node: ast.expr) -> Fraction:
        if isinstance(node, ast.BinOp):
            a, b = walk(node.left), walk(node.right)
            sign = {ast.Add: a + b, ast.Sub: a - b, ast.Mult: a * b, ast.Div: a / (b or 1)}
            return sign[type(node.op)]  # type: ignore[index]
        if isinstance(node, ast.Name):
            return Fraction(symbols[node.id])
        assert isinstance(node, ast.Constant)
        return Fraction(str(node.value))

    return walk(ast.parse(text.replace("−", "-"), mode="eval").body)


# --------------------------------------------------------------------------- counted


@pytest.mark.parametrize(("task", "kind", "size"), PRESETS)
def test_parts_of_every_preset_add_up(task: str, kind: str, size: str | None) -> None:
    found = as_json(asked(task, model=kind, **({} if size is None else {"size": size})))
    for total in ("parameters", "flops_forward", "flops_backward", "saved_bytes", "optimiser_bytes"):
        assert found[total] == sum(part[total] for part in found["parts"]), total
    kept = ("weight_bytes", "gradient_bytes", "optimiser_bytes", "saved_bytes")
    assert found["memory_bytes"] == sum(found[name] for name in kept)
    for part in found["parts"]:
        for formula, value in (
            ("formula", "flops_forward"),
            ("formula_parameters", "parameters"),
            ("formula_saved", "saved_bytes"),
        ):
            assert value_of(part[formula], found["symbols"]) == part[value], (part["name"], formula)


@pytest.mark.parametrize("kind", MODELS)
def test_language_models_cost_what_the_same_model_costs(kind: str) -> None:
    depth = {} if kind == "bigram" else {"depth": 2}
    context = 24 if kind in lm.WINDOWED else None
    found = asked("lm", model=kind, width=32, batch=3, context=24, vocab_size=70, optimiser="sgd", **depth)
    sizes = {"width": 32, **depth, **({} if context is None else {"context": context})}
    model = build_lm(kind, 70, **sizes)
    by_hand = seqlab.cost(model, 3, 24, optimiser="sgd")
    assert found.cost == by_hand
    assert found.cost.parameters == count_parameters(model)


@pytest.mark.parametrize("kind", [kind for kind in CLASSIFIERS if kind != "average"])
def test_classifiers_cost_what_the_same_model_costs(kind: str) -> None:
    found = asked("classify", model=kind, width=32, classes=5, vocab_size=80, length=21, batch=3, dropout=0.0, ema=0.9)
    preset = classify.PRESETS[kind]
    taken = ("depth", "bidirectional", "pooling", "heads", "attention")
    sizes = {name: preset[name] for name in taken if name in preset}
    model = look_up(CLASSIFIERS, kind, "model")(classes=5, words=80, width=32, **sizes)
    assert found.cost == seqlab.cost(model, 3, 21, ema=True)


@pytest.mark.parametrize("kind", TRANSLATORS)
def test_translators_cost_what_the_same_model_costs(kind: str) -> None:
    sizes: dict[str, Any] = dict(width=32, depth=2, dropout=0.0) | ({"heads": 4} if kind == "transformer" else {})
    said = dict(batch=100, length=14, source_length=20, vocab_size=70, targets=2)
    found = asked("translate", model=kind, size="small", **sizes, **said)
    more = {
        name: value for name, value in translate.PRESETS[kind]["small"].items() if name in ("tied", "score", "aligned")
    }
    model = look_up(TRANSLATORS, kind, "model")(vocab_size=70, targets=2, **sizes, **more)
    assert found.cost == seqlab.cost(model, 100 // 20, 14, source_length=20)


def test_what_nobody_says_is_named() -> None:
    assert asked("lm").request.shapes.assumed == ("a vocabulary of 4,096 tokens (--vocab-size)",)
    assert asked("lm", tokenizer="byte").cost.symbols["V"] == 256
    assert asked("lm", vocab_size=70).request.shapes.assumed == ()
    named = " ".join(asked("translate").request.shapes.assumed)
    assert all(flag in named for flag in ("--vocab-size", "--targets", "--length", "--pointer"))


def test_the_bottleneck_moves_with_the_context() -> None:
    """Of a transformer of width d with 4d units: 12d² against 4·(n+1)/2·d/2 multiply-adds of a layer and position."""
    short, long = (asked("lm", model="transformer", width=64, context=n, vocab_size=20) for n in (32, 2000))
    assert short.bottleneck is not None
    assert long.bottleneck is not None
    assert (short.bottleneck.part, short.bottleneck.until) == ("feed-forward", 8 * 64 - 1)
    assert (long.bottleneck.part, long.bottleneck.since) == ("scores and mixing", 8 * 64 - 1)
    assert "511" in words.bottleneck(short)
    bags = asked("classify")
    assert bags.bottleneck is None
    assert "nothing is multiplied" in words.bottleneck(bags)


def test_recomputing_trades_bytes_for_a_forward_pass_of_the_blocks() -> None:
    off, on = (as_json(asked("lm", model="transformer", size="small", recompute=on)) for on in (False, True))
    assert off["recompute"] == on["recompute"] | {"on": False}
    assert on["saved_bytes"] == on["recompute"]["saved_bytes"] < off["saved_bytes"]
    inside = ("projections", "scores", "mixing", "feed-forward")
    again = sum(part["flops_forward"] for part in on["parts"] if part["name"] in inside)
    assert on["recompute"]["extra_flops"] == again
    assert as_json(asked("lm", model="gru"))["recompute"] is None


def test_every_symbol_is_explained() -> None:
    for task, kind in KINDS:
        for name, _, meaning in words.symbols(asked(task, model=kind)):
            assert meaning, (task, kind, name)


# --------------------------------------------------------------------------- flags


def test_every_setting_of_a_model_is_a_flag() -> None:
    flags = {f.name for fields in cost_fields().values() for f in fields}
    for task in COSTED.values():
        own = {name for name, (group, _) in flags_of(task.settings_type).items() if group == "model"}
        assert own <= flags | set(NOT_COUNTED)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (dict(task="classify", context=4), "task 'classify' has no --context; it is for lm"),
        (dict(nonsense=4), "unknown setting 'nonsense'"),
        (dict(model="ngram"), "'ngram' is counted, not trained"),
        (dict(budget="3epochs"), "add --tokens N"),
        (dict(task="classify", vocab_size=100, length=101), "cannot have more words and n-grams than the 100"),
        (dict(run="nowhere"), "there is no run folder nowhere"),
    ],
)
def test_wrong_use_is_one_line(said: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        estimate_cost(**said)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


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
    assert "choose a smaller --size or --width" in said


# --------------------------------------------------------------------------- the calibration


@pytest.fixture
def quick_calibration(monkeypatch: pytest.MonkeyPatch) -> list[Calibration]:
    """One that takes no time; the list has one more each time one is made."""
    made: list[Calibration] = []

    def calibrate(progress: Any = None) -> Calibration:
        tables = {kind: Table(((1.0,),), (1e-6,)) for kind in machine.KINDS}
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
