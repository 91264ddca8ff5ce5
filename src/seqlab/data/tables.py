"""Tables of text, row by row: .csv and .tsv with any of three delimiters, and .jsonl.

A table is read from valid UTF-8 (see `sources`); a byte-order mark at its start is dropped and blank lines
are skipped. What is broken is refused with the line that its row begins in: a row is never guessed.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

from seqlab.core.errors import DataError

DELIMITERS = ",;\t"
LONGEST_FIELD = (1 << 31) - 1
"""Characters; the largest limit that the csv module takes on every platform."""
TABLES = (".csv", ".tsv", ".jsonl")
QUOTED = re.compile(r'"[^"]*"')


@dataclass(frozen=True)
class Table:
    """Rows of strings under named columns; `lines` says where each row begins (1 for the first line)."""

    name: str
    columns: tuple[str, ...]
    rows: list[Any]
    lines: list[int]

    def values(self, column: int) -> list[str]:
        return [row[column] for row in self.rows]


@dataclass(frozen=True)
class DelimitedTable(Table):
    """A .csv or .tsv; its first line is taken for names until somebody says that it is data."""

    def without_header(self) -> DelimitedTable:
        """The same table with its first line as a row; the columns are called 1, 2, …"""
        numbers = tuple(str(k) for k in range(1, len(self.columns) + 1))
        return DelimitedTable(self.name, numbers, [list(self.columns), *self.rows], [1, *self.lines])


@dataclass(frozen=True)
class JsonTable(Table):
    """A .jsonl: each row is an object; a key that a row lacks is an empty value there."""

    def values(self, column: int) -> list[str]:
        name = self.columns[column]
        return [self._spelling(row.get(name), name, line) for row, line in zip(self.rows, self.lines, strict=True)]

    def _spelling(self, value: Any, column: str, line: int) -> str:
        if isinstance(value, str):
            return value
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        kind = "a list" if isinstance(value, list) else "an object"
        raise DataError(
            f"{self.name}, line {line:,}: '{column}' is {kind}, not a string or a number; "
            "write one string there, or name another column"
        )


def read_table(path: Path, ending: str, name: str, *, quoted: bool = True) -> JsonTable | DelimitedTable:
    """The table in a file of valid UTF-8; `ending` says how it is written, `name` is for messages.

    With `quoted=False` a quote is a character like any other.
    """
    return _read_jsonl(path, name) if ending == ".jsonl" else _read_delimited(path, ending, name, quoted)


def _read_delimited(path: Path, ending: str, name: str, quoted: bool) -> DelimitedTable:
    csv.field_size_limit(LONGEST_FIELD)
    with path.open(encoding="utf-8-sig", newline="") as file:
        dialect: Any = {"quoting": csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE, "strict": True}
        reader = csv.reader(file, delimiter=_delimiter(file, ending), **dialect)
        numbered = _numbered_rows(reader, name)
        first_line, first = next(numbered, (0, []))
        if not first:
            raise DataError(f"{name} has no rows; a table has its columns' names in the first line, then the rows")
        rows: list[list[str]] = []
        lines: list[int] = []
        for line, row in numbered:
            if len(row) != len(first):
                _refuse_width(name, line, len(row), first_line, first)
            rows.append(row)
            lines.append(line)
    return DelimitedTable(name, tuple(first), rows, lines)


def _delimiter(file: IO[str], ending: str) -> str:
    """What separates the columns: the most frequent candidate in the first line with anything in it."""
    line = ""
    while not line.strip() and (read := file.readline()):
        line = read
    file.seek(0)
    bare = QUOTED.sub("", line)
    if ending == ".tsv" and "\t" in bare:
        return "\t"
    return max(DELIMITERS, key=bare.count)  # of equals the first: a comma


def _numbered_rows(reader: Any, name: str) -> Iterator[tuple[int, list[str]]]:
    """Each row that is not blank with the number of its first line."""
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            _refuse_quotes(name, line, str(error))
        if row:
            yield line, row


def _refuse_quotes(name: str, line: int, reason: str) -> NoReturn:
    what = "a quote is opened and never closed" if "unexpected end" in reason else reason
    raise DataError(
        f"{name}, line {line:,}: the row that begins here is broken ({what}); "
        'put quotes around the whole text and write "" for a quote inside it'
    ) from None


def _refuse_width(name: str, line: int, found: int, first_line: int, first: list[str]) -> NoReturn:
    shown = ", ".join(column[:30] for column in first[:8]) + (", …" if len(first) > 8 else "")
    raise DataError(
        f"{name}, line {line:,}: {found} {'field' if found == 1 else 'fields'}, not the {len(first)} of line "
        f"{first_line:,} ({shown}); put quotes around a text that holds the delimiter, or mend the line"
    )


def _refuse_constant(spelling: str) -> NoReturn:
    raise ValueError(f"{spelling} is no JSON value")


# Numbers stay as they are written: 1.0 and 1 are two names.
DECODER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=_refuse_constant)


def _read_jsonl(path: Path, name: str) -> JsonTable:
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    columns: dict[str, None] = {}
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if line.isspace():
                continue
            row = _object(line, number, name)
            columns.update(dict.fromkeys(row))
            rows.append(row)
            lines.append(number)
    if not rows:
        raise DataError(f"{name} has no rows; a .jsonl file has one JSON object on each line")
    return JsonTable(name, tuple(columns), rows, lines)


def _object(line: str, number: int, name: str) -> dict[str, Any]:
    try:
        value = DECODER.decode(line.strip())
        if "\\ud" in line or "\\uD" in line:
            json.dumps(
                value, ensure_ascii=False
            ).encode()  # an escape can spell half a character, which nothing can write again
    except UnicodeEncodeError:
        raise DataError(f"{name}, line {number:,}: an escape \\uD8… spells half a character; mend the line") from None
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise DataError(f"{name}, line {number:,}: no valid JSON ({reason}); mend or remove the line") from None
    if not isinstance(value, dict):
        raise DataError(
            f"{name}, line {number:,}: the JSON there is no object; write one object on each line, "
            'such as {"text": "…", "label": "…"}'
        )
    return value
