"""Counts without a fold, against the same made with dictionaries; rows of them, against going up order by order."""

from collections import Counter
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pytest
import torch

from seqlab.core.errors import DataError
from seqlab.models import folds as folds_module
from seqlab.models import ngram_rows
from seqlab.models.counting import NOT_SEEN, discounts_from
from seqlab.models.folds import Folded, count_folds
from seqlab.models.ngram import NGramLM
from seqlab.models.ngram_rows import RowTables

V = 6
TEXT = np.frombuffer("".join(topics[title] for title in sorted(topics))[:30_000].encode("ascii", "replace"), np.uint8)


def text_of(length: int, seed: int = 0) -> np.ndarray:
    """What comes next leans on the last two tokens, and passages come again."""
    draw = np.random.default_rng(seed)
    ids = [0, 1]
    while len(ids) < length:
        ids.append(int((ids[-1] * 2 + ids[-2] + draw.integers(0, 2)) % V))
        if draw.random() < 0.05:
            start = int(draw.integers(0, len(ids)))
            ids += ids[start : start + 9]
    return np.array(ids[:length])


class PlainCounts:
    """Kneser–Ney of all events outside a fold, one n-gram at a time."""

    def __init__(self, ids: list[int], order: int, left_out: range) -> None:
        tokens, self.order = [V, *ids], order
        events: dict[int, Counter[tuple[int, ...]]] = {k: Counter() for k in range(1, order + 1)}
        for end in range(len(tokens)):
            if end - 1 not in left_out:  # the token at `end` of the whole text is predicted at end − 1
                for k in range(1, min(order, end + 1) + 1):
                    events[k][tuple(tokens[end - k + 1 : end + 1])] += 1
        self.adjusted: dict[int, dict[tuple[int, ...], int]] = {}
        for k in events:
            before = Counter(gram[1:] for gram in events[k + 1]) if k < order else events[k]
            self.adjusted[k] = {g: c if g[0] == V else before[g] for g, c in events[k].items()}
        self.adjusted[1].pop((V,), None)

    def probability(self, token: int, before: tuple[int, ...]) -> float:
        p = 1 / V
        before = before[max(0, len(before) - self.order + 1) :]
        for k in range(1, len(before) + 2):
            context = before[len(before) - k + 1 :]
            following = {g[-1]: a for g, a in self.adjusted[k].items() if g[:-1] == context and a}
            discounts = discounts_from(np.array(list(self.adjusted[k].values()), np.int64))
            total = sum(following.values())
            if total:
                freed = sum(discounts[min(a, 3) - 1] for a in following.values())
                a = following.get(token, 0)
                p = (a - discounts[min(a, 3) - 1] if a else 0) / total + freed / total * p
        return p


@pytest.mark.parametrize(("length", "order", "folds"), [(60, 1, 2), (150, 3, 4), (200, 5, 3), (40, 4, 10), (12, 7, 3)])
def test_counts_without_a_fold_are_those_of_the_events_outside(length: int, order: int, folds: int) -> None:
    ids = text_of(length)
    folded = count_folds(ids, V, order, folds)
    rows = folded.expected(np.arange(length)[None])[0].double().exp()
    for fold in range(folds):
        places = range(int(folded.edges[fold]), int(folded.edges[fold + 1]))
        plain = PlainCounts(ids.tolist(), order, range(places.start, places.stop + order - 1))
        for t in list(places)[:12]:
            before = (V, *ids[:t].tolist())
            expected = [plain.probability(token, before) for token in range(V)]
            assert np.allclose(rows[t], expected, rtol=0, atol=2e-7), (fold, t)


