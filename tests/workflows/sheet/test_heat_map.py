"""The heat map: every sum is the whole loss, the text is shown and not interpreted, and no cut is silent."""

import html
import math
import re
import struct
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import nonsense
from tests.evaluation.random_spans import random_surprisals, texts

from seqlab.core.errors import DataError, UsageError
from seqlab.core.settings.heat import parse_range
from seqlab.core.types import Surprisals
from seqlab.evaluation.gap import CLASSES, nats_per_byte
from seqlab.evaluation.statistics import Numbers
from seqlab.evaluation.word_loss import (
    by_frequency,
    by_place_in_word,
    by_word,
    cold_start,
    stretch_bits_per_byte,
    stretches,
    words_with_loss,
)
from seqlab.pages import canvas
from seqlab.pages.charts import HEAT, gap_picture, matrix_picture
from seqlab.workflows.sheet import heat_map
from seqlab.workflows.sheet.heat_map import NAMES, colours_for, heat_map_page, pieces_of


def characters(text: str, bits: float | list[float] = 1.0) -> Surprisals:
    """A character model's table."""
    lengths = np.array([len(c.encode()) for c in text], np.int64)
    end = np.cumsum(lengths)
    nats = np.broadcast_to(np.asarray(bits, float) * math.log(2), len(text)).copy()
    return Surprisals(nats, end - lengths, end, np.zeros(len(text), bool), np.zeros(len(text)))


def page_of(text: str, surprisals: Surprisals, counts: Counter[str] | None = None, **changes: object) -> str:
    values: dict[str, object] = {
        "counts": counts,
        "context": "all before it",
        "bits_per_byte": surprisals.total / (math.log(2) * len(text.encode())),
        "interval": None,
    }
    return heat_map_page("a title", text, surprisals, **(values | changes))  # type: ignore[arg-type]


def shown_text(page: str) -> str:
    """What a reader sees in the coloured part."""
    marked = re.search(r'<pre class="map"[^>]*>(.*?)</pre>', page, re.DOTALL)
    assert marked
    return html.unescape(re.sub(r"<i[^>]*>|</i>", "", marked[1])).replace("↵\n", "\n")


def tips(page: str) -> list[str]:
    return re.findall(r'<i[^>]* title="([^"]*)"', page)


