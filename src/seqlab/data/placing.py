"""Where clusters of labelled rows go: targets for each label, then one part for each cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import DataError

TRAIN, VALIDATION, TEST = range(3)

Integers = NDArray[np.int64]
Shares = tuple[float, float, float]


@dataclass(frozen=True)
class Rows:
    """For each row the number of its label and of its cluster."""

    label: Integers
    cluster: Integers
    labels: int

    @cached_property
    def sizes(self) -> Integers:
        """Rows of each cluster."""
        return np.bincount(self.cluster)

    @cached_property
    def members(self) -> list[Integers]:
        """The rows of each cluster."""
        order = np.argsort(self.cluster, kind="stable")
        return np.split(order, np.cumsum(self.sizes)[:-1])

    @cached_property
    def mixes(self) -> list[list[tuple[int, int]]]:
        """The labels of each cluster, each with its number of rows there."""
        pairs, counts = np.unique(self.cluster * self.labels + self.label, return_counts=True)
        mixes: list[list[tuple[int, int]]] = [[] for _ in self.sizes]
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            mixes[pair // self.labels].append((pair % self.labels, count))
        return mixes


def place(rows: Rows, shares: Shares, rng: np.random.Generator) -> Integers:
    """The part of each row: clusters of several rows first, then single rows fill up what each label needs."""
    targets = label_targets(np.bincount(rows.label, minlength=rows.labels), shares, rng)
    part = np.full(len(rows.label), TRAIN, dtype=np.int64)
    _place_clusters(rows, targets, part, [p for p in range(3) if shares[p] > 0], rng)
    single = np.flatnonzero(rows.sizes[rows.cluster] == 1)
    tied = rows.sizes[rows.cluster] > 1
    taken = np.zeros((rows.labels, 3), dtype=np.int64)
    np.add.at(taken, (rows.label[tied], part[tied]), 1)
    part[single] = _fill(rows.label[single], targets, taken, rng)
    return part


def label_targets(counts: Integers, shares: Shares, rng: np.random.Generator) -> Integers:
    """How many rows of each label (one at least) go to each part; each label keeps one for training.

    With n_k rows of label k and a share h held out, H_k = ⌊C_k + u⌋ − ⌊C_(k−1) + u⌋ are held out, where C_k is
    the running sum of h·n_k over labels in random order and u is uniform in [0, 1). Each H_k is h·n_k rounded up
    or down, and so is every sum of neighbours: small labels together give as many rows as they should.
    Validation and test share H_k in the same way.
    """
    order = rng.permutation(len(counts))
    n = counts[order]
    held_share = shares[VALIDATION] + shares[TEST]
    held = np.minimum(_rounded(np.where(n > 1, held_share * n, 0.0), rng), n - 1)
    test = _rounded(held * (shares[TEST] / held_share), rng) if held_share > 0 else np.zeros_like(held)
    targets = np.empty((len(counts), 3), dtype=np.int64)
    targets[order] = np.stack([n - held, held - test, test], axis=1)
    return targets


def _rounded(wanted: NDArray[np.float64], rng: np.random.Generator) -> Integers:
    """Each value rounded up or down so that every running sum is as well."""
    edges = np.floor(np.cumsum(wanted).round(6) + rng.random()).astype(np.int64)
    return np.diff(edges, prepend=0)


def _place_clusters(
    rows: Rows, targets: Integers, part: Integers, parts: Sequence[int], rng: np.random.Generator
) -> None:
    """Clusters of several rows, the largest first, each to the part that has got least of what it should have.

    A part counts only if the whole cluster fits into what its labels still need there; where no part is so
    free, the one that needs most of the cluster's rows takes it.
    """
    need = targets.tolist()
    total = targets.sum(axis=0).tolist()
    left = list(total)
    several = np.flatnonzero(rows.sizes > 1)
    order = rng.permutation(several)
    for cluster in order[np.argsort(-rows.sizes[order], kind="stable")]:
        mix = rows.mixes[cluster]
        fits = [p for p in parts if total[p] and all(need[name][p] >= count for name, count in mix)]
        if fits:
            chosen = max(fits, key=lambda p: left[p] / total[p])
        else:
            chosen = max(parts, key=lambda p: sum(min(need[name][p], count) for name, count in mix))
        part[rows.members[cluster]] = chosen
        left[chosen] -= sum(count for _, count in mix)
        for name, count in mix:
            need[name][chosen] -= count


def _fill(label: Integers, targets: Integers, taken: Integers, rng: np.random.Generator) -> Integers:
    """The part of each single row: for each label as many as its targets lack, rows chosen at random."""
    lacking = np.maximum(targets - taken, 0)
    surplus = lacking.sum(axis=1) - np.bincount(label, minlength=len(targets))
    for p in range(3):  # what clusters took too much of one part is missing elsewhere: training gives first
        spare = lacking[:, p] - (taken[:, TRAIN] == 0) if p == TRAIN else lacking[:, p]
        given = np.clip(np.minimum(spare, surplus), 0, None)
        lacking[:, p] -= given
        surplus -= given
    order = np.lexsort((rng.random(len(label)), label))
    starts = np.searchsorted(label[order], np.arange(len(targets)))
    rank = np.empty(len(label), dtype=np.int64)
    rank[order] = np.arange(len(label)) - starts[label[order]]
    until = np.cumsum(lacking[:, [TEST, VALIDATION]], axis=1)[label]
    return np.where(rank < until[:, 0], TEST, np.where(rank < until[:, 1], VALIDATION, TRAIN))


def give_training_every_label(rows: Rows, part: Integers) -> None:
    """Move the smallest held-out cluster of each label that training lacks."""
    seen = np.bincount(rows.label[part == TRAIN], minlength=rows.labels)
    missing = set(np.flatnonzero(seen == 0).tolist())
    if not missing:
        return
    holders: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(seen[rows.label] == 0).tolist():
        holders[int(rows.label[row])].append(int(rows.cluster[row]))
    for name in sorted(missing):
        if not seen[name]:  # else it came along with another label
            moved = rows.members[min(holders[name], key=lambda cluster: (rows.sizes[cluster], cluster))]
            part[moved] = TRAIN
            np.add.at(seen, rows.label[moved], 1)


def fill_empty_part(rows: Rows, part: Integers, empty: int, *, unseen_allowed: bool, name: str) -> None:
    """Give a part without rows the smallest cluster that training can spare, else one of the other held-out part.

    Training can spare a cluster if it has other rows of all its labels. One that it cannot spare is given only
    where `unseen_allowed` and nothing else is left, and never its last one.
    """
    cluster_part = part[[members[0] for members in rows.members]]
    training = np.flatnonzero(cluster_part == TRAIN)
    by_size = training[np.argsort(rows.sizes[training], kind="stable")]
    seen = np.bincount(rows.label[part == TRAIN], minlength=rows.labels)
    chosen = next((c for c in by_size if all(seen[name] > count for name, count in rows.mixes[c])), None)
    if chosen is None:
        chosen = _from_another_part(rows, cluster_part)
    if chosen is None and unseen_allowed and len(by_size) > 1:
        chosen = by_size[0]
    if chosen is None:
        raise DataError(
            f"{len(part):,} rows with {rows.labels:,} labels are too few for a {name} part (rows with the same text or "
            f"group stay together, which leaves {len(rows.sizes):,} to share out); give more different rows of each "
            "label, or leave that part out of --split"
        )
    part[rows.members[chosen]] = empty


def _from_another_part(rows: Rows, cluster_part: Integers) -> int | None:
    """The smallest cluster of a held-out part that has another one left."""
    for part in (VALIDATION, TEST):
        clusters = np.flatnonzero(cluster_part == part)
        if len(clusters) > 1:
            return int(clusters[np.argmin(rows.sizes[clusters])])
    return None
