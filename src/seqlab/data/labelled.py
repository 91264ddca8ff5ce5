"""Labelled text, from whatever a person names: a table, a folder with one sub-folder for each label, a corpus.

A label is a name as it is written; numbers are names too. Rows without a label are left out, empty texts are
kept, and the notes say how many of either there were.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seqlab.core.errors import DataError, UsageError, nearest
from seqlab.core.reporting import ByteProgress, Reporter
from seqlab.data.columns import choose_columns, choose_text
from seqlab.data.corpora import CORPORA, load_corpus
from seqlab.data.folders import TEXT_SUFFIXES, text_files
from seqlab.data.sources import (
    OPENERS,
    STANDARD_INPUT,
    Text,
    check_encoding,
    checked_path,
    kept_path,
    open_binary,
    open_file,
    utf8_blocks,
)
from seqlab.data.tables import TABLES, read_table

BYTE_ORDER_MARK = "\ufeff"
SHOWN_LABELS = 5


@dataclass(frozen=True)
class Labelled:
    """Texts with their labels, in the order of the source."""

    name: str
    """Of the source, as a person knows it."""
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    """As written, without white space around them."""
    groups: tuple[str, ...] | None
    """What ties rows together; '' where a row belongs to no group."""
    rows: tuple[int, ...]
    """Where each text stands: the first line of its row, or its place among the files, from 1."""
    sha256: str
    """Of the content as UTF-8; for a folder over names and contents in order."""
    bytes: int
    licence: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Source:
    """A file of text at hand, how its table is written (None for lines), and its name in messages."""

    text: Text
    ending: str | None
    shown: str


def read_labelled(
    source: str,
    *,
    text: str | None = None,
    label: str | None = None,
    group: str | None = None,
    encoding: str = "utf-8",
    progress: ByteProgress | None = None,
) -> Labelled:
    """Texts and labels of a .csv, .tsv or .jsonl (also .gz, .bz2, .xz), '-' (CSV), a folder or a corpus.

    `text`, `label` and `group` name columns: `text` one or several joined by commas. Numbers count the columns
    of a table without names. What is not said is decided by the usual names, and the notes say how.
    """
    check_encoding(encoding)
    if source != "-" and checked_path(source).is_dir():
        if text or label or group:
            raise UsageError(
                f"{source} is a folder: its sub-folders are the labels; leave out --text, --label, --group"
            )
        return _checked(_read_folder(Path(source), encoding))
    found = _open(source, encoding, progress)
    assert found.ending is not None
    columns = choose_columns(read_table(found.text.path, found.ending, found.shown), text, label, group)
    table = columns.table
    assert columns.label is not None
    labels = [name.strip() for name in table.values(columns.label)]
    groups = None if columns.group is None else [name.strip() for name in table.values(columns.group)]
    kept = [k for k, name in enumerate(labels) if name]
    texts = columns.texts()
    return _checked(
        Labelled(
            name=found.text.name,
            texts=tuple(texts[k] for k in kept),
            labels=tuple(labels[k] for k in kept),
            groups=None if groups is None else tuple(groups[k] for k in kept),
            rows=tuple(table.lines[k] for k in kept),
            sha256=found.text.sha256,
            bytes=found.text.bytes,
            licence=found.text.licence,
            notes=(*columns.notes, *_left_out(labels, table.lines)),
        )
    )


def read_unlabelled(
    source: str, *, text: str | None = None, encoding: str = "utf-8"
) -> tuple[list[str], tuple[str, ...]]:
    """Texts to predict: of a table's text column(s), or each line of a .txt or of standard input; and notes."""
    check_encoding(encoding)
    if source != "-" and checked_path(source).is_dir():
        raise UsageError(f"{source} is a folder; name a table or a text file with one text on each line")
    if source != "-" and source not in CORPORA and not checked_path(source).exists():
        raise DataError(f"there is no file '{source}'; check the path")
    found = _open(source, encoding, None, lines=True)
    notes: tuple[str, ...] = ()
    if found.ending is not None:
        columns = choose_text(read_table(found.text.path, found.ending, found.shown), text)
        texts, notes = columns.texts(), columns.notes
    elif text:
        raise UsageError(f"--text {text}: {found.shown} is read line by line and has no columns; leave it out")
    else:
        texts = _lines(found.text.path)
    if not texts:
        raise DataError(f"{found.shown} has no rows; give one text at least")
    return texts, (*notes, *_empty_texts(texts))


def given_or_read(
    texts: Sequence[str], source: str | None, column: str | None, encoding: str, reporter: Reporter
) -> list[str]:
    """The texts given, or those of a file or of standard input ('-')."""
    if source is None:
        return list(texts)
    found, notes = read_unlabelled(source, text=column, encoding=encoding)
    for line in notes:
        reporter.note(line)
    return found


def kept_source(sha256: str) -> str | None:
    """The table with this checksum that came through a pipe or compressed, if the cache has it still."""
    paths = (kept_path(sha256, ending) for ending in TABLES)
    return next((str(path) for path in paths if path.is_file()), None)


