"""The text format of GloVe and word2vec, read once, as a stream: one word per line, then its values.

Single spaces separate them. A first line of two whole numbers is word2vec's header (rows, values per row).
"""

import codecs
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import DataError, UsageError
from seqlab.core.files import BLOCK
from seqlab.core.reporting import ByteProgress
from seqlab.data.sources import DECOMPRESSION_ERRORS, OPENERS, open_binary

LONGEST_LINE = 1 << 20
"""Bytes; no row of a vector file is longer, so what is longer is no such file."""
LARGEST = float(np.finfo(np.float32).max)
HEADER = re.compile(rb"(\d{1,18}) (\d{1,18})")
NUMBER_CHARACTERS = b"0123456789.eE+- "


@dataclass(frozen=True)
class VectorLine:
    """One line of a vector file and where it stands, for whoever must complain about it."""

    path: Path
    number: int
    content: bytes
    """Without the space and newline at its end."""
    ended: bool
    """Whether a newline followed; else the file ends here."""

    def error(self, what: str) -> DataError:
        return DataError(f"{self.path}, line {self.number:,}: {what}; mend that line or fetch the file again")

    def cut(self, width: int) -> tuple[bytes, bytes]:
        """Word and values. A word may hold spaces (``. . .``), so the values are counted from the right."""
        spaces = self.content.count(b" ")
        if spaces < width:
            raise self.too_short(spaces, width)
        if spaces == width:
            word, _, values = self.content.partition(b" ")
            return word, values
        word = self.content.rsplit(b" ", width)[0]
        if _is_number(word.rsplit(b" ", 1)[1]):
            raise self.error(f"{spaces} values, not the {width} of line 1")
        return word, self.content[len(word) + 1 :]

    def too_short(self, found: int, width: int) -> DataError:
        if self.ended:
            return self.error(f"{found} values, not the {width} of line 1")
        return DataError(
            f"{self.path} ends inside a row: its last line, {self.number:,}, has {found} of {width} values; "
            "the file was cut off: fetch it again"
        )

    def word(self, word: bytes) -> str:
        try:
            return word.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = word[error.start]
            raise self.error(f"the word is not valid UTF-8 (byte 0x{byte:02x})") from None

    def values(self, values: bytes) -> NDArray[np.float32]:
        fields = values.split(b" ")
        for position, field in enumerate(fields, start=1):
            if not _is_number(field):
                shown = field[:40].decode(errors="replace")
                raise self.error(f"value {position} of {len(fields)} is '{shown}', which is no finite float32 number")
        return np.array([float(field) for field in fields], dtype=np.float32)


def _is_number(field: bytes) -> bool:
    """Whether it spells a finite float32 number; float() alone would take 1_0, nan and 1e39."""
    if field.translate(None, NUMBER_CHARACTERS):
        return False
    try:
        return abs(float(field)) <= LARGEST
    except ValueError:
        return False


def read_vector_text(
    path: Path, wanted: Collection[str], asked: int | None, progress: ByteProgress | None
) -> tuple[dict[str, NDArray[np.float32]], int]:
    """The rows of wanted words and the width; of a word that stands twice, the first row."""
    with open_binary(path) as file:
        lines = _lines(path, file, progress)
        first = next(lines, None)
        if first is None:
            raise DataError(f"{path} is empty; a vector file has one word and its values on each line")
        announced, width = _header(first) or (None, _width_of_row(first))
        check_width(str(path), width, asked)
        rows: dict[str, NDArray[np.float32]] = {}
        count = 0
        for line in lines if announced is not None else chain([first], lines):
            count += 1
            word, values = line.cut(width)
            spelling = line.word(word)
            new = spelling in wanted and spelling not in rows
            if new or not line.ended or values.translate(None, NUMBER_CHARACTERS):
                row = line.values(values)
                if new:
                    rows[spelling] = row
    if announced not in (None, count):
        raise DataError(
            f"{path}: line 1 announces {announced:,} vectors, but {count:,} follow; the file is cut off or "
            "was edited: fetch it again or correct line 1"
        )
    return rows, width


def _header(first: VectorLine) -> tuple[int, int] | None:
    """Rows and width from word2vec's first line; None where the first line is a row itself."""
    header = HEADER.fullmatch(first.content)
    if not header:
        return None
    count, width = int(header[1]), int(header[2])
    if not (count and 0 < width < LONGEST_LINE):
        raise first.error(f"it announces {count:,} vectors of width {width:,}")
    return count, width


def _width_of_row(first: VectorLine) -> int:
    """The number of fields at the end that float() takes; a nan among them is reported with its row."""
    fields = first.content.split(b" ")[1:]
    width = 0
    while width < len(fields) and _looks_like_a_value(fields[-1 - width]):
        width += 1
    if not width:
        raise first.error("it holds no values; each line is a word and its values, one space apart")
    return width


def _looks_like_a_value(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _lines(path: Path, file: IO[bytes], progress: ByteProgress | None) -> Iterator[VectorLine]:
    """The lines, numbered from 1; only a newline ends one, since words hold all kinds of spaces."""
    total = None if path.suffix in OPENERS else path.stat().st_size
    done = number = reported = 0
    while raw := _readline(path, file):
        number += 1
        if b"\0" in raw or len(raw) > LONGEST_LINE:
            raise DataError(
                f"{path} looks like a binary file (line {number:,}), not like text; "
                "word vectors are read from the text format of GloVe or word2vec"
            )
        done += len(raw)
        if progress and done - reported >= BLOCK:
            reported = done
            progress(done, total)
        content = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
        yield VectorLine(path, number, content.rstrip(b" \r\n"), raw.endswith(b"\n"))


def _readline(path: Path, file: IO[bytes]) -> bytes:
    try:
        return file.readline(LONGEST_LINE + 1)
    except DECOMPRESSION_ERRORS as error:
        raise DataError(f"{path} cannot be decompressed ({error}); it is damaged: fetch it again") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; check the file") from error


def check_width(name: str, found: int, asked: int | None) -> None:
    """Refuse vectors that are not as wide as asked for."""
    if asked not in (None, found):
        raise UsageError(
            f"{name} holds vectors of another width: {found} values, not {asked}; "
            f"ask for width {found} or name a file with {asked} values for each word"
        )
