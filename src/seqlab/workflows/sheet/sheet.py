"""The perplexity sheet: every model on every text, in every unit, with intervals and paired tests.

A ranked figure is one over strings: unknown tokens pay for their spelling. Where a model has a closed
vocabulary and met unknown words, a second row shows the figure without that charge, labelled and not ranked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.registry import FITTED_MODELS
from seqlab.core.reporting import Reporter
from seqlab.core.types import Scorer, Surprisals
from seqlab.data.normalise import parse_steps
from seqlab.data.sources import Text, read_text
from seqlab.evaluation.baselines import BASELINE_ORDER, COMPRESSORS, character_ngram, compressor_nats, last_bytes
from seqlab.evaluation.normalised import NormalisedScorer
from seqlab.evaluation.outsiders import load_hf
from seqlab.evaluation.perplexity import Figures, figures_of
from seqlab.evaluation.statistics import BLOCK_BYTES, Interval, block_edges, block_sums, compare, holm, interval_of
from seqlab.training.determinism import using_threads
from seqlab.workflows.lm.mix import named_run
from seqlab.workflows.lm.mixing import sentence
from seqlab.workflows.lm.original import part_of
from seqlab.workflows.lm.run import LMRun
from seqlab.workflows.sheet.request import check_sheet

Row = dict[str, Any]
REAL = 0.05  # below this p value, after Holm's correction, a difference counts as real
MUCH_UNKNOWN = 0.05


@dataclass(frozen=True)
class Reader:
    """Something that scores text, and what is known of it."""

    name: str
    scorer: Scorer
    bound: str  # "exact": a distribution over strings; else why the figure is not quite that
    trained_on: str = ""  # SHA-256
    run: LMRun | None = None
    baseline: bool = False


@dataclass(frozen=True)
class Scored:
    """One model on one text: the table of surprisals and everything that derives from it."""

    reader: Reader
    text: Text
    content: str
    surprisals: Surprisals
    edges: NDArray[np.int64]  # bytes at which the blocks begin, and the end of the text

    @cached_property
    def blocks(self) -> NDArray[np.float64]:
        """Nats in each block."""
        return block_sums(self.surprisals, self.edges)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes in each block."""
        return np.diff(self.edges)

    @cached_property
    def figures(self) -> Figures:
        return figures_of(self.surprisals, self.content)

    @cached_property
    def interval(self) -> Interval:
        """Drawn once: thousands of resamples."""
        return interval_of(self.blocks, self.sizes)


@dataclass(frozen=True)
class Sheet:
    rows: list[Row]
    comparisons: list[Row]
    notes: list[str]
    scored: list[Scored]


def perplexity_sheet(
    runs: Sequence[str | Path],
    texts: Sequence[str],
    *,
    hf: Sequence[str | Path] = (),
    normalise: str = "",
    baselines: bool = True,
    encoding: str = "utf-8",
    glob: str = "",
    context: int | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
) -> Sheet:
    """Score every text with every model; nothing is refused, unknown tokens pay for their spelling.

    `context` is how many tokens the runs read at a time, instead of those that each was trained with.
    """
    reporter = reporter or Reporter()
    steps = parse_steps(normalise)
    check_sheet(runs, hf, texts, normalise, encoding, glob, threads)
    with using_threads(threads):
        loaded = [named_run(name, reporter) for name in _each_once(runs)]
        readers = [reader_of(run if context is None else run.with_context(context)) for run in loaded]
        readers += [_outsider(folder) for folder in _each_once(hf)]
        read = _named_apart([(source, *_read(source, encoding, glob, reporter)) for source in dict.fromkeys(texts)])
        simple = _baselines(readers, reporter) if baselines else []
        counted = [] if any(_is_the_baseline(reader) for reader in readers) else [reader for reader, _ in simple]
        return make_sheet([*readers, *counted], read, steps, [t for _, t in simple], reporter)


