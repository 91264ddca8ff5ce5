"""Gradients over time against what theory says of constructed cases; float64 throughout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.diagnostics.gradient_flow import (
    SEQUENCES_AT_ONCE,
    carriers,
    depth_curve,
    expected_horizon,
    gradient_flow,
    growth_of,
    horizon_of,
    jacobian_curve,
    judge,
    lag_curves,
    last_loss,
    last_losses,
)
from seqlab.diagnostics.inside import (
    bound_of,
    look_inside,
    step_jacobians,
)
from seqlab.layers import RNN
from seqlab.models import build_lm

V = 13
KINDS = ("rnn", "gru", "lstm", "attentive-rnn", "transformer")


class LinearRNN(nn.Module):
    """h_t = W h_{t−1} + x_t, y = h."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        h, found = torch.zeros_like(x[:, 0]), []
        for step in x.unbind(1):
            h = h @ self.weight.T + step
            found.append(h)
        return torch.stack(found, 1)


def orthogonal(n: int) -> Tensor:
    torch.manual_seed(n)
    return torch.linalg.qr(torch.randn(n, n, dtype=torch.float64))[0]


def lm(kind: str, width: int = 16, **sizes: Any) -> Any:
    return build_lm(kind, V, width=width, seed=1, **sizes).double().eval()


def tokens(batch: int, time: int, seed: int = 0) -> Tensor:
    return torch.randint(0, V, (batch, time + 1), generator=torch.Generator().manual_seed(seed))


# --------------------------------------------------------------------------- constructed cases


@pytest.mark.parametrize("rho", [0.9, 1.0, 1.1])
def test_a_linear_recurrence_grows_by_the_scale_of_its_matrix(rho: float) -> None:
    x = torch.randn(3, 60, 8, dtype=torch.float64)
    curve = jacobian_curve(LinearRNN(rho * orthogonal(8)), x)
    assert curve == pytest.approx(np.tile(math.sqrt(8) * rho ** np.arange(60), (3, 1)), rel=1e-10)
    growth = growth_of(curve)
    assert growth.rate == pytest.approx(rho, rel=1e-12)
    assert growth.low == pytest.approx(rho, rel=1e-9)
    assert growth.high == pytest.approx(rho, rel=1e-9)
    words = {0.9: "vanishing", 1.0: "healthy", 1.1: "exploding"}
    verdict = judge(curve)
    assert verdict.word == words[rho]
    assert verdict.settled
    assert verdict.total == pytest.approx(rho**59)


def test_the_horizon_is_where_one_percent_is_left() -> None:
    curve = np.tile(0.9 ** np.arange(80), (2, 1))
    assert horizon_of(curve) == 45  # 0.9^44 ≤ 0.01 < 0.9^43, counted from lag 1
    assert expected_horizon(0.9) == pytest.approx(1 + math.log(0.01) / math.log(0.9))
    assert horizon_of(curve[:, :30]) is None
    assert expected_horizon(1.0) is None
    assert judge(curve[:, :30]).expected_horizon == pytest.approx(44.7, abs=0.05)


def test_the_interval_of_the_growth_rate_is_that_of_a_mean() -> None:
    """ln g of each sequence, from lag 1 on, and Student's t over them."""
    draw = np.random.default_rng(0)
    slopes = draw.normal(-0.02, 0.05, 6)
    norms = np.exp(slopes[:, None] * np.arange(40))
    norms[:, 0] *= 1e6  # what a layer's own position does is no part of the way back
    growth = growth_of(norms)
    expected = stats.t.interval(0.95, 5, slopes.mean(), stats.sem(slopes))
    assert growth.rate == pytest.approx(math.exp(slopes.mean()), rel=1e-9)
    assert (growth.low, growth.high) == pytest.approx(tuple(np.exp(expected)), rel=1e-9)
    assert judge(norms).settled
    torn = np.exp(draw.normal(-0.1, 0.3, (6, 1)) * np.arange(40))
    assert judge(torn).growth.high > 1
    assert not judge(torn).settled, "the interval reaches over a threshold"


def test_a_gradient_that_ends_does_not_arrive() -> None:
    """Even for five positions, then exactly nothing: whatever its rate was before, over 99 lags it vanishes."""
    curve = np.ones((4, 100))
    curve[:, 5:] = 0.0
    verdict = judge(curve)
    assert (verdict.word, verdict.total, verdict.horizon, verdict.settled) == ("vanishing", 0.0, 5, True)
    assert verdict.growth.rate == pytest.approx(1.0)


def test_one_dead_sequence_does_not_speak_for_the_others() -> None:
    curve = np.tile(0.99 ** np.arange(50), (16, 1))
    curve[3, 1:] = 0
    verdict = judge(curve)
    assert verdict.word == "healthy"
    assert verdict.growth.rate == pytest.approx(0.99)
    assert verdict.growth.sequences == 15
    curve[:8, 1:] = 0
    assert judge(curve).growth.rate == 0.0


