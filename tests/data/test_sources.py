import bz2
import gzip
import io
import lzma
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.core.errors import DataError, SeqlabError, UsageError
from seqlab.data import pieces, sources
from seqlab.data.pieces import cut_blocks, cut_text, read_blocks
from seqlab.data.sources import open_text, read_text

TEXT = "Zwölf Boxkämpfer\r\njagen\n\nViktor\tquer 🙂\n" * 50


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz"])
def test_plain_and_compressed_files_give_the_same_text(tmp_path: Path, suffix: str) -> None:
    pack = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[suffix]
    path = tmp_path / f"text.txt{suffix}"
    path.write_bytes(pack(TEXT.encode()))
    text, content = read_text(str(path))
    assert content == TEXT
    assert text.bytes == len(TEXT.encode())
    assert text.sha256 == open_text(str(path)).sha256


def test_a_folder_is_its_files_in_name_order_joined_by_one_newline(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.txt").write_text("B")
    (tmp_path / "a.txt").write_text("A")
    (tmp_path / "sub" / "c.txt.gz").write_bytes(gzip.compress(b"C"))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0")
    assert read_text(str(tmp_path))[1] == "A\nB\nC"


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert read_text("-")[1] == TEXT


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
def test_declared_encodings_become_utf8(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "t.txt").write_bytes("Zwölf Boxkämpfer\r\n".encode(encoding))
    assert read_text(str(tmp_path / "t.txt"), encoding)[1] == "Zwölf Boxkämpfer\r\n"


def test_invalid_utf8_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BLOCK", 7)  # so that characters and lines span blocks
    (tmp_path / "t.txt").write_bytes("äöü\nß line two\n".encode() + b"caf\xe9 x")
    at = len("äöü\nß line two\n".encode()) + 3
    with pytest.raises(
        DataError, match=rf"t\.txt is not valid utf-8 at byte {at} \(line 3, byte 0xe9\).*--encoding latin-1"
    ):
        open_text(str(tmp_path / "t.txt"))


def test_a_character_cut_at_the_end_is_invalid(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes("ab漢".encode()[:-1])
    with pytest.raises(DataError, match="not valid utf-8 at byte 2"):
        open_text(str(tmp_path / "t.txt"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", "empty.txt is empty"),
        ("zero.txt", b"abc\0def", "looks like a binary file"),
        ("image.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "looks like a binary file"),
        ("bad.gz", b"this is no gzip", "cannot be decompressed"),
        ("cut.xz", lzma.compress(b"x" * 10_000)[:50], "cannot be decompressed"),
        ("cut.bz2", bz2.compress(bytes(range(256)) * 40)[:50], "cannot be decompressed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_text_is_one_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        open_text(str(tmp_path / name))
    assert "\n" not in str(error.value)


def test_missing_things_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file, folder or corpus 'nowhere/my.txt'; check the path"):
        open_text("nowhere/my.txt")
    with pytest.raises(DataError, match="did you mean 'shakespeare'"):
        open_text("shakespear")
    with pytest.raises(DataError, match="holds no file that is known as text or code"):
        open_text(str(tmp_path))
    with pytest.raises(UsageError, match="--encoding 'utf-9' is not known"):
        open_text(str(tmp_path), "utf-9")


def test_a_failed_spool_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "t.txt").write_bytes(b"ok" * 100 + b"\xff")
    with pytest.raises(SeqlabError):
        open_text(str(tmp_path / "t.txt"), "ascii")
    assert list((tmp_path / "cache" / "texts").iterdir()) == []


def test_pydoc_needs_no_download() -> None:
    text, content = read_text("pydoc")
    assert text.licence.startswith("PSF")
    assert len(content) > 300_000


@given(blocks=st.lists(st.text("ab \n", max_size=30), max_size=12))
def test_cuts_depend_on_the_text_alone(blocks: list[str]) -> None:
    former = pieces.PIECE, pieces._TAIL
    pieces.PIECE, pieces._TAIL = 10, 4
    try:
        streamed = list(cut_blocks(blocks))
        assert streamed == list(cut_text("".join(blocks)))
    finally:
        pieces.PIECE, pieces._TAIL = former
    assert "".join(streamed) == "".join(blocks)
    assert all(0 < len(piece) <= 10 for piece in streamed)


def test_one_enormous_line_is_cut_anyway() -> None:
    assert [len(p) for p in cut_text("x" * (pieces.PIECE * 2 + 5))] == [pieces.PIECE, pieces.PIECE, 5]


@pytest.mark.parametrize("block", [1, 2, 3, 5, 1000])
def test_blocks_read_between_characters(tmp_path: Path, block: int) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(TEXT.encode())
    start, end = len("Zwölf".encode()), len(TEXT.encode()) - 1
    assert "".join(read_blocks(path, start, end, block)) == TEXT[5:-1]
