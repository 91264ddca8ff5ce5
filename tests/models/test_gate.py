"""The weights of a mixture, against other ways to find them."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from seqlab.models.gate import PENALTY, Gate, constant_gate, context_gate, em_step, fit_gate, loss, mixed


def problem(tokens: int, members: int, seed: int, features: int = 3) -> tuple[Tensor, Tensor]:
    """ln p_m(t_n), and features of which the first says which member is the better one."""
    draw = np.random.default_rng(seed)
    f = draw.normal(size=(tokens, features))
    log_p = np.log(draw.uniform(0.01, 0.9, size=(tokens, members)))
    if features:
        log_p[:, 0] += np.minimum(0, 2 * f[:, 0])
        log_p[:, 1] += np.minimum(0, -2 * f[:, 0])
    return torch.from_numpy(log_p - draw.uniform(0, 1, members)), torch.from_numpy(f)


def mean_nats(weights: Any, log_p: Tensor) -> float:
    return -float(np.log(np.exp(log_p.numpy()) @ np.asarray(weights)).mean())


@pytest.mark.parametrize("members", [2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_no_step_of_em_makes_it_worse(members: int, seed: int) -> None:
    log_p, _ = problem(60, members, seed)
    weights = torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(members)))
    before = mean_nats(weights, log_p)
    for _ in range(30):
        weights, _ = em_step(weights, log_p.exp())
        assert float(weights.sum()) == pytest.approx(1, abs=1e-12)
        after = mean_nats(weights, log_p)
        assert after <= before + 1e-14
        before = after


@pytest.mark.parametrize("members", [2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_constant_weights_are_those_that_another_optimiser_finds(members: int, seed: int) -> None:
    log_p, _ = problem(200, members, seed)
    gate = constant_gate(log_p)
    found = gate.bias.exp().numpy()
    assert found.sum() == pytest.approx(1, abs=1e-12)
    best = minimize(
        mean_nats,
        np.full(members, 1 / members),
        args=(log_p,),
        method="SLSQP",
        bounds=[(0, 1)] * members,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert mean_nats(found, log_p) <= best.fun + 2e-9
    assert found == pytest.approx(best.x, abs=2e-3)


def test_a_part_that_never_helps_gets_nothing_and_twins_share() -> None:
    log_p = torch.tensor([[-1.0, -3.0], [-2.0, -2.5], [-0.5, -0.6]], dtype=torch.float64)
    assert constant_gate(log_p).bias.exp()[1] < 1e-6
    twins = torch.tensor([[-1.0, -1.0], [-2.0, -2.0]], dtype=torch.float64)
    assert constant_gate(twins).bias.exp().tolist() == [0.5, 0.5]


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_that_of_the_loss(seed: int) -> None:
    log_p, features = problem(40, 3, seed)
    draw = torch.Generator().manual_seed(seed)
    bias, slopes = (torch.randn(*s, dtype=torch.float64, generator=draw).requires_grad_() for s in ((3,), (3, 3)))
    weights = torch.softmax(bias + features @ slopes, -1)
    plain = -(weights * log_p.exp()).sum(-1).log().sum() + PENALTY / 2 * (slopes**2).sum()
    expected = torch.autograd.grad(plain, (bias, slopes))
    value, found = loss(Gate(bias.detach(), slopes.detach()), log_p, features, PENALTY)
    assert value == pytest.approx(plain.item(), rel=1e-13)
    assert all(torch.allclose(a, b, rtol=0, atol=1e-11) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("members", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_weights_by_context_are_those_that_another_optimiser_finds(members: int, seed: int) -> None:
    log_p, features = problem(150, members, seed)
    x, p = features.numpy(), np.exp(log_p.numpy())

    def plain(theta: Any) -> float:
        bias, slopes = theta[:members], theta[members:].reshape(-1, members)
        w = np.exp(bias + x @ slopes)
        w /= w.sum(1, keepdims=True)
        return float(-np.log((w * p).sum(1)).sum() + PENALTY / 2 * (slopes**2).sum())

    gate = context_gate(log_p, features)
    own = plain(np.concatenate([gate.bias.numpy(), gate.slopes.numpy().ravel()]))
    start = np.concatenate([constant_gate(log_p).bias.clamp(min=-4).numpy(), np.zeros(members * x.shape[1])])
    best = minimize(plain, start, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-7, "maxfun": 100_000})
    assert own == pytest.approx(best.fun, abs=1e-6)
    assert gate.slopes.numpy().ravel() == pytest.approx(best.x[members:], abs=1e-3)
    assert own < plain(start) - 1


def test_a_part_that_is_bad_on_the_whole_may_be_good_somewhere() -> None:
    features = torch.linspace(-1, 1, 400, dtype=torch.float64)[:, None]
    log_p = torch.stack([torch.full((400,), -1.0, dtype=torch.float64), -1 - 4 * (0.6 - features[:, 0])], -1)
    assert constant_gate(log_p).bias.exp()[1] < 0.01
    weights = context_gate(log_p, features).log_weights(features).exp()[:, 1]
    assert weights[0] < 0.01
    assert weights[-1] > 0.6


def test_a_penalty_that_grows_leaves_the_constant_weights() -> None:
    log_p, features = problem(300, 2, 0)
    sizes = [float(context_gate(log_p, features, penalty).slopes.abs().sum()) for penalty in (0.1, 10, 1e3, 1e6)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 1e-3
    assert context_gate(log_p, features, 1e6).bias.softmax(-1).tolist() == pytest.approx(
        constant_gate(log_p).bias.exp().tolist(), abs=1e-3
    )


def test_the_context_counts_where_it_helps_on_text_that_was_not_fitted() -> None:
    log_p, features = problem(2000, 2, 1)
    fit = fit_gate(log_p, features)
    assert fit.gate.per_context
    assert fit.nats[1] < fit.nats[0]
    noise = torch.from_numpy(np.random.default_rng(5).normal(size=(300, 12)))
    blind, _ = problem(300, 2, 2, features=0)
    blind_fit = fit_gate(blind, noise)
    assert not blind_fit.gate.per_context
    assert blind_fit.nats[0] < blind_fit.nats[1]
    assert torch.equal(blind_fit.gate.bias, constant_gate(blind).bias)


def test_unseen_weights_have_not_seen_the_half_that_they_are_for() -> None:
    log_p, features = problem(101, 2, 3)
    fit = fit_gate(log_p, features)
    before = fit.unseen_log_weights(features)
    for half, other in ((slice(0, 50), slice(50, None)), (slice(50, None), slice(0, 50))):
        changed = log_p.clone()
        changed[half] = changed[half].flip(1)
        context = [context_gate(changed[other], features[other]), context_gate(log_p[other], features[other])]
        assert torch.equal(context[0].slopes, context[1].slopes)
        expected = context[0] if fit.gate.per_context else constant_gate(changed[other], 3)
        assert torch.equal(before[half], expected.log_weights(features[half]))
    both = -mixed(log_p, before).mean()
    assert float(both) == min(fit.nats)


def test_the_order_of_the_parts_does_not_matter() -> None:
    log_p, features = problem(300, 3, 4)
    order = [2, 0, 1]
    one, other = (fit_gate(p, features).gate.log_weights(features) for p in (log_p, log_p[:, order]))
    assert torch.allclose(one[:, order], other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_a_text_of_a_few_tokens_has_weights_too(tokens: int) -> None:
    log_p, features = problem(tokens, 2, 0)
    fit = fit_gate(log_p, features)
    weights = fit.gate.log_weights(features).exp()
    assert torch.isfinite(weights).all()
    assert weights.sum(-1).tolist() == pytest.approx([1.0] * tokens)
    assert torch.isfinite(fit.unseen_log_weights(features)).all()


def test_the_same_text_gives_the_same_bits() -> None:
    log_p, features = problem(500, 2, 6)
    one, two = (fit_gate(log_p.clone(), features.clone()).gate for _ in range(2))
    assert torch.equal(one.bias, two.bias)
    assert torch.equal(one.slopes, two.slopes)


def test_impossible_tokens_of_one_part_are_bearable() -> None:
    log_p = torch.tensor([[-math.inf, -1.0], [-1.0, -math.inf], [-0.1, -2.0]], dtype=torch.float64)
    gate = constant_gate(log_p)
    assert torch.isfinite(mixed(log_p, gate.log_weights(torch.zeros(3, 0, dtype=torch.float64)))).all()
