"""A mixture on a text: each member is read in its own way, and what cannot stand somewhere gives its mass away."""

from typing import Any

import numpy as np
import pytest
import torch

from seqlab.data.pieces import cut_text
from seqlab.data.tokenizers import CharacterTokenizer, WordTokenizer
from seqlab.evaluation.mixed import MixtureScorer, policies_of, read_members
from seqlab.evaluation.surprisal import ModelScorer, impossible_in, nats_of_ids, policy_for
from seqlab.models import build_lm
from seqlab.models.gate import Gate
from seqlab.models.mixture import MixtureLM, features_in
from seqlab.models.ngram import NGramLM

V = 13
IDS = np.random.default_rng(0).integers(0, V, 700) // 3 + np.arange(700) % 8


def mixture(vocab_size: int = V, ids: Any = IDS) -> MixtureLM:
    window = build_lm("transformer", vocab_size=vocab_size, width=8, depth=1, heads=2, context=16, positions="learned")
    reading = build_lm("gru", vocab_size=vocab_size, width=8, depth=1)
    members = [window.double(), NGramLM.fit(ids, vocab_size, 3), reading.double()]
    draw = torch.Generator().manual_seed(1)
    slopes = torch.randn(features_in(members), 3, dtype=torch.float64, generator=draw) / 4
    return MixtureLM(members, Gate(torch.zeros(3, dtype=torch.float64), slopes)).eval()


@pytest.mark.parametrize("length", [1, 2, 8, 16, 17, 300, 700])
def test_every_part_reads_by_its_own_policy(length: int) -> None:
    model, ids = mixture(), IDS[:length]
    readings = read_members(model, ids, V)
    assert readings.log_p.shape == (length, 3)
    assert readings.features.shape == (length, features_in(list(model.members)))
    for k, member in enumerate(model.members):
        alone = nats_of_ids(member, ids, V, policy_for(member))
        assert -readings.log_p[:, k].numpy() == pytest.approx(alone, abs=1e-6 if k == 1 else 1e-12)
        assert readings.nats_alone(k) == pytest.approx(alone, abs=1e-6 if k == 1 else 1e-12)


@torch.no_grad()
def test_where_all_parts_see_the_whole_text_it_is_what_the_model_says() -> None:
    model, ids = mixture(), IDS[:8]  # the window's first segment
    log_p, _ = model(torch.from_numpy(np.concatenate([[V], ids[:-1]]))[None])
    expected = -log_p[0, torch.arange(8), torch.from_numpy(ids)]
    readings = read_members(model, ids, V)
    found = readings.nats(model.gate.log_weights(readings.features))
    assert found == pytest.approx(expected.numpy(), abs=1e-12)


def test_no_batch_size_changes_a_figure_and_no_reading_sees_what_follows() -> None:
    model = mixture()
    whole = read_members(model, IDS, V)
    for batch in (1, 3):
        again = read_members(model, IDS, V, batch=batch)
        assert torch.allclose(again.log_p, whole.log_p, rtol=0, atol=1e-12)
        assert torch.allclose(again.features, whole.features, rtol=0, atol=1e-12)
    for place in (1, 20, 350, 699):
        changed = IDS.copy()
        changed[place:] = (changed[place:] + 1) % V
        other = read_members(model, changed, V)
        assert torch.allclose(other.log_p[:place], whole.log_p[:place], rtol=0, atol=1e-12)
        assert torch.allclose(other.features[: place + 1], whole.features[: place + 1], rtol=0, atol=1e-12)
        assert not torch.allclose(other.log_p[place], whole.log_p[place], rtol=0, atol=1e-9)


def test_pieces_of_an_n_gram_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    model = mixture()
    whole = read_members(model, IDS, V)
    monkeypatch.setattr("seqlab.evaluation.mixed.AT_ONCE", 5 * V)
    seen: list[float] = []
    pieces = read_members(model, IDS, V, progress=seen.append)
    assert torch.allclose(pieces.log_p, whole.log_p, rtol=0, atol=1e-12)
    assert torch.equal(pieces.features, whole.features)
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1)


def test_what_cannot_stand_somewhere_gives_its_mass_to_the_rest() -> None:
    """After white space no white space can stand: against a softmax without those classes, over the whole mixture."""
    text = "the cat  sat\n\non the   mat and the  dog\tran " * 6
    tokenizer = WordTokenizer.fit(cut_text(text), 8)
    ids = tokenizer.encode(text).ids
    model = mixture(tokenizer.vocab_size, ids)
    short = text[:12]
    encoding = tokenizer.encode(short)
    impossible = impossible_in(encoding, short, tokenizer)
    assert impossible is not None
    assert impossible.at.any()
    table = MixtureScorer(model, tokenizer, ["a", "b", "c"]).score(short)
    before = np.concatenate([[tokenizer.begin_id], encoding.ids[:-1]])
    with torch.no_grad():
        log_p = model(torch.from_numpy(before)[None])[0][0]
    for k, barred in enumerate(impossible.at):
        if barred:
            log_p[k, torch.from_numpy(impossible.classes)] = -torch.inf
    expected = -log_p.log_softmax(-1)[torch.arange(len(encoding)), torch.from_numpy(encoding.ids)].numpy()
    assert table.nats - table.spelling == pytest.approx(expected, abs=1e-6)


def test_a_scorer_like_any_other() -> None:
    text = "abcabdabcaacbd" * 8
    tokenizer = CharacterTokenizer.fit(cut_text(text))
    model = mixture(tokenizer.vocab_size, tokenizer.encode(text).ids)
    scorer = MixtureScorer(model, tokenizer, ["w", "n", "g"])
    assert len(scorer.score("")) == 0
    table = scorer.score("ab漢a")
    assert table.unknown.tolist() == [False, False, True, False]
    assert table.spelling[2] > 0
    assert ModelScorer(model.members[2], tokenizer).score("ab漢a").spelling.tolist() == table.spelling.tolist()
    said = str(scorer.policy)
    assert said == str(policies_of(model, ["w", "n", "g"]))
    assert said.startswith(
        "each member in its own way (w: segments of 8 tokens, each read after the 8 tokens before it; n:"
    )
    assert said.endswith("); the first token of the text follows the begin id")
    assert said.count("begin id") == 1
