"""Words and sentences lie where they say, and what is cut out is gone, no more and no less."""

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from seqlab.evaluation.english import affirmative, contrasts, denies
from seqlab.evaluation.text_pieces import Piece, cut, find_sentences, find_words, has_words, replace, word_forms

TEXTS = st.text(alphabet="abI'-’ .,!?\n\t()é\u0301", max_size=60)


def solid(text: str) -> str:
    return "".join(text.split())


@given(TEXTS)
def test_words_lie_where_they_say_and_hold_every_letter(text: str) -> None:
    words = find_words(text)
    assert all(text[word.start : word.end] == word.text for word in words)
    assert all(a.end < b.start for a, b in itertools.pairwise(words))
    outside = replace(text, [(word, " ") for word in words])
    assert not any(character.isalnum() for character in outside)
    assert has_words(text) == bool(words)


@given(TEXTS, st.data())
def test_cutting_takes_exactly_the_words_chosen(text: str, data: st.DataObject) -> None:
    words = find_words(text)
    chosen = data.draw(st.sets(st.sampled_from(words))) if words else set()
    rest = cut(text, chosen)
    assert word_forms(rest) == [word.form for word in words if word not in chosen]
    kept = [character for i, character in enumerate(text) if not any(word.start <= i < word.end for word in chosen)]
    assert solid(rest) == solid("".join(kept))
    if not chosen:
        assert rest == text


@given(TEXTS, st.data())
def test_cutting_leaves_no_wider_gap_than_there_was(text: str, data: st.DataObject) -> None:
    words = find_words(text)
    assume(words)
    rest = cut(text, [data.draw(st.sampled_from(words))])

    def gaps(text: str) -> list[int]:
        runs = "".join("_" if character.isspace() else "x" for character in text).split("x")
        return sorted(map(len, runs), reverse=True)

    assert all(now <= before for now, before in zip(gaps(rest), gaps(text), strict=False))


@given(TEXTS)
def test_sentences_hold_each_word_once_and_in_order(text: str) -> None:
    sentences = find_sentences(text)
    assert all(text[piece.start : piece.end] == piece.text == piece.text.strip() for piece in sentences)
    assert [form for piece in sentences for form in word_forms(piece.text)] == word_forms(text)
    assert all(word_forms(piece.text) for piece in sentences)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It isn't well-made.", ["it", "isn't", "well-made"]),
        ("It ISN’T<br /><br>bad--really", ["it", "isn't", "bad", "really"]),
        ("'quoted' (2nd) e\u0301te\u0301", ["quoted", "2nd", "e\u0301te\u0301"]),
        ("हिन्दी फ़िल्म।", ["हिन्दी", "फ़िल्म"]),
        ("... !? _ -", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert word_forms(text) == words


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ('Good. "Bad!" Ugly?! Yes', ["Good.", '"Bad!"', "Ugly?!", "Yes"]),
        ("Mr. Smith met Dr. J. Doe. So did I. The end...", ["Mr. Smith met Dr. J. Doe.", "So did I.", "The end..."]),
        ("one line\nanother<br />third", ["one line", "another<br />", "third"]),
        ("It cost 3.50 at shop.com. Fine.", ["It cost 3.50 at shop.com.", "Fine."]),
        ("I met Dr! Then Mr.\nIt was T. So what", ["I met Dr!", "Then Mr.", "It was T. So what"]),
        ("!!! ... \n", []),
        ("", []),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    assert [piece.text for piece in find_sentences(text)] == sentences


@pytest.mark.parametrize(
    ("text", "without", "rest"),
    [
        ("This is not good.", "not", "This is good."),
        ("It was not, well, good", "not", "It was, well, good"),
        ("Not bad", "Not", "bad"),
        ("bad it is not", "not", "bad it is"),
        ("good not\nbad", "not", "good\nbad"),
        ("good\nnot bad", "not", "good\nbad"),
        ("(not)", "not", "()"),
    ],
)
def test_cutting_closes_the_space(text: str, without: str, rest: str) -> None:
    start = text.index(without)
    assert cut(text, [Piece(start, start + len(without), without)]) == rest


def test_exchanged_words_keep_their_surroundings() -> None:
    text = "He isn't  here, isn't he"
    words = find_words(text)
    assert replace(text, [(words[1], "is"), (words[3], "")]) == "He is  here, he"


def test_english_words_of_denial() -> None:
    forms = {"isn't": "is", "don't": "do", "won't": "will", "can't": "can", "cannot": "can", "not": "", "didnt": "did"}
    assert {form: affirmative(form) for form in forms} == forms
    assert [affirmative(form) for form in ("note", "know", "ant", "paint", "nothings")] == [None] * 5
    assert [word.text for word in find_words("I DON’T know, NEVER did") if denies(word.form)] == ["DON’T", "NEVER"]


def test_english_words_of_contrast() -> None:
    forms = word_forms("But on the other hand, though on the one hand")
    assert contrasts(forms) == [(0, 1), (1, 5), (5, 6)]
    assert contrasts(["on", "the", "other"]) == contrasts([]) == []
