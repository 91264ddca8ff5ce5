"""The duel: models of equal budget on one text, trained with several seeds, judged on text that none has seen."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqlab.core.errors import DamageError
from seqlab.core.files import write_bytes, write_text
from seqlab.core.reporting import Reporter
from seqlab.core.settings.duel import DuelSettings, check_duel
from seqlab.core.settings.fields import check_threads, with_flags
from seqlab.core.settings.lm import LMSettings, fill_lm
from seqlab.core.units import human_count, human_seconds, parse_budget, parse_split
from seqlab.data.normalise import normalise
from seqlab.data.prepare import split_bounds
from seqlab.data.sources import Text, open_text
from seqlab.evaluation.normalised import laid_on_original
from seqlab.evaluation.statistics import Places, block_edges, block_sums
from seqlab.pages.charts import CurveOfRun, duel_curves
from seqlab.runs.folder import Line, RunFolder
from seqlab.runs.train import train
from seqlab.training.determinism import deterministic
from seqlab.workflows.duel.folder import DuelFolder, Question, Record, find_duel, new_duel
from seqlab.workflows.duel.plan import Entrant, plan_duel, with_one_tokenizer
from seqlab.workflows.duel.report import duel_page
from seqlab.workflows.duel.verdict import Contestant, Duel, cautions, compare_all, figures_of_runs, stack, verdict
from seqlab.workflows.lm.data import Prepared, prepare_text
from seqlab.workflows.lm.measure import VALIDATION_BITS
from seqlab.workflows.lm.run import LMRun
from seqlab.workflows.lm.task import LanguageModelling, stem_of

UNEVEN = 1.25  # seconds of the slowest model over those of the fastest: from here on time was not equal
DEFAULTS = DuelSettings()


def compare_lms(
    text: str | Path,
    *,
    models: str | Sequence[str],
    match: str = DEFAULTS.match,
    seeds: int = DEFAULTS.seeds,
    out: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    **flags: Any,
) -> Duel:
    """Train every model with every seed on equal terms and say which is best, if that can be said.

    Repeating the call goes on where it was interrupted; with more seeds it goes on from a finished duel. `flags`
    are settings of `train_lm`, for every model that has them; `budget` is what each model has.
    """
    reporter = reporter or Reporter()
    named = models if isinstance(models, str) else ",".join(models)
    kinds = check_duel(DuelSettings(named, match, seeds), flags)
    check_threads(threads)
    threads = threads or torch.get_num_threads()
    budget = flags.pop("budget", LMSettings().training.budget)
    with deterministic(threads), contextlib.ExitStack() as held:
        with reporter.downloading() as progress:
            opened = open_text(str(text), flags.get("encoding", "utf-8"), progress=progress)
        source = str(text)
        if not _can_be_read_again(source):
            source, flags = str(opened.path), {k: v for k, v in flags.items() if k != "encoding"}
        question: Question = {"text": opened.name, "text_sha256": opened.sha256, "models": list(kinds)}
        question |= {"budget": budget, "match": match, "threads": threads, "settings": flags}
        arena = _Arena(opened, source, flags, threads, reporter)
        folder = _opened_folder(arena, question, seeds, out, stem_of(str(text)))
        held.enter_context(RunFolder(folder.path).locked())
        record = _with_seeds(folder, seeds)
        _describe(record, reporter)
        if not _train_all(folder, record, arena):
            return Duel(folder.path, _interrupted(record), match, arena.part)
        return _judge(folder, record, arena)


def _can_be_read_again(source: str) -> bool:
    path = Path(source)
    return source != "-" and (path.is_file() or path.is_dir() or not path.exists())


class _Arena:
    """What all runs of a duel share: the text, prepared once, and the part of it that decides.

    That is the test part, or the validation part if there is no other.
    """

    def __init__(self, text: Text, source: str, flags: dict[str, Any], threads: int, reporter: Reporter) -> None:
        self.source, self.threads, self.reporter = source, threads, reporter
        asked = with_flags(LMSettings(), flags)
        bounds = split_bounds(text, parse_split(asked.data.split))
        self.said = with_one_tokenizer(flags, bounds["train"][1])
        self.part = "test" if bounds["test"][0] < bounds["test"][1] else "validation"
        start, end = bounds[self.part]
        with text.path.open("rb") as file:
            file.seek(start)
            content = file.read(end - start)
        self.content = content.decode()
        self.edges: Places = block_edges(content)
        self._data: Prepared | None = None

    @property
    def data(self) -> Prepared:
        """Prepared when it is first needed, for all runs."""
        if self._data is None:
            reader = {"model": "bigram"} if "vectors" in self.said else {}  # the one that has use for vectors
            settings = fill_lm(with_flags(LMSettings(), self.said | reader | {"text": self.source}))
            self._data = prepare_text(settings, self.reporter)
        return self._data

    @property
    def sizes(self) -> Places:
        return np.diff(self.edges)

    def score(self, run: LMRun) -> list[float]:
        """Nats of each block: from the table that the run's own measurement made, if it made it just now."""
        measured = run.measured.get(self.part)
        if measured is None:
            with self.reporter.task(f"{run.name}: scoring the {self.part} text in blocks", 1.0):
                surprisals = run.scorer.score(self.content, progress=self.reporter.advance)
        else:
            normalised = normalise(self.content, run.steps)
            surprisals = measured.surprisals(run.tokenizer, normalised.text)
            surprisals = laid_on_original(surprisals, normalised) if run.steps else surprisals
        sums: list[float] = block_sums(surprisals, self.edges).tolist()
        return sums


