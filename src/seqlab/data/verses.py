"""Verses of a Bible edition out of the Python file that a package brings: parsed, never imported.

The file assigns one call, whose arguments are the edition, its whole text, and two tables: where each verse starts and
where it ends. A verse has the number BBCCCVVV: book, chapter, verse.
"""

from __future__ import annotations

import ast
import csv
import io
import re

COLUMNS = ("verse", "text")
BACKSLASH, ESCAPED = "\\", "\\\\"
# One edition marks verses that other editions count otherwise by the number that those give them: \43:1\.
MARK = re.compile(r"\s*\\\\(\d+):(\d+)\\\\")
LEFT_OVER = re.compile(r"\\\\(\d+:\d+\\\\)?")
BOOK, CHAPTER = 1_000_000, 1_000


def verse_table(content: bytes) -> str:
    """A table (columns verse and text) in the order of the verses; one without words is left out."""
    text, starts, ends = _arguments(content)
    text = text.replace(BACKSLASH, ESCAPED)  # the places were counted in the written literal
    plain: dict[int, str] = {}
    marked: dict[int, str] = {}
    for number, start in starts.items():
        verse = text[start : ends[number]]
        words = " ".join(LEFT_OVER.sub(" ", verse).split())
        mark = MARK.match(verse)
        if mark is not None:
            number = number // BOOK * BOOK + int(mark[1]) * CHAPTER + int(mark[2])
        if any(letter.isalnum() for letter in words):
            (plain if mark is None else marked)[number] = words
    out = io.StringIO(newline="")
    writer = csv.writer(out, dialect="excel-tab", lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(sorted((plain | marked).items()))
    return out.getvalue()


def _arguments(content: bytes) -> tuple[str, dict[int, int], dict[int, int]]:
    """The text and the two tables, by their place in the call; anything else is a ValueError."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"not the expected Python file: {error}") from None
    calls = [node.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    if len(calls) != 1 or len(calls[0].args) < 4:
        raise ValueError("not the expected Python file: one call with a text and two tables")
    _, text, *tables = calls[0].args[:4]
    starts, ends = (_numbers(table) for table in tables)
    if not (isinstance(text, ast.Constant) and isinstance(text.value, str)) or starts.keys() != ends.keys():
        raise ValueError("not the expected Python file: the text is no string, or the tables differ")
    return text.value, starts, ends


def _numbers(table: ast.expr) -> dict[int, int]:
    if not isinstance(table, ast.Dict):
        raise ValueError("not the expected Python file: the places are no table")
    found: dict[int, int] = {}
    for key, value in zip(table.keys, table.values, strict=True):
        both = [node.value for node in (key, value) if isinstance(node, ast.Constant) and type(node.value) is int]
        if len(both) != 2:
            raise ValueError("not the expected Python file: a place is no number")
        found[both[0]] = both[1]
    return found
