"""Where heads look, against plain loops and constructed attention; and models with a head switched off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from scipy import stats
from tests.models.test_translators import BATCH, V
from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.diagnostics.attention_maps import (
    Attended,
    Side,
    attention_layers,
    attention_of,
    change_of,
    head_figures,
    loss_without,
    matching_brackets,
    patterns_of,
    switched_off,
)
from seqlab.layers.attentive import AttentiveRNN
from seqlab.layers.pooling import AttentionPooling
from seqlab.models import build_lm
from seqlab.models.recurrent_translator import GRUTranslator, LSTMTranslator
from seqlab.models.translator import TransformerTranslator


def side(*rows: Sequence[str]) -> Side:
    names = sorted({word for row in rows for word in row})
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor([names.index(word) for word in row])
    return Side(ids, torch.tensor([len(row) for row in rows]), rows)


def random_attention(queries: Side, keys: Side, heads: int, sees: Any, seed: int = 0) -> Attended:
    torch.manual_seed(seed)
    empty = Attended("x", torch.zeros(len(queries.ids), heads, queries.ids.shape[1], keys.ids.shape[1]), queries, keys)
    shape = Attended("x", empty.weights, queries, keys, sees)
    scores = torch.randn(empty.weights.shape, dtype=torch.float64).masked_fill(~shape.visible[:, None], -math.inf)
    return Attended("x", torch.softmax(scores, -1).nan_to_num(0.0), queries, keys, sees)


TEXT = side(["f", "(", "a", ",", "[", "b", "]", ")"], ["a", "b", "a", "c"], ["a", "a", "b"])


@pytest.mark.parametrize("sees", ["past", "all", "before"])
def test_figures_are_those_of_a_plain_loop(sees: str) -> None:
    layer = random_attention(TEXT, TEXT, 2, sees)
    for head, found in enumerate(head_figures(layer)):
        entropies, evenness, distances = [], [], []
        shares: dict[str, list[float]] = {"previous": [], "first": [], "same": [], "after": []}
        shares |= {"next": []} if sees == "all" else {}
        for row, words in enumerate(TEXT.words):
            for i in range(len(words)):
                keys = range({"past": i + 1, "before": i, "all": len(words)}[sees])
                if len(keys) < 2:
                    continue
                a = {j: float(layer.weights[row, head, i, j]) for j in keys}
                entropies.append(-sum(p * math.log(p) for p in a.values()))
                evenness.append(entropies[-1] / math.log(len(keys)))
                distances.append(sum(p * abs(i - j) for j, p in a.items()))
                if i > 0:
                    shares["previous"].append(a[i - 1])
                if sees == "all" and i + 1 < len(words):
                    shares["next"].append(a[i + 1])
                shares["first"].append(a[0])
                same = [j for j in keys if j != i and words[j] == words[i]]
                after = [j for j in keys if 0 < j != i + 1 and words[j - 1] == words[i]]
                for name, places in (("same", same), ("after", after)):
                    if places:
                        shares[name].append(sum(a[j] for j in places))
        assert found.entropy == pytest.approx(sum(entropies) / len(entropies), rel=1e-12)
        assert found.evenness == pytest.approx(sum(evenness) / len(evenness), rel=1e-12)
        assert found.distance == pytest.approx(sum(distances) / len(distances), rel=1e-12)
        names = {"same": "earlier occurrence", "after": "after an earlier occurrence"}
        if sees == "all":
            names = {"same": "same token", "after": "after the same token"}
        assert ("next" in found.patterns, "itself" in found.patterns) == (sees == "all", sees != "before")
        for name, values in shares.items():
            pattern = found.patterns[names.get(name, name)]
            assert pattern.queries == len(values)
            assert pattern.share == pytest.approx(sum(values) / len(values), rel=1e-12)


def test_padding_is_not_counted() -> None:
    long, alone = side(["a", "b", "c", "d", "e", "f"], ["a", "b", "a"]), side(["a", "b", "a"])
    weights = random_attention(long, long, 2, "past").weights
    cut = Attended("x", weights[1:, :, :3, :3], alone, alone, "past")
    one = Side(long.ids[1:], long.lengths[1:], long.words[1:])
    assert head_figures(Attended("x", weights[1:], one, one, "past")) == head_figures(cut)


@pytest.mark.parametrize(
    "name", ["previous", "first", "itself", "earlier occurrence", "after an earlier occurrence", "matching bracket"]
)
def test_a_head_that_looks_at_one_place_is_named_by_it(name: str) -> None:
    words = ("( a b [ c ] a b ) x " * 4).split()
    text = side(words, words)
    shape = random_attention(text, text, 1, "past")
    mask = patterns_of(shape)[name] & shape.visible
    even = shape.visible.double()
    chosen = torch.where(mask.any(-1, keepdim=True), mask.double(), even)
    weights = (chosen / chosen.sum(-1, keepdim=True))[:, None]
    (found,) = head_figures(Attended("x", weights, text, text, "past"))
    assert found.looks_at == name
    assert found.patterns[name].share == pytest.approx(1, abs=1e-12)
    assert found.patterns[name].chance < 0.5
    spread = even / even.sum(-1, keepdim=True)
    (even_head,) = head_figures(Attended("x", spread[:, None], text, text, "past"))
    assert even_head.looks_at == ""
    assert even_head.evenness == pytest.approx(1, abs=1e-12)
    for pattern in even_head.patterns.values():
        assert pattern.share == pytest.approx(pattern.chance, rel=1e-9)


def test_what_few_tokens_have_counts_as_much_as_they_are() -> None:
    """Every closing bracket looks at its other half, half of all tokens at the one before them: "previous" wins; and
    what has fewer than ten places is no place to look at."""
    words = ("( a b c d e f g h ) " * 12).split()
    text = side(words)
    shape = random_attention(text, text, 1, "past")
    places = patterns_of(shape)
    even = shape.visible.double() / shape.visible.sum(-1, keepdim=True)
    before = torch.where(places["previous"].any(-1, keepdim=True), 0.5 * places["previous"].double() + 0.5 * even, even)
    bracket = places["matching bracket"] & shape.visible
    weights = torch.where(bracket.any(-1, keepdim=True), bracket.double(), before)
    (found,) = head_figures(Attended("x", weights[:, None], text, text, "past"))
    assert found.patterns["matching bracket"].share > found.patterns["previous"].share
    assert found.looks_at == "previous"
    only = torch.where(bracket.any(-1, keepdim=True), bracket.double(), even)
    (found,) = head_figures(Attended("x", only[:, None], text, text, "past"))
    assert found.looks_at == "matching bracket"
    few = side(words[:80])
    (found,) = head_figures(Attended("x", only[:, None, :80, :80], few, few, "past"))
    assert found.patterns["matching bracket"].queries == 8
    assert found.looks_at == ""


def test_across_two_texts() -> None:
    source, target = side(["a", "b", "c", "d"], ["b", "c"]), side(["a", "c", "d"], ["b", "b"])
    names = {word: k for k, word in enumerate("abcd")}
    ids = [torch.tensor([[names[w] for w in row] + [0] * (4 - len(row)) for row in s.words]) for s in (source, target)]
    source, target = Side(ids[0], source.lengths, source.words), Side(ids[1][:, :3], target.lengths, target.words)
    layer = random_attention(target, source, 1, "all")
    (found,) = head_figures(layer)
    w = layer.weights[:, 0]
    assert found.patterns["same position"].share == pytest.approx(
        float((w[0, 0, 0] + w[0, 1, 1] + w[0, 2, 2] + w[1, 0, 0] + w[1, 1, 1]) / 5), rel=1e-12
    )
    assert found.patterns["same token"].share == pytest.approx(
        float((w[0, 0, 0] + w[0, 1, 2] + w[0, 2, 3] + w[1, 0, 0] + w[1, 1, 0]) / 5), rel=1e-12
    )
    assert found.patterns["last"].share == pytest.approx(float((w[0, :, 3].sum() + w[1, :2, 1].sum()) / 5), rel=1e-12)
    assert found.patterns["after the same token"].queries == 4, "nothing follows d"


def test_brackets_match_as_they_are_nested() -> None:
    text = side(["(", "[", ")", "(", ")", "]", ")", "}"])
    found = {(int(i), int(j)) for _, i, j in matching_brackets(text).nonzero() if i < j}
    assert found == {(0, 6), (1, 5), (3, 4)}, "a closing bracket of another kind closes nothing"
    text = side(["{", "(", "a", ")", "[", "b", "]", "}"])
    found = {(int(i), int(j)) for _, i, j in matching_brackets(text).nonzero() if i < j}
    assert found == {(0, 7), (1, 3), (4, 6)}


def test_what_sums_up_stands_nowhere() -> None:
    text = side(["a", "b", "c"], ["a", "b"])
    summing = Side(torch.zeros(2, 1, dtype=torch.long), torch.ones(2, dtype=torch.long), [["the text"]] * 2)
    (found,) = head_figures(random_attention(summing, text, 1, "all"))
    assert found.distance is None
    assert set(found.patterns) == {"first", "last"}


def test_one_token_is_no_choice() -> None:
    text = side(["a"], ["b"])
    with pytest.raises(UsageError, match="two tokens to choose between"):
        head_figures(Attended("x", torch.ones(2, 1, 1, 1), text, text, "past"))


# --------------------------------------------------------------------------- models


MODELS: dict[str, Any] = {
    "transformer": lambda: build_lm("transformer", V, width=16, depth=2, heads=2, context=16),
    "attentive-rnn": lambda: build_lm("attentive-rnn", V, width=16, depth=2, context=16),
    "translator": lambda: TransformerTranslator(V, 2, 16, 2, 2, pointer=True),
    "gru": lambda: GRUTranslator(V, 2, 16, score="dot"),
    "feeding": lambda: LSTMTranslator(V, 2, 16, input_feeding=True, score="additive"),
}


def runner(kind: str, model: Any) -> Any:
    if kind in ("transformer", "attentive-rnn"):
        ids = torch.randint(0, V, (3, 9), generator=torch.Generator().manual_seed(0))
        return lambda: model(ids)[0]
    return lambda: model(BATCH.inputs, model.encode(BATCH.source))[0]


@pytest.mark.parametrize("kind", MODELS)
def test_every_layer_shows_whole_rows(kind: str) -> None:
    torch.manual_seed(0)
    model = MODELS[kind]().double().eval()
    seen = attention_of(model, runner(kind, model))
    assert list(seen) == attention_layers(model)
    expected = {"transformer": 2, "attentive-rnn": 2, "translator": 2 + 2 * 2 + 1, "gru": 1, "feeding": 1}[kind]
    assert len(seen) == expected
    for path, weights in seen.items():
        assert weights.ndim == 4
        first = 1 if kind == "attentive-rnn" else 0  # the first step has nothing to attend to
        if kind in ("transformer", "attentive-rnn"):
            assert (weights[:, :, first:].sum(-1) - 1).abs().max() < 1e-12
        else:
            assert (weights[:, :, 0].sum(-1) - 1).abs().max() < 1e-12, path


def test_a_head_that_is_off_has_no_say_in_the_output_matrix() -> None:
    torch.manual_seed(0)
    model = MODELS["transformer"]().double().eval()
    run = runner("transformer", model)
    before = run()
    with switched_off(model, "blocks.1.attention", 1):
        off = run()
    assert torch.equal(run(), before), "afterwards all is as it was"
    assert (off - before).abs().max() > 1e-3
    with torch.no_grad():
        model.blocks[1].attention.project_out.weight[:, 8:] = 0.0
    assert (run() - off).abs().max() < 1e-12


def test_without_attention_an_attentive_rnn_is_a_plain_one() -> None:
    torch.manual_seed(0)
    layer, plain = AttentiveRNN(4, 6).double(), nn.RNN(4, 6, batch_first=True).double()
    with torch.no_grad():
        plain.weight_ih_l0.copy_(layer.weight_ih)
        plain.weight_hh_l0.copy_(layer.weight_hh)
        plain.bias_ih_l0.copy_(layer.bias)
        plain.bias_hh_l0.zero_()
    x, lengths = torch.randn(3, 7, 4, dtype=torch.float64), torch.tensor([7, 3, 1])
    assert (layer.alone(x)[0] - plain(x)[0]).abs().max() < 1e-12
    y, state = layer.alone(x, None, lengths)
    for row, size in enumerate(lengths):
        assert (y[row, :size] - plain(x[row : row + 1, :size])[0][0]).abs().max() < 1e-12
        assert (y[row, size:] == 0).all()
    pieces, after = layer.alone(x[:, :3])
    more, _ = layer.alone(x[:, 3:], after)
    assert (torch.cat([pieces, more], 1) - layer.alone(x)[0]).abs().max() < 1e-12
    assert state.memory.shape == (3, 7, 6)


def test_a_pointer_that_is_off_never_copies() -> None:
    torch.manual_seed(0)
    model = MODELS["translator"]().double().eval()
    with switched_off(model, "pointer", 0), torch.no_grad():
        off = runner("translator", model)()
        nats = model.nats_of_rows(BATCH)
    model.pointer = None
    with torch.no_grad():
        alone = torch.log_softmax(runner("translator", model)(), -1)
        assert (off - alone).abs().max() < 1e-9
        assert (nats - model.nats_of_rows(BATCH)).abs().max() < 1e-9


def test_what_sums_up_takes_the_mean_and_a_decoder_sees_nothing() -> None:
    torch.manual_seed(0)
    pooling = nn.Sequential(AttentionPooling(5)).double()
    y, lengths = torch.randn(2, 4, 5, dtype=torch.float64), torch.tensor([4, 2])
    with switched_off(pooling, "0", 0):
        off = pooling[0](y, lengths)
    assert (off[0] - y[0].mean(0)).abs().max() < 1e-12
    assert (off[1] - y[1, :2].mean(0)).abs().max() < 1e-12
    model = MODELS["gru"]().double().eval()
    with switched_off(model, "attention", 0), torch.no_grad():
        off = runner("gru", model)()
    with torch.no_grad():
        model.combine.weight[:, 16:] = 0.0  # W [h, c] without c
        assert (off - runner("gru", model)()).abs().max() < 1e-12
    with pytest.raises(UsageError, match="cannot be switched off"), switched_off(model, "combine", 0):
        pass


def test_the_interval_is_students() -> None:
    torch.manual_seed(0)
    differences = torch.randn(12, dtype=torch.float64) + 0.3
    found = change_of(differences)
    low, high = stats.ttest_1samp(differences.numpy(), 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9)
    assert found.settled == (not low <= 0 <= high)
    assert math.isinf(change_of(differences[:1]).high)


def test_the_loss_without_a_head_is_measured_on_the_same_sequences() -> None:
    torch.manual_seed(0)
    model = MODELS["transformer"]().double().eval()
    ids = torch.randint(0, V, (5, 9))

    def losses() -> Tensor:
        logits, _ = model(ids[:, :-1])
        return nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none").mean(1)

    with torch.no_grad():
        before = losses()
        found = loss_without(model, losses, "blocks.0.attention", 0, before)
        model.blocks[0].attention.project_out.weight[:, :8] = 0.0
        expected = losses() - before
    assert found.mean == pytest.approx(float(expected.mean()), rel=1e-9)
    assert (found.low, found.high) == pytest.approx((change_of(expected).low, change_of(expected).high), rel=1e-9)


def test_a_model_without_attention_is_refused() -> None:
    with pytest.raises(UsageError, match="it has no attention layer"):
        attention_of(build_lm("gru", V, width=8, depth=1), lambda: None)
    assert attention_layers(build_lm("gru", V, width=8, depth=1)) == []
