"""Beam search, greedy and sampled decoding: against brute force, without a cache, and the model's own scores."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from seqlab.core.errors import UsageError
from seqlab.core.state import reorder
from seqlab.data.pair_batches import source_batch
from seqlab.generation.beam import Hypothesis, Search, beam_search, decode_one_by_one
from seqlab.generation.sampling import Choice
from seqlab.models.recurrent_translator import GRUTranslator, LSTMTranslator
from seqlab.models.translator import TransformerTranslator

V, END = 9, 8
SOURCES = [np.array([1, 2, 3]), np.array([4, 5, 6, 7, 0, 1]), np.array([2])]
LIMITS = [7, 10, 5]


def model_of(kind: str, vocabulary: int = V) -> Any:
    torch.manual_seed(11)
    make: dict[str, Any] = {
        "transformer": lambda: TransformerTranslator(vocabulary, 2, 16, 2, 2),
        "pointer": lambda: TransformerTranslator(vocabulary, 2, 16, 1, 2, pointer=True),
        "gru": lambda: GRUTranslator(vocabulary, 2, 12),
        "lstm": lambda: LSTMTranslator(vocabulary, 2, 12, input_feeding=True, pointer=True),
    }
    model = make[kind]().double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.7)  # sharper than at the start, so that sequences end at different lengths
    return model


def own_score(model: Any, source: np.ndarray, tag: int, found: Hypothesis, end: int = END) -> float:
    """What the model itself says of these ids."""
    written = [*found.ids, end] if found.ended else list(found.ids)
    memory = model.encode(source_batch([source], end))
    with torch.no_grad():
        logits, _ = model(torch.tensor([[tag, *found.ids]]), memory)
    logs = torch.log_softmax(logits, -1)[0]
    return sum(logs[t, token].item() for t, token in enumerate(written))


@pytest.fixture(params=["transformer", "pointer", "gru", "lstm"])
def model(request: pytest.FixtureRequest) -> Any:
    return model_of(request.param)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("beam", [1, 3, 5])
def test_cached_equals_uncached_and_scores_are_the_models_own(model: Any, beam: int, penalty: float) -> None:
    memory = model.encode(source_batch(SOURCES, END))
    search = Search(beam, penalty, n_best=min(beam, 2))
    found, plain = (beam_search(model, memory, V, LIMITS, END, search, cached=cached) for cached in (True, False))
    for source, some, others, limit in zip(SOURCES, found, plain, LIMITS, strict=True):
        assert [one.ids for one in some] == [one.ids for one in others]
        for one in some:
            assert one.score == pytest.approx(own_score(model, source, V, one), abs=1e-9)
            assert len(one.ids) <= limit
            assert END not in one.ids
        values = [one.value(penalty) for one in some if one.ended]
        assert values == sorted(values, reverse=True)


def test_a_beam_of_one_is_greedy(model: Any) -> None:
    memory = model.encode(source_batch(SOURCES, END))
    for tag in (V, V + 1):
        search = beam_search(model, memory, tag, LIMITS, END, Search(1))
        draws = [torch.Generator() for _ in SOURCES]
        greedy = decode_one_by_one(model, memory, tag, LIMITS, END, Choice(0.0), draws)
        for (one,), other in zip(search, greedy, strict=True):
            assert (one.ids, one.ended) == (other.ids, other.ended)
            assert one.score == pytest.approx(other.score, abs=1e-12)


def test_sentences_alone_and_together_are_the_same(model: Any) -> None:
    memory = model.encode(source_batch(SOURCES, END))
    together = beam_search(model, memory, V, LIMITS, END, Search(3, n_best=3))
    for row, source in enumerate(SOURCES):
        alone = beam_search(
            model, model.encode(source_batch([source], END)), V, [LIMITS[row]], END, Search(3, n_best=3)
        )
        assert [one.ids for one in alone[0]] == [one.ids for one in together[row]]
    order = torch.tensor([2, 0, 1])
    moved = beam_search(model, reorder(memory, order), V, [LIMITS[k] for k in order], END, Search(3, n_best=3))
    assert [[one.ids for one in some] for some in moved] == [[one.ids for one in together[k]] for k in order]


@pytest.mark.parametrize("kind", ["transformer", "pointer", "gru"])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_beam_as_wide_as_all_prefixes_finds_what_brute_force_finds(kind: str, penalty: float) -> None:
    vocabulary, end, limit = 4, 3, 4
    model = model_of(kind, vocabulary)
    source = np.array([0, 2, 1])
    every = [Hypothesis(ids, 0.0, True) for n in range(limit + 1) for ids in itertools.product(range(end), repeat=n)]
    scored = [Hypothesis(one.ids, own_score(model, source, vocabulary, one, end), True) for one in every]
    # The search ends what is as long as the limit without asking for its end.
    allowed = [one for one in scored if len(one.ids) < limit]
    best = sorted(allowed, key=lambda one: -one.value(penalty))[:3]
    memory = model.encode(source_batch([source], end))
    (found,) = beam_search(model, memory, vocabulary, [limit], end, Search(200, penalty, n_best=3))
    assert [one.ids for one in found] == [one.ids for one in best]
    assert [one.score for one in found] == pytest.approx([one.score for one in best], abs=1e-9)


def test_a_wider_beam_scores_no_worse_without_a_penalty(model: Any) -> None:
    """With all candidates kept nothing is lost; here: from greedy to a beam of 60."""
    memory = model.encode(source_batch(SOURCES[:1], END))
    narrow, wide = (beam_search(model, memory, V, [5], END, Search(beam, 0.0))[0][0] for beam in (1, 60))
    assert wide.score >= narrow.score - 1e-12 or not narrow.ended


def test_draws_follow_the_probabilities_and_their_seed() -> None:
    model = model_of("gru")
    memory = model.encode(source_batch([SOURCES[0]] * 2000, END))
    draws = [torch.Generator().manual_seed(k) for k in range(2000)]
    found = decode_one_by_one(model, memory, V, [1] * 2000, END, Choice(1.0), draws)
    logits, _ = model(torch.tensor([[V]]), model.encode(source_batch([SOURCES[0]], END)))
    p = torch.softmax(logits[0, 0], -1).detach()
    seen = torch.bincount(torch.tensor([one.ids[0] if one.ids else END for one in found]), minlength=V) / 2000
    assert ((seen - p).abs() <= 4 * (p * (1 - p) / 2000).sqrt() + 1e-9).all()
    again = [torch.Generator().manual_seed(k) for k in range(2000)]
    assert decode_one_by_one(model, memory, V, [1] * 2000, END, Choice(1.0), again) == found


@pytest.mark.parametrize(
    ("options", "words"),
    [(dict(beam=0), "too small"), (dict(beam=2, n_best=3), "1 to 2"), (dict(penalty=-1.0), "0 or more")],
)
def test_searches_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Search(**options)
