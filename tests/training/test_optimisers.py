"""The optimisers written from their equations: against torch's in float64, against each other, and in whole runs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.test_loop import plan
from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.core.settings.training import OPTIMISERS
from seqlab.training.averaging import WeightAverage
from seqlab.training.loop import clip_gradients
from seqlab.training.optim import (
    Adam,
    HeavyBall,
    RunningAverage,
    average_rate,
    build_optimiser,
    heavy_ball_rate,
    optimiser_facts,
    set_learning_rate,
)
from seqlab.training.schedules import Schedule
from seqlab.workflows.lm.train import train_lm

Optimiser = torch.optim.Optimizer
STEPS = 12


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 3)).double()


def path(make: Callable[[nn.Module], Optimiser], *, rates: Callable[[int], float] | None = None) -> list[list[Tensor]]:
    """The weights after every step of the same training."""
    model = network()
    optimiser = make(model)
    found = []
    for step in range(STEPS):
        draw = torch.Generator().manual_seed(step)
        ids, wanted = torch.randint(0, 7, (9,), generator=draw), torch.randint(0, 3, (9,), generator=draw)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(ids), wanted).backward()
        if rates is not None:
            set_learning_rate(optimiser, rates(step))
        optimiser.step()
        found.append([w.detach().clone() for w in model.parameters()])
    return found


def farthest(one: list[list[Tensor]], other: list[list[Tensor]]) -> float:
    return max(float((a - b).abs().max()) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))


def ours(kind: str, rate: float = 0.05, decay: float = 0.2, **options: Any) -> Callable[[nn.Module], Optimiser]:
    return lambda model: build_optimiser(model, rate, decay, kind=kind, decay_on="all", **options)


# Ours and torch's of the same equations, all weights in one group.
TWINS: dict[str, tuple[Callable[[nn.Module], Optimiser], Callable[[nn.Module], Optimiser]]] = {
    "sgd": (ours("sgd"), lambda m: torch.optim.SGD(m.parameters(), lr=0.05, weight_decay=0.2)),
    "momentum": (ours("momentum", decay=0.0), lambda m: torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9)),
    "adam": (ours("adam"), lambda m: torch.optim.AdamW(m.parameters(), 0.05, (0.9, 0.99), weight_decay=0.2)),
    "adamw": (ours("adamw"), lambda m: torch.optim.AdamW(m.parameters(), 0.05, (0.9, 0.99), weight_decay=0.2)),
    "adam-l2": (ours("adam-l2"), lambda m: torch.optim.Adam(m.parameters(), 0.05, (0.9, 0.99), weight_decay=0.2)),
}


@pytest.mark.parametrize("kind", TWINS)
def test_the_equations_are_those_of_torch(kind: str) -> None:
    mine, theirs = TWINS[kind]
    assert farthest(path(mine), path(theirs)) < 1e-12
    assert farthest(path(mine), path(ours("sgd", rate=0.01))) > 1e-3


def test_the_two_forms_of_momentum_follow_one_path() -> None:
    """α = β, ε = δ(1 − β); with bias correction, or with a learning rate that changes, they part."""
    delta, beta = 0.3, 0.8
    epsilon = heavy_ball_rate(delta, beta)
    assert average_rate(epsilon, beta) == pytest.approx(delta, rel=1e-15)
    ball = path(ours("momentum", epsilon, 0.0, momentum=beta))
    average = path(ours("momentum-average", delta, 0.0, momentum=beta))
    assert farthest(ball, average) < 1e-12
    corrected = path(ours("momentum-average", delta, 0.0, momentum=beta, bias_correction=True))
    assert farthest(ball, corrected) > 1e-3
    first, before = corrected[0], [w.detach() for w in network().parameters()]
    for weight, start, slow in zip(first, before, average[0], strict=True):
        moved = slow - start
        assert (weight - start - moved / (1 - beta)).abs().max() < 1e-12, "the first step is that of plain descent"

    def falling(peak: float) -> Callable[[int], float]:
        return lambda step: peak * (1 - step / STEPS)

    ball = path(ours("momentum", epsilon, 0.0, momentum=beta), rates=falling(epsilon))
    average = path(ours("momentum-average", delta, 0.0, momentum=beta), rates=falling(delta))
    assert farthest(ball, average) > 1e-3, "in the heavy ball the learning rate acts with delay"


def test_bias_correction_of_adam() -> None:
    """Without it the first step is η (1 − β₁)/√(1 − β₂) times the sign of the gradient, with it η times the sign."""
    weight = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    for corrected, expected in ((True, 0.01), (False, 0.01 * 0.1 / 0.01**0.5)):
        optimiser = Adam([{"params": [weight]}], lr=0.01, betas=(0.9, 0.99), eps=0.0, bias_correction=corrected)
        before = weight.detach().clone()
        weight.grad = torch.tensor([3.0, -0.2], dtype=torch.float64)
        optimiser.step()
        assert torch.allclose(weight.detach() - before, -expected * weight.grad.sign(), rtol=1e-12, atol=0)


def test_bias_correction_can_be_switched() -> None:
    for kind in ("adam", "adam-l2", "momentum-average"):
        off, on = (path(ours(kind, 0.01, 0.0, bias_correction=choice)) for choice in (False, True))
        assert farthest(off, on) > 1e-4
        unsaid = path(ours(kind, 0.01, 0.0))
        assert farthest(unsaid, off if kind == "momentum-average" else on) == 0


def test_decay_is_decoupled_in_all_but_one() -> None:
    """Without a gradient a weight shrinks by 1 − ηλ; with L2 in Adam's gradient it moves by about η instead."""
    for kind in OPTIMISERS:
        layer = nn.Linear(3, 3, bias=False).double()
        before = layer.weight.detach().clone()
        optimiser = build_optimiser(layer, 0.01, 0.5, kind=kind)
        layer.weight.grad = torch.zeros_like(layer.weight)
        optimiser.step()
        moved = before - layer.weight.detach()
        expected = 0.01 * before.sign() if kind == "adam-l2" else 0.01 * 0.5 * before
        assert torch.allclose(moved, expected, rtol=1e-4, atol=1e-12), kind


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_tables_norms_and_biases_do_not_decay(kind: str) -> None:
    model = network()
    facts = optimiser_facts(build_optimiser(model, 0.1, 0.3, kind=kind), model)
    assert facts["decaying"] == ["1.weight", "3.weight"]
    assert sorted(facts["not_decaying"]) == ["0.weight", "1.bias", "2.bias", "2.weight", "3.bias"]
    everything = optimiser_facts(build_optimiser(model, 0.1, 0.3, kind=kind, decay_on="all"), model)
    assert len(everything["decaying"]) == 7
    assert everything["not_decaying"] == []