def rows_under(page: str, heading: str) -> list[list[str]]:
    table = page.split(f"<h2>{heading}</h2>")[1].split("<tbody>")[1].split("</tbody>")[0]
    return [[html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in table.split("<tr")[1:]]


@given(texts, st.data())
def test_words_bands_and_places_add_up_to_the_total(text: str, data: st.DataObject) -> None:
    surprisals = random_surprisals(text, data)
    words = words_with_loss(text, surprisals)
    counts = {word: data.draw(st.integers(0, 3000)) for word in set(words.written)}
    n = len(text.encode())
    for parts, units in (
        (by_word(words), len(words)),
        (by_frequency(words, counts), len(words)),
        (by_place_in_word(text, surprisals, words), len(surprisals)),
    ):
        assert math.fsum(part.nats for part in parts) == pytest.approx(surprisals.total, rel=1e-9)
        assert sum(part.units for part in parts) == units
        assert sum(part.bytes for part in parts) == n
    assert words.written == (text.split() or [""])


@given(texts, st.data())
def test_stretches_add_up_to_the_total(text: str, data: st.DataObject) -> None:
    surprisals = random_surprisals(text, data)
    n = len(text.encode())
    edges, per_byte = stretches(n), nats_per_byte(surprisals, n)
    bits = stretch_bits_per_byte(per_byte, edges)
    assert float(bits @ np.diff(edges)) * math.log(2) == pytest.approx(surprisals.total, rel=1e-9)


@given(texts, st.data())
def test_pieces_show_whole_characters_and_all_bits(text: str, data: st.DataObject) -> None:
    surprisals = random_surprisals(text, data)
    pieces = pieces_of(text.encode(), surprisals)
    content = text.encode()
    written = [content[a:b].decode() for a, b in zip(pieces.edges[:-1], pieces.edges[1:], strict=True)]
    assert "".join(written) == text
    assert all(written)
    assert pieces.bits.sum() * math.log(2) == pytest.approx(surprisals.total, rel=1e-9)
    assert pieces.unknown.any() == surprisals.unknown.any()


def test_a_token_counts_where_it_starts_and_white_space_belongs_to_the_next_word() -> None:
    text = " ab  c\n"
    spans = np.array([[0, 1], [1, 2], [2, 4], [4, 6], [6, 7]])
    surprisals = Surprisals(np.array([1.0, 2, 4, 8, 16]), *spans.T, np.zeros(5, bool), np.zeros(5))
    words = words_with_loss(text, surprisals)
    assert words.written == ["ab", "c"]
    assert words.nats.tolist() == [7.0, 24.0]
    assert words.start.tolist() == [1, 5]
    assert np.diff(words.edges).tolist() == [3, 4]
    places = {part.name: part.nats for part in by_place_in_word(text, surprisals, words)}
    assert places == {"white space": 17.0, "1st": 10.0, "2nd": 4.0}


def test_a_token_that_begins_with_the_space_after_a_word_is_the_first_of_the_next() -> None:
    spans = np.array([[0, 2], [2, 5]])
    surprisals = Surprisals(np.array([1.0, 2.0]), *spans.T, np.zeros(2, bool), np.zeros(2))
    words = words_with_loss("ab cd", surprisals)
    assert words.nats.tolist() == [1.0, 2.0]
    assert [(part.name, part.units) for part in by_place_in_word("ab cd", surprisals, words)] == [("1st", 2)]


def test_bands_have_the_stated_limits() -> None:
    counts = {"a": 0, "b": 1, "c": 2, "d": 9, "e": 10, "f": 99, "g": 100, "h": 999, "i": 1000, "j": 10**6}
    text = " ".join([*counts, "unheard"])
    bands = by_frequency(words_with_loss(text, characters(text)), counts)
    assert [(band.name, band.units) for band in bands] == [
        *(("never", 2), ("1", 1), ("2–9", 2), ("10–99", 2), ("100–999", 2), ("1,000 or more", 2))
    ]


def test_the_cold_start_is_cut_finer_towards_the_beginning() -> None:
    assert stretches(30_000)[:3].tolist() == [0, 1000, 2000]
    assert cold_start(1000).tolist() == [0, 32, 64, 128, 256, 512, 1000]
    assert cold_start(1).tolist() == [0, 1]
    assert stretches(1).tolist() == [0, 1]


def test_every_token_is_shown_with_its_bits_and_bytes() -> None:
    text = "no\nég"
    page = page_of(text, characters(text, [0.1, 1.5, 2.5, 7.0, 20.0]))
    assert tips(page) == ["0.10 bits @0", "1.50 bits @1", "2.50 bits @2", "7.00 bits @3–4", "20.0 bits @5"]
    assert shown_text(page) == text
    classes = [name[-1:] for name in re.findall(r"<i( class=\w)? title", page)]
    assert classes[0] == "", "what costs nothing is white in every range"
    assert classes[1:] == sorted(set(classes[1:]), key=NAMES.index), "each costs more than the one before"


def test_cut_characters_are_joined_and_unknown_tokens_marked() -> None:
    text = "é!"
    surprisals = Surprisals(
        np.array([1.0, 2.0, 3.0]) * math.log(2),
        np.array([0, 1, 2]),
        np.array([1, 2, 3]),
        np.array([False, False, True]),
        np.zeros(3),
    )
    page = page_of(text, surprisals)
    assert tips(page) == ["3.00 bits @0–1", "3.00 bits @2, unknown"]
    assert re.search(r'<i class="\w unknown" title="3.00 bits @2, unknown">!</i>', page)


def test_text_is_shown_not_interpreted() -> None:
    text = "<script>alert(\"x & y\")</script> <b title='z'>&amp;</b>\r\n\x00\x1b end"
    page = page_of(text, characters(text), Counter(text.split()))
    assert shown_text(page) == text.translate({13: "␍", 0: "␀", 27: "␛"})
    assert "<script" not in page
    assert "<b title" not in page
    whole = Surprisals(np.ones(1), np.zeros(1, np.int64), np.array([len(text)]), np.zeros(1, bool), np.zeros(1))
    assert "<script" not in page_of(text, whole)
    assert "<script" not in heat_map_page(
        "<script>", "a", characters("a"), counts=None, context="<script>", bits_per_byte=1.0, interval=(0.5, 1.5)
    )


def test_the_tables_agree_with_the_total() -> None:
    text = nonsense(400)
    draw = np.random.default_rng(0)
    surprisals = characters(text, draw.exponential(2.0, len(text)).tolist())
    page = page_of(text, surprisals, Counter(["the", "the", "of", "and"]))
    bands = rows_under(page, "Loss by frequency in the training text")
    assert bands[-1][0] == "all"
    assert bands[-1][-1] == "100.00%"
    assert int(bands[-1][1]) == len(text.split()) == sum(int(row[1]) for row in bands[:-1])
    total_bits = surprisals.total / math.log(2)
    assert bands[-1][3] == f"{total_bits / len(text.split()):.2f}"
    assert bands[-1][4] == f"{total_bits / len(text.encode()):.2f}"
    words = rows_under(page, "The most surprising words")
    assert len(words) == 25
    costs = [float(row[2].replace(",", "")) for row in words]
    assert costs == sorted(costs, reverse=True)
    count = {row[0]: int(row[1]) for row in words}
    assert all(count[word] == text.split().count(word) for word in count)


def test_says_when_the_training_text_is_not_at_hand_and_when_the_figure_holds_more_than_the_tokens() -> None:
    page = page_of("a b", characters("a b"))
    assert "training text was not at hand" in page
    assert "The tokens themselves cost" not in page
    assert "The tokens themselves cost 1.000 bits per byte" in page_of("a b", characters("a b"), bits_per_byte=1.5)
    assert "95 % interval 0.900 to 1.100" in page_of("a b", characters("a b"), interval=(0.9, 1.1))


def test_a_long_text_is_cut_with_a_note_and_its_page_stays_small() -> None:
    text = nonsense(50_000)
    size = len(text.encode())
    bits = np.random.default_rng(0).exponential(2.0, len(text)).tolist()
    page = page_of(text, characters(text, bits))
    note = re.search(r"Only the beginning is shown:</b> ([\d,]+) of ([\d,]+) bytes", page)
    assert note
    shown = shown_text(page)
    assert text.startswith(shown)
    assert int(note[1].replace(",", "")) == len(shown.encode())
    assert int(note[2].replace(",", "")) == size
    assert 180_000 < len(shown.encode()) <= heat_map.SHOWN_BYTES < size
    assert len(page.encode()) < 8_000_000
    assert sum(len(tip.split(" bits")[0].split()) for tip in tips(page)) == len(shown)  # the bits of every token


def test_markup_beyond_the_limit_is_cut_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heat_map, "MOST_MARKUP", 1000)
    text = nonsense(100)
    page = page_of(text, characters(text))
    assert 0 < len(shown_text(page)) < 60
    assert "Only the beginning is shown" in page
    assert "Only the beginning is shown" not in page_of("short", characters("short"))


