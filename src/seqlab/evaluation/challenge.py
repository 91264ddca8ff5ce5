"""A challenge set for sentiment in English: pairs of short reviews in nearly the same words and of opposite sense.

The pairs were written for this project. Who only counts words cannot get both texts of most pairs right:

    negation            a statement and its denial, double negation, how far a `not` reaches
    contrast            "X, but Y" and the same with the halves exchanged; the last half decides
    praise then blame   sentences of praise, then the blame that decides, and the reverse

A model that was trained on other texts than reviews may fail for that alone; texts that it gets right in pairs whose
decision never changes (`unchanged`) show how much is chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import UsageError, nearest
from seqlab.evaluation.predicting import Predict, Probabilities, predict_each

KINDS = ("negation", "contrast", "praise then blame")
SIGNS = {"negative": -1, "positive": 1}
RECOGNISED = (("negative", "positive"), ("neg", "pos"), ("bad", "good"))


@dataclass(frozen=True)
class Pair:
    """Two texts of opposite labels, `negative` and `positive`."""

    kind: str
    first: str
    first_label: str
    second: str
    second_label: str


@dataclass(frozen=True)
class KindResult:
    """Pairs of one kind."""

    kind: str
    texts: int
    texts_right: int
    pairs: int
    pairs_right: int  # both texts right
    unchanged: int  # the same decision for both texts: at most one of them is right

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class ChallengeResult:
    """Of each kind, and each pair in the order of `challenge_pairs`."""

    kinds: tuple[KindResult, ...]
    positive: Probabilities  # (pairs, 2): p(positive) / (p(positive) + p(negative)) of the first and the second text
    right: NDArray[np.bool_]  # (pairs, 2)

    @property
    def total(self) -> KindResult:
        counted = [asdict(kind) for kind in self.kinds]
        names = ("texts", "texts_right", "pairs", "pairs_right", "unchanged")
        return KindResult("all", **{name: sum(row[name] for row in counted) for name in names})

    def as_json(self) -> dict[str, Any]:
        return {"kinds": [kind.as_json() for kind in self.kinds], "all": self.total.as_json()}


@cache
def challenge_pairs() -> tuple[Pair, ...]:
    lines = files("seqlab.evaluation").joinpath("challenge.tsv").read_text("utf-8").splitlines()
    return tuple(Pair(*line.split("\t")) for line in lines[1:])


def sentiment_classes(names: Sequence[str], *, positive: str | None = None) -> tuple[int, int] | None:
    """(negative, positive) as places among the class names, where they are recognised as sentiment; else None.

    positive: the class that a person called positive. Of two classes the other one is then the negative one, of more
    the one that is called negative, neg or bad.
    """
    lowered = [name.strip().casefold() for name in names]
    if positive is None:
        found = [(lowered.index(a), lowered.index(b)) for a, b in RECOGNISED if a in lowered and b in lowered]
        return found[0] if found else None
    if positive not in names:
        raise UsageError(f"no class is called '{positive}'{nearest(positive, names)}")
    chosen = list(names).index(positive)
    if len(names) == 2:
        return 1 - chosen, chosen
    against = [lowered.index(a) for a, _ in RECOGNISED if a in lowered]
    return (against[0], chosen) if against and against[0] != chosen else None


def run_challenge(predict: Predict, negative: int, positive: int) -> ChallengeResult:
    """How a classifier does on the pairs; only the probabilities of these two of its classes are compared.

    A text is right if the class of its label has the larger of the two; equal ones are right for neither.
    """
    if negative == positive or min(negative, positive) < 0:
        raise UsageError(f"negative = {negative} and positive = {positive}: name two different classes, from 0")
    pairs = challenge_pairs()
    texts = [text for pair in pairs for text in (pair.first, pair.second)]
    answers = np.array([answer for _, _, answer in predict_each(predict, ((None, text) for text in texts))])
    if max(negative, positive) >= answers.shape[1]:
        raise UsageError(
            f"negative = {negative} and positive = {positive} with {answers.shape[1]} classes: count classes from 0"
        )
    against, for_ = answers[:, negative].reshape(-1, 2), answers[:, positive].reshape(-1, 2)
    decided = np.sign(for_ - against).astype(int)
    labels = np.array([(SIGNS[pair.first_label], SIGNS[pair.second_label]) for pair in pairs])
    both = for_ + against
    share = np.where(both > 0, for_ / np.where(both > 0, both, 1.0), 0.5)
    kind_of_pair = np.array([pair.kind for pair in pairs])
    kinds = tuple(_counted(kind, labels[kind_of_pair == kind], decided[kind_of_pair == kind]) for kind in KINDS)
    return ChallengeResult(kinds, share, decided == labels)


def _counted(kind: str, labels: NDArray[np.int64], decided: NDArray[np.int64]) -> KindResult:
    right = labels == decided
    unchanged = decided[:, 0] == decided[:, 1]
    return KindResult(kind, right.size, int(right.sum()), len(right), int(right.all(1).sum()), int(unchanged.sum()))
