"""Texts as rows of word ids, for models that read word by word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.core.types import BEGIN, RESERVED, UNKNOWN, PaddedBatch
from seqlab.data.words import APOSTROPHE, TYPOGRAPHIC, Codes, Words, blocks_of, read_words

Places = NDArray[np.int64]


@dataclass(frozen=True)
class IdRows:
    """Those of text k are `ids[offsets[k]:offsets[k + 1]]`."""

    ids: NDArray[np.int64]
    offsets: Places

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Places:
        return np.diff(self.offsets)

    def batch(self, rows: NDArray[np.int64]) -> PaddedBatch:
        lengths = self.sizes[rows]
        columns = np.arange(max(1, int(lengths.max(initial=0))))
        inside = columns < lengths[:, None]
        ids = np.zeros(inside.shape, np.int64)
        ids[inside] = self.ids[(self.offsets[rows][:, None] + columns)[inside]]
        return PaddedBatch(torch.from_numpy(ids), torch.from_numpy(lengths))


@dataclass(frozen=True)
class IdReader:
    """Reads texts into ids: one for each word of a vocabulary, one for all others.

    Of a text with more than `length` words the first half and the last half of that many are read. Every row begins
    with the begin id, so that none is empty.
    """

    vocabulary: Codes  # ascending
    length: int

    def read(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> IdRows:
        rows: list[NDArray[np.int64]] = []
        for first, last in blocks_of(texts):
            words = read_words(texts[first:last])
            ids = self.ids_of(words.codes)
            for start, end in zip(words.offsets[:-1], words.offsets[1:], strict=True):
                rows.append(self._row(ids[start:end]))
            if progress is not None:
                progress(last)
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return IdRows(np.concatenate(rows) if rows else np.zeros(0, np.int64), offsets)

    def ids_of(self, codes: Codes) -> NDArray[np.int64]:
        if not len(self.vocabulary):
            return np.full(len(codes), UNKNOWN, np.int64)
        place = np.searchsorted(self.vocabulary, codes).clip(max=len(self.vocabulary) - 1)
        return np.where(self.vocabulary[place] == codes, place + RESERVED, UNKNOWN)

    def _row(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(ids) > self.length:
            ids = np.concatenate([ids[: self.length - self.length // 2], ids[len(ids) - self.length // 2 :]])
        return np.concatenate([[BEGIN], ids])


@dataclass(frozen=True)
class SeenWords:
    """The words of some texts, the most frequent first: what each is, and in how many places it stands."""

    codes: Codes
    counts: Places
    spellings: tuple[str, ...]

    def most(self, size: int) -> SeenWords:
        return SeenWords(self.codes[:size], self.counts[:size], self.spellings[:size])


def seen_words(texts: Sequence[str], least: int = 1) -> SeenWords:
    """The words that stand in at least so many of the texts; equally frequent ones in order of their code."""
    spelt: dict[int, str] = {}
    found: list[Codes] = []
    times: list[Places] = []
    spread: list[Places] = []
    for first, last in blocks_of(texts):
        block = texts[first:last]
        words = read_words(block)
        codes, places, where = np.unique(words.codes, return_index=True, return_inverse=True)
        found.append(codes)
        times.append(np.bincount(where))
        spread.append(_texts_with(where, words))
        for code, place in zip(codes.tolist(), places.tolist(), strict=True):
            if code not in spelt:
                spelt[code] = _spelling(block, words, place)
    if not found:
        return SeenWords(np.zeros(0, np.uint64), np.zeros(0, np.int64), ())
    codes, where = np.unique(np.concatenate(found), return_inverse=True)
    counts, texts_with = (np.bincount(where, np.concatenate(some)).astype(np.int64) for some in (times, spread))
    codes, counts = codes[texts_with >= least], counts[texts_with >= least]
    order = np.argsort(-counts, kind="stable")
    return SeenWords(codes[order], counts[order], tuple(spelt[code] for code in codes[order].tolist()))


def _texts_with(where: Places, words: Words) -> Places:
    """In how many texts each of the different words stands; `where` says which of them each word is."""
    kinds = int(where.max(initial=-1)) + 1
    text = np.repeat(np.arange(len(words)), np.diff(words.offsets))
    return np.bincount(np.unique(text * kinds + where) % max(1, kinds), minlength=kinds)


def _spelling(texts: Sequence[str], words: Words, place: int) -> str:
    text = int(np.searchsorted(words.offsets, place, side="right")) - 1
    spelt = texts[text].lower()[words.starts[place] : words.ends[place]]
    return spelt.replace(chr(TYPOGRAPHIC), chr(APOSTROPHE))  # both have one code