def test_an_lstm_hands_its_cell_on_by_its_forget_gate() -> None:
    """With f held and no other way, ∂L_T/∂c_t falls by f with every step."""
    for f in (0.5, 0.9, 0.99):
        model = lm("lstm")
        with torch.no_grad():
            layer = model.recurrent
            layer.weight_hh_l0.zero_()
            layer.weight_ih_l0[16:32].zero_()
            layer.bias_ih_l0[16:32] = math.log(f / (1 - f))
            layer.bias_hh_l0[16:32] = 0.0
        ids = tokens(4, 40)
        curve = lag_curves(model, lambda: last_loss(model, ids))["recurrent.l0.c"]  # noqa: B023
        assert curve / curve[:, :1] == pytest.approx(np.tile(f ** np.arange(40), (4, 1)), rel=1e-9)
        assert growth_of(curve).rate == pytest.approx(f, rel=1e-9)


def test_with_the_forget_gate_shut_the_other_gates_still_carry() -> None:
    model = lm("lstm")
    with torch.no_grad():
        model.recurrent.weight_hh_l0[16:32].zero_()
        model.recurrent.weight_ih_l0[16:32].zero_()
        model.recurrent.bias_ih_l0[16:32] = -1e4
        model.recurrent.bias_hh_l0[16:32] = 0.0
    ids = tokens(4, 12)
    curves = lag_curves(model, lambda: last_loss(model, ids))
    assert (curves["recurrent.l0.hidden"][:, 1:8] > 1e-12).all()
    assert (curves["recurrent.l0.hidden"][:, 1] > 1e-3).all()
    gates, _ = look_inside(model, lambda: model(ids[:, :-1]))
    (forget,) = [gate for gate in gates if gate.name.endswith(".f")]
    assert (forget.shut, forget.open, forget.mean) == (1.0, 0.0, 0.0)


def test_a_large_norm_is_necessary_for_explosion_but_not_sufficient() -> None:
    """W that shifts by one place, times 3: its norm is 3, its radius 0, and after n steps nothing is left."""
    shift = 3 * torch.diag(torch.ones(7, dtype=torch.float64), 1)
    curve = jacobian_curve(LinearRNN(shift), torch.randn(1, 30, 8, dtype=torch.float64))
    assert curve[0, 7] > 100
    assert (curve[0, 8:] == 0).all()
    large = RNN(8, 8).double()
    with torch.no_grad():
        large.weight_hh_l0.copy_(shift)
    assert bound_of(large) == pytest.approx(3.0)
    (found,) = step_jacobians(large, torch.zeros(4, 8, dtype=torch.float64), [2])
    assert found.spectral_norm == pytest.approx(3.0)
    assert found.spectral_radius < 1e-2
    small = RNN(8, 8).double()
    with torch.no_grad():
        small.weight_hh_l0.copy_(0.9 * orthogonal(8))
    curve = jacobian_curve(small, torch.randn(2, 40, 8, dtype=torch.float64))
    most = float(small.weight_ih_l0.detach().norm()) * bound_of(small) ** np.arange(40)
    assert (curve <= most * (1 + 1e-9)).all(), "below 1/γ it must vanish"
    assert bound_of(small) == pytest.approx(0.9)
    squashed = RNN(8, 8, nonlinearity="sigmoid").double()
    with torch.no_grad():
        squashed.weight_hh_l0.copy_(2 * orthogonal(8))
    assert bound_of(squashed) == pytest.approx(0.5)


def test_batch_norm_makes_the_gradient_grow_with_depth() -> None:
    """√(π/(π − 1)) = 1.21 in norm for each layer of ReLU units, at initialisation."""
    torch.manual_seed(0)
    width, depth = 256, 30

    def layer() -> nn.Module:
        linear = nn.Linear(width, width, bias=False)
        nn.init.normal_(linear.weight, std=width**-0.5)
        return nn.Sequential(linear, nn.BatchNorm1d(width), nn.ReLU()).double()

    x, readout = torch.randn(2, 512, width, dtype=torch.float64)
    curve = depth_curve([layer() for _ in range(depth)], x, readout)
    rate = math.exp(np.polyfit(np.arange(5, depth), np.log(curve[5:depth]), 1)[0])
    assert rate == pytest.approx(math.sqrt(math.pi / (math.pi - 1)), abs=0.03)


# --------------------------------------------------------------------------- against other ways to compute the same


@pytest.mark.parametrize("kind", ["rnn", "gru"])
def test_the_curve_is_the_derivative_by_the_state(kind: str) -> None:
    """Read the beginning, then differentiate what follows by the state handed over."""
    model = lm(kind)
    ids = tokens(3, 9)
    curve = lag_curves(model, lambda: last_loss(model, ids))["recurrent.l0.hidden"]
    for lag in range(1, 9):
        with torch.no_grad():
            _, state = model(ids[:, : 9 - lag])
        state.requires_grad_()
        logits, _ = model(ids[:, 9 - lag : -1], state)
        loss = nn.functional.cross_entropy(logits[:, -1], ids[:, -1], reduction="sum")
        (gradient,) = torch.autograd.grad(loss, state)
        assert curve[:, lag] == pytest.approx(gradient[0].norm(dim=-1).numpy(), rel=1e-9)


