"""Tokenizers: text to ids with byte spans, and back.

All four share one contract. `encode` gives ids whose byte spans partition the text; `decode` gives the text back
wherever nothing is unknown. Ids run from 0 to vocab_size − 1; the begin id, which precedes every text and is never
predicted, is vocab_size. Running text has no end; a task whose texts end takes `tokenizer.with_end()`: the last id of
the vocabulary is then the end, which is predicted and writes nothing, and the id after the begin id is padding.
"""

from __future__ import annotations

import codecs
import copy
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import DamageError, DataError, SeqlabError, UsageError
from seqlab.core.files import canonical_json, sha256_of, write_bytes
from seqlab.core.registry import TOKENIZERS, look_up
from seqlab.core.settings.lm import LEAST_VOCABULARY, default_vocab_size
from seqlab.core.types import Encoding
from seqlab.data.lexicon import (
    NEW,
    Growing,
    Letters,
    Lexicon,
    bytes_before,
    letters_of,
    starts_of_words,
    white_space,
)
from seqlab.data.pieces import cut_text

Ids = NDArray[np.int64]
UNKNOWN = 0  # id of the unknown class in the tokenizers that have one
UNKNOWN_BYTES = "\ufffd".encode()
FORMAT = 1


class Tokenizer(ABC):
    kind: ClassVar[str]
    vocab_size: int
    unknown_id: int | None = None
    end_id: int | None = None
    one_spelling: ClassVar[bool] = True  # every text is written by one sequence of tokens only
    least_vocab_size: ClassVar[int | None] = None  # None: the size of the vocabulary is not a choice

    @classmethod
    def checked_size(cls, vocab_size: int | None) -> int:
        """The size to learn; None means the default for a text of unknown length."""
        least = cls.least_vocab_size
        assert least is not None, f"{cls.kind} has no size to choose"
        size = vocab_size if vocab_size is not None else default_vocab_size(cls.kind, 0) or least
        if size < least:
            raise UsageError(f"--vocab-size {size} is too small for {cls.kind}; the least is {least}")
        return size

    @classmethod
    @abstractmethod
    def fit(cls, pieces: Iterable[str], vocab_size: int | None = None) -> Tokenizer:
        """Learn the vocabulary from pieces of training text."""

    @abstractmethod
    def encode_pieces(self, pieces: Iterable[str]) -> Iterator[tuple[Ids, Ids]]:
        """(ids, byte lengths) of each piece of one text."""

    @abstractmethod
    def spelling(self, token: int, previous: int | None) -> bytes:
        """What a token other than the end writes after the token `previous` (None: at the start of a text)."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """What `from_content` needs to make the same tokenizer again, as JSON values."""

    @classmethod
    @abstractmethod
    def from_content(cls, content: dict[str, Any]) -> Tokenizer: ...

    @property
    def begin_id(self) -> int:
        return self.vocab_size

    @property
    def padding_id(self) -> int | None:
        """What fills up shorter texts, where lengths say so; None without an end."""
        return None if self.end_id is None else self.begin_id + 1

    def with_end(self) -> Self:
        """The same tokenizer with one more id, the end, which `encode` never gives."""
        if self.end_id is not None:
            return self
        ended = copy.copy(self)
        ended.__dict__.pop("sha256", None)
        ended.end_id, ended.vocab_size = self.vocab_size, self.vocab_size + 1
        return ended

    def encode(self, text: str) -> Encoding:
        refuse_surrogates(text)
        parts = list(self.encode_pieces(cut_text(text)))
        nothing = np.zeros(0, np.int64)
        ids = np.concatenate([nothing, *(ids for ids, _ in parts)])
        end = np.cumsum(np.concatenate([nothing, *(lengths for _, lengths in parts)]))
        start = np.concatenate([nothing, [0], end[:-1]])[: len(end)]
        return Encoding(ids, start, end, self.is_unknown(ids))

    def encode_each(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of many short texts, each by itself."""
        return [self.encode(text).ids for text in texts]

    def is_unknown(self, ids: Ids) -> NDArray[np.bool_]:
        return np.zeros(len(ids), bool) if self.unknown_id is None else ids == self.unknown_id

    def token_bytes(self, token: int, previous: int | None) -> bytes:
        """What a token writes after the token `previous` (None: at the start of a text); the end writes nothing."""
        return b"" if token == self.end_id else self.spelling(token, previous)

    def token_stream(self, ids: Iterable[int], previous: int | None = None) -> Iterator[bytes]:
        for token in ids:
            yield self.token_bytes(token, previous)
            previous = token

    def decode(self, ids: Iterable[int], previous: int | None = None) -> str:
        """The text of ids that follow the token `previous`; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self.token_stream(ids, previous)).decode("utf-8", errors="replace")

    @cached_property
    def sha256(self) -> str:
        return sha256_of(canonical_json(self._body()))

    def _body(self) -> dict[str, Any]:
        return {"kind": self.kind, "content": self.content()} | ({} if self.end_id is None else {"end": True})

    def to_bytes(self) -> bytes:
        """What a tokenizer.json holds."""
        record = {"format": FORMAT, "kind": self.kind, "sha256": self.sha256} | self._body()
        return json.dumps(record, ensure_ascii=False, indent=1).encode()

    def save(self, path: Path) -> None:
        write_bytes(path, self.to_bytes())


class WholeCharacters:
    """Bytes as they come, each character as soon as it is whole; bytes that make none are left out."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    def __call__(self, part: bytes) -> bytes:
        return self._decoder.decode(part).encode()


def refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"the text has a lone surrogate at character {error.start}: not Unicode") from None


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer saved in `path`; damage is detected and named."""
    try:
        return read_tokenizer(path.read_bytes(), str(path))
    except OSError as error:
        raise DamageError(f"{path} cannot be read ({error.strerror}); restore it from a copy") from None


def read_tokenizer(written: bytes, path: str) -> Tokenizer:
    """The tokenizer that a file's content describes; `path` names it in errors."""
    try:
        record = json.loads(written)
        version = record["format"]
        body = {"kind": record["kind"], "content": record["content"]} | ({"end": True} if record.get("end") else {})
        intact = sha256_of(canonical_json(body)) == record["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise DamageError(f"{path} is damaged and was not loaded ({error}); restore it from a copy") from None
    if version != FORMAT:
        raise SeqlabError(f"{path} has format {version}, this seqlab reads {FORMAT}; use the version that wrote it")
    if not intact:
        raise DamageError(f"{path} is damaged (checksum differs) and was not loaded; restore it from a copy")
    found: Tokenizer = look_up(TOKENIZERS, body["kind"], "tokenizer").from_content(body["content"])
    found = found.with_end() if body.get("end") else found
    found.sha256 = record["sha256"]  # also where this version would write more than was read
    return found


class ByteTokenizer(Tokenizer):
    """Every UTF-8 byte is a token: nothing to learn, nothing unknown."""

    kind = "byte"
    vocab_size = 256

    @classmethod
    def fit(cls, pieces: Iterable[str], vocab_size: int | None = None) -> ByteTokenizer:
        return cls()

    def encode_pieces(self, pieces: Iterable[str]) -> Iterator[tuple[Ids, Ids]]:
        for piece in pieces:
            ids = np.frombuffer(piece.encode(), np.uint8).astype(np.int64)
            yield ids, np.ones_like(ids)

    def spelling(self, token: int, previous: int | None) -> bytes:
        return bytes([token])

    def content(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> ByteTokenizer:
        return cls()


class CharacterTokenizer(Tokenizer):
    """Every code point of the training text is a token; any other is the unknown class."""

    kind = "char"
    unknown_id = UNKNOWN

    def __init__(self, characters: Sequence[str]) -> None:
        self.characters = sorted(characters)
        self.vocab_size = 1 + len(self.characters)
        self._id_of_code_point = np.full(0x110000, UNKNOWN, np.int32)
        self._id_of_code_point[[ord(c) for c in self.characters]] = np.arange(1, self.vocab_size)

    @classmethod
    def fit(cls, pieces: Iterable[str], vocab_size: int | None = None) -> CharacterTokenizer:
        characters: set[str] = set()
        for piece in pieces:
            characters.update(piece)
        return cls(list(characters))

    def encode_pieces(self, pieces: Iterable[str]) -> Iterator[tuple[Ids, Ids]]:
        for piece in pieces:
            code_points = np.frombuffer(piece.encode("utf-32-le"), np.uint32)
            lengths = np.ones(len(code_points), np.int64)
            for limit in (0x80, 0x800, 0x10000):  # UTF-8 takes one more byte from each of these on
                lengths += code_points >= limit
            yield self._id_of_code_point[code_points].astype(np.int64), lengths

    def spelling(self, token: int, previous: int | None) -> bytes:
        return UNKNOWN_BYTES if token == UNKNOWN else self.characters[token - 1].encode()

    def content(self) -> dict[str, Any]:
        return {"characters": "".join(self.characters)}

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> CharacterTokenizer:
        return cls(content["characters"])


@dataclass(frozen=True)
class RareWords:
    """What the vocabulary left out: different words and spaces, and how often any of them stood in the text."""

    words: Sequence[str] = ()
    word_tokens: int = 0
    gap_tokens: int = 0


class WordTokenizer(Tokenizer):
    """Words (maximal runs of non-space) and the unusual white space between them.

    One space before a word is expected and belongs to the word's span. Any other white space, and white
    space at either end of the text, is a token of its own, so that the text can be had back. The
    most frequent words and spaces are the vocabulary; any other is the unknown class.
    """

    kind = "word"
    unknown_id = UNKNOWN
    least_vocab_size = LEAST_VOCABULARY["word"]
    most_rare_words = 50_000  # kept to learn spelling from

    def __init__(self, words: Sequence[str], rare: RareWords | None = None) -> None:
        self.words, self.rare = list(words), rare or RareWords()
        self.vocab_size = 1 + len(self.words)
        self._is_gap = [False, *(word.isspace() for word in self.words)]

    @classmethod
    def fit(cls, pieces: Iterable[str], vocab_size: int | None = None) -> WordTokenizer:
        size = cls.checked_size(vocab_size)
        counts = cls._counted(pieces)
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(ranked[: size - 1], cls._rare(ranked[size - 1 :], counts))

    @classmethod
    def _rare(cls, left_out: list[str], counts: Mapping[str, int]) -> RareWords:
        """If there are too many to keep, a sample that depends on the words alone."""
        kept = sorted(left_out, key=lambda word: (zlib.crc32(word.encode()), word))[: cls.most_rare_words]
        gaps = sum(counts[word] for word in left_out if word.isspace())
        return RareWords(sorted(kept), sum(counts[word] for word in left_out) - gaps, gaps)

    @classmethod
    def _counted(cls, pieces: Iterable[str]) -> dict[str, int]:
        """How often every token stands in the text."""
        seen, texts, counts = Lexicon(), list[str](), Growing(np.int64)
        for piece, letters, spans in _tokens(pieces):
            numbers, new = seen.number(piece, letters, spans.starts, spans.ends)
            texts += new
            counts.extend(np.zeros(len(new), np.int64))
            counts.filled[:] += np.bincount(numbers, minlength=len(seen))
        return dict(zip(texts, counts.filled.tolist(), strict=True))

    @cached_property
    def _vocabulary(self) -> Lexicon:
        return Lexicon(self.words)

    def encode_pieces(self, pieces: Iterable[str]) -> Iterator[tuple[Ids, Ids]]:
        for piece, letters, spans in _tokens(pieces):
            known = self._vocabulary.find(piece, letters, spans.starts, spans.ends)
            yield np.where(known == NEW, UNKNOWN, known + 1), spans.bytes

    def spelling(self, token: int, previous: int | None) -> bytes:
        text = "\ufffd" if token == UNKNOWN else self.words[token - 1]
        spaced = previous is not None and not self._is_gap_id(previous) and not self._is_gap_id(token)
        return (" " + text if spaced else text).encode()

    def _is_gap_id(self, token: int) -> bool:
        return token >= len(self._is_gap) or self._is_gap[token]  # after the begin and the end no space is expected

    @property
    def gap_ids(self) -> Ids:
        """The known white space: it never follows white space."""
        return np.flatnonzero(self._is_gap)

    def content(self) -> dict[str, Any]:
        return {"words": self.words, "rare": asdict(self.rare)}

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> WordTokenizer:
        return cls(content["words"], RareWords(**content.get("rare", {})))


@dataclass(frozen=True)
class _Spans:
    """Where the tokens of a piece are written, and how many bytes the span of each has."""

    starts: Ids
    ends: Ids
    bytes: Ids


def _tokens(pieces: Iterable[str]) -> Iterator[tuple[str, Letters, _Spans]]:
    """The tokens of words and white space, piece by piece of one text.

    A piece is cut into white space with the word after it. One space after a word is expected and no token of its
    own, unless no word comes after it; any other white space is one. (A piece that begins with white space comes after
    a word, or is the first.)
    """
    begun = False
    for piece in _whole_words(pieces):
        letters = letters_of(piece)
        first = starts_of_words(letters)
        end = np.append(first[1:], len(letters))
        word = first + _leading_space(letters, first, end)
        expected = (word - first == 1) & (letters[first] == ord(" ")) & (word < end)
        expected[0] &= begun
        before = bytes_before(letters)
        # For each: its white space, then its word; what is no token is dropped.
        starts, ends = np.stack([first, word], 1), np.stack([word, end], 1)
        spans = before[ends] - before[starts] + np.stack([np.zeros_like(first), expected], 1)
        kept = (ends > starts) & np.stack([~expected, np.ones_like(expected)], 1)
        yield piece, letters, _Spans(starts[kept], ends[kept], spans[kept])
        begun = True


def _leading_space(letters: Letters, starts: Ids, ends: Ids) -> Ids:
    """How many letters of each stretch come before its word; a word has no white space inside."""
    spaces = np.zeros(len(letters) + 1, np.int64)
    np.cumsum(white_space()[letters], out=spaces[1:])
    return spaces[ends] - spaces[starts]


def _whole_words(pieces: Iterable[str]) -> Iterator[str]:
    """The same text in pieces that never end inside a word or a run of white space, however long it is."""
    held: list[str] = []
    for piece in pieces:
        if held and piece[0].isspace() != held[-1][-1].isspace():
            yield "".join(held)
            held = []
        held.append(piece)
    if held:
        yield "".join(held)
