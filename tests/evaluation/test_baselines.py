"""Baselines against a plain dictionary implementation, known values and the laws of probability."""

import lzma
import math
from collections import Counter, defaultdict
from pydoc_data.topics import topics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.core.errors import DataError, UsageError
from seqlab.evaluation import baselines as module
from seqlab.evaluation.baselines import Baseline, CharacterNGrams, baselines, ngrams, uniform, unigram, xz

UNKNOWN = "\N{SNOWMAN}"
words = st.text(alphabet="abcß\n", min_size=1, max_size=40)


class DictionaryNGrams:
    """The equation of CharacterNGrams, one character at a time."""

    def __init__(self, text: str, order: int) -> None:
        self.alphabet = set(text)
        self.followers: dict[str, Counter[str]] = defaultdict(Counter)
        for end in range(len(text)):
            for length in range(min(order - 1, end) + 1):
                self.followers[text[end - length : end]][text[end]] += 1

    def probability(self, context: str, character: str) -> float:
        shorter = self.probability(context[1:], character) if context else 1 / (len(self.alphabet) + 1)
        counts = self.followers.get(context, Counter())
        if not counts:
            return shorter
        return (counts[character] + len(counts) * shorter) / (counts.total() + len(counts))


@given(words, words, st.integers(1, 6))
@settings(deadline=None, max_examples=150)
def test_probabilities_equal_the_dictionary_implementation(train: str, text: str, order: int) -> None:
    reference = DictionaryNGrams(train, order)
    *_, found = CharacterNGrams.fit(train, order).probabilities(text)
    expected = [reference.probability(text[max(0, end - order + 1) : end], text[end]) for end in range(len(text))]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("context", ["", "t", "the ", "statemen", "zqzq", f"the {UNKNOWN}", UNKNOWN])
def test_probabilities_sum_to_one_after_any_context(context: str) -> None:
    grams = CharacterNGrams.fit("".join(topics[title] for title in sorted(topics)[:10]), 6)
    symbols = [chr(point) for point in grams.alphabet] + [UNKNOWN]
    *_, by_symbol = zip(*(list(grams.probabilities(context + symbol)) for symbol in symbols), strict=True)
    assert sum(p[-1] for p in by_symbol) == pytest.approx(1, abs=1e-12)


def test_every_order_is_measured_from_one_fit() -> None:
    train, text = "the cat sat on the mat. " * 20, "the mat sat on the cat."
    together = ngrams(CharacterNGrams.fit(train, 4), text)
    alone = [ngrams(CharacterNGrams.fit(train, order), text)[-1] for order in range(1, 5)]
    assert together == alone
    assert [baseline.name for baseline in together] == ["unigram", "2-gram", "3-gram", "4-gram"]
    assert unigram(train, text) == together[0]


def test_unigram_by_hand() -> None:
    # N = 4, T = 2, uniform over a, b and unknown: p(a) = (3 + 2/3) / 6, p(unknown) = (2/3) / 6.
    found = unigram("aaab", "aé")
    expected = -math.log((3 + 2 / 3) / 6) - math.log((2 / 3) / 6) + 16 * math.log(2)
    assert found.nats == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("character", "utf8_bytes"), [("z", 1), ("é", 2), ("☃", 3), ("🦊", 4)])
def test_unknown_characters_pay_for_their_spelling(character: str, utf8_bytes: int) -> None:
    grams = CharacterNGrams.fit("abab", 2)
    assert grams.spelling_nats(f"a{character}b") == pytest.approx(utf8_bytes * 8 * math.log(2))
    assert grams.spelling_nats("abba") == 0


def test_units() -> None:
    measured = Baseline("x", nats=12 * math.log(2), bytes=6, characters=4)
    assert measured.bits_per_byte == pytest.approx(2)
    assert measured.nats_per_character == pytest.approx(3 * math.log(2))
    assert measured.perplexity_per_character == pytest.approx(8)
    assert uniform(16, "abcd").bits_per_byte == pytest.approx(4)
    assert uniform(16, "aß").bytes == 3


def test_xz_counts_what_the_held_out_text_adds() -> None:
    text = topics["if"]
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
    train = topics["while"] + topics["for"]
    whole, part = (
        len(lzma.compress(content.encode(), check=lzma.CHECK_NONE, filters=filters))
        for content in (train + text, train)
    )
    measured = xz(train, text)
    assert measured.nats == pytest.approx((whole - part) * 8 * math.log(2))
    assert measured.bits_per_byte < xz("a", text).bits_per_byte


def test_xz_finds_a_passage_from_the_far_beginning_again() -> None:
    noise = np.random.default_rng(0).integers(0x20, 0x7F, 300_000, dtype=np.uint8).tobytes().decode()
    assert xz(noise, noise[:3000]).bits_per_byte < 0.2


def test_list_of_baselines_improves_on_uniform() -> None:
    text = "\n".join(topics[title] for title in sorted(topics)[:30])
    cut = len(text) * 9 // 10
    found = {baseline.name: baseline.bits_per_byte for baseline in baselines(text[:cut], text[cut:])}
    assert list(found) == ["uniform", "unigram", "2-gram", "3-gram", "4-gram", "5-gram", "6-gram", "xz"]
    assert found["uniform"] > found["unigram"] > found["2-gram"] > found["3-gram"] > found["4-gram"]


def test_long_training_text_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TRAINING_BYTES", 9)
    cut = baselines("z" * 20 + "ßßbbbbb", "ab", order=2)
    whole = baselines("ßßbbbbb", "ab", order=2)
    assert [baseline.nats for baseline in cut] == [baseline.nats for baseline in whole]
    assert all(baseline.note == "fitted on the last 9 bytes of the training text" for baseline in cut)
    assert all(baseline.note == "" for baseline in baselines("ßßbbb", "ab", order=2))
    assert all(baseline.note for baseline in baselines("ßßßßß", "ab", order=2))


def test_training_text_shorter_than_the_order() -> None:
    assert [baseline.name for baseline in ngrams(CharacterNGrams.fit("ab", 6), "abab")] == [
        "unigram",
        "2-gram",
    ]


def test_refusals() -> None:
    with pytest.raises(DataError, match="held-out text is empty"):
        baselines("a", "")
    with pytest.raises(DataError, match="training text is empty"):
        baselines("", "a")
    with pytest.raises(UsageError, match="at least 1"):
        CharacterNGrams.fit("abc", 0)
