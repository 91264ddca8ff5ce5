"""The error analysis of a run: slices, challenge set, causes that a test supports, and the mistakes themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqlab.core.reporting import Reporter
from seqlab.diagnostics.attribution import Pushes
from seqlab.evaluation.causes import Causes, Example, find_causes, pick_examples
from seqlab.evaluation.challenge import ChallengeResult, run_challenge, sentiment_classes
from seqlab.evaluation.classification import Rate, or_null
from seqlab.evaluation.slices import Slice, leaning_of, slice_errors, slices_of, words_seen
from seqlab.workflows.classify.data import Prepared
from seqlab.workflows.classify.explain import pushes_of
from seqlab.workflows.classify.measure import Measured, part_json
from seqlab.workflows.classify.run import ClassifierRun

# Texts that are examined: each is decided again some hundred times.
EXAMINED = {"average": (500, 200)}
EXAMINED_OTHERS = (40, 20)
EXAMPLES = 5  # of each direction and kind


@dataclass(frozen=True)
class Mistake:
    """A wrong decision, with the words that pushed it."""

    example: Example
    row: int  # line or position in the source
    text: str
    pushes: Pushes
    causes: tuple[str, ...] | None  # what was done to mend it; None: it was not examined


@dataclass(frozen=True)
class ErrorAnalysis:
    slices: list[tuple[Slice, Rate]]
    challenge: ChallengeResult | None
    causes: Causes
    mistakes: list[Mistake]
    measured: Measured  # on the same texts

    def as_json(self) -> dict[str, Any]:
        return {
            "figures": {"part": self.measured.part, "temperature": self.measured.temperature}
            | part_json(self.measured),
            "slices": [
                {"name": one.name, "n": rate.n, "errors": rate.hits, "interval": [rate.low, rate.high]}
                for one, rate in self.slices
            ],
            "challenge": None if self.challenge is None else self.challenge.as_json(),
            "causes": {
                "errors": self.causes.errors,
                "examined": len(self.causes.examined),
                "none": self.causes.none,
                "kinds": {
                    kind: {
                        "mended": self.causes.counts[kind],
                        "applicable": self.causes.applicable[kind],
                        "upset": self.causes.base_rates[kind][0],
                        "controls": self.causes.base_rates[kind][1],
                        "excess": or_null(self.causes.excess(kind)[0]),
                        "excess_interval": list(self.causes.excess(kind)[1:]),
                    }
                    for kind in self.causes.counts
                },
                "shuffled": list(self.causes.shuffled),
            },
        }


def analyse_errors(run: ClassifierRun, data: Prepared, measured: Measured, reporter: Reporter) -> ErrorAnalysis:
    texts, wrong = data.texts(measured.part), ~measured.right
    with reporter.task("slicing the texts", None):
        slices = _slices(data, texts, wrong, data.split.clusters[data.rows(measured.part)])
    sentiment = sentiment_classes(data.labels)
    challenge = None if sentiment is None else run_challenge(run.probabilities, *sentiment)
    most, controls = EXAMINED.get(run.settings.model.kind, EXAMINED_OTHERS)
    with reporter.task("testing causes on the model", 1.0):
        causes = find_causes(
            texts,
            measured.truth,
            measured.probabilities,
            run.probabilities,
            most=most,
            controls=controls,
            progress=reporter.advance,
        )
    examples = pick_examples(texts, measured.truth, measured.probabilities, EXAMPLES)
    found = {examined.index: tuple(edit.words for edit in examined.supported) for examined in causes.examined}
    mistakes = []
    with reporter.task("finding the words that pushed", len(examples)):
        for done, example in enumerate(examples, start=1):
            true, chosen = example.direction
            text, row = texts[example.index], data.source.rows[int(data.rows(measured.part)[example.index])]
            pushes = pushes_of(run, text, chosen, true)
            mistakes.append(Mistake(example, row, text, pushes, found.get(example.index)))
            reporter.advance(done)
    return ErrorAnalysis(slices, challenge, causes, mistakes, measured)


def _slices(data: Prepared, texts: Sequence[str], wrong: Any, clusters: Any) -> list[tuple[Slice, Rate]]:
    train = data.texts("train")
    leaning = None
    if len(data.labels) == 2 and sentiment_classes(data.labels) is not None:
        leaning = leaning_of(train, np.asarray(data.truth[data.split.train] == 1))
    slices = slices_of(texts, known_words=words_seen(train), leaning=leaning)
    return slice_errors(slices, wrong, clusters)
