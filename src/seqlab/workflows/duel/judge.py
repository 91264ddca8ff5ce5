"""Judging a duel whose runs are all scored: figures, tests, sentence, picture and page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqlab.core.errors import DamageError
from seqlab.core.units import human_seconds, parse_budget
from seqlab.pages.charts import CurveOfRun, duel_curves
from seqlab.runs.folder import Line, RunFolder
from seqlab.workflows.duel.contest import Contest
from seqlab.workflows.duel.entrants import Entrant
from seqlab.workflows.duel.folder import DuelFolder, Record
from seqlab.workflows.duel.progress import progress_of
from seqlab.workflows.duel.report import write_duel
from seqlab.workflows.duel.terms import Terms
from seqlab.workflows.duel.verdict import Contestant, Duel, cautions, compare_all, figures_of_runs, stack, verdict

UNEVEN = 1.25  # seconds of the slowest model over those of the fastest: from here on time was not equal


def judge(folder: DuelFolder, record: Record, contest: Contest) -> Duel:
    """Figures, tests, sentence; writes the picture and the page."""
    terms, sizes = contest.terms, contest.sizes
    scores = {entrant.kind: stack(record.scores, record.runs_of(entrant)) for entrant in record.entrants}
    contestants = [_contestant(folder, record, e, scores[e.kind], contest) for e in record.entrants]
    comparisons = compare_all(scores, sizes, record.seeds, terms, contest.documents)
    winner, said = verdict(contestants, comparisons)
    warned = cautions(contestants, comparisons, record.rounds, winner) + _uneven(record, contestants)
    sentence = " ".join([said, _conditions(record, contest, contestants), *(f"But {line}." for line in warned)])
    notes, match = _ways(record, contest), record.question["match"]
    duel = Duel(folder.path, sentence, match, contest.part, True, winner, contestants, comparisons, notes, terms)
    title = f"{', '.join(record.question['models'])} on {contest.name}"
    curves = curves_of(folder, record, terms)
    picture = duel_curves(curves, title, label=terms.validated, counted=terms.counted)
    write_duel(folder, duel, record, contest, title, picture)
    return duel


def _contestant(folder: DuelFolder, record: Record, entrant: Entrant, scores: Any, contest: Contest) -> Contestant:
    names = record.runs_of(entrant)
    files = [RunFolder(folder.path / name) for name in names]
    finals = [_final(run, record.identities.get(run.path.name)) for run in files]
    parameters = entrant.cost.parameters if entrant.cost else files[0].read().record["parameters"]
    terms = contest.terms
    value, interval = figures_of_runs(scores, contest.sizes, terms, contest.documents)
    seconds, count = (float(np.mean([final[key] for final in finals])) for key in ("seconds", terms.counted))
    paths = [str(run.path) for run in files]
    progress = progress_of(entrant, files, terms)
    return Contestant(entrant, paths, parameters, value, interval, seconds, count, terms, progress)


def _final(run: RunFolder, scored: str | None) -> Line:
    """The last line of a run whose scores the duel has."""
    line = run.final()
    if run.identity != scored:
        raise DamageError(f"{run.path} holds another run than the one that was scored; restore it from a copy")
    if line is None:
        raise DamageError(f"{run.path} has lost its figures, though the duel has its scores; restore it from a copy")
    return line


def curves_of(folder: DuelFolder, record: Record, terms: Terms) -> dict[str, list[CurveOfRun]]:
    """Validations on the way, in the figure of the table."""

    def learning(name: str) -> CurveOfRun:
        lines = RunFolder(folder.path / name).read_metrics()
        checks = [line for line in lines if terms.validation_key in line]
        if not checks:
            final = lines[-1]
            return CurveOfRun([final["seconds"]], [final[terms.counted]], [final["validation"][terms.key]])
        values = [line[terms.validation_key] for line in checks]
        return CurveOfRun([line["seconds"] for line in checks], [line[terms.counted] for line in checks], values)

    names = {f"{e.kind} (fitted)" if e.fitted else e.kind: record.runs_of(e) for e in record.entrants}
    return {label: [learning(name) for name in runs] for label, runs in names.items()}


MATCHED = {"time": "", "parameters": ", as many parameters", "flops": ", as many operations"}


def _conditions(record: Record, contest: Contest, contestants: Sequence[Contestant]) -> str:
    """What was compared, on what, over how much, and what that speaks of."""
    terms, question = contest.terms, record.question
    had = [c.progress.passes for c in contestants if c.progress is not None]
    low, high = (f"{ends:.2g}" for ends in (min(had, default=0), max(had, default=0)))
    passes = f" ({low if low == high else f'{low} to {high}'} passes through the training part)" if had else ""
    each = f"{record.seeds} seed{'s' * (record.seeds > 1)} each"
    given = f"each was given {question['budget']}{MATCHED[question['match']]}{passes}, {each}" if had else "all fitted"
    about = terms.others or contestants[0].interval.speaks_of
    flattery = ""
    if contest.part == "validation":
        flattery = f" There is no test part, and the best weights were chosen on {terms.very}: the figures flatter."
    return f"Judged: {contest.basis}, of {contest.name}; {given}. It speaks of {about}.{flattery}"


def _ways(record: Record, contest: Contest) -> list[str]:
    """How the figures were made."""
    terms = contest.terms
    how = "long-run variance of the text" if terms.ordered else f"bootstrap over {terms.blocks}"
    seeds = " and the spread of the seeds, Student's t for how few they are" if record.seeds > 1 else ""
    lines = [f"intervals (95 %) and p values: {how}{seeds}; p after Holm's correction"]
    if any(entrant.fitted for entrant in record.entrants):
        lines.append(f"what is {terms.fitted} has no seeds: its interval is over {terms.blocks} alone")
    return lines


def _uneven(record: Record, contestants: Sequence[Contestant]) -> list[str]:
    """A time budget that did not come to equal times: the machine was busy, or a run stopped early."""
    timed = [c for c in contestants if not c.entrant.fitted]
    if record.question["match"] == "flops" or parse_budget(record.question["budget"]).seconds is None or not timed:
        return []
    slow, fast = max(timed, key=lambda c: c.seconds), min(timed, key=lambda c: c.seconds)
    if slow.seconds < UNEVEN * fast.seconds:
        return []
    return [
        f"the times are not equal: {slow.kind} took {human_seconds(slow.seconds)}, {fast.kind} "
        f"{human_seconds(fast.seconds)} (a busy machine, or early stopping)"
    ]
