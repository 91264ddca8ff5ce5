"""Letters that matplotlib's own font lacks: another font has them, or a box stands there; nobody is warned."""

import logging
from typing import Any

import numpy as np
import pytest
from matplotlib.font_manager import FontProperties, findfont, get_font

from seqlab.pages import fonts
from seqlab.pages.attention_charts import head_maps
from seqlab.pages.canvas import blank_figure, png
from seqlab.pages.charts import gap_picture, place_picture

RARE = "\u1d81"  # a d with a palatal hook: in STIXGeneral, which comes with matplotlib, and not in DejaVu Sans
SCRIPTS = ["深学习", "العربية", "क्षमता", "ไทย", "한국어", "日本語", "ქართული", "አማርኛ", "😀"]
NOBODYS = "\U000e1234"


@pytest.fixture(autouse=True)
def no_choice_is_kept() -> Any:
    yield fonts.fonts_for.cache_clear()
    fonts.fonts_for.cache_clear()


def drawn(words: str) -> tuple[bytes, Any]:
    figure = blank_figure(2, 1)
    text = figure.text(0.1, 0.5, words, parse_math=False)
    return png(figure), text


def test_a_letter_that_the_font_lacks_is_taken_from_one_that_has_it() -> None:
    (family, *others) = fonts.fonts_for(frozenset({RARE}))
    assert not others
    assert get_font(findfont(FontProperties(family=[family]))).get_char_index(ord(RARE))
    _, text = drawn(f"a{RARE}b")
    assert text.get_fontfamily() == ["sans-serif", family]


def test_it_is_another_picture_than_the_box(monkeypatch: pytest.MonkeyPatch) -> None:
    with_font, _ = drawn(RARE)
    fonts.fonts_for.cache_clear()
    monkeypatch.setattr(fonts, "_families", dict)
    monkeypatch.setattr(fonts, "fonts_for", lambda _: ())
    box, text = drawn(RARE)
    assert text.get_fontfamily() == ["sans-serif"]
    assert with_font != box


def test_latin_text_keeps_its_font_and_looks_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "_families", lambda: pytest.fail("it looked for fonts"))
    for words in ("plain", "déjà vu", "→ ∂L/∂θ − ½ ‖x‖", ""):
        assert drawn(words)[1].get_fontfamily() == ["sans-serif"]


def test_what_no_font_has_is_a_box_and_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert fonts.fonts_for(frozenset({NOBODYS})) == ()
    with caplog.at_level(logging.WARNING):
        picture, _ = drawn(f"x{NOBODYS}")
    assert picture.startswith(b"\x89PNG")
    assert not caplog.records


def test_the_fewest_fonts_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    having = {"one": "ab", "two": "bc", "three": "abd"}
    monkeypatch.setattr(fonts, "_families", lambda: {name: name for name in having})
    monkeypatch.setattr(fonts, "_had", lambda place, letters: frozenset(having[place]) & letters)
    assert fonts.fonts_for(frozenset("abcd")) == ("three", "two")
    assert fonts.fonts_for(frozenset("abz")) == ("one",)


def test_pictures_of_text_in_every_script_are_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    tokens = [*SCRIPTS, NOBODYS, "a$b"]
    weights = np.full((2, len(tokens), len(tokens)), 1 / len(tokens))
    shares = dict.fromkeys(("one", "two", "three", "four", "five", "six", "seven"), 0.1)
    for picture in (
        head_maps(["0.0", "0.1"], tokens, tokens, weights, "asks"),
        place_picture(tokens, [1.0] * len(tokens)),
        gap_picture([(SCRIPTS[0], SCRIPTS[1], shares)]),
    ):
        assert picture.startswith(b"\x89PNG")
    assert capfd.readouterr().err == ""
