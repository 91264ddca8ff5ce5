"""A page that shows what a model found surprising in a text: every token coloured, and where the loss falls."""

from __future__ import annotations

import html
import itertools
import math
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import DataError
from seqlab.core.settings.heat import RANGES, WITHIN, BitRange
from seqlab.core.types import Surprisals
from seqlab.core.units import human_count
from seqlab.evaluation.gap import nats_per_byte
from seqlab.evaluation.statistics import Numbers, Places
from seqlab.evaluation.word_loss import (
    Share,
    Words,
    by_frequency,
    by_place_in_word,
    by_word,
    cold_start,
    stretch_bits_per_byte,
    stretches,
    words_with_loss,
)
from seqlab.pages.charts import HEAT, place_picture, position_picture
from seqlab.pages.render import embedded, render

SHOWN_BYTES = 200 * 1024  # of the text; the tables are always about all of it
MOST_MARKUP = 7_600_000  # bytes of the coloured text: more would keep a browser busy
MANY_PIECES = 40_000  # beyond, neighbours of one byte and one colour share an element
LONGEST_RUN = 8  # of such neighbours
TOP = 25
LONGEST_WORD = 30  # characters of a word in a table

NAMES = string.ascii_letters  # of the classes of tokens: one for each stretch of bits that some range tells apart
VISIBLE = {code: chr(0x2400 + code) for code in range(32)} | {0x7F: "␡", ord("\t"): "\t", ord("\n"): "↵\n"}


@dataclass(frozen=True)
class Scale:
    """Which colour so many bits have: white below and at the beginning, the last one from `high` on.

    colour k from low + k (high − low) / (K − 1) bits on, for K colours
    """

    low: float
    high: float

    @property
    def limits(self) -> list[float]:
        """Bits from which on a token has the next colour."""
        steps = len(HEAT) - 1
        return [self.low + (self.high - self.low) * k / steps for k in range(1, steps + 1)]

    @property
    def names(self) -> list[str]:
        """What each colour stands for."""
        first = f"below {self.limits[0]:g}" if self.low else f"0–{self.limits[0]:g}"
        between = [f"{a:g}–{b:g}" for a, b in itertools.pairwise(self.limits)]
        return [first, *between, f"{self.high:g} or more"]

    @property
    def title(self) -> str:
        return f"{self.low:g}–{self.high:g} bits"


@dataclass(frozen=True)
class Colours:
    """The ranges that a page offers, and which of them it begins with."""

    scales: list[Scale]
    begun: int

    @property
    def limits(self) -> list[float]:
        """All that any range tells apart: between two of them no range changes its colour."""
        return sorted({limit for scale in self.scales for limit in scale.limits})

    def rules(self, scale: Scale) -> list[tuple[str, str]]:
        """(class of a token, its colour) in this range; the first class is white in every range and has no name."""
        levels = np.searchsorted(scale.limits, self.limits, side="right")
        return [(name, HEAT[level]) for name, level in zip(NAMES, levels.tolist(), strict=False)]

    def for_page(self) -> list[dict[str, Any]]:
        return [
            {
                "title": scale.title,
                "rules": self.rules(scale),
                "legend": list(zip(HEAT, scale.names, strict=True)),
                "begun": number == self.begun,
            }
            for number, scale in enumerate(self.scales)
        ]


def colours_for(bits: Numbers, asked: BitRange | None = None) -> Colours:
    """Begin with the range that is asked for, else with the narrowest that holds nearly all of these tokens."""
    held = float(np.quantile(bits, WITHIN)) if len(bits) else 0.0
    begun = asked or next((one for one in RANGES if one[1] >= held), RANGES[-1])
    ranges = sorted({*RANGES, begun}, key=lambda one: (one[1], one[0]))
    return Colours([Scale(*one) for one in ranges], ranges.index(begun))


@dataclass(frozen=True)
class Pieces:
    """What is coloured: tokens, those that share a character taken together. They partition the text."""

    edges: Places  # (P + 1)
    bits: Numbers
    unknown: NDArray[np.bool_]


