"""Ids and byte spans from tokenizers that seqlab did not make.

Whatever the tokenizer, the spans partition the UTF-8 bytes of the text. Where a token's bytes are known (byte-level
alphabet, byte fallback, ``▁`` for a space, plain text) and the tokens spell the text, the spans are exact. Else they
come from the tokenizer's offsets, and the encoding is `lossy`: part of the text (white space, case, accents) is not
in the tokens. Dropped text belongs to the span of the next token, at the end of the text to the last one.

A token has an empty span only where it has no byte of its own: a further token of a character whose first token took
all of it, or a space that the tokenizer put before the text.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Library

from seqlab.core.errors import DataError, UsageError
from seqlab.core.types import Encoding
from seqlab.data.bpe import letter_of_byte
from seqlab.data.tokenizers import Tokenizer
from seqlab.evaluation.characters import byte_offsets

Ints = NDArray[np.int64]
Encoder = Callable[[str], Encoding]

LONGEST_GROUP = 64  # tokens that may share one piece of decoded text before we say that it is not the text
BYTE_OF_LETTER = {letter: byte for byte, letter in letter_of_byte().items()}
BYTE_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")
SPACE_MARK = "▁"


def encoder_of(tokenizer: Any) -> Encoder:
    """text -> Encoding, for a seqlab tokenizer, a `tokenizers.Tokenizer`, a Hugging Face fast one, or encode/decode."""
    if isinstance(tokenizer, Tokenizer):
        return tokenizer.encode
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if isinstance(backend, Library):
        return LibraryEncoder(backend, getattr(tokenizer, "unk_token_id", None))
    if callable(getattr(tokenizer, "encode", None)) and callable(getattr(tokenizer, "decode", None)):
        return lambda text: encode_by_decoding(tokenizer, text)
    raise UsageError(f"{type(tokenizer).__name__} is no tokenizer; give an object with encode(text) and decode(ids)")


class LibraryEncoder:
    """Byte spans from a `tokenizers.Tokenizer`; special tokens are not added, nothing is cut off or padded."""

    def __init__(self, library: Library, unknown_id: int | None = None) -> None:
        if library.truncation or library.padding:
            library = Library.from_str(library.to_str())  # a copy: the caller's keeps its settings
            library.no_truncation()
            library.no_padding()
        self.library = library
        self.unknown_id = unknown_id_of(library) if unknown_id is None else unknown_id
        self.added = frozenset(library.get_added_tokens_decoder())

    def __call__(self, text: str) -> Encoding:
        data, byte_at = _utf8(text), byte_offsets(text)
        found = self.library.encode(text, add_special_tokens=False)
        if data and not found.ids:
            raise DataError(f"the tokenizer makes no token of this text ({len(data)} bytes): nothing can be scored")
        exact = self._spelled(found, data, byte_at)
        ids = np.array(found.ids, np.int64)
        if exact is not None:
            return _encoding(ids, *exact)
        ends = ends_from_offsets([end for _, end in found.offsets], len(text))
        unknown = [
            i == self.unknown_id and text[a:b] != token
            for i, token, (a, b) in zip(found.ids, found.tokens, found.offsets, strict=True)
        ]
        return _encoding(ids, byte_at[ends], unknown, lossy=True)

    def _spelled(self, found: Any, data: bytes, byte_at: Ints) -> tuple[list[int], list[bool]] | None:
        """Ends and unknown flags if the tokens spell the text in one of the known ways, perhaps after a space."""
        for bytes_of in (byte_level_bytes, space_mark_bytes, str.encode):
            pieces = self._pieces(found, bytes_of)
            if pieces is None:
                continue
            spaced = [pieces[0][1:], *pieces[1:]] if pieces and pieces[0].startswith(b" ") else pieces
            for candidate in (pieces, spaced):
                spelled = self._walk(found, candidate, data, byte_at)
                if spelled is not None:
                    return spelled
        return None

    def _pieces(self, found: Any, bytes_of: Callable[[str], bytes | None]) -> list[bytes] | None:
        known: dict[int, bytes] = {}
        for i, token in zip(found.ids, found.tokens, strict=True):
            if i not in known:
                piece = token.encode() if i in self.added else bytes_of(token)
                if piece is None:
                    return None
                known[i] = piece
        return [known[i] for i in found.ids]

    def _walk(self, found: Any, pieces: list[bytes], data: bytes, byte_at: Ints) -> tuple[list[int], list[bool]] | None:
        """Go through the bytes piece by piece; an unknown token, which spells nothing, reaches to its offset."""
        position, ends, unknown = 0, [], []
        for i, piece, (_, end) in zip(found.ids, pieces, found.offsets, strict=True):
            literal = data.startswith(piece, position)
            if literal:
                position += len(piece)
            elif i == self.unknown_id:
                position = max(position, int(byte_at[end]))
            else:
                return None
            ends.append(position)
            unknown.append(not literal)
        return (ends, unknown) if position == len(data) else None


def byte_level_bytes(token: str) -> bytes | None:
    """The bytes of a token written in the byte-level alphabet (GPT-2 and its kin)."""
    try:
        return bytes(BYTE_OF_LETTER[letter] for letter in token)
    except KeyError:
        return None


def space_mark_bytes(token: str) -> bytes:
    """The bytes of a SentencePiece token: ``▁`` is a space, ``<0xE2>`` one byte."""
    fallback = BYTE_FALLBACK.fullmatch(token)
    return bytes([int(fallback[1], 16)]) if fallback else token.replace(SPACE_MARK, " ").encode()


def ends_from_offsets(ends: list[int], length: int) -> Ints:
    """Ends that never go back, whatever the offsets say, and reach the end of the text."""
    never_back: Ints = np.maximum.accumulate(np.array([*ends[:-1], length], np.int64))
    return never_back


def unknown_id_of(library: Library) -> int | None:
    """The id that the library's model gives to what it does not know, if it has one."""
    model = json.loads(library.to_str())["model"]
    if model.get("unk_id") is not None:
        return int(model["unk_id"])
    return library.token_to_id(model["unk_token"]) if model.get("unk_token") else None


