"""What one gets without a neural network: the figures a trained model has to beat.

Uniform, character n-grams (modified Kneser–Ney) and compressors, all measured on the same held-out text.
"""

from __future__ import annotations

import bz2
import lzma
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqlab.core.errors import DataError
from seqlab.core.types import Surprisals
from seqlab.core.units import SPELLING_NATS_PER_BYTE
from seqlab.data.pieces import cut_text
from seqlab.data.tokenizers import CharacterTokenizer
from seqlab.evaluation.spelling import spelling_of
from seqlab.evaluation.surprisal import ModelScorer, charge
from seqlab.models.ngram import NGramLM

MAX_TRAINING_BYTES = 20_000_000
MAX_XZ_DICTIONARY = 1536 << 20
PPMD_ORDER = 16
MIN_PPMD_MEMORY, MAX_PPMD_MEMORY = 1 << 20, 1 << 30
PPMD_MEMORY_PER_BYTE = 32  # of text: English takes less than 24; one that is full begins anew
ORDERS = (1, 3, 5, 7)


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


def baselines(train_text: str, held_out: str, *, orders: Sequence[int] = ORDERS) -> list[Baseline]:
    """Uniform, n-grams, xz and PPMd; fitted on the training text's last 20 MB at most."""
    train_text, note = last_bytes(train_text)
    tokenizer, ids = _characters(train_text)
    found = [_baseline("uniform", uniform(tokenizer, held_out).total, held_out, note)]
    for order in orders:
        model = NGramLM.fit(ids, tokenizer.vocab_size, order)
        name = "unigram" if order == 1 else f"{order}-gram"
        found.append(_baseline(name, ModelScorer(model, tokenizer).score(held_out).total, held_out, note))
    packed = ((name, compressor_nats(name, train_text, held_out)) for name in ("xz", "ppmd"))
    return [*found, *(_baseline(name, nats, held_out, note) for name, nats in packed)]


def character_ngram(train_text: str, order: int) -> ModelScorer:
    """A character n-gram fitted to a text, ready to score others."""
    tokenizer, ids = _characters(train_text)
    return ModelScorer(NGramLM.fit(ids, tokenizer.vocab_size, order), tokenizer)


def uniform(tokenizer: CharacterTokenizer, held_out: str) -> Surprisals:
    """Every character of the alphabet and the unknown class alike; unknown ones also pay for their spelling."""
    encoding = tokenizer.encode(held_out)
    nats = np.full(len(encoding), math.log(tokenizer.vocab_size))
    return charge(nats, encoding, held_out, spelling_of(tokenizer), None)


def compressor_nats(name: str, train_text: str, held_out: str) -> float:
    """How many more bytes a compressor needs once it has read the training text.

        nats = 8 ln 2 · [C(train + held_out) − C(train)]

    gzip looks back 32 KB and bz2 one block of 900 KB; xz has one dictionary that spans both texts, and ppmd a memory
    that holds both.
    """
    train, text = train_text.encode(), held_out.encode()
    size = COMPRESSORS[name](len(train) + len(text))
    return (size(train + text) - size(train)) * SPELLING_NATS_PER_BYTE


def _gzip_size(total: int) -> Callable[[bytes], int]:
    return lambda content: len(zlib.compress(content, 9))


def _bz2_size(total: int) -> Callable[[bytes], int]:
    return lambda content: len(bz2.compress(content, 9))


def _xz_size(total: int) -> Callable[[bytes], int]:
    dictionary = min(MAX_XZ_DICTIONARY, max(4096, total))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": dictionary}]
    return lambda content: len(lzma.compress(content, lzma.FORMAT_XZ, lzma.CHECK_NONE, filters=filters))


def _ppmd_size(total: int) -> Callable[[bytes], int]:
    """Prediction by partial matching (variant I of 7-Zip): contexts of up to 16 bytes, all of them kept."""
    import pyppmd

    memory = min(MAX_PPMD_MEMORY, MIN_PPMD_MEMORY + PPMD_MEMORY_PER_BYTE * total)
    return lambda content: len(pyppmd.compress(content, max_order=PPMD_ORDER, mem_size=memory, variant="I"))


COMPRESSORS: dict[str, Callable[[int], Callable[[bytes], int]]] = {
    "gzip": _gzip_size,
    "bz2": _bz2_size,
    "xz": _xz_size,
    "ppmd": _ppmd_size,
}


def _characters(train_text: str) -> tuple[CharacterTokenizer, Any]:
    if not train_text:
        raise DataError("the training text is empty: nothing to count")
    tokenizer = CharacterTokenizer.fit(cut_text(train_text))
    return tokenizer, tokenizer.encode(train_text).ids


def _baseline(name: str, nats: float, held_out: str, note: str) -> Baseline:
    if not held_out:
        raise DataError("the held-out text is empty: nothing to measure")
    return Baseline(name, nats, len(held_out.encode()), len(held_out), note)


def last_bytes(text: str, limit: int = MAX_TRAINING_BYTES) -> tuple[str, str]:
    """The end of the text, at most `limit` bytes of UTF-8, and a note if something was cut off."""
    # A character has at least one byte, so the last `limit` characters reach back far enough.
    end = text[-limit:].encode()
    if len(end) <= limit and len(text) <= limit:
        return text, ""
    return end[-limit:].decode("utf-8", "ignore"), f"fitted on the last {limit:,} bytes of the training text"