def heat_map_page(
    title: str,
    text: str,
    surprisals: Surprisals,
    *,
    counts: Mapping[str, int] | None,
    context: str,
    bits_per_byte: float,
    interval: tuple[float, float] | None,
    about: str = "",
    colours: Colours | None = None,
) -> str:
    """The page as HTML. `counts` says how often a word stood in the training text; None: it is not at hand.

    `about` says what the interval holds for.
    """
    content = text.encode()
    if not content:
        raise DataError("the text is empty: there is nothing to show")
    per_byte = nats_per_byte(surprisals, len(content))
    words = words_with_loss(text, surprisals)
    colours = colours or colours_for(bits_of(surprisals))
    marked, shown = marked_text(content, pieces_of(content, surprisals), colours.limits)
    places = by_place_in_word(text, surprisals, words)
    tokens_bits_per_byte = surprisals.total / (math.log(2) * len(content))
    return render(
        "heat_map.html.j2",
        title=title,
        headline=_headline(surprisals, len(words), len(content), bits_per_byte, interval),
        context=context,
        about=about,
        rest=None if math.isclose(bits_per_byte, tokens_bits_per_byte, rel_tol=1e-6) else tokens_bits_per_byte,
        scales=colours.for_page(),
        marked=marked,
        shown=shown,
        bytes=len(content),
        expensive=_expensive_words(words, surprisals.total),
        occurrences=_expensive_occurrences(words, surprisals.total),
        bands=None if counts is None else _band_rows(by_frequency(words, counts), surprisals.total),
        places=_place_rows(places, surprisals.total),
        place_picture=embedded(place_picture([part.name for part in places], [part.bits_per_unit for part in places])),
        position_picture=embedded(_position_picture(per_byte, tokens_bits_per_byte)),
        top=TOP,
    )


def bits_of(surprisals: Surprisals) -> Numbers:
    """What each token costs."""
    return surprisals.nats / math.log(2)


def pieces_of(content: bytes, surprisals: Surprisals) -> Pieces:
    """A piece begins where a token begins, unless that is inside a character or was the place of the last one."""
    start = surprisals.start
    raw = np.frombuffer(content, np.uint8)
    inside = np.append((raw & 0xC0) == 0x80, True)  # continuation bytes; a token at the very end has no text
    begins = ~inside[start] & (np.diff(start, prepend=-1) > 0)
    begins[:1] = True
    which = np.cumsum(begins) - 1
    edges = np.append(start[begins], len(content))
    edges[0] = 0
    bits = np.bincount(which, surprisals.nats) / math.log(2)
    return Pieces(edges, bits, np.bincount(which, surprisals.unknown) > 0)


def marked_text(content: bytes, pieces: Pieces, limits: Sequence[float]) -> tuple[Any, int]:
    """The coloured text as markup and how many bytes of the text it shows."""
    from markupsafe import Markup

    levels = np.searchsorted(limits, pieces.bits, side="right")
    last = max(1, int(np.searchsorted(pieces.edges, SHOWN_BYTES, side="right")) - 1)
    parts: list[str] = []
    shown = size = 0
    for a, b in itertools.pairwise(_runs(pieces, levels, last)):
        element = _element(content, pieces, int(levels[a]), a, b)
        size += len(element.encode())
        if size > MOST_MARKUP and parts:
            break
        parts.append(element)
        shown = int(pieces.edges[b])
    return Markup("".join(parts)), shown


def _runs(pieces: Pieces, levels: NDArray[np.int64], last: int) -> Iterator[int]:
    """Where the elements begin among the pieces before `last`, and the end; most often each piece is one."""
    if last <= MANY_PIECES:
        return iter(range(last + 1))
    single = np.diff(pieces.edges)[:last] == 1
    same = (np.diff(levels[:last]) == 0) & (np.diff(pieces.unknown[:last].astype(np.int8)) == 0)
    begins = np.append(True, ~(same & single[1:] & single[:-1]))
    first = np.flatnonzero(begins)[np.cumsum(begins) - 1]
    begins |= (np.arange(last) - first) % LONGEST_RUN == 0
    return iter([*np.flatnonzero(begins).tolist(), last])


