"""Operations, forward and backward: by hand, and as torch counts them where it counts.

Torch's counter sees the products of plain code only. Five things are known to differ, each by an exact number: it
counts all keys of causal attention, those that nobody sees too; it counts no product of a matrix and a vector; it
counts the column of ones with which linear attention sums its weights; the gradient by a state that is zero is formed
by our kernels, not by plain code; and the first position of an attentive layer, which nobody is before, asks nothing.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch
from tests.diagnostics.cost_cases import CASES, V, one_step, source_of
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import seqlab
from seqlab.core.registry import CLASSIFIERS, MODELS, TRANSLATORS
from seqlab.layers import (
    GRU,
    LSTM,
    RNN,
    AttentionPooling,
    AttentiveRNN,
    DecoderBlock,
    EncoderBlock,
    EncoderDecoderBlock,
    FeedForward,
    MultiHeadAttention,
    TransformerEncoder,
)
from seqlab.layers.pointer import REACH
from seqlab.layers.recurrent import Recurrent
from seqlab.models.recurrent_translator import RecurrentTranslator, SourceAttention

B, T, S = 2, 20, 13
CAUSAL_SUMS = ("lm transformer, separable", "lm transformer, random_features")  # cut into chunks: by hand, below


def torch_counts(model: Any) -> tuple[int, int]:
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward:
            loss = one_step(model.train(), B, T, S)
        with FlopCounterMode(display=False) as backward:
            loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.fixture
def plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recurrent layers step by step, in plain code."""

    def forward(layer: Recurrent, x: Tensor, state: Any = None, lengths: Tensor | None = None) -> Any:
        return layer.watch(x, state, lengths)[:2]

    monkeypatch.setattr(Recurrent, "forward", forward)


def test_there_is_a_case_of_every_kind_of_every_task() -> None:
    registered = {"lm": MODELS, "classify": CLASSIFIERS, "translate": TRANSLATORS}
    kinds = {f"{task} {kind}" for task, of_task in registered.items() for kind in of_task}
    assert kinds <= {name.split(",")[0] for name in CASES} | {"lm convolution"}  # an example that others register


@pytest.mark.parametrize("name", [name for name in CASES if name not in CAUSAL_SUMS])
def test_operations_are_those_that_torch_counts(name: str, plain_loops: None) -> None:
    torch.manual_seed(0)
    model = CASES[name]()
    ours = seqlab.cost(model, B, T, source_length=source_of(model, S))
    forward, backward = torch_counts(model)
    unseen, vectors, ones, starts = (sum(figures) for figures in zip(*differences(model), strict=True))
    between = unseen - vectors + ones
    assert ours.flops_forward + between == forward
    if "recompute" not in name:  # where torch counts the second forward pass of the blocks
        assert ours.flops_backward + 2 * between - starts == backward


def differences(model: nn.Module) -> list[tuple[int | Fraction, int, int, int]]:
    """Of each layer: keys that nobody sees, products with vectors, columns of ones, gradients by zero states."""
    found: list[tuple[int | Fraction, int, int, int]] = [(0, 0, 0, 0)]
    begun = [child.decoder for child in model.modules() if isinstance(child, RecurrentTranslator)]
    for layer in model.modules():
        if isinstance(layer, DecoderBlock | EncoderDecoderBlock):
            found.append((unseen_keys(layer.attention), 0, 0, 0))
        elif isinstance(layer, MultiHeadAttention) and layer.kind != "softmax":
            rows, features = 2 * B * T * layer.n_heads, layer.head_width
            ones = rows * features if layer.kind == "separable" else 2 * rows * len(layer.directions)
            found.append((0, 0, ones, 0))
        elif isinstance(layer, Recurrent) and layer not in begun:
            states = layer.num_layers * layer.directions
            found.append((0, 0, 0, states * 2 * B * layer.gates * layer.hidden_size**2))
        elif isinstance(layer, AttentiveRNN):
            seen = sum(min(t, layer.window or t) for t in range(T))
            vectors = 2 * B * (seen * layer.hidden_size + layer.hidden_size**2) if layer.score == "additive" else 0
            found.append((0, vectors, 0, 2 * B * layer.hidden_size**2))
        elif isinstance(layer, AttentionPooling):
            found.append((0, 2 * B * T * len(layer.v), 0, 0))
        elif isinstance(layer, SourceAttention) and layer.score == "additive":
            found.append((0, 2 * B * T * S * len(layer.v), 0, 0))
    return found


