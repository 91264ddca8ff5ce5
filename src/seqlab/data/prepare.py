"""Splits and ids: a text is cut once into contiguous parts, encoded once, and memory-mapped ever after."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.cache import cache_folder
from seqlab.core.files import (
    canonical_json,
    make_folder,
    sha256_of,
    sha256_of_file,
    write_bytes,
    write_failures,
)
from seqlab.data.pieces import cut_blocks, read_blocks
from seqlab.data.sources import Text
from seqlab.data.tokenizers import Tokenizer

PARTS = ("train", "validation", "test")
FORMAT = 3  # raise it when the same tokenizer makes other ids, or the files change: old caches are then left alone
Bounds = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class PartFacts:
    """What was counted while a part was encoded."""

    tokens: int
    bytes: int
    characters: int
    words: int
    unknown: int
    unknown_bytes: int
    sha256: str


@dataclass(frozen=True)
class Part:
    """One part of the text: its ids on disk and its counts."""

    name: str
    ids: NDArray[Any]
    facts: PartFacts


def split_bounds(text: Text, shares: tuple[float, float, float]) -> Bounds:
    """Byte bounds of the parts: contiguous, in order, between characters."""
    with text.path.open("rb") as file:
        first = _character_start(file, round(text.bytes * shares[0]), text.bytes)
        second = (
            text.bytes
            if shares[2] == 0
            else _character_start(file, round(text.bytes * (shares[0] + shares[1])), text.bytes)
        )
    return {"train": (0, first), "validation": (first, second), "test": (second, text.bytes)}


def documents_in(text: Text, bounds: tuple[int, int]) -> tuple[int, ...]:
    """Where the documents of a part start, in bytes of it; the first may be the rest of one."""
    start, end = bounds
    return (0, *(place - start for place in text.documents if start < place < end))


def _character_start(file: Any, position: int, end: int) -> int:
    """The first position from `position` on where a UTF-8 character starts."""
    file.seek(position)
    following = file.read(4)
    while following and position < end and following[0] & 0xC0 == 0x80:
        following, position = following[1:], position + 1
    return position


def read_slice(text: Text, bounds: tuple[int, int]) -> str:
    """A part of the text in memory."""
    with text.path.open("rb") as file:
        file.seek(bounds[0])
        return file.read(bounds[1] - bounds[0]).decode()


def read_pieces(text: Text, bounds: tuple[int, int]) -> Iterator[str]:
    """A part of the text, streamed in pieces that are encoded one after the other."""
    return cut_blocks(read_blocks(text.path, *bounds))


def prepare(
    text: Text, tokenizer: Tokenizer, bounds: Bounds, progress: Callable[[int], None] | None = None
) -> dict[str, Part]:
    """The encoded parts, from the cache if it holds them undamaged, else encoded now."""
    key = sha256_of(canonical_json([FORMAT, text.sha256, tokenizer.sha256, sorted(bounds.items())]))[:32]
    folder = cache_folder() / "ids" / key
    parts = _load(folder, id_type(tokenizer.vocab_size))
    if parts is None:
        _encode_into(folder, text, tokenizer, bounds, progress)
        parts = _load(folder, id_type(tokenizer.vocab_size))
        assert parts is not None, f"{folder} was written but cannot be read back"
    return parts


def _load(folder: Path, type_of_ids: str) -> dict[str, Part] | None:
    """The parts in `folder`, or None if they are missing or damaged (they are then encoded anew)."""
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        facts = {name: PartFacts(**manifest[name]) for name in PARTS}
        if any(sha256_of_file(_ids_path(folder, name)) != facts[name].sha256 for name in PARTS):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return {name: Part(name, _map_ids(_ids_path(folder, name), type_of_ids), facts[name]) for name in PARTS}


def _ids_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.ids"


def id_type(vocab_size: int) -> str:
    """The smallest type that holds every id of a vocabulary (the begin id is never on disk)."""
    return "<u1" if vocab_size <= 1 << 8 else "<u2" if vocab_size <= 1 << 16 else "<u4"


def _map_ids(path: Path, type_of_ids: str) -> NDArray[Any]:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.zeros(0, type_of_ids)
    return np.memmap(path, type_of_ids, mode="r")


def _encode_into(
    folder: Path, text: Text, tokenizer: Tokenizer, bounds: Bounds, progress: Callable[[int], None] | None
) -> None:
    make_folder(folder.parent)
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        make_folder(partial)
        manifest = {
            name: asdict(_encode_part(_ids_path(partial, name), text, tokenizer, bounds[name], progress))
            for name in PARTS
        }
        write_bytes(partial / "manifest.json", canonical_json(manifest))
        shutil.rmtree(folder, ignore_errors=True)
        with write_failures(folder):
            os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _encode_part(
    path: Path,
    text: Text,
    tokenizer: Tokenizer,
    bounds: tuple[int, int],
    progress: Callable[[int], None] | None,
) -> PartFacts:
    type_of_ids = id_type(tokenizer.vocab_size)
    tokens = characters = words = unknown = unknown_bytes = 0

    def counted() -> Iterator[str]:
        nonlocal characters, words
        inside_word = False
        for piece in read_pieces(text, bounds):
            characters += len(piece)
            words += len(piece.split()) - (inside_word and not piece[0].isspace())
            inside_word = not piece[-1].isspace()
            yield piece

    with write_failures(path), path.open("wb") as file:
        for ids, lengths in tokenizer.encode_pieces(counted()):
            missing = tokenizer.is_unknown(ids)
            tokens += len(ids)
            unknown += int(missing.sum())
            unknown_bytes += int(lengths[missing].sum())
            file.write(ids.astype(type_of_ids).tobytes())
            if progress:
                progress(int(lengths.sum()))
    size = bounds[1] - bounds[0]
    return PartFacts(tokens, size, characters, words, unknown, unknown_bytes, sha256_of_file(path))
