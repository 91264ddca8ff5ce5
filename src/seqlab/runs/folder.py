"""The run folder: what is in it, how it is written, how damage and strangers are found.

settings.toml           everything asked and decided, versions, seed, threads, checksums of the data
model.safetensors       the best weights so far
checkpoints/            what exact resume needs
metrics.jsonl           one line per log point, each with a checksum of its own; the last one is final
metrics.csv             the numbers of these lines as a table, for other programs; it is never read here
and what the task keeps (tokenizer.json …) and shows (loss.png samples.txt report.html)

Every file that is loaded names the run that it belongs to: a file of another run is refused like a damaged one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import tomllib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from filelock import FileLock, Timeout

from seqlab.core.errors import DamageError, SeqlabError, UsageError
from seqlab.core.files import (
    canonical_json,
    is_partial,
    is_unicode,
    make_folder,
    remove_partials,
    sha256_of,
    why_not_writable,
    write_bytes,
    write_failures,
)
from seqlab.core.registry import TASKS
from seqlab.runs.metrics_files import MetricsTable

FORMAT = 3  # 2: files did not name their run; 1: recurrent weights inside torch's modules
WITHOUT_IDENTITY = 2  # can be loaded, not resumed
FILES_OF_FORMAT_2 = ("tokenizer.json",)  # it knew language models only
BEGINNING = ".beginning"  # marks a folder whose run has not yet written its settings: it may be started anew
LOCK = ".lock"
SHORT = 16  # letters of the identity that stand in every line of the metrics
Line = dict[str, Any]


@dataclass(frozen=True)
class Stored:
    """What settings.toml says: the kind of task, its settings as a table, the record, and who the run is."""

    kind: str
    table: dict[str, Any]
    record: dict[str, Any]
    identity: str | None  # None: written before runs had one


class RunFolder:
    def __init__(self, path: str | Path, identity: str | None = None) -> None:
        if not isinstance(path, str | os.PathLike) or not str(path) or "\0" in str(path) or not is_unicode(str(path)):
            raise UsageError(f"{str(path)!a} names no run folder; name one such as runs/mine")
        self.path = Path(path)
        self.settings_file = self.path / "settings.toml"
        self.model_file = self.path / "model.safetensors"
        self.checkpoint_file = self.path / "checkpoints" / "last.safetensors"
        self.metrics_file = self.path / "metrics.jsonl"
        self.metrics_table = MetricsTable(self.path / "metrics.csv")
        self.report_file = self.path / "report.html"
        self._identity = identity

    # ---- making and finding

    def has_run(self) -> bool:
        return self.settings_file.exists()

    def is_free(self) -> bool:
        """Nothing is here, or only what a run killed before its first step left."""
        if not self.path.exists():
            return True
        if not self.path.is_dir() or self.has_run():
            return False
        return self._mark.exists() or holds_nothing(self.path)

    def begin(self, identity: str) -> None:
        """Mark the folder as one that a run is being started in, until `write`; call it inside `locked`."""
        self._identity = identity
        write_bytes(self._mark, b"")
        make_folder(self.checkpoint_file.parent)
        for file in (self.metrics_file, self.metrics_table.file, self.model_file):
            file.unlink(missing_ok=True)

    @property
    def _mark(self) -> Path:
        return self.path / BEGINNING

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process trains in a folder; the lock dies with the process. What killed writes left is removed."""
        make_folder(self.path)
        lock = FileLock(self.path / LOCK, timeout=0)
        with write_failures(self.path / LOCK):
            try:
                lock.acquire()
            except Timeout:
                raise UsageError(
                    f"another process is training in {self.path}; wait for it or choose another --out"
                ) from None
        try:
            for folder in (self.path, self.checkpoint_file.parent):
                remove_partials(folder)
            if self.has_run():
                self._mark.unlink(missing_ok=True)
            yield
        finally:
            with contextlib.suppress(OSError):  # nobody waits for this lock, so nobody is left with a dead one
                os.unlink(lock.lock_file)
            lock.release()

    def is_locked(self) -> bool:
        """Whether a process is training here now."""
        lock = FileLock(self.path / LOCK, timeout=0)
        if not (self.path / LOCK).exists():
            return False
        try:
            lock.acquire()
        except (Timeout, OSError):
            return True
        lock.release()
        return False

    # ---- settings

    def write(self, kind: str, table: dict[str, Any], record: dict[str, Any]) -> None:
        head = {"kind": kind, "format": FORMAT, "run": self.identity}
        whole = {"seqlab": head, **table, "record": record}
        write_bytes(self.settings_file, tomli_w.dumps({"sha256": _signature(whole), **whole}).encode())
        self._mark.unlink(missing_ok=True)

    def read(self, *, any_kind: bool = False) -> Stored:
        """What settings.toml says; refuses damage, another format and (unless told otherwise) a kind not registered."""
        self._require_run()
        table = read_toml(self.settings_file)
        signature = table.pop("sha256", None)
        head = table.get("seqlab")
        if not isinstance(head, dict):
            raise UsageError(f"{self.settings_file} was not written by seqlab: it has no table 'seqlab'")
        if not any_kind and str(head.get("kind")) not in TASKS:
            raise UsageError(
                f"{self.path} holds a run of kind '{head.get('kind')}', which this seqlab does not know; "
                f"known: {', '.join(TASKS)}"
            )
        if head.get("format") not in (WITHOUT_IDENTITY, FORMAT):
            raise UsageError(
                f"{self.path} has format {head.get('format')}; this seqlab reads format {FORMAT}: "
                "use the version that wrote it, or train anew"
            )
        if signature is None or signature != _signature(table) or not isinstance(table.get("record"), dict):
            raise DamageError(
                f"{self.settings_file} was changed since seqlab wrote it (checksum differs) and was not loaded; "
                "to run edited settings anew use --config with another --out"
            )
        stored = Stored(str(head.get("kind")), table, table["record"], head.get("run"))
        self._identity = stored.identity
        return stored

    def _require_run(self) -> None:
        if not self.path.is_dir():
            raise UsageError(f"there is no run folder {self.path}; 'seqlab runs list' shows those below runs/")
        if not self.has_run():
            raise UsageError(f"{self.path} is not a run folder: it has no settings.toml; name one that seqlab made")

    @property
    def identity(self) -> str | None:
        if self._identity is None and self.has_run():
            self.read(any_kind=True)
        return self._identity

    def check_identity(self, file: Path, found: str | None) -> None:
        """Refuse a file that belongs to another run."""
        wanted = self.identity
        if wanted == found or (wanted and found and wanted.startswith(found)):
            return
        names = [(name or "unnamed")[:SHORT] for name in (found, wanted)]
        raise DamageError(
            f"{file} belongs to another run ({names[0]}, not {names[1]}) and was not loaded; restore it from a copy"
        )

    # ---- what the task keeps

    def keep(self, files: dict[str, bytes]) -> dict[str, str]:
        """Write the task's own files; returns their checksums, for the record."""
        for name, content in files.items():
            write_bytes(self.path / name, content)
        return {name: sha256_of(content) for name, content in files.items()}

    def kept(self, record: dict[str, Any]) -> dict[str, bytes]:
        """The task's own files, each checked against the record."""
        found: dict[str, bytes] = {}
        for name, checksum in (record.get("files") or dict.fromkeys(FILES_OF_FORMAT_2)).items():
            path = self.path / name
            try:
                found[name] = path.read_bytes()
            except OSError as error:
                raise DamageError(f"{path} cannot be read ({error.strerror}); restore it from a copy") from None
            own = _own_checksum(found[name]) if checksum is None else sha256_of(found[name])
            if own != (checksum or record.get("tokenizer_sha256")):
                raise DamageError(f"{path} is damaged or of another run and was not loaded; restore it from a copy")
        return found

    # ---- metrics

    def append_metrics(self, line: Line) -> None:
        with write_failures(self.metrics_file), self.metrics_file.open("ab") as file:
            file.write(self._signed(line))
        self.metrics_table.add(line, self.read_metrics)

    def sync_metrics(self) -> None:
        """Have every line on the disk: a checkpoint counts on those before it."""
        if self.metrics_file.exists():
            with write_failures(self.metrics_file), self.metrics_file.open("ab") as file:
                os.fsync(file.fileno())

    def read_metrics(self) -> list[Line]:
        """Every line; a torn last line is dropped, any other damage is named."""
        if not self.metrics_file.exists():
            return []
        try:
            content = self.metrics_file.read_bytes()
        except OSError as error:
            raise DamageError(
                f"{self.metrics_file} cannot be read ({error.strerror}); restore it from a copy"
            ) from None
        whole, _, _torn = content.rpartition(b"\n")
        return [self._checked(k, raw) for k, raw in enumerate(whole.split(b"\n"), start=1) if raw]

    def _checked(self, number: int, raw: bytes) -> Line:
        try:
            line: Line = json.loads(raw)
            intact = line.pop("crc") == zlib.crc32(canonical_json(line))
        except (ValueError, KeyError, AttributeError, TypeError):
            intact = False
        if not intact:
            raise DamageError(
                f"{self.metrics_file} is damaged at line {number} and was not loaded; restore it from a copy"
            )
        self.check_identity(self.metrics_file, line.pop("run", None))
        return line

    def _signed(self, line: Line) -> bytes:
        named = line if self.identity is None else {**line, "run": self.identity[:SHORT]}
        return canonical_json({**named, "crc": zlib.crc32(canonical_json(named))}) + b"\n"

    def cut_metrics(self, step: int, expected: int) -> None:
        """Drop what was logged after `step`, and any final line: the run goes on from there with `expected` lines."""
        lines = self.read_metrics()
        kept = [line for line in lines if line["step"] <= step and not line.get("final")]
        if len(kept) != expected:
            raise DamageError(
                f"{self.metrics_file} is damaged: it has {len(kept)} lines up to step {step}, not {expected}; "
                "restore it from a copy"
            )
        if any(line.get("final") for line in lines):
            self.report_file.unlink(missing_ok=True)  # it shows figures that are no longer the last
        write_bytes(self.metrics_file, b"".join(self._signed(line) for line in kept))
        self.metrics_table.write(kept)

    def final(self) -> Line | None:
        """The line of final figures, if the run has finished."""
        lines = self.read_metrics()
        return lines[-1] if lines and lines[-1].get("final") else None


