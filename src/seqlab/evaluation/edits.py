"""Edits of a text, each of which undoes one thing that may have misled a classifier."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seqlab.evaluation.english import CONTRASTS, affirmative, contrasts, denies
from seqlab.evaluation.text_pieces import Piece, cut, find_sentences, find_words, has_words, replace

NEGATION, CONTRAST, ENDING, OPENING, ONE_WORD = KINDS = ("negation", "contrast", "ending", "opening", "one word")
MEANINGS = {
    NEGATION: "leaving out words of denial, saying the opposite (isn't -> is), or leaving out what they deny as well",
    CONTRAST: "keeping only what follows the last word of contrast (but, however …)",
    ENDING: "keeping only the last sentence, or the last two",
    OPENING: "keeping only the first sentence",
    ONE_WORD: "leaving out a single word at one place",
}
MOST_DENIED = 3  # words after a word of denial, in the same clause, that are left out together with it
MOST_WORDS = 400  # left out one at a time; of a longer text the first 200 and the last 200


@dataclass(frozen=True)
class Proposal:
    """An edited text; whether the edit helps, only the model can say."""

    kind: str
    words: str  # what was done, for a person
    text: str


def proposals(text: str) -> Iterator[Proposal]:
    """Every edit of every kind that applies, in the order of `KINDS`.

    No edited text comes twice: the first kind that leads to it keeps it, so that leaving out a single `not` counts
    as negation and not as one word. None equals the text itself and each has at least one word.
    """
    words = find_words(text)
    seen = {text}
    for proposal in _all(text, words):
        if proposal.text not in seen and has_words(proposal.text):
            seen.add(proposal.text)
            yield proposal


def _all(text: str, words: list[Piece]) -> Iterator[Proposal]:
    yield from _without_negation(text, words)
    yield from _after_contrast(text, words)
    yield from _ends(text)
    yield from _without_one_word(text, words)


def _without_negation(text: str, words: list[Piece]) -> Iterator[Proposal]:
    """Two faults are undone. A model that takes `not` itself for blame is right without it or with its opposite;
    one that overlooks `not` and counts the words it denies is right without both."""
    found = [word for word in words if denies(word.form)]
    groups = [[word] for word in found] + ([found] if len(found) > 1 else [])
    for group in groups:
        named = ", ".join(f"'{word.text}'" for word in group)
        yield Proposal(NEGATION, f"left out {named}", cut(text, group))
        opposites = [(word, _opposite(word)) for word in group]
        said = ", ".join(
            f"'{word.text}' -> '{other}'" if other else f"left out '{word.text}'" for word, other in opposites
        )
        yield Proposal(NEGATION, said, replace(text, opposites))
    for group in groups:
        for reach in range(1, MOST_DENIED + 1):
            left_out = _with_denied(text, words, group, reach)
            named = ", ".join(f"'{piece.text}'" for piece in left_out)
            yield Proposal(NEGATION, f"left out {named}", cut(text, left_out))


def _with_denied(text: str, words: list[Piece], denying: list[Piece], reach: int) -> list[Piece]:
    """Each word of denial with up to `reach` words after it in the same clause, as pieces that do not overlap."""
    ends: dict[int, int] = {}  # where a piece starts -> where it ends
    starts = {word.start: place for place, word in enumerate(words)}
    latest = -1
    for word in denying:
        place = starts[word.start]
        last = word
        for following in words[place + 1 : place + 1 + reach]:
            if not text[last.end : following.start].isspace() or (following.form,) in CONTRASTS:
                break
            last = following
        start = max(ends) if word.start < latest else word.start  # "never without": one piece
        ends[start] = latest = max(latest, last.end)
    return [Piece(start, end, text[start:end]) for start, end in ends.items()]


def _opposite(word: Piece) -> str:
    opposite = affirmative(word.form) or ""
    return opposite.capitalize() if word.text[0].isupper() else opposite


def _after_contrast(text: str, words: list[Piece]) -> Iterator[Proposal]:
    found = [
        (first, last) for first, last in contrasts([word.form for word in words]) if last < len(words)
    ]  # something follows
    if found:
        first, last = found[-1]
        phrase = text[words[first].start : words[last - 1].end]
        yield Proposal(CONTRAST, f"kept only what follows the last '{phrase}'", text[words[last].start :])


def _ends(text: str) -> Iterator[Proposal]:
    sentences = find_sentences(text)
    if len(sentences) < 2:
        return
    yield Proposal(ENDING, "kept only the last sentence", sentences[-1].text)
    yield Proposal(ENDING, "kept only the last two sentences", text[sentences[-2].start : sentences[-1].end])
    yield Proposal(OPENING, "kept only the first sentence", sentences[0].text)


def _without_one_word(text: str, words: list[Piece]) -> Iterator[Proposal]:
    half = MOST_WORDS // 2
    tried = words if len(words) <= MOST_WORDS else words[:half] + words[-half:]
    for word in tried:
        yield Proposal(ONE_WORD, f"left out '{word.text}'", cut(text, [word]))


def shuffles(text: str, how_many: int, seed: int) -> list[str]:
    """The text with its words in random orders; all else stays in place. Empty where no two words differ.

    The orders depend on the seed and on the text alone, not on where the text stands in a test set.
    """
    words = find_words(text)
    if len({word.form for word in words}) < 2:
        return []
    random = np.random.default_rng([seed, zlib.crc32(text.encode("utf-8", "surrogatepass"))])
    orders = [random.permutation(len(words)).tolist() for _ in range(how_many)]
    return [_with_words(text, words, [words[i].text for i in order]) for order in orders]


def _with_words(text: str, places: list[Piece], words: list[str]) -> str:
    """The text with other words in the places of its own, in one pass: a text may be very long."""
    parts, done = [], 0
    for place, word in zip(places, words, strict=True):
        parts += [text[done : place.start], word]
        done = place.end
    return "".join([*parts, text[done:]])