def test_the_curve_of_a_transformer_is_the_derivative_by_its_embedding() -> None:
    model, ids = lm("transformer", depth=2), tokens(3, 9)
    kept: list[Tensor] = []
    handle = model.embedding.register_forward_hook(lambda _m, _i, y: kept.append(y) or y)
    loss = last_loss(model, ids).sum()
    handle.remove()
    (gradient,) = torch.autograd.grad(loss, kept)
    curve = lag_curves(model, lambda: last_loss(model, ids))["blocks.0.stream"]
    assert curve == pytest.approx(gradient.norm(dim=-1).flip(1).numpy(), rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_has_a_curve_of_its_own(kind: str) -> None:
    model, ids = lm(kind, depth=2), tokens(2, 9)
    together = lag_curves(model, lambda: last_loss(model, ids))
    assert list(together) == carriers(model)
    assert len(together) == (4 if kind == "lstm" else 2)
    alone = lag_curves(model, lambda: last_loss(model, ids[1:]))
    for name, norms in together.items():
        assert norms.shape == (2, 9)
        assert (norms > 0).all()
        assert alone[name][0] == pytest.approx(norms[1], rel=1e-9), "neighbours in the batch do not matter"


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_sequences_at_a_time_are_all_of_them(kind: str) -> None:
    model, ids = lm(kind), tokens(2 * SEQUENCES_AT_ONCE + 1, 6)
    losses = last_losses(model, ids)
    assert len(losses) == 3
    together = lag_curves(model, lambda: last_loss(model, ids))
    for name, norms in lag_curves(model, *losses).items():
        assert norms == pytest.approx(together[name], rel=1e-9)


@pytest.mark.parametrize("make", [nn.RNN, nn.GRU, nn.LSTM])
def test_any_module_of_the_right_shape_can_be_examined(make: Any) -> None:
    """torch's own layers: the curve is that of the Jacobian, entry by entry."""
    torch.manual_seed(5)
    module = make(3, 4, batch_first=True).double()
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    found = gradient_flow(module, x)
    for row in range(2):
        jacobian = torch.autograd.functional.jacobian(lambda u: module(u[None])[0][0, -1], x[row])
        assert found.curve[row] == pytest.approx(jacobian.norm(dim=(0, 2)).flip(0).numpy(), rel=1e-10)
    assert found.verdict.lags == 5


def test_a_foreign_module_is_left_as_it_was() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.drop, self.layer = nn.BatchNorm1d(3), nn.Dropout(0.5), nn.GRU(3, 3, batch_first=True)

        def forward(self, x: Tensor) -> Any:
            return self.layer(self.drop(self.norm(x.transpose(1, 2)).transpose(1, 2)))

    module = Odd()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    stream = torch.get_rng_state()
    x = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        one, two = gradient_flow(module, x), gradient_flow(module, x)
    assert (one.curve == two.curve).all()
    assert module.training
    assert next(module.parameters()).dtype == torch.float32
    assert torch.equal(torch.get_rng_state(), stream)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    large = gradient_flow(LinearRNN(1.5 * orthogonal(4).float()), torch.randn(1, 300, 4))
    assert large.verdict.word == "exploding"


# --------------------------------------------------------------------------- what cannot be asked


def test_what_cannot_be_measured_is_named() -> None:
    x = torch.randn(1, 5, 4)
    with pytest.raises(UsageError, match=r"must give \(batch, time, width\)"):
        jacobian_curve(lambda u: u.sum(-1), x)
    with pytest.raises(UsageError, match="has no lag"):
        jacobian_curve(nn.Identity(), x[:, :1])
    with pytest.raises(UsageError, match="needs .batch, time, width."):
        jacobian_curve(nn.Identity(), x[0])
    for module, given, message in (
        (nn.GRU(3, 3, batch_first=True), x, "the module does not take"),
        (lambda u: u.detach(), x, "does not depend on x"),
        (nn.Identity(), torch.ones(1, 5, 4, dtype=torch.int64), "real numbers"),
        (nn.Identity(), torch.ones(0, 5, 4), "of one sequence at least"),
    ):
        with pytest.raises(UsageError, match=message):
            gradient_flow(module, given)
    with pytest.raises(UsageError, match="too few for a growth rate"):
        growth_of(np.ones((2, 2)))
    model = lm("gru")
    with torch.no_grad():
        model.recurrent.weight_hh_l0[0, 0] = float("nan")
    ids = tokens(2, 6)
    with pytest.raises(UsageError, match="is not finite: the weights hold NaN"):
        lag_curves(model, lambda: last_loss(model, ids))
    with pytest.raises(UsageError, match="carries nothing from one position"):
        lag_curves(lm("bigram"), lambda: last_loss(model, ids))


def test_a_position_without_influence_has_no_gradient() -> None:
    """y_T = x_T: every lag but the first is exactly 0, which is as vanishing as it gets."""
    curve = jacobian_curve(nn.Identity(), torch.randn(2, 6, 4, dtype=torch.float64))
    assert (curve[:, 0] == 2.0).all()
    assert (curve[:, 1:] == 0).all()
    verdict = judge(curve)
    assert (verdict.word, verdict.growth.rate, verdict.horizon) == ("vanishing", 0.0, 1)