def _each_once(folders: Sequence[str | Path]) -> list[str | Path]:
    return list({Path(folder).resolve(): folder for folder in folders}.values())


def _read(source: str, encoding: str, glob: str, reporter: Reporter) -> tuple[Text, str]:
    text, content = read_text(source, encoding, glob if Path(source).is_dir() else "")
    for line in text.notes:
        reporter.note(line)
    return text, content


def _named_apart(texts: list[tuple[str, Text, str]]) -> list[tuple[Text, str]]:
    """Texts whose short names are the same go by what they were called with."""
    names = [text.name for _, text, _ in texts]
    alone = [names.count(name) == 1 for name in names]
    return [
        (text if single else replace(text, name=source), content)
        for single, (source, text, content) in zip(alone, texts, strict=True)
    ]


def make_sheet(
    readers: Sequence[Reader],
    texts: Sequence[tuple[Text, str]],
    steps: tuple[str, ...],
    training: Sequence[str],
    reporter: Reporter,
) -> Sheet:
    scored = [score(reader, text, content, steps, reporter) for text, content in texts for reader in readers]
    raw = [score(one.reader, one.text, one.content, (), reporter) if steps else None for one in scored]
    rows = [row for one, before in zip(scored, raw, strict=True) for row in _rows(one, before, ",".join(steps))]
    for (text, content), (k, train) in itertools.product(texts, enumerate(training)):
        label = f" {k + 1}" if len(training) > 1 else ""
        with reporter.task(f"compressing {text.name}", None):
            rows += [_compressor_row(name, label, train, text, content) for name in COMPRESSORS]
    comparisons = [row for text, _ in texts for row in _comparisons([s for s in scored if s.text is text])]
    notes = list(dict.fromkeys(note for one in scored for note in _notes(one)))
    return Sheet(_ranked(rows), comparisons, notes, scored)


# --------------------------------------------------------------------------- who takes part


def reader_of(run: LMRun) -> Reader:
    exact = run.tokenizer.one_spelling
    bound = "exact" if exact else "upper bound: a text can be cut into these tokens in several ways, one was scored"
    return Reader(str(run.folder), run.scorer, bound, run.record["text_sha256"], run)


def _outsider(folder: str | Path) -> Reader:
    bound = "upper bound: a text can be cut into these tokens in several ways, one was scored"
    return Reader(str(folder), load_hf(folder), bound)


def _is_the_baseline(reader: Reader) -> bool:
    """A character n-gram of the same order was named: the baseline would be its double."""
    settings = None if reader.run is None else reader.run.settings
    if settings is None or settings.model.kind not in FITTED_MODELS:
        return False
    same: bool = (settings.model.order, settings.tokenizer.kind) == (BASELINE_ORDER, "char")
    return same


def _baselines(readers: Sequence[Reader], reporter: Reporter) -> list[tuple[Reader, str]]:
    """A character n-gram for each different training text, and that text for the compressors."""
    found: dict[str, tuple[Reader, str]] = {}
    for reader in readers:
        if reader.run is None:
            continue
        train = part_of(reader.run, "train", reporter)
        if train and train not in found:
            cut, note = last_bytes(train)
            name = f"{BASELINE_ORDER}-gram of characters on {reader.run.record['text_name']}"
            with reporter.task("counting n-grams", None):
                scorer = character_ngram(cut, BASELINE_ORDER)
            found[train] = (Reader(name + (f" ({note})" if note else ""), scorer, "exact", baseline=True), cut)
    return list(found.values())


# --------------------------------------------------------------------------- scoring and rows


def score(reader: Reader, text: Text, content: str, steps: tuple[str, ...], reporter: Reporter) -> Scored:
    scorer = NormalisedScorer(reader.scorer, steps) if steps else reader.scorer
    with reporter.task(f"scoring {text.name} with {reader.name}", 1.0):
        surprisals = scorer.score(content, progress=reporter.advance)
    return Scored(reader, text, content, surprisals, block_edges(content.encode()))


