"""What one gets without a neural network: the figures a trained model has to beat.

Uniform, character n-grams with Witten–Bell interpolation, and the compressor xz, all measured on the same
held-out text. A character that training never saw is scored as every model in seqlab scores it: the
unknown class plus 8 bits for each byte of its UTF-8 spelling.
"""

import lzma
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from seqlab.core.errors import DataError, UsageError
from seqlab.core.units import SPELLING_NATS_PER_BYTE

MAX_TRAINING_BYTES = 20_000_000
MAX_XZ_DICTIONARY = 1536 << 20
ORDER = 6
NOT_SEEN = -1

Ids = npt.NDArray[np.int64]
Probabilities = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Baseline:
    """The total surprise of one simple method over the held-out text, and what it is counted over."""

    name: str
    nats: float
    bytes: int
    characters: int
    note: str = ""
    """A restriction, such as a training text that was cut."""

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) / self.bytes

    @property
    def nats_per_character(self) -> float:
        return self.nats / self.characters

    @property
    def perplexity_per_character(self) -> float:
        return math.exp(self.nats_per_character)


def baselines(train_text: str, held_out: str, *, order: int = ORDER) -> list[Baseline]:
    """Uniform, n-grams of order 1 to `order`, and xz; fitted on the training text's last 20 MB at most."""
    if not train_text or not held_out:
        raise DataError(f"the {'held-out' if train_text else 'training'} text is empty: nothing to measure")
    train_text, note = _last_bytes(train_text, MAX_TRAINING_BYTES)
    grams = CharacterNGrams.fit(train_text, order)
    spelling = grams.spelling_nats(held_out)
    return [
        uniform(len(grams.alphabet) + 1, held_out, spelling_nats=spelling, note=note),
        *ngrams(grams, held_out, note=note),
        xz(train_text, held_out, note=note),
    ]


def uniform(n_symbols: int, held_out: str, *, spelling_nats: float = 0.0, note: str = "") -> Baseline:
    """Every symbol alike: ln n_symbols nats per character, plus the spelling of unknown ones."""
    return _baseline("uniform", len(held_out) * math.log(n_symbols) + spelling_nats, held_out, note)


def ngrams(grams: "CharacterNGrams", held_out: str, *, note: str = "") -> list[Baseline]:
    """One baseline for each order from 1 (unigram) to the order that was fitted."""
    spelling = grams.spelling_nats(held_out)
    return [
        _baseline(
            "unigram" if order == 1 else f"{order}-gram",
            spelling - float(np.log(probabilities).sum()),
            held_out,
            note,
        )
        for order, probabilities in enumerate(grams.probabilities(held_out), start=1)
    ]


def unigram(train_text: str, held_out: str) -> Baseline:
    """Characters by their frequency alone."""
    return ngrams(CharacterNGrams.fit(train_text, 1), held_out)[0]


def xz(train_text: str, held_out: str, *, note: str = "") -> Baseline:
    """How many more bytes the compressor needs once it has read the training text.

        nats = 8 ln 2 · [C(train + held_out) − C(train)]

    One dictionary spans both texts, so that any passage can be found again.
    """
    train, text = train_text.encode(), held_out.encode()
    dictionary = min(MAX_XZ_DICTIONARY, max(4096, len(train) + len(text)))
    more = _compressed_bytes(train + text, dictionary) - _compressed_bytes(train, dictionary)
    return _baseline("xz", more * SPELLING_NATS_PER_BYTE, held_out, note)


def _compressed_bytes(content: bytes, dictionary: int) -> int:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": dictionary}]
    return len(lzma.compress(content, lzma.FORMAT_XZ, lzma.CHECK_NONE, filters=filters))


def _baseline(name: str, nats: float, held_out: str, note: str) -> Baseline:
    return Baseline(name, nats, len(held_out.encode()), len(held_out), note)


def _last_bytes(text: str, limit: int) -> tuple[str, str]:
    """The end of the text, at most `limit` bytes of UTF-8, and a note if something was cut off."""
    # A character has at least one byte, so the last `limit` characters reach back far enough.
    end = text[-limit:].encode()
    if len(end) <= limit and len(text) <= limit:
        return text, ""
    return end[-limit:].decode("utf-8", "ignore"), f"fitted on the last {limit:,} bytes of the training text"


