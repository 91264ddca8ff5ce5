"""Costs by part: formulas and numbers, the bottleneck, the textbook's totals; what cannot be counted is refused."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from tests.diagnostics.cost_cases import CASES, source_of
from torch import Tensor, nn

import seqlab
from seqlab.core.errors import UsageError
from seqlab.diagnostics.bottleneck import bottleneck
from seqlab.diagnostics.cost import (
    FORWARD_FLOPS,
    TOTALS,
    Cost,
    count_parameters,
    forward_flops,
    textbook,
)
from seqlab.diagnostics.cost_terms import PARTS
from seqlab.layers import EncoderBlock, MultiHeadAttention

B, T, S = 3, 21, 14

# --------------------------------------------------------------------------- formulas

OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def value_of(formula: str, symbols: dict[str, int]) -> Fraction:
    """Sums, differences, products and quotients of numbers and symbols, and nothing else."""

    def walk(node: ast.expr) -> Fraction:
        if isinstance(node, ast.BinOp):
            found: Fraction = OPERATORS[type(node.op)](walk(node.left), walk(node.right))
            return found
        if isinstance(node, ast.Name):
            return Fraction(symbols[node.id])
        assert isinstance(node, ast.Constant)
        assert isinstance(node.value, int)
        return Fraction(node.value)

    return walk(ast.parse(formula.replace("·", "*").replace("−", "-"), mode="eval").body)


def counted(name: str) -> tuple[Any, Cost]:
    model = CASES[name]()
    return model, seqlab.cost(model, B, T, source_length=source_of(model, S))


@pytest.mark.parametrize("name", CASES)
def test_a_formula_and_its_number_say_the_same(name: str) -> None:
    _, cost = counted(name)
    for part in cost.parts:
        assert value_of(part.formula, cost.symbols) == part.flops_forward
        assert value_of(part.formula_parameters, cost.symbols) == part.parameters
        assert value_of(part.formula_saved, cost.symbols) == part.saved


@pytest.mark.parametrize("name", CASES)
def test_parts_add_up(name: str) -> None:
    model, cost = counted(name)
    assert cost.parameters == sum(part.parameters for part in cost.parts) == count_parameters(model)
    assert cost.flops_forward == sum(part.flops_forward for part in cost.parts)
    assert cost.saved_bytes == sum(part.saved for part in cost.parts)
    assert [part.name for part in cost.parts] == [name for name in PARTS if name in {p.name for p in cost.parts}]
    alone = seqlab.cost(model, 1, T)
    if "window" not in name and name != "lm attentive-rnn, additive":  # `forward_flops` knows no window of 16
        assert alone.flops_forward == pytest.approx(T * forward_flops(model, T))


@pytest.mark.parametrize("name", CASES)
def test_models_without_numbers_cost_the_same(name: str) -> None:
    model, cost = counted(name)
    empty = seqlab.cost(model.to("meta"), B, T, source_length=source_of(model, S))
    assert empty == cost


def test_parts_of_a_transformer_as_formulas() -> None:
    _, cost = counted("lm transformer")
    assert [cost.symbols[name] for name in ("n_t", "heads", "d_model")] == [T, 4, 32]
    assert cost.part("projections").formula == "2·2·B·n_t·d_model·3·d_model + 2·2·B·n_t·d_model·d_model"
    assert cost.part("scores").formula == cost.part("mixing").formula == "2·2·B·n_t·(n_t+1)/2·d_model"
    assert cost.part("feed-forward").formula == "2·2·B·n_t·d_model·d_ff + 2·2·B·n_t·d_ff·d_model"
    assert cost.part("output").formula == "2·B·n_t·d_model·V"
    assert cost.part("embedding").formula_parameters == "V_in·d_model"
    assert cost.part("recurrent").flops_forward == 0


def test_parts_of_every_name() -> None:
    """Projections, scores, mixing, feed-forward, recurrent, embedding, output and guide have a model that has them."""
    seen = {part.name for name in CASES for part in counted(name)[1].parts if part.flops_forward or part.parameters}
    assert seen == set(PARTS) - {"loss", "other"}


def test_formulas_of_a_translator_tell_source_from_target() -> None:
    _, cost = counted("translate transformer, pointer")
    assert (cost.symbols["n_t"], cost.symbols["n_s"]) == (T, S)
    assert "n_t·n_s" in cost.part("scores").formula
    assert "n_t·n_s·d_model" in cost.part("guide").formula
    assert seqlab.cost(CASES["translate transformer"](), B, T).symbols["n_s"] == T  # as many, unless said


# --------------------------------------------------------------------------- the bottleneck


@pytest.mark.parametrize("d", [8, 32, 100])
def test_scores_overtake_projections_at_twice_the_width(d: int) -> None:
    """8nd² and 4n²d"""
    layer = MultiHeadAttention(d, 4)
    short = bottleneck(seqlab.cost(layer, 1, d))
    assert (short.part, short.since, short.until, short.after) == ("projections", None, 2 * d, "scores and mixing")
    assert short.share == pytest.approx(8 * d / (8 * d + 4 * d))
    long = bottleneck(seqlab.cost(layer, 1, 4 * d))
    assert (long.part, long.since, long.before, long.until) == ("scores and mixing", 2 * d, "projections", None)


def test_the_feed_forward_network_holds_out_longer() -> None:
    """16nd² against 4n²d, in a causal stack against 4n(n+1)/2·d."""
    block = EncoderBlock(MultiHeadAttention(16, 4))
    assert bottleneck(seqlab.cost(block, 1, 16)).until == 4 * 16
    stack = CASES["lm transformer"]()
    found = bottleneck(seqlab.cost(stack, 1, 16))
    assert (found.part, found.until) == ("feed-forward", 8 * 32 - 1)


def test_what_grows_with_the_length_alone_is_never_overtaken() -> None:
    found = bottleneck(seqlab.cost(MultiHeadAttention(16, 4, kind="separable"), 1, 50))
    assert (found.part, found.until) == ("projections", None)
    with pytest.raises(UsageError, match="multiplies nothing"):
        bottleneck(seqlab.cost(nn.Embedding(4, 4)))


# --------------------------------------------------------------------------- the textbook


def test_textbook_totals_stand_beside_the_counted_ones() -> None:
    d = 32
    model = CASES["translate transformer"]()
    rows = {row.what: row for row in textbook(model, T, source_length=S)}
    assert list(rows) == ["encoder self-attention", "cross-attention", "decoder self-attention"]
    said = [row.textbook for row in rows.values()]
    assert said == [2 * (S * S * d + S * d * d), 2 * (T * S * d + (T + S) * d * d), 2 * (T * T * d + T * d * d)]
    counted = [row.counted for row in rows.values()]
    encoder, cross = 4 * S * d * d + 2 * S * S * d, 2 * T * d * d + 2 * S * d * d + 2 * T * S * d
    assert counted == [2 * encoder, 2 * cross, 2 * (4 * T * d * d + d * T * (T + 1))]
    assert [row.layers for row in rows.values()] == [2, 2, 2]
    assert [row.total for row in rows.values()] == ["M²k + Mk²", "MNk + (M+N)k²", "N²k + Nk²"]


def test_textbook_totals_of_the_linear_kinds() -> None:
    d, heads, m = 24, 4, 10
    (separable,) = textbook(MultiHeadAttention(d, heads, kind="separable"), T)
    assert (separable.total, separable.textbook) == ("nd²", T * d * d)
    assert separable.counted == 2 * T * d * d // heads
    (features,) = textbook(MultiHeadAttention(d, heads, kind="random_features", features=m), T)
    assert (features.total, features.textbook, features.counted) == ("nmd", T * m * d, 4 * T * m * d)


@pytest.mark.parametrize("name", [name for name in CASES if "transformer" in name])
def test_textbook_formulas_give_their_numbers(name: str) -> None:
    model, cost = counted(name)
    for row in textbook(model, T, source_length=source_of(model, S)):
        assert row.total == TOTALS[row.what]
        assert value_of(row.formula, cost.symbols) == row.textbook
        assert value_of(row.counted_formula, cost.symbols) == row.counted


# --------------------------------------------------------------------------- what is refused, what is one's own


class Mixing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x @ x.transpose(1, 2) @ x


def test_an_unknown_layer_is_refused_in_one_line() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Mixing())
    with pytest.raises(UsageError, match=r"in layer '1' \(.*Mixing\) is not known; register it: ") as caught:
        seqlab.cost(model)
    assert "\n" not in str(caught.value)


def test_a_registered_layer_is_counted_and_its_activations_are_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(FORWARD_FLOPS, Mixing, lambda layer, context: 4.0 * 4 * context)
    cost = seqlab.cost(nn.Sequential(nn.Linear(4, 4), Mixing()), B, T)
    assert cost.part("other").flops_forward == B * T * 16 * T
    assert cost.part("other").flops_backward == 2 * B * T * 16 * T
    assert cost.not_measured == ("1",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(batch=0), "batch 0 is too small; the least is 1"),
        (dict(length=0), "length 0 is too small; the least is 1"),
        (dict(source_length=-1), "source_length -1 is too small; the least is 1"),
        (dict(optimiser="adamm"), "optimiser 'adamm' is not known; did you mean 'adam'?"),
    ],
)
def test_impossible_questions_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        seqlab.cost(nn.Linear(2, 2), **arguments)


def test_only_models_have_a_cost() -> None:
    with pytest.raises(UsageError, match="not of int"):
        seqlab.cost(5)


def test_a_run_is_counted_by_its_model() -> None:
    class Run:
        model = nn.Linear(3, 4)

    assert seqlab.cost(Run()).parameters == 16


def test_a_convolution_and_what_is_inside_a_container() -> None:
    cost = seqlab.cost(nn.Sequential(nn.Conv1d(6, 9, 4, groups=3), nn.ReLU(), nn.Linear(9, 2)), B, T)
    assert cost.flops_forward == B * T * 2 * (2 * 9 * 4 + 9 * 2)
    assert torch.Size([9, 2, 4]).numel() + 9 + 18 + 2 == cost.parameters
