"""Files that survive crashes and betray damage: atomic writes and checksums."""

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from seqlab.core.cache import CACHE_VARIABLE, cache_folder
from seqlab.core.errors import SeqlabError, UsageError

BLOCK = 1 << 20
PARTIAL = re.compile(r"\..+\.\d+\.partial", re.DOTALL)  # .NAME.PID.partial, as `atomic_write` names them


@contextlib.contextmanager
def write_failures(path: Path) -> Iterator[None]:
    """Turn an operating-system refusal (full disk, no permission) into one line that names the file."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise SeqlabError(f"cannot write {path}: {reason}; nothing that was there is lost: {_remedy(path)}") from error


def _remedy(path: Path) -> str:
    """The cache has a place that nobody chose on the command line: the variable that moves it is named."""
    if path.absolute().is_relative_to(cache_folder().absolute()):
        return f"this is the cache: free some space, or set {CACHE_VARIABLE} to a folder that can be written"
    return "free some space or choose another folder"


def why_not_writable(folder: Path) -> str | None:
    """Why nothing can be made in a folder that is there, in the system's words; None if something can."""
    if os.access(folder, os.W_OK | os.X_OK):
        return None
    read_only = hasattr(os, "statvfs") and os.statvfs(folder).f_flag & os.ST_RDONLY
    return os.strerror(errno.EROFS if read_only else errno.EACCES).lower()


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """Write a file so that a crash at any moment leaves either the old or the new content, whole.

    A device or a pipe is written to, not replaced; a link stays, and what it leads to is written.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        with write_failures(path), path.open("wb") as file:
            yield file
        return
    path = path.resolve() if path.is_symlink() else path
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with write_failures(path):
        try:
            with partial.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            _sync_folder(path.parent)
        finally:
            partial.unlink(missing_ok=True)


def is_unicode(name: str) -> bool:
    """Whether a name can be written down; a file may be called by bytes that are no UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_partial(name: str) -> bool:
    return PARTIAL.fullmatch(name) is not None


def remove_partials(folder: Path) -> None:
    """Delete what killed writes left in a folder. Nobody else may be writing there: his file would be lost."""
    for path in list(folder.glob(".*.partial")):
        if is_partial(path.name) and path.is_file():
            with write_failures(path):
                path.unlink(missing_ok=True)


def write_bytes(path: str | Path, content: bytes) -> None:
    with atomic_write(path) as file:
        file.write(content)


def write_text(path: str | Path, content: str) -> None:
    write_bytes(path, content.encode())


def check_targets(named: dict[str, str | None]) -> None:
    """Refuse places where a file cannot be written before any work is done; `named` maps flags to paths."""
    seen: dict[Path, str] = {}
    for flag, name in named.items():
        if name is None:
            continue
        if not name:
            raise UsageError(f"{flag} '' names nothing; leave it out or name a file")
        path = Path(name).absolute()
        if path.is_dir() or not path.name:
            raise UsageError(f"{flag} {name} is a folder; name a file")
        if not path.parent.is_dir():
            raise UsageError(f"{flag} {name}: there is no folder {path.parent}; make it first")
        if (reason := why_not_writable(path.parent)) is not None:
            raise SeqlabError(f"{flag} {name}: cannot write into {path.parent}: {reason}")
        if path in seen:
            raise UsageError(f"{flag} and {seen[path]} name the same file {name}; name two")
        seen[path] = flag


def make_folder(path: Path) -> Path:
    with write_failures(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def sha256_of(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()


def sha256_of_file(path: str | Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def canonical_json(value: Any) -> bytes:
    """The one spelling of a JSON value that checksums are taken over."""
    import json

    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _sync_folder(folder: Path) -> None:
    """Let a new name survive a power cut; where a folder cannot be opened (Windows), nothing can be done for it."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
