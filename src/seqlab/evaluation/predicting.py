"""A classifier seen from outside: texts in, probabilities out, a bounded number of texts at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import UsageError

Probabilities = NDArray[np.float64]
Predict = Callable[[Sequence[str]], Probabilities]
"""Texts to the probabilities of the classes, (n, K); the same text gets the same answer every time."""

TEXTS_AT_ONCE = 2_000
CHARACTERS_AT_ONCE = 5_000_000

T = TypeVar("T")


def predict_each(
    predict: Predict, asked: Iterable[tuple[T, str]], *, texts_at_once: int = TEXTS_AT_ONCE
) -> Iterator[tuple[T, str, Probabilities]]:
    """(what, text) -> (what, text, probabilities (K,)) in the same order; `predict` sees large pieces of it.

    Within a piece each text is predicted once, however often it is asked for.
    """
    piece: _Gathered[T] = _Gathered()
    for what, text in asked:
        piece.add(what, text)
        if len(piece.places) >= texts_at_once or piece.characters >= CHARACTERS_AT_ONCE:
            yield from piece.answered(predict)
            piece = _Gathered()
    yield from piece.answered(predict)


def predict_all(predict: Predict, texts: Sequence[str]) -> Probabilities:
    """Checked probabilities of all these texts in one call (n, K)."""
    probabilities = np.asarray(predict(texts), np.float64)
    if probabilities.ndim != 2 or len(probabilities) != len(texts):
        raise UsageError(
            f"predict answered {probabilities.shape} for {len(texts):,} texts: return one row of probabilities for each"
        )
    if not np.isfinite(probabilities).all():
        raise UsageError("predict answered probabilities that are infinite or NaN: return finite ones")
    return probabilities


class _Gathered(Generic[T]):
    def __init__(self) -> None:
        self.places: dict[str, int] = {}  # of each distinct text among those predicted
        self.asked: list[tuple[T, str]] = []
        self.characters = 0

    def add(self, what: T, text: str) -> None:
        if text not in self.places:
            self.places[text] = len(self.places)
            self.characters += len(text)
        self.asked.append((what, text))

    def answered(self, predict: Predict) -> Iterator[tuple[T, str, Probabilities]]:
        if self.asked:
            probabilities = predict_all(predict, list(self.places))
            for what, text in self.asked:
                yield what, text, probabilities[self.places[text]]
