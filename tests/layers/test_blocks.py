"""Blocks and norms against formulas written out, values and gradients; what each block may see. float64."""

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.layers import (
    DecoderBlock,
    EncoderBlock,
    EncoderDecoderBlock,
    FeedForward,
    MultiHeadAttention,
    TokenBatchNorm,
)

D, N, B, T, S = 8, 2, 3, 5, 6
STYLES = list(product(("layer", "rms", "batch"), ("pre", "post", "parallel")))


def attention(kind: str = "softmax") -> MultiHeadAttention:
    return MultiHeadAttention(D, N, kind=kind)


def shaken(block: Any) -> Any:
    """Every weight away from its start, or mistakes with gains and biases would not show."""
    generator = torch.Generator().manual_seed(4)
    block.double()
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return block


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def norm_by_hand(norm: Any, x: Tensor) -> Tensor:
    if isinstance(norm, nn.RMSNorm):
        eps = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
        return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * norm.weight
    axes = (0, 1) if isinstance(norm, TokenBatchNorm) else (-1,)
    centred = x - x.mean(axes, keepdim=True)
    return centred / (centred.square().mean(axes, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


def mlp_by_hand(block: Any, x: Tensor) -> Tensor:
    hidden = x @ block.mlp[0].weight.T + block.mlp[0].bias
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
    return hidden @ block.mlp[2].weight.T + block.mlp[2].bias


def block_by_hand(block: Any, x: Tensor, sublayers: list[Any]) -> Tensor:
    if block.placement == "parallel":
        return x + sum(sublayer(norm_by_hand(norm, x)) for norm, sublayer in sublayers)
    for norm, sublayer in sublayers:
        pre = block.placement == "pre"
        x = x + sublayer(norm_by_hand(norm, x)) if pre else norm_by_hand(norm, x + sublayer(x))
    return x


def agree(block: Any, mine: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    grad = random(*mine.shape, seed=9)
    over = [*inputs, *block.parameters()]
    pairs = zip(torch.autograd.grad(mine, over, grad), torch.autograd.grad(expected, over, grad), strict=True)
    for a, b in [(mine, expected), *pairs]:
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("norm", "placement"), STYLES)
def test_blocks_are_their_formulas(norm: str, placement: str) -> None:
    options: dict[str, Any] = dict(norm=norm, placement=placement)
    x, memory = random(B, T, D).requires_grad_(), random(B, S, D, seed=1).requires_grad_()

    encoder = shaken(EncoderBlock(attention(), **options))
    sublayers = [
        (encoder.norm_attention, lambda u: encoder.attention(u, u, u)[0]),
        (encoder.norm_mlp, lambda u: mlp_by_hand(encoder, u)),
    ]
    agree(encoder, encoder(x), block_by_hand(encoder, x, sublayers), [x])

    decoder = shaken(DecoderBlock(attention(), **options))
    sublayers = [
        (decoder.norm_attention, lambda u: decoder.attention(u, u, u, causal=True)[0]),
        (decoder.norm_mlp, lambda u: mlp_by_hand(decoder, u)),
    ]
    agree(decoder, decoder(x)[0], block_by_hand(decoder, x, sublayers), [x])

    if placement == "parallel":
        with pytest.raises(UsageError, match="'parallel' is for blocks without cross-attention"):
            EncoderDecoderBlock(attention(), attention(), **options)
        return
    both = shaken(EncoderDecoderBlock(attention(), attention(), **options))
    lengths = torch.tensor([6, 2, 3])
    sublayers = [
        (both.norm_attention, lambda u: both.attention(u, u, u, causal=True)[0]),
        (both.norm_cross, lambda u: both.cross(u, memory, memory, key_lengths=lengths)[0]),
        (both.norm_mlp, lambda u: mlp_by_hand(both, u)),
    ]
    agree(both, both(x, memory, lengths)[0], block_by_hand(both, x, sublayers), [x, memory])


@pytest.mark.parametrize(("norm", "placement"), STYLES)
@pytest.mark.parametrize("kind", ["softmax", "separable", "random_features"])
def test_padding_changes_nothing_in_an_encoder(kind: str, norm: str, placement: str) -> None:
    block = shaken(EncoderBlock(attention(kind), norm=norm, placement=placement))
    x, lengths = random(B, T, D).requires_grad_(), torch.tensor([5, 2, 3])
    real = torch.arange(T) < lengths[:, None]
    out = block(x, lengths)
    (gradient,) = torch.autograd.grad(out[real].square().sum(), x)
    assert torch.count_nonzero(gradient[~real]) == 0
    other = torch.where(real[..., None], x, 100 * random(B, T, D, seed=3))
    assert torch.allclose(block(other, lengths)[real], out[real], rtol=0, atol=1e-11)
    longer = torch.cat([x, random(B, 4, D, seed=4)], 1)
    assert torch.allclose(block(longer, lengths)[:, :T][real], out[real], rtol=0, atol=1e-11)


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("kind", ["softmax", "separable", "random_features"])
def test_a_decoder_with_cross_attention_step_by_step(kind: str, placement: str) -> None:
    block = shaken(EncoderDecoderBlock(attention(kind), attention(kind), placement=placement))
    x, memory, lengths = random(B, T, D), random(B, S, D, seed=1), torch.tensor([6, 0, 3])
    whole, _ = block(x, memory, lengths)
    step, state = block(x[:, :1], memory, lengths)
    parts = [step]
    for t in range(1, T):
        step, state = block(x[:, t : t + 1], state=state)
        parts.append(step)
    assert torch.allclose(torch.cat(parts, 1), whole, rtol=0, atol=1e-11)
    changed = torch.cat([x[:, :3], random(B, 2, D, seed=7)], 1)
    assert torch.allclose(block(changed, memory, lengths)[0][:, :3], whole[:, :3], rtol=0, atol=1e-12)
    padding = torch.arange(S) >= lengths[:, None]
    other = torch.where(padding[..., None], torch.full_like(memory, 50.0), memory)
    assert torch.allclose(block(x, other, lengths)[0], whole, rtol=0, atol=1e-12)
    with pytest.raises(UsageError, match="the state holds the memory already"):
        block(x, memory, lengths, state=state)


@pytest.mark.parametrize("kind", ["softmax", "separable", "random_features"])
def test_nan_in_the_padding_reaches_nothing(kind: str) -> None:
    lengths = torch.tensor([5, 2, 0])
    x = random(B, T, D)
    x[torch.arange(T) >= lengths[:, None]] = torch.nan
    for block in (EncoderBlock(attention(kind)).double(), DecoderBlock(attention(kind)).double()):
        out = block(x, lengths=lengths)
        y = out if isinstance(out, Tensor) else out[0]
        assert torch.count_nonzero(y[torch.arange(T) >= lengths[:, None]]) == 0
        y.square().sum().backward()
        assert all(torch.isfinite(p.grad).all() for p in block.parameters())


def test_dropout_acts_on_every_sublayer_in_training_only() -> None:
    block, x = DecoderBlock(attention(), dropout=0.5).double(), random(B, T, D)
    assert not torch.equal(block(x)[0], block(x)[0])
    block.eval()
    assert torch.equal(block(x)[0], block(x)[0])
    silent = DecoderBlock(attention(), dropout=1.0).double()
    assert torch.equal(silent(x)[0], x)


def test_batch_norm_counts_real_tokens_only() -> None:
    mine, theirs = TokenBatchNorm(D).double(), nn.BatchNorm1d(D).double()
    x, lengths = random(B, T, D).requires_grad_(), torch.tensor([5, 0, 3])
    real = torch.arange(T) < lengths[:, None]
    for _ in range(3):
        y, expected = mine(x, lengths), theirs(x[real])
        assert torch.allclose(y[real], expected, rtol=0, atol=1e-12)
        assert torch.count_nonzero(y[~real]) == 0
    for name, buffer in theirs.named_buffers():
        assert torch.allclose(dict(mine.named_buffers())[name], buffer), name
    (gradient,) = torch.autograd.grad(y.square().sum(), x)
    assert torch.count_nonzero(gradient[~real]) == 0
    mine.eval()
    theirs.eval()
    assert torch.allclose(mine(x, lengths)[real], theirs(x[real]), rtol=0, atol=1e-12)
    assert torch.allclose(mine(x), theirs(x.flatten(0, 1)).view_as(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("block_type", [EncoderBlock, DecoderBlock])
def test_another_width_is_named(block_type: Any) -> None:
    with pytest.raises(UsageError, match=r"x has shape \(2, 3, 5\), but the block reads \(batch, time, 8\)"):
        block_type(attention())(torch.zeros(2, 3, 5))
    with pytest.raises(UsageError, match=r"key has shape \(2, 3, 5\), but the layer reads \(2, time, 8\)"):
        EncoderDecoderBlock(attention(), attention())(torch.zeros(2, 3, 8), torch.zeros(2, 3, 5))


def test_wrong_use_is_named() -> None:
    with pytest.raises(UsageError, match="placement 'pst' is not known; did you mean 'post'"):
        EncoderBlock(attention(), placement="pst")
    with pytest.raises(UsageError, match="norm 'layr' is not known; did you mean 'layer'"):
        EncoderBlock(attention(), norm="layr")
    with pytest.raises(UsageError, match="needs 2 real tokens or more in training, not 1"):
        TokenBatchNorm(4)(torch.zeros(2, 3, 4), torch.tensor([1, 0]))
    with pytest.raises(UsageError, match=r"x has shape \(2, 3, 5\), but the layer reads \(batch, time, 4\)"):
        TokenBatchNorm(4)(torch.zeros(2, 3, 5))


SQUASH: dict[str, Any] = {
    "gelu": lambda u: u * 0.5 * (1 + torch.erf(u / math.sqrt(2))),
    "gelu_tanh": lambda u: u / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3))),
    "relu": lambda u: u.clamp(min=0),
    "silu": lambda u: u / (1 + torch.exp(-u)),
}


@pytest.mark.parametrize(("activation", "gated", "bias"), list(product(SQUASH, (True, False), (True, False))))
def test_feed_forward_networks_are_their_formulas(activation: str, gated: bool, bias: bool) -> None:
    network = shaken(FeedForward(D, 5, activation=activation, gated=gated, bias=bias))
    x = random(B, T, D).requires_grad_()
    rows = network[0].weight.chunk(2) if gated else (network[0].weight,)
    biases = (0.0,) * len(rows) if not bias else network[0].bias.chunk(2) if gated else (network[0].bias,)
    u = [x @ w.T + b for w, b in zip(rows, biases, strict=True)]
    hidden = SQUASH[activation](u[0]) * (u[1] if gated else 1)
    expected = hidden @ network[2].weight.T + (network[2].bias if bias else 0)
    agree(network, network(x), expected, [x])


@pytest.mark.parametrize("eps", [None, 1e-12, 0.1])
@pytest.mark.parametrize("norm", ["layer", "rms", "batch"])
def test_norms_have_the_epsilon_they_are_told(norm: str, eps: float | None) -> None:
    block = shaken(EncoderBlock(attention(), norm=norm, eps=eps))
    x = 0.01 * random(B, T, D)
    found = block.norm_mlp(x)
    assert torch.allclose(found, norm_by_hand(block.norm_mlp, x), rtol=1e-10, atol=1e-12)
    if eps is not None:
        assert block.norm_mlp.eps == eps
    bare = EncoderBlock(attention(), norm="layer", norm_bias=False)
    assert bare.norm_attention.bias is None
    assert bare.norm_mlp.bias is None
    with pytest.raises(UsageError, match="batch normalisation has a bias always"):
        EncoderBlock(attention(), norm="batch", norm_bias=False)