def _element(content: bytes, pieces: Pieces, level: int, a: int, b: int) -> str:
    """Pieces [a, b) as one element; the tip gives the bits of each and the bytes that they cover."""
    start, end = int(pieces.edges[a]), int(pieces.edges[b])
    bits = " ".join(f"{x:.2f}" if x < 10 else f"{x:.1f}" for x in pieces.bits[a:b].tolist())
    span = str(start) if end == start + 1 else f"{start}–{end - 1}"
    unknown = bool(pieces.unknown[a])
    tip = f"{bits} bits @{span}{', unknown' if unknown else ''}"
    classes = [*([NAMES[level - 1]] if level else []), *(["unknown"] if unknown else [])]
    styled = f" class={classes[0]}" if len(classes) == 1 else f' class="{" ".join(classes)}"' if classes else ""
    shown = html.escape(content[start:end].decode(), quote=False).translate(VISIBLE)
    return f'<i{styled} title="{tip}">{shown}</i>'


def _headline(
    surprisals: Surprisals, words: int, n_bytes: int, bits_per_byte: float, interval: tuple[float, float] | None
) -> list[tuple[str, str]]:
    sure = "" if interval is None else f", 95 % interval {interval[0]:.3f} to {interval[1]:.3f}"
    unknown = int(surprisals.unknown.sum())
    return [
        (f"{bits_per_byte:.3f}", f"bits per byte{sure}"),
        (human_count(round(surprisals.total / math.log(2))), f"bits in all, over {n_bytes:,} bytes"),
        (f"{len(surprisals):,}", f"tokens in {words:,} words"),
        (f"{unknown:,}", f"unknown tokens ({unknown / max(1, len(surprisals)):.2%})"),
    ]


def _share(nats: float, total: float) -> str:
    return f"{nats / total:.2%}" if total else "–"


def _mean(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _abridged(word: str) -> str:
    if not word:
        return "(white space only)"
    shown = word[:LONGEST_WORD].translate(VISIBLE)
    return shown if len(word) <= LONGEST_WORD else f"{shown}… ({len(word):,} characters)"


def _expensive_words(words: Words, total: float) -> list[tuple[str, ...]]:
    return [
        (
            _abridged(part.name),
            f"{part.units:,}",
            f"{part.bits:,.1f}",
            f"{part.bits_per_unit:,.1f}",
            _share(part.nats, total),
        )
        for part in by_word(words)[:TOP]
    ]


def _expensive_occurrences(words: Words, total: float) -> list[tuple[str, ...]]:
    dearest = np.argsort(-words.nats, kind="stable")[:TOP].tolist()
    often = {word: words.written.count(word) for word in {words.written[k] for k in dearest}}
    return [
        (
            _abridged(words.written[k]),
            f"{often[words.written[k]]:,}",
            f"{words.start[k]:,}",
            f"{words.nats[k] / math.log(2):,.1f}",
            _share(words.nats[k], total),
        )
        for k in dearest
    ]


def _band_rows(bands: list[Share], total: float) -> list[tuple[str, ...]]:
    words = sum(band.units for band in bands)
    return [
        (
            band.name,
            f"{band.units:,}",
            f"{band.units / words:.1%}",
            _mean(band.bits_per_unit),
            _mean(band.bits_per_byte),
            _share(band.nats, total),
        )
        for band in [*bands, _all(bands)]
    ]


def _place_rows(places: list[Share], total: float) -> list[tuple[str, ...]]:
    return [
        (part.name, f"{part.units:,}", _mean(part.bits_per_unit), _mean(part.bits_per_byte), _share(part.nats, total))
        for part in [*places, _all(places)]
    ]


def _all(parts: list[Share]) -> Share:
    return Share("all", sum(p.units for p in parts), sum(p.bytes for p in parts), math.fsum(p.nats for p in parts))


def _position_picture(per_byte: Numbers, mean: float) -> bytes:
    edges = stretches(len(per_byte))
    early = cold_start(int(edges[1]))
    return position_picture(
        edges, stretch_bits_per_byte(per_byte, edges), early, stretch_bits_per_byte(per_byte, early), mean
    )
