"""Which columns of a table hold the text, the label and the group: as somebody said, or by their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seqlab.core.errors import DataError, UsageError
from seqlab.data.tables import DelimitedTable, JsonTable

TEXT_NAMES = (
    *("text", "review", "sentence", "body", "content", "comment", "message", "document", "tweet", "phrase"),
    *("reviewtext", "review_text", "review_body", "utterance", "description", "abstract", "headline", "title"),
)
LABEL_NAMES = (
    *("label", "class", "category", "sentiment", "stars", "star_rating", "rating", "target", "topic", "polarity"),
    *("labels", "score", "genre", "intent", "emotion", "language", "tag"),
)
AnyTable = JsonTable | DelimitedTable


@dataclass(frozen=True)
class Columns:
    """Positions of the columns in `table`, which has its first line as a row where it is said to be data."""

    table: AnyTable
    text: tuple[int, ...]
    label: int | None
    group: int | None
    notes: tuple[str, ...]

    def texts(self) -> list[str]:
        """Several columns are joined by one newline."""
        parts = [self.table.values(column) for column in self.text]
        return parts[0] if len(parts) == 1 else ["\n".join(row) for row in zip(*parts, strict=True)]


def choose_columns(table: AnyTable, text: str | None, label: str | None, group: str | None) -> Columns:
    """The columns of labelled text; what was not said is decided by names, or by length where there are two."""
    said = [*_parts(table, text), *([label] if label else []), *([group] if group else [])]
    table, notes = _counted_from_one(table, said)
    texts = [_find(table, name, "--text") for name in _parts(table, text)]
    grouping = _find(table, group, "--group") if group else None
    labelling = _find(table, label, "--label") if label else _guessed_label(table, {*texts, grouping}, bool(text))
    if not texts:
        texts = [_guessed_text(table, {labelling, grouping})]
    if labelling is None:
        labelling = _remaining(table, {*texts, grouping}, "label")
    if labelling in texts:
        raise UsageError(f"the column '{table.columns[labelling]}' is both --text and --label; name two columns")
    if grouping is not None and grouping == labelling:
        raise UsageError(f"the column '{table.columns[grouping]}' is both --group and --label; name two columns")
    guessed = () if text and label else (_guess_note(table, texts, labelling),)
    return Columns(table, tuple(texts), labelling, grouping, (*notes, *guessed))


def choose_text(table: AnyTable, text: str | None) -> Columns:
    """The text column(s) alone; a table with only one column needs no name."""
    table, notes = _counted_from_one(table, _parts(table, text))
    texts = [_find(table, name, "--text") for name in _parts(table, text)]
    if not texts:
        texts = [0] if len(table.columns) == 1 else [_guessed_text(table, set())]
        notes = (*notes, f"the text is column '{table.columns[texts[0]]}'")
    return Columns(table, tuple(texts), None, None, notes)


def _parts(table: AnyTable, text: str | None) -> list[str]:
    """The columns named by --text: one, or several joined by commas."""
    if not text or _stripped(text) in map(_stripped, table.columns):
        return [text] if text else []
    return [part for part in text.split(",") if part.strip()]


def _counted_from_one(table: AnyTable, said: list[str]) -> tuple[AnyTable, tuple[str, ...]]:
    """Numbers count columns, and then the first line is a row, if no column has one of them for its name."""
    names = set(map(_stripped, table.columns))
    numbers = [name.strip() for name in said]
    countable = isinstance(table, DelimitedTable) and bool(numbers)
    if not countable or not all(n.isdecimal() and n not in names for n in numbers):
        return table, ()
    assert isinstance(table, DelimitedTable)
    first = ", ".join(f"'{value[:30]}'" for value in table.columns[:4]) + (", …" if len(table.columns) > 4 else "")
    note = f"columns are counted from 1, since none is called {numbers[0]}: the first line ({first}) is a row too"
    return table.without_header(), (note,)


def _find(table: AnyTable, name: str, flag: str) -> int:
    found = [k for k, column in enumerate(table.columns) if _stripped(column) == name.strip()]
    if len(found) > 1:
        raise DataError(f"{table.name} has {len(found)} columns called '{name.strip()}'; rename all but one of them")
    if not found:
        raise UsageError(f"{table.name} has no column '{name.strip()}' for {flag}; its columns are {_listed(table)}")
    return found[0]


def _guessed_label(table: AnyTable, taken: set[int | None], text_said: bool) -> int | None:
    found = _by_name(table, LABEL_NAMES, taken)
    if found is None and text_said:
        return _remaining(table, taken, "label")
    return found


def _guessed_text(table: AnyTable, taken: set[int | None]) -> int:
    found = _by_name(table, TEXT_NAMES, taken)
    if found is not None:
        return found
    free = [k for k in range(len(table.columns)) if k not in taken]
    if len(free) == 1:
        return free[0]
    if len(table.columns) == len(free) == 2:
        lengths = [sum(map(len, table.values(k))) for k in free]
        if lengths[0] != lengths[1]:
            return lengths.index(max(lengths))
    raise UsageError(f"{table.name}: which column is the text? Say --text; its columns are {_listed(table)}")


def _remaining(table: AnyTable, taken: set[int | None], role: str) -> int:
    """The one column that is left; with more or fewer nobody can know."""
    free = [k for k in range(len(table.columns)) if k not in taken]
    if len(free) != 1:
        raise UsageError(f"{table.name}: which column is the {role}? Say --{role}; its columns are {_listed(table)}")
    return free[0]


def _by_name(table: AnyTable, names: Sequence[str], taken: Iterable[int | None]) -> int | None:
    """The first of `names` that a free column has, whatever its case."""
    lowered = [_stripped(column).casefold() for column in table.columns]
    for name in names:
        if name in lowered and lowered.index(name) not in taken:
            return _find(table, table.columns[lowered.index(name)], "--text")
    return None


def _guess_note(table: AnyTable, texts: list[int], label: int) -> str:
    shown = " and ".join(f"'{_stripped(table.columns[k])[:60]}'" for k in texts)
    return f"the text is column {shown}, the label is column '{_stripped(table.columns[label])[:60]}'"


def _listed(table: AnyTable) -> str:
    shown = ", ".join(f"'{_stripped(column)[:40]}'" for column in table.columns[:20])
    return shown + (f" and {len(table.columns) - 20:,} more" if len(table.columns) > 20 else "")


def _stripped(name: str) -> str:
    return name.strip()
