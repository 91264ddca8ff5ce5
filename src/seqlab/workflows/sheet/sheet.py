"""The perplexity sheet: every model on every text, and on all of them, in every unit, with intervals and paired tests.

A ranked figure is one over strings: unknown tokens pay for their spelling. Where a model has a closed
vocabulary and met unknown words, a second row shows the figure without that charge, labelled and not ranked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from seqlab.core.registry import FITTED_MODELS
from seqlab.core.reporting import Reporter
from seqlab.core.units import CHANCE
from seqlab.data.normalise import parse_steps
from seqlab.data.sources import Text, read_text
from seqlab.evaluation.baselines import BASELINE_ORDER, COMPRESSORS, character_ngram, compressor_nats, last_bytes
from seqlab.evaluation.normalised import NormalisedScorer
from seqlab.evaluation.outsiders import load_hf
from seqlab.evaluation.perplexity import Figures
from seqlab.evaluation.reading_on import that_reads_on
from seqlab.evaluation.statistics import BLOCK_BYTES, Interval, compare
from seqlab.training.determinism import using_threads
from seqlab.workflows.lm.mix import named_run
from seqlab.workflows.lm.mixing import sentence
from seqlab.workflows.lm.original import part_of
from seqlab.workflows.lm.run import LMRun
from seqlab.workflows.sheet.request import check_sheet
from seqlab.workflows.sheet.scored import Measured, Pooled, Reader, Scored
from seqlab.workflows.sheet.verdicts import about, comparisons_of

Row = dict[str, Any]
MUCH_UNKNOWN = 0.05
Name = TypeVar("Name", bound="str | Path")


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
    reading_on: bool = False,
    threads: int | None = None,
    reporter: Reporter | None = None,
) -> Sheet:
    """Score every text with every model; nothing is refused, unknown tokens pay for their spelling.

    `context` is how many tokens the runs read at a time, instead of those that each was trained with. With
    `reading_on` every model is there a second time, as it goes on learning from the text that it reads.
    """
    reporter = reporter or Reporter()
    steps = parse_steps(normalise)
    check_sheet(runs, hf, texts, normalise, encoding, glob, threads)
    with using_threads(threads):
        loaded = [named_run(name, reporter) for name in _each_once(runs)]
        readers = [reader_of(run if context is None else run.with_context(context)) for run in loaded]
        readers += [_outsider(folder) for folder in _each_once(hf)]
        if reading_on:
            readers = [each for reader in readers for each in (reader, _reading_on(reader))]
        read = _named_apart([(source, *_read(source, encoding, glob, reporter)) for source in _each_once(texts)])
        simple = _baselines(readers, reporter) if baselines else []
        counted = [] if any(_is_the_baseline(reader) for reader in readers) else [reader for reader, _ in simple]
        sheet = make_sheet([*readers, *counted], read, steps, [t for _, t in simple], reporter, pool=True)
    said = [*_named_twice("model", runs), *_named_twice("model", hf), *_named_twice("text", texts)]
    if baselines and not loaded:
        said.append("no baselines: they are made from the training text of a run, and no run is named")
    return replace(sheet, notes=[*said, *sheet.notes])


def _each_once(names: Sequence[Name]) -> list[Name]:
    """What is named, the same place once, as it was called first."""
    found: dict[str | Path, Name] = {}
    for name in names:
        found.setdefault(_place(name), name)
    return list(found.values())


def _place(name: str | Path) -> str | Path:
    return Path(name).resolve() if Path(name).exists() else str(name)


def _named_twice(kind: str, names: Sequence[str | Path]) -> list[str]:
    times = Counter(map(_place, names))
    return [
        f"the {kind} {name} is named {count} times: it stands on the sheet once"
        for name in _each_once(names)
        if (count := times[_place(name)]) > 1
    ]


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
    *,
    pool: bool = False,
) -> Sheet:
    """`training` texts are what compressors are given; with `pool` several texts are measured together as well."""
    scored = [score(reader, text, content, steps, reporter) for text, content in texts for reader in readers]
    raw = [score(one.reader, one.text, one.content, (), reporter) for one in scored] if steps else []
    measured: list[Measured] = [*scored, *(_pooled(scored) if pool else [])]
    before: list[Measured] = [*raw, *(_pooled(raw) if pool else [])]
    rows = [row for k, one in enumerate(measured) for row in _rows(one, before[k] if steps else None, ",".join(steps))]
    for k, train in enumerate(training):
        rows += _compressor_rows(f" {k + 1}" if len(training) > 1 else "", train, texts, measured, reporter)
    names = dict.fromkeys(one.text.name for one in measured)
    comparisons = [row for name in names for row in comparisons_of([one for one in measured if one.text.name == name])]
    notes = list(dict.fromkeys(note for one in scored for note in _notes(one)))
    return Sheet(_ranked(rows), comparisons, notes, scored)


def _pooled(scored: Sequence[Scored]) -> list[Pooled]:
    """Every reader on all texts together, where there are several."""
    readers = list({id(one.reader): one.reader for one in scored}.values())
    of_each = [tuple(one for one in scored if one.reader is reader) for reader in readers]
    return [Pooled(parts) for parts in of_each if len(parts) > 1]


# --------------------------------------------------------------------------- who takes part


def reader_of(run: LMRun) -> Reader:
    exact = run.tokenizer.one_spelling
    bound = "exact" if exact else "upper bound: a text can be cut into these tokens in several ways, one was scored"
    return Reader(str(run.folder), run.scorer, bound, run.record["text_sha256"], run)


def _outsider(folder: str | Path) -> Reader:
    bound = "upper bound: a text can be cut into these tokens in several ways, one was scored"
    return Reader(str(folder), load_hf(folder), bound)


def _reading_on(reader: Reader) -> Reader:
    return replace(reader, name=f"{reader.name}, reading on", scorer=that_reads_on(reader.scorer))


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
    return Scored(reader, text, content, surprisals)


def _rows(one: Measured, raw: Measured | None, steps: str) -> list[Row]:
    opened = _row(one, closed=False)
    if raw is not None:
        opened |= {"raw_bits_per_byte": raw.figures.bits_per_byte, "normalisation": _what_it_does(one, raw, steps)}
    return [opened, _row(one.closed, closed=True)] if one.figures.unknown else [opened]


def _row(one: Measured, *, closed: bool) -> Row:
    figures, interval = one.figures, one.interval
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
        "documents": interval.documents,
        "blocks": interval.blocks,
        "block_bytes": BLOCK_BYTES,
        "correlation": interval.correlation,
        "caution": interval.caution,
        "mixture": _mixture(one.reader),
        "about": about(interval),
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


def _what_it_does(one: Measured, raw: Measured, steps: str) -> str:
    """Whether the honest total is really below the raw figure, on the same blocks."""
    found = compare(one.blocks, raw.blocks, one.sizes, documents=one.documents)
    ends = f"{found.interval.low:+.4f} to {found.interval.high:+.4f}"
    effect = "helps" if found.value < 0 else "hurts"
    if found.p >= CHANCE:
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


def _compressor_rows(
    label: str, train: str, texts: Sequence[tuple[Text, str]], measured: Sequence[Measured], reporter: Reporter
) -> list[Row]:
    """Every compressor after one training text, on every text and, where that is asked for, on all of them."""
    pooled = next((one.text for one in measured if isinstance(one, Pooled)), None)
    rows: list[Row] = []
    for name in COMPRESSORS:
        called, nats = f"{name} after the training text{label}", list[float]()
        for text, content in texts:
            with reporter.task(f"compressing {text.name}", None):
                nats.append(compressor_nats(name, train, content))
            rows.append(_compressor_row(called, text, nats[-1], len(content)))
        if pooled is not None:
            characters = sum(len(content) for _, content in texts)
            rows.append(_compressor_row(called, pooled, math.fsum(nats), characters))
    return rows


def _compressor_row(name: str, text: Text, nats: float, characters: int) -> Row:
    """Bits per byte and nothing else: a compressor has no tokens."""
    bits = nats / math.log(2) / text.bytes
    uncounted = ("mixture", "raw_bits_per_byte", "normalisation", "interval", "intervals", "documents", "blocks")
    absent = dict.fromkeys(
        (*Figures(0.0, 1, 1, 1).as_json(), *uncounted, "block_bytes", "correlation", "caution", "about", "rank")
    )
    return absent | {
        "model": name,
        "text": text.name,
        "bytes": text.bytes,
        "characters": characters,
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
