"""What one gets without a neural network: the figures a trained model has to beat.

Uniform, character n-grams (modified Kneser–Ney) and compressors, all measured on the same held-out text. `NAMES` is the
order in which they are listed; `beside_a_run` says which of them stand beside every training.
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
from seqlab.core.reporting import Reporter
from seqlab.core.settings.lm import NGRAM_ORDERS
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
BASELINE_ORDER = NGRAM_ORDERS["char"]
ORDERS = (1, 3, 5, BASELINE_ORDER)


def ngram_name(order: int) -> str:
    return "unigram" if order == 1 else f"{order}-gram"


NGRAMS = {ngram_name(order): order for order in ORDERS}
NAMES = ("uniform", *NGRAMS, "xz", "ppmd")
BYTES_TO_COUNT, BYTES_TO_SCORE = 90, 60  # held for each byte of the training text and of the held-out text
MAX_XZ_BYTES = 2_000_000  # beside a run: beyond, xz takes longer than all the others, and ppmd is ahead of it
LEAST_PACKED = 1_000  # beside a run: a compressor writes some bytes later than it knows them, which is much of a little


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


def beside_a_run(train_bytes: int, held_out_bytes: int) -> tuple[str, ...]:
    """What every training is measured against."""
    names = ["uniform", ngram_name(BASELINE_ORDER)]
    if held_out_bytes >= LEAST_PACKED:
        names += ["xz", "ppmd"] if train_bytes + held_out_bytes <= MAX_XZ_BYTES else ["ppmd"]
    return tuple(names)


def held_bytes(train_bytes: int, held_out_bytes: int) -> int:
    """What measuring these holds in memory at most: counting n-grams takes more than compressing."""
    return BYTES_TO_COUNT * min(train_bytes, MAX_TRAINING_BYTES) + BYTES_TO_SCORE * held_out_bytes


def baselines(
    train_text: str,
    held_out: str,
    *,
    names: Sequence[str] = NAMES,
    counted: ModelScorer | None = None,
    reporter: Reporter | None = None,
) -> list[Baseline]:
    """Uniform, n-grams and compressors, as far as `names` has them; fitted on the training text's last 20 MB at most.

    `counted` is an n-gram of the whole training text that stands ready: it is not counted again where its characters
    are those of the baseline.
    """
    reporter = reporter or Reporter()
    train_text, note = last_bytes(train_text)
    tokenizer, ids = _characters(train_text)
    if counted is not None and (note or counted.tokenizer.sha256 != tokenizer.sha256):
        counted = None

    def nats_of(name: str) -> float:
        if name == "uniform":
            return uniform(tokenizer, held_out).total
        if name not in NGRAMS:
            return compressor_nats(name, train_text, held_out)
        if counted is not None and counted.model.order == NGRAMS[name]:
            return counted.score(held_out).total
        return ModelScorer(NGramLM.fit(ids, tokenizer.vocab_size, NGRAMS[name]), tokenizer).score(held_out).total

    found = []
    for name in sorted(names, key=NAMES.index):
        with reporter.task(f"baseline {name}", None):
            found.append(_baseline(name, nats_of(name), held_out, note))
    return found


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
    """How many more bytes a compressor writes once it has written the training text.

        nats = 8 ln 2 · [C(train + held_out) − C(train)]

    gzip looks back 32 KB and bz2 one block of 900 KB; xz has one dictionary that spans both texts, and ppmd a memory
    that holds both.
    """
    return COMPRESSORS[name](train_text.encode(), held_out.encode()) * SPELLING_NATS_PER_BYTE


Added = Callable[[bytes, bytes], int]
"""train, text -> C(train + text) − C(train)"""


def _in_two_files(size: Callable[[bytes, int], int]) -> Added:
    def added(train: bytes, text: bytes) -> int:
        total = len(train) + len(text)
        return size(train + text, total) - size(train, total)

    return added


def _xz_size(content: bytes, total: int) -> int:
    dictionary = min(MAX_XZ_DICTIONARY, max(4096, total))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": dictionary}]
    return len(lzma.compress(content, lzma.FORMAT_XZ, lzma.CHECK_NONE, filters=filters))


def _ppmd_added(train: bytes, text: bytes) -> int:
    """Prediction by partial matching (variant I of 7-Zip): contexts of up to 16 bytes, all of them kept.

    It writes as it reads, so that one pass tells what either text took; C leaves out the few bytes that end a file.
    """
    import pyppmd

    memory = min(MAX_PPMD_MEMORY, MIN_PPMD_MEMORY + PPMD_MEMORY_PER_BYTE * (len(train) + len(text)))
    encoder = pyppmd.Ppmd8Encoder(PPMD_ORDER, memory)
    encoder.encode(train)
    return len(encoder.encode(text))


COMPRESSORS: dict[str, Added] = {
    "gzip": _in_two_files(lambda content, total: len(zlib.compress(content, 9))),
    "bz2": _in_two_files(lambda content, total: len(bz2.compress(content, 9))),
    "xz": _in_two_files(_xz_size),
    "ppmd": _ppmd_added,
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