def _rows(one: Scored, raw: Scored | None, steps: str) -> list[Row]:
    opened = _row(one, one.figures, one.interval, closed=False)
    if raw is not None:
        opened |= {"raw_bits_per_byte": raw.figures.bits_per_byte, "normalisation": _what_it_does(one, raw, steps)}
    if not one.surprisals.unknown.any():
        return [opened]
    table = one.surprisals
    bare = replace(table, nats=table.nats - table.spelling, spelling=np.zeros(len(table)))
    closed = replace(one, surprisals=bare)
    return [opened, _row(closed, closed.figures, closed.interval, closed=True)]


def _row(one: Scored, figures: Figures, interval: Interval, *, closed: bool) -> Row:
    row = {
        "model": one.reader.name,
        "text": one.text.name,
        **figures.as_json(),
        "closed_vocabulary": closed,
        "bound": "closed vocabulary: unknown words are one class" if closed else one.reader.bound,
        "baseline": one.reader.baseline,
        "context": str(one.reader.scorer.policy),
        "interval": [interval.low, interval.high],
        "intervals": intervals_in_every_unit(interval, figures),
        "blocks": interval.blocks,
        "block_bytes": BLOCK_BYTES * interval.joined,
        "correlation": interval.correlation,
        "caution": interval.caution,
        "mixture": _mixture(one.reader),
        "rank": None,
        "raw_bits_per_byte": None,
        "normalisation": None,
    }
    row["flattering_bits_per_byte"] = figures.bits_per_byte - figures.restoration_bits_per_byte
    return row


def _mixture(reader: Reader) -> Row | None:
    """Of a mixture its members, their weights, and what these were fitted on."""
    found = None if reader.run is None else reader.run.record.get("mixture")
    return None if found is None else found | {"sentence": sentence(found)}


def _what_it_does(one: Scored, raw: Scored, steps: str) -> str:
    """Whether the honest total is really below the raw figure, on the same blocks."""
    found = compare(one.blocks, raw.blocks, one.sizes)
    ends = f"{found.interval.low:+.4f} to {found.interval.high:+.4f}"
    effect = "helps" if found.value < 0 else "hurts"
    if found.p >= REAL:
        effect = "makes no difference that this text could show"
    return (
        f"{steps} {effect}: {one.reader.name} on {one.text.name} goes from {raw.figures.bits_per_byte:.4f} to "
        f"{one.figures.bits_per_byte:.4f} bits/byte with the price of undoing it ({found.value:+.4f}, {ends})"
    )


def intervals_in_every_unit(interval: Interval, figures: Figures) -> dict[str, list[float | None]]:
    """The interval of bits per byte, carried over: the same total nats, spread over other units."""
    ends = [replace(figures, nats=bits * math.log(2) * figures.bytes) for bits in (interval.low, interval.high)]
    return {
        "perplexity_per_token": [end.perplexity(end.tokens) for end in ends],
        "perplexity_per_word": [end.perplexity(end.words) for end in ends],
        "perplexity_per_character": [end.perplexity(end.characters) for end in ends],
        "bits_per_character": [end.bits_per_character for end in ends],
    }


def _compressor_row(name: str, label: str, train: str, text: Text, content: str) -> Row:
    """Bits per byte and nothing else: a compressor has no tokens."""
    nats = compressor_nats(name, train, content)
    size = len(content.encode())
    bits = nats / math.log(2) / size
    uncounted = ("mixture", "raw_bits_per_byte", "normalisation", "interval", "intervals", "blocks", "block_bytes")
    absent = dict.fromkeys((*Figures(0.0, 1, 1, 1).as_json(), *uncounted, "correlation", "caution", "rank"))
    return absent | {
        "model": f"{name} after the training text{label}",
        "text": text.name,
        "bytes": size,
        "characters": len(content),
        "nats": nats,
        "bits_per_byte": bits,
        "flattering_bits_per_byte": bits,
        "closed_vocabulary": False,
        "bound": "exact",
        "baseline": True,
        "context": "all of the training text, as far as it looks back",
    }


