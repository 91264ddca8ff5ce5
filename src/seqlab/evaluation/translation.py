"""How good translations are: BLEU and chrF of sacreBLEU with their signatures, intervals over sentences, and habits.

An interval is the middle 95 % of the scores of 1,000 sets of sentences drawn with replacement; two systems are compared
on the same draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import UsageError
from seqlab.evaluation.statistics import FEW_ROWS, Interval

DRAWS = 1_000
SHARES = (0.025, 0.975)
PHRASE = 4  # words of a phrase that should not come twice

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Scored:
    """One metric: the score, its interval and what exactly was computed."""

    score: float
    interval: tuple[float, float]
    signature: str


@dataclass(frozen=True)
class Habits:
    """What a look at the translations shows: shares of sentences and of phrases."""

    length_ratio: float  # words of the translations over words of the references
    repeated: float  # share of phrases of four words that came before in the same translation
    copied: float  # share of translations that are their source, word for word

    def as_json(self) -> dict[str, float]:
        return {"length_ratio": self.length_ratio, "repeated": self.repeated, "copied": self.copied}


@dataclass(frozen=True)
class TranslationFigures:
    n: int
    bleu: Scored
    chrf: Scored
    habits: Habits

    def as_json(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "bleu": self.bleu.score,
            "interval": list(self.bleu.interval),
            "chrf": self.chrf.score,
            "chrf_interval": list(self.chrf.interval),
            "signature": self.bleu.signature,
            "chrf_signature": self.chrf.signature,
            **self.habits.as_json(),
        }


def metrics(*, lowercase: bool = False) -> dict[str, Any]:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return {"bleu": BLEU(lowercase=lowercase), "chrf": CHRF(lowercase=lowercase)}


def figures_of(
    translations: Sequence[str], references: Sequence[str], sources: Sequence[str], *, lowercase: bool = False
) -> TranslationFigures:
    _check(translations, references)
    found = {name: _scored(metric, translations, references) for name, metric in metrics(lowercase=lowercase).items()}
    return TranslationFigures(
        len(translations), found["bleu"], found["chrf"], habits(translations, references, sources)
    )


def bleu_of(translations: Sequence[str], references: Sequence[str]) -> float:
    """The score alone."""
    _check(translations, references)
    return float(metrics()["bleu"].corpus_score(list(translations), [list(references)]).score)


def _check(translations: Sequence[str], references: Sequence[str]) -> None:
    if len(translations) != len(references) or not translations:
        raise UsageError(f"{len(translations):,} translations and {len(references):,} references; give one for each")


def _scored(metric: Any, translations: Sequence[str], references: Sequence[str]) -> Scored:
    table = _statistics(metric, translations, references)
    score = metric.corpus_score(list(translations), [list(references)]).score
    drawn = _drawn_scores(metric, [table])[0]
    low, high = np.quantile(drawn, SHARES)
    return Scored(float(score), (float(low), float(high)), str(metric.get_signature()))


def _statistics(metric: Any, translations: Sequence[str], references: Sequence[str]) -> Numbers:
    """What sacreBLEU counts in each sentence; the score of a set follows from the sums.    (n, columns)"""
    return np.array(metric._extract_corpus_statistics(list(translations), [list(references)]), np.float64)


def _drawn_scores(metric: Any, tables: Sequence[Numbers]) -> list[Numbers]:
    """Scores of each system on the same sets of drawn sentences."""
    n = len(tables[0])
    draw = np.random.default_rng([n, DRAWS])
    scores: list[list[float]] = [[] for _ in tables]
    for _ in range(DRAWS):
        times = np.bincount(draw.integers(0, n, n), minlength=n)
        for found, table in zip(scores, tables, strict=True):
            found.append(metric._compute_score_from_stats((times @ table).tolist()).score)
    return [np.array(found) for found in scores]


@dataclass(frozen=True)
class Difference:
    """a − b, its interval, and how often chance alone would bring one as large."""

    value: float
    interval: tuple[float, float]
    p: float
    n: int  # sentences

    @property
    def caution(self) -> str | None:
        """Why not to trust it, if there is a reason."""
        return Interval(*self.interval, self.n, enough=FEW_ROWS).caution_about("sentences")

    def as_json(self) -> dict[str, Any]:
        return {"difference": self.value, "interval": list(self.interval), "p": self.p}


def difference_of(a: Sequence[str], b: Sequence[str], references: Sequence[str], name: str = "bleu") -> Difference:
    """Paired bootstrap of two systems: p is the share of draws whose difference strays from its mean by as much as the
    difference itself is large."""
    _check(a, references)
    _check(b, references)
    metric = metrics()[name]
    tables = [_statistics(metric, some, references) for some in (a, b)]
    value = (
        metric.corpus_score(list(a), [list(references)]).score - metric.corpus_score(list(b), [list(references)]).score
    )
    first, second = _drawn_scores(metric, tables)
    strayed = first - second
    low, high = np.quantile(strayed, SHARES)
    far = int(np.count_nonzero(np.abs(strayed - strayed.mean()) >= abs(value)))
    return Difference(float(value), (float(low), float(high)), (far + 1) / (DRAWS + 1), len(references))


def sentence_scores(translations: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF of each sentence by itself: what ranks them from the worst to the best."""
    metric = metrics()["chrf"]
    pairs = zip(translations, references, strict=True)
    return [float(metric.sentence_score(found, [wanted]).score) for found, wanted in pairs]


def habits(translations: Sequence[str], references: Sequence[str], sources: Sequence[str]) -> Habits:
    words, wanted = ([text.split() for text in some] for some in (translations, references))
    again = phrases = 0
    for of_text in words:
        found = [tuple(of_text[k : k + PHRASE]) for k in range(len(of_text) - PHRASE + 1)]
        phrases += len(found)
        again += len(found) - len(set(found))
    return Habits(
        length_ratio=sum(map(len, words)) / max(1, sum(map(len, wanted))),
        repeated=again / max(1, phrases),
        copied=sum(a == b for a, b in zip(translations, sources, strict=True)) / max(1, len(translations)),
    )