def test_runs_never_join_colours_or_longer_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heat_map, "MANY_PIECES", 1)
    text = "aaaaaaaaaabbéé"
    page = page_of(text, characters(text, [1.0] * 10 + [0.1, 5.0, 5.0, 5.0]))
    ones = " ".join(["1.00"] * 8)
    assert tips(page) == [
        *(f"{ones} bits @0–7", "1.00 1.00 bits @8–9", "0.10 bits @10", "5.00 bits @11"),
        *("5.00 bits @12–13", "5.00 bits @14–15"),
    ]
    assert shown_text(page) == text


@pytest.mark.parametrize("text", [" ", "\n\n", "x", "😀", "word " * 3])
def test_odd_texts_give_a_page(text: str) -> None:
    assert shown_text(page_of(text, characters(text), Counter())) == text
    assert "nan" not in page_of(text, characters(text, 0.0), Counter()).split("</style>")[1].split("<img")[0]


def test_refuses_an_empty_text_and_surprisals_of_another() -> None:
    with pytest.raises(DataError, match="empty"):
        heat_map_page("t", "", characters("a"), counts=None, context="", bits_per_byte=1.0, interval=None)
    with pytest.raises(UsageError, match="cover 1 bytes and the text has 2"):
        page_of("ab", characters("a"))


def linear(colour: str) -> Numbers:
    parts = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    return float(np.dot((0.2126, 0.7152, 0.0722), linear(colour)))


def oklab(colour: str) -> Numbers:
    """Lightness and two hues in which equal distances look equal."""
    to_cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    to_lab = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return np.asarray(to_lab @ np.cbrt(to_cones @ linear(colour)))


def test_colours_are_ordered_and_keep_dark_text_readable() -> None:
    light = [luminance(colour) for colour in HEAT]
    assert light == sorted(light, reverse=True)
    assert (light[-1] + 0.05) / (luminance("#1d2430") + 0.05) > 4.5  # WCAG 2 for running text


def test_colours_are_even_steps_to_the_eye() -> None:
    """Neighbours are clearly apart, and equally so; no two that are further apart look more alike."""
    places = np.array([oklab(colour) for colour in HEAT])
    steps = np.linalg.norm(np.diff(places, axis=0), axis=1)
    assert steps.min() > 0.06
    assert steps.max() < 1.1 * steps.min()
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    assert apart[np.triu_indices(len(HEAT), 2)].min() > 1.5 * steps.min()


