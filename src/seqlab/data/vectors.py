"""Word vectors for a list of words, by name or from a file: only the rows that are needed.

What a word without a vector gets is for the caller to decide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import DataError, UsageError, nearest
from seqlab.core.files import sha256_of_file
from seqlab.core.reporting import ByteProgress
from seqlab.core.units import number_of
from seqlab.data.sources import checked_path
from seqlab.data.vector_sets import VECTORS, load_vector_set
from seqlab.data.vector_text import check_width, read_vector_text


@dataclass(frozen=True, eq=False)
class WordVectors:
    """One row for each word asked for; a word is looked up as it stands, then in lower case."""

    name: str
    matrix: NDArray[np.float32]
    """(words, width); zeros where the word has no vector."""
    exact: NDArray[np.bool_]
    """(words,): found as it stands."""
    lowered: NDArray[np.bool_]
    """(words,): found only in lower case."""
    sha256: str
    """Of the file as it lies on disk."""

    @property
    def missing(self) -> NDArray[np.bool_]:
        return ~(self.exact | self.lowered)

    def coverage(self, counts: Sequence[int]) -> str:
        """One sentence on how many words and tokens have a vector; `counts` says how often each word occurs."""
        words = len(self.exact)
        if len(counts) != words:
            raise UsageError(f"{len(counts):,} counts for {words:,} words; give one count for each word")
        found = ~self.missing
        tokens = np.asarray(counts, dtype=np.int64)
        return (
            f"{self.name}: {found.sum():,} of {words:,} words have a vector ({_percent(found.sum(), words)}; "
            f"{self.lowered.sum():,} of them only in lower case), "
            f"{_percent(tokens[found].sum(), tokens.sum())} of the tokens"
        )


def refuse_without_match(vectors: WordVectors, words: Sequence[str]) -> None:
    """Vectors of none of the words are of another language, or no vectors of words."""
    if len(words) and vectors.missing.all():
        raise DataError(
            f"{vectors.name}: none of the {number_of(len(words), 'word')} of the text, such as '{words[0]}', has a "
            "vector; name vectors of its language, or leave out --vectors"
        )


def _percent(part: int, whole: int) -> str:
    """Rounded down, so that 100.0 % means all."""
    return f"{1000 * int(part) // int(whole) / 10 if whole else 0:.1f} %"


def load_vectors(
    source: str, words: Sequence[str], *, width: int | None = None, progress: ByteProgress | None = None
) -> WordVectors:
    """Vectors of `words` from a text file (also .gz, .bz2, .xz) or, if there is no such file, a named set.

    `width` is the number of values that each vector must have; `progress` hears of the bytes fetched or read.
    """
    wanted = {form for word in words for form in (word, word.lower())}
    path = checked_path(source)
    if path.is_file():
        rows, found_width = read_vector_text(path, wanted, width, progress)
        return _in_order(path.name, words, rows, found_width, sha256_of_file(path))
    if path.exists():
        raise DataError(f"{source} is no file; name a text file of word vectors")
    if source not in VECTORS:
        hint = nearest(source, VECTORS) if len(path.parts) == 1 and not path.suffix else "; check the path"
        raise DataError(f"there is no file or set of word vectors '{source}'{hint}")
    check_width(source, VECTORS[source].width, width)
    vectors = load_vector_set(source, progress=progress)
    return _in_order(source, words, vectors.rows(wanted), vectors.width, vectors.sha256)


def _in_order(
    name: str, words: Sequence[str], rows: Mapping[str, NDArray[np.float32]], width: int, sha256: str
) -> WordVectors:
    exact = np.array([word in rows for word in words], dtype=np.bool_)
    lowered = np.array([word not in rows and word.lower() in rows for word in words], dtype=np.bool_)
    matrix = np.zeros((len(words), width), dtype=np.float32)
    for index, word in enumerate(words):
        row = rows.get(word, rows.get(word.lower()))
        if row is not None:
            matrix[index] = row
    return WordVectors(name, matrix, exact, lowered, sha256)
