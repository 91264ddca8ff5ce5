"""Rows of word ids, and the words that have one, against loops."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqlab.core.types import BEGIN, PADDING, RESERVED, UNKNOWN
from seqlab.data import words
from seqlab.data.word_ids import IdReader, IdRows, SeenWords, seen_words
from seqlab.data.words import read_words

TEXTS = ["the cat sat", "", "The DOG’s bone, the cat", "x " * 9, "sat on: the dog's dog", " \n"]
LEXICON = ("a", "b", "c'd", "C’D", "!", "é", " ", "字")
MADE = st.lists(st.lists(st.sampled_from(LEXICON), max_size=10).map(" ".join), max_size=8)


def reader(vocabulary: str, length: int = 6) -> IdReader:
    return IdReader(np.sort(read_words([vocabulary]).codes), length)


def spelt(texts: list[str]) -> list[list[str]]:
    found = []
    for text in texts:
        own, lowered = read_words([text]), text.lower().replace("’", "'")
        found.append([lowered[a:b] for a, b in zip(own.starts, own.ends, strict=True)])
    return found


def rows_of(rows: IdRows) -> list[list[int]]:
    return [rows.ids[a:b].tolist() for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True)]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 100])
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_rows(length: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "BLOCK_CHARACTERS", block)
    read = reader("the cat dog's sat x", length)
    ids = {name: RESERVED + k for k, name in enumerate(sorted(["the", "cat", "dog's", "sat", "x"], key=code))}
    heard: list[int] = []
    rows = rows_of(read.read(TEXTS, heard.append))
    assert heard[-1] == len(TEXTS)
    for found, names in zip(rows, spelt(TEXTS), strict=True):
        whole = [ids.get(name, UNKNOWN) for name in names]
        back = length // 2
        cut = whole if len(whole) <= length else whole[: length - back] + (whole[-back:] if back else [])
        assert found == [BEGIN, *cut]
        assert len(found) <= length + 1


def code(word: str) -> int:
    return int(read_words([word]).codes[0])


def test_nothing_known_and_nothing_read() -> None:
    nobody = IdReader(np.zeros(0, np.uint64), 4)
    assert rows_of(nobody.read(["a b", ""])) == [[BEGIN, UNKNOWN, UNKNOWN], [BEGIN]]
    assert len(nobody.read([])) == 0
    largest = IdReader(np.array([2**64 - 2], np.uint64), 4)
    assert largest.ids_of(np.array([0, 2**64 - 2, 2**64 - 1], np.uint64)).tolist() == [UNKNOWN, RESERVED, UNKNOWN]


def test_a_vocabulary_goes_through_a_signed_buffer() -> None:
    """A model keeps its codes among its weights as int64."""
    read = reader("the cat sat on a mat", 9)
    kept = torch.from_numpy(read.vocabulary.view(np.int64)).clone().numpy().view(np.uint64)
    assert rows_of(IdReader(kept, 9).read(TEXTS)) == rows_of(read.read(TEXTS))


@pytest.mark.parametrize("rows", [[0, 1, 2], [3], [1, 5], [4, 0, 0, 2], []], ids=str)
def test_batches_are_padded_on_the_right(rows: list[int]) -> None:
    read = reader("the cat sat").read(TEXTS)
    batch, plain = read.batch(np.array(rows, np.int64)), rows_of(read)
    wanted = [plain[row] for row in rows]
    assert batch.lengths.tolist() == [len(row) for row in wanted]
    widest = max(map(len, wanted), default=1)
    assert batch.ids.tolist() == [row + [PADDING] * (widest - len(row)) for row in wanted]
    assert batch.ids.shape == (len(rows), widest)


@pytest.mark.parametrize("block", [12, 1 << 20])
@pytest.mark.parametrize("least", [1, 2])
@given(texts=MADE)
def test_seen_words(least: int, block: int, texts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "BLOCK_CHARACTERS", block)
        seen = seen_words(texts, least)
    names = spelt(texts)
    times = Counter(name for row in names for name in row)
    spread = Counter(name for row in names for name in set(row))
    kept = sorted((name for name in times if spread[name] >= least), key=lambda name: (-times[name], code(name)))
    assert list(seen.spellings) == kept
    assert seen.counts.tolist() == [times[name] for name in kept]
    assert seen.codes.tolist() == [code(name) for name in kept]
    most = seen.most(2)
    assert isinstance(most, SeenWords)
    assert (most.codes.tolist(), list(most.spellings)) == (seen.codes[:2].tolist(), kept[:2])
