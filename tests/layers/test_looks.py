"""What recurrent layers show is what they compute: against the plain equations, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.layers.looked_at import B, D, H, T, close, random, spread
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from seqlab.core.errors import UsageError
from seqlab.core.state import tensors_of
from seqlab.core.taps import NotSeenError, Seen, tap_names, taps
from seqlab.layers import (
    GRU,
    LSTM,
    RNN,
    AttentionPooling,
    AttentiveRNN,
    EncoderBlock,
    MultiHeadAttention,
)
from seqlab.models import build_lm
from seqlab.ops.reference.recurrence import CellWeights, gru_step, loop, lstm_loop, rnn_step, rnn_step_pre


def weights_of(layer: Any, suffix: str = "l0") -> CellWeights:
    return CellWeights(
        *(getattr(layer, f"{part}_{suffix}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    )


def before(seen: Seen, name: str = "l0.hidden") -> Tensor:
    """The hidden vector that each step starts from, without a state."""
    return F.pad(seen[name], (0, 0, 1, 0))[:, :-1]


# --------------------------------------------------------------------------- recurrent layers


def test_gates_of_the_gru() -> None:
    layer, x = spread(GRU(D, H)), random(B, T, D)
    with taps(layer) as seen:
        y, _ = layer(x)
    w = weights_of(layer)
    expected, _ = loop(lambda x, h: gru_step(x, h, w), x, x.new_zeros(B, H))
    r, z, candidate, h = (seen[f"l0.{name}"] for name in ("r", "z", "candidate", "hidden"))
    assert close(h, expected)
    assert close(h, y)
    assert close((1 - z) * before(seen) + z * candidate, expected)
    a_r, a_z, _ = (x @ w.w_ih.T + w.b_ih + before(seen) @ w.w_hh.T + w.b_hh).chunk(3, -1)
    assert close(r, a_r.sigmoid())
    assert close(z, a_z.sigmoid())


def test_gates_of_the_lstm() -> None:
    layer, x = spread(LSTM(D, H)), random(B, T, D)
    with taps(layer) as seen:
        y, (h_last, c_last) = layer(x)
    w = weights_of(layer)
    expected, _ = lstm_loop(x, x.new_zeros(B, H), x.new_zeros(B, H), w)
    i, f, o, c, candidate, h = (seen[f"l0.{name}"] for name in ("i", "f", "o", "c", "candidate", "hidden"))
    assert close(h, expected)
    assert close(h, y)
    assert close(c[:, -1], c_last[0])
    assert close(h[:, -1], h_last[0])
    assert close(f * before(seen, "l0.c") + i * candidate, c)
    assert close(o * c.tanh(), h)
    a_i, a_f, _, a_o = (x @ w.w_ih.T + w.b_ih + before(seen) @ w.w_hh.T + w.b_hh).chunk(4, -1)
    for gate, a in ((i, a_i), (f, a_f), (o, a_o)):
        assert close(gate, a.sigmoid())


@pytest.mark.parametrize("phi", ["tanh", "relu", "sigmoid"])
def test_both_forms_of_the_rnn(phi: str) -> None:
    x = random(B, T, D)
    post = spread(RNN(D, H, nonlinearity=phi))
    with taps(post) as seen:
        post(x)
    expected, _ = loop(lambda x, h: rnn_step(x, h, weights_of(post), phi), x, x.new_zeros(B, H))
    assert close(seen["l0.hidden"], expected)
    pre = spread(RNN(D, H, nonlinearity=phi, form="pre"))
    start = pre._zero_state(x)[0]
    with taps(pre) as seen:
        y, _ = pre(x)
    expected, _ = loop(lambda x, h: rnn_step_pre(x, h, weights_of(pre), phi), x, start)
    assert close(seen["l0.hidden"], expected)
    assert close(seen["l0.hidden"], y)
    assert close(seen["l0.activation"], getattr(torch, phi)(expected))


@pytest.mark.parametrize("kind", [RNN, GRU, LSTM])
def test_layers_directions_state_and_lengths(kind: Any) -> None:
    layer, x = spread(kind(D, H, 2, bidirectional=True)), random(B, T, D)
    first, state = layer(x)
    lengths = torch.tensor([5, 0, 3])
    with taps(layer, "*.hidden") as seen:
        y, _ = layer(x, state, lengths)
    assert list(seen) == ["l0.hidden", "l0_reverse.hidden", "l1.hidden", "l1_reverse.hidden"]
    assert close(torch.cat([seen["l1.hidden"], seen["l1_reverse.hidden"]], -1), y)
    assert len(seen.steps("l1.hidden")) == T
    with taps(layer, "*.hidden") as seen:
        layer(x)
    assert close(torch.cat([seen["l1.hidden"], seen["l1_reverse.hidden"]], -1), first)


@pytest.mark.parametrize("kind", [RNN, GRU, LSTM, AttentiveRNN])
def test_no_time_at_all(kind: Any) -> None:
    layer = spread(kind(D, H))
    with taps(layer, "*hidden") as seen:
        layer(random(B, 0, D))
    assert next(iter(seen.values())).shape == (B, 0, H)


@pytest.mark.parametrize("kind", [RNN, GRU, LSTM, nn.RNN, nn.GRU, nn.LSTM])
def test_dropout_between_layers_is_drawn_again(kind: Any) -> None:
    options = {"batch_first": True} if kind.__module__.startswith("torch") else {}
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        layer = spread(kind(D, H, 3, dropout=0.5, **options)).to(dtype).train()
        torch.manual_seed(1)
        expected, _ = layer(random(B, T, D).to(dtype))
        after = torch.get_rng_state()
        torch.manual_seed(1)
        with taps(layer, "l2.hidden") as seen:
            y, _ = layer(random(B, T, D).to(dtype))
        assert torch.equal(y, expected)
        assert torch.equal(torch.get_rng_state(), after)
        assert close(seen["l2.hidden"], y, tolerance)


# --------------------------------------------------------------------------- torch's recurrent layers


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_recurrent_layers_of_torch(kind: Any, batch_first: bool, bias: bool) -> None:
    module = spread(kind(D, H, 2, bidirectional=True, batch_first=batch_first, bias=bias))
    x = random(B, T, D) if batch_first else random(T, B, D)
    _, state = module(x)
    expected = module(x, state)[0]
    with taps(module, "l1*.hidden") as seen:
        y, _ = module(x, state)
    assert torch.equal(y, expected)
    hidden = torch.cat([seen["l1.hidden"], seen["l1_reverse.hidden"]], -1)
    assert close(hidden if batch_first else hidden.transpose(0, 1), y)


def test_the_update_gate_of_torch_is_turned_round() -> None:
    module, x = spread(nn.GRU(D, H, batch_first=True)), random(B, T, D)
    with taps(module) as seen:
        module(x)
    w = weights_of(module)
    a_z = (x @ w.w_ih.T + w.b_ih + before(seen) @ w.w_hh.T + w.b_hh).chunk(3, -1)[1]
    assert close(seen["l0.z"], 1 - a_z.sigmoid())


def test_what_cannot_be_looked_into_runs_and_says_so() -> None:
    module, x = spread(nn.GRU(D, H, batch_first=True)), random(B, T, D)
    packed = pack_padded_sequence(x, torch.tensor([5, 4, 2]), batch_first=True)
    for on_path in (False, True):
        with taps(module, on_path=on_path) as seen:
            y, _ = module(packed)
            assert torch.equal(y.data, module(packed)[0].data)
            with pytest.raises(
                NotSeenError, match=r"a packed sequence cannot be looked into; feed a tensor \(B, T, D\)"
            ):
                seen["l0.z"]
            module(x[0])
            with pytest.raises(NotSeenError, match="a sequence without a batch cannot be looked into"):
                seen["l0.z"]
    assert tap_names(nn.LSTM(D, H, proj_size=2)) == []


# --------------------------------------------------------------------------- the attentive RNN


@pytest.mark.parametrize("score", ["dot", "scaled", "additive"])
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("continued", [False, True])
def test_attentive(score: str, window: int | None, continued: bool) -> None:
    layer, x = spread(AttentiveRNN(D, H, score=score, window=window)), random(B, T, D)
    state = layer(random(B, 4, D, seed=1))[1] if continued else None
    with taps(layer) as seen:
        y, after = layer(x, state)
    past = 0 if state is None else state.memory.shape[1]
    memory = torch.cat([seen["hidden"] if state is None else torch.cat([state.memory, seen["hidden"]], 1)], 1)
    scores, weights = seen["scores"], seen["weights"]
    assert scores.shape == weights.shape == (B, T, past + T)
    assert close(seen["hidden"], y)
    assert close(seen["candidate"] + weights @ memory, y)
    columns, rows = torch.arange(past + T), torch.arange(T)[:, None] + past
    visible = (columns < rows) & (columns >= rows - (window or T + past))
    assert torch.equal(scores > -torch.inf, visible.expand(B, T, past + T))
    assert torch.equal(weights > 0, visible.expand(B, T, past + T))
    softmaxed = scores.softmax(-1).nan_to_num(0.0)
    assert close(softmaxed, weights)
    expected = layer._scores(seen["candidate"], memory)
    assert close(scores[:, visible], expected[:, visible])
    assert close(after.memory[:, -1], y[:, -1])


def test_attentive_with_lengths() -> None:
    layer, x = spread(AttentiveRNN(D, H)), random(B, T, D)
    lengths = torch.tensor([5, 0, 3])
    with taps(layer) as seen:
        y, state = layer(x, lengths=lengths)
        y, _ = layer(x, state, torch.tensor([2, 5, 4]))
    assert close(seen["hidden"], y)
    first, second = seen.calls("weights")
    for weights, scores in zip((first, second), seen.calls("scores"), strict=True):
        assert torch.equal(weights > 0, scores > -torch.inf)
    assert not first[1].any()
    assert not first[2, 3:].any()
    assert torch.equal(second[2, 0, :T] > 0, torch.arange(T) < 3)
    assert not second[0, 2:].any()
    assert close(second[1, 1:].sum(-1), torch.ones(4).double())


# --------------------------------------------------------------------------- on the path


def through_later_steps(layer: Any, x: Tensor, t: int, loss: Any) -> Tensor:
    """∂loss/∂h_t in full: a leaf in the place of h_t, from which the rest is computed.    (B, H)"""
    y, state = layer(x[:, : t + 1])
    h, *others = (part.detach() for part in tensors_of(state))
    h.requires_grad_()
    parts = [y[:, :t].detach(), h[0][:, None]]
    if t + 1 < x.shape[1]:
        parts.append(layer(x[:, t + 1 :], (h, *others) if others else h)[0])
    total = loss(torch.cat(parts, 1))
    return torch.autograd.grad(total, h)[0][0]


@pytest.mark.parametrize("kind", [RNN, GRU, LSTM, nn.RNN, nn.GRU, nn.LSTM])
def test_gradients_through_all_later_steps(kind: Any) -> None:
    options = {"batch_first": True} if kind.__module__.startswith("torch") else {}
    layer, x, factor = spread(kind(D, H, **options)), random(B, T, D), random(B, T, H, seed=1)

    def loss(y: Tensor) -> Tensor:
        return (y * factor).square().sum()

    expected, _ = layer(x)
    loss(expected).backward()
    weights = [weight.grad.clone() for weight in layer.parameters()]
    layer.zero_grad()
    with taps(layer, "l0.hidden", on_path=True) as seen:
        y, state = layer(x)
    assert close(y, expected)
    assert close(tensors_of(state)[0][0], y[:, -1])
    for t, gradient in enumerate(torch.autograd.grad(loss(y), seen.steps("l0.hidden"), retain_graph=True)):
        assert close(gradient, through_later_steps(layer, x, t, loss)), t
    layer.zero_grad()
    loss(y).backward()
    assert all(close(weight.grad, w) for weight, w in zip(layer.parameters(), weights, strict=True))


def test_gradients_through_a_stack_with_dropout() -> None:
    layer, x = spread(GRU(D, H, 2, dropout=0.5)).train(), random(B, T, D)
    torch.manual_seed(0)
    expected, _ = layer(x)
    after = torch.get_rng_state()
    torch.manual_seed(0)
    with taps(layer, "*.hidden", on_path=True) as seen:
        y, _ = layer(x)
    assert torch.equal(torch.get_rng_state(), after)
    assert close(y, expected)
    gradients = torch.autograd.grad(y.sum(), seen.steps("l0.hidden"))
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


def test_gradients_of_the_attentive_rnn() -> None:
    layer, x = spread(AttentiveRNN(D, H, score="additive")), random(B, T, D)
    expected, _ = layer(x)
    with taps(layer, on_path=True) as seen:
        y, _ = layer(x)
    assert close(y, expected)
    for name in ("hidden", "candidate", "weights", "scores"):
        gradients = torch.autograd.grad(y.square().sum(), seen.steps(name), retain_graph=True)
        assert all(torch.isfinite(gradient).all() for gradient in gradients)
        assert gradients[-1].abs().sum() > 0


def test_what_the_last_call_could_not_show_is_not_what_an_earlier_one_showed() -> None:
    model = build_lm("transformer", 20, width=16, depth=1, heads=4, context=8, attention="separable")
    ids = torch.randint(20, (1, 5))
    with taps(model, "*.weights") as seen:
        _, state = model(ids)
        assert seen["blocks.0.attention.weights"].shape == (1, 4, 5, 5)
        model(ids[:, :1], state)
        with pytest.raises(UsageError, match="in the last call: attention 'separable' remembers sums"):
            seen["blocks.0.attention.weights"]
        assert len(seen.calls("blocks.0.attention.weights")) == 1
        model(ids)
        assert seen["blocks.0.attention.weights"].shape == (1, 4, 5, 5)


def test_pooling_and_bigram_are_on_the_path() -> None:
    pooling, lengths = AttentionPooling(4).double(), torch.tensor([3, 1, 0])
    y = torch.randn(3, 3, 4, dtype=torch.float64)
    plain = pooling(y, lengths)
    with taps(pooling, on_path=True) as seen:
        pooled = pooling(y, lengths)
    assert torch.allclose(pooled, plain, rtol=0, atol=1e-12)
    (gradient,) = torch.autograd.grad(pooled.sum(), seen["weights"])
    assert torch.allclose(gradient[0], y[0].sum(-1))
    bigram, ids = build_lm("bigram", 9, width=5), torch.randint(9, (2, 4))
    with taps(bigram, "hidden", on_path=True) as seen:
        logits, _ = bigram(ids)
    assert torch.allclose(logits, bigram(ids)[0])
    (gradient,) = torch.autograd.grad(logits.sum(), seen["hidden"])
    assert torch.allclose(gradient[0, 0], bigram.output.weight.sum(0))


def test_the_stream_is_what_the_block_reads() -> None:
    block, lengths = EncoderBlock(MultiHeadAttention(8, 2)), torch.tensor([3, 1])
    x = torch.randn(2, 3, 8)
    x[1, 1:] = torch.nan
    with taps(block, "stream") as seen:
        block(x, lengths)
    assert torch.equal(seen["stream"][0], x[0])
    assert torch.count_nonzero(seen["stream"][1, 1:]) == 0
