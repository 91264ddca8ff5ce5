"""The duel: models of equal budget on the same data, trained with several seeds, judged on what none has seen."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from seqlab.core.reporting import Reporter
from seqlab.core.settings.duel import DuelSettings, check_duel
from seqlab.core.settings.fields import check_threads
from seqlab.core.units import human_count, human_seconds, number_of, parse_budget
from seqlab.runs.folder import RunFolder
from seqlab.runs.run import Run
from seqlab.runs.train import train
from seqlab.training.determinism import deterministic
from seqlab.workflows.duel.contest import Contest
from seqlab.workflows.duel.entrants import Entrant
from seqlab.workflows.duel.folder import DuelFolder, Question, Record, find_duel, new_duel
from seqlab.workflows.duel.judge import judge
from seqlab.workflows.duel.verdict import Duel


def compare_models(
    contest_type: type[Contest],
    source: str,
    asked: DuelSettings,
    flags: dict[str, Any],
    *,
    out: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
) -> Duel:
    """Train every model with every seed on equal terms and say which is best, if that can be said.

    Repeating the call goes on where it was interrupted; with more seeds it goes on from a finished duel. `flags`
    are settings of the contest's task, for every model that has them; `budget` is what each model has.
    """
    reporter = reporter or Reporter()
    rules = contest_type.rules
    kinds = check_duel(asked, flags, rules)
    check_threads(threads)
    threads = threads or torch.get_num_threads()
    budget = flags.get("budget", rules.budget)
    shared = {name: value for name, value in flags.items() if name != "budget"}
    with deterministic(threads), contextlib.ExitStack() as held:
        contest = contest_type(source, shared, reporter)
        question: Question = contest.question | {"models": list(kinds), "budget": budget, "match": asked.match}
        question |= {"threads": threads, "settings": contest.flags}
        folder = _opened_folder(contest, question, asked.seeds, out)
        held.enter_context(RunFolder(folder.path).locked())
        record = _with_seeds(folder, asked.seeds)
        _describe(record, contest)
        if not _train_all(folder, record, contest):
            return Duel(folder.path, _interrupted(record), asked.match, contest.part, terms=contest.terms)
        return judge(folder, record, contest)


def _opened_folder(contest: Contest, question: Question, seeds: int, out: str | Path | None) -> DuelFolder:
    """The folder of this duel, found or made."""
    found = find_duel(out, contest.stem, question, seeds)
    if found is not None:
        contest.reporter.note(f"going on in {found.path}")
        return found
    entrants = contest.plan(question["models"], question["budget"], question["match"])
    return new_duel(out, contest.stem, Record(question, [seeds], entrants))


def _with_seeds(folder: DuelFolder, seeds: int) -> Record:
    """The record, with a new round if more seeds are asked for than before."""
    record = folder.read()
    if seeds > record.seeds:
        record.rounds.append(seeds)
        folder.write(record)
    return record


def _describe(record: Record, contest: Contest) -> None:
    question, reporter = record.question, contest.reporter
    for entrant in record.entrants:
        words = f"{contest.terms.fitted}, once: no seeds, no sizes, no budget"
        if entrant.cost is not None:
            words = f"{human_count(entrant.cost.parameters)} parameters, {number_of(entrant.steps or 0, 'step')}"
            words += "" if not entrant.deviation else f" ({entrant.deviation:+.2%} {question['match']})"
        reporter.note(f"{entrant.kind}: {'; '.join(filter(None, (entrant.size_words, words)))}")
    left = [entrant for entrant, _, name in record.runs if name not in record.scores]
    seconds = parse_budget(question["budget"]).seconds
    if seconds and left and question["match"] != "flops":
        training = human_seconds(seconds * sum(not entrant.fitted for entrant in left))
        reporter.note(f"{len(left)} of {len(record.runs)} runs to go: about {training} of training, and scoring")


# --------------------------------------------------------------------------- training and scoring


@dataclass
class _RunReporter(Reporter):
    """What one run of many tells: its tasks under its name, its warnings unless another run gave them, no notes."""

    outer: Reporter
    name: str
    heard: set[str]
    warnings: list[str] = field(default_factory=list)

    def warn(self, line: str) -> None:
        self.warnings.append(line)
        if line not in self.heard:
            self.heard.add(line)
            self.outer.warn(line)

    def start(self, task: str, total: float | None) -> None:
        self.outer.start(f"{self.name}: {task}", total)

    def advance(self, done: float, figures: dict[str, str] | None = None) -> None:
        self.outer.advance(done, figures)

    def finish(self) -> None:
        self.outer.finish()


def _train_all(folder: DuelFolder, record: Record, contest: Contest) -> bool:
    """Train and score what is missing, saving after each run; False if a training was interrupted."""
    heard: set[str] = set()
    terms, reporter = contest.terms, contest.reporter
    for number, (entrant, seed, name) in enumerate(record.runs, start=1):
        if name in record.scores:
            continue
        threads: int = record.question["threads"]
        telling = _RunReporter(reporter, name, heard)
        run = _trained(folder.path / name, entrant, seed, contest, threads, telling)
        if run.interrupted:
            reporter.warn(_interrupted(record))
            return False
        record.scores[name], record.identities[name] = contest.score(run), run.files.identity
        record.warnings += [line for line in dict.fromkeys(telling.warnings) if line not in record.warnings]
        folder.write(record)
        value = sum(record.scores[name]) / terms.scale / int(contest.sizes.sum())
        seconds = human_seconds(run.final["seconds"] if run.final else 0.0)
        reporter.note(f"{name}: {terms.value(value)} after {seconds} ({number} of {len(record.runs)})")
    return True


def _trained(path: Path, entrant: Entrant, seed: int, contest: Contest, threads: int, reporter: Reporter) -> Run:
    """The finished run, or one that was interrupted; what was begun goes on, what is finished stays as it is."""
    files = RunFolder(path)
    said = entrant.flags | ({} if entrant.fitted else {"seed": seed}) | contest.place
    how: dict[str, Any] = {"threads": threads, "reporter": reporter, "data": contest.data_for(entrant.kind)}
    run: Run = train(contest.task, said, out=files.path, resume=files.has_run(), **how)
    return run


def _interrupted(record: Record) -> str:
    done = len(record.scores)
    return f"interrupted: {done} of {len(record.runs)} runs are finished; repeat the same command to go on"
