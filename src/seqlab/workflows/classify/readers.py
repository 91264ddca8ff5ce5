"""From texts to what a model reads: bags of numbered features, or rows of word ids.

A reader is made twice: from the training texts, before there is a model, and from a model that was loaded, which
keeps the buckets or codes it knows among its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from seqlab.core.settings.classify import ClassifierSettings
from seqlab.core.settings.fields import filled
from seqlab.data.bags import BagReader, Bags, Known
from seqlab.data.label_batches import Inputs
from seqlab.data.word_ids import IdReader

Progress = Callable[[int], None]


class Reader(Protocol):
    def read(self, texts: Sequence[str], progress: Progress | None = None) -> Inputs: ...


@dataclass(frozen=True)
class FeatureReader:
    """Bags of the features that a model knows, numbered as in its tables."""

    bags: BagReader
    known: Known

    def read(self, texts: Sequence[str], progress: Progress | None = None) -> Bags:
        return self.known.numbered(self.bags.read(texts, progress))


def bag_reader(settings: ClassifierSettings) -> BagReader:
    return BagReader(filled(settings.ngrams), filled(settings.bucket_bits))


def reader_of(settings: ClassifierSettings, model: Any) -> Reader:
    """The reader that a model was trained with."""
    if settings.kind == "average":
        reader = bag_reader(settings)
        return FeatureReader(reader, Known.of(model.kept.numpy(), reader.bits))
    return IdReader(model.vocabulary.numpy().view(np.uint64), filled(settings.length))
