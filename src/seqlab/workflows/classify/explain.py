"""The words that pushed a run's decisions, by the method that fits its model."""

from __future__ import annotations

import numpy as np
import torch

from seqlab.data.word_ids import IdReader
from seqlab.data.words import read_words
from seqlab.diagnostics.attribution import Pushes, integrated_gradients, leave_one_out
from seqlab.workflows.classify.run import ClassifierRun

EXACT = "exact: the change of the logit when the word is left out"
GRADIENTS = "integrated gradients from no words to the text"


def method_of(run: ClassifierRun) -> str:
    return EXACT if run.settings.model.kind == "average" else GRADIENTS


def pushes_of(run: ClassifierRun, text: str, a: int, b: int) -> Pushes:
    """How far each word pushed from class b towards class a."""
    if len(text.lower()) != len(text):  # a letter whose small form is two: the words' places are those of the latter
        text = text.lower()
    words = read_words([text])
    spans = [(int(start), int(end)) for start, end in zip(words.starts, words.ends, strict=True)]
    if run.settings.model.kind == "average":
        return leave_one_out(run.logits, text, spans, a, b)
    reader = run.reader
    assert isinstance(reader, IdReader)
    rows = reader.read([text])
    with torch.no_grad():
        x = run.model.embedding(torch.from_numpy(rows.ids))
    no_words = torch.cat([x[:1], torch.zeros_like(x[1:])])  # the begin id stands before every text
    values, gap = integrated_gradients(run.model.decide, x, a, b, start=no_words)
    return Pushes(tuple(spans), _spread(values[1:], len(spans)), gap)


def _spread(values: np.ndarray, words: int) -> np.ndarray:
    """Pushes of the words that were read; those in the middle of a long text were not, and have none."""
    found = np.zeros(words)
    first = len(values) - len(values) // 2
    found[:first] = values[:first]
    if len(values) > first:
        found[words - (len(values) - first) :] = values[first:]
    return found
