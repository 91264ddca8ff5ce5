"""Why a classifier was wrong, where a test on the classifier itself supports it; where none does, none is named.

Each misclassified text is edited in ways that undo one possible cause (`edits.py`), and the model decides again. A
cause is supported by an edit that makes the decision right. That means little if the same edits upset right decisions
as often, so they are also tried on controls: texts that were classified rightly, with the same confidence as the
errors, since any edit moves a decision that hangs by a thread. A kind of edit says something where
counts / applicable is well above its base rate.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import UsageError
from seqlab.evaluation.classification import Rate
from seqlab.evaluation.edits import KINDS, Proposal, proposals, shuffles
from seqlab.evaluation.predicting import Predict, Probabilities, predict_each

KEPT = 3  # edits of each kind that are kept of a text, those that help most
SHUFFLES = 5
TOLERANCE = 0.02  # between the probabilities given and those that `predict` answers: batching may change bits
DIRECTIONS = 12
LONGEST = 100_000  # characters: a longer text would have to be read hundreds of times

Classes = NDArray[np.int64]
Progress = Callable[[float], None]


@dataclass(frozen=True)
class Edit:
    """An edit that made a wrong decision right."""

    kind: str
    words: str  # what was done, for a person
    text: str
    probabilities: Probabilities


@dataclass(frozen=True)
class Examined:
    """A misclassified text with the edits that mend it, the most helpful of each kind first; empty: no cause."""

    index: int
    supported: tuple[Edit, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(kind for kind in KINDS if any(edit.kind == kind for edit in self.supported))


@dataclass(frozen=True)
class Causes:
    """Of the examined errors; a text may support several kinds."""

    errors: int  # all of them; more than were examined if only a sample was
    examined: tuple[Examined, ...]
    counts: dict[str, int]  # kind -> examined texts that an edit of this kind mends
    applicable: dict[str, int]  # kind -> examined texts that have such an edit
    none: int  # examined texts that no edit mends
    base_rates: dict[str, tuple[int, int]]  # kind -> (right decisions upset, controls that have such an edit)
    shuffled: tuple[int, int]  # (texts whose decision a shuffle of the words changed, texts shuffled)

    def excess(self, kind: str) -> tuple[float, float, float]:
        """By how much more often such edits mend errors than they upset right decisions, with a 95 % interval."""
        return Rate(self.counts[kind], self.applicable[kind]).minus(Rate(*self.base_rates[kind]))

    @property
    def telling(self) -> tuple[str, ...]:
        """The kinds that mend errors more often than luck alone would."""
        return tuple(kind for kind in KINDS if self.excess(kind)[1] > 0)


def find_causes(
    texts: Sequence[str],
    truth: Classes,
    probabilities: Probabilities,
    predict: Predict,
    *,
    most: int = 500,
    controls: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> Causes:
    """Supported causes of at most `most` errors (a seeded sample of them, if there are more), and the base rates.

    Texts of more than 100,000 characters are not examined.

    truth (n,), probabilities (n, K) of the texts as `predict` answers them; progress: is told the share done.
    The result does not depend on the order of the texts.
    """
    _check(texts, truth, probabilities, most, controls)
    wrong = probabilities.argmax(1) != truth
    fixed_order = sorted(range(len(texts)), key=lambda i: (texts[i], int(truth[i])))
    random = np.random.default_rng(seed)
    readable = [i for i in fixed_order if len(texts[i]) <= LONGEST]
    errors = _sample(random, [i for i in readable if wrong[i]], most)
    right = [i for i in readable if not wrong[i]]
    matched = _matched(probabilities.max(1), errors, right, controls)
    to_shuffle = _sample(random, readable, most)

    share = _Share(progress, len(errors) + len(matched) + len(to_shuffle))
    test = _Test(texts, truth, probabilities, predict, share)
    trials, base = test.edits_of(errors), test.edits_of(matched)
    shuffled = test.shuffles_of(to_shuffle, seed)
    examined = tuple(Examined(i, trials[i].best(int(truth[i]))) for i in sorted(errors))
    return Causes(
        errors=int(wrong.sum()),
        examined=examined,
        counts={kind: sum(kind in one.kinds for one in examined) for kind in KINDS},
        applicable={kind: sum(kind in trials[i].tried for i in errors) for kind in KINDS},
        none=sum(not one.supported for one in examined),
        base_rates={kind: _rate(kind, base) for kind in KINDS},
        shuffled=shuffled,
    )


def _check(texts: Sequence[str], truth: Classes, probabilities: Probabilities, most: int, controls: int) -> None:
    if probabilities.ndim != 2 or not len(texts) == len(truth) == len(probabilities):
        raise UsageError(
            f"{len(texts):,} texts, {len(truth):,} true classes and probabilities {probabilities.shape}: "
            "pass one class and one row of probabilities for each text"
        )
    classes = probabilities.shape[1]
    if len(truth) and not (truth.min() >= 0 and truth.max() < classes):
        raise UsageError(f"true classes from {truth.min()} to {truth.max()} with {classes} classes: count from 0")
    if most < 1 or controls < 0:
        raise UsageError(f"most = {most} and controls = {controls}: examine at least 1 error and 0 controls")


def _sample(random: np.random.Generator, indices: list[int], most: int) -> list[int]:
    if len(indices) <= most:
        return indices
    return [indices[k] for k in sorted(random.permutation(len(indices))[:most].tolist())]


def _matched(confidence: Probabilities, errors: list[int], right: list[int], how_many: int) -> list[int]:
    """Rightly classified texts whose confidences are spread as those of the errors are.

    The j-th of c controls is the text, not taken yet, that is nearest to the (j + ½)/c quantile of the errors.
    """
    if not errors or not right or not how_many:
        return []
    free = sorted(right, key=lambda i: confidence[i])
    levels = [float(confidence[i]) for i in free]
    how_many = min(how_many, len(free))
    chosen = []
    for target in np.quantile(confidence[errors], (np.arange(how_many) + 0.5) / how_many).tolist():
        above = bisect_left(levels, target)
        nearest = min((k for k in (above - 1, above) if 0 <= k < len(levels)), key=lambda k: abs(levels[k] - target))
        chosen.append(free.pop(nearest))
        levels.pop(nearest)
    return chosen


@dataclass
class _Trials:
    """What happened to one text: which kinds of edit apply, and the edits that turned the decision."""

    tried: set[str] = field(default_factory=set)
    turned: list[Edit] = field(default_factory=list)

    def best(self, truth: int) -> tuple[Edit, ...]:
        ordered = sorted(self.turned, key=lambda edit: -float(edit.probabilities[truth]))
        return tuple(edit for kind in KINDS for edit in [e for e in ordered if e.kind == kind][:KEPT])

    def add(self, edit: Edit, truth: int) -> None:
        """Keeps the turned edits few: a shaky decision on a long text is turned by hundreds."""
        self.turned.append(edit)
        if len(self.turned) > 10 * KEPT * len(KINDS):
            self.turned = list(self.best(truth))


@dataclass(frozen=True)
class _Test:
    """The model, what it decided, and what it decides after an edit."""

    texts: Sequence[str]
    truth: Classes
    probabilities: Probabilities
    predict: Predict
    share: _Share

    def edits_of(self, indices: list[int]) -> dict[int, _Trials]:
        """All edits of these texts. A decision is turned if wrong becomes right, or right becomes wrong."""
        trials = {i: _Trials() for i in indices}
        turnable = {}
        for (i, proposal), text, answered in predict_each(self.predict, self._edited(indices)):
            right = bool(answered.argmax() == self.truth[i])
            was_right = bool(self.probabilities[i].argmax() == self.truth[i])
            if proposal is None:
                self._check_same_model(i, answered)
                turnable[i] = right == was_right  # else the last bits decide, and any edit would seem to help
                self.share.one_more()
                continue
            trials[i].tried.add(proposal.kind)
            if turnable[i] and right != was_right:
                trials[i].add(Edit(proposal.kind, proposal.words, text, answered.copy()), int(self.truth[i]))
        return trials

    def _edited(self, indices: list[int]) -> Iterator[tuple[tuple[int, Proposal | None], str]]:
        """Each text as it is, then its edits."""
        for i in indices:
            yield (i, None), self.texts[i]
            yield from (((i, proposal), proposal.text) for proposal in proposals(self.texts[i]))

    def _check_same_model(self, i: int, answered: Probabilities) -> None:
        given = self.probabilities[i]
        if answered.shape != given.shape or np.abs(answered - given).max() > TOLERANCE:
            raise UsageError(
                f"predict answers {answered.round(3).tolist()} for text {i}, whose probabilities were given as "
                f"{given.round(3).tolist()}: pass the probabilities of the same model, without dropout"
            )

    def shuffles_of(self, indices: list[int], seed: int) -> tuple[int, int]:
        """(texts whose decision any of five shuffles changes, texts with two words to exchange)"""
        tried, changed = set(), set()
        for i, _, answered in predict_each(self.predict, self._shuffled(indices, seed)):
            tried.add(i)
            if answered.argmax() != self.probabilities[i].argmax():
                changed.add(i)
        return len(changed), len(tried)

    def _shuffled(self, indices: list[int], seed: int) -> Iterator[tuple[int, str]]:
        for i in indices:
            self.share.one_more()
            yield from ((i, text) for text in shuffles(self.texts[i], SHUFFLES, seed))


def _rate(kind: str, trials: dict[int, _Trials]) -> tuple[int, int]:
    upset = sum(any(edit.kind == kind for edit in trial.turned) for trial in trials.values())
    return upset, sum(kind in trial.tried for trial in trials.values())


class _Share:
    """Tells the share of the texts done."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def one_more(self) -> None:
        self.done += 1
        if self.progress:
            self.progress(self.done / self.total)


