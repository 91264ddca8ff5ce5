"""Backward passes derived by hand. Each docstring has the derivation; tests hold each against autograd.

δu stands for ∂J/∂u, the gradient of the scalar J; it has the shape of u. Batches are rows, so that for
u = x Wᵀ:  δx = δu W  and  δW = δuᵀ x  (the sum over the batch is inside the matrix product).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from seqlab.ops.reference.recurrence import CellWeights, nonlinearity


class RecurrentGradients(NamedTuple):
    x: Tensor  # (B, T, D)
    state: tuple[Tensor, ...]  # of the initial state: (h,) or (h, c), each (B, H)
    weights: CellWeights


def slope(phi: str, value: Tensor) -> Tensor:
    """φ'(a) from the value φ(a):  tanh 1 − φ²,  sigmoid φ(1 − φ),  relu 1 where φ > 0."""
    if phi == "tanh":
        return 1 - value**2
    if phi == "sigmoid":
        return value * (1 - value)
    return (value > 0).to(value.dtype)


# --------------------------------------------------------------------------- backpropagation through time


def rnn_gradients(
    x: Tensor, g0: Tensor, weights: CellWeights, grad_y: Tensor, grad_final: Tensor, phi: str = "tanh"
) -> RecurrentGradients:
    """Backpropagation through time for the RNN, post form.

    g_t = φ(a_t) with a_t = W g_{t−1} + U x_t + b. J depends on g_t directly, through the output y_t = g_t, and
    through a_{t+1}. By the chain rule, from the last step to the first,

        δg_t = δy_t + δa_{t+1} W          (δg_T = δy_T + the gradient of the final state)
        δa_t = δg_t ∘ φ'(a_t)

    and since every step uses the same weights their gradients are sums over time:

        δW = Σ_t δa_tᵀ g_{t−1},   δU = Σ_t δa_tᵀ x_t,   δb = Σ_t δa_t,   δx_t = δa_t U,   δg_0 = δa_1 W

    x (B, T, D), g0 (B, H), grad_y (B, T, H), grad_final (B, H)
    """
    U, W, b, b_hh = weights
    states = [g0]
    for x_t in x.unbind(1):
        states.append(nonlinearity(phi)(states[-1] @ W.T + x_t @ U.T + b + b_hh))
    grad_g = grad_final
    grad_a = []
    for t in reversed(range(x.shape[1])):
        grad_g = grad_g + grad_y[:, t]
        grad_a.append(grad_g * slope(phi, states[t + 1]))
        grad_g = grad_a[-1] @ W
    inner = _over_time(grad_a, g0)
    return _collect(x, (grad_g,), weights, states[:-1], inner, inner)


def gru_gradients(
    x: Tensor, h0: Tensor, weights: CellWeights, grad_y: Tensor, grad_final: Tensor
) -> RecurrentGradients:
    """Backpropagation through time for the GRU.

    One step is  h' = (1 − z) ∘ h + z ∘ ĥ,  ĥ = tanh(a_x + r ∘ a_h),  a_x = W x + b,  a_h = U h + c. Given δh',

        δz = δh' ∘ (ĥ − h)                    δĥ = δh' ∘ z
        δa_x = δĥ ∘ (1 − ĥ²)                  tanh' = 1 − tanh²
        δr = δa_x ∘ a_h                       δa_h = δa_x ∘ r
        δa_r = δr ∘ r ∘ (1 − r)               δa_z = δz ∘ z ∘ (1 − z)        σ' = σ(1 − σ)

    h is reached by four paths, and the output of the step before by one more:

        δh = δh' ∘ (1 − z) + δa_r U_r + δa_z U_z + δa_h U

    Input weights see (δa_r, δa_z, δa_x), recurrent weights (δa_r, δa_z, δa_h): b and c differ because r stands
    between them.

    x (B, T, D), h0 (B, H), grad_y (B, T, H), grad_final (B, H)
    """
    states, taps = [h0], []
    for x_t in x.unbind(1):
        h = states[-1]
        x_r, x_z, a_x = (x_t @ weights.w_ih.T + weights.b_ih).chunk(3, -1)
        h_r, h_z, a_h = (h @ weights.w_hh.T + weights.b_hh).chunk(3, -1)
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        candidate = torch.tanh(a_x + r * a_h)
        taps.append((r, z, candidate, a_h))
        states.append((1 - z) * h + z * candidate)
    grad_h = grad_final
    grad_inputs, grad_recurrents = [], []
    for t in reversed(range(x.shape[1])):
        r, z, candidate, a_h = taps[t]
        grad_h = grad_h + grad_y[:, t]
        grad_ax = grad_h * z * (1 - candidate**2)
        grad_ar = grad_ax * a_h * r * (1 - r)
        grad_az = grad_h * (candidate - states[t]) * z * (1 - z)
        grad_inputs.append(torch.cat([grad_ar, grad_az, grad_ax], -1))
        grad_recurrents.append(torch.cat([grad_ar, grad_az, grad_ax * r], -1))
        grad_h = grad_h * (1 - z) + grad_recurrents[-1] @ weights.w_hh
    inner, outer = _over_time(grad_inputs, weights.b_ih), _over_time(grad_recurrents, weights.b_hh)
    return _collect(x, (grad_h,), weights, states[:-1], inner, outer)


