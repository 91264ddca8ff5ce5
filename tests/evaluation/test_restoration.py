"""The restoration code is a code (Kraft), can be decoded (nothing unseen is used), and costs what it should."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.data.normalise import STEPS, normalise
from seqlab.evaluation import restoration
from seqlab.evaluation.restoration import (
    ALPHA,
    edit_nats,
    piece_nats,
    restoration_costs,
    spelled_piece_nats,
    yes_no_nats,
)

texts = st.text(alphabet=st.characters(codec=None), max_size=40)
# Not a sample of anything: sentences with names, numbers and brackets, so that there is something to learn.
ENGLISH = "".join(
    f"In {1500 + 7 * k} the {thing} of {place} (see {k}) was sold. It was a {thing}, said {name}.\n"
    for k, (thing, place, name) in enumerate(
        itertools.product(("house", "ship", "garden"), ("London", "Paris", "Rome"), ("Anne", "John Smith"))
    )
)


def cost(text: str, step: str) -> float:
    return restoration_costs(normalise(text, [step]))[0].nats


def total_probability(sources: Iterable[str], step: str, output: str) -> float:
    """Σ exp(−cost) over texts that all become the same output: at most one, or no decoder could tell them apart."""
    different = set(sources)
    assert all(normalise(source, [step]).text == output for source in different)
    return math.fsum(math.exp(-cost(source, step)) for source in different)


@pytest.mark.parametrize("word", ["abba ab", "a", "aaaaaaaa"])
def test_kraft_over_every_way_to_write_capitals(word: str) -> None:
    sources = ["".join(cs) for cs in itertools.product(*((c, c.upper()) for c in word))]
    assert 0.01 < total_probability(sources, "lower", word) <= 1


def test_kraft_over_dropped_marks() -> None:
    gaps = ["", "!", ".", "!.", ".!", "..", "!!"]
    sources = [f"{a}x{b} {c}y{d}" for a, b, c, d in itertools.product(gaps, repeat=4)]
    assert 0.01 < total_probability(sources, "punctuation", "x y") <= 1


def test_kraft_over_pieces_of_different_width() -> None:
    forms = {"fi": ["fi", "ﬁ", "ｆi", "fｉ"], "...": ["...", "…", "․‥", "‥."]}
    sources = [a + b + c for a, b, c in itertools.product(forms["fi"], forms["..."], forms["fi"])]
    assert 1e-6 < total_probability(sources, "nfkc", "fi...fi") <= 1


def test_kraft_over_pieces_that_are_all_spelled() -> None:
    """p(spelling) sums to at most one over all strings: here over those of a small alphabet, by length."""
    pieces = ["".join(p) for n in range(4) for p in itertools.product("abcé", repeat=n)]
    first = [math.exp(-float(spelled_piece_nats([piece])[0])) for piece in pieces]
    after = [math.exp(-float(spelled_piece_nats(["abc", "abc", "a", piece])[-1])) for piece in pieces]
    assert sum(first) <= 1
    assert 0.5 < sum(after) <= 1


def test_base_code_of_characters_sums_to_one() -> None:
    every = np.arange(restoration.END + 1)
    assert math.fsum(np.exp(-restoration._character_nats(every))) == pytest.approx(1)


WORDS = ("so", "he", "was", "then", "at", "the", "end", "no", "more", "than", "that", "day")


@given(st.text(alphabet="aAbB .", max_size=30), st.data())
@settings(deadline=None, max_examples=200)
def test_no_capital_depends_on_later_capitals(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text)))
    tail = "".join(data.draw(st.sampled_from([c.lower(), c.upper()])) for c in text[place:])
    assert_same_before_they_part(f"A{text}", f"A{text[:place]}{tail}", "lower")


@given(st.lists(st.sampled_from(["", "(", "!.)", "$"]), min_size=len(WORDS), max_size=len(WORDS)), st.data())
@settings(deadline=None, max_examples=200)
def test_no_dropped_piece_depends_on_later_ones(marks: list[str], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(marks) - 1))
    tail = [data.draw(st.sampled_from(["", "(", "$$"])) for _ in marks[place:]]
    one, other = (
        "(" + " ".join(mark + word for mark, word in zip(chosen, WORDS, strict=True))
        for chosen in (marks, marks[:place] + tail)
    )
    assert_same_before_they_part(one, other, "punctuation")


def assert_same_before_they_part(one: str, other: str, step: str) -> None:
    """Two sources of one output cost the same up to the first piece that tells them apart."""
    edits = [normalise(source, [step]).edits[0] for source in (one, other)]
    assert edits[0].output == edits[1].output
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    common = sum(1 for _ in alike)
    parted = min(int(e.start[e.end > common].min(initial=common)) for e in edits)
    np.testing.assert_array_equal(edit_nats(edits[0])[:parted], edit_nats(edits[1])[:parted])


def blended_by_hand(contexts: list[list[int]], symbols: list[str], base: list[float]) -> list[float]:
    """The code as a decoder runs it: one answer after the other, with dictionaries of counts."""
    counts: Counter[tuple[int, int, str]] = Counter()
    seen: Counter[tuple[int, int]] = Counter()
    nats = []
    for t, symbol in enumerate(symbols):
        p = base[t]
        for k, context in enumerate(contexts):
            p = (counts[k, context[t], symbol] + ALPHA * p) / (seen[k, context[t]] + ALPHA)
            counts[k, context[t], symbol] += 1
            seen[k, context[t]] += 1
        nats.append(-math.log(p))
    return nats


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(-2, 2)), min_size=1, max_size=60))
@settings(deadline=None)
def test_yes_and_no_equal_the_sequential_decoder(answers: list[tuple[bool, int, int]]) -> None:
    told, short, long = (list(column) for column in zip(*answers, strict=True))
    got = yes_no_nats([np.array(short), np.array(long)], np.array(told))
    assert got == pytest.approx(blended_by_hand([short, long], [str(t) for t in told], [0.5] * len(told)))


@given(st.lists(st.tuples(st.sampled_from(["", "a", "ab", "é", "a" * 9]), st.integers(0, 2)), min_size=1, max_size=40))
@settings(deadline=None)
def test_pieces_equal_the_sequential_decoder(told: list[tuple[str, int]]) -> None:
    pieces, context = [piece for piece, _ in told], [c for _, c in told]
    got = piece_nats([np.array(context)], pieces, np.ones(len(pieces), np.int64))
    spelled = [math.exp(-float(n)) / 2 for n in spelled_by_hand(pieces)]
    assert got == pytest.approx(blended_by_hand([[0] * len(pieces), context], pieces, spelled))


def spelled_by_hand(pieces: list[str]) -> list[float]:
    """Each piece character by character, after none, one and two characters of the same piece."""
    symbols, contexts, base = [], [[], [], []], []
    for piece in pieces:
        past = ("^", "^")
        for c in [*piece, "end"]:
            symbols.append(c)
            for context, key in zip(contexts, ((), past[1:], past), strict=True):
                context.append(hash(key))
            base.append(1 / 4 if c == "end" else 1 / 2 / 0x80 if c.isascii() else 1 / 8 / (0x800 - 0x80))
            past = (past[1], c)
    nats = iter(blended_by_hand(contexts, symbols, base))
    return [sum(itertools.islice(nats, len(piece) + 1)) for piece in pieces]


@given(text=texts, steps=st.lists(st.sampled_from(sorted(STEPS)), unique=True, min_size=1, max_size=3))
@settings(deadline=None, max_examples=150)
def test_costs_are_finite_and_not_negative_and_spread_over_the_original(text: str, steps: list[str]) -> None:
    for step_cost in restoration_costs(normalise(text, steps)):
        assert math.isfinite(step_cost.nats)
        assert np.all(step_cost.spread >= 0)
        assert len(step_cost.spread) == len(text) + 1
        assert step_cost.spread.sum() == pytest.approx(step_cost.nats)


def test_certainty_does_not_make_a_surprise_infinite() -> None:
    assert cost("A" * 200_000 + "a", "lower") < 200
    assert math.isfinite(cost("x(" + "{[" * 5_000 + "y", "punctuation"))


def test_each_step_is_paid_for_by_itself() -> None:
    both = restoration_costs(normalise(ENGLISH, ["lower", "punctuation"]))
    assert [c.step for c in both] == ["lower", "punctuation"]
    assert both[0].nats == pytest.approx(cost(ENGLISH, "lower"))
    assert both[1].nats == pytest.approx(cost(ENGLISH.lower(), "punctuation"))


@pytest.mark.parametrize("step", sorted(STEPS))
def test_a_step_that_changes_nothing_costs_two_bits(step: str) -> None:
    assert cost("so he went on", step) == pytest.approx(2 * math.log(2))


MARKED = "“Naïve” – the ﬁrst  …\tcafé\u0301’s №5,\r\n(1,539) — isn't it? ÉTÉ\u00a0½ 漢字🙂 <b>“no”</b>; he\n"
TWO_PARTS = ENGLISH + (MARKED + "said:  “Stop!” (at 12:30),\n\n at last; 7 of 9.\n") * 3
PRICES = {  # nats
    "ascii": 547.2180022306186,
    "digits": 430.20172433210485,
    "lines": 128.31168615275524,
    "lower": 271.0515641471584,
    "nfkc": 150.3216780370846,
    "prose": 1354.9338501301827,
    "ptb": 326.860500881295,
    "punctuation": 770.6682976433655,
    "spaces": 132.71304376964164,
}


@pytest.mark.parametrize("step", sorted(STEPS))
def test_the_price_of_a_fixed_text_is_pinned(step: str) -> None:
    """Any change of the code shows. A lower price is welcome, if the texts of the other tests agree."""
    assert cost(TWO_PARTS, step) == pytest.approx(PRICES[step], rel=1e-9)


def test_same_text_same_cost() -> None:
    assert cost(ENGLISH, "punctuation") == cost(ENGLISH, "punctuation")


def test_the_coder_learns_capitals() -> None:
    """Sentence starts and names repeat: far below one bit for each letter, and the second half is cheaper."""
    (lowered,) = restoration_costs(normalise(ENGLISH * 3, ["lower"]))
    assert lowered.changes == sum(c.isupper() for c in ENGLISH * 3)
    assert lowered.nats / math.log(2) / len(ENGLISH * 3) < 0.12
    assert lowered.spread[len(ENGLISH) :].sum() < lowered.spread[: len(ENGLISH)].sum()


def test_a_random_choice_costs_its_bits() -> None:
    """Capitals by coin toss hold one bit each; a code that charged less would not be one."""
    tosses = np.random.default_rng(0).integers(0, 2, 20_000)
    text = "".join("Q" if toss else "q" for toss in tosses)
    assert len(tosses) * 0.999 < cost(text, "lower") / math.log(2) < len(tosses) * 1.01


def test_random_digits_cost_their_bits() -> None:
    digits = np.random.default_rng(0).integers(0, 10, 20_000)
    text = "".join(map(str, digits))
    assert 0.999 < cost(text, "digits") / math.log(10) / len(digits) < 1.01


def test_random_marks_cost_their_bits() -> None:
    marks = np.random.default_rng(0).choice(list("!.,;:?-("), 5_000)
    text = "".join(f"{mark}q" for mark in marks)
    assert 3 < cost(text, "punctuation") / math.log(2) / len(marks) < 3.1


def test_a_dropped_piece_is_paid_for_where_it_stood() -> None:
    (step_cost,) = restoration_costs(normalise("so he (((was then at the end", ["punctuation"]))
    assert int(step_cost.spread.argmax()) == 6


def test_nothing_is_asked_inside_a_wide_piece() -> None:
    view = restoration._View(normalise("xﬁy", ["nfkc"]).edits[0])
    assert view.outside.tolist() == [0, 1, 3, 4]
