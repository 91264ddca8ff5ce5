"""Real text that is always there: CPython's own help topics, and passages of them."""

from __future__ import annotations

from functools import cache

import torch

from seqlab.data.corpora import load_corpus
from seqlab.theory.instances import stream

TRAINING, PASSAGE = 120_000, 12_000  # characters


@cache
def topics() -> str:
    return load_corpus("pydoc").read()


def passages(seed: int, name: str) -> tuple[str, str]:
    """A text to count, and the passage that follows it."""
    last = len(topics()) - TRAINING - PASSAGE
    begin = int(torch.randint(0, last, (1,), generator=stream(seed, name)))
    return topics()[begin : begin + TRAINING], topics()[begin + TRAINING : begin + TRAINING + PASSAGE]
