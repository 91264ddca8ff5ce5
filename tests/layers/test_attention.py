"""Multi-head attention against torch.nn and against explicit weights; padding, rotary positions, features. float64."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from tests.layers.small_attention import KINDS, B, D, N, build, close, random
from torch import nn

from seqlab.core.errors import UsageError
from seqlab.layers import MultiHeadAttention, RotaryPosition

# --------------------------------------------------------------------------- torch


@pytest.mark.parametrize("bias", [True, False])
def test_agreement_with_torch_both_ways(bias: bool) -> None:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D, N, bias=bias, batch_first=True).double()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.5)
    mine = MultiHeadAttention.from_torch(theirs)
    back = mine.to_torch()
    assert back.batch_first
    for name, parameter in theirs.named_parameters():
        assert torch.equal(dict(back.named_parameters())[name], parameter)
    for T, S, causal, padded, crossing in product((1, 4, 7), (1, 5, 7), (False, True), (False, True), (False, True)):
        if (causal or not crossing) and T != S:
            continue
        compare_with_torch(mine, theirs, T, S, causal, padded, crossing)


def compare_with_torch(mine: Any, theirs: Any, T: int, S: int, causal: bool, padded: bool, crossing: bool) -> None:
    query = random(B, T, D).requires_grad_()
    key = random(B, S, D, seed=1).requires_grad_() if crossing else query
    value = random(B, S, D, seed=2).requires_grad_() if crossing else query
    lengths = torch.tensor([S, max(1, S // 2), max(1, S - 1)]) if padded else None
    hidden = ~torch.ones(T, S, dtype=torch.bool).tril() if causal else None  # torch: True is *not* attended to
    padding = None if lengths is None else torch.arange(S) >= lengths[:, None]
    expected, expected_weights = theirs(
        query, key, value, key_padding_mask=padding, attn_mask=hidden, average_attn_weights=False
    )
    leaves = list({id(t): t for t in (query, key, value)}.values())
    grad = random(*expected.shape, seed=4)
    for need in (False, True):
        out, _, weights = mine(query, key, value, key_lengths=lengths, causal=causal, need_weights=need)
        assert close(out, expected)
        assert (weights is None) is not need
        if weights is not None:
            assert close(weights, expected_weights)
        for a, b in zip(
            torch.autograd.grad(out, [*leaves, *mine.parameters()], grad),
            torch.autograd.grad(expected, [*leaves, *theirs.parameters()], grad, retain_graph=True),
            strict=True,
        ):
            assert close(a, b, 1e-10)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_without_keys_gives_the_bias_of_the_output(kind: str, causal: bool, need_weights: bool) -> None:
    """torch.nn.MultiheadAttention gives NaN here."""
    layer, x = build(kind), random(B, 4, D).requires_grad_()
    lengths = torch.tensor([4, 0, 2])
    out, _, weights = layer(x, x, x, key_lengths=lengths, causal=causal, need_weights=need_weights)
    assert close(out[1], layer.project_out.bias.expand(4, D), 1e-15)
    if weights is not None:
        assert torch.count_nonzero(weights[1]) == 0
    out.square().sum().backward()
    assert torch.isfinite(x.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


# --------------------------------------------------------------------------- weights, causality, padding


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_those_that_mix_the_values(kind: str, causal: bool, padded: bool) -> None:
    layer, x = build(kind), random(B, 6, D)
    lengths = torch.tensor([6, 3, 1]) if padded else None
    out, _, weights = layer(x, x, x, key_lengths=lengths, causal=causal, need_weights=True)
    assert weights is not None
    assert weights.shape == (B, N, 6, 6)
    assert close(weights.sum(-1), torch.ones(B, N, 6, dtype=torch.float64))
    assert (weights >= 0).all()
    v = layer.project_in(x).view(B, 6, 3, N, D // N).permute(2, 0, 3, 1, 4)[2]
    mixed = (weights @ v).transpose(1, 2).flatten(2)
    assert close(layer.project_out(mixed), out)
    assert close(layer(x, x, x, key_lengths=lengths, causal=causal)[0], out)
    if causal:
        assert torch.count_nonzero(weights.triu(1)) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_future_never_changes_the_past(kind: str) -> None:
    layer, x = build(kind), random(2, 20, D)
    before = layer(x, x, x, causal=True)[0]
    for cut, times in product((1, 10, 19), (1.0, 30.0)):
        changed = torch.cat([x[:, :cut], times * random(2, 20 - cut, D, seed=3)], 1)
        after = layer(changed, changed, changed, causal=True)[0]
        assert ((after[:, :cut] - before[:, :cut]).abs() <= 1e-12 * before[:, :cut].abs().clamp(min=1e-2)).all()
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x, x, x, causal=True)[0][:, 7].sum(), x)
    assert torch.count_nonzero(gradient[:, 8:]) == 0
    assert torch.count_nonzero(gradient[:, :8]) == gradient[:, :8].numel()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_in_the_padding_does_not_matter(kind: str, causal: bool) -> None:
    layer, x = build(kind), random(B, 6, D).requires_grad_()
    lengths = torch.tensor([6, 2, 4])
    out = layer(x, x, x, key_lengths=lengths, causal=causal)[0]
    real = torch.arange(6) < lengths[:, None]
    (gradient,) = torch.autograd.grad(out[real].square().sum(), x)
    assert torch.count_nonzero(gradient[~real]) == 0
    for poison in (100.0, torch.nan):
        other = torch.where(real[..., None], x, torch.full_like(x, poison))
        assert close(layer(other, other, other, key_lengths=lengths, causal=causal)[0][real], out[real], 1e-12)
    for row, length in enumerate(lengths.tolist()):
        alone = x[row : row + 1, :length]
        assert close(layer(alone, alone, alone, causal=causal)[0], out[row : row + 1, :length], 1e-12)


# --------------------------------------------------------------------------- rotary positions


@pytest.mark.parametrize("causal", [False, True])
def test_rotary_positions_turn_queries_and_keys_of_each_head(causal: bool) -> None:
    rotary = RotaryPosition(D // N)
    layer, x = build(rotary=rotary), random(2, 7, D)
    _, _, weights = layer(x, x, x, causal=causal, need_weights=True)
    q, k, _ = layer.project_in(x).view(2, 7, 3, N, D // N).permute(2, 0, 3, 1, 4)
    scores = torch.zeros(2, N, 7, 7, dtype=torch.float64)
    for i, j, pair in product(range(7), range(7), range(D // N // 2)):
        theta = (i - j) * 10000.0 ** (-2 * pair / (D // N))  # only the distance counts
        a, b = q[:, :, i, 2 * pair : 2 * pair + 2].unbind(-1)
        c, d = k[:, :, j, 2 * pair : 2 * pair + 2].unbind(-1)
        scores[:, :, i, j] += (a * c + b * d) * math.cos(theta) + (a * d - b * c) * math.sin(theta)
    scores /= math.sqrt(D // N)
    if causal:
        scores = scores.masked_fill(~torch.ones(7, 7, dtype=torch.bool).tril(), -torch.inf)
    assert weights is not None
    assert close(weights, scores.softmax(-1))
    assert close(layer(x, x, x, causal=causal)[0], layer(x, x, x, causal=causal, need_weights=True)[0])


def test_across_two_texts_rotary_positions_count_both_from_their_beginnings() -> None:
    """Query t and key s of two texts: the score of distance t − s; in pieces, from where the piece starts."""
    rotary = RotaryPosition(D // N)
    layer, x, y = build(rotary=rotary), random(2, 5, D), random(2, 8, D)
    whole, state, weights = layer(x, y, y, need_weights=True)
    (w_q, b_q), (w_k, b_k), _ = layer.matrices()
    q = (x @ w_q.T + b_q).view(2, 5, N, -1).transpose(1, 2)
    k = (y @ w_k.T + b_k).view(2, 8, N, -1).transpose(1, 2)
    for t, s in product(range(5), range(8)):
        near = rotary(q[:, :, t : t + 1], 100 + t - s) * rotary(k[:, :, s : s + 1], 100)
        assert close((near.sum(-1) / math.sqrt(D // N))[..., 0], layer.look(x, y, y)[0][:, :, t, s], 1e-10)
    assert weights is not None
    assert weights.shape == (2, N, 5, 8)
    for first in range(5):
        assert close(layer(x[:, first:], state=state, start=first)[0], whole[:, first:], 1e-12)
        starts = torch.tensor([first, 0])
        some = torch.stack([x[0, first : first + 1], x[1, :1]])
        assert close(
            layer(some, state=state, start=starts)[0][:, 0], torch.stack([whole[0, first], whole[1, 0]]), 1e-12
        )
    assert not close(layer(x[:, 1:], state=state)[0], whole[:, 1:], 1e-3)


def test_rotary_tables_made_without_gradients_serve_training() -> None:
    layer, x = build(rotary=RotaryPosition(D // N)), random(1, 23, D)
    with torch.inference_mode():
        layer(x, x, x, causal=True)
    layer(x, x, x, causal=True)[0].sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


# --------------------------------------------------------------------------- random features


def test_directions_are_saved_and_change_only_when_asked() -> None:
    layer, other, x = (
        build("random_features"),
        MultiHeadAttention(D, N, kind="random_features").double(),
        random(1, 5, D),
    )
    assert layer.directions.shape == (4 * D // N, D // N)
    out = layer.train()(x, x, x)[0]
    assert torch.equal(layer(x, x, x)[0], out)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x, x, x)[0], out)
    layer.redraw(torch.Generator().manual_seed(1))
    assert not torch.allclose(layer(x, x, x)[0], out)


def test_sixteen_times_the_features_quarter_the_error() -> None:
    exact, x = build(bias=False), 0.2 * random(2, 10, D)
    target = exact(x, x, x, causal=True)[0]
    errors = {}
    for features in (128, 2048):
        layer = MultiHeadAttention(D, N, kind="random_features", features=features, bias=False).double()
        layer.load_state_dict(exact.state_dict(), strict=False)
        found = []
        for seed in range(8):
            layer.redraw(torch.Generator().manual_seed(seed))
            found.append((layer(x, x, x, causal=True)[0] - target).norm().item())
        errors[features] = sum(found) / len(found)
    assert 2.5 < errors[128] / errors[2048] < 6.5


@pytest.mark.parametrize("path", ["plain", "causal", "window", "padding", "padding causal", "weights"])
def test_dropout_acts_on_softmax_weights_in_training_only(path: str) -> None:
    layer, x = build(dropout=0.5, window=3 if path == "window" else None), random(2, 6, D)
    options: dict[str, Any] = {"causal": path in ("causal", "window", "padding causal")}
    if "padding" in path:
        options["key_lengths"] = torch.tensor([6, 4])
    options["need_weights"] = path == "weights"
    assert not torch.equal(layer(x, x, x, **options)[0], layer(x, x, x, **options)[0])
    layer.eval()
    assert torch.equal(layer(x, x, x, **options)[0], layer(x, x, x, **options)[0])


def test_conversion_keeps_dropout_mode_and_the_random_stream() -> None:
    theirs = nn.MultiheadAttention(D, N, dropout=0.3).eval()
    before = torch.get_rng_state()
    mine = MultiHeadAttention.from_torch(theirs)
    assert (mine.dropout, mine.training) == (0.3, False)
    back = mine.train().to_torch()
    assert (back.dropout, back.training) == (0.3, True)
    assert torch.equal(torch.get_rng_state(), before)


def test_orthogonal_directions_are_the_layers_default_and_can_be_left() -> None:
    for orthogonal in (True, False):
        layer = MultiHeadAttention(D, N, kind="random_features", orthogonal=orthogonal)
        block = layer.directions[: D // N]
        gram = block @ block.T
        assert torch.allclose(gram, torch.diag(gram.diagonal()), atol=1e-5) is orthogonal


@pytest.mark.parametrize("kind", KINDS)
def test_nan_in_the_padding_reaches_no_gradient(kind: str) -> None:
    layer, x = build(kind), random(B, 6, D)
    real = torch.arange(6) < torch.tensor([6, 2, 4])[:, None]
    x[~real] = torch.nan
    x.requires_grad_()
    layer(x, x, x, key_lengths=torch.tensor([6, 2, 4]))[0][real].square().sum().backward()
    assert torch.isfinite(x.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_do(kind: str) -> None:
    layer = build(kind)
    for batch, time in ((0, 3), (2, 0), (0, 0)):
        x = random(batch, time, D)
        for causal, need in product((False, True), (False, True)):
            out, _, weights = layer(x, x, x, causal=causal, need_weights=need)
            assert out.shape == (batch, time, D)
            assert weights is None or weights.shape == (batch, N, time, time)


X = torch.zeros(2, 5, D)


def past(kind: str) -> Any:
    return build(kind).float()(X, X, X, causal=True)[1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MultiHeadAttention(10, 4), "width 10 cannot be cut into 4 heads"),
        (lambda: MultiHeadAttention(8, 2, kind="softmx"), "attention 'softmx' is not known; did you mean 'softmax'"),
        (lambda: MultiHeadAttention(8, 2, features=3), "features=3 is a choice for attention 'random_features'"),
        (lambda: MultiHeadAttention(8, 2, kind="separable", window=3), "window=3 is a choice for attention 'softmax'"),
        (lambda: build()(X[..., :4], X, X), r"query has shape \(2, 5, 4\), but the layer reads \(2, time, 12\)"),
        (lambda: build()(X, X[:1], X[:1]), r"key has shape \(1, 5, 12\), but the layer reads \(2, time, 12\)"),
        (lambda: build()(X, X, X[:, :3]), "there are 5 keys but 3 values"),
        (lambda: build()(X, X), "key and value come together"),
        (lambda: build()(X), "there must be the state of an earlier call"),
        (lambda: build()(X, X[:, :3], X[:, :3], causal=True), "a key for each query, not 3 for 5"),
        (lambda: build()(X, X, X, key_lengths=torch.tensor([6, 1])), "a length of 6 does not fit sequences of 5"),
        (
            lambda: build(window=2)(X, X, X, causal=True, key_lengths=torch.tensor([5, 1])),
            "a window of 2 counts positions",
        ),
        (
            lambda: build().float()(X, X, X, state=build().float()(X, X, X)[1]),
            "a state of cross-attention holds the keys already",
        ),
        (
            lambda: build().float()(X, X, X, causal=True, state=build().float()(X[:1], X[:1], X[:1], causal=True)[1]),
            "the state is for 1 sequences, but query holds 2",
        ),
        (
            lambda: build().float()(X, state=build().float()(X, X, X)[1], key_lengths=torch.tensor([1, 1])),
            "there are none",
        ),
        (
            lambda: build("separable").float()(X, X, X, causal=True, need_weights=True, state=past("separable")),
            "'separable' remembers sums, not keys",
        ),
        (
            lambda: build().float()(X, X, X, causal=True, state=past("separable")),
            "continues a KeyValueCache, not a Feat",
        ),
        (lambda: MultiHeadAttention(8, 2, window=0), "window 0 is too small"),
        (lambda: MultiHeadAttention(8, 2, kind="random_features", features=0), "features 0 is too small"),
        (lambda: MultiHeadAttention(8, 2, dropout=1.5), "dropout 1.5 is not a share"),
        (lambda: build("separable").to_torch(), "softmax attention only"),
        (lambda: MultiHeadAttention.from_torch(nn.Linear(2, 2)), "takes a torch.nn.MultiheadAttention, not Linear"),
        (lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(8, 2, kdim=4)), "have no counterpart"),
    ],
    ids=lambda v: v[:40] if isinstance(v, str) else "",
)
def test_wrong_use_is_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_kv_heads", [1, 2])
@pytest.mark.parametrize("causal", [True, False])
def test_grouped_heads_are_heads_with_the_same_keys(kind: str, n_kv_heads: int, causal: bool) -> None:
    """A layer with grouped heads against one that has a copy of the keys and values for each head."""
    torch.manual_seed(0)
    grouped = MultiHeadAttention(8, 4, kind=kind, n_kv_heads=n_kv_heads, head_width=4).double()
    (w_q, b_q), *shared = grouped.matrices()
    assert b_q is not None
    copies = [
        [u.view(n_kv_heads, 4, -1).repeat_interleave(4 // n_kv_heads, 0).flatten(0, 1) for u in m] for m in shared
    ]
    pairs = [(w_q, b_q), *((w, b.squeeze(-1)) for w, b in copies)]
    out = (grouped.project_out.weight, grouped.project_out.bias)
    whole = MultiHeadAttention.from_matrices(*pairs, out, n_heads=4, kind=kind)
    if kind == "random_features":
        whole.directions.copy_(grouped.directions)
    x, lengths = random(B, 7, 8).requires_grad_(), torch.tensor([7, 3, 0])
    for length in (None, lengths):
        a, state, weights = grouped(x, x, x, causal=causal, key_lengths=length, need_weights=True)
        b, _, expected = whole(x, x, x, causal=causal, key_lengths=length, need_weights=True)
        fused = grouped(x, x, x, causal=causal, key_lengths=length)[0]
        assert close(a, b)
        assert close(fused, b)
        assert close(weights, expected)
        gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (a, b, fused)]
        assert close(gradients[0], gradients[1])
        assert close(gradients[2], gradients[1])
    if causal:
        first, state, _ = grouped(x[:, :4], x[:, :4], x[:, :4], causal=True)
        steps = [first]
        for t in range(4, 7):
            token = x[:, t : t + 1]
            y, state, _ = grouped(token, token, token, causal=True, state=state)
            steps.append(y)
        assert close(torch.cat(steps, 1), whole(x, x, x, causal=True)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_looking_shows_what_forward_computes(kind: str) -> None:
    layer, x, lengths = build(kind), random(B, 5, D), torch.tensor([5, 2, 0])
    for causal in (True, False):
        out, _, weights = layer(x, x, x, causal=causal, key_lengths=lengths, need_weights=True)
        scores, seen, mixed = layer.look(x, x, x, causal=causal, key_lengths=lengths)
        assert weights is not None
        assert close(seen, weights)
        assert close(layer.project_out(mixed), out)
        assert (scores is None) == (kind != "softmax")