def _opened_folder(arena: _Arena, question: Question, seeds: int, out: str | Path | None, stem: str) -> DuelFolder:
    """The folder of this duel, found or made."""
    found = find_duel(out, stem, question, seeds)
    if found is not None:
        arena.reporter.note(f"going on in {found.path}")
        return found
    kinds, budget, match = question["models"], question["budget"], question["match"]
    entrants = plan_duel(kinds, budget, match, arena.said, arena.data, arena.reporter)
    return new_duel(out, stem, Record(question, [seeds], entrants))


def _with_seeds(folder: DuelFolder, seeds: int) -> Record:
    """The record, with a new round if more seeds are asked for than before."""
    record = folder.read()
    if seeds > record.seeds:
        record.rounds.append(seeds)
        folder.write(record)
    return record


def _describe(record: Record, reporter: Reporter) -> None:
    question = record.question
    for entrant in record.entrants:
        words = "fitted by counting, once: no seeds, no sizes, no budget"
        if entrant.cost is not None:
            words = f"{human_count(entrant.cost.parameters)} parameters, {entrant.steps:,} steps"
            words += "" if not entrant.deviation else f" ({entrant.deviation:+.2%} {question['match']})"
        reporter.note(f"{entrant.kind}: {entrant.size_words}; {words}")
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

    def warn(self, line: str) -> None:
        if line not in self.heard:
            self.heard.add(line)
            self.outer.warn(line)

    def start(self, task: str, total: float | None) -> None:
        self.outer.start(f"{self.name}: {task}", total)

    def advance(self, done: float, figures: dict[str, str] | None = None) -> None:
        self.outer.advance(done, figures)

    def finish(self) -> None:
        self.outer.finish()


def _train_all(folder: DuelFolder, record: Record, arena: _Arena) -> bool:
    """Train and score what is missing, saving after each run; False if a training was interrupted."""
    heard: set[str] = set()
    for number, (entrant, seed, name) in enumerate(record.runs, start=1):
        if name in record.scores:
            continue
        run = _trained(folder, entrant, seed, name, arena, _RunReporter(arena.reporter, name, heard))
        if run.interrupted:
            arena.reporter.warn(_interrupted(record))
            return False
        record.scores[name], record.identities[name] = arena.score(run), run.files.identity
        folder.write(record)
        bits = sum(record.scores[name]) / math.log(2) / int(arena.sizes.sum())
        seconds = human_seconds(run.final["seconds"] if run.final else 0.0)
        arena.reporter.note(f"{name}: {bits:.4f} bits per byte after {seconds} ({number} of {len(record.runs)})")
    return True


def _trained(folder: DuelFolder, entrant: Entrant, seed: int, name: str, arena: _Arena, reporter: Reporter) -> LMRun:
    """The finished run, or one that was interrupted; what was begun goes on, what is finished stays as it is."""
    files = RunFolder(folder.path / name)
    told = entrant.flags if entrant.fitted else entrant.flags | {"seed": seed}
    data = arena.data if entrant.kind == "bigram" else replace(arena.data, vectors=None)
    how: dict[str, Any] = {"threads": arena.threads, "reporter": reporter, "data": data}
    said = told | {"text": arena.source}
    run: LMRun = train(LanguageModelling(), said, out=files.path, resume=files.has_run(), **how)
    return run


