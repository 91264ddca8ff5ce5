"""Estimates of every task, kind and size: what is counted adds up and is what `seqlab.cost` counts."""

from __future__ import annotations

import ast
import re
from fractions import Fraction
from typing import Any

import pytest

import seqlab
from seqlab.core.errors import UsageError
from seqlab.core.registry import CLASSIFIERS, MODELS, TRANSLATORS, look_up
from seqlab.core.settings import classify, lm, translate
from seqlab.core.settings.cost import COSTED, NOT_COUNTED, cost_fields
from seqlab.core.settings.fields import flags_of
from seqlab.core.settings.training import SIZES
from seqlab.diagnostics.cost import count_parameters
from seqlab.models import build_lm
from seqlab.workflows.cost import words
from seqlab.workflows.cost.estimate import CostEstimate, counted, estimate_cost
from seqlab.workflows.cost.record import as_json
from seqlab.workflows.cost.request import check_cost

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


@pytest.mark.parametrize(("task", "kind", "size"), PRESETS)
def test_every_symbol_of_a_preset_has_a_name_and_a_meaning_of_its_own(task: str, kind: str, size: str | None) -> None:
    pointer = {"pointer": True} if task == "translate" else {}
    found = asked(task, model=kind, **pointer, **({} if size is None else {"size": size}))
    meanings = {name: meaning for name, _, meaning in words.symbols(found)}
    assert all(meanings.values()), meanings
    assert len(set(meanings.values())) == len(meanings)
    assert not [name for name in meanings if re.search(r"_\d+$", name)]


@pytest.mark.parametrize("kind", MODELS)
def test_language_models_cost_what_the_same_model_costs(kind: str) -> None:
    depth = {} if kind == "bigram" else {"depth": 2}
    context = 24 if kind in lm.WINDOWED else None
    unled = {} if kind == "bigram" else {"guide": "none"}
    found = asked("lm", model=kind, width=32, batch=3, context=24, vocab_size=70, optimiser="sgd", **depth, **unled)
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
    assert asked("lm", guide="none").request.shapes.assumed == ("a vocabulary of 4,096 tokens (--vocab-size)",)
    assert "a guide whose counts take no memory" in asked("lm").request.shapes.assumed[1]
    assert asked("lm", tokenizer="byte", guide="none").cost.symbols["V"] == 256
    assert asked("lm", vocab_size=70, guide="none").request.shapes.assumed == ()
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
