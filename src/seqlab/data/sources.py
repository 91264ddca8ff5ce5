"""From whatever a person names to one UTF-8 text on disk.

A plain UTF-8 file is read where it lies; anything else (folder, compressed file, other encoding,
standard input) is written once into the cache, named by its checksum. Newlines are left as they are.
A byte-order mark of UTF-16 or UTF-32 is believed where nobody says otherwise.
The files of a folder and the members of a corpus are documents: a text knows where each of them starts.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from seqlab.core.cache import cache_folder
from seqlab.core.errors import DataError, UsageError, nearest
from seqlab.core.files import BLOCK, make_folder, sha256_of, write_bytes, write_failures
from seqlab.data.corpora import CORPORA, load_corpus
from seqlab.data.encodings import marked, mostly_utf8, suggested
from seqlab.data.folders import COMPRESSED, Skipped, choose_files, told

OPENERS: dict[str, Callable[..., Any]] = dict(zip(COMPRESSED, (gzip.open, bz2.open, lzma.open), strict=True))
STANDARD_INPUT = "standard input"
DECOMPRESSION_ERRORS = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


@dataclass(frozen=True)
class Text:
    """A valid UTF-8 text on disk and what is known of it."""

    path: Path
    name: str
    bytes: int
    sha256: str
    licence: str = "your own text"
    notes: tuple[str, ...] = ()  # what a person should know of how it was read
    documents: tuple[int, ...] = (0,)  # where each starts, in bytes


def open_text(
    source: str,
    encoding: str = "utf-8",
    glob: str = "",
    *,
    progress: Callable[[int, int | None], None] | None = None,
) -> Text:
    """The text that `source` names: '-', a file, a folder, or (if there is no such file) a corpus.

    Of a folder, `glob` says which files; those that are no text are left out, and `Text.notes` says so.
    """
    check_encoding(encoding)
    path = check_source(source, glob)
    if path.is_dir() and source != "-":
        return _open_folder(path, encoding, glob)
    if path.exists() or source == "-":
        return open_file(source, encoding)
    corpus = load_corpus(source, progress=progress)
    return Text(corpus.path, source, corpus.bytes, corpus.sha256, corpus.licence, documents=corpus.documents)


def open_file(source: str, encoding: str, ending: str = ".txt") -> Text:
    """The one file that `source` names, or standard input for '-'; what has to be kept gets this ending."""
    if source != "-":
        return _open_path(Path(source), encoding, ending)
    if sys.stdin is None:
        raise UsageError("there is no standard input to read; name a file instead of '-'")
    return _spool([(STANDARD_INPUT, sys.stdin.buffer)], encoding, STANDARD_INPUT, ending)


def kept_path(sha256: str, ending: str = ".txt") -> Path:
    """Where the cache keeps what could be read only once, or only with some work."""
    return cache_folder() / "texts" / f"{sha256}{ending}"


def check_source(source: str, glob: str = "") -> Path:
    """Refuse what names no running text: neither '-', nor a file, a folder or a corpus of such text."""
    path = checked_path(source)
    if glob and (source == "-" or not path.is_dir()):
        raise UsageError(f"--glob '{glob}' chooses files of a folder, and '{source}' is none; leave it out")
    if source != "-" and not path.exists() and source in CORPORA and CORPORA[source].kind != "text":
        raise UsageError(
            f"the corpus '{source}' is a table of {_rows_of(source)}, no running text; name one of running text: "
            + ", ".join(name for name, corpus in CORPORA.items() if corpus.kind == "text")
        )
    if source != "-" and not path.exists() and source not in CORPORA:
        hint = nearest(source, CORPORA) if os.sep not in source and "." not in source else ""
        raise DataError(f"there is no file, folder or corpus '{source}'{hint or '; check the path'}")
    return path


def _rows_of(corpus: str) -> str:
    return "labelled texts" if CORPORA[corpus].kind == "labelled" else "verses"


def read_text(source: str, encoding: str = "utf-8", glob: str = "") -> tuple[Text, str]:
    """The whole text in memory, for scoring."""
    text = open_text(source, encoding, glob)
    return text, text.path.read_bytes().decode("utf-8")


def checked_path(source: str) -> Path:
    """A path that can be looked up and recorded."""
    if not source:
        raise UsageError("'' names no file; name one")
    try:
        source.encode()
        Path(source).exists()
    except UnicodeEncodeError:
        raise UsageError(f"the name {source!a} is not valid Unicode; rename the file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot read '{source[:80]}': {reason}; check the path") from None
    return Path(source)


def full_place(source: str) -> str:
    """Files are named by their full path, so that a run can be resumed from anywhere."""
    named = Path(source)
    return str(named.resolve()) if named.is_file() or named.is_dir() else source


def stem_of(source: str) -> str:
    """What folders that belong to a text are called by."""
    stem = Path(source).name.split(".")[0] or "text"
    return "stdin" if source == "-" else stem[:60]


def check_encoding(encoding: str) -> None:
    try:
        "a".encode(encoding)  # unlike a bare look-up, this refuses what is no encoding of text
    except LookupError:
        raise UsageError(f"--encoding '{encoding}' is not known; for example utf-8, latin-1, utf-16, cp1252") from None


def _is_utf8(encoding: str) -> bool:
    return codecs.lookup(encoding).name == "utf-8"


def _open_all(paths: Iterable[Path]) -> Iterator[tuple[str, IO[bytes]]]:
    for path in paths:
        with open_binary(path) as file:
            yield str(path), file


def open_binary(path: Path) -> IO[bytes]:
    try:
        opener = OPENERS.get(path.suffix, open)
        file: IO[bytes] = opener(path, "rb")
        return file
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; check its permissions") from error


def _open_path(path: Path, encoding: str, ending: str) -> Text:
    if path.suffix in OPENERS or not _is_utf8(encoding) or not path.is_file():  # a pipe can be read only once
        return _spool(_open_all([path]), encoding, path.name, ending)
    with open_binary(path) as file:
        named = marked(file.read(4))
    if named is not None:
        text = _spool(_open_all([path]), encoding, path.name, ending)
        return replace(text, notes=(f"{path.name} is read as {named}, which its first bytes name",))
    digest, count = hashlib.sha256(), 0
    with open_binary(path) as file:
        for block in utf8_blocks(str(path), file, encoding):
            digest.update(block)
            count += len(block)
    return Text(path.resolve(), path.name, _not_empty(count, str(path)), digest.hexdigest())


def _open_folder(folder: Path, encoding: str, glob: str) -> Text:
    """The files chosen, without those that turn out to be no text."""
    chosen, unreadable = choose_files(folder, glob), list[Skipped]()

    def skip(path: str, error: DataError) -> None:
        if len(unreadable) + 1 == len(chosen.files):
            raise error
        below = Path(path).relative_to(folder).as_posix()
        unreadable.append(Skipped(below, str(error).removeprefix(path).partition(";")[0].strip()))

    name = folder.name or str(folder.resolve())
    text = _spool(_open_all(chosen.files), encoding, name, skip=skip)
    return replace(text, notes=told(name, chosen, unreadable))


def _spool(
    files: Iterable[tuple[str, IO[bytes]]],
    encoding: str,
    name: str,
    ending: str = ".txt",
    skip: Callable[[str, DataError], None] | None = None,
) -> Text:
    """Write the files, joined by one newline, into the cache as UTF-8; `skip` is told of what is no text."""
    folder = make_folder(cache_folder() / "texts")
    partial = folder / f".{os.getpid()}.partial"
    digest, count, joined, starts = hashlib.sha256(), 0, 0, list[int]()
    with write_failures(partial):
        try:
            with partial.open("wb") as out:
                for file_name, file in files:
                    before, digest_before, start = count, digest.copy(), count + bool(joined)
                    try:
                        for block in _joined_blocks(file_name, file, encoding, first=not joined):
                            digest.update(block)
                            count += out.write(block)
                        joined += 1
                        starts += [start] if count > start else []  # an empty file is no document
                    except DataError as error:
                        if skip is None:
                            raise
                        skip(file_name, error)
                        count, digest = before, digest_before
                        out.seek(before)
                        out.truncate()
            _not_empty(count, name)
            path = kept_path(digest.hexdigest(), ending)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    return Text(path, name, count, digest.hexdigest(), documents=(0, *starts[1:]))


def keep_text(content: bytes, name: str, licence: str) -> Text:
    """A text made by a program, kept in the cache under its checksum."""
    digest = sha256_of(content)
    path = kept_path(digest)
    make_folder(path.parent)
    write_bytes(path, content)
    return Text(path, name, len(content), digest, licence)


def _joined_blocks(name: str, file: IO[bytes], encoding: str, *, first: bool) -> Iterator[bytes]:
    if not first:
        yield b"\n"
    yield from utf8_blocks(name, file, encoding)


def _not_empty(count: int, name: str) -> int:
    if count == 0:
        raise DataError(f"{name} is empty; give a file with some text in it")
    return count


def utf8_blocks(name: str, file: IO[bytes], encoding: str) -> Iterator[bytes]:
    """The file's text as UTF-8, block by block; says where and why if it is no text."""
    block = _read_block(name, file)
    named = marked(block) if _is_utf8(encoding) else None
    encoding = named or encoding
    decoder = codecs.getincrementaldecoder(encoding)()
    position = newlines = written = 0
    while True:
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            # error.object is the block with the few bytes that the decoder had kept from the one before.
            where = position - (len(error.object) - len(block)) + error.start
            line = newlines + error.object[: error.start].count(b"\n") + 1
            place = f"byte {where:,} (line {line:,}, byte 0x{error.object[error.start : error.start + 1].hex()})"
            raise DataError(f"{name} {_undecodable(encoding, place, error, marked=named is not None)}") from None
        except UnicodeError as error:  # such as no mark where UTF-16 needs one
            raise DataError(f"{name} is not valid {encoding} ({error}); {_remedy(block)}") from None
        content = text.encode()
        if "\0" in text:
            before = text[: text.index("\0")]
            place = f"byte {written + len(before.encode()):,}, line {newlines + before.count(chr(10)) + 1:,}"
            raise DataError(f"{name} looks like a binary file (zero at {place}), not like text; {_remedy(block)}")
        if content:
            yield content
        if not block:
            return
        position, newlines, written = position + len(block), newlines + text.count("\n"), written + len(content)
        block = _read_block(name, file)


