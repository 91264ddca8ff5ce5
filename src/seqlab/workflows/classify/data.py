"""Labelled texts, ready to learn from: read, split, and turned into what the model reads."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import DataError
from seqlab.core.files import canonical_json
from seqlab.core.reporting import Reporter
from seqlab.core.settings.classify import ClassifierSettings, ClassifySettings, LabelledSettings
from seqlab.core.settings.fields import filled
from seqlab.core.units import parse_split
from seqlab.data.bags import BagReader, Bags, Known, features_in_documents, first_bucket, texts_with_feature
from seqlab.data.label_batches import Inputs
from seqlab.data.labelled import Labelled, kept_source, read_labelled
from seqlab.data.leaks import leaks
from seqlab.data.sources import STANDARD_INPUT
from seqlab.data.splitting import Split, split_rows
from seqlab.data.vectors import WordVectors, load_vectors, refuse_without_match
from seqlab.data.word_ids import IdReader, SeenWords, seen_words
from seqlab.evaluation.text_baselines import Baseline, fit_baselines
from seqlab.runs.task import Kept

READING = "reading.json"  # labels and sizes: what a model is built from, besides its settings
BASELINE_BITS, BASELINE_ORDER = 24, 2
MOST_CLASSES, MOST_DECISIONS = 20_000, 1_000_000_000  # classes; rows · classes, whose probabilities are in memory
MOST_BAYES = 20_000_000  # features · classes: beyond it the counts alone would take too much memory
FLATTERED = (
    "there is no test part: the best weights and the temperature are chosen on the very validation texts that the "
    "figures are of, which flatters the model; the baselines have no such help"
)


@dataclass(frozen=True)
class Sizes:
    """What only the data can say of a model's shape."""

    labels: tuple[str, ...]
    features: int = 0  # average: how many are kept; others: words with an id of their own
    vectored: int = 0  # average: how many of them, the first, have vectors
    vector_width: int | None = None  # of given vectors
    bayes: bool = False

    @property
    def classes(self) -> int:
        return len(self.labels)

    def to_bytes(self) -> bytes:
        return canonical_json({name: getattr(self, name) for name in self.__dataclass_fields__})


def read_sizes(files: Mapping[str, bytes]) -> Sizes:
    known = json.loads(files[READING])
    return Sizes(**{**known, "labels": tuple(known["labels"])})


@dataclass(frozen=True, eq=False)
class Texts:
    """The data, split and hashed: what models of every kind share. Rows are numbered as in the source."""

    source: Labelled
    split: Split
    labels: tuple[str, ...]  # the classes
    truth: NDArray[np.int64]  # the class of every row
    bags: Bags  # of buckets
    bits: int  # of those buckets
    _baselines: dict[tuple[str, bool], list[Baseline]] = field(default_factory=dict, kw_only=True)

    @property
    def notes(self) -> tuple[str, ...]:
        flattered = () if len(self.split.test) else (FLATTERED,)
        return self.source.notes + self.split.notes + flattered

    @cached_property
    def leaks(self) -> tuple[str, ...]:
        """What gives a label away."""
        return leaks(self.source.texts, self.source.labels)

    def rows(self, part: str) -> NDArray[np.int64]:
        rows: NDArray[np.int64] = getattr(self.split, part)
        return rows

    def texts(self, part: str) -> list[str]:
        return [self.source.texts[row] for row in self.rows(part)]

    @property
    def places(self) -> int:
        """Words and pairs of words of all texts, each once in a text: what the baselines read."""
        return int(np.count_nonzero(self.bags.features < first_bucket(3, self.bits)))

    def baselines(self, part: str, balance: bool, progress: Callable[[int], None] | None = None) -> list[Baseline]:
        """Fitted once, however many models are trained on these texts."""
        if (part, balance) not in self._baselines:
            self._baselines[part, balance] = fit_baselines(
                self.bags,
                self.bits,
                self.truth,
                len(self.labels),
                self.split.train,
                self.rows(part),
                balance=balance,
                progress=progress,
            )
        return self._baselines[part, balance]


