"""Sentences with their translations, from whatever a person names: a table, files line by line, aligned corpora.

A row has a source and one text for each target; a target that a row lacks is left out for that row alone. Rows without
a source, or without any target, are left out and counted.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seqlab.core.errors import DataError, UsageError, nearest
from seqlab.core.reporting import ByteProgress
from seqlab.data.corpora import CORPORA, load_corpus
from seqlab.data.sources import OPENERS, Text, check_encoding, checked_path, open_file
from seqlab.data.tables import TABLES, DelimitedTable, JsonTable, read_table

SOURCE, TARGET = "source", "target"  # what the columns of a table without names are called
COLUMN_NAME = re.compile(r"[^\W\d][\w-]{0,30}")
SHOWN = 30


@dataclass(frozen=True)
class Parallel:
    """Aligned texts, in the order of what they were read from."""

    name: str
    source: str
    """What the source is called."""
    sources: tuple[str, ...]
    targets: dict[str, tuple[str, ...]]
    """By name; '' where a row has no such target."""
    rows: tuple[int, ...]
    """Where each row stands: its line, or its number in aligned corpora."""
    ordered: bool
    """It is running text, row after row."""
    sha256: str
    bytes: int
    licence: str
    notes: tuple[str, ...]


def read_parallel(
    place: str,
    beside: Sequence[str] = (),
    *,
    source: str | None = None,
    to: Sequence[str] = (),
    encoding: str = "utf-8",
    progress: ByteProgress | None = None,
) -> Parallel:
    """A table (`source` and `to` name its columns), text files line by line (`place` and those `beside` it), or a
    corpus of verses (`to` names others)."""
    check_encoding(encoding)
    refuse_twice(to)
    if beside:
        return _checked(_read_lines([place, *beside], source, to, encoding))
    path = checked_path(place)
    if not path.exists():
        return _checked(_read_corpora(place, source, to, progress))
    return _checked(_read_columns(place, source, to, encoding))


def is_table(place: str) -> bool:
    path = Path(place)
    return _ending(path) in TABLES


def _ending(path: Path) -> str:
    return (path.with_suffix("") if path.suffix in OPENERS else path).suffix.lower()


def refuse_twice(to: Sequence[str]) -> None:
    for name in to:
        if list(to).count(name) > 1:
            raise UsageError(f"the target '{name}' is given twice; name each target once")


# --------------------------------------------------------------------------- corpora


def verse_corpora() -> list[str]:
    return [name for name, corpus in CORPORA.items() if corpus.kind == "verses"]


def check_corpus(name: str) -> None:
    """Refuse what is no corpus of aligned verses."""
    if name not in CORPORA:
        hint = nearest(name, verse_corpora()) if os.sep not in name and "." not in name else "; check the path"
        raise DataError(f"there is no file or aligned corpus '{name}'{hint}")
    if CORPORA[name].kind != "verses":
        raise UsageError(f"the corpus '{name}' has no translations; those that have are {', '.join(verse_corpora())}")


def _read_corpora(place: str, source: str | None, to: Sequence[str], progress: ByteProgress | None) -> Parallel:
    check_corpus(place)
    if source:
        raise UsageError(f"--source {source} names a column of a table; {place} is a corpus: leave it out")
    if not to:
        others = ", ".join(name for name in verse_corpora() if name != place)
        raise UsageError(f"say which translations of {place} to learn: --to with one or more of {others}")
    for name in to:
        if name == place:
            raise UsageError(f"--to {name} is the source itself; name another edition")
        check_corpus(name)
    texts = {name: load_corpus(name, progress=progress) for name in (place, *to)}
    verses = {name: _verses(text.path, name) for name, text in texts.items()}
    numbers = [n for n in verses[place] if any(n in verses[name] for name in to)]
    return Parallel(
        name=place,
        source=place,
        sources=tuple(verses[place][n] for n in numbers),
        targets={name: tuple(verses[name].get(n, "") for n in numbers) for name in to},
        rows=tuple(numbers),
        ordered=True,
        sha256=_joint_checksum([(name, text.sha256) for name, text in texts.items()]),
        bytes=sum(text.bytes for text in texts.values()),
        licence=texts[place].licence,
        notes=(),
    )


def _verses(path: Path, name: str) -> dict[int, str]:
    table = read_table(path, ".tsv", name)
    return {int(number): text for number, text in zip(table.values(0), table.values(1), strict=True)}


def _joint_checksum(parts: Sequence[tuple[str, str]]) -> str:
    return hashlib.sha256("".join(f"{len(name)} {name} {sha}\n" for name, sha in parts).encode()).hexdigest()


# --------------------------------------------------------------------------- files line by line


def _read_lines(places: Sequence[str], source: str | None, to: Sequence[str], encoding: str) -> Parallel:
    if source:
        raise UsageError(f"--source {source} names a column of a table; {places[0]} is read line by line: leave it out")
    for place in places:
        if is_table(place):
            raise UsageError(f"{place} is a table: give one table with a column for each language, or text files only")
        if not checked_path(place).exists():
            raise DataError(f"there is no file '{place}'; check the path")
    texts = [open_file(place, encoding, ".txt") for place in places]
    lines = [_lines(text.path) for text in texts]
    if len({len(some) for some in lines}) > 1:
        counted = ", ".join(f"{place} has {len(some):,}" for place, some in zip(places, lines, strict=True))
        raise UsageError(f"the files differ in their number of lines ({counted}); line k of each must be one sentence")
    names = list(to) or _names_of(places[1:])
    if len(names) != len(places) - 1:
        raise UsageError(f"--to names {len(names)} targets, but there are {len(places) - 1} files beside {places[0]}")
    return Parallel(
        name=texts[0].name,
        source=_names_of(places[:1])[0],
        sources=tuple(lines[0]),
        targets=dict(zip(names, map(tuple, lines[1:]), strict=True)),
        rows=tuple(range(1, len(lines[0]) + 1)),
        ordered=False,
        sha256=_joint_checksum([(name, text.sha256) for name, text in zip(["", *names], texts, strict=True)]),
        bytes=sum(text.bytes for text in texts),
        licence=texts[0].licence,
        notes=(f"the targets are {', '.join(names)}, line by line",),
    )


def _names_of(places: Sequence[str]) -> list[str]:
    """Files are called by what is left of their names without endings, or by the ending where that tells them apart."""
    plain = [Path(place).with_suffix("") if Path(place).suffix in OPENERS else Path(place) for place in places]
    stems, endings = [path.stem for path in plain], [path.suffix.lstrip(".") for path in plain]
    names = endings if len(set(stems)) < len(stems) and len(set(endings)) == len(endings) else stems
    refuse_twice(names)
    return names


def _lines(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        return [line.removesuffix("\n").removesuffix("\r") for line in file]


# --------------------------------------------------------------------------- tables


def _read_columns(place: str, source: str | None, to: Sequence[str], encoding: str) -> Parallel:
    path = checked_path(place)
    if path.is_dir():
        raise UsageError(
            f"{place or 'the present folder'} is a folder; name a table, or text files of which line k is one sentence"
        )
    if not is_table(place):
        raise UsageError(
            f"{place} alone has no translations; name a {', '.join(TABLES)} with a column for each language, or the "
            f"translations beside it: {place} {path.with_suffix('')}.translated.txt"
        )
    text = open_file(place, encoding, _ending(path))
    table, notes = _with_names(_table(text, _ending(path), place), [*([source] if source else []), *to])
    columns = [name.strip() for name in table.columns]
    for name in columns:
        if columns.count(name) > 1:
            raise DataError(f"{place} has {columns.count(name)} columns called '{name}'; rename all but one of them")
    if source and source not in columns:
        raise UsageError(f"{place} has no column '{source}' for --source; its columns are {_listed(columns)}")
    first = columns.index(source) if source else 0
    named = list(to) or [name for k, name in enumerate(columns) if k != first]
    for name in named:
        if name not in columns:
            raise UsageError(f"{place} has no column '{name}' for --to; its columns are {_listed(columns)}")
        if name == columns[first]:
            raise UsageError(f"the column '{name}' is the source; name another one with --to")
    if not named:
        raise UsageError(f"{place} has one column only, {_listed(columns)}; a target needs one of its own")
    return Parallel(
        name=text.name,
        source=columns[first],
        sources=tuple(table.values(first)),
        targets={name: tuple(table.values(columns.index(name))) for name in named},
        rows=tuple(table.lines),
        ordered=False,
        sha256=text.sha256,
        bytes=text.bytes,
        licence=text.licence,
        notes=(*notes, f"the source is column '{columns[first]}', the targets are {_listed(named)}"),
    )


def _table(text: Text, ending: str, place: str) -> JsonTable | DelimitedTable:
    """Tab-separated sentences are seldom quoted: where quotes do not close, or only on another line, they are
    characters like others."""
    if ending != ".tsv":
        return read_table(text.path, ending, place)
    try:
        table = read_table(text.path, ending, place)
        if not any("\n" in cell for row in table.rows for cell in row):
            return table
    except DataError:
        pass
    return read_table(text.path, ending, place, quoted=False)


def _with_names(
    table: JsonTable | DelimitedTable, said: Sequence[str]
) -> tuple[JsonTable | DelimitedTable, tuple[str, ...]]:
    """A table of two columns whose first line is no pair of names, and holds none that was said, has no names."""
    if not isinstance(table, DelimitedTable) or len(table.columns) != 2:
        return table, ()
    if set(said) & {name.strip() for name in table.columns}:
        return table, ()
    shown = " and ".join(f"'{name[:SHOWN]}'" for name in table.columns)
    if len(set(table.columns)) == 2 and all(COLUMN_NAME.fullmatch(name.strip()) for name in table.columns):
        return table, (f"the first line names the columns: {shown}",)
    bare = table.without_header()
    named = DelimitedTable(bare.name, (SOURCE, TARGET), bare.rows, bare.lines)
    return named, (f"the table has no names of columns: its first line, {shown}, is taken as source and target",)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name[:SHOWN]}'" for name in names[:20])
    return shown + (f" and {len(names) - 20:,} more" if len(names) > 20 else "")


# --------------------------------------------------------------------------- what can be learnt from


def _checked(found: Parallel) -> Parallel:
    """Sentences without white space around them; rows that say nothing are left out, and what is told of it."""
    sources = [" ".join(text.split()) for text in found.sources]
    targets = {name: [" ".join(text.split()) for text in texts] for name, texts in found.targets.items()}
    for name, texts in targets.items():
        if not name:
            raise UsageError("a column has no name (a sign too many at the end?); say which to learn with --to")
        if "," in name:
            raise UsageError(
                f"a target cannot be called '{name}': names stand with commas between; rename it, or say --to"
            )
        if texts == sources and any(sources):
            raise UsageError(f"the target '{name}' is the same text as the source '{found.source}'; name another one")
    kept = [k for k, text in enumerate(sources) if text and any(texts[k] for texts in targets.values())]
    notes = list(found.notes)
    if left_out := len(sources) - len(kept):
        notes.append(f"{left_out:,} of {len(sources):,} rows have no source or no target and were left out")
    for name, texts in targets.items():
        missing = sum(not texts[k] for k in kept)
        if missing == len(kept):
            raise DataError(f"no row of {found.name} has a text in '{name}'; check the column or the file")
        if missing:
            notes.append(f"{missing:,} rows have no text in '{name}'")
    return Parallel(
        **{
            **vars(found),
            "sources": tuple(sources[k] for k in kept),
            "targets": {name: tuple(texts[k] for k in kept) for name, texts in targets.items()},
            "rows": tuple(found.rows[k] for k in kept),
            "notes": tuple(notes),
        }
    )
