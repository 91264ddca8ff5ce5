"""Parallel texts, ready to learn from: read, split, cut into pieces of words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import DataError, UsageError
from seqlab.core.files import canonical_json
from seqlab.core.reporting import Reporter
from seqlab.core.seeding import numpy_generator
from seqlab.core.settings.translate import (
    BETWEEN_FILES,
    ParallelSettings,
    TranslateSettings,
    default_pieces,
    names_in,
)
from seqlab.data.bpe import BPETokenizer
from seqlab.data.duplicates import clusters_of, duplicate_sets
from seqlab.data.pair_batches import Pairs, Rows
from seqlab.data.parallel import Parallel, read_parallel
from seqlab.data.tokenizers import Tokenizer, read_tokenizer
from seqlab.evaluation.translation import bleu_of
from seqlab.runs.task import Kept

TOKENIZER, LANGUAGES = "tokenizer.json", "languages.json"
PARTS = ("train", "validation", "test")
FEWEST = 20  # rows
ASKED = 500  # validation rows that say what copying scores
MUCH_SEEN = 0.02  # of the test sources also stand in training: from here on worth a line

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Languages:
    """What the source and the targets are called; the place of a target is its tag."""

    source: str
    targets: tuple[str, ...]

    def to_bytes(self) -> bytes:
        return canonical_json({"source": self.source, "targets": list(self.targets)})

    def tag_of(self, name: str) -> int:
        if name not in self.targets:
            raise UsageError(f"this translator was not trained for '{name}'; it knows {', '.join(self.targets)}")
        return self.targets.index(name)


def read_pieces(files: Mapping[str, bytes]) -> Tokenizer:
    return read_tokenizer(files[TOKENIZER], TOKENIZER)


def read_languages(files: Mapping[str, bytes]) -> Languages:
    known = json.loads(files[LANGUAGES])
    return Languages(known["source"], tuple(known["targets"]))


@dataclass(frozen=True, eq=False)
class Prepared:
    parallel: Parallel
    languages: Languages
    tokenizer: Tokenizer
    pairs: Pairs
    parts: dict[str, Places]  # rows of each part
    learnt: Places  # pairs to learn from
    too_long: int  # training pairs that are longer than the limit
    split: str  # "end" or "random"

    def pairs_of(self, part: str, target: int | None = None) -> Places:
        inside = np.isin(self.pairs.source, self.parts[part])
        return np.flatnonzero(inside if target is None else inside & (self.pairs.target == target))

    def rows_of(self, part: str, target: int) -> Places:
        """Rows of a part that have this target."""
        return self.pairs.source[self.pairs_of(part, target)]

    def references(self, rows: Places, target: int) -> list[str]:
        texts = self.parallel.targets[self.languages.targets[target]]
        return [texts[row] for row in rows]

    def sources(self, rows: Places) -> list[str]:
        return [self.parallel.sources[row] for row in rows]

    @cached_property
    def copying(self) -> dict[str, float]:
        """BLEU of the sources themselves, for each target, on validation rows."""
        found = {}
        for number, name in enumerate(self.languages.targets):
            rows = self.rows_of("validation", number)[:ASKED]
            found[name] = bleu_of(self.sources(rows), self.references(rows, number)) if len(rows) else 0.0
        return found

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How often each piece stands in the targets to learn from, the end included.    (V,)"""
        source, target = self.pairs.source[self.learnt], self.pairs.target[self.learnt]
        rows = [self.pairs.targets[k][row] for k, row in zip(target.tolist(), source.tolist(), strict=True)]
        counted = np.bincount(np.concatenate(rows), minlength=self.tokenizer.vocab_size)
        counted[self.pairs.end] += len(rows)
        return counted

    @property
    def notes(self) -> tuple[str, ...]:
        notes = list(self.parallel.notes)
        if self.too_long:
            notes.append(f"{self.too_long:,} training pairs are longer than --length and are not trained on")
        seen = self.seen_sources
        if seen > MUCH_SEEN:
            notes.append(f"{seen:.1%} of the test sources also stand among the training sources")
        return tuple(notes)

    @cached_property
    def seen_sources(self) -> float:
        """The share of test sources that training has seen word for word."""
        known = {self.parallel.sources[row] for row in self.parts["train"]}
        tested = self.parts["test"]
        return sum(self.parallel.sources[row] in known for row in tested) / max(1, len(tested))

    # ---- what the run folder is told

    @property
    def checksums(self) -> dict[str, str]:
        return {"data": self.parallel.sha256, "tokenizer": self.tokenizer.sha256}

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "data_name": self.parallel.name,
            "data_bytes": self.parallel.bytes,
            "licence": self.parallel.licence,
            "source": self.languages.source,
            "targets": ", ".join(self.languages.targets),
            "rows": {name: len(self.parts[name]) for name in PARTS},
            "pairs_learnt_from": len(self.learnt),
            "pairs_too_long": self.too_long,
            "pieces": self.tokenizer.vocab_size,
            "split": self.split,
        }

    @cached_property
    def files(self) -> dict[str, bytes]:
        return {TOKENIZER: self.tokenizer.to_bytes(), LANGUAGES: self.languages.to_bytes()}


