"""Going on to learn from the text that is read: the equations by plain counting, and nothing of the future."""

import math
from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from seqlab.core.types import Encoding, Surprisals
from seqlab.evaluation import reading_on as module
from seqlab.evaluation.normalised import NormalisedScorer
from seqlab.evaluation.reading_on import LENGTHS, counts_before, reading_on, that_reads_on

Ids = NDArray[np.int64]
BEFORE = -1  # stands for whatever lies before the text


def random_ids(seed: int, tokens: int, kinds: int) -> Ids:
    """A text with much that comes again: pieces of one short text, and noise between them."""
    draw = np.random.default_rng(seed)
    phrase = draw.integers(0, kinds, 40)
    pieces = [np.zeros(0, np.int64)]
    for _ in range(tokens):
        begin = draw.integers(0, 30)
        pieces += [phrase[begin : begin + draw.integers(1, 12)], draw.integers(0, kinds, draw.integers(0, 4))]
    return np.concatenate(pieces)[:tokens].astype(np.int64)


def context_of(ids: Ids, t: int, length: int) -> tuple[int, ...]:
    return tuple(int(ids[k]) if k >= 0 else BEFORE for k in range(t - length, t))


# --------------------------------------------------------------------------- plain counting


@pytest.mark.parametrize("seed", range(6))
def test_counts_are_those_of_plain_counting(seed: int) -> None:
    ids = random_ids(seed, tokens=(0, 1, 5, 90, 300, 300)[seed], kinds=(1, 1, 2, 3, 7, 1)[seed])
    for length, found in zip(LENGTHS, counts_before(ids, LENGTHS), strict=True):
        after: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for t, token in enumerate(ids.tolist()):
            seen = after[context_of(ids, t, length)]
            assert (found.token[t], found.context[t], found.kinds[t]) == (seen[token], seen.total(), len(seen))
            seen[token] += 1


def plain_distribution(
    before: Ids, model: NDArray[np.float64], strength: list[float], discount: list[float]
) -> NDArray[np.float64]:
    """p_K of every token after those that were read, by the equation as it is written."""
    p = model
    for length, theta, d in zip(LENGTHS, strength, discount, strict=True):
        here = context_of(before, len(before), length)
        seen = Counter(int(before[t]) for t in range(len(before)) if context_of(before, t, length) == here)
        counts = np.array([seen[token] for token in range(len(model))], np.float64)
        p = (np.maximum(counts - d, 0) + (theta + d * len(seen)) * p) / (theta + counts.sum())
    return p


@pytest.mark.parametrize("seed", range(4))
def test_every_token_is_predicted_by_a_distribution_that_sums_to_one(seed: int) -> None:
    kinds, tokens = 5, 70
    ids, draw = random_ids(seed, tokens, kinds), np.random.default_rng(seed)
    model = draw.dirichlet(np.ones(kinds), tokens)
    strength, discount = draw.uniform(0.1, 20, len(LENGTHS)), draw.uniform(0.05, 0.95, len(LENGTHS))
    weights = module._Weights(torch.from_numpy(strength).log(), torch.from_numpy(discount).logit())
    counts = module._Counts(ids).at(slice(0, tokens))
    found = module._nats(-torch.from_numpy(model[np.arange(tokens), ids]).log(), counts, weights).numpy()
    for t in range(tokens):
        p = plain_distribution(ids[:t], model[t], strength.tolist(), discount.tolist())
        assert p.sum() == pytest.approx(1, rel=1e-12)
        assert found[t] == pytest.approx(-math.log(p[ids[t]]), rel=1e-10)


# --------------------------------------------------------------------------- from the past alone


def surprise(seed: int, tokens: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).uniform(0.5, 4.0, tokens)


@pytest.mark.parametrize("at", [3, 1023, 1024, 1025, 2047, 2048, 3500])
def test_what_comes_later_changes_nothing_before(at: int) -> None:
    ids, nats = random_ids(1, 4000, 20), surprise(1, 4000)
    whole = reading_on(nats, ids)
    other_ids, other_nats = ids.copy(), nats.copy()
    other_ids[at:], other_nats[at + 1 :] = random_ids(2, 4000 - at, 31), surprise(2, 3999 - at)
    changed = reading_on(other_nats, other_ids)
    np.testing.assert_array_equal(whole[:at], changed[:at])
    assert not np.array_equal(whole[at:], changed[at:])
    np.testing.assert_array_equal(whole[:at], reading_on(nats[:at], ids[:at]))


