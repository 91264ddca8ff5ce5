"""Every step against the texts it names, its alignment, and any Unicode string."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.core.errors import UsageError
from seqlab.data.normalise import REPLACEMENT, STEPS, Edits, code_points, normalise, parse_steps

any_text = st.text(alphabet=st.characters(codec=None), max_size=40)
awkward_text = st.text(
    alphabet="aA é\u0316\u0301\u0327Ǆﬁ…“”'\"–—٣7.,:;!?-()`\t\r\n\u2028\u00a0"
    "가\u1100\u1161\u11a8\uff76\uff9eİΣς\ud800\u09c7\u09be𝟛",
    max_size=40,
)
texts = st.one_of(any_text, awkward_text)
EVERY_STEP = pytest.mark.parametrize("step", sorted(STEPS))


def rebuilt(edits: Edits) -> tuple[str, str]:
    """Source and output, put together from the edits and the unchanged text between them."""
    source, output, x, y = "", "", 0, 0
    for a, b, c, d in zip(edits.start, edits.end, edits.output_start, edits.output_end, strict=True):
        assert edits.source[x:a] == edits.output[y:c]
        source += edits.output[y:c] + edits.source[a:b]
        output += edits.source[x:a] + edits.output[c:d]
        x, y = b, d
    assert edits.source[x:] == edits.output[y:]
    return source + edits.output[y:], output + edits.source[x:]


@EVERY_STEP
@given(text=texts)
@settings(deadline=None, max_examples=150)
def test_the_alignment_gives_both_texts_back(step: str, text: str) -> None:
    (edits,) = normalise(text, [step]).edits
    assert rebuilt(edits) == (text, edits.output)
    assert all(edits.source[a:b] != edits.output[c:d] for a, b, c, d in spans(edits))
    assert np.all(edits.start[1:] >= edits.end[:-1])
    dropped = edits.output_start == edits.output_end
    touching = dropped[1:] & dropped[:-1] & (edits.start[1:] == edits.end[:-1])
    assert not touching.any()


def spans(edits: Edits) -> list[tuple[int, ...]]:
    columns = (edits.start, edits.end, edits.output_start, edits.output_end)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("step", sorted(set(STEPS) - {"ptb", "prose"}))
@given(text=texts)
@settings(deadline=None, max_examples=150)
def test_a_second_time_changes_nothing(step: str, text: str) -> None:
    once = normalise(text, [step]).text
    assert normalise(once, [step]).text == once


@given(text=texts)
@settings(deadline=None, max_examples=300)
def test_nfkc_in_pieces_is_nfkc(text: str) -> None:
    assert normalise(text, ["nfkc"]).text == unicodedata.normalize("NFKC", text)


def composing_pairs() -> list[str]:
    """Two characters each that NFC may join: those of Unicode's table, and the syllables of Hangul."""
    found = []
    for code in range(0x110000):
        pair = unicodedata.decomposition(chr(code)).split()
        if len(pair) == 2 and not pair[0].startswith("<"):
            found.append(chr(int(pair[0], 16)) + chr(int(pair[1], 16)))
    for code in range(0xAC00, 0xD7A4):
        jamo = unicodedata.normalize("NFD", chr(code))
        found.append(jamo if len(jamo) == 2 else unicodedata.normalize("NFC", jamo[:2]) + jamo[2])
    return found


def test_nfkc_in_pieces_joins_every_pair_that_nfkc_joins() -> None:
    pairs = composing_pairs()
    joined = [pair for pair in pairs if len(unicodedata.normalize("NFC", pair)) == 1]
    assert len(joined) > 12_000
    assert_nfkc_in_pieces(pairs)


def test_nfkc_in_pieces_reaches_back_from_every_character() -> None:
    """Before each character stands one that it may join with, or an accent that it may change places with."""
    before = {pair[1]: pair[0] for pair in composing_pairs()}
    texts = []
    for code in (*range(0xD800), *range(0xE000, 0x110000)):
        first = unicodedata.normalize("NFKD", chr(code))[0]
        if first in before:
            texts.append(before[first] + chr(code))
        if unicodedata.combining(first):
            texts += [f"q\u0315{chr(code)}", f"q\u0334{chr(code)}"]  # of a high and of the lowest class
    assert len(texts) > 1_800
    assert_nfkc_in_pieces(texts)


def assert_nfkc_in_pieces(texts: list[str]) -> None:
    found = normalise("\n".join(texts), ["nfkc"]).text.split("\n")
    expected = [unicodedata.normalize("NFKC", text) for text in texts]
    assert [(ascii(t), f) for t, f, e in zip(texts, found, expected, strict=True) if f != e] == []


def test_nfkc_changes_only_what_it_must() -> None:
    (edits,) = normalise("αβγ ﬁn ναι e\u0301té 가나", ["nfkc"]).edits
    assert [edits.source[a:b] for a, b, _, _ in spans(edits)] == ["ﬁ", "e\u0301"]


