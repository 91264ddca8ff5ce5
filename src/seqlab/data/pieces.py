"""Cutting a text of any length into pieces that can be encoded one after the other.

A piece has at most PIECE characters and ends, where it can, before a run of white space. Where the cuts
fall depends on the text alone, so that a text encoded from memory and the same text streamed from disk
give the same tokens.
"""

import codecs
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from seqlab.core.errors import DataError

PIECE = 1 << 16
_TAIL = 1 << 10  # where a cut is looked for first; the whole second half is searched only if need be
_RUN_OF_SPACE = re.compile(r"(?<=\S)\s")


def cut_text(text: str) -> Iterator[str]:
    return cut_blocks([text])


def cut_blocks(blocks: Iterable[str]) -> Iterator[str]:
    """The pieces of the text that the blocks make when joined."""
    rest = ""
    for block in blocks:
        rest += block
        start = 0
        while len(rest) - start > PIECE:
            end = start + _cut_position(rest[start : start + PIECE])
            yield rest[start:end]
            start = end
        rest = rest[start:]
    if rest:
        yield rest


def _cut_position(text: str) -> int:
    for tail in (_TAIL, PIECE // 2):
        found = list(_RUN_OF_SPACE.finditer(text, len(text) - tail))
        if found:
            return found[-1].start()
    return len(text)  # one enormous line: cut anywhere


def read_blocks(path: Path, start: int, end: int, block: int = 1 << 20) -> Iterator[str]:
    """Decode bytes [start, end) of a valid UTF-8 file; the bounds fall between characters."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        file.seek(start)
        while start < end:
            content = file.read(min(block, end - start))
            if not content:
                raise DataError(f"{path} became shorter while it was read; leave it alone and start again")
            start += len(content)
            yield decoder.decode(content, final=start >= end)
