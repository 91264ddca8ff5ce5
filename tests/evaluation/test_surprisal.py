import math
from typing import Any

import numpy as np
import pytest
import torch

from seqlab.core.registry import MODELS
from seqlab.core.units import SPELLING_NATS_PER_BYTE
from seqlab.data.pieces import cut_text
from seqlab.data.tokenizers import CharacterTokenizer
from seqlab.evaluation.perplexity import Figures, figures_of
from seqlab.evaluation.surprisal import (
    ContextPolicy,
    ModelScorer,
    nats_of_ids,
    policy_for,
    segment_starts,
)
from seqlab.models import build_lm

V = 17
IDS = np.random.default_rng(0).integers(0, V, 700)


def model(kind: str) -> Any:
    sizes = dict(context=16, heads=2) if kind == "transformer" else {}
    return build_lm(kind, vocab_size=V, width=16, **sizes).double().eval()


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_any_batch_size_gives_the_same_sum(kind: str) -> None:
    lm = model(kind).float()
    policy = ContextPolicy(segment=32, warmup=16) if kind != "transformer" else policy_for(lm)
    sums = [nats_of_ids(lm, IDS, V, policy, batch=b).sum() for b in (1, 2, 7, 64)]
    assert np.allclose(sums, sums[0], rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", sorted(MODELS))
@pytest.mark.parametrize("length", [1, 2, 15, 31, 32, 33, 100])
def test_every_token_once_after_its_own_warm_up(kind: str, length: int) -> None:
    """Against a plain loop: one segment at a time, one softmax at a time."""
    lm, ids = model(kind), IDS[:length]
    policy = ContextPolicy(segment=9, warmup=5)
    expected = []
    for start in range(0, length, policy.segment):
        read = ids[max(0, start - policy.warmup) : start].tolist()  # exactly the warm-up
        before = [] if start >= policy.warmup else [V]
        row = [*before, *read, *ids[start : start + policy.segment].tolist()]
        log_p = lm(torch.tensor([row[:-1]]))[0][0].log_softmax(-1)
        nats = [-log_p[t, row[t + 1]].item() for t in range(len(row) - 1)]
        expected += nats[len(before) + len(read) - 1 :]
    assert nats_of_ids(lm, ids, V, policy).tolist() == pytest.approx(expected, abs=1e-10)


def test_a_text_that_fits_one_segment_is_scored_exactly() -> None:
    lm = model("lstm")
    log_p = lm(torch.tensor([[V, *IDS[:299].tolist()]]))[0][0].log_softmax(-1)
    expected = -log_p[torch.arange(300), torch.tensor(IDS[:300])].sum().item()
    assert nats_of_ids(lm, IDS[:300], V, policy_for(lm)).sum() == pytest.approx(expected, rel=1e-12)


def test_scoring_touches_no_random_stream_and_no_mode() -> None:
    lm = build_lm("lstm", vocab_size=V, width=16, dropout=0.5).train()
    before = torch.get_rng_state()
    first = nats_of_ids(lm, IDS, V, policy_for(lm))
    assert torch.equal(torch.get_rng_state(), before)
    assert lm.training
    assert np.array_equal(first, nats_of_ids(lm, IDS, V, policy_for(lm)))


def test_a_quick_look_takes_evenly_spaced_segments() -> None:
    policy = ContextPolicy(segment=10, warmup=5)
    assert segment_starts(95, policy).tolist() == list(range(0, 95, 10))
    assert segment_starts(1000, policy, most_tokens=30).tolist() == [0, 500, 990]
    assert len(segment_starts(1000, policy, most_tokens=5000)) == 100


def test_unknown_characters_are_scored_with_their_spelling() -> None:
    tokenizer = CharacterTokenizer.fit(cut_text("abc"))
    lm = build_lm("gru", vocab_size=tokenizer.vocab_size, width=8).double()
    scorer = ModelScorer(lm, tokenizer)
    table = scorer.score("ab漢a")
    assert table.unknown.tolist() == [False, False, True, False]
    assert (table.end - table.start).tolist() == [1, 1, 3, 1]
    ids = tokenizer.encode("ab漢a").ids
    plain = nats_of_ids(lm, ids, tokenizer.begin_id, scorer.policy)
    # Among unseen characters one in eight has three bytes, and there are 61,440 of those.
    assert table.nats - plain == pytest.approx([0, 0, math.log(8 * 61_440), 0])
    assert table.spelling.tolist() == (table.nats - plain).tolist()
    assert pytest.approx(8 * np.log(2)) == SPELLING_NATS_PER_BYTE


def test_an_empty_text_scores_nothing() -> None:
    tokenizer = CharacterTokenizer.fit(cut_text("abc"))
    table = ModelScorer(build_lm("gru", vocab_size=tokenizer.vocab_size, width=8), tokenizer).score("")
    assert len(table) == 0
    assert table.total == 0


def test_all_units_derive_from_the_same_sum() -> None:
    text = "ab  cd\né f"
    tokenizer = CharacterTokenizer.fit(cut_text(text))
    table = ModelScorer(build_lm("gru", vocab_size=tokenizer.vocab_size, width=8), tokenizer).score(text)
    figures = figures_of(table, text)
    assert (figures.tokens, figures.characters, figures.bytes, figures.words) == (10, 10, 11, 4)
    values = figures.as_json()
    assert values["bits_per_byte"] * 11 * np.log(2) == pytest.approx(table.total, rel=1e-12)
    assert values["bits_per_character"] * 10 * np.log(2) == pytest.approx(table.total, rel=1e-12)
    assert np.log(values["perplexity_per_word"]) * 4 == pytest.approx(table.total, rel=1e-12)
    assert 2 ** values["bits_per_character"] == pytest.approx(values["perplexity_per_character"], rel=1e-12)
    assert values["nats_per_token"] * 10 == pytest.approx(table.total, rel=1e-12)


def test_figures_never_overflow_or_divide_by_nothing() -> None:
    assert Figures(nats=1e6, tokens=10, characters=10, bytes=10, words=1).perplexity(1) == np.inf
    empty = Figures(0.0, 0, 0, 0, 0)
    assert empty.perplexity(0) is None
    assert empty.unknown_rate == 0


def test_the_policies_and_how_they_are_printed() -> None:
    assert policy_for(model("lstm")) == ContextPolicy(segment=1024, warmup=256)
    assert policy_for(model("transformer")) == ContextPolicy(segment=8, warmup=8)
    assert "segments of 8 tokens, each read after the 8 tokens before it" in str(policy_for(model("transformer")))
    single = build_lm("transformer", vocab_size=V, width=16, heads=2, context=1)
    assert policy_for(single) == ContextPolicy(segment=1, warmup=1)
    assert len(nats_of_ids(single, IDS[:5], V, policy_for(single))) == 5