@given(text=texts)
@settings(deadline=None)
def test_ascii_leaves_only_ascii(text: str) -> None:
    assert normalise(text, ["ascii"]).text.isascii()


@given(text=texts)
@settings(deadline=None)
def test_character_steps_equal_the_plain_loop(text: str) -> None:
    assert normalise(text, ["lower"]).text == "".join(c.lower() for c in text)
    assert normalise(text, ["digits"]).text == "".join("0" if unicodedata.category(c) == "Nd" else c for c in text)
    kept = "".join(c for c in text if unicodedata.category(c)[0] not in "PS")
    assert normalise(text, ["punctuation"]).text == kept


@pytest.mark.parametrize(
    ("step", "before", "after"),
    [
        ("ascii", "naïve “Œuvre” – ½ … ﬁn — λ\u00a0Ł", f'naive "OEuvre" - 1/2 ... fin -- {REPLACEMENT} L'),
        ("ascii", "soft\u00adhyphen", "softhyphen"),
        ("nfkc", "q\u0302\u0316", "q\u0316\u0302"),  # accents change places
        ("lower", "Das ÉTÉ", "das été"),
        ("digits", "in 1539, ٣", "in 0000, 0"),
        ("punctuation", "«Yes!?», $5 + x_y", "Yes 5  xy"),
        ("spaces", "a \t b\n\n  c\u00a0d", "a b\n\n c d"),
        ("lines", "one \n  two\r\nthree\n\nfour\n \nfive\n", "one two three\n\nfour\n \nfive\n"),
        ("prose", 'was in 1539 (see 1,000.5) of "rulers", i.e. ἀρχή; 90%.', "was in see of rulers, i.e.;."),
        ("prose", "in the 1990s, of (12th)", "in the s, of th"),
        ("prose", "naïve (an Hébert [2])", "nave an Hbert"),
        ("ptb", 'He said: "I don\'t, (really)."', "He said : `` I do n't , ( really ) . ''"),
        (
            "ptb",
            "It's 1,539 at 12:30... They'll--no! J. R. Smith.",
            "It 's 1,539 at 12:30 ... They 'll -- no ! J. R. Smith .",
        ),
        ("ptb", "the players' end", "the players ' end"),
    ],
)
def test_examples(step: str, before: str, after: str) -> None:
    assert normalise(before, [step]).text == after


@EVERY_STEP
def test_empty_text_stays_empty(step: str) -> None:
    assert normalise("", [step]).text == ""
    assert len(normalise("", [step]).edits[0]) == 0


def test_origin_points_back_through_every_step() -> None:
    done = normalise("(Ab) …C", ["ascii", "punctuation", "lower"])
    assert done.text == "ab c"
    assert done.origin().tolist() == [1, 2, 4, 6, 7]
    assert normalise("ab", []).origin().tolist() == [0, 1, 2]
    assert normalise("ab", []).text == "ab"


@given(text=texts, steps=st.lists(st.sampled_from(sorted(STEPS)), unique=True, max_size=4))
@settings(deadline=None)
def test_origin_is_in_order_and_ends_at_the_end(text: str, steps: list[str]) -> None:
    done = normalise(text, steps)
    origin = done.origin()
    assert len(origin) == len(done.text) + 1
    assert np.all(np.diff(origin) >= 0)
    assert origin[-1] == len(text)


def test_steps_are_applied_in_the_order_given() -> None:
    assert parse_steps(" lower , digits ") == ("lower", "digits")
    assert parse_steps("") == ()
    assert normalise("“A”", ["ascii", "punctuation"]).steps == ("ascii", "punctuation")


def test_a_dropped_piece_beside_a_rewritten_one_is_an_edit_of_its_own() -> None:
    """Dropped pieces are one piece where they touch; a rewritten one keeps to itself on either side."""
    for text, expected in (
        ("\u00ad—x", [("\u00ad", ""), ("—", "--")]),
        ("—\u00adx", [("—", "--"), ("\u00ad", "")]),
        ("a\u00ad\u0301—\u0301\u00ad", [("\u00ad\u0301", ""), ("—", "--"), ("\u0301\u00ad", "")]),
        ("“”", [("“", '"'), ("”", '"')]),
    ):
        (edits,) = normalise(text, ["ascii"]).edits
        assert [(edits.source[a:b], edits.output[c:d]) for a, b, c, d in spans(edits)] == expected


def test_unknown_and_repeated_steps_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown normalisation step 'lowr'; did you mean 'lower'"):
        parse_steps("lowr")
    with pytest.raises(UsageError, match="'digits' is given twice"):
        parse_steps("digits,lower,digits")
    with pytest.raises(UsageError, match="unknown normalisation step ''"):
        parse_steps("lower,,digits")
    with pytest.raises(UsageError, match="unknown normalisation step 'upper'"):
        normalise("a", ["upper"])


def test_a_lone_surrogate_is_one_character() -> None:
    assert code_points("a\ud800𝟛").tolist() == [97, 0xD800, 0x1D7DB]