def holds_nothing(folder: Path) -> bool:
    """Nothing but what a killed start leaves: its lock and partial files."""
    return all(path.name == LOCK or is_partial(path.name) for path in folder.iterdir())


def _own_checksum(content: bytes) -> str | None:
    """The checksum that a tokenizer.json names itself by, as format 2 recorded it."""
    try:
        return str(json.loads(content)["sha256"])
    except (ValueError, KeyError, TypeError):
        return None


def _signature(table: dict[str, Any]) -> str | None:
    try:
        return sha256_of(canonical_json(table))
    except TypeError:  # a value that seqlab never writes, such as a date
        return None


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no settings file {path}") from None
    except (OSError, ValueError) as error:
        raise DamageError(f"{path} cannot be read as settings: {' '.join(str(error).split())}") from None


def read_config(path: str | Path, kind: str) -> dict[str, Any]:
    """The settings of a settings.toml, of a run of this kind or of somebody's own."""
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"--config {path!r} names no file; name a settings.toml")
    table = read_toml(Path(path))
    head = table.get("seqlab")
    found = head.get("kind", kind) if isinstance(head, dict) else kind
    if found != kind:
        raise UsageError(f"--config {path} has the settings of a run of kind '{found}', not '{kind}'")
    return table


def record_of(path: str | Path) -> dict[str, Any]:
    """The record of a run's settings.toml as it was written; empty where there is none, or somebody edited it."""
    table = read_toml(Path(path))
    signature, record = table.pop("sha256", None), table.get("record")
    return record if isinstance(record, dict) and signature == _signature(table) else {}


@contextlib.contextmanager
def numbered_folder(parent: Path, stem: str) -> Iterator[Path]:
    """Make the first of stem-1, stem-2, … that does not exist; remove it again if it is still empty at the end."""
    make_folder(parent)
    for number in itertools.count(1):
        path = parent / f"{stem}-{number}"
        try:
            path.mkdir()
            break
        except FileExistsError:
            continue
        except OSError as error:
            raise SeqlabError(f"cannot write {path}: {error.strerror}; choose a folder with --out") from error
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):  # not empty: a run is in it
            path.rmdir()


def check_writable(folder: Path) -> None:
    """Refuse an unwritable place before any work is done."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise UsageError(f"{existing} is a file, not a folder; choose another --out")
    if (reason := why_not_writable(existing)) is not None:
        raise SeqlabError(f"cannot write into {existing}: {reason}; choose another --out")