# Examples for a person to read


@dataclass(frozen=True)
class Example:
    """A mistake worth reading."""

    direction: tuple[int, int]  # (true class, predicted class)
    kind: str  # "confident" or "near neutral"
    index: int
    confidence: float  # probability of the predicted class


def pick_examples(texts: Sequence[str], truth: Classes, probabilities: Probabilities, per: int = 5) -> list[Example]:
    """Of each direction the `per` most confident mistakes and the `per` nearest to undecided, none of them twice.

    Undecided: the two largest probabilities are close. Directions with most errors come first, at most 12 of them.
    """
    _check(texts, truth, probabilities, most=1, controls=0)
    decided = probabilities.argmax(1)
    wrong = np.flatnonzero(decided != truth).tolist()
    sizes = Counter((int(truth[i]), int(decided[i])) for i in wrong)
    by_size = sorted(sizes, key=lambda direction: (-sizes[direction], direction))
    examples = []
    for direction in by_size[:DIRECTIONS]:
        members = [i for i in wrong if (truth[i], decided[i]) == direction]
        examples += _both_ends(texts, probabilities, members, direction, per)
    return examples


def _both_ends(
    texts: Sequence[str], probabilities: Probabilities, members: list[int], direction: tuple[int, int], per: int
) -> list[Example]:
    two_largest = {i: np.sort(probabilities[i])[-2:] for i in members}
    by_confidence = sorted(members, key=lambda i: (-two_largest[i][1], texts[i]))
    sure = by_confidence[: min(per, (len(members) + 1) // 2)]  # of few mistakes half
    rest = by_confidence[len(sure) :]
    unsure = sorted(rest, key=lambda i: (two_largest[i][1] - two_largest[i][0], texts[i]))[:per]
    kinds = ["confident"] * len(sure) + ["near neutral"] * len(unsure)
    return [Example(direction, kind, i, float(two_largest[i][1])) for kind, i in zip(kinds, sure + unsure, strict=True)]
