"""A trained classifier: ready to decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import check_texts
from seqlab.evaluation.calibration import softmax
from seqlab.evaluation.decisions import logits_of
from seqlab.runs.run import Run
from seqlab.workflows.classify.data import read_sizes
from seqlab.workflows.classify.readers import Reader, reader_of

TEXTS_AT_ONCE = 20_000  # of a long list: their features are in memory together


@dataclass(frozen=True)
class Prediction:
    label: str
    probabilities: dict[str, float]


@dataclass(eq=False, repr=False)
class ClassifierRun(Run):
    """What the run folder of a classifier holds. The model is in evaluation mode and has the best weights."""

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return read_sizes(self.kept).labels

    @cached_property
    def reader(self) -> Reader:
        return reader_of(self.settings.model, self.model)

    @cached_property
    def temperature(self) -> float:
        """What the logits are divided by, so that probabilities mean what they say: fitted to the validation texts."""
        final = self.final
        return 1.0 if final is None else float(final["temperature"])

    def logits(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> NDArray[np.float64]:
        """(n, K), before the temperature."""
        check_texts(texts, "what predict reads")
        texts = list(texts)
        found = [np.zeros((0, len(self.labels)))]
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            some = texts[start : start + TEXTS_AT_ONCE]
            found.append(logits_of(self.model, self.reader.read(some)))
            if progress is not None:
                progress(start + len(some))
        return np.concatenate(found)

    def probabilities(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> NDArray[np.float64]:
        """(n, K), calibrated."""
        return softmax(self.logits(texts, progress), self.temperature)

    def predict(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> list[Prediction]:
        """The likeliest label of each text, and the probability of every label."""
        table = self.probabilities(texts, progress)
        best = table.argmax(1)
        return [
            Prediction(self.labels[k], dict(zip(self.labels, row, strict=True)))
            for k, row in zip(best.tolist(), table.tolist(), strict=True)
        ]