def lstm_gradients(
    x: Tensor,
    state: tuple[Tensor, Tensor],
    weights: CellWeights,
    grad_y: Tensor,
    grad_final: tuple[Tensor, Tensor],
) -> RecurrentGradients:
    """Backpropagation through time for the LSTM.

    One step is  c' = f ∘ c + i ∘ c̃,  h' = o ∘ tanh(c'). c' reaches J through h' and through the next cell, so
    given δh' and the δc' that comes from later,

        δo = δh' ∘ tanh(c')                   δc' ← δc' + δh' ∘ o ∘ (1 − tanh²(c'))
        δf = δc' ∘ c        δi = δc' ∘ c̃      δc̃ = δc' ∘ i        δc = δc' ∘ f

    and before the gates' nonlinearities

        δa_i = δi ∘ i(1 − i),  δa_f = δf ∘ f(1 − f),  δa_c = δc̃ ∘ (1 − c̃²),  δa_o = δo ∘ o(1 − o)
        δh = δa_i U_i + δa_f U_f + δa_c U_c + δa_o U_o

    The direct path of the cell is the product of forget gates; the gate paths come on top of it.

    x (B, T, D); h, c and their gradients (B, H); grad_y (B, T, H)
    """
    h, c = state
    hidden, taps = [h], []
    for x_t in x.unbind(1):
        gates = x_t @ weights.w_ih.T + hidden[-1] @ weights.w_hh.T + weights.b_ih + weights.b_hh
        a_i, a_f, a_c, a_o = gates.chunk(4, -1)
        i, f, candidate, o = torch.sigmoid(a_i), torch.sigmoid(a_f), torch.tanh(a_c), torch.sigmoid(a_o)
        before, c = c, f * c + i * candidate
        taps.append((i, f, candidate, o, before, torch.tanh(c)))
        hidden.append(o * torch.tanh(c))
    grad_h, grad_c = grad_final
    grad_gates = []
    for t in reversed(range(x.shape[1])):
        i, f, candidate, o, before, squashed = taps[t]
        grad_h = grad_h + grad_y[:, t]
        grad_c = grad_c + grad_h * o * (1 - squashed**2)
        grad_ai = grad_c * candidate * i * (1 - i)
        grad_af = grad_c * before * f * (1 - f)
        grad_ac = grad_c * i * (1 - candidate**2)
        grad_ao = grad_h * squashed * o * (1 - o)
        grad_gates.append(torch.cat([grad_ai, grad_af, grad_ac, grad_ao], -1))
        grad_c = grad_c * f
        grad_h = grad_gates[-1] @ weights.w_hh
    inner = _over_time(grad_gates, weights.b_ih)
    return _collect(x, (grad_h, grad_c), weights, hidden[:-1], inner, inner)


def _over_time(backwards: Sequence[Tensor], like: Tensor) -> Tensor:
    """Step gradients, collected from the last to the first, as (B, T, K·H)."""
    return torch.stack(list(reversed(backwards)), 1) if backwards else like.new_zeros(1, 0, like.shape[-1])


def _collect(
    x: Tensor,
    state: tuple[Tensor, ...],
    weights: CellWeights,
    before: Sequence[Tensor],
    grad_input: Tensor,
    grad_recurrent: Tensor,
) -> RecurrentGradients:
    """Sums over time of what each step says: δW_ih = Σ δaᵀ x, δW_hh = Σ δaᵀ h_{t−1}, δb = Σ δa, δx = δa W_ih."""
    return RecurrentGradients(
        grad_input @ weights.w_ih,
        state,
        CellWeights(
            torch.einsum("btk,btd->kd", grad_input, x),
            torch.einsum("btk,bth->kh", grad_recurrent, torch.stack(list(before), 1)),
            grad_input.sum((0, 1)),
            grad_recurrent.sum((0, 1)),
        ),
    )


# --------------------------------------------------------------------------- losses and small networks


def cross_entropy_gradient(theta: Tensor, targets: Tensor) -> Tensor:
    """∂J/∂θ of J = −Σ_b log ŷ_b[target_b] with ŷ = softmax(θ):  ŷ − y.

    log ŷ_k = θ_k − log Σ_j e^{θ_j}, so ∂(−log ŷ_k)/∂θ_j = ŷ_j − [j = k]: the prediction minus the one-hot truth y.

    θ (B, V), targets (B,) -> (B, V)
    """
    truth = torch.nn.functional.one_hot(targets, theta.shape[-1]).to(theta.dtype)
    return torch.softmax(theta, -1) - truth


class SigmoidNetworkGradients(NamedTuple):
    x: Tensor
    W1: Tensor
    b1: Tensor
    W2: Tensor
    b2: Tensor