@pytest.mark.parametrize("order", [2, 3, 6])
@pytest.mark.parametrize("fold", [0, 1, 3])
def test_no_count_has_seen_what_it_predicts(fold: int, order: int) -> None:
    """Other tokens from some place of a fold to its end: up to that place the rows are the same, bit for bit."""
    ids = text_of(160)
    folded = count_folds(ids, V, order, 4)
    start, end = int(folded.edges[fold]), int(folded.edges[fold + 1])
    for place in (start, end - 7, end - 1):
        changed = ids.copy()
        changed[place:end] = np.random.default_rng(place).integers(0, V, end - place)
        before, after = (
            count_folds(some, V, order, 4).expected(np.arange(start, place + 1)[None]) for some in (ids, changed)
        )
        assert torch.equal(before, after)


def test_the_whole_is_what_fit_counts() -> None:
    ids = text_of(300)
    whole, folded = NGramLM.fit(ids, V, 4), count_folds(ids, V, 4, 5)
    assert whole.tensors().keys() == folded.model.tensors().keys()
    assert all(torch.equal(value, folded.model.tensors()[name]) for name, value in whole.tensors().items())


@pytest.mark.parametrize("dense", [1, 2_000, 1 << 24])
@pytest.mark.parametrize("order", [1, 2, 5, 8])
def test_rows_are_those_of_going_up_order_by_order(order: int, dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after tokens that were never seen together, and whatever is kept as a table."""
    monkeypatch.setattr(ngram_rows, "MOST_DENSE", dense)
    model = NGramLM.fit(TEXT, 256, order)
    tables = RowTables.of(model.levels, 256)
    ids = torch.from_numpy(np.concatenate([TEXT[:300], np.random.default_rng(1).integers(0, 257, 300)]))[None]
    expected, _ = model(ids)
    contexts, _ = model.contexts_after(ids)
    rows = tables.log_rows(contexts, dtype=torch.float64).view_as(expected)
    assert (rows - expected).abs().max() < 3e-6
    assert (rows.exp().sum(-1) - 1).abs().max() < 3e-6
    assert (tables.log_rows(contexts).view_as(expected) - expected).abs().max() < 3e-5


@pytest.mark.parametrize("at_once", [1, 7, 399, 400])
def test_rows_made_some_places_at_a_time_are_the_same(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    folded = count_folds(TEXT, 256, 5, 7)
    places = np.random.default_rng(0).integers(0, len(TEXT), (4, 100))
    whole = folded.expected(places)
    monkeypatch.setattr(ngram_rows, "AT_ONCE", at_once)
    assert torch.equal(folded.expected(places), whole)


def test_every_row_of_every_fold_sums_to_one() -> None:
    folded = count_folds(TEXT, 256, 6, 10)
    rows = folded.expected(np.random.default_rng(0).integers(0, len(TEXT), (4, 100)))
    assert (rows.double().exp().sum(-1) - 1).abs().max() < 1e-5
    assert torch.isfinite(rows).all()


def test_a_place_knows_its_fold_and_what_stands_before_it() -> None:
    ids = text_of(50)
    folded = count_folds(ids, V, 3, 4)
    assert folded.fold_of(np.array([0, 11, 12, 13, 49])).tolist() == [0, 0, 1, 1, 3]
    for order, known in enumerate(folded.contexts):
        met: dict[tuple[int, ...], int] = {}
        for t in range(50):
            if order > t + 1:
                assert known[t] == NOT_SEEN
                continue
            before = tuple([V, *ids[:t].tolist()][t + 1 - order :])
            assert met.setdefault(before, int(known[t])) == known[t]
        assert len(set(met.values())) == len(met)


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(threads: int) -> Any:
        monkeypatch.setattr(folds_module, "THREADS", threads)
        return count_folds(TEXT, 256, 5, 7).expected(np.arange(2_000)[None])

    assert torch.equal(rows(1), rows(4))


def test_counts_that_do_not_fit_name_the_order_that_does() -> None:
    with pytest.raises(DataError, match=r"--order [1-4] would fit"):
        count_folds(TEXT, 256, 8, 10, most_bytes=3_000_000)
    assert isinstance(count_folds(TEXT, 256, 2, 10, most_bytes=10_000_000), Folded)
