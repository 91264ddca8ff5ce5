"""Attention: the fused and the linear paths against explicit matrices of weights, values and gradients, float64."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.ops import attention as ops
from seqlab.ops import linear_attention as linear
from seqlab.ops.masks import banded_causal_mask, length_mask
from seqlab.ops.reference import attention as reference

B, N, D = 3, 2, 4
FEATURES = 7
KINDS = ["softmax", "separable", "random_features"]
LENGTHS = [(1, 1), (2, 5), (6, 6), (9, 9), (13, 13)]  # T, S


def random(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


W = random(FEATURES, D, seed=99)


def fast(kind: str, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, causal: bool) -> Tensor:
    if kind == "softmax":
        return ops.softmax_attention(q, k, v, key_mask=key_mask, causal=causal)
    return linear.attend(features(kind), q, k, v, key_mask=key_mask, causal=causal)[0]


def features(kind: str, w: Tensor = W) -> linear.Features:
    return linear.SEPARABLE if kind == "separable" else linear.random_features(w)


def plain(kind: str, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, causal: bool) -> Tensor:
    return torch.einsum("bnts,bnsd->bntd", plain_weights(kind, q, k, key_mask, causal), v)


def plain_weights(kind: str, q: Tensor, k: Tensor, key_mask: Tensor | None, causal: bool) -> Tensor:
    mask = reference.visible_keys(q.shape[2], k.shape[2], key_mask=key_mask, causal=causal)
    if kind == "softmax":
        return reference.softmax_weights(q, k, mask)
    if kind == "separable":
        return reference.separable_weights(q, k, mask.expand(len(q), -1, -1, -1))
    return reference.random_feature_weights(q, k, W, mask)


def agree(a: Tensor, b: Tensor, over: list[Tensor], tolerance: float = 1e-11) -> None:
    weights = random(*a.shape, seed=77)
    gradients = [torch.autograd.grad((out * weights).sum(), over, retain_graph=True) for out in (a, b)]
    for x, y in [(a, b), *zip(*gradients, strict=True)]:
        assert torch.isfinite(x).all()
        assert (x - y).abs().max() <= tolerance * max(1.0, y.abs().max().item())


def inputs(T: int, S: int, scale: float = 1.0) -> list[Tensor]:
    shapes = [(B, N, T, D), (B, N, S, D), (B, N, S, 5)]
    return [random(*shape, seed=i, scale=scale).requires_grad_() for i, shape in enumerate(shapes)]


@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_fast_paths_equal_the_matrix_of_weights(
    kind: str, causal: bool, padded: bool, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "CHUNK", 2)  # several chunks and segments, the last ones not full
    monkeypatch.setattr(linear, "SEGMENT", 5)
    monkeypatch.setattr(ops, "ROWS", 5)
    for T, S in LENGTHS:
        if causal and T != S:
            continue
        q, k, v = inputs(T, S, scale)
        key_mask = length_mask(torch.tensor([S, S // 2, 0]), S) if padded else None
        agree(fast(kind, q, k, v, key_mask, causal), plain(kind, q, k, v, key_mask, causal), [q, k, v])


@pytest.mark.parametrize("chunk", [2, 3, 64])
@pytest.mark.parametrize("scale", [1.0, 8.0, 40.0])
@pytest.mark.parametrize("kind", ["separable", "random_features"])
def test_causal_rows_before_which_keys_are_hidden(
    kind: str, scale: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding at the start, holes anywhere: the first rows of a chunk see nothing, later ones very small weights."""
    monkeypatch.setattr(linear, "CHUNK", chunk)
    T = 150
    q, k, v = inputs(T, T, 1.0)
    key_mask = torch.arange(T) >= torch.tensor([[1], [5], [70]])
    key_mask &= (torch.rand(B, T, generator=torch.Generator().manual_seed(3)) < 0.7) | (torch.arange(T) < 80)
    far = scale * k - scale  # away from zero on one side: the levels are far below it
    agree(fast(kind, q, far, v, key_mask, True), plain(kind, q, far, v, key_mask, True), [q, k, v], 1e-10)


