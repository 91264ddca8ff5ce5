"""Remedies that are tried: what stands in their row was measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from seqlab.core.taps import taps
from seqlab.diagnostics.gradient_flow import Growth, Verdict, last_loss
from seqlab.workflows.diagnose.cures import build_untrained, shorter_unroll, suggested, try_cures, without_scaling
from seqlab.workflows.diagnose.examine import Examined

V = 11


def tokens(batch: int, time: int) -> Tensor:
    return torch.randint(0, V, (batch, time + 1), generator=torch.Generator().manual_seed(0))


def sizes(kind: str, length: int, **others: Any) -> dict[str, Any]:
    heads = {"heads": 2} if kind == "transformer" else {}
    return {"width": 16, "depth": 1, "dropout": 0.0, "context": length} | heads | others


def evenness(note: str) -> float:
    return float(note.removeprefix("attention's evenness "))


def test_undivided_scores_are_those_of_longer_queries() -> None:
    model, ids = build_untrained("transformer", V, sizes("transformer", 7), "default", 0), tokens(2, 7)
    name = "blocks.0.attention.scores"
    with taps(model, name) as before, torch.no_grad():
        model(ids[:, :-1])
    with taps(without_scaling(model), name) as after, torch.no_grad():
        model(ids[:, :-1])
    earlier = torch.ones(7, 7).tril().bool()
    divided, undivided = (seen[name][..., earlier] for seen in (before, after))
    assert divided.abs().max() > 1e-3
    assert (undivided - 8**0.5 * divided).abs().max() < 1e-6


def test_dividing_by_the_root_of_the_width_evens_attention_out() -> None:
    ids = tokens(3, 12)
    rows = {row.name: row for row in try_cures("attentive-rnn", V, sizes("attentive-rnn", 12), ids, "default", 0)}
    assert evenness(rows["as it is"].note) > evenness(rows["without its scaling by √d"].note)
    dot = try_cures("attentive-rnn", V, sizes("attentive-rnn", 12, score="dot"), ids, "default", 0)
    other = {row.name: row for row in dot}
    assert other["scaling by √d"].verdict == rows["as it is"].verdict
    assert other["as it is"].verdict == rows["without its scaling by √d"].verdict


def test_clipping_bounds_the_step_and_not_the_growth() -> None:
    ids, some = tokens(3, 40), sizes("attentive-rnn", 40, depth=3)
    rows = {row.name: row for row in try_cures("attentive-rnn", V, some, ids, "default", 0)}
    assert rows["as it is"].verdict.word == "exploding"
    clipped = rows["clipping to norm 1"]
    assert clipped.verdict.growth == rows["as it is"].verdict.growth
    model = build_untrained("attentive-rnn", V, some, "default", 0).double().eval()
    parts = torch.autograd.grad(last_loss(model, ids).mean(), list(model.parameters()), allow_unused=True)
    norm = sum(float(part.square().sum()) for part in parts if part is not None) ** 0.5
    words = clipped.note.split()
    assert float(words[4]) == pytest.approx(norm, rel=0.01)
    assert float(words[6].rstrip(";")) == pytest.approx(min(norm, 1.0), rel=0.01)


def examined(kind: str, rate: float, lags: int, *evennesses: float) -> Examined:
    """A model whose gradient grows by `rate` with each step back, with heads of such evenness."""
    growth = Growth(rate, rate, rate, 2)
    total = rate**lags
    word = "vanishing" if total < 0.01 else "exploding" if total > 100 else "healthy"
    verdict = Verdict(word, growth, lags, total, True, None, None)
    heads = [SimpleNamespace(evenness=evenness) for evenness in evennesses]
    return Examined("a model", kind, {}, {"hidden": verdict}, {}, {}, [], heads, [], [])  # type: ignore[arg-type]


OF_AN_RNN = "gated cell", "layer normalisation"


@pytest.mark.parametrize(
    ("found", "init", "names"),
    [
        (examined("rnn", 0.5, 50), "uniform", ["orthogonal initialisation", *OF_AN_RNN, "shorter unroll"]),
        (examined("rnn", 0.5, 50), "orthogonal", [*OF_AN_RNN, "shorter unroll"]),
        (examined("rnn", 1.5, 50), "default", ["clipping", *OF_AN_RNN, "shorter unroll"]),
        (examined("lstm", 0.5, 50), None, ["forget-gate bias", "shorter unroll"]),
        (examined("lstm", 1.5, 50), None, ["clipping", "shorter unroll"]),
        (examined("gru", 0.5, 50), None, ["shorter unroll"]),
        (examined("gru", 0.1, 50), None, []),  # not even three steps
        (examined("gru", 0.99, 50), "uniform", []),
        (examined("transformer", 0.5, 50), None, []),
        (examined("transformer", 0.99, 50, 0.3, 0.0999), None, ["scaling by √d"]),
        (examined("transformer", 0.99, 50, 0.3, 0.1), None, []),
    ],
)
def test_what_is_suggested_depends_on_the_verdict_the_kind_and_the_start(
    found: Examined, init: str | None, names: list[str]
) -> None:
    assert [cure.name for cure in suggested(found, init)] == names


@pytest.mark.parametrize(
    ("rate", "steps"),
    [(0.5, 6), (0.9, 43), (1.5, 11), (0.22, 3), (0.2, None), (4.6, 3), (4.7, None), (1.0, None), (0.0, None)],
)
def test_a_shorter_unroll_keeps_the_gradient_between_the_thresholds(rate: float, steps: int | None) -> None:
    found = shorter_unroll(examined("rnn", rate, 50).verdict)
    assert found == steps
    if steps is not None:
        assert 0.01 <= rate**steps <= 100
        assert not 0.01 <= rate ** (steps + 1) <= 100
