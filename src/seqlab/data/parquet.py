"""The strings of a Parquet file's only column: as much of the format as a list of words needs.

A file ends with its description (Thrift, compact form), the length of that in four bytes, and "PAR1". A column lies in
pages, each with a header of its own: values one after the other, each with its length before it (PLAIN), or numbers
into a dictionary page that comes first. Numbers and the flags that say where a value is there are runs and packed bits.
What is not as expected raises ValueError.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"PAR1"
BYTE_ARRAY = 6
PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY = 0, 2, 3, 8
DATA_PAGE, DICTIONARY_PAGE = 0, 2
UNPACKED, SNAPPY, GZIP = 0, 1, 2
OPTIONAL = 1
Struct = dict[int, Any]
# What reading comes upon where a file ends too early, lacks what every file has, or holds no such thing.
DAMAGE = (IndexError, KeyError, TypeError, AttributeError, OverflowError, EOFError, OSError, zlib.error)


def read_strings(content: bytes) -> list[str]:
    """Every value of the file's one column, in order; none may be missing."""
    try:
        return _read(content)
    except DAMAGE as error:
        raise ValueError(f"the file is damaged or no Parquet file ({error!r})") from error


def _read(content: bytes) -> list[str]:
    if content[:4] != MAGIC or content[-4:] != MAGIC:
        raise ValueError("no Parquet file")
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    described = _Thrift(content[max(0, start) : -8]).struct()
    root, *columns = described[2]
    if len(columns) != 1 or root.get(5) != 1 or columns[0].get(1) != BYTE_ARRAY:
        raise ValueError("not one column of strings")
    values: list[bytes] = []
    for group in described[4]:
        (chunk,) = group[1]
        values += _values_of(content, chunk[3], optional=columns[0].get(3) == OPTIONAL)
    if len(values) != described[3]:
        raise ValueError(f"{len(values):,} values, not {described[3]:,}")
    return [value.decode() for value in values]


def _values_of(content: bytes, chunk: Struct, *, optional: bool) -> list[bytes]:
    """The values of one chunk of the column, page by page."""
    place = min(chunk[9], chunk.get(11, chunk[9]))
    words: list[bytes] = []
    values: list[bytes] = []
    while len(values) < chunk[5]:
        reader = _Thrift(content, place)
        header = reader.struct()
        if header[1] not in (DATA_PAGE, DICTIONARY_PAGE):
            raise ValueError(f"pages of type {header[1]}")
        if min(header[2], header[3]) < 0:
            raise ValueError("a page of less than nothing")
        place = reader.place + header[3]
        page = _unpacked(content[reader.place : place], chunk[4], header[2])
        if header[1] == DICTIONARY_PAGE:
            words = _plain(page, header[7][1])
        else:
            values += _of_page(page, header[5], words, optional=optional)
    return values


def _of_page(page: bytes, header: Struct, words: list[bytes], *, optional: bool) -> list[bytes]:
    count, encoding = header[1], header[2]
    if optional:  # one flag for each value: whether it is there
        size = int.from_bytes(page[:4], "little")
        if header[3] != RLE or not _numbers(page[4 : 4 + size], 1, count).all():
            raise ValueError("missing values")
        page = page[4 + size :]
    if encoding == PLAIN:
        return _plain(page, count)
    if encoding not in (PLAIN_DICTIONARY, RLE_DICTIONARY):
        raise ValueError(f"values in encoding {encoding}")
    return [words[k] for k in _numbers(page[1:], page[0], count).tolist()]


def _plain(page: bytes, count: int) -> list[bytes]:
    """Values with their lengths before them."""
    found, place = [], 0
    for _ in range(count):
        end = place + 4 + int.from_bytes(page[place : place + 4], "little")
        if end > len(page) or place + 4 > len(page):
            raise ValueError("a page ends inside a value")
        found.append(page[place + 4 : end])
        place = end
    return found


def _numbers(packed: bytes, width: int, count: int) -> NDArray[np.int64]:
    """Runs of one number, and groups of eight numbers of `width` bits."""
    parts: list[NDArray[np.int64]] = []
    done = place = 0
    bytes_of_one = (width + 7) // 8
    while done < count:
        head, place = _varint(packed, place)
        if head & 1:
            size = (head >> 1) * width
            bits = np.frombuffer(packed[place : place + size], np.uint8)
            if len(bits) < size:
                raise ValueError("a page ends inside its numbers")
            rows = np.unpackbits(bits, bitorder="little").reshape((head >> 1) * 8, width)
            parts.append(rows.astype(np.int64) @ (1 << np.arange(width)))
        else:
            size = bytes_of_one
            parts.append(np.full(head >> 1, int.from_bytes(packed[place : place + size], "little"), np.int64))
        place += size
        done += len(parts[-1])
    return np.concatenate([np.zeros(0, np.int64), *parts])[:count]


def _unpacked(page: bytes, codec: int, size: int) -> bytes:
    if codec not in (UNPACKED, SNAPPY, GZIP):
        raise ValueError(f"compression {codec}")
    found = page if codec == UNPACKED else gzip.decompress(page) if codec == GZIP else snappy(page)
    if len(found) != size:
        raise ValueError(f"a page of {len(found):,} bytes, not {size:,}")
    return found


def snappy(packed: bytes) -> bytes:
    """What was compressed with Snappy: literal bytes, and copies of what was written some way back."""
    size, place = _varint(packed, 0)
    out = bytearray()
    while place < len(packed):
        tag = packed[place]
        length, place = (tag >> 2) + 1, place + 1
        if tag & 3 == 0:
            if length > 60:
                extra = length - 60
                length, place = int.from_bytes(packed[place : place + extra], "little") + 1, place + extra
            out += packed[place : place + length]
            place += length
            continue
        if tag & 3 == 1:
            length, back, place = 4 + (tag >> 2 & 7), tag >> 5 << 8 | packed[place], place + 1
        else:
            width = 2 if tag & 3 == 2 else 4
            back, place = int.from_bytes(packed[place : place + width], "little"), place + width
        if not 0 < back <= len(out):
            raise ValueError("a copy of what was not written")
        start = len(out) - back
        while length > 0:  # a copy may reach into itself
            piece = out[start : start + length]
            out += piece
            length -= len(piece)
    if len(out) != size:
        raise ValueError(f"{len(out):,} bytes, not {size:,}")
    return bytes(out)


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and the place after it."""
    value = shift = 0
    while True:
        byte = content[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return value, place
        if shift > 63:
            raise ValueError("a number too long")


@dataclass
class _Thrift:
    """Structs in Thrift's compact form, as fields by number; what they mean the reader knows."""

    content: bytes
    place: int = 0

    def struct(self) -> Struct:
        found: Struct = {}
        field = 0
        while (head := self._byte()) != 0:
            field = field + (head >> 4) if head >> 4 else self._signed()
            found[field] = self._value(head & 15)
        return found

    def _value(self, kind: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._unsigned())
        if kind in (9, 10):
            return list(self._list())
        if kind == 12:
            return self.struct()
        raise ValueError(f"a field of type {kind}")

    def _list(self) -> Iterator[Any]:
        head = self._byte()
        count = head >> 4
        for _ in range(self._unsigned() if count == 15 else count):
            yield self._value(head & 15)

    def _byte(self) -> int:
        self.place += 1
        return self.content[self.place - 1]

    def _bytes(self, size: int) -> bytes:
        self.place += size
        return self.content[self.place - size : self.place]

    def _unsigned(self) -> int:
        value, self.place = _varint(self.content, self.place)
        return value

    def _signed(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)
