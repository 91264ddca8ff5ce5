"""The duel: models of equal budget on one text, trained with several seeds, judged on text that none has seen."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqlab.core.files import write_bytes, write_text
from seqlab.core.reporting import Reporter
from seqlab.core.settings import LMSettings, check_threads, with_flags
from seqlab.core.units import human_count, human_seconds, parse_budget, parse_split
from seqlab.data.prepare import PartFacts, split_bounds
from seqlab.data.sources import Text, open_text
from seqlab.evaluation.statistics import Places, block_edges, block_sums
from seqlab.workflows.corpora import downloading
from seqlab.workflows.duel import Contestant, Duel, cautions, compare_all, figures_of_runs, stack, verdict
from seqlab.workflows.duel_folder import DuelFolder, Question, Record, find_duel, new_duel
from seqlab.workflows.duel_plan import Entrant, check_request, checked_models, plan_duel, with_one_tokenizer
from seqlab.workflows.duel_report import duel_page
from seqlab.workflows.lm import deterministic, stem_of, train_lm
from seqlab.workflows.plots import Learning, duel_curves
from seqlab.workflows.prepared import Prepared
from seqlab.workflows.run import Run
from seqlab.workflows.run_folder import RunFolder

UNEVEN = 1.25  # seconds of the slowest model over those of the fastest: from here on time was not equal


def compare_lms(
    text: str | Path,
    *,
    models: str | Sequence[str],
    budget: str = "60s",
    match: str = "time",
    seeds: int = 3,
    out: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    **flags: Any,
) -> Duel:
    """Train every model with every seed on equal terms and say which is best, if that can be said.

    Repeating the call goes on where it was interrupted; with more seeds it goes on from a finished duel. `flags`
    are settings of `train_lm`, for every model that has them.
    """
    reporter = reporter or Reporter()
    kinds = checked_models(models)
    check_request(kinds, budget, match, seeds, flags)
    check_threads(threads)
    threads = threads or torch.get_num_threads()
    source = str(text)
    with deterministic(threads, resume=False, out=None), contextlib.ExitStack() as held:
        with downloading(reporter) as progress:
            opened = open_text(source, flags.get("encoding", "utf-8"), progress=progress)
        if not _can_be_read_again(source):
            source, flags = str(opened.path), {k: v for k, v in flags.items() if k != "encoding"}
        question: Question = {"text": opened.name, "text_sha256": opened.sha256, "models": list(kinds)}
        question |= {"budget": budget, "match": match, "threads": threads, "settings": flags}
        folder = _opened_folder(opened, question, seeds, out, stem_of(str(text)), reporter)
        held.enter_context(RunFolder(folder.path).locked())
        record = _with_seeds(folder, seeds)
        _describe(record, reporter)
        judged = _Judged(opened, flags.get("split", LMSettings().data.split))
        if not _train_all(folder, record, source, threads, judged, reporter):
            return Duel(folder.path, _interrupted(record), match, judged.part)
        return _judge(folder, record, judged)


def _can_be_read_again(source: str) -> bool:
    path = Path(source)
    return source != "-" and (path.is_file() or path.is_dir() or not path.exists())


def _opened_folder(
    text: Text, question: Question, seeds: int, out: str | Path | None, stem: str, reporter: Reporter
) -> DuelFolder:
    """The folder of this duel, found or made."""
    found = find_duel(out, stem, question, seeds)
    if found is None:
        return new_duel(out, stem, _planned(text, question, seeds, reporter))
    reporter.note(f"going on in {found.path}")
    return found


def _with_seeds(folder: DuelFolder, seeds: int) -> Record:
    """The record, with a new round if more seeds are asked for than before."""
    record = folder.read()
    if seeds > record.seeds:
        record.rounds.append(seeds)
        folder.write(record)
    return record


def _planned(text: Text, question: Question, seeds: int, reporter: Reporter) -> Record:
    kinds, budget, match = question["models"], question["budget"], question["match"]
    asked = with_flags(LMSettings(), question["settings"])
    train_bytes = split_bounds(text, parse_split(asked.data.split))["train"][1]
    said = with_one_tokenizer(question["settings"], train_bytes)
    prepared = Prepared.of(text, with_flags(LMSettings(), said), None, reporter)
    entrants = plan_duel(kinds, budget, match, said, prepared, reporter)
    return Record(question, [seeds], entrants, _counts(prepared.parts["validation"].facts))


def _counts(facts: PartFacts) -> dict[str, int]:
    return {"tokens": facts.tokens, "bytes": facts.bytes, "unknown_bytes": facts.unknown_bytes}


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


class _Judged:
    """The part of the text that decides: the test part, or the validation part if there is no other."""

    def __init__(self, text: Text, split: str) -> None:
        bounds = split_bounds(text, parse_split(split))
        self.part = "test" if bounds["test"][0] < bounds["test"][1] else "validation"
        start, end = bounds[self.part]
        with text.path.open("rb") as file:
            file.seek(start)
            content = file.read(end - start)
        self.content = content.decode()
        self.edges: Places = block_edges(content)

    @property
    def sizes(self) -> Places:
        return np.diff(self.edges)

    def score(self, run: Run, reporter: Reporter) -> list[float]:
        """nats of each block"""
        surprisals = run.scorer.score(self.content, progress=reporter.advance)
        sums: list[float] = block_sums(surprisals, self.edges).tolist()
        return sums


class _RunReporter(Reporter):
    """What one run of many tells: its tasks under its name, its warnings unless another run gave them, no notes."""

    def __init__(self, outer: Reporter, name: str, heard: set[str]) -> None:
        self._outer, self._name, self._heard = outer, name, heard

    def warn(self, line: str) -> None:
        if line not in self._heard:
            self._heard.add(line)
            self._outer.warn(line)

    def start(self, task: str, total: float | None) -> None:
        self._outer.start(f"{self._name}: {task}", total)

    def advance(self, done: float, figures: dict[str, Any] | None = None) -> None:
        self._outer.advance(done, figures)

    def finish(self) -> None:
        self._outer.finish()


def _train_all(
    folder: DuelFolder, record: Record, source: str, threads: int, judged: _Judged, reporter: Reporter
) -> bool:
    """Train and score what is missing, saving after each run; False if a training was interrupted."""
    heard: set[str] = set()
    for number, (entrant, seed, name) in enumerate(record.runs, start=1):
        if name in record.scores:
            continue
        run = _trained(folder, entrant, seed, name, source, threads, _RunReporter(reporter, name, heard))
        if run.interrupted:
            reporter.warn(_interrupted(record))
            return False
        with reporter.task(f"{name}: scoring the {judged.part} text in blocks", 1.0):
            record.scores[name] = judged.score(run, reporter)
        folder.write(record)
        bits = sum(record.scores[name]) / math.log(2) / int(judged.sizes.sum())
        seconds = human_seconds(run.final["seconds"] if run.final else 0.0)
        reporter.note(f"{name}: {bits:.4f} bits per byte after {seconds} ({number} of {len(record.runs)})")
    return True


def _trained(
    folder: DuelFolder, entrant: Entrant, seed: int, name: str, source: str, threads: int, reporter: Reporter
) -> Run:
    """The finished run, or one that was interrupted; what was begun goes on, what is finished stays as it is."""
    files = RunFolder(folder.path / name)
    told = entrant.flags if entrant.fitted else entrant.flags | {"seed": seed}
    return train_lm(source, out=files.path, resume=files.has_run(), threads=threads, reporter=reporter, **told)


def _interrupted(record: Record) -> str:
    done = len(record.scores)
    return f"interrupted: {done} of {len(record.runs)} runs are finished; repeat the same command to go on"


# --------------------------------------------------------------------------- judging


def _judge(folder: DuelFolder, record: Record, judged: _Judged) -> Duel:
    """Figures, tests, sentence; writes the picture and the page."""
    scores = {entrant.kind: stack(record.scores, record.runs_of(entrant)) for entrant in record.entrants}
    contestants = [_contestant(folder, record, e, scores[e.kind], judged) for e in record.entrants]
    comparisons = compare_all(scores, judged.sizes, record.seeds)
    winner, sentence = verdict(contestants, comparisons)
    uneven = _uneven(record, contestants)
    if winner is not None and uneven:
        sentence += f" But {uneven[0]}."
    notes = _ways(record, judged) + cautions(contestants, comparisons, record.rounds) + uneven
    match = record.question["match"]
    duel = Duel(folder.path, sentence, match, judged.part, True, winner, contestants, comparisons, notes)
    title = f"{', '.join(record.question['models'])} on {record.question['text']}"
    picture = duel_curves(_curves(folder, record), title)
    write_bytes(folder.curves, picture)
    write_text(folder.report, duel_page(duel, record, title, picture))
    return duel


def _contestant(folder: DuelFolder, record: Record, entrant: Entrant, scores: Any, judged: _Judged) -> Contestant:
    names = record.runs_of(entrant)
    files = [RunFolder(folder.path / name) for name in names]
    finals = [run.read_metrics()[-1] for run in files]
    parameters = entrant.cost.parameters if entrant.cost else files[0].read_settings()[1]["parameters"]
    bits, interval = figures_of_runs(scores, judged.sizes)
    seconds, tokens = (float(np.mean([final[key] for final in finals])) for key in ("seconds", "tokens"))
    paths = [str(run.path) for run in files]
    return Contestant(entrant, paths, parameters, bits, interval, seconds, tokens)


def _curves(folder: DuelFolder, record: Record) -> dict[str, list[Learning]]:
    """Validations on the way, in bits per byte: (nats per token · tokens + 8 ln 2 · unknown bytes) / (ln 2 · bytes)."""
    counts = record.validation

    def bits(nats_per_token: float) -> float:
        return (
            nats_per_token * counts["tokens"] / counts["bytes"] / math.log(2)
            + 8 * counts["unknown_bytes"] / counts["bytes"]
        )

    def learning(name: str) -> Learning:
        lines = RunFolder(folder.path / name).read_metrics()
        checks = [line for line in lines if "validation_nats_per_token" in line]
        if not checks:
            final = lines[-1]
            return Learning([final["seconds"]], [final["tokens"]], [final["validation"]["bits_per_byte"]])
        values = [bits(line["validation_nats_per_token"]) for line in checks]
        return Learning([line["seconds"] for line in checks], [line["tokens"] for line in checks], values)

    names = {f"{e.kind} (fitted)" if e.fitted else e.kind: record.runs_of(e) for e in record.entrants}
    return {label: [learning(name) for name in runs] for label, runs in names.items()}


def _ways(record: Record, judged: _Judged) -> list[str]:
    """How the figures were made."""
    text = f"bits per byte of the {judged.part} text, {int(judged.sizes.sum()):,} bytes in {len(judged.sizes)} blocks"
    if judged.part == "validation":
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
