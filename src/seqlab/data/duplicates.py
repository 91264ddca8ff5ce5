"""Which texts are the same to a reader, and which rows must therefore stay together."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

VARIATIONS = (0xFE00, 0xFE0F)  # marks that choose how a sign looks


class _WithoutPunctuation(dict[int, str]):
    """A table for `str.translate` that is filled as characters are met.

    Punctuation becomes a space, and so do control and format characters (a zero-width space, say) and variation
    selectors: no model here reads them (`words`).
    """

    def __missing__(self, code: int) -> str:
        character = chr(code)
        unseen = VARIATIONS[0] <= code <= VARIATIONS[1] or unicodedata.category(character)[0] in "PC"
        self[code] = " " if unseen else character
        return self[code]


_PUNCTUATION = _WithoutPunctuation()


def normalised(text: str) -> str:
    """The text as two readers would agree on it.

    Case is folded (Unicode), accents are composed (NFC), every character of a Unicode class P… (punctuation) or C…
    (control, format) and every variation selector becomes a space, and each run of white space one space, none at
    the ends. Digits and symbols such as + or ☹ count. Where nothing is left, as of ``:-)``, the punctuation counts
    as well.
    """
    folded = unicodedata.normalize("NFC", text.casefold())
    return " ".join(folded.translate(_PUNCTUATION).split()) or " ".join(folded.split())


def duplicate_sets(texts: Sequence[str]) -> NDArray[np.int64]:
    """For each row the index of the first row whose `normalised` text is the same."""
    first: dict[str, int] = {}
    found = (first.setdefault(normalised(text), index) for index, text in enumerate(texts))
    return np.fromiter(found, dtype=np.int64, count=len(texts))


def clusters_of(first: NDArray[np.int64], groups: Sequence[str] | None) -> NDArray[np.int64]:
    """For each row the number of its cluster, counted from 0 in the order of their first rows.

    Rows are tied by the same text (`first`, as from `duplicate_sets`) or the same group, also through rows in
    between; the group '' ties nothing.
    """
    tied = first if groups is None else _joined(first, groups)
    _, where, inverse = np.unique(tied, return_index=True, return_inverse=True)
    ranks = np.empty(len(where), dtype=np.int64)
    ranks[np.argsort(where)] = np.arange(len(where))
    return ranks[inverse]


def _joined(first: NDArray[np.int64], groups: Sequence[str]) -> NDArray[np.int64]:
    """Connected components of the graph that has an edge from each row to the first of its text and its group."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows = np.arange(len(first))
    seen: dict[str, int] = {}
    of_group = np.array([seen.setdefault(name, k) if name else k for k, name in enumerate(groups)], dtype=np.int64)
    edges = (np.concatenate([rows, rows]), np.concatenate([first, of_group]))
    graph = coo_array((np.ones(2 * len(rows), dtype=np.int8), edges), shape=(len(rows), len(rows)))
    _, component = connected_components(graph, directed=False)
    return np.asarray(component, dtype=np.int64)
