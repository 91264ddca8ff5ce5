"""What an unknown token pays beside its class: its spelling, so that a closed vocabulary scores any string.

Unknown word or white space s, from a tokenizer with vocabulary W:

    −ln p(s | unknown) = −ln p(kind) − ln [ q(s) / (1 − Σ_{w ∈ W} q(w)) ]

q spells a string character by character up to an end symbol: a Kneser–Ney character model fitted to the rare
words of the training text (each once), with one class for all characters that it never saw. Those cost
−ln p(length of their UTF-8) and are equally likely within that length. White space has a model of its own.
So the known tokens and the spellings together share the mass of one: no string is counted twice or lost.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.types import Encoding
from seqlab.data.tokenizers import CharacterTokenizer, WordTokenizer
from seqlab.models.ngram import NGramLM

ORDER = 5
END, OTHER = 0, 1  # symbols of a speller; characters follow
LENGTH_SHARES = (1 / 2, 1 / 4, 1 / 8, 1 / 8)  # of characters with 1, 2, 3, 4 bytes among those never seen
CODE_POINTS = (0x80, 0x800 - 0x80, 0x10000 - 0x800 - 0x800, 0x110000 - 0x10000)  # of each length; no surrogates
SPACES = tuple(c for c in map(chr, range(0x3001)) if c.isspace())

Numbers = NDArray[np.float64]


class UnseenCharacters:
    """A law over all characters but some: first how many bytes they have, then all of that length alike."""

    def __init__(self, seen: Iterable[str]) -> None:
        left = list(CODE_POINTS)
        for character in set(seen):
            left[len(character.encode()) - 1] -= 1
        shares = [share if count else 0.0 for share, count in zip(LENGTH_SHARES, left, strict=True)]
        total = sum(shares)
        self._nats = [
            math.log(count * total / share) if count else math.inf for share, count in zip(shares, left, strict=True)
        ]

    def nats(self, character: str) -> float:
        return self._nats[len(character.encode()) - 1]


class Speller:
    """A law over non-empty strings outside a vocabulary, learnt from examples.

    With `alphabet` given, the strings are over it alone; else any character but white space may occur.
    """

    def __init__(self, examples: Sequence[str], vocabulary: Sequence[str], alphabet: Sequence[str] | None) -> None:
        self.alphabet = sorted(set("".join(examples))) if alphabet is None else sorted(alphabet)
        self._open = alphabet is None
        first = 2 if self._open else 1  # the class OTHER exists where the alphabet is open
        self._symbol = {c: k for k, c in enumerate(self.alphabet, start=first)}
        self._unseen = UnseenCharacters([*self.alphabet, *SPACES])
        text, _ = self._joined(examples)
        self.model = NGramLM.fit(text, first + len(self.alphabet), ORDER)
        self.vocabulary = list(vocabulary)

    def _joined(self, strings: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Strings as one row of symbols, so far apart that none sees another; and which of them to count."""
        apart = [END] * (ORDER - 1)
        symbols, counted = list(apart), [False] * len(apart)
        for string in strings:
            symbols += [self._symbol.get(c, OTHER) for c in string] + apart
            counted += [True] * (len(string) + 1) + [False] * (ORDER - 2)
        return np.array(symbols, np.int64), np.array(counted, bool)

    def plain_nats(self, strings: Sequence[str]) -> Numbers:
        """−ln q of each string, the vocabulary not yet excluded. The empty string has no mass."""
        if not strings:
            return np.zeros(0)
        symbols, counted = self._joined(strings)
        nats = self.model.nats_of(symbols)[counted]
        ends = np.cumsum([len(s) + 1 for s in strings])
        sums = np.add.reduceat(nats, np.concatenate([[0], ends[:-1]]))
        unseen = [sum(self._unseen.nats(c) for c in s if c not in self._symbol) for s in strings]
        law: Numbers = sums + np.array(unseen) + math.log1p(-self.empty_mass)
        return law

    @cached_property
    def empty_mass(self) -> float:
        """What the character model would give to ending at once."""
        start = np.array([END] * ORDER)
        return math.exp(-self.model.nats_of(start)[-1])

    @cached_property
    def excluded_mass(self) -> float:
        """Σ q(w) over the vocabulary."""
        return math.fsum(np.exp(-self.plain_nats(self.vocabulary)))

    def nats(self, strings: Sequence[str]) -> Numbers:
        """−ln p of strings that are not in the vocabulary."""
        return self.plain_nats(strings) + math.log1p(-self.excluded_mass)


