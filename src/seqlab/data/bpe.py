"""Byte-pair encoding."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from seqlab.core.settings.lm import LEAST_VOCABULARY
from seqlab.data.lexicon import Growing, Lexicon, letters_of, ragged, starts_of_words
from seqlab.data.tokenizers import Ids, Tokenizer, refuse_surrogates


class BPETokenizer(Tokenizer):
    """Byte-level byte-pair encoding, trained with the `tokenizers` library: nothing is unknown."""

    kind = "bpe"
    one_spelling = False
    least_vocab_size = LEAST_VOCABULARY["bpe"]
    most_remembered = 1_000_000  # words
    _space_and_word = re.compile(r"\s*\S+|\s+")
    longest_token = 16  # bytes; a text that repeats itself would else become a handful of enormous tokens

    def __init__(self, model: str) -> None:
        from tokenizers import Tokenizer as Library

        self._model = model
        self._library = Library.from_str(model)
        self.vocab_size = self._library.get_vocab_size()
        letters = {letter: byte for byte, letter in letter_of_byte().items()}
        tokens = sorted(self._library.get_vocab().items(), key=lambda item: item[1])
        self._bytes = [bytes(letters[letter] for letter in token) for token, _ in tokens]
        self._lengths = np.array([len(b) for b in self._bytes], np.int64)

    @classmethod
    def fit(cls, pieces: Iterable[str], vocab_size: int | None = None) -> BPETokenizer:
        from tokenizers import Tokenizer as Library
        from tokenizers import models, pre_tokenizers, trainers

        size = cls.checked_size(vocab_size)
        library = Library(models.BPE())
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            initial_alphabet=sorted(letter_of_byte().values()),
            max_token_length=cls.longest_token,
            show_progress=False,
        )
        library.train_from_iterator(pieces, trainer)
        return cls(library.to_str())

    def encode_pieces(self, pieces: Iterable[str]) -> Iterator[tuple[Ids, Ids]]:
        """Each word, with the space before it, is merged once and remembered: no merge crosses into white space."""
        remembered = _Merged()
        for piece in pieces:
            letters = letters_of(piece)
            starts = starts_of_words(letters)
            words, new = remembered.words.number(piece, letters, starts, np.append(starts[1:], len(letters)))
            remembered.learn([one.ids for one in self._library.encode_batch_fast(new)])
            ids = remembered.ids_of(words)
            yield ids, self._lengths[ids]
            if len(remembered.words) > self.most_remembered:
                remembered = _Merged()

    def encode_each(self, texts: Sequence[str]) -> list[Ids]:
        """Every different word is merged once for all texts."""
        for text in texts:
            refuse_surrogates(text)
        words = [self._space_and_word.findall(text) for text in texts]
        different = list(dict.fromkeys(word for of_text in words for word in of_text))
        merged = {w: e.ids for w, e in zip(different, self._library.encode_batch_fast(different), strict=True)}
        return [np.array([i for word in of_text for i in merged[word]], np.int64) for of_text in words]

    def spelling(self, token: int, previous: int | None) -> bytes:
        return self._bytes[token]

    def content(self) -> dict[str, Any]:
        return {"tokenizers": json.loads(self._model)}

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> BPETokenizer:
        return cls(json.dumps(content["tokenizers"]))


class _Merged:
    """Words that were merged before, and the ids of each."""

    def __init__(self) -> None:
        self.words = Lexicon()
        self._ids, self._starts, self._counts = (Growing(np.int64) for _ in range(3))

    def learn(self, merged: Sequence[Sequence[int]]) -> None:
        """The ids of the words that were numbered last."""
        counts = np.array([len(ids) for ids in merged], np.int64)
        self._starts.extend(self._ids.size + np.cumsum(counts) - counts)
        self._counts.extend(counts)
        self._ids.extend(np.array([i for ids in merged for i in ids], np.int64))

    def ids_of(self, words: Ids) -> Ids:
        found: Ids = self._ids.filled[ragged(self._starts.filled[words], self._counts.filled[words])]
        return found


def letter_of_byte() -> dict[int, str]:
    """The letters by which byte-level BPE writes bytes: printable Latin-1 as itself, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {b: chr(b) for b in printable} | {b: chr(0x100 + i) for i, b in enumerate(others)}