def prepare_pairs(settings: TranslateSettings, reporter: Reporter, kept: Kept | None = None) -> Prepared:
    """Read, split, learn the pieces (or take those of an earlier run), encode."""
    known = None if kept is None else read_languages(kept.files)
    parallel = _read(settings.data, reporter, known)
    languages = known or Languages(parallel.source, tuple(parallel.targets))
    if tuple(parallel.targets) != languages.targets:
        raise DataError("the columns of the data are not those of the run; restore the data")
    split = settings.data.split or ("end" if parallel.ordered else "random")
    parts = split_rows(parallel, split, settings.data.held_out, settings.data.split_seed)
    tokenizer = _tokenizer(settings, parallel, parts["train"], reporter) if kept is None else read_pieces(kept.files)
    pairs = _encoded(parallel, tokenizer, reporter)
    trained = np.flatnonzero(np.isin(pairs.source, parts["train"]))
    short = np.maximum(*pairs.sizes)[trained] <= settings.tokenizer.length
    if not short.any():
        raise DataError(
            f"every training pair has more than {settings.tokenizer.length} pieces; raise --length or --vocab-size"
        )
    learnt = trained[short]
    for number, name in enumerate(languages.targets):
        if not (pairs.target[learnt] == number).any():
            raise DataError(f"no training pair has a text in '{name}' to learn from; leave it out of --to")
    return Prepared(parallel, languages, tokenizer, pairs, parts, learnt, len(trained) - len(learnt), split)


def _read(settings: ParallelSettings, reporter: Reporter, known: Languages | None) -> Parallel:
    """Files that were moved keep the names that the run knows them by."""
    beside = [place for place in settings.beside.split(BETWEEN_FILES) if place]
    to = list(known.targets) if known is not None and beside else names_in(settings.to)
    with reporter.downloading() as progress:
        return read_parallel(
            settings.data,
            beside,
            source=settings.source or None,
            to=to,
            encoding=settings.encoding,
            progress=progress,
        )


def split_rows(parallel: Parallel, split: str, held_out: int, seed: int) -> dict[str, Places]:
    """The last rows are the test, those before them validation; or random ones, rows with the same source together."""
    n = len(parallel.sources)
    if n < FEWEST:
        raise DataError(f"{parallel.name} has {n} rows with a source and a target; {FEWEST} are needed at least")
    held = min(held_out, n // 10)
    rows = np.arange(n)
    if split == "end":
        return {"train": rows[: n - 2 * held], "validation": rows[n - 2 * held : n - held], "test": rows[n - held :]}
    cluster = clusters_of(duplicate_sets(parallel.sources), None)
    size = np.bincount(cluster)
    part_of = np.zeros(len(size), np.int64)  # train, validation, test
    room = {2: held, 1: held}
    for drawn in numpy_generator(seed, "split", 0).permutation(len(size)).tolist():
        part = next((part for part in room if size[drawn] <= room[part]), 0)  # what does not fit is learnt from
        part_of[drawn] = part
        if part:
            room[part] -= int(size[drawn])
    parts = {name: np.flatnonzero(part_of[cluster] == k) for k, name in enumerate(PARTS)}
    if not all(map(len, parts.values())):
        raise DataError(
            f"{parallel.name}: so many rows have the same source that none can be held out; remove repetitions"
        )
    return parts


def _tokenizer(settings: TranslateSettings, parallel: Parallel, train: Places, reporter: Reporter) -> Tokenizer:
    def texts() -> Iterator[str]:
        for some in (parallel.sources, *parallel.targets.values()):
            yield from (some[row] for row in train if some[row])

    size = settings.tokenizer.vocab_size or default_pieces(sum(len(text.encode()) for text in texts()))
    with reporter.task("learning pieces of words", None):
        return BPETokenizer.fit(texts(), size).with_end()


def _encoded(parallel: Parallel, tokenizer: Tokenizer, reporter: Reporter) -> Pairs:
    columns = [parallel.sources, *parallel.targets.values()]
    rows = []
    with reporter.task("encoding", len(columns) * len(parallel.sources)):
        for k, texts in enumerate(columns):
            rows.append(Rows.of(tokenizer.encode_each(texts)))
            reporter.advance((k + 1) * len(texts))
    there = [np.array([bool(text) for text in texts]) for texts in columns[1:]]
    source = np.concatenate([np.flatnonzero(some) for some in there])
    target = np.repeat(np.arange(len(there)), [int(some.sum()) for some in there])
    assert tokenizer.end_id is not None
    return Pairs(rows[0], tuple(rows[1:]), source, target, tokenizer.end_id, tokenizer.begin_id)
