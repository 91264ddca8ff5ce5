"""What the recipes share: runs that are kept in a folder with their scores, so that a second start goes on.

FOLDER/question.json        what was asked; another question is refused
FOLDER/runs/NAME/           the run folder of each training
FOLDER/scores/NAME.json     nats of each block of the held-out text, and how they were come by
FOLDER/RECIPE.json .md .png the result, written when every run is scored
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.cli.terminal import TerminalReporter
from seqlab.core.errors import DamageError, SeqlabError, UsageError
from seqlab.core.files import canonical_json, make_folder, sha256_of, write_bytes, write_text
from seqlab.core.reporting import Reporter
from seqlab.core.units import human_seconds
from seqlab.evaluation.seeds import SeedDifference, compare_runs
from seqlab.evaluation.statistics import Interval, block_sums
from seqlab.evaluation.surprisal import ModelScorer
from seqlab.runs.folder import RunFolder
from seqlab.runs.train import train
from seqlab.training.determinism import deterministic
from seqlab.workflows.duel.lm import LMContest
from seqlab.workflows.duel.verdict import figures_of_runs
from seqlab.workflows.lm.run import LMRun

Numbers = NDArray[np.float64]
Flags = dict[str, Any]
Scorers = Callable[[LMRun], Mapping[str, ModelScorer]]
SPLIT = "94/3/3"  # of some megabytes: hundreds of blocks to judge on, and most of the text to learn from


class InterruptedRecipe(SeqlabError):
    """A training was asked to stop; everything is saved."""


@dataclass(frozen=True)
class Scored:
    """One training: nats of each block of the held-out text for each way of scoring it."""

    steps: int
    tokens: int  # trained on
    parameters: int
    seconds: float  # of training and of the validations on the way
    nats: dict[str, list[float]]


class KeptRuns:
    """Trainings on one text with one tokenizer, each done and scored once, however often the recipe is started."""

    def __init__(
        self, folder: str | Path, text: str, shared: Flags, asked: Mapping[str, Any], threads: int, reporter: Reporter
    ) -> None:
        self.folder, self.shared, self.threads, self.reporter = Path(folder), shared, threads, reporter
        self.contest = LMContest(text, {"tokenizer": shared["tokenizer"], "split": shared["split"]}, reporter)
        judged = {"threads": threads, "blocks": len(self.sizes), "settings": shared}
        self._ask(self.contest.question | judged | dict(asked))

    def _ask(self, question: dict[str, Any]) -> None:
        """Remember the question, or refuse a folder that was asked another one."""
        path = self.folder / "question.json"
        if path.exists():
            have = _signed(path)
            for name, value in question.items():
                if have.get(name) != value:
                    words = f"{name} {have.get(name)}, not {value}"
                    raise UsageError(f"{self.folder} was begun with {words}; repeat that or choose another --folder")
            return
        make_folder(self.folder / "scores")
        _sign(path, question)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each block."""
        return self.contest.sizes

    def figure(self, nats: Numbers) -> tuple[float, Interval]:
        """Bits per byte of runs (S, blocks), and how sure they are."""
        return figures_of_runs(nats, self.sizes, documents=self.contest.documents)

    def difference(self, a: Numbers, b: Numbers) -> SeedDifference:
        return compare_runs(a, b, self.sizes, documents=self.contest.documents)

    def counted(self) -> Scored:
        """An n-gram model of the default order, which counts and learns nothing: the simplest that can be had."""
        said = {name: self.shared[name] for name in ("tokenizer", "split")}
        return self._once("ngram", said | {"model": "ngram"}, None)

    def scored(self, name: str, flags: Flags, scorers: Scorers | None = None) -> Scored:
        """Train and score what is not there yet. Without `scorers` the run is scored as it was trained, as "own"."""
        return self._once(name, self.shared | flags, scorers)

    def _once(self, name: str, said: Flags, scorers: Scorers | None) -> Scored:
        path = self.folder / "scores" / f"{name}.json"
        if path.exists():
            return Scored(**_signed(path))
        run = self._trained(name, said)
        final = run.final
        assert final is not None
        own = {"own": self.contest.score(run)} if scorers is None else {}
        others = {way: self._blocks(way, run, scorer) for way, scorer in (scorers(run) if scorers else {}).items()}
        kept = (run.record["steps"], final["tokens"], run.record["parameters"], final["seconds"])
        found = Scored(*kept, own | others)
        _sign(path, vars(found))
        first = sum(next(iter(found.nats.values()))) / np.log(2) / int(self.sizes.sum())
        self.reporter.note(
            f"{name}: {first:.4f} bits per byte after {found.steps:,} steps in {human_seconds(found.seconds)}"
        )
        return found

    def _trained(self, name: str, said: Flags) -> LMRun:
        """The finished run: begun, or gone on with."""
        files = RunFolder(self.folder / "runs" / name)
        contest = self.contest
        run: LMRun = train(
            contest.task,
            said | contest.place,
            out=files.path,
            resume=files.has_run(),
            threads=self.threads,
            reporter=_Named(self.reporter, name),
            data=contest.data,
        )
        if run.interrupted:
            raise InterruptedRecipe(f"interrupted in {name}; everything is saved: repeat the same command to go on")
        return run

    def _blocks(self, way: str, run: LMRun, scorer: ModelScorer) -> list[float]:
        with self.reporter.task(f"{run.name}: scoring, {way}", 1.0):
            surprisals = scorer.score(self.contest.content, progress=self.reporter.advance)
        sums: list[float] = block_sums(surprisals, self.contest.edges).tolist()
        return sums

    def write(self, name: str, result: dict[str, Any], page: str, picture: bytes) -> None:
        """The result in three forms."""
        write_text(self.folder / f"{name}.json", json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        write_text(self.folder / f"{name}.md", page)
        write_bytes(self.folder / f"{name}.png", picture)
        self.reporter.note(f"results: {self.folder / name}.json, .md and .png")


class _Named(Reporter):
    """One run of many: its tasks under its name, its warnings, no notes."""

    def __init__(self, outer: Reporter, name: str) -> None:
        self.outer, self.name = outer, name

    def warn(self, line: str) -> None:
        self.outer.warn(f"{self.name}: {line}")

    def start(self, task: str, total: float | None) -> None:
        self.outer.start(f"{self.name}: {task}", total)

    def advance(self, done: float, figures: dict[str, str] | None = None) -> None:
        self.outer.advance(done, figures)

    def finish(self) -> None:
        self.outer.finish()


def _sign(path: Path, value: dict[str, Any]) -> None:
    write_bytes(path, canonical_json({"sha256": sha256_of(canonical_json(value)), "value": value}))


def _signed(path: Path) -> dict[str, Any]:
    try:
        table = json.loads(path.read_bytes())
        value: dict[str, Any] = table["value"]
        if table["sha256"] == sha256_of(canonical_json(value)):
            return value
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise DamageError(f"{path} is not what the recipe wrote (checksum differs); delete it to score that run again")


# --------------------------------------------------------------------------- figures and words


def row_of_interval(value: float, interval: Interval) -> dict[str, Any]:
    found = {"bits_per_byte": value, "interval": [interval.low, interval.high]}
    return found | {"speaks_of": interval.speaks_of, "caution": interval.caution}


def row_of_difference(found: SeedDifference, p: float) -> dict[str, Any]:
    return {"difference": found.value, "interval": [found.interval.low, found.interval.high], "p": p}


def with_interval(row: Mapping[str, Any]) -> str:
    low, high = row["interval"]
    return f"{row['bits_per_byte']:.4f} ({low:.4f}–{high:.4f})"


def with_difference(row: Mapping[str, Any]) -> str:
    low, high = row["interval"]
    shown = "p < 0.001" if row["p"] < 0.001 else f"p = {row['p']:.2g}"
    return f"{row['difference']:+.4f} ({low:+.4f} to {high:+.4f}; {shown})"


def how_sure(row: Mapping[str, Any], seeds: int) -> str:
    """What intervals and p are about."""
    trainings = "one seed each: it compares runs, not recipes" if seeds == 1 else "and of other seeds"
    return f"95 % intervals; p after Holm's correction; both speak of {row['speaks_of']}, {trainings}."


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first column to the left, the others to the right."""
    lines = [header, [":--", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# --------------------------------------------------------------------------- the command line


def add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", required=True, help="where runs, scores and results are kept; the same goes on")
    parser.add_argument("--corpus", default="shakespeare", help="a corpus or a text file (default: shakespeare)")
    parser.add_argument("--tokenizer", default="byte", help="byte, char, word or bpe, fitted once (default: byte)")
    parser.add_argument("--split", default=SPLIT, help=f"training/validation/test, in percent (default: {SPLIT})")
    parser.add_argument("--width", type=int, default=64, help="of every model (default: 64)")
    parser.add_argument("--depth", type=int, default=2, help="layers of every model (default: 2)")
    parser.add_argument("--heads", type=int, default=2, help="attention heads of every model (default: 2)")
    parser.add_argument("--learning-rate", type=float, default=4e-3, help="peak, of every run (default: 0.004)")
    parser.add_argument("--tokens", type=int, default=8192, help="in each step of every run (default: 8192)")
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each model (default: 1)")
    parser.add_argument("--threads", type=int, help="processor threads (default: all)")


def shared_flags(arguments: argparse.Namespace) -> Flags:
    """What every run is told. No dropout: with it softmax attention would leave its fused kernel.

    No patience: every run spends all it has. No guide: it is the networks that are compared.
    """
    names = ("tokenizer", "split", "width", "depth", "heads", "learning_rate")
    said = {name: getattr(arguments, name) for name in names}
    return {"model": "transformer", "size": "small", "dropout": 0.0, "patience": 0, "guide": "none"} | said


def rows_per_step(tokens: int, context: int) -> int:
    if context < 1 or tokens % context:
        raise UsageError(
            f"--tokens {tokens} is not a multiple of context {context}; choose a multiple of every context"
        )
    return tokens // context


def whole_numbers(flag: str, text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1 or len(set(found)) < len(found):
        raise UsageError(f"{flag} {text} is not understood; give different whole numbers, such as 256,2048")
    return found


def start(recipe: Callable[[argparse.Namespace, Reporter], None], parser: argparse.ArgumentParser) -> int:
    """Run a recipe from the command line; an error is one line."""
    arguments = parser.parse_args()
    try:
        if arguments.seeds < 1:
            raise UsageError(f"--seeds {arguments.seeds} must be at least 1")
        arguments.threads = arguments.threads or torch.get_num_threads()
        with deterministic(arguments.threads):
            recipe(arguments, TerminalReporter())
    except SeqlabError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:  # between the trainings, which save themselves: what is scored is kept
        print("interrupted; what is done is saved: repeat the same command to go on", file=sys.stderr)
        return 1
    return 0