def encode_by_decoding(tokenizer: Any, text: str) -> Encoding:
    """Spans found by decoding: a token's piece is what it adds to the decoded text of the tokens before it.

    Tokens that only together decode to text (the bytes of one character) form a group: the first has the whole
    span. The pieces must re-assemble to the text.
    """
    _utf8(text)
    ids = _plain_ids(tokenizer, text)
    ends: list[int] = []  # characters
    position, anchor = 0, 0
    before = ""  # decoded text of ids[anchor : len(ends)], the group before this one
    for k in range(1, len(ids) + 1):
        decoded = tokenizer.decode(ids[anchor:k])
        piece = decoded[len(before) :]
        if piece and text.startswith(piece, position):
            position += len(piece)
            anchor, group = len(ends), k - len(ends)
            ends += [position] * group
            before = tokenizer.decode(ids[anchor:k])
        elif k - len(ends) >= LONGEST_GROUP:
            break
    beyond = bool(ids) and tokenizer.decode(ids[anchor:]) != before  # such as an end token
    if position < len(text) or beyond:
        raise DataError(
            f"the decoded tokens do not re-assemble to the text: they part at character {position:,} "
            f"({text[position : position + 12]!r}); give a tokenizer with offsets, such as a `tokenizers.Tokenizer`"
        )
    ends += [position] * (len(ids) - len(ends))
    return _encoding(np.array(ids, np.int64), byte_offsets(text)[np.array(ends, np.int64)], [False] * len(ids))


def _plain_ids(tokenizer: Any, text: str) -> list[int]:
    """The ids of the text alone, without begin and end tokens where the tokenizer can be told so."""
    takes = inspect.signature(tokenizer.encode).parameters
    plain = {"add_special_tokens": False} if "add_special_tokens" in takes else {}
    return [int(i) for i in tokenizer.encode(text, **plain)]


def _encoding(ids: Ints, ends: Ints | list[int], unknown: list[bool], *, lossy: bool = False) -> Encoding:
    end = np.array(ends, np.int64)
    start = np.concatenate([np.zeros(1, np.int64), end])[: len(end)]
    return Encoding(ids, start, end, np.array(unknown, bool), lossy)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"the text has a lone surrogate at character {error.start}: not Unicode") from None
