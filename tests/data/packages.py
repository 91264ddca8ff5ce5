"""Packages made on the spot, and a pip that finds nothing else: no test leaves the machine."""

import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from seqlab.core.files import sha256_of
from seqlab.data.archives import Archive
from seqlab.data.corpora import CORPORA, Corpus, plain_text

FILES = {
    "tiny-1.0/texts/b_play.txt": "second: é\n".encode(),
    "tiny-1.0/texts/a_play.txt": b"first",
    "tiny-1.0/texts/notes.md": b"not a play",
    "tiny-1.0/other/c_play.txt": b"elsewhere",
    "tiny-1.0/setup.py": b"raise SystemExit('this must never run')",
}


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


TINY_SDIST = tar_of(FILES)
TINY_WHEEL = zip_of(FILES)


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and a pip that is configured to look at one folder only, which does not exist yet."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path


def register(
    monkeypatch: pytest.MonkeyPatch,
    content: bytes = TINY_SDIST,
    filename: str = "tiny-1.0.tar.gz",
    clean: Callable[[bytes], str] = plain_text,
) -> Archive:
    archive = Archive("tiny", "1.0", filename, sha256_of(content))
    entry = Corpus("tiny", "two plays", "CC0", 0.1, archive, "*/texts/*_play.txt", clean)
    monkeypatch.setitem(CORPORA, "tiny", entry)
    return archive


def offer(folder: Path, content: bytes, filename: str = "tiny-1.0.tar.gz") -> Path:
    """A simple index at `folder` with a page for `tiny`; returns the file it offers."""
    page = folder / "tiny" / "index.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f'<!DOCTYPE html><html><body><a href="{filename}">{filename}</a></body></html>')
    (page.parent / filename).write_bytes(content)
    return page.parent / filename
