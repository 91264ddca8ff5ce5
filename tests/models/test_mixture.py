"""Models mixed, against the equation written out; what the weights may look at; saving."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqlab.core.errors import DamageError
from seqlab.core.traits import Traits
from seqlab.models import build_lm
from seqlab.models.gate import Gate
from seqlab.models.guided import Guide
from seqlab.models.mixture import BIAS, SLOPES, MixtureLM, features_in, match_features, read_counts, row_features
from seqlab.models.ngram import NGramLM

V = 6
TEXT = np.random.default_rng(0).integers(0, V, 300) // 2 + np.arange(300) % 2


def members(order: int = 4) -> list[Any]:
    window = build_lm("transformer", vocab_size=V, width=8, depth=1, heads=2, context=5)
    return [NGramLM.fit(TEXT, V, order), build_lm("lstm", vocab_size=V, width=8, depth=1).eval(), window.eval()]


def gate_for(some: list[Any], seed: int = 0) -> Gate:
    draw = torch.Generator().manual_seed(seed)
    shapes = (len(some),), (features_in(some), len(some))
    bias, slopes = (torch.randn(*shape, dtype=torch.float64, generator=draw) for shape in shapes)
    return Gate(bias, slopes)


def drawn(batch: int = 2, length: int = 9, seed: int = 0) -> Tensor:
    return torch.randint(0, V + 1, (batch, length), generator=torch.Generator().manual_seed(seed))


def plain_features(member: Any, before: list[int], p: NDArray[np.float64]) -> list[float]:
    """Of one place, from the text before it and what the member expects there."""
    entropy = -sum(q * np.log(q) for q in p)
    if not isinstance(member, NGramLM):
        return [entropy, entropy**2]
    text = [V, *TEXT.tolist()]
    followed = [k for k in range(member.order) if k <= len(before) and stands_in(text[:-1], before[len(before) - k :])]
    longest = max(followed)
    index = np.array([0])
    for level, token in zip(member.levels, before[len(before) - longest :], strict=False):
        index = level.find(index, np.array([token]))
    return [entropy, entropy**2, longest, np.log(member.levels[longest].shorter_share[index[0]])]


def stands_in(text: list[int], passage: list[int]) -> bool:
    return any(text[k : k + len(passage)] == passage for k in range(len(text) - len(passage) + 1))


@torch.no_grad()
def test_the_equation_written_out() -> None:
    some = members()
    model = MixtureLM(some, gate_for(some))
    ids = drawn()
    found = model(ids)[0]
    singles = [member(ids)[0].double().softmax(-1).numpy() for member in some]
    for b in range(len(ids)):
        for t in range(ids.shape[1]):
            rows = [p[b, t] for p in singles]
            f = [plain_features(member, ids[b, : t + 1].tolist(), p) for member, p in zip(some, rows, strict=True)]
            scores = model.gate.bias.numpy() + np.concatenate(f) @ model.gate.slopes.numpy()
            weights = np.exp(scores) / np.exp(scores).sum()
            expected = sum(w * p for w, p in zip(weights, rows, strict=True))
            assert found[b, t].exp().numpy() == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize("vocab", [2, 6, 300])
def test_it_is_a_distribution_to_the_last_digit(vocab: int) -> None:
    """Though its members compute in float32."""
    text = np.random.default_rng(1).integers(0, vocab, 500)
    some = [NGramLM.fit(text, vocab, 3), build_lm("gru", vocab_size=vocab, width=8, depth=1)]
    log_p = MixtureLM(some, gate_for(some))(torch.from_numpy(text[None, :40]))[0]
    assert log_p.dtype == torch.float64
    assert (log_p.exp().sum(-1) - 1).abs().max() < 1e-13


def test_weights_sum_to_one_and_a_sure_gate_is_the_part_alone() -> None:
    some = members()
    model, ids = MixtureLM(some), drawn()
    assert model.gate.bias.exp().tolist() == pytest.approx([1 / 3] * 3)
    for k in range(3):
        bias = torch.full((3,), -800.0, dtype=torch.float64)
        bias[k] = 0
        model.gate = Gate(bias, torch.zeros(features_in(some), 3, dtype=torch.float64))
        alone = some[k](ids)[0].double().log_softmax(-1)
        assert torch.allclose(model(ids)[0], alone, rtol=0, atol=2e-6)


@pytest.mark.parametrize("order", [1, 2, 5, 8])
def test_what_an_n_gram_knows_is_the_same_in_pieces(order: int) -> None:
    counts = Guide(NGramLM.fit(TEXT[:7] if order == 8 else TEXT, V, order))
    ids = drawn(3, 11)
    whole = read_counts(counts, ids, None)[1]
    recent, pieces = None, []
    for k in range(0, 11, 3):
        _, known, recent = read_counts(counts, ids[:, k : k + 3], recent)
        pieces.append(known)
    assert torch.equal(torch.cat(pieces, 1), whole)
    assert whole.shape == (3, 11, 4)
    assert whole[..., 2].max() <= order - 1


def test_a_match_is_one_that_something_followed() -> None:
    """The last tokens of the training text are met there, but nothing came after them."""
    text = np.array([0, 1, 2, 0, 1, 3])
    counts = NGramLM.fit(text, V, 4)
    contexts, _ = counts.contexts_after(torch.tensor([[0, 1, 3], [2, 0, 1], [5, 5, 0]]))
    longest = match_features(counts, contexts)[:, 0].view(3, 3)
    assert longest.tolist() == [[1, 2, 0], [1, 2, 3], [0, 0, 1]]


def test_the_entropy_of_sure_and_of_even_rows() -> None:
    rows = torch.tensor([[0.0, -torch.inf, -torch.inf, -torch.inf], [np.log(0.25)] * 4])
    assert row_features(rows).tolist() == [[0, 0], pytest.approx([np.log(4), np.log(4) ** 2], rel=1e-6)]


def test_its_traits_follow_from_its_members() -> None:
    ngram, lstm, window = members()
    assert MixtureLM([lstm, window]).traits == Traits(learns_from="runs")
    assert MixtureLM([ngram, NGramLM.fit(TEXT, V, 2)]).traits == Traits(looks_back=3, learns_from="runs")
    ends = [build_lm("transformer", vocab_size=V, positions="learned", context=c) for c in (20, 9)]
    assert MixtureLM([*ends, lstm]).traits.max_positions == 9


def test_tensors_make_the_same_model_and_damage_is_named() -> None:
    some = members()
    model = MixtureLM(some, gate_for(some))
    tensors = model.tensors()
    assert {name.split("/")[0] for name in tensors} == {BIAS, SLOPES, "member-1", "member-2", "member-3"}
    again = MixtureLM.from_members(some, tensors, "model.safetensors")
    assert torch.equal(again(drawn())[0], model(drawn())[0])
    weights = sum(p.numel() for member in some[1:] for p in member.parameters())
    assert model.learnt == some[0].learnt + weights
    with pytest.raises(DamageError, match=r"model\.safetensors is no mixture: its weights are missing"):
        MixtureLM.from_members(some, {k: v for k, v in tensors.items() if k != BIAS}, "model.safetensors")
    with pytest.raises(DamageError, match=r"has weights of shape \(8, 3\), its members need \(4, 2\)"):
        MixtureLM.from_members(some[1:], tensors, "model.safetensors")