def test_muon_takes_the_matrices_and_turns_them() -> None:
    """Its step on a matrix has singular values that are nearly equal; tables, norms and biases go AdamW's way."""
    model = network()
    before = {name: w.detach().clone() for name, w in model.named_parameters()}
    muon = build_optimiser(model, 0.01, 0.0, kind="muon")
    twin = copy.deepcopy(model)
    adamw = build_optimiser(twin, 0.01, 0.0)
    for step in (0, 1):
        for some, optimiser in ((model, muon), (twin, adamw)):
            optimiser.zero_grad()
            draw = torch.Generator().manual_seed(step)
            for weight in some.parameters():
                weight.grad = torch.randn(weight.shape, generator=draw, dtype=torch.float64)
            optimiser.step()
    theirs = dict(twin.named_parameters())
    for name, weight in model.named_parameters():
        same = torch.allclose(weight, theirs[name], rtol=0, atol=1e-12)
        assert same != (name in ("1.weight", "3.weight")), name
    moved = model[1].weight.detach() - before["1.weight"]
    assert 0.15 < float(moved.norm()) / moved.numel() ** 0.5 / (2 * 0.01) < 0.25, "0.2 η a number, as AdamW's steps are"
    values = torch.linalg.svdvals(moved)
    assert values.min() > 0.3 * values.max()
    assert list(muon.state[model[1].weight]) == ["momentum_buffer"]
    assert "exp_avg" in muon.state[model[0].weight]


# --------------------------------------------------------------------------- whole runs


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text("the cat sat on the mat and the dog sat on the log\n" * 60, encoding="utf-8")
    return file


SMALL: dict[str, Any] = dict(model="gru", width=8, depth=1, tokenizer="char", batch=4, context=16, eval_every=4)


