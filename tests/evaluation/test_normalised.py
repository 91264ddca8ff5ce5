"""Normalised texts: spans and totals are those of the original."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.data.normalise import STEPS, normalise
from seqlab.data.tokenizers import ByteTokenizer, CharacterTokenizer, WordTokenizer
from seqlab.evaluation.normalised import NormalisedScorer
from seqlab.evaluation.restoration import restoration_costs
from seqlab.evaluation.surprisal import ModelScorer
from seqlab.models.ngram import NGramLM

LETTERS = "the quick brown fox jumps over the lazy dog. " * 5


def scorer(kind: type) -> ModelScorer:
    tokenizer = kind.fit([LETTERS])
    return ModelScorer(NGramLM.fit(tokenizer.encode(LETTERS).ids, tokenizer.vocab_size, 3), tokenizer)


texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=40) | st.text(alphabet="aA1. \n\"—'", max_size=40)


@given(texts, st.lists(st.sampled_from(sorted(STEPS)), max_size=3, unique=True))
@pytest.mark.parametrize("kind", [ByteTokenizer, CharacterTokenizer, WordTokenizer])
def test_spans_partition_the_original_and_totals_add_up(kind: type, text: str, steps: list[str]) -> None:
    plain = scorer(kind)
    table = NormalisedScorer(plain, tuple(steps)).score(text)
    normalised = normalise(text, tuple(steps))
    undo = sum(cost.nats for cost in restoration_costs(normalised))
    assert table.total == pytest.approx(plain.score(normalised.text).total + undo, rel=1e-9, abs=1e-9)
    assert table.restoration is not None
    assert table.restoration.sum() == pytest.approx(undo, rel=1e-9, abs=1e-9)
    assert (table.nats >= table.restoration - 1e-9).all()
    if len(table):
        assert table.start[0] == 0
        assert table.end[-1] == len(text.encode())
        assert np.array_equal(table.start[1:], table.end[:-1])


def test_without_steps_nothing_changes() -> None:
    plain = scorer(CharacterTokenizer)
    one, other = plain.score("The fox."), NormalisedScorer(plain, ()).score("The fox.")
    assert one.nats.tolist() == other.nats.tolist()
    assert one.start.tolist() == other.start.tolist()


def test_dropping_everything_flatters_but_costs_its_restoration() -> None:
    table = NormalisedScorer(scorer(ByteTokenizer), ("punctuation",)).score("...!!!")
    assert len(table) == 1
    assert table.total == table.restoration.sum() > 0  # type: ignore[union-attr]
    assert (table.start[0], table.end[0]) == (0, 6)


def test_case_that_carries_information_is_paid_for() -> None:
    """Random capitals cost about a bit each, however small the folded figure is."""
    folded = LETTERS * 100
    capital = np.random.default_rng(0).random(len(folded)) < 0.5
    text = "".join(c.upper() if up else c for c, up in zip(folded, capital, strict=True))
    table = NormalisedScorer(scorer(CharacterTokenizer), ("lower",)).score(text)
    letters = sum(c.isalpha() for c in text)
    bits = table.restoration.sum() / np.log(2) / letters  # type: ignore[union-attr]
    assert 0.98 < bits < 1.25
