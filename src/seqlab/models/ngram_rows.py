"""Whole rows of n-gram probabilities, fast: ln p(· | c) at many places at once.

Unrolled, the interpolation of every order is one sum,

    p(w | c) = Σ_k s_k(c) · own_k(c w),      s_k(c) = Π_{j>k} γ_j(c),      own_0 = 1/V

so a row is one dense row of the low orders, scaled once, and a few numbers added to it for each higher order. The
plain version is `NGramLM.forward`, which goes up order by order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqlab.models.counting import NOT_SEEN, Ids
from seqlab.models.ngram import Level

MOST_DENSE = 1 << 24  # numbers in the tables of low orders: 64 MB
AT_ONCE = 1024  # places: what their higher orders take stays in the cache

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Smoothed:
    """own and γ of one order, for each of some countings of the same n-grams."""

    own: Floats  # (F, n-grams)
    share: Floats  # (F, contexts)


class RowTables:
    """Rows of one or more countings F of the same n-grams (`folds`: each without a part of the text)."""

    def __init__(self, levels: Sequence[Level], smoothed: Sequence[Smoothed], vocab_size: int) -> None:
        self.vocab_size, self.levels, self.smoothed = vocab_size, levels, smoothed
        self._tokens = [(level.keys % level.symbols).astype(np.int32) for level in levels]
        self._dense_order = self._largest_dense_order()
        self._dense, self._first_row = self._made_dense()

    @classmethod
    def of(cls, levels: Sequence[Level], vocab_size: int) -> RowTables:
        """Those of one counting."""
        smoothed = [Smoothed(_float32(level.own)[None], _float32(level.shorter_share)[None]) for level in levels]
        return cls(levels, smoothed, vocab_size)

    # ---- the low orders

    def _largest_dense_order(self) -> int:
        """How many orders' contexts have a row of their own in a table that is not too large; at least the first."""
        countings, contexts, order = len(self.smoothed[0].own), 0, 0
        for level in self.levels:
            contexts += level.n_contexts
            if order and countings * contexts * self.vocab_size > MOST_DENSE:
                break
            order += 1
        return order

    def _made_dense(self) -> tuple[Tensor, Ids]:
        """The rows (F · contexts, V) of all contexts of the low orders, and where the rows of each order begin."""
        low = self.levels[: self._dense_order]
        sizes = [level.n_contexts for level in low]
        first = np.concatenate([[0], np.cumsum(sizes)])
        countings, V = len(self.smoothed[0].own), self.vocab_size
        p = np.empty((countings, int(first[-1]), V + 1), np.float32)
        shorter = np.zeros(1, np.int64)  # of each context of this order, the row that stands for it one order lower
        for k, (level, smoothed) in enumerate(zip(low, self.smoothed, strict=False)):
            own = p[:, first[k] : first[k + 1]]
            own[:] = np.float32(1 / V) if k == 0 else p[:, first[k - 1] + shorter]
            own *= smoothed.share[:, :, None]
            own.reshape(countings, -1)[:, level.keys // level.symbols * (V + 1) + self._tokens[k]] += smoothed.own
            if k + 1 < len(low):
                shorter = self._suffixes(k, shorter)
        return torch.from_numpy(p[:, :, :V].reshape(-1, V)), first

    def _suffixes(self, k: int, suffixes_of_contexts: Ids) -> Ids:
        """Of each n-gram of this order, the index one order lower of what is left without its first token."""
        if k == 0:
            return np.zeros(len(self.levels[0].keys), np.int64)
        level = self.levels[k]
        contexts, tokens = level.keys // level.symbols, level.keys % level.symbols
        return self.levels[k - 1].find(suffixes_of_contexts[contexts], tokens)

    # ---- rows

    def log_rows(
        self, contexts: Sequence[Ids], counting: Ids | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """ln p (P, V) after contexts that each order knows by an index or not at all (P) -> (P, V)."""
        places = len(contexts[0])
        counting = np.zeros(places, np.int64) if counting is None else counting
        rows = torch.empty(places, self.vocab_size, dtype=dtype or torch.float32)
        for start in range(0, places, AT_ONCE):
            here = slice(start, start + AT_ONCE)
            self._fill(rows[here], [known[here] for known in contexts], counting[here])
        return rows.log_()

    def _fill(self, p: Tensor, contexts: Sequence[Ids], counting: Ids) -> None:
        """p (P, V) of every token."""
        scale = np.ones(len(p), np.float32)
        higher: list[tuple[int, NDArray[np.float32]]] = []
        for k in range(len(self.levels) - 1, self._dense_order - 1, -1):
            higher.append((k, scale))
            scale = scale * self._share(k, contexts[k], counting)
        torch.mul(self._low_rows(contexts, counting), torch.from_numpy(scale)[:, None], out=p)
        flat = p.view(-1).numpy()
        for k, weight in higher:
            self._add(flat, k, contexts[k], counting, weight)

    def _share(self, k: int, contexts: Ids, counting: Ids) -> Floats:
        share = self.smoothed[k].share
        found: Floats = np.where(contexts == NOT_SEEN, np.float32(1), share[counting, contexts])
        return found

    def _low_rows(self, contexts: Sequence[Ids], counting: Ids) -> Tensor:
        """The row of the longest context that has one."""
        rows = contexts[0] + 0
        for k in range(1, self._dense_order):
            rows = np.where(contexts[k] == NOT_SEEN, rows, self._first_row[k] + contexts[k])
        return self._dense.index_select(0, torch.from_numpy(counting * self._first_row[-1] + rows))

    def _add(self, flat: NDArray[np.floating], k: int, contexts: Ids, counting: Ids, weight: Floats) -> None:
        """s_k · own_k of every token that followed these contexts."""
        rows = np.flatnonzero(contexts != NOT_SEEN)
        first = self.levels[k].starts[contexts[rows]]
        sizes = self.levels[k].starts[contexts[rows] + 1] - first
        rows = np.repeat(rows, sizes)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        grams = np.repeat(first, sizes) + within
        own = self.smoothed[k].own[counting[rows], grams]
        flat[rows * self.vocab_size + self._tokens[k][grams]] += own * weight[rows]

    def matched(self, contexts: Sequence[Ids], counting: Ids | None = None) -> Ids:
        """How many tokens long the longest context is that was followed by something.    (P,) 0 … order − 1"""
        counting = np.zeros(len(contexts[0]), np.int64) if counting is None else counting
        longest = np.zeros(len(contexts[0]), np.int64)
        for k in range(1, len(self.levels)):
            seen = (contexts[k] != NOT_SEEN) & (self.smoothed[k].share[counting, contexts[k]] < 1)
            longest[seen] = k
        return longest


def _float32(values: NDArray[np.float64]) -> Floats:
    return values.astype(np.float32)
