"""Data that are drawn, in the shapes that a task reads: its own batches are then those of a real training.

Every sequence has the full length. Ids are about as frequent as words are, p(rank) ~ 1/rank: how many different rows of
a table a step reads decides what it takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.seeding import numpy_generator
from seqlab.core.settings.cost import BIGRAM_TOKENS, Asked, Shapes, reads_all_pairs
from seqlab.core.settings.fields import filled
from seqlab.core.types import RESERVED
from seqlab.data.bags import Bags
from seqlab.data.label_batches import Inputs
from seqlab.data.pair_batches import Pairs, Rows
from seqlab.data.word_ids import IdRows
from seqlab.models.folds import Folded, count_folds
from seqlab.models.guided import Guide
from seqlab.models.ngram import NGramLM

STEPS = 2  # batches that are drawn: more are not looked at
READ_TOKENS = 65_536  # of held-out text, of which only the first two calls are watched
READ_TEXTS = 2_048
GUIDE_TOKENS = 4_096  # counted where only the shape of a guided model is asked for

Ids = NDArray[np.int64]


def draw(asked: Asked, shapes: Shapes) -> Any:
    """What the task's `learning` and `read_held_out` ask of prepared data."""
    return {"lm": _text, "classify": _texts, "translate": _pairs}[asked.task](asked, shapes)


def drawn_ids(size: int, vocabulary: int, seed: int) -> Ids:
    """⌊(V+1)^u⌋ − 1 with u uniform: 0 … V − 1, p(id) = ln((id+2)/(id+1)) / ln(V+1)."""
    u = numpy_generator(seed, "drawn data", size).random(size)
    return np.minimum(np.power(vocabulary + 1.0, u).astype(np.int64) - 1, vocabulary - 1)


# --------------------------------------------------------------------------- a running text


@dataclass(frozen=True)
class DrawnText:
    parts: dict[str, Any]
    tokenizer: Any
    folded: Folded | None
    seconds_to_count = 0.0
    baseline_bytes = 0  # there is no text to measure them on


def _text(asked: Asked, shapes: Shapes) -> DrawnText:
    seed = asked.settings.training.seed
    tokens = STEPS * shapes.rows * shapes.length
    if reads_all_pairs(asked, shapes.vocabulary):
        tokens = shapes.examples or BIGRAM_TOKENS
    held_out = max(READ_TOKENS, 4 * shapes.length)
    ids = {
        name: SimpleNamespace(ids=drawn_ids(size, shapes.vocabulary, seed))
        for name, size in (("train", tokens), ("validation", held_out))
    }
    model, V = asked.settings.model, shapes.vocabulary
    folded = None
    if model.guide == "ngram":
        folded = count_folds(ids["train"].ids, V, filled(model.order), filled(model.folds))
    return DrawnText(ids, SimpleNamespace(begin_id=V, vocab_size=V), folded)


def drawn_guide(settings: Any, vocabulary: int) -> Guide | None:
    """Counts of a short drawn text, if the settings ask for a guide."""
    if settings.model.guide != "ngram":
        return None
    ids = drawn_ids(GUIDE_TOKENS, vocabulary, settings.training.seed)
    return Guide(NGramLM.fit(ids, vocabulary, filled(settings.model.order)))


# --------------------------------------------------------------------------- labelled texts


@dataclass(frozen=True)
class DrawnTexts:
    inputs: Inputs
    truth: Ids
    labels: tuple[str, ...]
    split: Any
    places: int = 0  # no baselines are fitted to drawn texts


def _texts(asked: Asked, shapes: Shapes) -> DrawnTexts:
    rows, seed = STEPS * shapes.rows, asked.settings.training.seed
    offsets = np.arange(rows + 1) * shapes.length
    if asked.settings.model.kind == "average":
        inputs: Inputs = _bags(rows, shapes, seed, offsets)
    else:
        ids = drawn_ids(rows * shapes.length, shapes.vocabulary, seed) + RESERVED
        inputs = IdRows(ids, offsets)
    truth = np.arange(rows) % shapes.classes
    labels = tuple(str(k) for k in range(shapes.classes))
    places = np.arange(rows)
    return DrawnTexts(inputs, truth, labels, SimpleNamespace(train=places, validation=np.resize(places, READ_TEXTS)))


def _bags(rows: int, shapes: Shapes, seed: int, offsets: Ids) -> Bags:
    """Features that a text has, each once: drawn ones, moved on to the next free where two are the same."""
    drawn = np.sort(drawn_ids(rows * shapes.length, shapes.vocabulary, seed).reshape(rows, shapes.length), 1)
    places = np.arange(shapes.length)
    rising = np.maximum.accumulate(drawn - places, 1) + places  # strictly ascending
    most = shapes.vocabulary - shapes.length + places
    features = np.minimum(rising, most).astype(np.int32).ravel()
    return Bags(features, np.ones(len(features), np.uint16), offsets)


# --------------------------------------------------------------------------- pairs


@dataclass(frozen=True)
class DrawnPairs:
    pairs: Pairs
    learnt: Ids

    def pairs_of(self, part: str) -> Ids:
        return np.resize(self.learnt, READ_TEXTS)


def _pairs(asked: Asked, shapes: Shapes) -> DrawnPairs:
    """A source ends with the end mark, a target begins with its tag: both have a piece less."""
    count = STEPS * shapes.rows
    source, target = (
        _rows(count, length - 1, shapes.vocabulary - 1, asked.settings.training.seed + k)
        for k, length in enumerate((shapes.source_length or shapes.length, shapes.length))
    )
    places = np.arange(count)
    end = shapes.vocabulary - 1
    pairs = Pairs(source, (target,), places, np.zeros(count, np.int64), end, shapes.vocabulary)
    return DrawnPairs(pairs, places)


def _rows(count: int, length: int, vocabulary: int, seed: int) -> Rows:
    ids = drawn_ids(count * length, vocabulary, seed).astype(np.int32)
    return Rows(ids, np.arange(count + 1, dtype=np.int64) * length)
