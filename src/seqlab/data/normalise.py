"""Normalisation steps, each with the alignment that says what it changed.

A step turns a text x into a text y. It is kept as a list of edits: pieces of x and what became of them, with
unchanged text in between. From the edits `seqlab.evaluation.restoration` computes what it costs to go back.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import UsageError, nearest

CodePoints = NDArray[np.int64]
Positions = NDArray[np.int64]
REPLACEMENT = "?"  # what `ascii` writes for a character that has no ASCII form


def code_points(text: str) -> CodePoints:
    """The code point of every character; a lone surrogate counts as one."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)


@dataclass(frozen=True)
class Edits:
    """source → output: source[start:end] became output[output_start:output_end]; all else is unchanged.

    Positions are in characters, in the order of the text. A dropped piece has an empty output, an added one
    an empty source, and dropped pieces never touch: what stood between two kept characters is one piece.
    """

    source: str
    output: str
    start: Positions
    end: Positions
    output_start: Positions
    output_end: Positions

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def origin(self) -> Positions:
        """For every position of the output, its end included, the position in the source: (len(output) + 1,)."""
        moved: Positions = np.zeros(len(self.output) + 1, np.int64)
        np.add.at(moved, self.output_end, (self.end - self.start) - (self.output_end - self.output_start))
        origin = np.arange(len(self.output) + 1) + np.cumsum(moved)
        width = self.output_end - self.output_start
        within = np.arange(width.sum()) - np.repeat(np.cumsum(width) - width, width)
        origin[np.repeat(self.output_start, width) + within] = np.repeat(self.start, width)
        return origin


@dataclass(frozen=True)
class Step:
    """One normalisation step: x → edits, with what it does and what it loses."""

    edit: Callable[[str], Edits]
    does: str
    loses: str


@dataclass(frozen=True)
class Normalised:
    """A text after some steps: `edits[i]` belongs to `steps[i]` and starts from the text before it."""

    original: str
    steps: tuple[str, ...]
    edits: tuple[Edits, ...]

    @property
    def text(self) -> str:
        return self.edits[-1].output if self.edits else self.original

    def origin(self, steps: int | None = None) -> Positions:
        """Where each position of the text after so many steps (all of them) stands in the original, in characters."""
        origin: Positions = np.arange(len(self.original) + 1)
        for edits in self.edits[:steps]:
            origin = origin[edits.origin]
        return origin


def parse_steps(text: str) -> tuple[str, ...]:
    """``lower,digits`` → ("lower", "digits"), in the order in which they are applied."""
    names = tuple(name.strip() for name in text.split(",")) if text.strip() else ()
    for place, name in enumerate(names):
        if name not in STEPS:
            raise UsageError(f"unknown normalisation step '{name}'{nearest(name, STEPS)}")
        if name in names[:place]:
            raise UsageError(f"normalisation step '{name}' is given twice in '{text}'; give it once")
    return names


def normalise(text: str, steps: Sequence[str]) -> Normalised:
    """The text after the steps, in their order."""
    names, done = parse_steps(",".join(steps)), []
    now = text
    for name in names:
        done.append(STEPS[name].edit(now))
        now = done[-1].output
    return Normalised(text, names, tuple(done))


# Making edits


def _edits(source: str, start: Positions, end: Positions, outputs: Sequence[str]) -> Edits:
    """Edits from the pieces that changed, in order and not overlapping, and what each became."""
    kept = np.concatenate([[0], end])
    parts = [part for a, b, new in zip(kept, start, outputs, strict=False) for part in (source[a:b], new)]
    return _aligned(source, "".join([*parts, source[kept[-1] :]]), start, end, _lengths(outputs))


def _aligned(source: str, output: str, start: Positions, end: Positions, width: Positions) -> Edits:
    """Place pieces of known output width in the output, joining dropped pieces that touch."""
    output_start = start + np.cumsum(width - (end - start)) - (width - (end - start))
    dropped = width == 0
    joined = np.zeros(len(start), bool)  # to the piece before
    joined[1:] = dropped[1:] & dropped[:-1] & (start[1:] == end[:-1])
    last = np.append(~joined[1:], True)[: len(start)]
    return Edits(source, output, start[~joined], end[last], output_start[~joined], (output_start + width)[last])


def _lengths(texts: Sequence[str]) -> Positions:
    return np.fromiter(map(len, texts), np.int64, len(texts))