def stop_after(steps: int) -> Callable[[], bool]:
    asked = iter(range(10**9))
    return lambda: next(asked) >= steps


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        *((kind, {}) for kind in OPTIMISERS),
        ("adamw", {"ema": 0.8}),
        ("adam", {"bias_correction": False, "clip_value": 0.01}),
    ],
    ids=str,
)
def test_a_run_that_goes_on_ends_at_the_same_bytes(text: Path, tmp_path: Path, kind: str, more: dict[str, Any]) -> None:
    how = SMALL | dict(optimiser=kind, budget="10steps", learning_rate=0.01, **more)
    straight = train_lm(text, out=tmp_path / "straight", **how)
    train_lm(text, out=tmp_path / "cut", stop=stop_after(6), **how)
    assert not (tmp_path / "cut" / "report.html").exists()
    again = train_lm(out=tmp_path / "cut", resume=True)
    assert (again.folder / "model.safetensors").read_bytes() == (straight.folder / "model.safetensors").read_bytes()
    assert straight.record["optimiser"]["decaying"], "the run folder says what decays"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"momentum": 0.5}, "--momentum does not apply to --optimiser adamw; it is for momentum, momentum-average"),
        ({"optimiser": "muon", "bias_correction": False}, "--bias-correction does not apply to --optimiser muon"),
        ({"optimiser": "momentum", "momentum": 1.0}, "--momentum 1.0 must be at least 0 and below 1"),
        ({"optimiser": "adan"}, "--optimiser 'adan' is not known; did you mean 'adam'"),
        ({"ema": 1.0}, "--ema 1.0 must be at least 0 and below 1"),
        ({"cooldown": 0.5}, "--cooldown does not apply to --decay linear"),
    ],
)
def test_what_an_optimiser_does_not_have_is_refused(text: Path, flags: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        train_lm(text, **SMALL | flags)


# --------------------------------------------------------------------------- schedules, clipping, averages


def test_a_stable_schedule_falls_late() -> None:
    schedule = Schedule(2.0, 100, 0.1, "stable", 0.25, cooldown=0.2)
    rates = [schedule(step) for step in range(101)]
    assert rates[:10] == pytest.approx([2.0 * (k + 1) / 11 for k in range(10)])
    assert rates[10:81] == pytest.approx([2.0] * 71)
    assert rates[90] == pytest.approx(2.0 * (0.25 + 0.75 * 0.5))
    assert rates[100] == pytest.approx(0.5)
    for decay in ("constant", "linear", "cosine", "stable"):
        whole = Schedule(1.0, 50, 0.0, decay, 0.0)
        assert whole(0) == 1.0
        assert whole(50) == pytest.approx(1.0 if decay == "constant" else 0.0, abs=1e-15)


def test_clipping_by_value_comes_before_the_norm() -> None:
    model = nn.Linear(2, 1, bias=False)
    model.weight.grad = torch.tensor([[3.0, -0.5]])
    assert clip_gradients(model, plan(clip=100.0, clip_value=1.0)) == pytest.approx(1.25**0.5)
    assert model.weight.grad.tolist() == [[1.0, -0.5]]
    model.weight.grad = torch.tensor([[3.0, -4.0]])
    assert clip_gradients(model, plan(clip=1.0)) == pytest.approx(5.0)
    assert model.weight.grad.norm().item() == pytest.approx(1.0, abs=1e-5)
    model.weight.grad = torch.tensor([[float("inf"), 1.0]])
    assert clip_gradients(model, plan(clip=1.0, clip_value=1.0)) == float("inf"), (
        "an infinity is not made to look small"
    )


def test_the_average_of_the_weights_is_that_of_its_formula() -> None:
    model = nn.Linear(3, 2).double()
    average, seen = WeightAverage(model, 0.9), []
    for step in range(1, 8):
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight))
        seen.append(model.weight.detach().clone())
        average.update(model, step)
        shares = torch.tensor([0.9 ** (step - 1 - k) for k in range(step)], dtype=torch.float64)
        expected = sum(share * w for share, w in zip(shares / shares.sum(), seen, strict=True))
        assert (average.weights["weight"] - expected).abs().max() < 1e-12
    own = model.weight.detach().clone()
    with average.inside(model):
        assert torch.allclose(model.weight, expected)
    assert torch.equal(model.weight, own)


def test_the_average_is_what_is_measured_and_kept(text: Path, tmp_path: Path) -> None:
    how = SMALL | dict(budget="8steps", learning_rate=0.05, patience=0)
    plain = train_lm(text, out=tmp_path / "plain", **how)
    averaged = train_lm(text, out=tmp_path / "averaged", ema=0.9, **how)
    one, other = (run.final["validation"]["nats_per_token"] for run in (plain, averaged))
    assert one != other
    difference = [
        (a - b).abs().max() for a, b in zip(plain.model.parameters(), averaged.model.parameters(), strict=True)
    ]
    assert max(difference) > 1e-4


def test_plain_forms_need_no_state_before_their_first_step() -> None:
    for kind in (HeavyBall, RunningAverage):
        weight = nn.Parameter(torch.ones(2))
        assert not kind([{"params": [weight]}], lr=0.1, momentum=0.9, bias_correction=False).state
