"""Costs: the figures of every kind of model, against torch's own count, by hand; what is not known is refused."""

from typing import Any

import examples.own_model
import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from seqlab.core.errors import UsageError
from seqlab.core.registry import MODELS
from seqlab.diagnostics.cost import FORWARD_FLOPS, count_parameters, forward_flops, training_flops
from seqlab.layers import GRU, LSTM, RNN, EncoderDecoderBlock, MultiHeadAttention, TokenBatchNorm, attention
from seqlab.models import build_lm

MODELS.pop("convolution", None)  # importing the example registered it

# kind, sizes, parameters, operations of the forward pass for a token in windows of 17 and of 64; vocabulary 70
FIGURES: list[tuple[str, dict[str, Any], int, int, int]] = [
    ("rnn", dict(), 167750, 297984, 297984),
    ("gru", dict(), 430918, 822272, 822272),
    ("lstm", dict(), 562502, 1084416, 1084416),
    ("attentive-rnn", dict(), 168006, 306176, 330240),
    ("transformer", dict(), 613120, 1211392, 1247488),
    ("bigram", dict(), 9670, 12000, 12000),
    ("rnn", dict(width=24, depth=2, tied=True), 4174, 7968, 7968),
    ("gru", dict(width=24, depth=2, tied=True), 8974, 17184, 17184),
    ("lstm", dict(width=24, depth=3, tied=True), 16174, 31008, 31008),
    ("attentive-rnn", dict(width=24, depth=2, score="additive"), 8254, 30240, 88896),
    ("attentive-rnn", dict(width=24, depth=2, score="dot", tied=True), 4222, 9504, 14016),
    ("transformer", dict(width=32, heads=4, depth=3, context=16, tied=True), 40448, 81664, 90688),
    ("transformer", dict(width=32, heads=4, depth=2, context=16, positions="learned"), 30496, 55936, 61952),
    ("transformer", dict(width=32, heads=4, depth=2, context=16, positions="sinusoidal"), 29984, 55936, 61952),
    ("transformer", dict(width=32, heads=2, depth=1, context=16, attention="separable"), 17280, 31104, 31104),
    ("transformer", dict(width=32, heads=2, depth=1, context=16, attention="random_features"), 17280, 45440, 45440),
    ("bigram", dict(width=24, vector_width=10, train_vectors=False), 2724, 3840, 3840),
]


@pytest.mark.parametrize(("kind", "sizes", "parameters", "short", "long"), FIGURES)
def test_the_figures_of_every_kind(kind: str, sizes: dict[str, Any], parameters: int, short: int, long: int) -> None:
    model = build_lm(kind, 70, **sizes)
    assert count_parameters(model) == parameters
    assert forward_flops(model, 17) == short
    assert forward_flops(model, 64) == long


def test_every_registered_kind_has_figures() -> None:
    assert {kind for kind, *_ in FIGURES} == set(MODELS)


