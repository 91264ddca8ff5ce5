"""Slices of a test set: groups of texts that share something a classifier may stumble over. Slices overlap.

Rows that belong together (duplicates, texts of one author) widen the interval of a slice's error rate.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import UsageError
from seqlab.evaluation.classification import Rate, accuracy_of
from seqlab.evaluation.english import contrasts, denies
from seqlab.evaluation.text_pieces import word_forms

STRONG = 1.0  # |leaning| from which a word speaks for a class
STRONG_EACH_WAY = 2  # different such words in each direction that make a text mixed
LEAST_TEXTS = 10  # that a word must stand in before its leaning is more than chance
LENGTHS = ("short", "rather short", "rather long", "long")

Members = NDArray[np.bool_]


@dataclass(frozen=True)
class Slice:
    """Some of the test texts, and for a person what they have in common."""

    name: str
    explanation: str
    members: Members


def slices_of(
    texts: Sequence[str],
    *,
    known_words: AbstractSet[str] | None,
    leaning: Mapping[str, float] | None,
    strong: float = STRONG,
) -> list[Slice]:
    """Slices by length, negation, contrast, words not seen in training and mixed sentiment; none of them empty.

    known_words, leaning: as `words_seen` and `leaning_of` count them in the training part; None: without that slice
    """
    if not len(texts):
        return []
    forms = [word_forms(text) for text in texts]
    slices = [*_by_length(forms), *_by_negation(forms), *_by_contrast(forms)]
    if known_words is not None:
        slices += _by_rare_words(forms, known_words)
    if leaning is not None:
        slices += _by_mixed_sentiment(forms, leaning, strong)
    return [piece for piece in slices if piece.members.any()]


def slice_errors(
    slices: Iterable[Slice], wrong: Members, clusters: NDArray[Any] | None = None
) -> list[tuple[Slice, Rate]]:
    """Each slice with its error rate; wrong (n,) and clusters (n,) of all the test texts."""
    rows = []
    for piece in slices:
        if piece.members.shape != wrong.shape:
            raise UsageError(
                f"slice '{piece.name}' is of {len(piece.members):,} texts and there are {len(wrong):,} decisions: "
                "pass those of the same texts"
            )
        rows.append((piece, accuracy_of(wrong[piece.members], None if clusters is None else clusters[piece.members])))
    return rows


def words_seen(texts: Iterable[str]) -> frozenset[str]:
    """Every word of the training part, in the form in which slices compare words."""
    return frozenset(form for text in texts for form in word_forms(text))


def leaning_of(texts: Sequence[str], is_positive: Members, *, least: int = LEAST_TEXTS) -> dict[str, float]:
    """Log-odds of each word between two classes, counted in texts, of words that stand in at least `least` of them.

        leaning(w) = ln((n₊(w) + 1) / (n₊ + 2)) − ln((n₋(w) + 1) / (n₋ + 2))

    n₊(w), n₋(w): positive and negative texts with w; n₊, n₋: all of them
    """
    counts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for text, positive in zip(texts, is_positive.tolist(), strict=True):
        counts[positive].update(set(word_forms(text)))
    n_positive = int(is_positive.sum())
    total = math.log((len(texts) - n_positive + 2) / (n_positive + 2))
    return {
        word: math.log((counts[True][word] + 1) / (counts[False][word] + 1)) + total
        for word in sorted(counts[True].keys() | counts[False].keys())
        if counts[True][word] + counts[False][word] >= least
    }


def _by_length(forms: Sequence[Sequence[str]]) -> list[Slice]:
    """Quarters by the number of words; a text at a limit belongs to the shorter quarter."""
    lengths = np.array([len(of_text) for of_text in forms])
    limits = np.quantile(lengths, (0.25, 0.5, 0.75), method="lower").astype(int).tolist()
    quarter = np.searchsorted(limits, lengths)  # limits[quarter − 1] < length <= limits[quarter]
    slices = []
    for which, name in enumerate(LENGTHS):
        if which == 0:
            span = f"up to {limits[0]:,} words"
        elif which == len(limits):
            span = f"more than {limits[-1]:,} words"
        else:
            span = f"{limits[which - 1] + 1:,} to {limits[which]:,} words"
        slices.append(Slice(f"{name} ({span})", f"texts of {span}", quarter == which))
    return slices


def _both(members: Sequence[bool] | Members, names: tuple[str, str], explanations: tuple[str, str]) -> list[Slice]:
    chosen = np.asarray(members, bool)
    return [Slice(names[0], explanations[0], chosen), Slice(names[1], explanations[1], ~chosen)]


def _by_negation(forms: Sequence[Sequence[str]]) -> list[Slice]:
    members = [any(map(denies, of_text)) for of_text in forms]
    explanations = ("at least one English word that denies: not, n't, never, without …", "no English word that denies")
    return _both(members, ("with negation", "without negation"), explanations)


def _by_contrast(forms: Sequence[Sequence[str]]) -> list[Slice]:
    members = [bool(contrasts(of_text)) for of_text in forms]
    explanations = ("at least one English word of contrast: but, however, although …", "no English word of contrast")
    return _both(members, ("with contrast", "without contrast"), explanations)


def _by_rare_words(forms: Sequence[Sequence[str]], known: AbstractSet[str]) -> list[Slice]:
    """The quarter with most unseen words (more texts where shares are equal, fewer where most have no such word)."""
    shares = np.array([_share(of_text, known) for of_text in forms])
    limit = float(np.quantile(shares, 0.75, method="higher"))
    members = (shares >= limit) & (shares > 0)
    said = f"at least {limit:.1%}" if limit > 0 else "some"
    explanations = (
        f"{said} of the words were never seen in training: the quarter of the texts with most of them",
        "the other texts: fewer words, or none, that were never seen in training",
    )
    return _both(members, (f"rare words ({said} unseen)", "familiar words"), explanations)


def _share(forms: Sequence[str], known: AbstractSet[str]) -> float:
    return sum(form not in known for form in forms) / max(len(forms), 1)


def _by_mixed_sentiment(forms: Sequence[Sequence[str]], leaning: Mapping[str, float], strong: float) -> list[Slice]:
    members = []
    for of_text in forms:
        leanings = [leaning.get(form, 0.0) for form in set(of_text)]
        up, down = sum(value >= strong for value in leanings), sum(value <= -strong for value in leanings)
        members.append(min(up, down) >= STRONG_EACH_WAY)
    said = f"{STRONG_EACH_WAY} different words that lean strongly (log-odds of {strong:g} or more) to each class"
    explanations = (f"at least {said}", f"fewer than {said}")
    return _both(members, ("mixed sentiment", "not mixed"), explanations)