class WordSpelling:
    """Unknown words and unknown white space of a word tokenizer."""

    def __init__(self, tokenizer: WordTokenizer) -> None:
        rare, known = tokenizer.rare, tokenizer.words
        words = [w for w in rare.words if not w.isspace()] or [w for w in known if not w.isspace()] or ["a"]
        gaps = [w for w in rare.words if w.isspace()] or [w for w in known if w.isspace()] or ["\n"]
        self.words = Speller(words, [w for w in known if not w.isspace()], None)
        self.gaps = Speller(gaps, [w for w in known if w.isspace()], SPACES)
        self.gap_share = (rare.gap_tokens + 0.5) / (rare.gap_tokens + rare.word_tokens + 1)

    def nats(self, tokens: Sequence[str], after_gap: NDArray[np.bool_]) -> Numbers:
        """−ln p(token | unknown); white space never follows white space."""
        spelled = np.zeros(len(tokens))
        is_gap = np.array([t.isspace() for t in tokens], bool)
        for speller, chosen, share in (
            (self.gaps, is_gap, np.full(len(tokens), self.gap_share)),
            (self.words, ~is_gap, np.where(after_gap, 1.0, 1 - self.gap_share)),
        ):
            strings = list(itertools.compress(tokens, chosen))
            spelled[chosen] = speller.nats(strings) - np.log(share[chosen])
        return spelled


class CharacterSpelling:
    """Characters outside the alphabet."""

    def __init__(self, tokenizer: CharacterTokenizer) -> None:
        self._law = UnseenCharacters(tokenizer.characters)

    def nats(self, tokens: Sequence[str], after_gap: NDArray[np.bool_]) -> Numbers:
        return np.array([self._law.nats(token) for token in tokens], np.float64)


def spelling_of(tokenizer: Any) -> WordSpelling | CharacterSpelling | None:
    """The spelling of what a tokenizer does not know; None where nothing is unknown."""
    if isinstance(tokenizer, WordTokenizer):
        return WordSpelling(tokenizer)
    return CharacterSpelling(tokenizer) if isinstance(tokenizer, CharacterTokenizer) else None


def follows_gap(encoding: Encoding, text: str, tokenizer: Any) -> NDArray[np.bool_] | None:
    """Which tokens stand after a token of white space; None where the tokenizer has no such tokens."""
    if not isinstance(tokenizer, WordTokenizer):
        return None
    is_gap = np.isin(encoding.ids, tokenizer.gap_ids)
    unknown = np.flatnonzero(encoding.unknown)
    is_gap[unknown] = [written.isspace() for written in _written(encoding, text, unknown)]
    return np.concatenate([[False], is_gap[:-1]])[: len(is_gap)]


def spelling_nats(encoding: Encoding, text: str, spelling: Any, after_gap: NDArray[np.bool_] | None) -> Numbers:
    """What every token pays for its spelling: nothing if it is known."""
    places = np.flatnonzero(encoding.unknown)
    # A word's span holds the one space before it, which is expected and part of its class.
    tokens = [t if t.isspace() else t.lstrip() for t in _written(encoding, text, places)]
    after = np.zeros(len(places), bool) if after_gap is None else after_gap[places]
    charged = np.zeros(len(encoding))
    charged[places] = spelling.nats(tokens, after)
    return charged


def _written(encoding: Encoding, text: str, places: NDArray[np.int64]) -> list[str]:
    content = text.encode() if len(places) else b""
    return [content[encoding.start[k] : encoding.end[k]].decode() for k in places]
