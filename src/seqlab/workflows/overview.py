"""The runs below a folder: what each is, how far it came and what it reached. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seqlab.core.errors import DamageError, DataError, SeqlabError, UsageError
from seqlab.runs.folder import Line, RunFolder, Stored

VALIDATION = "validation_"  # how the key of a validation begins; the task's unit follows


@dataclass(frozen=True)
class RunFacts:
    """One run in one row. What cannot be known is None: of a damaged folder everything but its state."""

    run: str
    kind: str | None = None
    model: str | None = None
    text: str | None = None
    state: str = ""
    step: int | None = None
    steps: int | None = None
    figure: float | None = None
    figure_label: str | None = None
    seconds: float | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def list_runs(folder: str | Path) -> list[RunFacts]:
    """Every run below a folder, by name; one that is damaged says so in its row."""
    if not str(folder):
        raise UsageError("'' names no folder; name one that holds runs")
    place = Path(folder)
    if not place.is_dir():
        raise DataError(f"there is no folder {place}; name one that holds runs")
    return [facts_of(path) for path in _run_folders(place)]


def _run_folders(place: Path) -> Iterator[Path]:
    for path in sorted(place.rglob("settings.toml")):
        if path.is_file() and "[seqlab]" in path.read_text("utf-8", errors="replace"):
            yield path.parent


def facts_of(path: Path) -> RunFacts:
    folder = RunFolder(path)
    try:
        stored = folder.read(any_kind=True)
        lines = folder.read_metrics()
    except SeqlabError as error:
        word = "damaged" if isinstance(error, DamageError) else "not read"
        return RunFacts(str(path), state=f"{word}: {error}")
    record, last = stored.record, lines[-1] if lines else {}
    summary = record.get("summary") or _older_summary(stored)
    label, figure = _figure(lines)
    steps = record.get("steps") or None
    return RunFacts(
        str(path), stored.kind, summary["model"], summary["data"], _state(folder, last), last.get("step", 0), steps,
        figure, label, last.get("seconds"),
    )  # fmt: skip


def _older_summary(stored: Stored) -> dict[str, Any]:
    """Of a run written before records had one: a language model."""
    return {"model": stored.table.get("model", {}).get("kind"), "data": stored.record.get("text_name")}


def _state(folder: RunFolder, last: Line) -> str:
    if last.get("final"):
        return str(last["outcome"])
    return "training" if folder.is_locked() else "interrupted"


def _figure(lines: list[Line]) -> tuple[str | None, float | None]:
    """The headline of a finished run, else its last validation."""
    for line in reversed(lines):
        if "headline" in line:
            return line["headline"]["label"], line["headline"]["value"]
        if line.get("final") and line.get("validation"):  # written before runs had a headline
            return "bits/byte (validation)", line["validation"]["bits_per_byte"]
        found = next((key for key in line if key.startswith(VALIDATION)), None)
        if found is not None:
            return found.replace("_", " "), line[found]
    return None, None


@dataclass(frozen=True)
class RunDetails:
    """One run with everything that its folder says."""

    facts: RunFacts
    identity: str | None
    settings: dict[str, dict[str, Any]]
    record: dict[str, Any]
    final: Line | None
    files: list[tuple[str, int]]  # name, bytes

    def as_json(self) -> dict[str, Any]:
        return self.facts.as_json() | {
            "identity": self.identity,
            "settings": self.settings,
            "record": self.record,
            "final": self.final,
            "files": [{"name": name, "bytes": size} for name, size in self.files],
        }


def show_run(path: str | Path) -> RunDetails:
    """One run in detail; refuses what is damaged."""
    folder = RunFolder(path)
    stored = folder.read(any_kind=True)
    settings = {name: values for name, values in stored.table.items() if name not in ("seqlab", "record")}
    files = sorted(p for p in folder.path.rglob("*") if p.is_file() and not p.name.startswith("."))
    sizes = [(str(p.relative_to(folder.path)), p.stat().st_size) for p in files]
    return RunDetails(facts_of(folder.path), stored.identity, settings, stored.record, folder.final(), sizes)
