"""Sequences of different lengths read side by side: states joined along the batch, one call for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqlab.core.errors import UsageError
from seqlab.core.state import State, batch_sizes, join, reorder
from seqlab.core.types import LanguageModel

READ_AT_ONCE = 256  # tokens


@dataclass
class Row:
    """One sequence. The model reads its ids from `start` on; the last of them is always still unread."""

    number: int
    ids: list[int]
    start: int = 0
    ended: bool = False

    def has_room(self, limit: int | None) -> bool:
        return limit is None or len(self.ids) - self.start <= limit

    def make_room(self, limit: int | None) -> None:
        """Where a model's positions end, it goes on from the last half of them."""
        if limit is not None and not self.has_room(limit):
            self.start = len(self.ids) - max(1, limit // 2)

    @property
    def readable(self) -> list[int]:
        return self.ids[self.start :]


@dataclass
class Group:
    """Rows that share a state, and what follows the last id of each: logits (B, V)."""

    rows: list[Row]
    state: State
    logits: Tensor


def read_all(model: LanguageModel, rows: Sequence[Row], limit: int | None) -> list[Group]:
    """Rows read from their beginning, in as few groups as their states allow.

    All as far as the shortest goes, the others as far as the next one goes, and so on: nothing is padded. If nobody
    knows how to cut the state, each is read alone.
    """
    for row in rows:
        row.make_room(limit)
    waiting = sorted(rows, key=lambda row: len(row.readable))
    groups, state, read = [], None, 0
    while waiting:
        upto = len(waiting[0].readable)
        group = Group(waiting, *_read(model, [row.readable[read:upto] for row in waiting], state))
        if len(rows) > 1 and not _can_be_cut(group):
            return [_read_alone(model, row) for row in rows]
        groups.append(_part(group, [row for row in waiting if len(row.readable) == upto]))
        waiting = [row for row in waiting if len(row.readable) > upto]
        state, read = _part(group, waiting).state, upto
    return _merged(groups)


def read_apart(model: LanguageModel, rows: Sequence[Row], limit: int | None) -> list[Group]:
    """Every row read from its beginning, alone."""
    for row in rows:
        row.make_room(limit)
    return [_read_alone(model, row) for row in rows]


def read_on(model: LanguageModel, groups: Sequence[Group], limit: int | None) -> list[Group]:
    """The last id of every row is read. A row that has ended leaves; one that has no room left is read anew."""
    stepped, anew = [], []
    for group in groups:
        alive = [row for row in group.rows if not row.ended]
        staying = [row for row in alive if row.has_room(limit)]
        anew += [row for row in alive if not row.has_room(limit)]
        if staying:
            state = _part(group, staying).state
            stepped.append(Group(staying, *_read(model, [row.ids[-1:] for row in staying], state)))
    return _merged([*stepped, *read_all(model, anew, limit)]) if anew else stepped


def _read(model: LanguageModel, ids: list[list[int]], state: State) -> tuple[State, Tensor]:
    """The state and the logits (B, V) after the last ids; many ids are read in pieces, which bounds the memory."""
    piece = max(1, READ_AT_ONCE // len(ids))
    for k in range(0, len(ids[0]), piece):
        logits, state = model(torch.tensor([row[k : k + piece] for row in ids]), state)
    return state, logits[:, -1]


def _read_alone(model: LanguageModel, row: Row) -> Group:
    return Group([row], *_read(model, [row.readable], None))


def _can_be_cut(group: Group) -> bool:
    """Its state keeps to the layout: every tensor has one entry for each row."""
    try:
        return batch_sizes(group.state) <= {len(group.rows)}
    except TypeError:
        return False


def _part(group: Group, rows: list[Row]) -> Group:
    """The group with some of its rows only."""
    if len(rows) in (0, len(group.rows)):
        return group
    places = {row.number: k for k, row in enumerate(group.rows)}
    index = torch.tensor([places[row.number] for row in rows])
    return Group(rows, reorder(group.state, index), group.logits.index_select(0, index))


def _merged(groups: Sequence[Group]) -> list[Group]:
    """As few groups as their states allow; what can be joined with one of a group can be joined with all."""
    alike: list[list[Group]] = []
    for group in groups:
        found = next((others for others in alike if _can_be_joined(others[0], group)), None)
        if found is None:
            alike.append([group])
        else:
            found.append(group)
    return [_joined(found) for found in alike]


def _can_be_joined(one: Group, other: Group) -> bool:
    if not (_can_be_cut(one) and _can_be_cut(other)):
        return False
    try:
        join([one.state, other.state])
    except UsageError:
        return False
    return True


def _joined(groups: list[Group]) -> Group:
    if len(groups) == 1:
        return groups[0]
    rows = [row for group in groups for row in group.rows]
    return Group(rows, join([group.state for group in groups]), torch.cat([group.logits for group in groups]))