def _by_character(form: Callable[[str], str]) -> Callable[[str], Edits]:
    """A step that looks at one character at a time; `form` is asked once for each distinct one."""

    def edit(text: str) -> Edits:
        codes = code_points(text)
        distinct, which = np.unique(codes, return_inverse=True)
        forms = [form(chr(code)) for code in distinct]
        changed = np.array([new != chr(code) for new, code in zip(forms, distinct, strict=True)], bool)
        start: Positions = np.flatnonzero(changed[which])
        output = text.translate({int(code): new for code, new in zip(distinct, forms, strict=True)})
        return _aligned(text, output, start, start + 1, _lengths(forms)[which[start]])

    return edit


def _by_pattern(pattern: str, form: Callable[[re.Match[str]], str]) -> Callable[[str], Edits]:
    """A step that rewrites every match of a pattern."""
    compiled = re.compile(pattern)

    def edit(text: str) -> Edits:
        changes = [(m.start(), m.end(), new) for m in compiled.finditer(text) if (new := form(m)) != m[0]]
        start = np.fromiter((change[0] for change in changes), np.int64, len(changes))
        end = np.fromiter((change[1] for change in changes), np.int64, len(changes))
        return _edits(text, start, end, [change[2] for change in changes])

    return edit


# The steps


@cache
def _joins_back() -> frozenset[int]:
    """What may compose with the character before it: second halves of pairs, Hangul vowels and finals."""
    pairs = (unicodedata.decomposition(chr(code)).split() for code in range(0x110000))
    seconds = {int(pair[1], 16) for pair in pairs if len(pair) == 2 and not pair[0].startswith("<")}
    return frozenset(seconds | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3)))


def _starts_afresh(character: str) -> bool:
    """Whether NFKC never reaches across the place before this character."""
    if character.isascii():
        return True
    first = unicodedata.normalize("NFKD", character)[0]
    return unicodedata.combining(first) == 0 and ord(first) not in _joins_back()


def _nfkc(text: str) -> Edits:
    """NFKC, piece by piece between the places that it never reaches across."""
    codes = code_points(text)
    distinct, which = np.unique(codes, return_inverse=True)
    afresh = np.array([_starts_afresh(chr(code)) for code in distinct], bool)[which]
    stays = np.array([unicodedata.normalize("NFKC", chr(code)) == chr(code) for code in distinct], bool)[which]
    afresh[:1] = True
    start = np.flatnonzero(afresh)
    end = np.append(start[1:], len(text))[: len(start)]
    suspects = np.flatnonzero(~stays[start] | (end - start > 1))
    forms = {int(k): unicodedata.normalize("NFKC", text[start[k] : end[k]]) for k in suspects}
    changed = np.array([k for k, form in forms.items() if form != text[start[k] : end[k]]], np.int64)
    return _edits(text, start[changed], end[changed], [forms[int(k)] for k in changed])


_TYPOGRAPHIC = {
    **dict.fromkeys("‘’‚‛′‹›´ʻʼʹ", "'"),
    **dict.fromkeys("“”„‟″«»", '"'),
    **dict.fromkeys("‐‑‒–−", "-"),
    **dict.fromkeys("—―", "--"),
    **dict.fromkeys("•·∙", "*"),
    **{
        pair[0]: pair[1:]
        for pair in ("ÆAE", "æae", "ŒOE", "œoe", "ßss", "ØO", "øo", "ŁL", "łl", "ĐD", "đd", "ÐD", "ðd")
    },
    **{pair[0]: pair[1:] for pair in ("ÞTh", "þth", "ıi", "ħh", "×x", "÷/", "⁄/", "∕/")},
    "\u2028": "\n",
    "\u2029": "\n",
    "\u0085": "\n",
}


def _ascii_form(character: str) -> str:
    """The typographic table, else NFKD without accents; what is left over becomes the replacement."""
    if character.isascii():
        return character
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return ""
    if character in _TYPOGRAPHIC:
        return _TYPOGRAPHIC[character]
    parts = [_TYPOGRAPHIC.get(c, c) for c in unicodedata.normalize("NFKD", character) if not unicodedata.combining(c)]
    return "".join(parts) if all(part.isascii() for part in parts) else REPLACEMENT