@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["separable", "random_features"])
def test_the_weights_of_linear_attention_are_those_of_the_equation(
    kind: str, causal: bool, padded: bool, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "CHUNK", 2)
    monkeypatch.setattr(linear, "SEGMENT", 5)
    for T, S in [*LENGTHS, (3, 0), (0, 3)]:
        if causal and T != S:
            continue
        q, k, _ = inputs(T, S, scale)
        key_mask = length_mask(torch.tensor([S, S // 2, 0]), S) if padded else None
        found = linear.attention_weights(features(kind), q, k, key_mask=key_mask, causal=causal)
        expected = plain_weights(kind, q, k, key_mask, causal)
        assert found.shape == expected.shape == (B, N, T, S)
        if T and S:
            agree(found, expected, [q, k], 1e-10)
        hidden = ~reference.visible_keys(T, S, key_mask=key_mask, causal=causal).expand_as(found)
        assert torch.count_nonzero(found[hidden]) == 0
        sums = found.sum(-1)
        some = (~hidden).any(-1)
        assert torch.allclose(sums[some], torch.ones_like(sums[some]))
        assert torch.count_nonzero(sums[~some]) == 0


@pytest.mark.parametrize("chunk", [1, 2, 3, 16])
@pytest.mark.parametrize("kind", ["separable", "random_features"])
def test_the_size_of_a_chunk_does_not_matter(kind: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "CHUNK", chunk)
    q, k, v = inputs(11, 11, 2.0)
    agree(fast(kind, q, k, v, None, True), plain(kind, q, k, v, None, True), [q, k, v])
    monkeypatch.setattr(linear, "SEGMENT", 4)
    agree(fast(kind, q, k, v, None, True), plain(kind, q, k, v, None, True), [q, k, v])


@pytest.mark.parametrize("times", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("kind", KINDS)
def test_the_future_never_changes_the_past(kind: str, times: float) -> None:
    T = 300  # several chunks of the real size
    q, k, v = (t.detach() for t in inputs(T, T))
    before = fast(kind, q, k, v, None, True)
    for cut in (1, 100, 128, 255, T - 1):
        parts = [torch.cat([t[:, :, :cut], times * random(*t[:, :, cut:].shape, seed=cut)], 2) for t in (q, k, v)]
        after = fast(kind, *parts, None, True)
        past = before[:, :, :cut]
        assert ((after[:, :, :cut] - past).abs() <= 1e-12 * past.abs().clamp(min=1e-3)).all()
        assert torch.isfinite(after).all()
        assert not torch.allclose(after[:, :, cut:], before[:, :, cut:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_large_vectors_neither_overflow_nor_vanish(kind: str, causal: bool, dtype: torch.dtype) -> None:
    q, k, v = ((40.0 if n < 2 else 1.0) * t.detach() for n, t in enumerate(inputs(20, 20)))
    expected = plain(kind, q, k, v, None, causal)
    q, k, v = (t.to(dtype).requires_grad_() for t in (q, k, v))
    out = fast_in(dtype, kind, q, k, v, causal)
    assert torch.isfinite(out).all()
    out.square().sum().backward()
    assert all(torch.isfinite(t.grad).all() for t in (q, k, v))
    if dtype == torch.float64:
        assert torch.allclose(out, expected, rtol=0, atol=1e-9)
    assert out.abs().sum() > 0.5 * expected.abs().sum()


def fast_in(dtype: torch.dtype, kind: str, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    if kind == "softmax":
        return fast(kind, q, k, v, None, causal)
    return linear.attend(features(kind, W.to(dtype)), q, k, v, causal=causal)[0]


@pytest.mark.parametrize("cuts", [(1,), (5,), (1, 2, 3), (4, 9, 10)])
@pytest.mark.parametrize("kind", ["separable", "random_features"])
def test_sums_of_the_past_continue_it(kind: str, cuts: tuple[int, ...]) -> None:
    q, k, v = inputs(13, 13, 3.0)
    past, parts = None, []
    for a, b in zip((0, *cuts), (*cuts, 13), strict=True):
        pieces = [x[:, :, a:b] for x in (q, k, v)]
        out, past = linear.attend(features(kind), *pieces, causal=True, past=past)
        parts.append(out)
    agree(torch.cat(parts, 2), plain(kind, q, k, v, None, True), [q, k, v])
    assert past is not None
    assert past.sums.shape == (B, N, D if kind == "separable" else FEATURES, 6)  # does not grow with the text


@pytest.mark.parametrize("T", [128, 150])  # chunks of the real size: all full (no copy is cut), the last one not
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", ["separable", "random_features"])
def test_without_gradients_the_same_comes_out_and_nothing_given_is_overwritten(kind: str, padded: bool, T: int) -> None:
    """Where no gradient is asked for, features and sums are overwritten in place."""
    q, k, v = (t.detach() for t in inputs(T, T, 2.0))
    key_mask = length_mask(torch.tensor([T, 70, 0]), T) if padded else None
    _, past = linear.attend(features(kind), *(t.detach() for t in inputs(5, 5)), causal=True)
    given = [q, k, v, past.sums, past.level]
    copies = [t.clone() for t in given]
    outputs = [linear.attend(features(kind), q, k, v, key_mask=key_mask, causal=True, past=past) for _ in range(2)]
    tracked = [t.clone().requires_grad_() for t in (q, k, v)]
    outputs.append(linear.attend(features(kind), *tracked, key_mask=key_mask, causal=True, past=past))
    assert all(torch.equal(t, copy) for t, copy in zip(given, copies, strict=True))
    for out, sums in outputs[1:]:
        for a, b in [(out, outputs[0][0]), (sums.sums, outputs[0][1].sums), (sums.level, outputs[0][1].level)]:
            assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)
    alone = linear.attend(features(kind), q, k, v, key_mask=key_mask, causal=True)[0]
    assert torch.allclose(alone, plain(kind, q, k, v, key_mask, True), rtol=0, atol=1e-11)


@pytest.mark.parametrize("drift", [70.0, 79.0, 81.0, 95.0, 150.0, 190.0, 640.0, 660.0, 760.0, 990.0, 5000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("per_feature", [True, False])
def test_weights_that_drift_far_inside_a_chunk(per_feature: bool, dtype: torch.dtype, drift: float) -> None:
    """On either side of where chunks are halved: values right, gradients finite, the past untouched."""
    T = 40
    rows = random(1, 1, T, 3, seed=1).to(dtype)
    slopes = torch.tensor([drift, -drift, 0.0], dtype=dtype)
    beta = torch.linspace(0, 1, T, dtype=dtype)[:, None] * slopes + random(T, 3, seed=2).to(dtype)
    v = random(1, 1, T, 2, seed=3).to(dtype)
    rows, beta, v = (t.clone().requires_grad_() for t in (rows, beta[None, None], v))
    out, _ = linear.causal_sums(rows, beta, v, per_feature=per_feature)
    exact = exactly(rows.double(), beta.double(), v.double(), per_feature)
    assert torch.allclose(out.double(), exact, rtol=0, atol=1e-4 if dtype == torch.float32 else 1e-11)
    for gradient in torch.autograd.grad(out.square().sum(), (rows, beta, v)):
        assert torch.isfinite(gradient).all()
    later = beta.detach().clone()
    later[:, :, -1] += torch.tensor([drift, drift, -drift], dtype=dtype)
    again, _ = linear.causal_sums(rows, later, v, per_feature=per_feature)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    assert torch.allclose(again[:, :, :-1], out[:, :, :-1], rtol=0, atol=tolerance)


def exactly(rows: Tensor, beta: Tensor, v: Tensor, per_feature: bool) -> Tensor:
    """Row by row, in the logarithm."""
    outputs = []
    for i in range(rows.shape[2]):
        shares = torch.softmax(beta[:, :, : i + 1], 2)  # of each key in each feature
        mass = torch.logsumexp(beta[:, :, : i + 1], 2)
        features = torch.softmax(rows[:, :, i] + (0.0 if per_feature else mass), -1)
        outputs.append(torch.einsum("bnf,bnsf,bnsd->bnd", features, shares, v[:, :, : i + 1]))
    return torch.stack(outputs, 2)


# --------------------------------------------------------------------------- the kernel itself


@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize(("q_norm", "k_norm", "angle"), [(0.5, 0.5, 0.3), (1.0, 0.7, 1.2), (0.8, 0.8, 2.6)])
def test_the_kernel_estimate_is_unbiased(orthogonal: bool, q_norm: float, k_norm: float, angle: float) -> None:
    d, m, repetitions = 6, 12, 20_000
    q, k = torch.zeros(2, d, dtype=torch.float64)
    q[0] = q_norm
    k[0], k[1] = k_norm * math.cos(angle), k_norm * math.sin(angle)
    exact = math.exp(float(q @ k))
    generator = torch.Generator().manual_seed(1)
    draws = [linear.gaussian_directions(m, d, orthogonal=orthogonal, generator=generator) for _ in range(repetitions)]
    w = torch.stack(draws).double()
    estimates = torch.stack([(linear.positive_features(q, one) * linear.positive_features(k, one)).sum() for one in w])
    relative = estimates / exact
    error = relative.std() / repetitions**0.5
    assert abs(relative.mean() - 1) < 4 * error
    law = (math.exp(float((q + k).square().sum())) - 1) / m
    measured = relative.var().item()
    # The spread of a sample variance, from the sample's own fourth moment.
    kurtosis = ((relative - relative.mean()) ** 4).mean().item() / measured**2
    spread = measured * math.sqrt((kurtosis - 1) / repetitions)
    if orthogonal:
        assert measured + 3 * spread < law
    else:
        assert abs(measured - law) < 4 * spread


def test_orthogonal_directions_are_orthogonal_in_blocks_with_gaussian_norms() -> None:
    generator = torch.Generator().manual_seed(0)
    w = linear.gaussian_directions(10, 4, orthogonal=True, generator=generator)
    for block in (w[:4], w[4:8], w[8:]):
        gram = block @ block.T
        assert torch.allclose(gram, torch.diag(gram.diagonal()), atol=1e-5)
    many = linear.gaussian_directions(40_000, 4, orthogonal=True, generator=generator)
    assert abs(many.square().sum(1).mean().item() - 4) < 0.1
    assert (many.mean(0).abs() < 0.03).all()


def test_more_features_come_closer_to_softmax() -> None:
    q, k, v = (t.detach() for t in inputs(12, 12, 0.7))
    exact = plain("softmax", q, k, v, None, True)
    errors = []
    for m in (16, 256, 4096):
        w = linear.gaussian_directions(m, D, orthogonal=True, generator=torch.Generator().manual_seed(3)).double()
        mine, _ = linear.attend(linear.random_features(w), q, k, v, causal=True)
        errors.append((mine - exact).square().mean().sqrt().item())
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


# --------------------------------------------------------------------------- scores, weights, mix


def test_scores_follow_their_equations() -> None:
    q, k = random(2, 3, D, seed=1), random(2, 5, D, seed=2)
    W_1, W_2, v = random(6, D, seed=3), random(6, D, seed=4), random(6, seed=5)
    dot, scaled, additive = ops.dot_scores(q, k), ops.scaled_scores(q, k), ops.additive_scores(q, k, W_1, W_2, v)
    assert dot.shape == scaled.shape == additive.shape == (2, 3, 5)
    for b in range(2):
        for i in range(3):
            for j in range(5):
                product = sum(q[b, i, n] * k[b, j, n] for n in range(D))
                assert torch.allclose(dot[b, i, j], product)
                assert torch.allclose(scaled[b, i, j], product / math.sqrt(D))
                assert torch.allclose(additive[b, i, j], v @ torch.tanh(W_1 @ q[b, i] + W_2 @ k[b, j]))


def test_scores_weights_mix_is_what_the_fused_kernel_computes() -> None:
    q, k, v = inputs(5, 7)
    mask = torch.rand(B, 1, 5, 7, generator=torch.Generator().manual_seed(2)) < 0.6
    mask[0, 0, 2] = False
    mine = ops.mix(ops.attention_weights(ops.scaled_scores(q, k), mask), v)
    agree(mine, F.scaled_dot_product_attention(q, k, v, attn_mask=mask), [q, k, v])


def test_a_row_without_keys_is_zero_with_zero_gradients() -> None:
    scores = random(2, 3, 4, seed=1).requires_grad_()
    mask = torch.ones(2, 3, 4, dtype=torch.bool)
    mask[1, 2] = False
    weights = ops.attention_weights(scores, mask)
    assert torch.count_nonzero(weights[1, 2]) == 0
    (weights * random(2, 3, 4, seed=2)).sum().backward()
    assert torch.isfinite(scores.grad).all()
    assert torch.count_nonzero(scores.grad[1, 2]) == 0


@pytest.mark.parametrize("window", [1, 4, 8, 9, None])
def test_blocks_of_rows_change_nothing(window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = inputs(9, 9)
    key_mask = length_mask(torch.tensor([9, 6, 0]), 9)
    options: dict[str, Any] = dict(key_mask=key_mask, causal=True, window=window)
    whole = ops.softmax_attention(q, k, v, **options)
    monkeypatch.setattr(ops, "ROWS", 2)
    agree(ops.softmax_attention(q, k, v, **options), whole, [q, k, v])
    mask = banded_causal_mask(9, 9, window) & key_mask[:, None, None]
    agree(whole, F.scaled_dot_product_attention(q, k, v, attn_mask=mask), [q, k, v])


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("causal", "window", "T"), [(False, None, 9), (False, None, 6), (True, None, 9), (True, 4, 9)])
@pytest.mark.parametrize("rows", [2, 5, 512])
def test_dropout_in_blocks_of_rows_drops_weights(
    rows: int, causal: bool, window: int | None, T: int, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The identity as values shows which weights were kept; with them the formula gives the values and gradients."""
    monkeypatch.setattr(ops, "ROWS", rows)
    (q, k, v), p = inputs(T, 9), 0.4
    key_mask = length_mask(torch.tensor([9, 6, 0]), 9) if padded else None
    options: dict[str, Any] = dict(key_mask=key_mask, causal=causal, window=window, dropout=p)

    def attended(values: Tensor) -> Tensor:
        torch.manual_seed(3)
        return ops.softmax_attention(q, k, values, **options)

    shown = attended(torch.eye(9, dtype=torch.float64).expand(B, N, 9, 9)).detach()
    mask = banded_causal_mask(T, 9, window) if causal else torch.ones(T, 9, dtype=torch.bool)
    mask = mask if key_mask is None else mask & key_mask[:, None, None]
    weights = ops.attention_weights(ops.scaled_scores(q, k), mask)
    kept = shown != 0
    assert 0.45 < (kept.sum() / mask.expand_as(kept).sum()).item() < 0.75
    agree(attended(v), ops.mix(weights * kept / (1 - p), v), [q, k, v])


@pytest.mark.parametrize("queries", [1, 3, 9])
@pytest.mark.parametrize("window", [1, 2, 8, 9, 10])
def test_windows_hide_what_is_further_back(window: int, queries: int) -> None:
    q, k, v = inputs(queries, 9)
    mask = banded_causal_mask(queries, 9, window)
    mine = ops.softmax_attention(q, k, v, causal=True, window=window)
    agree(mine, F.scaled_dot_product_attention(q, k, v, attn_mask=mask), [q, k, v])
    positions = [[9 - queries + i - window < j <= 9 - queries + i for j in range(9)] for i in range(queries)]
    assert mask.tolist() == positions


def test_length_mask() -> None:
    assert length_mask(torch.tensor([2, 0, 3]), 3).tolist() == [[True, True, False], [False] * 3, [True] * 3]
