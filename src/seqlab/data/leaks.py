"""Labels that the text gives away by its length or by one word: most often a mistake in the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from seqlab.data.duplicates import normalised

ROWS, FEW_ROWS, ROWS_OF_A_LABEL = 20_000, 4_000, 100
"""At most so many rows are looked at, drawn evenly, fewer where there are few labels; a leak that matters shows."""
WORDS = 200
CHARACTERS = 8 * WORDS
"""Of a text; enough for so many words of most languages."""
FEWEST = 20
"""Rows of a label, and of all others, below which one word or length may fit by chance."""
NEARLY_ALL, HARDLY_ANY = 0.99, 0.01
SHOWN = 5
REMEDY = "look at the data before you trust a score"


def leaks(texts: Sequence[str], labels: Sequence[str]) -> tuple[str, ...]:
    """Plain sentences on labels that length alone, or the presence of one word, tells from all the others.

    That is: the rule holds for 99 % of the label's rows and for at most 1 % of the other rows, of which there
    are 20 at least on either side.
    """
    chosen = _drawn(len(texts), min(ROWS, max(FEW_ROWS, ROWS_OF_A_LABEL * len(set(labels)))))
    names = np.array([labels[k] for k in chosen], dtype=object)
    rows_of: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        rows_of.setdefault(name, []).append(position)
    enough = {
        name: np.array(rows)
        for name, rows in sorted(rows_of.items())
        if len(rows) >= FEWEST and len(chosen) - len(rows) >= FEWEST
    }
    looked_at = [texts[k] for k in chosen]
    return (*_shown(_by_length(looked_at, enough)), *_shown(_by_word(looked_at, enough)))


def _drawn(count: int, most: int) -> list[int]:
    if count <= most:
        return list(range(count))
    drawn: list[int] = np.sort(np.random.default_rng(0).choice(count, most, replace=False)).tolist()
    return drawn


def _shown(sentences: list[str]) -> tuple[str, ...]:
    more = len(sentences) - SHOWN
    return (*sentences[:SHOWN], *([f"the same is true of {more:,} more labels"] if more > 0 else []))


def _by_length(texts: Sequence[str], rows_of: dict[str, NDArray[np.int64]]) -> list[str]:
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    ordered = np.sort(lengths)
    sentences = []
    for name, rows in rows_of.items():
        own = np.sort(lengths[rows])
        for low, high in _ranges(own):
            inside = int(np.searchsorted(ordered, high, "right") - np.searchsorted(ordered, low, "left"))
            own_inside = int(np.searchsorted(own, high, "right") - np.searchsorted(own, low, "left"))
            if inside - own_inside <= HARDLY_ANY * (len(texts) - len(rows)):
                sentences.append(_length_sentence(name, low, high, ordered, own_inside / len(rows)))
                break
    return sentences


def _ranges(own: NDArray[np.int64]) -> list[tuple[int, int]]:
    """The ranges of length that hold 99 % of the label: the shortest texts, the longest, those in between."""
    most = int(np.ceil(NEARLY_ALL * len(own)))
    trimmed = (len(own) - most) // 2
    shortest, longest = int(own[most - 1]), int(own[len(own) - most])
    between = int(own[trimmed]), int(own[len(own) - 1 - trimmed])
    return [(0, shortest), (longest, int(np.iinfo(np.int64).max)), between]


def _length_sentence(name: str, low: int, high: int, ordered: NDArray[np.int64], share: float) -> str:
    if low == 0:
        which = f"up to {high:,}"
    elif high > ordered[-1]:
        which = f"{low:,} or more"
    else:
        which = f"{low:,} to {high:,}"
    return (
        f"length alone gives the label '{name[:40]}' away: {_percent(share)} of its texts have {which} characters, "
        f"and hardly any other text has; {REMEDY}"
    )


def _by_word(texts: Sequence[str], rows_of: dict[str, NDArray[np.int64]]) -> list[str]:
    """Words as `normalised` has them: case and punctuation do not count."""
    words = [set(normalised(text[:CHARACTERS]).split()[:WORDS]) for text in texts]
    frequent: dict[str, dict[str, int]] = {}
    for name, rows in rows_of.items():
        here = _occurrences(words[row] for row in rows)
        frequent[name] = {word: count for word, count in here.items() if count >= NEARLY_ALL * len(rows)}
    candidates = set().union(*frequent.values())
    everywhere = _occurrences(present & candidates for present in words)
    sentences = []
    for name, here_of in frequent.items():
        own, others = len(rows_of[name]), len(texts) - len(rows_of[name])
        elsewhere = {word: everywhere[word] - count for word, count in here_of.items()}
        telling = sorted((count, word) for word, count in elsewhere.items() if count <= HARDLY_ANY * others)
        if telling:
            count, word = telling[0]
            also = f" (and so do {len(telling) - 1:,} more)" if len(telling) > 1 else ""
            sentences.append(
                f"one word gives the label '{name[:40]}' away: '{word[:40]}' stands in "
                f"{_percent(here_of[word] / own)} of its texts and in {_percent(count / others)} of the others{also}; "
                f"{REMEDY}"
            )
    return sentences


def _occurrences(words: Iterable[set[str]]) -> Counter[str]:
    """In how many texts each word stands."""
    found: Counter[str] = Counter()
    for present in words:
        found.update(present)
    return found


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
