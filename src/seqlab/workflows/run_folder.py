"""The run folder: what is in it, how it is written, how damage is found.

settings.toml           everything asked and decided, versions, seed, threads, checksum of the data
tokenizer.json          the tokenizer
model.safetensors       the best weights so far
checkpoints/            what exact resume needs
metrics.jsonl           one line per log point, each with a checksum of its own; the last one is final
loss.png samples.txt report.html
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import tomllib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli_w

from seqlab.core.errors import DamageError, SeqlabError, UsageError
from seqlab.core.files import canonical_json, make_folder, sha256_of, write_bytes, write_failures
from seqlab.core.settings import LMSettings, from_table, to_table

KIND = "lm"
FORMAT = 2  # 1: recurrent weights inside torch's modules, the GRU's update gate negated
BEGINNING = ".beginning"  # marks a folder whose run has not yet written its settings: it may be started anew
Line = dict[str, Any]


class RunFolder:
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.settings_file = self.path / "settings.toml"
        self.tokenizer_file = self.path / "tokenizer.json"
        self.model_file = self.path / "model.safetensors"
        self.checkpoint_file = self.path / "checkpoints" / "last.safetensors"
        self.metrics_file = self.path / "metrics.jsonl"
        self.loss_plot = self.path / "loss.png"
        self.samples_file = self.path / "samples.txt"
        self.report_file = self.path / "report.html"

    # ---- making and finding

    def has_run(self) -> bool:
        return self.settings_file.exists()

    def is_free(self) -> bool:
        """Nothing is here, or only what a run killed before its first step left."""
        if not self.path.exists():
            return True
        if not self.path.is_dir() or self.has_run():
            return False
        return self._mark.exists() or not any(self.path.iterdir())

    def begin(self) -> None:
        """Mark the folder as one that a run is being started in, until `write_settings`."""
        make_folder(self.path)
        write_bytes(self._mark, b"")
        make_folder(self.checkpoint_file.parent)
        self.metrics_file.unlink(missing_ok=True)

    @property
    def _mark(self) -> Path:
        return self.path / BEGINNING

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process trains in a folder; the lock dies with the process."""
        try:
            import fcntl
        except ImportError:  # a system without file locks
            yield
            return
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise UsageError(
                f"another process is training in {self.path}; wait for it or choose another --out"
            ) from None
        finally:
            os.close(descriptor)

    def require_run(self) -> None:
        if not self.path.is_dir():
            raise UsageError(f"there is no run folder {self.path}; 'seqlab lm train TEXT --out {self.path}' makes one")
        if not self.has_run():
            raise UsageError(
                f"{self.path} is not a run folder: it has no settings.toml; name one that 'seqlab lm train' made"
            )

    # ---- settings

    def write_settings(self, settings: LMSettings, record: dict[str, Any]) -> None:
        head = {"kind": KIND, "format": FORMAT}
        table = {"seqlab": head, **to_table(settings), "record": record}
        signed = {"sha256": _signature(table), **table}
        write_bytes(self.settings_file, tomli_w.dumps(signed).encode())
        self._mark.unlink(missing_ok=True)

    def read_settings(self) -> tuple[LMSettings, dict[str, Any]]:
        """The settings and the record; refuses damage, another kind of run and another format."""
        self.require_run()
        table = read_toml(self.settings_file)
        signature = table.pop("sha256", None)
        head = table.get("seqlab")
        if not isinstance(head, dict):
            raise UsageError(f"{self.settings_file} was not written by seqlab: it has no table 'seqlab'")
        if head.get("kind") != KIND:
            raise UsageError(f"{self.path} holds a run of kind '{head.get('kind')}', not '{KIND}'")
        if head.get("format") != FORMAT:
            raise UsageError(f"{self.path} has format {head.get('format')}; this seqlab reads format {FORMAT}")
        if signature != _signature(table):
            raise DamageError(
                f"{self.settings_file} was changed since seqlab wrote it (checksum differs) and was not loaded; "
                "to run edited settings anew use --config with another --out"
            )
        return from_table(table, str(self.settings_file)), table["record"]

    # ---- metrics

    def append_metrics(self, line: Line) -> None:
        with write_failures(self.metrics_file), self.metrics_file.open("ab") as file:
            file.write(_with_checksum(line))

    def sync_metrics(self) -> None:
        """Have every line on the disk: a checkpoint counts on those before it."""
        if self.metrics_file.exists():
            with write_failures(self.metrics_file), self.metrics_file.open("ab") as file:
                os.fsync(file.fileno())

    def read_metrics(self) -> list[Line]:
        """Every line; a torn last line is dropped, any other damage is named."""
        if not self.metrics_file.exists():
            return []
        content = self.metrics_file.read_bytes()
        whole, _, _torn = content.rpartition(b"\n")
        return [self._checked(k, raw) for k, raw in enumerate(whole.split(b"\n"), start=1) if raw]

    def _checked(self, number: int, raw: bytes) -> Line:
        try:
            line: Line = json.loads(raw)
            crc = line.pop("crc")
            if crc == zlib.crc32(canonical_json(line)):
                return line
        except (ValueError, KeyError, AttributeError):
            pass
        raise DamageError(f"{self.metrics_file} is damaged at line {number} and was not loaded; restore it from a copy")

    def cut_metrics(self, step: int, expected: int) -> None:
        """Drop what was logged after `step`, and any final line: the run goes on from there with `expected` lines."""
        kept = [line for line in self.read_metrics() if line["step"] <= step and not line.get("final")]
        if len(kept) != expected:
            raise DamageError(
                f"{self.metrics_file} is damaged: it has {len(kept)} lines up to step {step}, not {expected}; "
                "restore it from a copy"
            )
        write_bytes(self.metrics_file, b"".join(_with_checksum(line) for line in kept))

    def final(self) -> Line | None:
        """The line of final figures, if the run has finished."""
        lines = self.read_metrics()
        return lines[-1] if lines and lines[-1].get("final") else None


def _signature(table: dict[str, Any]) -> str | None:
    try:
        return sha256_of(canonical_json(table))
    except TypeError:  # a value that seqlab never writes, such as a date
        return None


def _with_checksum(line: Line) -> bytes:
    return canonical_json({**line, "crc": zlib.crc32(canonical_json(line))}) + b"\n"


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no settings file {path}") from None
    except (OSError, ValueError) as error:
        raise DamageError(f"{path} cannot be read as settings: {' '.join(str(error).split())}") from None


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
    if not os.access(existing, os.W_OK | os.X_OK):
        raise SeqlabError(f"cannot write into {existing}: permission denied; choose another --out")
