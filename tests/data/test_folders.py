"""A folder of text and code: what is read, what is left out, and that somebody hears of it."""

import gzip
from pathlib import Path

import pytest

import seqlab
from seqlab.core.errors import DataError, UsageError
from seqlab.core.reporting import Reporter
from seqlab.data.folders import check_glob, choose_files
from seqlab.data.sources import open_text, read_text

FILES = {
    "a.py": b"print(1)\n",
    "Makefile": b"all:\n",
    "b/c.MD": b"words\n",
    "b/d.js.gz": gzip.compress(b"let x\n"),
    "b/data.csv": b"1,2\n",
    "b/deep/e.py": b"pass\n",
    "logo.png": b"\x89PNG\0",
    ".hidden.py": b"no\n",
    ".git/config.txt": b"no\n",
    "node_modules/x.js": b"no\n",
    "venv/pyvenv.cfg": b"home\n",
    "venv/lib/y.py": b"no\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "project"


def names_of(folder: Path, glob: str = "") -> list[str]:
    return [path.relative_to(folder).as_posix() for path in choose_files(folder, glob).files]


def test_text_and_code_are_known_by_their_endings(project: Path) -> None:
    assert names_of(project) == ["Makefile", "a.py", "b/c.MD", "b/d.js.gz", "b/deep/e.py"]
    skipped = {one.name: one.why for one in choose_files(project).skipped}
    assert skipped == {
        ".git/": "hidden or made by tools",
        ".hidden.py": "hidden or made by tools",
        "node_modules/": "hidden or made by tools",
        "venv/": "hidden or made by tools",
        "b/data.csv": "not known as text by its ending",
        "logo.png": "not known as text by its ending",
    }


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.py", ["a.py", "b/deep/e.py"]),
        ("*.csv, *.MD", ["b/c.MD", "b/data.csv"]),
        ("b/*.py", ["b/deep/e.py"]),
        ("**/*.py", ["a.py", "b/deep/e.py"]),
        ("b/**/e.py", ["b/deep/e.py"]),
        ("?.py", ["a.py", "b/deep/e.py"]),
        ("Makefile", ["Makefile"]),
        (".*.py", [".hidden.py"]),
    ],
)
def test_patterns_choose_others(project: Path, glob: str, expected: list[str]) -> None:
    assert sorted(names_of(project, glob)) == sorted(expected)


def test_what_is_joined_is_what_was_chosen(project: Path) -> None:
    text, content = read_text(str(project), glob="*.py")
    assert content == "print(1)\n\npass\n"
    assert text.notes[0] == "project: 2 files in name order"
    assert text.notes[1:] == (
        "skipped 4, hidden or made by tools: .git/, .hidden.py, node_modules/, venv/",
        "skipped 5, not named by --glob: Makefile, b/c.MD, b/d.js.gz, b/data.csv and 1 more",
    )
    assert open_text(str(project)).sha256 != text.sha256


def test_files_that_are_no_text_are_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\0\1")
    (tmp_path / "b.txt").write_bytes("first ü\n".encode())
    (tmp_path / "c.txt").write_bytes(("x" * 3_000_000).encode() + "Grüße".encode("latin-1"))
    (tmp_path / "d.txt").write_bytes("d".encode("utf-16"))
    (tmp_path / "e.txt.gz").write_bytes(b"no gzip")
    text, content = read_text(str(tmp_path))
    assert content == "first ü\n\nd"
    assert text.bytes == len(content.encode())
    assert text.sha256 == open_text(str(tmp_path)).sha256
    assert text.notes == (
        f"{tmp_path.name}: 2 files in name order",
        "skipped a.txt, which looks like a binary file (zero at byte 0, line 1), not like text",
        "skipped c.txt, which is not valid utf-8 at byte 3,000,002 (line 1, byte 0xfc)",
        "skipped e.txt.gz, which cannot be decompressed (Not a gzipped file (b'no'))",
    )


def test_a_folder_without_any_text_says_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="it is empty; name another"):
        open_text(str(tmp_path))
    (tmp_path / "x.dat").write_text("words")
    with pytest.raises(DataError, match=r"it has 1 \.dat; say which are text with --glob '\*\.dat'"):
        open_text(str(tmp_path))
    with pytest.raises(DataError, match=r"holds no file that --glob '\*\.py' names; it has 1 \.dat"):
        open_text(str(tmp_path), glob="*.py")
    (tmp_path / "y.txt").write_bytes(b"\xff\0")
    with pytest.raises(DataError, match=r"y\.txt looks like a binary file"):
        open_text(str(tmp_path))


@pytest.mark.parametrize("glob", ["/etc/*", "../*.py", "a/../../b", " , "])
def test_patterns_stay_inside_the_folder(glob: str) -> None:
    with pytest.raises(UsageError, match="--glob"):
        check_glob(glob)


def test_a_pattern_is_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("words")
    for source in (str(tmp_path / "x.txt"), "pydoc", "-"):
        with pytest.raises(UsageError, match="chooses files of a folder"):
            open_text(source, glob="*.py")


class Heard(Reporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)


def test_a_run_keeps_its_patterns(tmp_path: Path, tiny: dict[str, object]) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    for name, word in (("a.py", "alpha "), ("b.dat", "beta "), ("c.md", "gamma ")):
        (folder / name).write_text(word * 400)
    how = tiny | {"model": "gru", "tokenizer": "char"}
    heard = Heard()
    run = seqlab.train_lm(folder, glob="*.py,*.dat", out=tmp_path / "run", reporter=heard, **how)
    assert run.settings.data.glob == "*.py,*.dat"
    assert run.tokenizer.characters == sorted(" \naehlpbt")
    assert "code: 2 files in name order" in heard.lines
    resumed = seqlab.train_lm(out=tmp_path / "run", resume=True, budget="14steps")
    assert resumed.final["step"] == 14
    assert resumed.record["text_sha256"] == run.record["text_sha256"]
    with pytest.raises(UsageError, match=r"--glob \*\.md conflicts with \*\.py,\*\.dat"):
        seqlab.train_lm(out=tmp_path / "run", resume=True, glob="*.md")
    again = seqlab.train_lm(config=tmp_path / "run" / "settings.toml", out=tmp_path / "again", threads=1)
    assert again.record["text_sha256"] == run.record["text_sha256"]
    sheet = seqlab.perplexity_sheet([tmp_path / "run"], [str(folder)], glob="*.md", baselines=False, threads=1)
    assert sheet.rows[0]["tokens"] == len("gamma ") * 400


def test_a_text_knows_where_its_files_start(tmp_path: Path) -> None:
    """An empty file is no document, nor is one that turns out to be no text."""
    texts = {"a.txt": b"\xc3\xa9t\xc3\xa9", "b.txt": b"", "c.txt": b"ab\0c", "d.txt": b"third\n", "e.txt": b"4"}
    for name, content in texts.items():
        (tmp_path / name).write_bytes(content)
    text, content = read_text(str(tmp_path))
    assert content == "\u00e9t\u00e9\n\nthird\n\n4"
    assert [content.encode()[start:].split(b"\n")[0] for start in text.documents] == [
        "\u00e9t\u00e9".encode(),
        b"third",
        b"4",
    ]
    assert "c.txt" in " ".join(text.notes)
    assert open_text(str(tmp_path / "d.txt")).documents == (0,)
