"""The held-out sentences of a run, translated and scored, beside copying the source and another run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqlab.core.errors import DataError, UsageError
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import with_flags
from seqlab.core.settings.translate import BETWEEN_FILES
from seqlab.core.units import human_p
from seqlab.data.corpora import CORPORA
from seqlab.evaluation.translation import Difference, difference_of
from seqlab.runs.run import load
from seqlab.runs.task import Kept
from seqlab.training.determinism import deterministic
from seqlab.workflows.translate.data import Prepared
from seqlab.workflows.translate.measure import MeasuredTarget, measure_part
from seqlab.workflows.translate.request import joined_places
from seqlab.workflows.translate.run import TranslatorRun

TWO_RUNS = "one seed each: this compares two runs, not two recipes; `translate compare` compares recipes"


@dataclass(frozen=True)
class Evaluated:
    run: TranslatorRun
    part: str
    targets: list[MeasuredTarget]
    other: TranslatorRun | None
    against: dict[str, Difference]  # by target: this run less the other

    def as_json(self) -> dict[str, Any]:
        rows = [one.as_json() for one in self.targets]
        if self.other is not None:
            for row in rows:
                if row["target"] in self.against:
                    row["against"] = {"run": str(self.other.folder), **self.against[row["target"]].as_json()}
        return {"run": str(self.run.folder), "part": self.part, "targets": rows}

    def sentences(self) -> list[str]:
        """Who is ahead, where two runs were compared."""
        found = []
        for name, difference in self.against.items():
            low, high = difference.interval
            if difference.value == 0:
                found.append(f"{name}: exactly as good as {self.other.folder if self.other else ''}")
                continue
            luck = "could well be luck" if low <= 0 <= high else "more than luck"
            ahead = "ahead of" if difference.value > 0 else "BEHIND"
            found.append(
                f"{name}: {ahead} {self.other.folder if self.other else ''} by {abs(difference.value):.2f} BLEU on "
                f"{difference.n:,} sentences (95 %: {low:+.2f} to {high:+.2f}; {human_p(difference.p)}): "
                + "; ".join(filter(None, [luck, difference.caution, TWO_RUNS]))
            )
        return found


def evaluate_translator(
    folder: str | Path,
    *,
    part: str = "test",
    against: str | Path | None = None,
    data: Sequence[str | Path] | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    **how: Any,
) -> Evaluated:
    """Translate and score the test (or validation) sentences; with `against`, another run on the same ones.

    `data` says where the data lie now, if they were moved: the table, or every file in its order.
    """
    reporter = reporter or Reporter()
    if part not in ("test", "validation"):
        raise UsageError(f"--part '{part}' is not known; give test or validation")
    run: TranslatorRun = load(folder, "translate")
    other: TranslatorRun | None = None if against is None else load(against, "translate")
    with deterministic(threads or run.record["threads"]):
        read = read_again(run, data, reporter)
        measured = measure_part(run, read, part, reporter, **how)
        compared = {} if other is None else _compared(run, other, read, measured, reporter, how)
    return Evaluated(run, part, measured, other, compared)


def read_again(run: TranslatorRun, data: Sequence[str | Path] | None, reporter: Reporter) -> Prepared:
    """The data that a run was trained on; refused if they are others now."""
    settings = run.settings
    if data is not None:
        first, *beside = map(str, data)
        settings = with_flags(settings, {"data": first, "beside": joined_places(beside)})
    for place in (settings.data.data, *settings.data.beside.split(BETWEEN_FILES)):
        if place and place not in CORPORA and not Path(place).exists():
            raise DataError(f"the data of {run.folder} are no longer at {place}; say where they are with --data")
    read: Prepared = run.task.prepare(settings, reporter, Kept(run.kept, run.record["checksums"], data is not None))
    if read.checksums["data"] != run.record["checksums"]["data"]:
        raise DataError(
            f"the data of {run.folder} have changed since it was trained; restore them or name them: --data"
        )
    return read


def _compared(
    run: TranslatorRun,
    other: TranslatorRun,
    data: Prepared,
    measured: list[MeasuredTarget],
    reporter: Reporter,
    how: dict[str, Any],
) -> dict[str, Difference]:
    """The other run translates the same sentences; a target that it does not know is left out."""
    found = {}
    if _held_out(run) != _held_out(other):
        reporter.warn(f"{other.folder} was trained on other rows: it may have seen some of these sentences")
    for one in measured:
        if one.name not in other.targets:
            continue
        with reporter.task(f"{other.name}: translating into {one.name}", len(one.rows)):
            encoding = other.encode(data.sources(one.rows))
            theirs = other.hypotheses(encoding, one.name, progress=reporter.advance, **how)
        references = data.references(one.rows, data.languages.tag_of(one.name))
        found[one.name] = difference_of(one.translations, [some[0].text for some in theirs], references)
    if not found:
        raise UsageError(f"{other.folder} knows none of the targets {', '.join(run.targets)}; nothing can be compared")
    return found


def _held_out(run: TranslatorRun) -> tuple[Any, ...]:
    """What decides which rows a run has not learnt from."""
    data = run.settings.data
    return run.record["checksums"]["data"], data.split, data.split_seed, data.held_out