@dataclass(frozen=True, eq=False)
class Prepared(Texts):
    """The same as one kind of model reads it."""

    sizes: Sizes
    inputs: Inputs
    known: NDArray[Any]  # buckets or codes that the model knows
    vectors: WordVectors | None = None

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """In how many training texts of each class every feature of the model stands.    (F, K)"""
        assert isinstance(self.inputs, Bags)
        return texts_with_feature(self.inputs, self.split.train, self.truth, len(self.known), len(self.labels))

    # ---- what the run folder is told

    @property
    def checksums(self) -> dict[str, str]:
        found = {"data": self.source.sha256}
        return found | ({} if self.vectors is None else {"vectors": self.vectors.sha256})

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "data_name": self.source.name,
            "data_bytes": self.source.bytes,
            "licence": self.source.licence,
            "texts": {name: len(self.rows(name)) for name in ("train", "validation", "test")},
            "classes": len(self.labels),
            "features": self.sizes.features,
            "duplicates": self.split.duplicates,
        }

    @cached_property
    def files(self) -> dict[str, bytes]:
        return {READING: self.sizes.to_bytes()}


def prepare_texts(settings: ClassifySettings, reporter: Reporter, kept: Kept | None = None) -> Prepared:
    """Read, split, hash; everything follows from the data and the settings, so that a run that goes on reads again."""
    texts = read_texts(settings, reporter, kept)
    if kept is not None and read_sizes(kept.files).labels != texts.labels:
        raise DataError("the labels of the data are not those of the run; restore the data")
    return prepared_for(settings.model, texts, reporter)


def read_texts(settings: ClassifySettings, reporter: Reporter, kept: Kept | None = None) -> Texts:
    """What does not depend on the kind of model."""
    source = _read(settings.data, reporter, kept)
    labels = ordered_labels(source.labels)
    _check_classes(source, labels)
    numbers = {label: k for k, label in enumerate(labels)}
    truth = np.array([numbers[label] for label in source.labels], np.int64)
    shares = parse_split(settings.data.split)
    split = split_rows(source.texts, source.labels, source.groups, shares, settings.data.split_seed)
    order, bits = settings.model.ngrams or 1, settings.model.bucket_bits or BASELINE_BITS
    with reporter.task("reading words", len(source.texts)):
        bags = BagReader(max(order, BASELINE_ORDER), bits).read(source.texts, reporter.advance)
    return Texts(source, split, labels, truth, bags, bits)


def prepared_for(model: ClassifierSettings, texts: Texts, reporter: Reporter) -> Prepared:
    """The texts as a model of this kind reads them."""
    make = _for_average if model.kind == "average" else _for_encoder
    inputs, known, sizes, vectors = make(model, texts, reporter)
    shared = {name: getattr(texts, name) for name in Texts.__dataclass_fields__}
    return Prepared(**shared, sizes=sizes, inputs=inputs, known=known, vectors=vectors)


def _read(settings: LabelledSettings, reporter: Reporter, kept: Kept | None) -> Labelled:
    """The data; for a run that goes on, what came through a pipe then is taken from the cache."""
    place, encoding = settings.data, settings.encoding
    cached = None
    if place == "-" and kept is not None and kept.checksums is not None and not kept.named:
        cached = kept_source(kept.checksums["data"])
    if cached is not None:
        place, encoding = cached, "utf-8"
    columns = {name: getattr(settings, name) or None for name in ("text", "label", "group")}
    with reporter.downloading() as progress:
        found = read_labelled(place, **columns, encoding=encoding, progress=progress)
    return found if cached is None else replace(found, name=STANDARD_INPUT)


def _check_classes(source: Labelled, labels: tuple[str, ...]) -> None:
    """Refuse a column that holds names of rows rather than of classes."""
    if len(labels) > MOST_CLASSES or len(labels) * len(source.texts) > MOST_DECISIONS:
        raise DataError(
            f"{source.name} has {len(labels):,} classes in {len(source.texts):,} rows: too many to decide between (at "
            f"most {MOST_CLASSES:,} classes, and {MOST_DECISIONS:,} for classes times rows); name another column with "
            "--label, or merge the rare ones"
        )