@dataclass(frozen=True)
class Level:
    """The n-grams of one order: a key is (index of the context) · (V + 1) + (id of the next character)."""

    keys: Ids
    """Ascending; the place of a key is the index of that n-gram as a context of the next order."""
    counts: Ids
    totals: Ids
    """N(ctx): how often each context is followed by anything."""
    distinct: Ids
    """T(ctx): by how many different characters."""

    def find(self, keys: Ids) -> Ids:
        """The place of each key, NOT_SEEN for those that training never met."""
        places = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        return np.where(self.keys[places] == keys, places, NOT_SEEN)


@dataclass(frozen=True)
class CharacterNGrams:
    """Interpolated n-grams over characters (Witten and Bell):

        p_k(c | ctx) = (count(ctx c) + T(ctx) · p_{k−1}(c | shorter ctx)) / (N(ctx) + T(ctx))
        p_0(c)       = 1 / (V + 1)            the alphabet of the training text and one unknown class

    A context that training never met has N = T = 0 and leaves p_{k−1} as it is. Contexts do not reach
    back beyond the beginning of the text.
    """

    alphabet: npt.NDArray[np.uint32]
    levels: tuple[Level, ...]

    @classmethod
    def fit(cls, text: str, order: int = ORDER) -> "CharacterNGrams":
        if order < 1:
            raise UsageError(f"the n-gram order is {order}; it must be at least 1")
        if not text:
            raise DataError("the training text is empty: n-grams have nothing to count")
        alphabet, characters = np.unique(_code_points(text), return_inverse=True)
        levels = islice(_levels(characters.astype(np.int64), len(alphabet) + 1), order)
        return cls(alphabet, tuple(levels))

    def ids(self, text: str) -> Ids:
        """Places in the alphabet; V for a character that training never saw."""
        points = _code_points(text)
        places = np.searchsorted(self.alphabet, points).clip(max=len(self.alphabet) - 1)
        return np.where(self.alphabet[places] == points, places, len(self.alphabet))

    def spelling_nats(self, text: str) -> float:
        """8 bits for every UTF-8 byte of the characters that training never saw."""
        unknown = _code_points(text)[self.ids(text) == len(self.alphabet)]
        utf8_bytes = 1 + (unknown >= 0x80) + (unknown >= 0x800).astype(int) + (unknown >= 0x10000)
        return float(utf8_bytes.sum()) * SPELLING_NATS_PER_BYTE

    def probabilities(self, text: str) -> Iterator[Probabilities]:
        """p_1, p_2, … of every character of the text, given those before it; one array for each order."""
        ids = self.ids(text)
        symbols = len(self.alphabet) + 1
        contexts = np.zeros(len(ids), np.int64)
        p = np.full(len(ids), 1 / symbols)
        for level in self.levels:
            known = contexts != NOT_SEEN
            grams = np.full(len(ids), NOT_SEEN)
            grams[known] = level.find(contexts[known] * symbols + ids[known])
            p = p.copy()
            p[known] = _interpolated(level, contexts[known], grams[known], p[known])
            yield p
            # The n-gram that ends here is the context of the next character.
            contexts = np.concatenate([[NOT_SEEN], grams[:-1]])


def _interpolated(level: Level, contexts: Ids, grams: Ids, shorter: Probabilities) -> Probabilities:
    """(count + T · shorter) / (N + T); a context that only ever ended the training text has N = T = 0."""
    count = np.where(grams == NOT_SEEN, 0, level.counts[grams])
    total, distinct = level.totals[contexts], level.distinct[contexts]
    weight = np.maximum(total + distinct, 1)
    return np.where(total > 0, (count + distinct * shorter) / weight, shorter)


def _levels(characters: Ids, symbols: int) -> Iterator[Level]:
    """Count order after order, as far as the text is long enough.

    Each n-gram's index is the context of the next order: keys stay small and exact, without hashing.
    """
    contexts, n_contexts = np.zeros(len(characters), np.int64), 1
    while len(characters):
        keys, grams, counts = np.unique(contexts * symbols + characters, return_inverse=True, return_counts=True)
        context_of_key = keys // symbols
        yield Level(
            keys=keys,
            counts=counts,
            totals=np.bincount(context_of_key, counts, n_contexts).astype(np.int64),
            distinct=np.bincount(context_of_key, minlength=n_contexts),
        )
        contexts, n_contexts, characters = grams[:-1], len(keys), characters[1:]


def _code_points(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)
