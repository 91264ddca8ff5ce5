"""Scoring a text after normalisation, with the cost of undoing it: figures of the original text, not of another one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from seqlab.core.types import Scorer, Surprisals
from seqlab.data.normalise import Normalised, normalise
from seqlab.evaluation.characters import byte_offsets
from seqlab.evaluation.restoration import restoration_costs


class NormalisedScorer:
    """Any scorer, given texts after some steps.

    A token's nats are those of the model plus the nats that restore what its stretch of the original text
    lost; spans are those of the original. `restoration` keeps the second share apart.
    """

    def __init__(self, scorer: Scorer, steps: tuple[str, ...]) -> None:
        self.scorer, self.steps = scorer, steps
        self.policy = scorer.policy

    def score(self, text: str, *, progress: Callable[[float], None] | None = None) -> Surprisals:
        normalised = normalise(text, self.steps)
        return laid_on_original(self.scorer.score(normalised.text, progress=progress), normalised)


def laid_on_original(table: Surprisals, normalised: Normalised) -> Surprisals:
    """The table of a normalised text as one of the original: its spans, and the cost of restoring them."""
    original_bytes = byte_offsets(normalised.original)
    spread = np.zeros(len(normalised.original) + 1)
    for step in restoration_costs(normalised):
        spread += step.spread
    cost = np.concatenate([[0.0], np.cumsum(spread)])
    if not len(table):  # nothing is left of the text: one entry bears the cost of restoring all of it
        end = original_bytes[-1:]
        nothing = np.zeros(len(end) if end[0] or cost[-1] else 0)
        whole = nothing + cost[-1]
        start = np.zeros(len(nothing), np.int64)
        return Surprisals(whole, start, end[: len(nothing)], nothing > 0, nothing, False, whole)
    first = np.searchsorted(byte_offsets(normalised.text), table.start, side="right") - 1  # its first character
    begins = normalised.origin()[first]
    begins[0] = 0
    edges = np.concatenate([begins, [len(normalised.original)]])
    # What is restored at the very end belongs to the last token.
    restoration = np.diff(cost[np.concatenate([edges[:-1], [len(cost) - 1]])])
    inner = 0.0 if table.restoration is None else table.restoration  # of a run that normalises by itself
    spans = original_bytes[edges]
    return Surprisals(
        table.nats + restoration, spans[:-1], spans[1:], table.unknown, table.spelling, table.lossy, restoration + inner
    )
