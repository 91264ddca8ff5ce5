"""What attention, blocks, norms and embeddings show is what they compute, in float64."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from tests.layers.looked_at import B, D, T, close, random, spread
from torch import nn

from seqlab.core.errors import UsageError
from seqlab.core.state import tensors_of
from seqlab.core.taps import NotSeenError, Seen, tap_names, taps
from seqlab.layers import (
    DecoderBlock,
    EncoderBlock,
    EncoderDecoderBlock,
    MultiHeadAttention,
    RotaryPosition,
)

# --------------------------------------------------------------------------- attention

ATTENTIONS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "window": {"window": 3},
    "rotary": {"rotary": RotaryPosition(4)},
    "separable": {"kind": "separable"},
    "random_features": {"kind": "random_features"},
}
WIDTH = 8


@pytest.fixture(params=ATTENTIONS)
def attention(request: pytest.FixtureRequest) -> MultiHeadAttention:
    layer: MultiHeadAttention = spread(MultiHeadAttention(WIDTH, 2, **ATTENTIONS[request.param]))
    return layer


def check(layer: MultiHeadAttention, call: dict[str, Any]) -> Seen:
    """The weights are those that the layer gives if asked; scores under the mask are the weights."""
    with taps(layer) as seen:
        out, _, _ = layer(**call)
    _, _, weights = layer(**call, need_weights=True)
    assert close(seen["weights"], weights)
    assert torch.equal(seen["output"], out)
    if layer.kind == "softmax":
        masked = seen["scores"].masked_fill(weights == 0, -torch.inf)
        assert close(masked.softmax(-1).nan_to_num(0.0), weights)
    return seen


def test_self_attention(attention: MultiHeadAttention) -> None:
    x = random(B, T, WIDTH)
    names = ["scores", "weights", "output"] if attention.kind == "softmax" else ["weights", "output"]
    assert tap_names(attention) == names
    for causal in (False, True):
        for lengths in (None, torch.tensor([5, 0, 3])):
            if lengths is None or attention.window is None or not causal:
                call = dict(query=x, key=x, value=x, causal=causal, key_lengths=lengths)
                assert check(attention, call)["weights"].shape == (B, 2, T, T)


def test_what_stands_in_the_padding_is_not_seen() -> None:
    layer, lengths = spread(MultiHeadAttention(WIDTH, 2)), torch.tensor([5, 1, 3])
    x = random(B, T, WIDTH)
    expected = check(layer, dict(query=x, key=x, value=x, key_lengths=lengths))
    x = x.masked_fill((torch.arange(T) >= lengths[:, None])[..., None], torch.nan)
    seen = check(layer, dict(query=x, key=x, value=x, key_lengths=lengths))
    assert close(seen["weights"][0], expected["weights"][0])
    assert torch.isfinite(seen["scores"]).all()


def test_scores_are_scaled_products() -> None:
    layer, x = spread(MultiHeadAttention(WIDTH, 2)), random(B, T, WIDTH)
    seen = check(layer, dict(query=x, key=x, value=x, causal=True))
    q, k, _ = layer.project_in(x).view(B, T, 3, 2, 4).permute(2, 0, 3, 1, 4)
    assert close(seen["scores"], q @ k.transpose(-1, -2) / 2)


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("variant", ["softmax", "window", "rotary"])
def test_causal_attention_with_a_state(variant: str, gradients: bool) -> None:
    layer, x = spread(MultiHeadAttention(WIDTH, 2, **ATTENTIONS[variant])), random(B, 9, WIDTH)
    with torch.set_grad_enabled(gradients):
        _, _, whole = layer(x, x, x, causal=True, need_weights=True)
        state = None
        for a, b in ((0, 4), (4, 7), (7, 8), (8, 9)):
            part = x[:, a:b]
            before = [tensor.clone() for tensor in tensors_of(state)]
            buffers = None if state is None else state.buffers
            filled = None if buffers is None else buffers.filled
            with taps(layer, "weights", "scores") as seen:
                _, after, _ = layer(part, part, part, causal=True, state=state)
            assert all(torch.equal(x, y) for x, y in zip(tensors_of(state), before, strict=True))
            if buffers is not None and after.buffers is buffers:
                assert buffers.filled == filled + b - a
            known = seen["weights"].shape[-1]
            assert close(seen["weights"], whole[:, :, a:b, b - known : b])
            state = after


@pytest.mark.parametrize("kind", ["separable", "random_features"])
def test_linear_attention_with_a_state_has_no_weights(kind: str) -> None:
    layer, x = spread(MultiHeadAttention(WIDTH, 2, kind=kind)), random(B, T, WIDTH)
    _, state, _ = layer(x, x, x, causal=True)
    for on_path in (False, True):
        with taps(layer, on_path=on_path) as seen:
            out, _, _ = layer(x, x, x, causal=True, state=state)
        assert torch.equal(seen["output"], out)
        with pytest.raises(NotSeenError, match="remembers sums, not keys: weights need the whole text in one call"):
            seen["weights"]


@pytest.mark.parametrize("variant", ["softmax", "separable", "random_features"])
def test_cross_attention_with_and_without_new_keys(variant: str) -> None:
    layer = spread(MultiHeadAttention(WIDTH, 2, **ATTENTIONS[variant]))
    x, source, lengths = random(B, T, WIDTH), random(B, 4, WIDTH, seed=1), torch.tensor([4, 0, 2])
    first = check(layer, dict(query=x, key=source, value=source, key_lengths=lengths))
    assert first["weights"].shape == (B, 2, T, 4)
    _, state, _ = layer(x, source, source, key_lengths=lengths)
    if variant == "softmax":
        again = check(layer, dict(query=x, state=state))
        assert close(again["weights"], first["weights"])


def test_weights_are_those_before_dropout() -> None:
    layer, x = spread(MultiHeadAttention(WIDTH, 2, dropout=0.5)).train(), random(B, T, WIDTH)
    with taps(layer, "weights") as seen:
        layer(x, x, x, causal=True)
    assert close(seen["weights"].sum(-1), torch.ones(B, 2, T).double())


# --------------------------------------------------------------------------- torch's attention


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("masks", ["none", "bool", "float", "three"])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": 6, "vdim": 4}], ids=["plain", "no bias", "other"])
def test_attention_of_torch(batch_first: bool, masks: str, options: dict[str, Any]) -> None:
    module = spread(nn.MultiheadAttention(WIDTH, 2, batch_first=batch_first, **options)).eval()
    key_width, value_width = options.get("kdim", WIDTH), options.get("vdim", WIDTH)
    inputs = [random(B, T, WIDTH), random(B, 4, key_width, seed=1), random(B, 4, value_width, seed=2)]
    inputs = inputs if batch_first else [x.transpose(0, 1) for x in inputs]
    padding = torch.arange(4) >= torch.tensor([4, 2, 3])[:, None]
    hidden = torch.ones(T, 4, dtype=torch.bool).triu(1)
    given: dict[str, Any] = {
        "none": {},
        "bool": {"attn_mask": hidden, "key_padding_mask": padding},
        "float": {"attn_mask": random(T, 4, seed=3), "key_padding_mask": random(B, 4, seed=4)},
        "three": {"attn_mask": hidden.expand(2 * B, T, 4)},
    }[masks]
    expected, weights = module(*inputs, **given, average_attn_weights=False)
    for need_weights in (True, False):
        with taps(module) as seen:
            out, _ = module(*inputs, **given, need_weights=need_weights)
        assert close(seen["weights"], weights)
        assert seen["scores"].shape == (B, 2, T, 4)
        assert torch.equal(seen["output"], out)
    with taps(module, on_path=True) as seen:
        out, _ = module(*inputs, **given)
    assert close(out, expected)
    (gradient,) = torch.autograd.grad(out.sum(), seen["weights"])
    assert gradient.abs().sum() > 0


def test_attention_of_torch_that_cannot_be_looked_into() -> None:
    assert tap_names(nn.MultiheadAttention(WIDTH, 2, add_bias_kv=True)) == ["output"]
    assert tap_names(nn.MultiheadAttention(WIDTH, 2, add_zero_attn=True)) == ["output"]
    module, x = spread(nn.MultiheadAttention(WIDTH, 2)), random(T, WIDTH)
    with taps(module) as seen:
        out, _ = module(x, x, x)
    assert torch.equal(seen["output"], out)
    with pytest.raises(NotSeenError, match="without a batch"):
        seen["weights"]


@pytest.mark.parametrize("fused", [True, False])
def test_the_encoder_of_torch(fused: bool) -> None:
    """A hook makes a layer leave its fused kernel, so that outputs agree to rounding; without that kernel, exactly."""
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
    model, x = spread(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)).eval(), random(B, T, WIDTH)
    torch.backends.mha.set_fastpath_enabled(fused)
    try:
        with torch.no_grad():
            expected = model(x)
            with taps(model, "*.weights", "layers.1.norm1.input") as seen:
                y = model(x)
            assert torch.equal(model(x), expected)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    assert close(y, expected) if fused else torch.equal(y, expected)
    assert list(seen) == ["layers.0.self_attn.weights", "layers.1.self_attn.weights", "layers.1.norm1.input"]
    model.train()
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.3
    torch.manual_seed(0)
    expected = model(x)
    torch.manual_seed(0)
    with taps(model):
        assert torch.equal(model(x), expected)


# --------------------------------------------------------------------------- blocks, norms, embeddings


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("norm", ["layer", "rms", "batch"])
def test_blocks_add_up(placement: str, norm: str) -> None:
    block = spread(DecoderBlock(MultiHeadAttention(WIDTH, 2), norm=norm, placement=placement)).eval()
    x = random(B, T, WIDTH)
    with taps(block) as seen:
        y, _ = block(x)
    assert tap_names(block) == list(seen.names)
    assert set(seen.names) == {
        *("stream", "hidden", "mlp.output", "attention.scores", "attention.weights", "attention.output"),
        *("norm_attention.input", "norm_mlp.input"),
    }
    assert torch.equal(seen["stream"], x)
    assert torch.equal(seen["hidden"], y)
    between = x + seen["attention.output"]
    if placement == "pre":
        assert torch.equal(seen["norm_attention.input"], x)
        assert torch.equal(seen["norm_mlp.input"], between)
        assert torch.equal(y, between + seen["mlp.output"])
    else:
        assert torch.equal(seen["norm_attention.input"], between)
        assert close(block.norm_mlp(seen["norm_mlp.input"]), y)


def test_blocks_with_two_kinds_of_attention() -> None:
    x, source = random(B, T, WIDTH), random(B, 4, WIDTH, seed=1)
    encoder = spread(EncoderBlock(MultiHeadAttention(WIDTH, 2)))
    decoder = spread(EncoderDecoderBlock(MultiHeadAttention(WIDTH, 2), MultiHeadAttention(WIDTH, 2)))
    with taps(encoder, "*weights", "hidden") as seen:
        encoded = encoder(source, torch.tensor([4, 2, 3]))
    assert torch.equal(seen["hidden"], encoded)
    with taps(decoder, "cross.weights", "attention.weights", "*hidden") as seen:
        _, state = decoder(x, encoded, torch.tensor([4, 2, 3]))
        decoder(x[:, :1], state=state)
    assert [tuple(w.shape) for w in seen.calls("cross.weights")] == [(B, 2, T, 4), (B, 2, 1, 4)]
    assert [tuple(w.shape) for w in seen.calls("attention.weights")] == [(B, 2, T, T), (B, 2, 1, T + 1)]


@pytest.mark.parametrize("norm", [nn.LayerNorm(D), nn.RMSNorm(D), nn.GroupNorm(2, D), nn.BatchNorm1d(D)], ids=repr)
def test_norms_and_embeddings(norm: nn.Module) -> None:
    model, ids = nn.Sequential(nn.Embedding(9, D), nn.Flatten(0, 1), norm).double(), torch.randint(0, 9, (B, T))
    buffers = [buffer.clone() for buffer in model.buffers()]
    with taps(model) as seen:
        model(ids)
    assert torch.equal(seen["0.output"], model[0](ids))
    assert torch.equal(seen["2.input"], model[0](ids).flatten(0, 1))
    if buffers:  # seen once, counted once
        assert int(model[2].num_batches_tracked) == int(buffers[-1]) + 1


# --------------------------------------------------------------------------- on the path


@pytest.mark.parametrize("variant", ATTENTIONS)
def test_gradients_by_attention_weights(variant: str) -> None:
    layer, x = spread(MultiHeadAttention(WIDTH, 2, dropout=0.5, **ATTENTIONS[variant])), random(B, T, WIDTH)
    layer.eval()
    expected, _, _ = layer(x, x, x, causal=True)
    with taps(layer, on_path=True) as seen:
        out, _, none = layer(x, x, x, causal=True)
    assert none is None
    assert close(out, expected)
    assert torch.equal(seen["output"], out)
    factor = random(*out.shape, seed=2)
    (gradient,) = torch.autograd.grad((out * factor).sum(), seen["weights"])
    v = layer.project_in(x).view(B, T, 3, 2, 4)[:, :, 2].transpose(1, 2)
    backwards = (factor @ layer.project_out.weight).view(B, T, 2, 4).transpose(1, 2)
    assert close(gradient, backwards @ v.transpose(-1, -2))


@pytest.mark.parametrize("kind", [MultiHeadAttention, nn.MultiheadAttention])
def test_attention_that_drops_weights_has_no_path(kind: Any) -> None:
    layer, x = spread(kind(WIDTH, 2, dropout=0.5)).train(), random(B, T, WIDTH)
    message = "attention drops weights at random in training, so it shows no path; call model.eval() first"
    with pytest.raises(UsageError, match=re.escape(message)), taps(layer, "weights", on_path=True):
        layer(x, x, x)
    with taps(layer, "output", on_path=True) as seen:  # outputs are on the path anyway
        out = layer(x, x, x)[0]
    assert seen["output"] is out
