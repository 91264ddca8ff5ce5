"""The folder of a duel: `duel.json` records the question, the plan and every score; the runs lie beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from seqlab.core.errors import DamageError, UsageError
from seqlab.core.files import canonical_json, make_folder, sha256_of, write_bytes
from seqlab.runs.folder import check_writable, holds_nothing, numbered_folder
from seqlab.workflows.duel.entrants import Entrant

FORMAT = 3  # 1: with counts of the validation part, from which curves were guessed; 2: blocks across documents
Question = dict[str, Any]  # plain JSON values; two are the same question if they are equal


@dataclass
class Record:
    """What is known of a duel: enough to go on with it, and to judge it without scoring anything twice."""

    question: Question
    rounds: list[int]  # seeds asked for, in turn: more may be asked for later
    entrants: list[Entrant]
    scores: dict[str, list[float]] = field(default_factory=dict)  # run -> score of each block of the judged part
    identities: dict[str, str | None] = field(default_factory=dict)  # run -> who was scored
    warnings: list[str] = field(default_factory=list)  # those of the runs, each once

    @property
    def seeds(self) -> int:
        return self.rounds[-1]

    def runs_of(self, entrant: Entrant) -> list[str]:
        """Names of its runs; what is fitted is fitted once."""
        return [f"{entrant.kind}-seed{seed}" for seed in range(1 if entrant.fitted else self.seeds)]

    @property
    def runs(self) -> list[tuple[Entrant, int, str]]:
        """Every run in the order of training: one seed of every model, then the next."""
        return [
            (entrant, seed, self.runs_of(entrant)[seed])
            for seed in range(self.seeds)
            for entrant in self.entrants
            if seed < len(self.runs_of(entrant))
        ]


class DuelFolder:
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.file = self.path / "duel.json"
        self.curves = self.path / "curves.png"
        self.report = self.path / "report.html"
        self.models_table = self.path / "models.csv"
        self.pairs_table = self.path / "pairs.csv"

    def write(self, record: Record) -> None:
        table = asdict(record) | {"entrants": [entrant.as_json() for entrant in record.entrants], "format": FORMAT}
        write_bytes(self.file, canonical_json({"sha256": sha256_of(canonical_json(table)), **table}))

    def read(self) -> Record:
        try:
            table = json.loads(self.file.read_bytes())
            signature = table.pop("sha256")
            if signature == sha256_of(canonical_json(table)):
                if table.pop("format") != FORMAT:
                    raise UsageError(f"{self.file} was written by an older seqlab; choose another --out")
                return Record(**(table | {"entrants": [Entrant.from_json(e) for e in table["entrants"]]}))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        raise DamageError(
            f"{self.file} is not what seqlab wrote (checksum differs) and was not loaded; choose another --out"
        )


def find_duel(out: str | Path | None, stem: str, question: Question, seeds: int) -> DuelFolder | None:
    """The duel to go on with: the one in `out`, else the last in runs/ that asks the same question."""
    if out is None:
        found = [folder for folder, record in _earlier(stem) if _goes_on(record, question, seeds)]
        return found[-1] if found else None
    folder = DuelFolder(out)
    if folder.file.exists():
        _refuse_other_question(folder, folder.read(), question, seeds)
        return folder
    if folder.path.exists() and (not folder.path.is_dir() or not holds_nothing(folder.path)):
        raise UsageError(f"{folder.path} exists already and holds no duel; choose another --out")
    check_writable(folder.path)
    return None


def _earlier(stem: str) -> Iterator[tuple[DuelFolder, Record]]:
    paths = [path for path in Path("runs").glob(f"compare-{stem}-*") if path.name.rpartition("-")[2].isdigit()]
    for path in sorted(paths, key=lambda path: int(path.name.rpartition("-")[2])):
        folder = DuelFolder(path)
        try:
            yield folder, folder.read()
        except (DamageError, UsageError):  # not a duel, not whole or too old: it is left alone
            continue


def _goes_on(record: Record, question: Question, seeds: int) -> bool:
    return record.question == question and record.seeds <= seeds


def _refuse_other_question(folder: DuelFolder, record: Record, question: Question, seeds: int) -> None:
    if question.keys() != record.question.keys():
        raise UsageError(f"{folder.path} holds a duel of another task; choose another --out")
    for name, value in question.items():
        have = record.question.get(name)
        if have != value:
            raise UsageError(
                f"{folder.path} holds another duel: {name.replace('_', ' ')} {_short(have)}, "
                f"not {_short(value)}; choose another --out"
            )
    if seeds < record.seeds:
        raise UsageError(f"{folder.path} has {record.seeds} seeds already, not {seeds}; choose another --out")


def _short(value: Any) -> str:
    words = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return words if len(words) <= 60 else f"{words[:57]}…"


def new_duel(out: str | Path | None, stem: str, record: Record) -> DuelFolder:
    """Make the folder and write the record into it."""
    if out is not None:
        folder = DuelFolder(out)
        make_folder(folder.path)
        folder.write(record)
        return folder
    with numbered_folder(Path("runs"), f"compare-{stem}") as path:
        folder = DuelFolder(path)
        folder.write(record)
    return folder