def _read_block(name: str, file: IO[bytes]) -> bytes:
    try:
        return file.read(BLOCK)
    except DECOMPRESSION_ERRORS as error:
        raise DataError(f"{name} cannot be decompressed ({error}); it is damaged or not what its ending says") from None
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror or error}") from error


def _undecodable(encoding: str, place: str, error: UnicodeDecodeError, *, marked: bool) -> str:
    """What is wrong at a place, and what to do."""
    around = error.object[error.object.rfind(b"\n", 0, error.start) + 1 :]
    if marked:
        return f"is not valid {encoding}, which its first bytes name, at {place}; mend or remove what is damaged there"
    if b"\0" in around and _is_utf8(encoding):
        return f"looks like a binary file, not like text, at {place}; {_remedy(error.object)}"
    if _is_utf8(encoding) and mostly_utf8(error.object):
        return f"is not valid {encoding} at {place}; the rest of it is: mend or remove what is damaged there"
    return f"is not valid {encoding} at {place}; {_remedy(around)}"


def _remedy(content: bytes) -> str:
    """The encoding that would make a text of these bytes, else one of many."""
    found = suggested(content)
    if found is not None:
        return f"it reads as {found}: say --encoding {found}"
    other = "utf-16" if b"\0" in content else "latin-1"
    return f"say which encoding it has, if it is text, for example --encoding {other}"