def _ranked(rows: list[Row]) -> list[Row]:
    """By text, best first; a closed-vocabulary row follows its open one and has no rank."""
    ranked: list[Row] = []
    for text in dict.fromkeys(row["text"] for row in rows):
        here = [row for row in rows if row["text"] == text]
        best_first = sorted((r for r in here if not r["closed_vocabulary"]), key=lambda r: r["bits_per_byte"])
        for rank, row in enumerate(best_first, start=1):
            ranked.append(row | {"rank": rank})
            ranked += [r for r in here if r["closed_vocabulary"] and r["model"] == row["model"]]
    return ranked


def _notes(one: Scored) -> list[str]:
    name, text = one.reader.name, one.text.name
    notes: list[str] = []
    if one.reader.baseline:
        return notes
    if one.text.sha256 == one.reader.trained_on:
        notes.append(f"{text} is the very text that {name} was trained on: its figures flatter")
    elif _was_fitted_on(one):
        notes.append(f"{text} has text that the weights of {name} were fitted on: its figures flatter a little")
    rate = one.figures.unknown_rate
    if rate:
        much = "; the closed-vocabulary figure says little" if rate > MUCH_UNKNOWN else ""
        counts = f"{one.figures.unknown:,} of {one.figures.tokens:,} tokens ({rate:.2%})"
        notes.append(f"{text}: {counts} are unknown to {name} and pay for their spelling{much}")
    if one.surprisals.lossy:
        notes.append(f"{name} drops part of {text} (white space or case) without paying for it: its figure flatters")
    return notes


def _was_fitted_on(one: Scored) -> bool:
    """One of the text and the validation text of a mixture's runs holds the other."""
    if one.reader.run is None or _mixture(one.reader) is None:
        return False
    known = part_of(one.reader.run, "validation") or ""
    return bool(known) and (known in one.content or one.content in known)


# --------------------------------------------------------------------------- paired tests


def _comparisons(scored: list[Scored]) -> list[Row]:
    """Every pair on the same blocks of one text, with Holm's correction over the pairs."""
    pairs = list(itertools.combinations(scored, 2))
    found = [compare(a.blocks, b.blocks, a.sizes) for a, b in pairs]
    adjusted = holm([difference.p for difference in found])
    return [
        {
            "text": a.text.name,
            "a": a.reader.name,
            "b": b.reader.name,
            "difference": difference.value,
            "interval": [difference.interval.low, difference.interval.high],
            "p": p,
            "p_alone": difference.p,
            "baseline": a.reader.baseline or b.reader.baseline,
            "sentence": _sentence(a, b, difference.value, p, len(pairs)),
        }
        for (a, b), difference, p in zip(pairs, found, adjusted, strict=True)
    ]


def _sentence(a: Scored, b: Scored, difference: float, p: float, pairs: int) -> str:
    better, worse = (a, b) if difference < 0 else (b, a)
    corrected = f", Holm over {pairs} pairs" if pairs > 1 else ""
    shown = f"p = {p:.2g}{corrected}" if p >= 0.001 else f"p < 0.001{corrected}"
    few = " (few blocks: unreliable)" if a.interval.caution and len(a.blocks) < 30 else ""
    if p < REAL:
        return (
            f"{better.reader.name} is better than {worse.reader.name} on {a.text.name} by {abs(difference):.4f} "
            f"bits/byte: the difference is real ({shown}){few}"
        )
    return (
        f"{a.reader.name} and {b.reader.name} on {a.text.name} differ by {abs(difference):.4f} bits/byte, "
        f"which may be chance ({shown}): this text does not decide between them{few}"
    )