def _open(source: str, encoding: str, progress: ByteProgress | None, *, lines: bool = False) -> _Source:
    """The file that is meant; with `lines`, standard input and .txt are one text per line."""
    path = checked_path(source)
    if source == "-":
        ending = None if lines else ".csv"
        return _Source(open_file("-", encoding, ending or ".txt"), ending, STANDARD_INPUT)
    if path.exists():
        ending = _ending(path, lines)
        return _Source(open_file(source, encoding, ending or ".txt"), ending, source)
    if source not in CORPORA:
        labelled = [name for name, corpus in CORPORA.items() if corpus.kind == "labelled"]
        hint = nearest(source, labelled) if os.sep not in source and "." not in source else "; check the path"
        raise DataError(f"there is no file, folder or labelled corpus '{source}'{hint}")
    if CORPORA[source].kind != "labelled":
        raise UsageError(f"the corpus '{source}' is running text without labels; labelled text is {_readable()}")
    corpus = load_corpus(source, progress=progress)
    text = Text(corpus.path, source, corpus.bytes, corpus.sha256, corpus.licence)
    return _Source(text, corpus.path.suffix, source)


def _ending(path: Path, lines: bool) -> str | None:
    """How the file is written, by its name; what is no ordinary file (a pipe) has none that means anything."""
    plain = path.with_suffix("") if path.suffix in OPENERS else path
    ending = plain.suffix.lower()
    if ending in TABLES:
        return ending
    if lines and (ending in TEXT_SUFFIXES or not path.is_file()):
        return None
    if not path.is_file():
        return ".csv"
    also = " or .txt, one text on each line" if lines else ""
    raise UsageError(f"{path}: cannot tell how it is written by the ending '{ending}'; name {_readable()}{also}")


def _readable() -> str:
    named = ", ".join(name for name, corpus in CORPORA.items() if corpus.kind == "labelled")
    return f"a {', '.join(TABLES)} (also .gz, .bz2, .xz), a folder with a sub-folder for each label, or one of {named}"


def _lines(path: Path) -> list[str]:
    """Only a newline ends a line; the one at the very end begins no further text."""
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        return [line.removesuffix("\n").removesuffix("\r") for line in file]


def _read_folder(folder: Path, encoding: str) -> Labelled:
    digest, count, beside = hashlib.sha256(), 0, 0
    texts: list[str] = []
    labels: list[str] = []
    for path in text_files(folder):
        parts = path.relative_to(folder).parts
        if len(parts) == 1 or any(part.startswith(".") for part in parts):
            beside += 1
            continue
        with open_binary(path) as file:
            content = b"".join(utf8_blocks(str(path), file, encoding))
        name = "/".join(parts).encode(errors="surrogateescape")
        # Lengths first, so that no other names and contents run together to the same bytes.
        digest.update(b"%d %d %b" % (len(name), len(content), name) + content)
        count += len(content)
        texts.append(content.decode("utf-8").removeprefix(BYTE_ORDER_MARK))
        labels.append(parts[0].strip())
    skipped = _told(beside, "text file", "outside the sub-folders or hidden, and so left out")
    return Labelled(
        name=folder.name or str(folder.resolve()),
        texts=tuple(texts),
        labels=tuple(labels),
        groups=None,
        rows=tuple(range(1, len(texts) + 1)),
        sha256=digest.hexdigest(),
        bytes=count,
        licence=Text.licence,
        notes=(skipped,) if beside else (),
    )


def _checked(found: Labelled) -> Labelled:
    """Refuse what nothing can be learnt from, and add what is worth telling of the rest."""
    classes = sorted(set(found.labels))
    if not classes:
        raise DataError(f"{found.name} has no row with a label ({'; '.join(found.notes) or 'no rows'}); give some rows")
    if len(classes) == 1:
        raise DataError(
            f"{found.name} has one label only, '{classes[0]}', in all {len(found.labels):,} rows; "
            "a classifier needs two: check which column or folder holds the labels"
        )
    extra = (*_empty_texts(found.texts), *_alike(classes), *_ungrouped(found.groups))
    return Labelled(**{**vars(found), "notes": (*found.notes, *extra)})


def _left_out(labels: Sequence[str], lines: Sequence[int]) -> tuple[str, ...]:
    without = [line for line, name in zip(lines, labels, strict=True) if not name]
    if not without:
        return ()
    return (_told(len(without), "row without a label", f"left out (first: line {without[0]:,})"),)


def _empty_texts(texts: Sequence[str]) -> tuple[str, ...]:
    empty = sum(not text.strip() for text in texts)
    return (_told(empty, "empty text", "kept"),) if empty else ()


def _alike(classes: Sequence[str]) -> tuple[str, ...]:
    """Labels that differ in case alone are most often a slip."""
    spelt = Counter(name.casefold() for name in classes)
    doubtful = [name for name in classes if spelt[name.casefold()] > 1]
    if not doubtful:
        return ()
    shown = ", ".join(f"'{name}'" for name in doubtful[:SHOWN_LABELS])
    more = ", …" if len(doubtful) > SHOWN_LABELS else ""
    return (f"labels that differ only in case are different classes: {shown}{more}",)


def _ungrouped(groups: Sequence[str] | None) -> tuple[str, ...]:
    alone = sum(not name for name in groups or ())
    return (_told(alone, "row without a group", "tied to no other row"),) if alone else ()


def _told(count: int, noun: str, what: str) -> str:
    """``1 row was`` or ``12 rows were``; a noun may go on: ``row without a label``."""
    first, _, rest = noun.partition(" without ")
    plural = first if count == 1 else f"{first}s"
    return f"{count:,} {plural}{' without ' + rest if rest else ''} {'was' if count == 1 else 'were'} {what}"