def counted(model: Any, batch: int, context: int) -> float:
    """What torch counts for one token, forward."""
    ids = torch.zeros(batch, context, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(ids)
    return counter.get_total_flops() / (batch * context)


def test_flops_of_matrices_are_those_that_torch_counts() -> None:
    bigram = build_lm("bigram", 70, width=24, vector_width=10)
    assert forward_flops(bigram, 16) == counted(bigram, 3, 16) == 2 * (10 * 24 + 24 * 70)
    attentive = build_lm("attentive-rnn", 70, width=24, depth=2, context=16)
    assert forward_flops(attentive, 16) == pytest.approx(counted(attentive, 3, 16))
    additive = build_lm("attentive-rnn", 70, width=24, depth=1, context=16, score="additive")
    assert forward_flops(additive, 16) == pytest.approx(counted(additive, 3, 16), rel=0.1)


def test_flops_of_a_transformer_are_those_of_plain_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch counts all C keys for each token, the masked ones too; on average only (C+1)/2 are seen."""

    def plain(q: Any, k: Any, v: Any, **_: Any) -> Any:
        return attention.softmax.mix(attention.softmax.attention_weights(attention.softmax.scaled_scores(q, k)), v)

    monkeypatch.setattr(attention.softmax, "softmax_attention", plain)
    for tied in (False, True):
        model = build_lm("transformer", 70, width=32, depth=3, heads=4, context=16, tied=tied)
        all_keys = 4 * 16 * 32 * 3
        seen = 4 * (16 + 1) / 2 * 32 * 3
        assert forward_flops(model, 16) == pytest.approx(counted(model, 2, 16) - all_keys + seen)


@pytest.mark.parametrize(("kind", "gates"), [("rnn", 1), ("gru", 3), ("lstm", 4)])
def test_flops_of_recurrent_models_by_hand(kind: str, gates: int) -> None:
    width, vocabulary, depth = 24, 70, 2
    by_hand = 2 * (depth * gates * 2 * width * width + width * vocabulary)
    for tied in (False, True):
        model = build_lm(kind, vocabulary, width=width, depth=depth, tied=tied)
        assert forward_flops(model, 32) == by_hand
        assert training_flops(model, 32) == 3 * by_hand


def test_flops_of_linear_attention_by_hand() -> None:
    rest = forward_flops(build_lm("transformer", 70, width=32, depth=1, heads=4, context=16), 16) - 4 * 17 / 2 * 32
    separable = build_lm("transformer", 70, width=32, depth=1, heads=4, context=16, attention="separable")
    assert forward_flops(separable, 16) - rest == 4 * 8 * 32
    random = build_lm("transformer", 70, width=32, depth=1, heads=4, context=16, attention="random_features")
    assert forward_flops(random, 16) - rest == 2 * 4 * 32 * 32  # 4·8 features, for queries and keys, sums and reading


# --------------------------------------------------------------------------- single layers


def test_flops_of_torch_s_own_layers() -> None:
    D, H = 5, 7
    assert forward_flops(nn.Linear(D, H), 9) == 2 * D * H
    assert forward_flops(nn.Conv1d(D, H, 4), 9) == 2 * D * H * 4
    assert forward_flops(nn.Conv1d(6, 9, 4, groups=3), 9) == 2 * 9 * 2 * 4
    for gates, theirs, ours in ((1, nn.RNN, RNN), (3, nn.GRU, GRU), (4, nn.LSTM, LSTM)):
        expected = 2 * gates * 2 * (H * (D + H) + H * (2 * H + H))
        for kind in (theirs, ours):
            assert forward_flops(kind(D, H, 2, bidirectional=True), 9) == expected
    assert forward_flops(nn.LSTM(D, H, proj_size=3), 9) == 2 * (4 * H * (D + 3) + 3 * H)
    free = (nn.LayerNorm((3, 5)), nn.RMSNorm(5), TokenBatchNorm(5), nn.Dropout(), nn.GELU(), nn.Identity())
    for module in (*free, nn.Embedding(4, 5), nn.EmbeddingBag(4, 5), nn.Sequential()):
        assert forward_flops(module, 9) == 0


def test_flops_of_a_block_are_those_of_its_parts() -> None:
    own, cross = MultiHeadAttention(8, 2), MultiHeadAttention(8, 2)
    block = EncoderDecoderBlock(own, cross, norm="rms")
    causal = 2 * 8 * 32 + 4 * 8 * (9 + 1) / 2  # a position of the block sees itself and those before it
    assert forward_flops(own, 9) == 2 * 8 * 32 + 4 * 8 * 9  # bare, it is asked about all of them
    assert forward_flops(block, 9) == causal + forward_flops(cross, 9) + 2 * (2 * 8 * 32)
    assert forward_flops(nn.Sequential(block, block), 9) == forward_flops(block, 9)  # counted once


def test_flops_of_the_example_model() -> None:
    model = examples.own_model.CausalConvolutionLM(70, width=16, depth=3)
    assert forward_flops(model, 9) == 2 * (3 * 16 * 16 * 4 + 16 * 70)


# --------------------------------------------------------------------------- layers that nobody knows


class Scale(nn.Module):
    """Owns a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.by = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.by * self.inner(x)


class Mixing(nn.Module):
    """Owns nothing and has no parts: what it does is its own secret."""

    def forward(self, x: Tensor) -> Tensor:
        return x @ x.transpose(1, 2) @ x


@pytest.mark.parametrize("kind", [Scale, Mixing])
def test_a_layer_that_is_not_known_is_refused(kind: type[nn.Module]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ModuleDict({"mix": kind()}))
    name = f"{kind.__module__}.{kind.__name__}"
    with pytest.raises(UsageError, match=rf"in layer '1.mix' \({name}\) is not known; .*\[{kind.__name__}\] = lambda"):
        forward_flops(model, 9)
    with pytest.raises(UsageError, match=rf"in the model \({name}\) is not known") as caught:
        training_flops(kind(), 9)
    assert "\n" not in str(caught.value)


def test_torch_s_layers_with_parameters_that_are_not_known_are_refused() -> None:
    for module in (nn.Bilinear(2, 3, 4), nn.MultiheadAttention(4, 2), nn.TransformerEncoderLayer(4, 2), nn.PReLU()):
        with pytest.raises(UsageError, match=r"\(torch.nn.modules.* is not known"):
            forward_flops(module, 9)


def test_a_registered_layer_answers_for_all_that_is_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORWARD_FLOPS, Scale, lambda layer, context: forward_flops(layer.inner, context) + context)
    monkeypatch.setitem(FORWARD_FLOPS, Mixing, lambda layer, context: 4.0 * 4 * context)
    model = nn.Sequential(Scale(), Mixing(), nn.Linear(4, 3))
    assert forward_flops(model, 9) == (2 * 4 * 4 + 9) + 4 * 4 * 9 + 2 * 4 * 3
    heir = type("Heir", (Scale,), {})
    assert forward_flops(heir(), 9) == 2 * 4 * 4 + 9