def unseen_keys(layer: MultiHeadAttention) -> int:
    seen = sum(min(t + 1, layer.window or T) for t in range(T))
    return 4 * B * layer.n_heads * layer.head_width * (T * T - seen)


# --------------------------------------------------------------------------- where torch is silently wrong


def test_torch_counts_nothing_where_kernels_are_fused() -> None:
    x = torch.randn(B, T, 8, requires_grad=True)
    recurrent, attention = LSTM(8, 8), MultiHeadAttention(8, 2)
    for layer in (recurrent, recurrent.to_torch()):
        with FlopCounterMode(display=False) as counter:
            layer(x)[0].sum().backward()
        assert counter.get_total_flops() == 0
        cost = seqlab.cost(layer, B, T)
        assert cost.flops_forward == 2 * B * T * 4 * (8 * 8 + 8 * 8)
        assert cost.flops_backward == 2 * cost.flops_forward
    with FlopCounterMode(display=False) as counter:
        attention(x, x, x)[0].sum().backward()
    cost = seqlab.cost(attention, B, T)
    projections = cost.part("projections")
    assert counter.get_total_flops() == projections.flops_forward + projections.flops_backward
    assert cost.part("scores").flops_forward == cost.part("mixing").flops_forward == 2 * B * T * T * 8


# --------------------------------------------------------------------------- by hand

d, h, f = 24, 4, 40


