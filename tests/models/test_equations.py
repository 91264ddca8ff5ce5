"""The models against plain loops written from the equations, values and gradients, in float64."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from seqlab.core.errors import UsageError
from seqlab.layers.attention import CausalSelfAttention
from seqlab.layers.blocks import DecoderBlock
from seqlab.layers.positions import LearnedPosition, RotaryPosition, SinusoidalPosition, angles
from seqlab.models import build_lm
from seqlab.ops.attention import softmax_attention
from seqlab.ops.masks import banded_causal_mask


def gradients(layer: Any, y: Tensor, x: Tensor) -> list[Tensor]:
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return list(torch.autograd.grad((y * weights).sum(), [x, *layer.parameters()]))


def plain_attention(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """One query at a time, one sum at a time."""
    T, d, S = q.shape[2], q.shape[3], k.shape[2]
    out = torch.zeros_like(q)
    for t in range(T):
        p = S - T + t
        visible = list(range(max(0, p - window + 1), p + 1))
        scores = torch.stack([(q[:, :, t] * k[:, :, j]).sum(-1) / math.sqrt(d) for j in visible], -1)
        weights = scores.softmax(-1)
        out[:, :, t] = sum(weights[..., n, None] * v[:, :, j] for n, j in enumerate(visible))
    return out


@pytest.mark.parametrize(
    ("queries", "keys", "window"),
    [(1, 1, 1), (5, 5, 8), (5, 5, 5), (9, 9, 4), (3, 9, 4), (1, 6, 9), (2, 6, 9), (4, 7, 1)],
)
def test_banded_attention_is_the_plain_sum(queries: int, keys: int, window: int) -> None:
    q = torch.randn(2, 3, queries, 4, dtype=torch.float64, requires_grad=True)
    k = torch.randn(2, 3, keys, 4, dtype=torch.float64, requires_grad=True)
    v = torch.randn(2, 3, keys, 4, dtype=torch.float64, requires_grad=True)
    fast, plain = softmax_attention(q, k, v, causal=True, window=window), plain_attention(q, k, v, window)
    assert torch.allclose(fast, plain, rtol=0, atol=1e-12)
    weights = torch.linspace(-1, 1, fast.numel(), dtype=torch.float64).view_as(fast)
    for mine, theirs in zip(
        torch.autograd.grad((fast * weights).sum(), (q, k, v)),
        torch.autograd.grad((plain * weights).sum(), (q, k, v)),
        strict=True,
    ):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-11)


def test_the_mask_says_who_may_be_attended_to() -> None:
    assert banded_causal_mask(2, 4, 2).tolist() == [[False, True, True, False], [False, False, True, True]]


def test_attention_agrees_with_torch_multi_head_attention() -> None:
    mine = CausalSelfAttention(12, 3, window=99).double()
    theirs = torch.nn.MultiheadAttention(12, 3, batch_first=True).double()
    theirs.in_proj_weight.data, theirs.in_proj_bias.data = mine.project_in.weight.data, mine.project_in.bias.data
    theirs.out_proj.weight.data, theirs.out_proj.bias.data = mine.project_out.weight.data, mine.project_out.bias.data
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    hidden = ~torch.ones(7, 7, dtype=torch.bool).tril()  # torch's convention: True is *not* attended to
    expected, _ = theirs(x, x, x, attn_mask=hidden, need_weights=False)
    assert torch.allclose(mine(x)[0], expected, rtol=0, atol=1e-12)


def test_sinusoidal_positions_follow_the_formula() -> None:
    d = 6
    added = SinusoidalPosition(d)(torch.zeros(1, 4, d, dtype=torch.float64), start=3)[0]
    for row, p in enumerate(range(3, 7)):
        for i in range(d // 2):
            theta = p / 10000 ** (2 * i / d)
            assert added[row, 2 * i].item() == pytest.approx(math.sin(theta), abs=1e-12)
            assert added[row, 2 * i + 1].item() == pytest.approx(math.cos(theta), abs=1e-12)


def test_rotary_products_depend_on_the_distance_alone() -> None:
    rotary = RotaryPosition(8)
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    near = (rotary(q, 5) * rotary(k, 2)).sum()
    far = (rotary(q, 1005) * rotary(k, 1002)).sum()
    other = (rotary(q, 5) * rotary(k, 1)).sum()
    assert torch.allclose(near, far, rtol=0, atol=1e-10)
    assert not torch.allclose(near, other, atol=1e-3)
    assert torch.allclose(rotary(q, 9).norm(), q.norm())
    assert angles(torch.tensor([2]), 4).tolist()[0] == pytest.approx([2, 0.02])


def test_learned_positions_end_in_one_line() -> None:
    with pytest.raises(UsageError, match="position 4 is beyond the 4 learned positions"):
        LearnedPosition(4, 6)(torch.zeros(1, 2, 6), start=3)
    with pytest.raises(UsageError, match="even width, not 5"):
        SinusoidalPosition(5)
    with pytest.raises(UsageError, match="even width per head, not 3"):
        RotaryPosition(3)


def reference_block(block: DecoderBlock, x: Tensor) -> Tensor:
    """x ← x + Attention(LN(x)); x ← x + W₂ gelu(W₁ LN(x)): written out."""

    def layer_norm(u: Tensor, norm: torch.nn.LayerNorm) -> Tensor:
        centred = u - u.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias

    x = x + block.attention(layer_norm(x, block.norm_attention))[0]
    hidden = layer_norm(x, block.norm_mlp) @ block.mlp[0].weight.T + block.mlp[0].bias
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
    return x + hidden @ block.mlp[2].weight.T + block.mlp[2].bias


def test_the_block_is_pre_norm() -> None:
    block = DecoderBlock(CausalSelfAttention(8, 2, window=9), 8).double()
    for p in block.parameters():
        torch.nn.init.normal_(p, std=0.7)
    x = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    mine, expected = block(x)[0], reference_block(block, x)
    assert torch.allclose(mine, expected, rtol=0, atol=1e-11)
    for a, b in zip(gradients(block, mine, x), gradients(block, expected, x), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-10)


def test_the_cache_keeps_one_position_less_than_the_window() -> None:
    attention = CausalSelfAttention(8, 2, window=5)
    _, cache = attention(torch.randn(1, 12, 8))
    assert cache.keys.shape == cache.values.shape == (1, 2, 4, 4)
    assert cache.position == 12
    _, cache = attention(torch.randn(1, 1, 8), cache)
    assert cache.keys.shape[2] == 4
    assert CausalSelfAttention(8, 2, window=1)(torch.randn(1, 3, 8))[1].keys.shape[2] == 0


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm", "transformer"])
def test_dropout_acts_in_training_and_only_there(kind: str) -> None:
    lm = build_lm(kind, vocab_size=9, width=16, depth=2, dropout=0.5)
    ids = torch.arange(8)[None]
    assert not torch.equal(lm.train()(ids)[0], lm(ids)[0])
    assert torch.equal(lm.eval()(ids)[0], lm(ids)[0])


def test_dropout_acts_at_the_input_and_at_the_output_of_the_recurrence() -> None:
    lm = build_lm("gru", vocab_size=9, width=400, depth=1, dropout=0.5).train()
    seen: dict[str, Tensor] = {}
    lm.recurrent.register_forward_pre_hook(lambda _m, args: seen.update(input=args[0]))
    lm.output.register_forward_pre_hook(lambda _m, args: seen.update(output=args[0]))
    lm(torch.arange(8)[None])
    for place, value in seen.items():
        dropped = (value == 0).double().mean().item()
        assert 0.4 < dropped < 0.6, place


def test_attention_and_block_drop_too() -> None:
    attention = CausalSelfAttention(8, 2, window=9, dropout=0.5).train()
    x = torch.randn(1, 6, 8)
    assert not torch.equal(attention(x)[0], attention(x)[0])
    plain = CausalSelfAttention(8, 2, window=9)
    block = DecoderBlock(plain, 8, dropout=0.5).train()
    assert not torch.equal(block(x)[0], block(x)[0])


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm", "transformer"])
@pytest.mark.parametrize("tied", [False, True])
def test_an_untrained_model_is_nearly_uniform(kind: str, tied: bool) -> None:
    lm = build_lm(kind, vocab_size=200, width=64, tied=tied).eval()
    ids = torch.randint(0, 200, (8, 32), generator=torch.Generator().manual_seed(0))
    logits, _ = lm(ids)
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).item()
    assert abs(loss - math.log(200)) < 0.6
