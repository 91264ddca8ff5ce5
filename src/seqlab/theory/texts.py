"""Real text that is always there, CPython's own help topics: passages of them, and what is counted on them."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.core.types import Surprisals
from seqlab.data.corpora import load_corpus
from seqlab.data.tokenizers import WordTokenizer
from seqlab.evaluation.perplexity import Figures
from seqlab.evaluation.surprisal import ModelScorer
from seqlab.models.ngram import NGramLM
from seqlab.theory.instances import stream

Numbers = NDArray[np.float64]

TRAINING, PASSAGE = 120_000, 12_000  # characters
PREPARED = ("lower", "digits", "punctuation")  # steps to plain words
VERSIONED = (
    "Measured on CPython's own help topics, which each version of Python words anew: the figures differ, the verdict "
    "does not."
)


@cache
def topics() -> str:
    return load_corpus("pydoc").read()


def passages(seed: int, name: str) -> tuple[str, str]:
    """A text to count, and the passage that follows it."""
    last = len(topics()) - TRAINING - PASSAGE
    begin = int(torch.randint(0, last, (1,), generator=stream(seed, name)))
    return topics()[begin : begin + TRAINING], topics()[begin + TRAINING : begin + TRAINING + PASSAGE]


# --------------------------------------------------------------------------- words, known and unknown


def word_bigram(text: str, vocabulary: int) -> ModelScorer:
    tokenizer = WordTokenizer.fit([text], vocabulary)
    return ModelScorer(NGramLM.fit(tokenizer.encode(text).ids, tokenizer.vocab_size, 2), tokenizer)


def of_nats(nats: Numbers) -> Figures:
    """As of a text in which every token is one byte."""
    return Figures(float(nats.sum()), len(nats), len(nats), len(nats))


def perplexity(nats: Numbers) -> float:
    return of_nats(nats).perplexity(len(nats)) or math.nan


def with_spelling(table: Surprisals) -> Numbers:
    """What each token pays, an unknown word for its spelling too."""
    return table.nats


def closed(table: Surprisals) -> Numbers:
    """Unknown is one class, which costs what a class costs."""
    return table.nats - table.spelling


def by_total_nats(figure: float, units: float, others: float) -> float:
    """A figure in other units of the same text, whose nats stay the same: PPL' = PPL^{units / others}."""
    return Figures(units * math.log(figure), 1, 1, 1).perplexity(others) or math.nan  # type: ignore[arg-type]