def test_attention_by_hand() -> None:
    projections = 8 * T * d * d
    own = MultiHeadAttention(d, h)
    assert seqlab.cost(own, B, T).flops_forward == B * (projections + 4 * T * T * d)
    across = seqlab.cost(own, B, T, source_length=S)
    assert across.flops_forward == B * (4 * T * d * d + 4 * S * d * d + 4 * T * S * d)
    separable = MultiHeadAttention(d, h, kind="separable")
    assert seqlab.cost(separable, B, T).flops_forward == B * (projections + 4 * T * d * d // h)
    features = MultiHeadAttention(d, h, kind="random_features", features=10)
    cost = seqlab.cost(features, B, T)
    assert cost.flops_forward == B * (projections + 8 * T * 10 * d)
    assert cost.flops_backward == B * (2 * projections + 4 * T * 10 * d + 8 * T * 10 * d)  # directions do not learn


@pytest.mark.parametrize("kind", ["separable", "random_features"])
def test_causal_linear_attention_by_hand(kind: str) -> None:
    model = CASES[f"lm transformer, {kind}"]()
    cost = seqlab.cost(model, B, T)
    rest = B * T * 2 * 12 * 32 * 32 * 2 + 2 * B * T * 32 * V
    core = 4 * B * T * 8 * 32 * 2 if kind == "separable" else 8 * B * T * 32 * 32 * 2
    assert cost.flops_forward == rest + core
    fixed = 2 * 2 * B * T * 32 * 32 * 2 if kind == "random_features" else 0
    assert cost.flops_backward == 2 * cost.flops_forward - fixed


def test_blocks_by_hand() -> None:
    feed_forward = 4 * T * d * f
    causal = 8 * T * d * d + 4 * d * T * (T + 1) // 2

    def block(kind: type[Any], *attentions: MultiHeadAttention) -> Any:
        return kind(*attentions, mlp=FeedForward(d, f))

    def attention() -> MultiHeadAttention:
        return MultiHeadAttention(d, h)

    encoder = TransformerEncoder([block(EncoderBlock, attention()) for _ in range(3)])
    assert seqlab.cost(encoder, B, T).flops_forward == 3 * B * (8 * T * d * d + 4 * T * T * d + feed_forward)
    assert seqlab.cost(block(DecoderBlock, attention()), B, T).flops_forward == B * (causal + feed_forward)
    both = seqlab.cost(block(EncoderDecoderBlock, attention(), attention()), B, T, source_length=S)
    cross = 4 * T * d * d + 4 * S * d * d + 4 * T * S * d
    assert both.flops_forward == B * (causal + cross + feed_forward)
    gated = FeedForward(d, f, gated=True)
    assert seqlab.cost(gated, B, T).flops_forward == B * 6 * T * d * f


def test_recurrent_layers_by_hand() -> None:
    D, H = 10, 12
    for gates, kind in ((1, RNN), (3, GRU), (4, LSTM)):
        both = kind(D, H, 2, bidirectional=True)
        expected = B * T * 2 * gates * 2 * (H * (D + H) + H * (2 * H + H))
        assert seqlab.cost(both, B, T).flops_forward == seqlab.cost(both.to_torch(), B, T).flops_forward == expected
        assert seqlab.cost(both, B, T).flops_backward == 2 * expected
    pre = seqlab.cost(RNN(D, H, form="pre"), B, T)
    assert pre.flops_forward == 2 * (B * T * 2 * H * (D + H))
    look = AttentiveRNN(D, H)
    pairs = T * (T - 1) // 2
    assert seqlab.cost(look, B, T).flops_forward == B * (T * 2 * H * (D + H) + 4 * pairs * H)


def test_translators_by_hand() -> None:
    """Width 32, two encoder and two decoder layers; T target and S source tokens."""
    w = 32
    encoder = 2 * (24 * S * w * w + 4 * S * S * w)
    own = 8 * T * w * w + 4 * w * T * (T + 1) // 2
    cross = 4 * T * w * w + 4 * S * w * w + 4 * T * S * w
    decoder = 2 * (own + cross + 16 * T * w * w)
    leaving = 2 * T * w * w + 2 * T * w * V
    cost = seqlab.cost(CASES["translate transformer"](), B, T, source_length=S)
    assert cost.flops_forward == B * (encoder + decoder + leaving)
    pointed = seqlab.cost(CASES["translate transformer, pointer"](), B, T, source_length=S)
    guide = 2 * T * w * w + 2 * S * w * w + 2 * T * w + 2 * T * S * w + 2 * T * (S + 1) * REACH * REACH
    assert pointed.part("guide").flops_forward == B * guide
    assert pointed.flops_forward == B * (encoder + decoder // 2 + leaving + guide)

    cost = seqlab.cost(CASES["translate gru"](), B, T, source_length=S)
    encoder = 2 * 2 * S * 2 * 3 * 16 * (32 + 16)  # two layers, two directions of 16 units
    decoder = 2 * T * 2 * 3 * w * (w + w)
    entering = 2 * S * w * w + 2 * w * 2 * w  # the source, and the states of two layers
    attending = 2 * T * w * w + 4 * T * S * w + 2 * T * 2 * w * w
    assert cost.flops_forward == B * (encoder + decoder + entering + attending + 2 * T * w * V)


def test_classifiers_by_hand() -> None:
    w, classes = 32, 5
    cost = seqlab.cost(CASES["classify transformer"](), B, T)
    assert cost.flops_forward == B * (2 * (24 * T * w * w + 4 * T * T * w) + 2 * w * classes)
    cost = seqlab.cost(CASES["classify average"](), B, T)
    assert cost.flops_forward == B * 2 * (32 * 24 + 24 * 24 + 24 * classes)
    assert seqlab.cost(CASES["classify average, bayes"](), B, T).flops_forward == 0
