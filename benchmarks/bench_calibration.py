"""Do the intervals and verdicts hold? False verdicts, coverage and power, before and after the long-run variance.

    python benchmarks/bench_calibration.py --only neighbours  # series whose neighbours are correlated
    python benchmarks/bench_calibration.py --only texts       # stretches of a text; truth: all of it
    python benchmarks/bench_calibration.py --only documents   # some documents of a corpus; truth: all

Three procedures judge the same numbers:

    before   blocks of about 1,000 bytes, joined while neighbours are correlated, drawn with replacement (kept here)
    cosines  blocks of about 250 bytes; the first ν = min(0.4 n^(2/3), 6) cosine sums, equally weighted, Student's t
    after    blocks of about 250 bytes; `seqlab.evaluation.spread`

A verdict is false where a stretch is taken to differ from the truth (p < 0.05). The least found is the difference that
is called real in 80 % of the cases: in standard errors of the mean (2.80 if those were known) or in bits per byte.
What the models paid for each byte is kept in a folder, so that a second run takes minutes.
"""

import argparse
import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

import seqlab
from seqlab.core.types import Scorer
from seqlab.data.corpora import load_corpus
from seqlab.evaluation.baselines import character_ngram
from seqlab.evaluation.spread import cosine_sums, spread_of
from seqlab.evaluation.statistics import LEVEL, NATS_PER_BIT, block_edges, neighbour_correlation

Numbers = NDArray[np.float64]

WHAT = ("neighbours", "texts", "documents")
SERIES = 2_000
LENGTHS, CORRELATIONS = (30, 150, 500), (0.0, 0.25, 0.3, 0.5, 0.7, 0.8)
TEXTS, SCORED, TRAINED_ON = ("shakespeare", "brown"), 1_200_000, 2_000_000
SAMPLES, STRETCH_BYTES, SETS = 300, (50_000, 100_000, 150_000, 300_000), (6, 12, 24)
STEPS, ORDER = 400, 7
RESAMPLES = 9_999
FEW_BLOCKS, MUCH_CORRELATION = 30, 0.3  # of the procedure before
FIXED = 6  # ν of the plain cosine estimator


@dataclass(frozen=True)
class Reach:
    """How far an estimate may stray from the truth."""

    down: float  # from the value to the lower end of its interval
    up: float
    real: float  # a value this far from zero is called real


Places = NDArray[np.int64]
Procedure = Callable[[Numbers, Places, Places | None], Reach]  # scores, sizes and documents of blocks


# --------------------------------------------------------------------------- the procedures