def ordered_labels(labels: tuple[str, ...]) -> tuple[str, ...]:
    """The different labels: numbers by value, everything else by name, 'nan' too: it has no place among numbers."""
    found = sorted(set(labels))
    try:
        numbers = [float(label) for label in found]
    except ValueError:
        return tuple(found)
    if any(map(math.isnan, numbers)):
        return tuple(found)
    return tuple(label for _, label in sorted(zip(numbers, found, strict=True)))


def _for_average(
    model: ClassifierSettings, texts: Texts, reporter: Reporter
) -> tuple[Inputs, NDArray[Any], Sizes, WordVectors | None]:
    order, bits = filled(model.ngrams), filled(model.bucket_bits)
    bags = texts.bags.up_to(order, bits)
    kept = features_in_documents(bags, texts.split.train, filled(model.least_texts))
    if not len(kept):
        raise DataError(
            f"no word or n-gram stands in {model.least_texts} training texts or more; lower --least-texts to 1"
        )
    bayes = len(kept) * len(texts.labels) <= MOST_BAYES if model.bayes is None else model.bayes
    words = int(np.searchsorted(kept, first_bucket(2, bits)))
    vectors = None
    if model.vectors is not None:
        vectors = _vectors_of_buckets(model, texts, kept[:words], bits, reporter)
    vectored = len(kept) if vectors is None else words
    width = None if vectors is None else vectors.matrix.shape[1]
    sizes = Sizes(texts.labels, len(kept), vectored, width, bayes)
    return Known.of(kept, bits).numbered(bags), kept, sizes, vectors


def _vectors_of_buckets(
    model: ClassifierSettings, texts: Texts, kept: NDArray[Any], bits: int, reporter: Reporter
) -> WordVectors:
    """A vector for each bucket of words: that of the most frequent word in it."""
    seen = seen_words(texts.texts("train"))
    buckets = (seen.codes >> np.uint64(66 - bits)).astype(np.int64)
    first, place = np.unique(buckets, return_index=True)
    names = {int(bucket): seen.spellings[at] for bucket, at in zip(first, place, strict=True)}
    words = [names[int(bucket)] for bucket in kept]
    return _load(model, words, seen, reporter)


def _for_encoder(
    model: ClassifierSettings, texts: Texts, reporter: Reporter
) -> tuple[Inputs, NDArray[Any], Sizes, WordVectors | None]:
    seen = seen_words(texts.texts("train"), filled(model.least_texts))
    seen = seen.most(filled(model.vocab_size))
    order = np.argsort(seen.codes)
    codes, words = seen.codes[order], [seen.spellings[k] for k in order]
    with reporter.task("numbering words", len(texts.source.texts)):
        inputs = IdReader(codes, filled(model.length)).read(texts.source.texts, reporter.advance)
    vectors = None if model.vectors is None else _load(model, words, seen, reporter)
    width = None if vectors is None else vectors.matrix.shape[1]
    return inputs, codes, Sizes(texts.labels, len(codes), vector_width=width), vectors


def _load(model: ClassifierSettings, words: list[str], seen: SeenWords, reporter: Reporter) -> WordVectors:
    """The vectors that `--vectors` names, and what they cover told."""
    times = dict(zip(seen.spellings, seen.counts.tolist(), strict=True))
    with reporter.downloading() as progress:
        width = model.width if model.kind == "average" else None  # of the others it is that of the encoder
        vectors = load_vectors(filled(model.vectors), words, width=width, progress=progress)
    refuse_without_match(vectors, words)
    kept = "are trained further" if model.train_vectors else "stay as they are"
    reporter.note(f"{vectors.coverage([times.get(word, 0) for word in words])}; the vectors {kept}")
    return vectors