def _digit_form(character: str) -> str:
    return "0" if unicodedata.category(character) == "Nd" else character


def _without_punctuation(character: str) -> str:
    return "" if unicodedata.category(character)[0] in "PS" else character


# What a play is written with stays. A run of anything else goes, with the marks inside it ("1,539") and, unless a
# letter follows, the space before it, so that no gap is left behind. A model trained on plays pays 12 to 18 bits for
# every digit, bracket and quote of an encyclopedia, each time anew, and what it reads next surprises it too; an
# adaptive coder learns after a few that they are common: about 7 bits for each, its place included. So this step
# lowers the honest total.
_FOREIGN = r"[^A-Za-z\s.,;:!?'-]"
_FOREIGN_RUN = rf"(?>{_FOREIGN}(?:[^A-Za-z\s]*{_FOREIGN})?)"
_PROSE = rf" {_FOREIGN_RUN}(?![A-Za-z])|{_FOREIGN_RUN}"

_TREEBANK = "|".join(
    [
        r'(?P<open>(?<![^\s(\[{<])")|(?P<close>")',
        r"""(?<=[^\s"])(?=[;@#$%&?!()\[\]{}<>])|(?<=[;@#$%&?!()\[\]{}<>])(?=[^\s"])""",  # marks that stand alone
        r"""(?<=[^\s"])(?=[,:](?!\d))|(?<=[,:])(?=[^\s\d"])""",  # but not in 1,539 or 12:30
        r"""(?<=[^\s"-])(?=--)|(?<=--)(?=[^\s"-])|(?<=[^\s".])(?=\.\.\.)|(?<=\.\.\.)(?=[^\s".])""",
        r"""(?<=[^\W\d_])(?<!\b[A-Z])(?=\.[\])}>"']*(?:\s+[^\sa-z]|\s*\Z))""",  # the full stop, not that of an initial
        r"(?<=[^\W\d_])(?=[nN]'[tT]\b)|(?<=[^\W\d_])(?='(?:[sSmMdD]|ll|LL|re|RE|ve|VE)\b)",  # do n't, he 's
        r"(?<=[sS])(?='(?!\S))",  # the players '
    ]
)


def _treebank_form(match: re.Match[str]) -> str:
    """The quotes `` and ''; any other match is a place where a space goes."""
    if not match[0]:
        return " "
    text, start, end = match.string, match.start(), match.end()
    after = " " if text[end : end + 1].strip() else ""
    if match["open"]:
        return "``" + after
    before = " " if text[start - 1 : start].strip() else ""
    return before + "''" + after


_BREAK = r"(?:\r\n|\r|\n)"
_BLANK = r"[^\S\r\n]"

STEPS: dict[str, Step] = {
    "nfkc": Step(_nfkc, "Unicode NFKC: one form for each character", "which of several equivalent forms stood there"),
    "ascii": Step(
        _by_character(_ascii_form),
        f"accents dropped, typographic marks and ligatures in ASCII, any other character to {REPLACEMENT}",
        "accents, kinds of quote and dash, other scripts",
    ),
    "lower": Step(_by_character(str.lower), "lower case", "capitals"),
    "digits": Step(_by_character(_digit_form), "every decimal digit to 0", "numbers"),
    "punctuation": Step(
        _by_character(_without_punctuation),
        "punctuation and symbols (Unicode categories P and S) dropped",
        "punctuation and symbols",
    ),
    "spaces": Step(
        _by_pattern(rf"{_BLANK}+", lambda match: " "),
        "every run of blanks within a line to one space",
        "tabs, indents and wide gaps",
    ),
    "lines": Step(
        _by_pattern(rf"(?<=\S){_BLANK}*{_BREAK}{_BLANK}*(?=\S)", lambda match: " "),
        "line breaks inside a paragraph to a space; blank lines stay",
        "where lines ended",
    ),
    "prose": Step(
        _by_pattern(_PROSE, lambda match: ""),
        "runs of anything but A-Z, a-z, white space and . , ; : ! ? ' - dropped",
        "numbers, brackets, double quotes, symbols, accented letters and other scripts",
    ),
    "ptb": Step(
        _by_pattern(_TREEBANK, _treebank_form),
        "as the Penn Treebank has it: marks and clitics set off by spaces (do n't, he 's), quotes as `` and ''",
        "which spaces were there, and which quotes",
    ),
}
