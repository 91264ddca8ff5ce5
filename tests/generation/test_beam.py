"""Beam search, greedy and sampled decoding: against brute force, without a cache, and the model's own scores."""

import itertools
import math
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


class Table:
    """A model whose next token depends on what was written alone: probabilities by prefix; any other never ends."""

    def __init__(self, rows: dict[tuple[int, ...], list[float]], vocabulary: int) -> None:
        self.rows = rows
        self.endless = [(1 - 1e-12) / (vocabulary - 1)] * (vocabulary - 1) + [1e-12]

    def __call__(self, ids: torch.Tensor, memory: Any, state: Any = None) -> tuple[torch.Tensor, None]:
        found = [self.rows.get(tuple(row[1:]), self.endless) for row in ids.tolist()]
        return torch.tensor(found, dtype=torch.float64).log()[:, None], None


def search_table(rows: dict[tuple[int, ...], list[float]], search: Search, limit: int = 6) -> list[Hypothesis]:
    vocabulary = len(rows[()])
    memory = torch.zeros(1, 1, 1)  # nobody reads it; it is reordered like a recurrent state
    return beam_search(Table(rows, vocabulary), memory, 99, [limit], vocabulary - 1, search, cached=False)[0]


def test_the_penalty_divides_by_the_length_to_its_power() -> None:
    short, long = Hypothesis((0,), math.log(0.5), True), Hypothesis((0, 1, 0), math.log(0.3), True)
    assert short.value(1.0) == pytest.approx(math.log(0.5) / 2)
    assert long.value(0.5) == pytest.approx(math.log(0.3) / 2)
    assert Hypothesis((0, 1), -1.0, False).value(1.0) == -0.5  # no end was counted
    # "end" at once has probability 0.3; three tokens and the end 0.7 · 0.9³: less as a product, more as a mean.
    rows = {(): [0.7, 1e-9, 0.3], (0,): [0.6, 1e-9, 0.4], (0, 0): [1e-9, 1e-9, 1.0]}
    by_sum, by_mean = (search_table(rows, Search(4, penalty))[0] for penalty in (0.0, 1.0))
    assert by_sum.ids == (0, 0)
    assert by_mean.ids == (0, 0)
    rows = {(): [0.4, 1e-9, 0.6], (0,): [0.9, 1e-9, 0.1], (0, 0): [1e-9, 1e-9, 1.0]}
    assert search_table(rows, Search(4, 0.0))[0].ids == ()
    assert search_table(rows, Search(4, 1.0))[0].ids == (0, 0)


def test_it_goes_on_while_something_longer_can_still_win() -> None:
    """The empty one ends at once with a mean of ln 0.75; what lives has ln 0.25 so far, and a mean of ln 0.25 / 6."""
    sure = [1.0 - 2e-9, 1e-9, 1e-13]
    rows = {(): [0.25, 1e-9, 0.75]} | {(0,) * k: sure for k in range(1, 5)} | {(0,) * 5: [1e-9, 1e-9, 1.0 - 2e-9]}
    assert search_table(rows, Search(2, 1.0))[0].ids == (0,) * 5


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_ends_of_unlikely_beginnings_do_not_end_the_search(penalty: float) -> None:
    """After two steps two ends fill the beam, of probability 0.06 and 0.04, and 0.87 is being written."""
    rows = {
        (): [0.9, 0.04, 0.06],
        (0,): [0.97, 0.01, 0.02],
        (1,): [0.001, 0.001, 0.998],
        (0, 0): [0.001, 0.001, 0.998],
    }
    assert search_table(rows, Search(2, penalty))[0].ids == (0, 0)


def test_what_lives_on_may_come_from_beyond_the_first_candidates() -> None:
    """One of two ends; the second that lives on is the third candidate, and becomes the better one."""
    spread = [0.3, 0.14, 0.14, 0.14, 0.28 - 1e-9, 1e-9]
    rows = {
        (): [0.5, 0.5 - 4e-9, 1e-9, 1e-9, 1e-9, 1e-9],
        (0,): [0.4 - 4e-9, 1e-9, 1e-9, 1e-9, 1e-9, 0.6],  # 0.3 ends, 0.2 goes on
        (1,): spread,  # 0.15 goes on with 0
        (0, 0): [0.1, 0.1, 0.1, 0.1, 0.1, 0.5],  # 0.1 ends
        (1, 0): [1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1.0 - 5e-9],  # 0.15 ends
    }
    found = search_table(rows, Search(2, 0.0, n_best=2))
    assert [one.ids for one in found] == [(0,), (1, 0)]


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
    [
        (dict(beam=0), "out of range"),
        (dict(beam=100_000), "1 .greedy. to 1,000"),
        (dict(beam=2, n_best=3), "1 to 2"),
        (dict(penalty=-1.0), "between 0 and 10"),
        (dict(penalty=float("nan")), "between 0 and 10"),
        (dict(penalty=1000.0), "between 0 and 10"),
    ],
)
def test_searches_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Search(**options)
