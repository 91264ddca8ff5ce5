"""Approximated attention: errors against plain loops, constructed cases, and the variance of the kernel."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from seqlab.core.taps import taps
from seqlab.diagnostics.approximation import (
    SEPARABLE,
    UNIFORM,
    Heads,
    Method,
    errors_of,
    exact_weights,
    judged,
    logit_scale,
    methods_of,
    pairs_of,
    sequence_errors,
    uniform_weights,
    weights_of,
)
from seqlab.diagnostics.kernel_variance import (
    Pairs,
    kernel_variance,
    measurable,
    most_measurable,
    squared_errors,
    variance_formula,
)
from seqlab.diagnostics.queries_and_keys import asked_of, layers_with_heads
from seqlab.layers import MultiHeadAttention, RotaryPosition
from seqlab.ops.linear_attention import gaussian_directions
from seqlab.workflows.diagnose.approximation import Case
from seqlab.workflows.diagnose.approximation_words import answer, sentence

Q, K, V = (torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(s), dtype=torch.float64) for s in range(3))


def fresh(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --------------------------------------------------------------------------- errors, by plain loops


def plain_weights(kind: str, q: Tensor, k: Tensor, causal: bool, w: Tensor) -> list[list[float]]:
    """One head, key by key: softmax, uniform, separable, random features."""
    d = q.shape[1]
    rows = []
    for i in range(len(q)):
        seen = list(range(i + 1 if causal else len(k)))
        if kind == "softmax":
            raw = [math.exp(float(q[i] @ k[j]) / math.sqrt(d)) for j in seen]
        elif kind == "uniform":
            raw = [1.0 for _ in seen]
        elif kind == "separable":
            shares = torch.softmax(q[i], 0)
            raw = [float(sum(shares[f] * k[j, f].exp() / k[seen, f].exp().sum() for f in range(d))) for j in seen]
        else:
            a, b = q / d**0.25, k / d**0.25
            raw = []
            for j in seen:
                terms = (w @ a[i] - a[i] @ a[i] / 2).exp() * (w @ b[j] - b[j] @ b[j] / 2).exp()
                raw.append(float(terms.sum()) / len(w))
        rows.append([share / sum(raw) for share in raw] + [0.0] * (len(k) - len(seen)))
    return rows


def plain_errors(estimate: list[list[float]], exact: list[list[float]], v: Tensor, rows: list[int]) -> list[float]:
    variation = sum(sum(abs(x - a) for x, a in zip(estimate[i], exact[i], strict=True)) / 2 for i in rows) / len(rows)
    above = sum((x - a) ** 2 for i in rows for x, a in zip(estimate[i], exact[i], strict=True))
    below = sum(a**2 for i in rows for a in exact[i])
    over = under = 0.0
    for i in rows:
        for c in range(v.shape[1]):
            mixed = [sum(row[i][j] * float(v[j, c]) for j in range(len(v))) for row in (estimate, exact)]
            over, under = over + (mixed[0] - mixed[1]) ** 2, under + mixed[1] ** 2
    return [variation, math.sqrt(above / below), math.sqrt(over / under)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("method", [UNIFORM, SEPARABLE, Method("random", 7), Method("random", 7, True)])
def test_weights_and_errors_are_those_of_plain_loops(method: Method, causal: bool) -> None:
    heads = Heads(Q, K, V, causal)
    found = weights_of(method, heads, fresh(4))
    errors = errors_of(found, exact_weights(heads), heads)
    w = gaussian_directions(method.features or 1, 3, orthogonal=method.orthogonal, generator=fresh(4)).double()
    for head in range(2):
        estimate = plain_weights(method.kind, Q[head], K[head], causal, w)
        exact = plain_weights("softmax", Q[head], K[head], causal, w)
        assert found[head].tolist() == [pytest.approx(row, abs=1e-12) for row in estimate]
        rows = list(range(1, 5)) if causal else list(range(5))  # the first of a causal text has no choice
        assert errors[head].tolist() == pytest.approx(plain_errors(estimate, exact, V[head], rows), rel=1e-10)


def test_more_keys_than_queries() -> None:
    heads = Heads(Q[:, :2], K, V)
    assert exact_weights(heads).shape == uniform_weights(heads).shape == (2, 2, 5)
    assert weights_of(Method("random", 4), heads, fresh()).sum(-1).allclose(torch.ones(2, 2, dtype=torch.float64))


def test_the_past_does_not_see_the_future() -> None:
    later = K.clone()
    later[:, 3:] += 5.0
    for method in methods_of([8], [False, True]):
        one, other = (weights_of(method, Heads(Q, k, causal=True), fresh())[:, :3] for k in (K, later))
        assert one.allclose(other, atol=1e-14)


def test_without_values_there_is_no_error_of_the_output() -> None:
    heads = [Heads(Q, K), Heads(K, Q)]
    errors = [sequence_errors(one, methods_of([8], [True]), 2, lambda _method: fresh()) for one in heads]
    found = judged(errors, heads, 0)
    assert found.uniform.output is None
    assert found.as_json()["random_features"][0]["output"] is None


# --------------------------------------------------------------------------- verdicts


def judged_on(scale: float, width: int, features: list[int]) -> Any:
    heads = []
    for seed in range(8):
        q, k = (math.sqrt(scale) * torch.randn(1, 24, width, generator=fresh(seed + s)).double() for s in (0, 100))
        heads.append(Heads(q, k))
    methods = methods_of(features, [False, True])
    streams = [lambda m, n=n: fresh(1000 * n + m.features + m.orthogonal) for n in range(8)]
    errors = [sequence_errors(one, methods, 2, draw) for one, draw in zip(heads, streams, strict=True)]
    return judged(errors, heads, 0)


def test_many_features_beat_uniform_attention_on_small_logits() -> None:
    found = judged_on(0.25, 8, [4, 2048])
    assert (found.beating.method.features, found.largest.word) == (2048, "better")
    assert found.of(False)[0].word == "worse"
    assert found.beats_from(True).variation.high < found.uniform.variation.low
    assert found.logit_scale == pytest.approx(0.25, rel=0.1)


def test_few_features_are_worth_nothing_on_large_logits() -> None:
    found = judged_on(2.0, 64, [16, 64])
    assert found.beating is None
    assert all(error.word == "worse" for error in found.random)
    assert found.pairs.unresolved(64) == 1.0
    assert found.as_json()["beats_uniform_from"] == {"independent": None, "orthogonal": None}
    said = sentence(Case("d = 64, logit scale 2", "width d = 64", 64, 2.0, found, []))
    last = found.largest.variation
    assert f"miss by {last.mean:.3f} ({last.low:.3f} to {last.high:.3f}), uniform attention by" in said
    assert ": worth nothing here; separable attention misses by" in said
    assert "‖q+k‖² > ln m for 100 % of the pairs even with m = 64: these are not resolved." in said


def test_uniform_attention_beats_all_where_keys_are_the_same() -> None:
    same = K[:, :1].expand(-1, 5, -1)
    heads = [Heads(Q, same, V), Heads(V, same, Q)]
    errors = [sequence_errors(one, methods_of([8], [False]), 1, lambda _method: fresh()) for one in heads]
    found = judged(errors, heads, 1)
    assert found.uniform.variation.mean == pytest.approx(0, abs=1e-12)
    assert found.even
    assert found.beating is None
    case = Case("0.1", "blocks.0.attention", 3, None, found, [])
    assert sentence(case) == (
        "Head 0.1 (blocks.0.attention): softmax attention is itself uniform here, so that nothing can beat uniform "
        "attention."
    )
    assert "beat uniform attention in none of 1 heads, separable attention in none of 1 heads" in answer(
        [case], of_run=True
    )


def test_nothing_wins_by_rounding() -> None:
    names = methods_of([4], [False])
    values = dict(zip(names, (1e-9, 1e-9, 1e-10), strict=True))
    errors = [{m: torch.full((1, 3), x * (1 + 0.01 * n)) for m, x in values.items()} for n in range(3)]
    found = judged(errors, [Heads(Q[:1], K[:1])] * 3, 0)
    assert found.largest.word == "better"
    assert found.beating is None


def test_a_smaller_m_that_wins_alone_does_not_count() -> None:
    """Each must beat uniform attention from the least m on."""
    names = methods_of([4, 8, 16], [False])
    values = {names[0]: 0.5, names[1]: 0.6, names[2]: 0.3, names[3]: 0.7, names[4]: 0.2}
    errors = [{m: torch.tensor([[x + 0.001 * n * (m != UNIFORM), x, x]]) for m, x in values.items()} for n in range(3)]
    found = judged(errors, [Heads(Q[:1], K[:1])] * 3, 0)
    assert found.beats_from(False).method.features == 16


def test_weights_that_are_nearer_may_mix_values_that_are_farther() -> None:
    names = methods_of([4], [False])
    values = {names[0]: [0.5, 0.5, 0.8], names[1]: [0.4, 0.4, 0.7], names[2]: [0.3, 0.3, 0.9]}
    errors = [{m: torch.tensor([x]) + 0.001 * n * (m != UNIFORM) for m, x in values.items()} for n in range(3)]
    found = judged(errors, [Heads(Q[:1], K[:1])] * 3, 0)
    assert (found.largest.word, found.largest.output_word, found.separable.output_word) == ("better", "worse", "better")
    case = Case("0.0", "layer", 3, None, found, [])
    said = "In the output random features with m = 4 miss by 0.901 (0.899 to 0.903), uniform attention by 0.800: worth"
    assert said in sentence(case)
    said = "In the output they beat it in none of 1 heads, separable attention in 1 of 1 heads."
    assert answer([case], of_run=True).endswith(said)


def test_the_scale_is_that_of_the_logits_in_a_row() -> None:
    """What all keys of a row share changes no weight and counts for nothing."""
    heads = Heads(Q, K, causal=True)
    plain = []
    for i in range(1, 5):
        logits = torch.stack([Q[0, i] @ K[0, j] / math.sqrt(3) for j in range(i + 1)])
        plain.append(float(logits.var()))
    assert logit_scale([heads], 0) == pytest.approx(math.sqrt(sum(plain) / 4))
    assert logit_scale([Heads(Q, K + 3.0)], 0) == pytest.approx(logit_scale([Heads(Q, K)], 0))


def test_pairs_are_those_that_see_each_other() -> None:
    found = pairs_of([Heads(Q, K, causal=True)], 1)
    expected = sorted(float(((Q[1, i] + K[1, j]) / 3**0.25).square().sum()) for i in range(1, 5) for j in range(i + 1))
    assert sorted(found.norms.tolist()) == pytest.approx(expected)


# --------------------------------------------------------------------------- the variance of the kernel


def pairs_at(norm: float, width: int, count: int = 8) -> Pairs:
    q, k = (torch.randn(count, width, generator=fresh(s), dtype=torch.float64) for s in (1, 2))
    short = (norm / (q + k).square().sum(-1, keepdim=True)).sqrt()
    return Pairs(q * short, k * short)


@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize(("width", "features"), [(4, 10), (8, 32), (16, 8)])
def test_theory_and_measurement_agree(width: int, features: int, orthogonal: bool) -> None:
    (found,) = kernel_variance([pairs_at(0.9, width)], features, orthogonal=orthogonal, generator=fresh(3))
    assert found is not None
    assert found.agrees
    assert found.measured == pytest.approx(found.theory, rel=0.06)


def test_wrong_formulas_disagree() -> None:
    pairs, m = pairs_at(0.9, 8), 32
    apart = (pairs.q - pairs.k).square().sum(-1)
    measured = squared_errors(pairs, m, orthogonal=False, generator=fresh(3)).mean(0)
    right = variance_formula(pairs.norms, m, 8, orthogonal=False)
    assert (measured / right - 1).abs().max() < 0.1
    for wrong in (apart.expm1() / m, pairs.norms.exp() / m, right * math.sqrt(m)):
        assert (measured / wrong - 1).abs().max() > 0.3
    orthogonal = squared_errors(pairs, m, orthogonal=True, generator=fresh(3)).mean(0)
    assert ((orthogonal / right - 1) < -0.1).all(), "less than independent directions have"


def test_orthogonal_theory_meets_independent_theory_where_nothing_is_orthogonal() -> None:
    norms = torch.tensor([0.1, 1.0, 3.0], dtype=torch.float64)
    one, other = (variance_formula(norms, 1, 8, orthogonal=orthogonal) for orthogonal in (False, True))
    assert one.tolist() == pytest.approx(other.tolist())
    assert (variance_formula(norms, 8, 8, orthogonal=True) < variance_formula(norms, 8, 8, orthogonal=False)).all()


def test_pairs_beyond_what_a_sample_shows_are_left_out() -> None:
    near, far = pairs_at(0.5, 8), pairs_at(20.0, 8)
    both = Pairs(torch.cat([near.q, far.q]), torch.cat([near.k, far.k]))
    some, share = measurable(both)
    assert (len(some.q), share) == (8, 0.5)
    assert some.norms.max() <= most_measurable()
    assert kernel_variance([far], 8, orthogonal=False, generator=fresh()) == [None]
    one, none = kernel_variance([both, far], 8, orthogonal=False, generator=fresh(), directions=4096)
    assert one is not None
    assert none is None


# --------------------------------------------------------------------------- queries and keys of layers


@pytest.mark.parametrize("options", [{}, {"n_kv_heads": 1}, {"rotary": RotaryPosition(4)}, {"kind": "separable"}])
@pytest.mark.parametrize("causal", [False, True])
def test_queries_and_keys_give_the_weights_of_the_layer(options: dict[str, object], causal: bool) -> None:
    layer = MultiHeadAttention(8, 2, **options).double().eval()  # type: ignore[arg-type]
    x = torch.randn(3, 6, 8, generator=fresh(), dtype=torch.float64)
    model = torch.nn.ModuleDict({"inner": layer})
    with taps(model, "inner.weights") as seen:
        asked = asked_of(model, lambda: layer(x, x, x, causal=causal))["inner"]
    assert list(layers_with_heads(model)) == ["inner"]
    assert not layer._forward_pre_hooks
    for row in range(3):
        heads = Heads(asked.q[row], asked.k[row], asked.v[row], asked.causal)
        own = weights_of(SEPARABLE, heads, fresh()) if layer.kind == "separable" else exact_weights(heads)
        assert own.allclose(seen["inner.weights"][row], atol=1e-12)
        mixed = (own @ heads.v).transpose(0, 1).flatten(1)  # type: ignore[operator]
        assert layer.project_out(mixed).allclose(layer(x, x, x, causal=causal)[0][row], atol=1e-12)


def test_keys_that_were_projected_before_are_found() -> None:
    layer = MultiHeadAttention(8, 2, rotary=RotaryPosition(4)).double().eval()
    source, x = (torch.randn(1, n, 8, generator=fresh(n), dtype=torch.float64) for n in (7, 3))

    def run() -> None:
        _, state, _ = layer(x[:, :0], source, source)
        layer(x, state=state, start=2)

    asked = asked_of(torch.nn.ModuleDict({"cross": layer}), run)["cross"]
    _, weights, _ = layer.look(x, source, source, start=2)
    assert exact_weights(Heads(asked.q[0], asked.k[0])).allclose(weights[0], atol=1e-12)