def sigmoid_network(x: Tensor, W1: Tensor, b1: Tensor, W2: Tensor, b2: Tensor) -> Tensor:
    """Logits of the one-hidden-layer network:  θ = σ(x W_1 + b_1) W_2 + b_2.    x (B, D) -> (B, V)"""
    return torch.sigmoid(x @ W1 + b1) @ W2 + b2


def sigmoid_network_gradients(
    x: Tensor, W1: Tensor, b1: Tensor, W2: Tensor, b2: Tensor, targets: Tensor
) -> SigmoidNetworkGradients:
    """Gradients of J = Σ_b CE(softmax(θ_b), y_b),  θ = h W_2 + b_2,  h = σ(x W_1 + b_1).

        δθ = ŷ − y                            softmax with cross-entropy
        δW_2 = hᵀ δθ,   δb_2 = Σ_b δθ,   δh = δθ W_2ᵀ
        δa = δh ∘ h ∘ (1 − h)                 a = x W_1 + b_1, σ' = σ(1 − σ)
        δW_1 = xᵀ δa,   δb_1 = Σ_b δa,   δx = δa W_1ᵀ = [((ŷ − y) W_2ᵀ) ∘ h ∘ (1 − h)] W_1ᵀ

    x (B, D), W1 (D, H), W2 (H, V), targets (B,)
    """
    h = torch.sigmoid(x @ W1 + b1)
    grad_theta = cross_entropy_gradient(h @ W2 + b2, targets)
    grad_a = (grad_theta @ W2.T) * h * (1 - h)
    return SigmoidNetworkGradients(grad_a @ W1.T, x.T @ grad_a, grad_a.sum(0), h.T @ grad_theta, grad_theta.sum(0))


# --------------------------------------------------------------------------- normalisation


class NormGradients(NamedTuple):
    x: Tensor
    gain: Tensor
    bias: Tensor


def layer_norm_gradients(x: Tensor, gain: Tensor, grad_y: Tensor, eps: float = 1e-5) -> NormGradients:
    """y = γ ∘ z + β,  z = (x − μ)/s,  s = √(var + ε), mean and variance (1/d) over the features of each row.

    With u = δz = δy ∘ γ: x_j moves z_i directly (1/s), through μ (−1/(ds)) and through s (−z_i z_j/(ds)), so

        ∂z_i/∂x_j = ([i = j] − 1/d − z_i z_j/d) / s
        δx = (u − mean(u) − z ∘ mean(u ∘ z)) / s

    (with ε > 0 the same holds for z as defined, ε included). δγ and δβ sum over the rows.    x (…, d)
    """
    s = torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + eps)
    z = (x - x.mean(-1, keepdim=True)) / s
    u = grad_y * gain
    grad_x = (u - u.mean(-1, keepdim=True) - z * (u * z).mean(-1, keepdim=True)) / s
    rows = tuple(range(x.ndim - 1))
    return NormGradients(grad_x, (grad_y * z).sum(rows), grad_y.sum(rows))


def batch_norm_gradients(x: Tensor, gain: Tensor, grad_y: Tensor, eps: float = 1e-5) -> NormGradients:
    """As LayerNorm, with mean and variance (1/n) over the n rows of each feature instead of the features of a row.

        δx = (u − mean_rows(u) − z ∘ mean_rows(u ∘ z)) / s,   u = δy ∘ γ

    Padding is taken out before: x holds the real tokens only.    x (n, d)
    """
    s = torch.sqrt(x.var(0, unbiased=False) + eps)
    z = (x - x.mean(0)) / s
    u = grad_y * gain
    grad_x = (u - u.mean(0) - z * (u * z).mean(0)) / s
    return NormGradients(grad_x, (grad_y * z).sum(0), grad_y.sum(0))


# --------------------------------------------------------------------------- attention


class AttentionGradients(NamedTuple):
    q: Tensor
    k: Tensor
    v: Tensor


def attention_gradients(
    q: Tensor, k: Tensor, v: Tensor, grad_out: Tensor, mask: Tensor | None = None
) -> AttentionGradients:
    """O = A V,  A = softmax_row(S),  S = Q Kᵀ/√d, where the mask (True: may be attended to) allows.

        δV = Aᵀ δO            δA = δO Vᵀ
        δS = A ∘ (δA − rowsum(A ∘ δA))        since ∂A_j/∂S_l = A_j([j = l] − A_l) in each row
        δQ = δS K/√d          δK = δSᵀ Q/√d

    A hidden key has A = 0, so nothing flows through it; a row without keys has A = 0 everywhere and no gradient.

    q (…, T, d), k and v (…, S, d), mask broadcast to (…, T, S)
    """
    scale = q.shape[-1] ** -0.5
    scores = q @ k.transpose(-1, -2) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    A = torch.softmax(scores, -1).nan_to_num(0.0)
    grad_A = grad_out @ v.transpose(-1, -2)
    grad_S = A * (grad_A - (A * grad_A).sum(-1, keepdim=True))
    return AttentionGradients(grad_S @ k * scale, grad_S.transpose(-1, -2) @ q * scale, A.transpose(-1, -2) @ grad_out)
