"""Labelled rows split into training, validation and test: no text on two sides, shares kept within each label.

Rows with the same text (`duplicates.normalised`) or the same group are a cluster and stay together. The seed
alone decides which rows go where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import DataError, UsageError
from seqlab.data.duplicates import clusters_of, duplicate_sets
from seqlab.data.leaks import leaks
from seqlab.data.placing import TEST, TRAIN, VALIDATION, Rows, fill_empty_part, give_training_every_label, place

__all__ = ["Split", "duplicate_sets", "leaks", "split_rows"]

PARTS = ("training", "validation", "test")
SHOWN_LABELS = 5
TOLERATED = 0.02
"""How far a part's share may be from what was asked for before a note says so."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Row indices of each part, ascending."""

    train: Integers
    validation: Integers
    test: Integers
    notes: tuple[str, ...]
    duplicates: int
    """Rows whose text stands in an earlier row as well."""
    contradictions: int
    """Rows whose text stands elsewhere with another label."""
    clusters: Integers
    """For every row the number of its cluster: rows with the same text or group have one number."""


def split_rows(
    texts: Sequence[str],
    labels: Sequence[str],
    groups: Sequence[str] | None,
    shares: tuple[float, float, float],
    seed: int,
) -> Split:
    """Split so that each label has its shares as closely as clusters allow, and training has every label.

    A label with one row goes to training. A group '' ties nothing.
    """
    _check(texts, labels, groups, shares)
    names = sorted(set(labels))
    number = {name: k for k, name in enumerate(names)}
    label = np.array([number[name] for name in labels], dtype=np.int64)
    first = duplicate_sets(texts)
    clusters = clusters_of(first, groups)
    rows = Rows(label, clusters, len(names))
    part = place(rows, shares, np.random.default_rng(seed))
    give_training_every_label(rows, part)
    for k in (VALIDATION, TEST):
        if shares[k] > 0 and not (part == k).any():
            fill_empty_part(rows, part, k, unseen_allowed=groups is not None, name=PARTS[k])
    duplicates = int((first != np.arange(len(first))).sum())
    contradictions = _contradictions(first, label)
    notes = (
        *_duplicate_notes(duplicates, contradictions),
        *_label_notes(names, label, part, shares),
        *_share_notes(part, shares),
    )
    train, validation, test = (np.flatnonzero(part == k) for k in (TRAIN, VALIDATION, TEST))
    return Split(train, validation, test, notes, duplicates, contradictions, clusters)


def _check(
    texts: Sequence[str], labels: Sequence[str], groups: Sequence[str] | None, shares: tuple[float, float, float]
) -> None:
    counts = {len(texts), len(labels), len(texts if groups is None else groups)}
    if len(counts) != 1:
        raise UsageError(f"texts, labels and groups have different lengths ({sorted(counts)}); give one for each row")
    if min(shares) < 0 or shares[TRAIN] <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise UsageError(f"the shares {shares} do not add up to 1 with some training; for example 0.8, 0.1, 0.1")
    asked = sum(share > 0 for share in shares)
    if len(texts) < asked:
        raise DataError(f"{len(texts)} rows cannot be split into {asked} parts; give more rows")


def _contradictions(first: Integers, label: Integers) -> int:
    """Rows of texts that stand with more than one label."""
    pairs = np.unique(np.stack([first, label], axis=1), axis=0)
    labels_of = np.bincount(pairs[:, 0], minlength=len(first))
    return int((labels_of[first] > 1).sum())


def _duplicate_notes(duplicates: int, contradictions: int) -> tuple[str, ...]:
    notes = []
    if duplicates:
        repeat = (
            "1 row repeats the text of an earlier one"
            if duplicates == 1
            else (f"{duplicates:,} rows repeat the text of an earlier one")
        )
        notes.append(f"{repeat} (but for case, white space and punctuation): the same text is in one part only")
    if contradictions:
        notes.append(
            f"{contradictions:,} rows have the text of another row but another label: no model can get all right"
        )
    return tuple(notes)


def _label_notes(
    names: Sequence[str], label: Integers, part: Integers, shares: tuple[float, float, float]
) -> tuple[str, ...]:
    present = np.stack([np.bincount(label[part == k], minlength=len(names)) > 0 for k in range(3)])
    notes = []
    for k in (VALIDATION, TEST):
        absent = np.flatnonzero(~present[k]).tolist() if shares[k] > 0 else []
        if absent:
            shown = _listed([names[j] for j in absent], len(names))
            notes.append(f"in no {PARTS[k]} row, being too few or tied together: {shown}")
    unseen = np.flatnonzero(~present[TRAIN]).tolist()
    if unseen:
        shown = _listed([names[j] for j in unseen], len(names))
        notes.append(f"in no training row, since the groups leave no other way: {shown}")
    return tuple(notes)


def _share_notes(part: Integers, shares: tuple[float, float, float]) -> tuple[str, ...]:
    got = np.bincount(part, minlength=3) / len(part)
    if np.abs(got - shares).max() <= TOLERATED:
        return ()
    return (
        f"the parts have {_percentages(got)} % of the rows, not {_percentages(shares)}: rows that belong together "
        "or stand alone leave no closer split",
    )


def _percentages(shares: Sequence[float] | NDArray[np.float64]) -> str:
    return "/".join(f"{100 * share:.1f}".removesuffix(".0") for share in shares)


def _listed(names: Sequence[str], of: int) -> str:
    shown = ", ".join(f"'{name[:40]}'" for name in names[:SHOWN_LABELS]) + (", …" if len(names) > SHOWN_LABELS else "")
    return f"{len(names):,} of {of:,} labels ({shown})"
