"""The attentive RNN against its equation, one sum at a time; float64."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from seqlab.core.errors import UsageError
from seqlab.layers import AttentiveRNN

SCORES = ["dot", "scaled", "additive"]


def build(score: str, D: int = 3, H: int = 4, **options: Any) -> AttentiveRNN:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        layer = AttentiveRNN(D, H, score=score, **options).double()
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.normal_(std=0.5)
    return layer


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def plain(layer: AttentiveRNN, x: Tensor) -> Tensor:
    """One sequence at a time, one earlier state at a time."""
    rows = []
    for sequence in x:
        states: list[Tensor] = []
        for x_t in sequence:
            before = states[-1] if states else torch.zeros(layer.hidden_size, dtype=x.dtype)
            candidate = torch.tanh(layer.weight_ih @ x_t + layer.weight_hh @ before + layer.bias)
            past = states if layer.window is None else states[-layer.window :]
            h = candidate
            if past:
                scores = torch.stack([score(layer, candidate, h_l) for h_l in past])
                weights = torch.exp(scores - torch.logsumexp(scores, 0))
                h = candidate + sum(weight * h_l for weight, h_l in zip(weights, past, strict=True))
            states.append(h)
        rows.append(torch.stack(states))
    return torch.stack(rows)


def score(layer: AttentiveRNN, q: Tensor, k: Tensor) -> Tensor:
    if layer.score == "additive":
        return layer.v @ torch.tanh(layer.W_1 @ q + layer.W_2 @ k)
    return q @ k / (math.sqrt(layer.hidden_size) if layer.score == "scaled" else 1.0)


@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("score_name", SCORES)
def test_the_layer_follows_its_equation(score_name: str, window: int | None) -> None:
    for B, T, D, H in ((1, 1, 1, 1), (2, 7, 3, 4), (3, 5, 2, 6)):
        layer = build(score_name, D, H, window=window)
        x = random(B, T, D).requires_grad_()
        mine, expected = layer(x)[0], plain(layer, x)
        over = [x, *layer.parameters()]
        grad = random(B, T, H, seed=5)
        pairs = zip(
            torch.autograd.grad(mine, over, grad, allow_unused=True, materialize_grads=True),
            torch.autograd.grad(expected, over, grad, allow_unused=True, materialize_grads=True),
            strict=True,
        )
        for a, b in [(mine, expected), *pairs]:
            assert torch.allclose(a, b, rtol=0, atol=1e-11)


def test_the_first_step_attends_to_nothing_and_the_second_to_the_first() -> None:
    layer, x = build("dot"), random(2, 2, 3)
    y, state = layer(x)
    first = torch.tanh(x[:, 0] @ layer.weight_ih.T + layer.bias)
    second = torch.tanh(x[:, 1] @ layer.weight_ih.T + first @ layer.weight_hh.T + layer.bias)
    assert torch.allclose(y[:, 0], first)
    assert torch.allclose(y[:, 1], second + first)
    assert torch.equal(state.memory, y)
    assert torch.equal(state.hidden, y[:, 1])


@pytest.mark.parametrize("score_name", SCORES)
def test_sequences_of_different_lengths_continue_each_on_its_own(score_name: str) -> None:
    layer, first, second = build(score_name), random(3, 5, 3), random(3, 4, 3, seed=1)
    one, two = torch.tensor([5, 0, 2]), torch.tensor([4, 3, 1])
    _, state = layer(first, None, one)
    y, state = layer(second, state, two)
    for row in range(3):
        a, b = int(one[row]), int(two[row])
        expected, after = layer(torch.cat([first[row, :a], second[row, :b]])[None])
        assert torch.allclose(y[row, :b], expected[0, a:], rtol=0, atol=1e-12)
        assert torch.count_nonzero(y[row, b:]) == 0
        assert torch.allclose(state.hidden[row], after.hidden[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("score_name", SCORES)
def test_after_uneven_lengths_a_batch_may_go_on_without_lengths(score_name: str) -> None:
    """What is new is remembered of every sequence, what was padding of none."""
    layer, lengths = build(score_name), torch.tensor([5, 0, 2])
    texts = [random(3, 5, 3), random(3, 4, 3, seed=1), random(3, 3, 3, seed=2)]
    _, state = layer(texts[0], None, lengths)
    for piece in range(1, 3):
        y, state = layer(texts[piece], state)
        for row, length in enumerate(lengths.tolist()):
            before = [texts[0][row, :length], *(text[row] for text in texts[1 : piece + 1])]
            expected, after = layer(torch.cat(before)[None])
            assert torch.allclose(y[row], expected[0, -len(texts[piece][row]) :], rtol=0, atol=1e-12)
            assert torch.allclose(state.hidden[row], after.hidden[0], rtol=0, atol=1e-12)


def test_a_window_limits_the_memory() -> None:
    layer = build("scaled", window=3)
    _, state = layer(random(1, 10, 3))
    assert state.memory.shape == (1, 3, 4)


def test_wrong_use_is_named() -> None:
    with pytest.raises(UsageError, match="score 'dott' is not known; did you mean 'dot'"):
        AttentiveRNN(3, 4, score="dott")
    with pytest.raises(UsageError, match="window 0 is too small"):
        AttentiveRNN(3, 4, window=0)
    with pytest.raises(UsageError, match=r"x has shape \(2, 5\), but the layer reads \(batch, time, 3\)"):
        AttentiveRNN(3, 4)(torch.zeros(2, 5))
    _, state = AttentiveRNN(3, 4)(torch.zeros(2, 5, 3))
    with pytest.raises(UsageError, match=r"the state has shape \(2, 4\), but the layer and x need \(1, 4\)"):
        AttentiveRNN(3, 4)(torch.zeros(1, 5, 3), state)
    with pytest.raises(UsageError, match="a window of 2 counts positions"):
        AttentiveRNN(3, 4, window=2)(torch.zeros(2, 5, 3), None, torch.tensor([5, 1]))