def test_until_something_can_be_fitted_the_model_is_all_there_is() -> None:
    ids, nats = random_ids(3, 1500, 20), surprise(3, 1500)
    found = reading_on(nats, ids)
    np.testing.assert_array_equal(found[:1024], nats[:1024])
    assert (found[1024:] != nats[1024:]).all()
    assert reading_on(nats[:0], ids[:0]).shape == (0,)


def test_a_fit_looks_at_no_more_than_the_last_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_FITTED", 2048)
    fitted: list[int] = []
    fit = module._fit
    monkeypatch.setattr(module, "_fit", lambda *of: (fitted.append(len(of[1])), fit(*of))[1])
    ids, nats = random_ids(4, 20_000, 20), surprise(4, 20_000)
    shown: list[float] = []
    found = reading_on(nats, ids, shown.append)
    assert len(found) == 20_000
    assert fitted == [1024, 2048, 2048, 2048, 2048]  # after 1,024, 2,048, 4,096, 8,192 and 16,384 tokens
    assert shown == sorted(shown)
    assert shown[-1] == 1.0


# --------------------------------------------------------------------------- what it is worth


def test_what_comes_again_is_learnt_and_noise_costs_next_to_nothing() -> None:
    draw = np.random.default_rng(5)
    flat = np.full(16_384, math.log(50))
    again = np.tile(draw.integers(0, 50, 2048), 8)
    assert reading_on(flat, again)[4096:].mean() < 0.05
    noise = draw.integers(0, 50, 16_384)
    assert reading_on(flat, noise).mean() < 1.002 * math.log(50)


def test_a_model_that_knows_what_comes_is_left_alone() -> None:
    ids = random_ids(6, 8192, 30)
    sure = np.full(len(ids), 1e-3)
    assert reading_on(sure, ids).mean() < 2e-3


@pytest.mark.parametrize("at", [5, 2000])
def test_a_probability_of_nought_for_something_new_spoils_no_fit(at: int) -> None:
    """In what the first fit looks at, and after it."""
    ids = np.tile(np.arange(8), 400)
    nats = np.full(len(ids), 1.0)
    ids[at], nats[at] = 99, np.inf
    found = reading_on(nats, ids)
    assert np.isfinite(np.delete(found, at)).all()
    assert found[at] > 490
    assert found[at + 200 :].mean() < 1.0


# --------------------------------------------------------------------------- as a scorer


class Letters:
    """Knows nothing: every letter costs ln 30, one that is unknown ln 30 and 5 for its spelling."""

    policy = "each letter by itself"

    def encode(self, text: str) -> Encoding:
        ids = np.array([ord(letter) % 30 for letter in text], np.int64)
        places = np.arange(len(ids))
        return Encoding(ids, places, places + 1, np.array([letter == "?" for letter in text], bool))

    def score(self, text: str, *, progress: Any = None) -> Surprisals:
        encoding = self.encode(text)
        spelling = 5.0 * encoding.unknown
        return Surprisals(
            math.log(30) + spelling, encoding.start, encoding.end, encoding.unknown, spelling, lossy=False
        )


def test_a_scorer_pays_for_spelling_as_before() -> None:
    text = "what is said again and again? " * 100
    scorer = that_reads_on(Letters())
    plain, found = Letters().score(text), scorer.score(text)
    expected = reading_on(plain.nats - plain.spelling, Letters().encode(text).ids) + plain.spelling
    np.testing.assert_array_equal(found.nats, expected)
    np.testing.assert_array_equal(found.spelling, plain.spelling)
    assert found.total < 0.6 * plain.total
    assert str(scorer.policy) == "each letter by itself; and counts of all of the text before"


def test_after_a_normalisation_it_is_the_normalised_text_that_is_learnt() -> None:
    text = "What Is Said Again And Again? " * 100
    steps = ("lower",)
    found = that_reads_on(NormalisedScorer(Letters(), steps))
    assert isinstance(found, NormalisedScorer)
    direct = NormalisedScorer(SimpleNamespace(policy="", score=that_reads_on(Letters()).score), steps)
    np.testing.assert_array_equal(found.score(text).nats, direct.score(text).nats)