def before(scores: Numbers, sizes: Places, documents: Places | None = None) -> Reach:
    """Blocks drawn with replacement, whatever their document; their deviations widened as Student's t has it."""
    together = joined(scores / sizes)
    starts = np.arange(len(scores) // together) * together
    scores, sizes = np.add.reduceat(scores, starts), np.add.reduceat(sizes, starts)
    times, widened = drawn(len(scores))
    strayed = ((times @ scores) / (times @ sizes) - scores.sum() / sizes.sum()) * widened
    low, high = np.quantile(strayed, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    rare = round((1 - LEVEL) * (RESAMPLES + 1)) - 2  # so many may stray further: p = (1 + rare) / (R + 1) < 0.05
    real = -np.partition(-np.abs(strayed), rare)[rare]
    return Reach(-float(low), float(high), float(real))


def joined(rates: Numbers) -> int:
    """How many neighbours are drawn as one: doubled while they are correlated and enough are left."""
    times = 1
    while len(rates) // 2 >= FEW_BLOCKS and neighbour_correlation(rates) > MUCH_CORRELATION:
        starts = np.arange(len(rates) // 2) * 2
        rates, times = np.add.reduceat(rates, starts) / np.add.reduceat(np.ones(len(rates)), starts), 2 * times
    return times


@cache
def drawn(n: int) -> tuple[Numbers, Numbers]:
    """How often each resample holds each of n blocks, and by how much it is widened."""
    picked = np.random.default_rng([0, n]).integers(n, size=(RESAMPLES, n)) + n * np.arange(RESAMPLES)[:, None]
    times = np.bincount(picked.ravel(), minlength=n * RESAMPLES).reshape(RESAMPLES, n).astype(np.float64)
    spread = np.random.default_rng([0, n, 1]).chisquare(n - 1, RESAMPLES) / (n - 1)
    return times, np.sqrt(n / (n - 1) / spread)


def cosines(scores: Numbers, sizes: Places, documents: Places | None = None) -> Reach:
    """Lazarus, Lewis, Stock and Watson's equal-weighted cosine estimator."""
    n = len(scores)
    few = int(min(round(0.4 * n ** (2 / 3)), FIXED))
    sums = cosine_sums(scores - scores.sum() / sizes.sum() * sizes)[:few]
    reach = float(stdtrit(few, (1 + LEVEL) / 2) * np.sqrt(n * (sums**2).mean()) / sizes.sum())
    return Reach(reach, reach, reach)


def after(scores: Numbers, sizes: Places, documents: Places | None = None) -> Reach:
    reach = spread_of(scores, sizes, documents).reach(LEVEL)
    return Reach(reach, reach, reach)


PROCEDURES: dict[str, tuple[Procedure, int]] = {
    "before": (before, 1_000),
    "cosines": (cosines, 250),
    "after": (after, 250),
}


@dataclass(frozen=True)
class Judged:
    """What one procedure said of many samples whose estimates stray from the truth by `errors`."""

    false: float  # share of verdicts
    covered: float
    least: float  # difference that is found in 80 % of the cases

    @staticmethod
    def of(errors: Numbers, reaches: Sequence[Reach]) -> "Judged":
        down, up, real = (np.array([getattr(reach, name) for reach in reaches]) for name in ("down", "up", "real"))
        covered = np.mean((errors - down <= 0) & (errors + up >= 0))
        return Judged(float(np.mean(np.abs(errors) > real)), float(covered), float(np.quantile(real - errors, 0.8)))


# --------------------------------------------------------------------------- series


def series(n: int, rho: float) -> Numbers:
    """Gaussian rows of variance one whose neighbours have correlation rho."""
    rows = np.random.default_rng([n, round(100 * rho)]).standard_normal((SERIES, n))
    for k in range(1, n):
        rows[:, k] = rho * rows[:, k - 1] + np.sqrt(1 - rho * rho) * rows[:, k]
    return rows


def standard_error(n: int, rho: float) -> float:
    """√(Σ_{i,j} ρ^|i−j|) / n, of the mean of a row"""
    lags = np.arange(1, n)
    return float(np.sqrt(n + 2 * ((n - lags) * rho**lags).sum()) / n)


def neighbours() -> None:
    print(f"{SERIES:,} series of n blocks, neighbours correlated")
    names = "   ".join([" ".join(f"{name:>7s}" for name in PROCEDURES)] * 3)
    print(f"{'':17s}   {'false verdicts, %':23s}   {'coverage, %':23s}   least found, standard errors")
    print(f"{'n':>5s} {'correlation':>11s}   {names}   after / before")
    for n in LENGTHS:
        for rho in CORRELATIONS:
            rows, sizes = series(n, rho), np.ones(n, np.int64)
            errors, unit = rows.mean(1), standard_error(n, rho)
            found = [Judged.of(errors, [judge(row, sizes, None) for row in rows]) for judge, _ in PROCEDURES.values()]
            cells = [
                " ".join(f"{100 * judged.false:7.1f}" for judged in found),
                " ".join(f"{100 * judged.covered:7.1f}" for judged in found),
                " ".join(f"{judged.least / unit:7.2f}" for judged in found),
                f"{found[-1].least / found[0].least:.2f}",
            ]
            print(f"{n:5d} {rho:11.2f}   " + "   ".join(cells), flush=True)


# --------------------------------------------------------------------------- texts


Piece = tuple[int, int]  # bytes of a text, from and up to


@dataclass(frozen=True)
class Read:
    """A text, and what each model paid for it: bits up to each byte."""

    content: bytes
    documents: list[Piece]  # those that are whole
    paid: dict[str, Numbers]

    def judge(self, pieces: Sequence[Piece], models: Sequence[str], procedure: str) -> tuple[float, Reach]:
        """The figure of a sample, and what the procedure says of it; each piece is a document.

        The figure is what the first model paid, less what the second did if there is one.
        """
        judge, size = PROCEDURES[procedure]
        edges = [block_edges(self.content[start:end], size=size) + start for start, end in pieces]
        bits = [np.concatenate([np.diff(self.paid[model][of_one]) for of_one in edges]) for model in models]
        sizes = np.concatenate([np.diff(of_one) for of_one in edges])
        documents = np.repeat(np.arange(len(edges)), [len(of_one) - 1 for of_one in edges])
        scores = bits[0] - bits[1] if len(bits) > 1 else bits[0]
        return float(scores.sum() / sizes.sum()), judge(scores, sizes, documents)

    def truth(self, pieces: Sequence[Piece], models: Sequence[str]) -> float:
        paid = [
            sum(float(self.paid[model][end] - self.paid[model][start]) for start, end in pieces) for model in models
        ]
        return (paid[0] - sum(paid[1:])) / sum(end - start for start, end in pieces)


def texts(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        read = read_text(name, folder)
        size = len(read.content)
        print(f"\n{SAMPLES} stretches of {name}, {size:,} bytes held out; bits per byte")
        samples = {f"{length // 1000} kB": stretches(size, length) for length in STRETCH_BYTES}
        show(read, [(0, size)], samples)


def stretches(size: int, length: int) -> list[list[Piece]]:
    starts = np.random.default_rng([size, length]).integers(0, size - length, SAMPLES)
    return [[(start, start + length)] for start in starts.tolist()]


def documents(folder: Path, name: str = "brown") -> None:
    read = read_text(name, folder)
    known = read.documents
    print(f"\n{SAMPLES} times some of {len(known)} documents of {name}; bits per byte")
    draw = np.random.default_rng(len(known))
    chosen = {count: [draw.choice(len(known), count, replace=False) for _ in range(SAMPLES)] for count in SETS}
    samples = {f"{count} documents": [[known[k] for k in one] for one in sets] for count, sets in chosen.items()}
    show(read, known, samples)


def show(read: Read, whole: Sequence[Piece], samples: dict[str, list[list[Piece]]]) -> None:
    """For pairs of models, and for each model, one line for each kind of sample: before, cosines, after."""
    pairs = (("lstm, seed 0", "lstm, seed 1"), ("lstm, seed 0", f"{ORDER}-gram"))
    for models in (*pairs, *((model,) for model in read.paid)):
        truth = read.truth(whole, models)
        print(f"  {' − '.join(models)}: {truth:.4f}")
        for label, drawn_ones in samples.items():
            found = []
            for procedure in PROCEDURES:
                judged = [read.judge(pieces, models, procedure) for pieces in drawn_ones]
                errors = np.array([value for value, _ in judged]) - truth
                found.append(Judged.of(errors, [reach for _, reach in judged]))
            cells = [
                f"false verdicts, % {' '.join(f'{100 * judged.false:5.1f}' for judged in found)}",
                f"coverage, % {' '.join(f'{100 * judged.covered:5.1f}' for judged in found)}",
                f"least found {' '.join(f'{judged.least:.4f}' for judged in found)}",
            ]
            print(f"    {label:>12s}   {'   '.join(cells if len(models) > 1 else cells[1:2])}", flush=True)


def read_text(name: str, folder: Path) -> Read:
    """The end of a corpus, scored by models that were trained on what stands before it."""
    folder.mkdir(parents=True, exist_ok=True)
    corpus = load_corpus(name)
    whole = corpus.path.read_bytes()
    train, content = whole[-SCORED - TRAINED_ON : -SCORED], whole[-SCORED:]
    train, content = (part.decode("utf-8", "ignore").encode() for part in (train, content))
    starts = [place - len(whole) + len(content) for place in corpus.documents]
    inside = [start for start in starts if start >= 0]
    makers: dict[str, Callable[[], Scorer]] = {
        "lstm, seed 0": lambda: trained(train, folder / f"{name}-0", 0),
        "lstm, seed 1": lambda: trained(train, folder / f"{name}-1", 1),
        f"{ORDER}-gram": lambda: character_ngram(train.decode(), ORDER),
    }
    found = {model: paid(make, content, folder / f"{name} {model}.npy") for model, make in makers.items()}
    return Read(content, list(itertools.pairwise([*inside, len(content)])), found)


def trained(train: bytes, folder: Path, seed: int) -> Scorer:
    """A character LSTM that counts lead."""
    text = folder.with_suffix(".txt")
    text.write_bytes(train)
    run = seqlab.train_lm(str(text), tokenizer="char", split="95/5", budget=f"{STEPS}steps", seed=seed, out=folder)
    return run.scorer


def paid(make: Callable[[], Scorer], content: bytes, kept: Path) -> Numbers:
    """Bits paid for all tokens that start before each byte, (bytes + 1,)."""
    if not kept.exists():
        found = make().score(content.decode())
        at = np.bincount(found.start, found.nats / NATS_PER_BIT, len(content))
        np.save(kept, np.concatenate([[0.0], at.cumsum()]))
    bits: Numbers = np.load(kept)
    return bits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=WHAT, default=WHAT)
    parser.add_argument("--text", nargs="+", choices=TEXTS, default=TEXTS)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "seqlab-bench-calibration")
    asked = parser.parse_args()
    if "neighbours" in asked.only:
        neighbours()
    if "texts" in asked.only:
        texts(asked.folder, asked.text)
    if "documents" in asked.only:
        documents(asked.folder)


if __name__ == "__main__":
    main()
