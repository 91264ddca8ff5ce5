import errno
import os
from pathlib import Path

import pytest

from seqlab.core.errors import SeqlabError, UsageError
from seqlab.core.files import (
    atomic_write,
    check_targets,
    make_folder,
    remove_partials,
    sha256_of,
    sha256_of_file,
    write_bytes,
)


def test_a_failure_while_writing_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")
    with pytest.raises(RuntimeError), atomic_write(path) as file:
        file.write(b"half of the new")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_is_one_line_that_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SeqlabError, match=r"cannot write .*file: No space left on device; nothing .* is lost"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"


def test_the_folder_is_synced_after_the_file_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[list[str]] = []

    def open_folder(folder: Path, flags: int) -> int:
        opened.append(os.listdir(folder))
        return open_for_good(folder, flags)

    open_for_good = os.open
    monkeypatch.setattr(os, "open", open_folder)
    write_bytes(tmp_path / "file", b"new")
    assert opened == [["file"]]


def test_where_folders_cannot_be_opened_files_are_still_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.delattr(os, "O_DIRECTORY", raising=False)  # as on Windows
    monkeypatch.setattr(os, "open", refuse)
    write_bytes(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_what_killed_writes_left_is_removed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), atomic_write(tmp_path / "a.b") as file:  # no kill: see how it is named
        left = Path(file.name)
        raise KeyboardInterrupt
    others = [".x.partial", ".x.12a.partial", "x.12.partial", ".x.12.partial.txt", "x"]
    for name in (left.name, ".run.json.1.partial", ".two\nlines.1.partial", *others):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / ".folder.12.partial").mkdir()
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / ".x.12.partial").write_bytes(b"")
    remove_partials(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted([*others, ".folder.12.partial", "below"])
    assert os.listdir(tmp_path / "below") == [".x.12.partial"]
    remove_partials(tmp_path / "no such folder")


def test_a_folder_below_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SeqlabError, match="cannot write"):
        make_folder(tmp_path / "file" / "below")


def test_checksums_of_memory_and_disk_agree(tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "x").write_bytes(content)
    assert sha256_of_file(tmp_path / "x") == sha256_of(content)


def test_targets_are_checked_before_any_work(tmp_path: Path) -> None:
    good = str(tmp_path / "a.csv")
    check_targets({"--csv": good, "--html": None})
    for named, message in (
        ({"--csv": str(tmp_path)}, "is a folder; name a file"),
        ({"--csv": "."}, "is a folder"),
        ({"--csv": str(tmp_path / "no" / "a.csv")}, "there is no folder"),
        ({"--html": good, "--csv": good}, "--csv and --html name the same file"),
    ):
        with pytest.raises(UsageError, match=message):
            check_targets(named)