# --------------------------------------------------------------------------- ranges of the colours


def background(page: str, name: str, chosen: str = "") -> str:
    """The colour of a class of tokens: as the page begins, or when one of its ranges is chosen."""
    before = f"#heat:has(#range-{chosen}:checked) " if chosen else "\n  "
    found = re.search(re.escape(f"{before}.{name} {{ background: ") + r"(#\w+)", page)
    assert found, (name, chosen)
    return found[1]


@pytest.mark.parametrize(("asked", "begun"), [(None, "0–16 bits"), ((0, 8), "0–8 bits"), ((3, 7), "3–7 bits")])
def test_a_reader_may_choose_the_range_and_a_flag_says_which_one_comes_first(
    asked: tuple[float, float] | None, begun: str
) -> None:
    bits = [0.1, 1.5, 2.5, 6.0, 9.0, 12.0, 20.0]
    text = "abcdefg"
    surprisals = characters(text, bits)
    page = page_of(text, surprisals, colours=colours_for(np.array(bits[:6]), asked))
    offered = re.findall(r'<input type="radio" name="range" id="range-(\d+)"( checked)?> ([^<]*)</label>', page)
    assert {"0–2 bits", "0–4 bits", "0–8 bits", "0–16 bits", "0–32 bits", begun} == {title for *_, title in offered}
    assert [title for _, checked, title in offered if checked] == [begun]
    names = re.findall(r"<i(?: class=(\w))? title", page)
    for number, _, title in offered:
        low, high = (float(end) for end in re.findall(r"[\d.]+", title))
        for name, cost in zip(names, bits, strict=True):
            level = min(max(int((cost - low) // ((high - low) / 8)), 0), 8)
            assert (background(page, name, number) if name else HEAT[0]) == HEAT[level], (title, cost)
            if title == begun:
                assert (background(page, name) if name else HEAT[0]) == HEAT[level]


@given(st.lists(st.floats(0, 60), min_size=1), st.none() | st.tuples(st.floats(0, 20), st.floats(20.5, 100)))
def test_no_range_changes_its_colour_inside_a_class(bits: list[float], asked: tuple[float, float] | None) -> None:
    colours = colours_for(np.array(bits), asked)
    assert len(colours.limits) <= len(NAMES)
    for scale in colours.scales:
        rules = [HEAT[0], *(colour for _, colour in colours.rules(scale))]
        assert len(rules) == len(colours.limits) + 1
        for cost in bits:
            level = int(np.searchsorted(scale.limits, cost, side="right"))
            assert rules[int(np.searchsorted(colours.limits, cost, side="right"))] == HEAT[level]


def test_the_range_that_nobody_names_holds_nearly_all_tokens() -> None:
    for bits, high in (([0.5] * 100, 2), ([1.0] * 90 + [7.0] * 10, 8), ([40.0] * 10, 32), ([], 2)):
        colours = colours_for(np.array(bits))
        assert colours.scales[colours.begun].high == high


@pytest.mark.parametrize(("words", "ends"), [("0-8", (0, 8)), (" 2.5 – 10 ", (2.5, 10)), ("0-1000", (0, 1000))])
def test_a_range_is_two_numbers_of_bits(words: str, ends: tuple[float, float]) -> None:
    assert parse_range(words) == ends


@pytest.mark.parametrize("words", ["", "8", "8-8", "9-8", "0-1e3", "-3-4", "0-1001", "a-b"])
def test_what_is_no_range_is_refused_in_one_line(words: str) -> None:
    with pytest.raises(UsageError, match="give two numbers of bits up to 1,000, such as 0-8"):
        parse_range(words)


def png_size(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


@pytest.mark.parametrize("size", [1, 2, 8])
def test_matrix_picture_grows_with_the_matrix(size: int) -> None:
    names = [f"a rather long name $of$ text_{k} number {k}" for k in range(size)]
    bits = np.arange(size * size, dtype=float).reshape(size, size)
    bits[0, 0] = np.nan if size > 1 else 2.0
    width, height = png_size(matrix_picture(names, names, bits, title="a $ title"))
    assert width >= canvas.DPI * size
    assert height >= canvas.DPI * size * 2 / 3


def test_gap_picture_takes_negative_shares_and_many_rows() -> None:
    shares = dict.fromkeys(CLASSES, 0.1) | {"case": -0.2, "content": 0.0}
    few = png_size(gap_picture([("a", "b", shares)]))
    many = png_size(gap_picture([("a_long_name" * 8, f"text {k}", shares) for k in range(20)]))
    assert few[0] == many[0]
    assert many[1] > 5 * few[1]
