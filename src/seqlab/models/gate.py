"""How much each member of a mixture counts for at a place, and how that is found on a text that none has learnt from.

    p(t) = Σ_m w_m p_m(t),      w = softmax(b + f U)      f (K,): what the members know before the token

Without features w is the same everywhere. The loss −Σ_n ln Σ_m w_m p_m(t_n) is then convex in w; EM never raises it:

    w_m ← w_m g_m,      g_m = mean_n p_m(t_n) / p(t_n)

No other w is better by more than ln max_m g_m nats per token (Jensen), which says when it is good enough. With
features L-BFGS starts from there; a penalty keeps the slopes small. With r_nm = w_m p_m(t_n) / p(t_n):

    loss = −Σ_n ln Σ_m w_m(f_n) p_m(t_n) + λ/2 ‖U‖²,   ∂/∂b = Σ_n (w_n − r_n),   ∂/∂U = Σ_n f_nᵀ (w_n − r_n) + λ U
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

ENOUGH = 1e-9  # nats per token that the best constant weights may still be better by
MOST_STEPS = 20_000  # of EM
PENALTY = 1.0  # λ, in nats
MOST_ITERATIONS = 400  # of L-BFGS
TOLERANCE = 1e-8  # of the gradient, in nats per token
LEAST = -4.0  # ln w, where weights by context start, of a member that constant ones leave out: it may help somewhere


@dataclass(frozen=True)
class Gate:
    """bias b (M,) and slopes U (K, M)."""

    bias: Tensor
    slopes: Tensor

    @property
    def per_context(self) -> bool:
        return bool(self.slopes.any())

    def log_weights(self, features: Tensor) -> Tensor:
        """ln w at places with these features.    (…, K) -> (…, M)"""
        return (self.bias + features @ self.slopes).log_softmax(-1)


def mixed(log_p: Tensor, log_weights: Tensor) -> Tensor:
    """ln Σ_m w_m p_m along the last dimension."""
    return torch.logsumexp(log_p + log_weights, -1)


# --------------------------------------------------------------------------- the same weights everywhere


def em_step(weights: Tensor, ratios: Tensor) -> tuple[Tensor, Tensor]:
    """One step, and g; ratios (N, M) are p_m(t_n), each row up to a factor."""
    g = (ratios / (ratios @ weights)[:, None]).mean(0)
    return weights * g, g


def constant_gate(log_p: Tensor, features: int = 0) -> Gate:
    """The best constant weights for tokens with ln p_m(t_n)    (N, M)"""
    members = log_p.shape[1]
    weights = torch.full((members,), 1 / members, dtype=torch.float64)
    ratios = (log_p - log_p.amax(1, keepdim=True)).exp()
    for _ in range(MOST_STEPS if len(log_p) else 0):
        better, g = em_step(weights, ratios)
        if math.log(float(g.max())) <= ENOUGH:
            break
        weights = better / better.sum()
    return Gate(weights.log(), torch.zeros(features, members, dtype=torch.float64))


# --------------------------------------------------------------------------- weights that depend on the context


def context_gate(log_p: Tensor, features: Tensor, penalty: float = PENALTY) -> Gate:
    """Weights by context for tokens with ln p_m(t_n) (N, M) after features (N, K)."""
    gate = constant_gate(log_p, features.shape[1])
    gate = Gate(gate.bias.clamp(min=LEAST), gate.slopes)
    search = torch.optim.LBFGS(
        [gate.bias, gate.slopes],
        max_iter=MOST_ITERATIONS,
        tolerance_grad=TOLERANCE,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )
    size = max(1, len(log_p))

    def closure() -> float:
        value, (by_bias, by_slopes) = loss(gate, log_p, features, penalty)
        gate.bias.grad, gate.slopes.grad = by_bias / size, by_slopes / size
        return value / size

    search.step(closure)  # type: ignore[no-untyped-call]
    return Gate(gate.bias.detach(), gate.slopes.detach())


def loss(gate: Gate, log_p: Tensor, features: Tensor, penalty: float) -> tuple[float, tuple[Tensor, Tensor]]:
    """The loss, and its derivatives after b and U."""
    log_weights = gate.log_weights(features)
    together = mixed(log_p, log_weights)
    excess = log_weights.exp() - (log_weights + log_p - together[:, None]).exp()  # w − r
    value = float(penalty / 2 * gate.slopes.square().sum() - together.sum())
    return value, (excess.sum(0), features.T @ excess + penalty * gate.slopes)


# --------------------------------------------------------------------------- which of the two


@dataclass(frozen=True)
class Fit:
    """The gate for a whole text, and those that each half of it gives for the other."""

    gate: Gate
    for_halves: tuple[Gate, Gate]
    nats: tuple[float, float]  # per token with constant weights and by context, each half with the other's weights

    def unseen_log_weights(self, features: Tensor) -> Tensor:
        """ln w at every place of the text, by weights that have not seen its half.    (N, K) -> (N, M)"""
        return _by_halves(features, self.for_halves)


def fit_gate(log_p: Tensor, features: Tensor) -> Fit:
    """Constant weights, or by context where that is better on each half with weights from the other."""
    fits = [_constant, context_gate] if features.shape[1] else [_constant]
    half = len(log_p) // 2
    found = []
    for fit in fits:
        gates = fit(log_p[half:], features[half:]), fit(log_p[:half], features[:half])
        nats = -mixed(log_p, _by_halves(features, gates)).mean()
        found.append((float(nats), fit, gates))
    best = min(found, key=lambda one: one[0])
    return Fit(best[1](log_p, features), best[2], (found[0][0], found[-1][0]))


def _constant(log_p: Tensor, features: Tensor) -> Gate:
    return constant_gate(log_p, features.shape[1])


def _by_halves(features: Tensor, gates: tuple[Gate, Gate]) -> Tensor:
    half = len(features) // 2
    return torch.cat([gates[0].log_weights(features[:half]), gates[1].log_weights(features[half:])])
