"""Words and sentences of a text with their places, so that a piece can be cut out exactly.

A word is a run of letters and digits; apostrophes and hyphens inside it belong to it (`isn't`, `well-made`),
and a line break of HTML (`<br />`) is no word. A sentence ends with its line, with such a break, or with `.`, `!`,
`?` or `…` before white space, unless the stop belongs to a title or an initial (`Mr.`, `J.`). Places count characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# Accents that stand apart from their letter, and the vowel signs of Indic scripts, are no letters to `re`.
_LETTERS = r"[^\W_](?:[^\W_]|[\u0300-\u036f\u0900-\u0963\u0966-\u0dff])*"
_BREAK = r"(?i:<br\s*/?>)"
_WORD = re.compile(rf"{_BREAK}|(?P<word>{_LETTERS}(?:['’‑-]{_LETTERS})*)")
_END = re.compile(rf"""{_BREAK}|[\n\r]+|[.!?…]+["'”’)\]]*(?=\s|$)""")
_TITLE = re.compile(r"(?:^|\W)(?:(?i:mr|mrs|ms|dr|prof|st|vs|e\.g|i\.e)|[A-HJ-Z])$")  # "So did I." is an end
_TITLE_CHARACTERS = 6  # the longest title and what stands before it
_CLINGS_TO_THE_LEFT = ".,;:!?…)]"


@dataclass(frozen=True)
class Piece:
    """text[start:end]"""

    start: int
    end: int
    text: str

    @property
    def form(self) -> str:
        return _form(self.text)


def find_words(text: str) -> list[Piece]:
    return [Piece(*found.span(), found.group()) for found in _WORD.finditer(text) if found["word"]]


def has_words(text: str) -> bool:
    return any(found["word"] for found in _WORD.finditer(text))


def word_forms(text: str) -> list[str]:
    """The words as they are compared and counted: without case, with the straight apostrophe and hyphen."""
    return [_form(found.group()) for found in _WORD.finditer(text) if found["word"]]


def _form(word: str) -> str:
    return word.casefold().replace("’", "'").replace("‑", "-")


def find_sentences(text: str) -> list[Piece]:
    """Sentences with at least one word, without the white space around them; each word is in exactly one."""
    sentences: list[Piece] = []
    start = 0
    for end in (*_sentence_ends(text), len(text)):
        inside = text[start:end]
        first = start + len(inside) - len(inside.lstrip())
        inside = inside.strip()
        if has_words(inside):
            sentences.append(Piece(first, first + len(inside), inside))
        start = end
    return sentences


def _sentence_ends(text: str) -> Iterator[int]:
    for found in _END.finditer(text):
        before = text[max(0, found.start() - _TITLE_CHARACTERS) : found.start()]
        if found.group() != "." or not _TITLE.search(before):
            yield found.end()


def cut(text: str, pieces: Iterable[Piece]) -> str:
    """The text without these pieces, none of which overlap; the space that each one leaves is closed."""
    return replace(text, [(piece, "") for piece in pieces])


def replace(text: str, changes: Iterable[tuple[Piece, str]]) -> str:
    """The text with each piece exchanged for other words; where there are none, the piece is cut out."""
    from_the_end = sorted(changes, key=lambda change: -change[0].start)  # the places before it stay valid
    for piece, words in from_the_end:
        left, right = text[: piece.start], text[piece.end :]
        text = left + words + right if words else _closed(left, right)
    return text


def _closed(left: str, right: str) -> str:
    """Two ends with the white space of one side between them: that with a line break, else that on the left.

    At an end of the text, and before a stop or a comma that stood at the piece cut out, there is none.
    """
    left_solid, right_solid = left.rstrip(), right.lstrip()
    before, after = left[len(left_solid) :], right[: len(right) - len(right_solid)]
    if not left_solid or not right_solid:
        return left_solid + right_solid
    if not after:
        clings = right_solid[0] in _CLINGS_TO_THE_LEFT and "\n" not in before
        return left_solid + ("" if clings else before) + right_solid
    return left_solid + (after if not before or ("\n" in after and "\n" not in before) else before) + right_solid
