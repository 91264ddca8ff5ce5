"""Letters of any script: what matplotlib's own font lacks is taken from a font of the system, where one has it."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

ORDINARY = 400  # weight of running text
COMBINING = {"\u200c", "\u200d", "\ufe0e", "\ufe0f"}  # joiners and selectors: no glyphs of their own


def give_fonts(figure: Any) -> None:
    """Every text of the figure that has letters beyond its font gets the fonts that have them, after its own."""
    from matplotlib.text import Text

    lacking = [(text, letters) for text in figure.findobj(Text) if (letters := _beyond_its_font(text))]
    others = fonts_for(frozenset().union(*(letters for _, letters in lacking)))
    for text, _ in lacking:
        text.set_fontfamily([*text.get_fontfamily(), *others])


def _beyond_its_font(text: Any) -> frozenset[str]:
    from matplotlib.font_manager import findfont

    letters = frozenset(text.get_text()) - COMBINING
    if max(letters, default="") < "\u0180":  # Latin: every font has it
        return frozenset()
    return letters - _had(findfont(text.get_fontproperties()), letters)


@functools.cache
def fonts_for(letters: frozenset[str]) -> tuple[str, ...]:
    """Families that have these letters, the fewest that a greedy choice finds; what none has is left out."""
    if not letters:
        return ()
    having = {family: _had(place, letters) for family, place in _families().items()}
    chosen: list[str] = []
    while letters:
        family = max(having, key=lambda name: len(having[name] & letters))
        if not having[family] & letters:
            break
        chosen.append(family)
        letters -= having[family]
    return tuple(chosen)


@functools.cache
def _families() -> dict[str, str]:
    """Family -> the file of its plainest font, in the order of their names; not those that only draw boxes."""
    from matplotlib.font_manager import findSystemFonts, fontManager, weight_dict

    for place in sorted(set(findSystemFonts()) - {entry.fname for entry in fontManager.ttflist}):
        with contextlib.suppress(Exception):  # installed since matplotlib looked; what it cannot read is left out
            fontManager.addfont(place)

    def plainness(entry: Any) -> tuple[bool, int, str]:
        weight = entry.weight if isinstance(entry.weight, int) else weight_dict.get(entry.weight, ORDINARY)
        return entry.style != "normal", abs(weight - ORDINARY), entry.fname

    plainest_last = sorted(fontManager.ttflist, key=lambda entry: (entry.name, plainness(entry)), reverse=True)
    families = {entry.name: entry.fname for entry in plainest_last if not entry.name.startswith("Last Resort")}
    return dict(reversed(families.items()))


def _had(place: str, letters: frozenset[str]) -> frozenset[str]:
    """Those of the letters that the font in this file has."""
    from matplotlib.font_manager import get_font

    font = get_font(place)
    return frozenset(letter for letter in letters if letter.isspace() or font.get_char_index(ord(letter)))