def _interrupted(record: Record) -> str:
    done = len(record.scores)
    return f"interrupted: {done} of {len(record.runs)} runs are finished; repeat the same command to go on"


# --------------------------------------------------------------------------- judging


def _judge(folder: DuelFolder, record: Record, arena: _Arena) -> Duel:
    """Figures, tests, sentence; writes the picture and the page."""
    scores = {entrant.kind: stack(record.scores, record.runs_of(entrant)) for entrant in record.entrants}
    contestants = [_contestant(folder, record, e, scores[e.kind], arena) for e in record.entrants]
    comparisons = compare_all(scores, arena.sizes, record.seeds)
    winner, sentence = verdict(contestants, comparisons)
    uneven = _uneven(record, contestants)
    if winner is not None and uneven:
        sentence += f" But {uneven[0]}."
    notes = _ways(record, arena) + cautions(contestants, comparisons, record.rounds) + uneven
    match = record.question["match"]
    duel = Duel(folder.path, sentence, match, arena.part, True, winner, contestants, comparisons, notes)
    title = f"{', '.join(record.question['models'])} on {record.question['text']}"
    picture = duel_curves(_curves(folder, record), title)
    write_bytes(folder.curves, picture)
    write_text(folder.report, duel_page(duel, record, title, picture))
    return duel


def _contestant(folder: DuelFolder, record: Record, entrant: Entrant, scores: Any, arena: _Arena) -> Contestant:
    names = record.runs_of(entrant)
    files = [RunFolder(folder.path / name) for name in names]
    finals = [_final(run, record.identities.get(run.path.name)) for run in files]
    parameters = entrant.cost.parameters if entrant.cost else files[0].read().record["parameters"]
    bits, interval = figures_of_runs(scores, arena.sizes)
    seconds, tokens = (float(np.mean([final[key] for final in finals])) for key in ("seconds", "tokens"))
    paths = [str(run.path) for run in files]
    return Contestant(entrant, paths, parameters, bits, interval, seconds, tokens)


def _final(run: RunFolder, scored: str | None) -> Line:
    """The last line of a run whose scores the duel has."""
    line = run.final()
    if run.identity != scored:
        raise DamageError(f"{run.path} holds another run than the one that was scored; restore it from a copy")
    if line is None:
        raise DamageError(f"{run.path} has lost its figures, though the duel has its scores; restore it from a copy")
    return line


def _curves(folder: DuelFolder, record: Record) -> dict[str, list[CurveOfRun]]:
    """Validations on the way, in bits per byte of the original text, as the table counts them."""

    def learning(name: str) -> CurveOfRun:
        lines = RunFolder(folder.path / name).read_metrics()
        checks = [line for line in lines if VALIDATION_BITS in line]
        if not checks:
            final = lines[-1]
            return CurveOfRun([final["seconds"]], [final["tokens"]], [final["validation"]["bits_per_byte"]])
        values = [line[VALIDATION_BITS] for line in checks]
        return CurveOfRun([line["seconds"] for line in checks], [line["tokens"] for line in checks], values)

    names = {f"{e.kind} (fitted)" if e.fitted else e.kind: record.runs_of(e) for e in record.entrants}
    return {label: [learning(name) for name in runs] for label, runs in names.items()}


def _ways(record: Record, arena: _Arena) -> list[str]:
    """How the figures were made."""
    text = f"bits per byte of the {arena.part} text, {int(arena.sizes.sum()):,} bytes in {len(arena.sizes)} blocks"
    if arena.part == "validation":
        text += "; there is no test part, and the best weights were chosen on this very text: the figures flatter"
    lines = [text]
    if record.seeds > 1:
        lines.append(
            "intervals (95 %) and p values: bootstrap over blocks and seeds, widened by Student's t for the number of "
            "seeds; p after Holm's correction"
        )
    if any(entrant.fitted for entrant in record.entrants):
        lines.append("what is fitted by counting has no seeds: its interval is over blocks alone")
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
