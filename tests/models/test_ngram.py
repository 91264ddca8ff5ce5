"""Modified Kneser–Ney against a plain dictionary version, and as a distribution."""

import bisect
import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import seqlab.core
from seqlab.core.errors import DataError, UsageError
from seqlab.models.counting import FIXED_DISCOUNTS, discounts_from
from seqlab.models.ngram import NGramLM

V = 5


def markov_ids(length: int, vocab: int = V, seed: int = 0) -> np.ndarray:
    """Text with structure: the next token leans on the last two."""
    draw = np.random.default_rng(seed)
    ids = [0, 1]
    for _ in range(length - 2):
        ids.append(int((ids[-1] * 2 + ids[-2] + draw.integers(0, 2)) % vocab))
    return np.array(ids)


class PlainKneserNey:
    """The same model written out with dictionaries, one n-gram at a time."""

    def __init__(self, ids: list[int], vocab_size: int, order: int) -> None:
        tokens = [vocab_size, *ids]
        self.vocab_size, self.order = vocab_size, order
        grams = {k: Counter(tuple(tokens[i : i + k]) for i in range(len(tokens) - k + 1)) for k in range(1, order + 1)}
        grams = {k: counts for k, counts in grams.items() if counts}
        self.adjusted: dict[int, dict[tuple[int, ...], int]] = {}
        for k, counts in grams.items():
            if k == max(grams):
                self.adjusted[k] = dict(counts)
            else:
                left = Counter(gram[1:] for gram in grams[k + 1])
                self.adjusted[k] = {g: c if g[0] == vocab_size else left[g] for g, c in counts.items()}
        self.adjusted[1].pop((vocab_size,), None)
        self.followers: dict[int, Any] = {}
        for k, adjusted in self.adjusted.items():
            table: Any = defaultdict(dict)
            for gram, count in adjusted.items():
                table[gram[:-1]][gram[-1]] = count
            self.followers[k] = table

    def discount(self, k: int, count: int) -> float:
        return discounts_from(np.array(list(self.adjusted[k].values())))[min(count, 3) - 1]

    def probability(self, token: int, context: tuple[int, ...]) -> float:
        context = context[max(0, len(context) - self.order + 1) :]
        p = 1 / self.vocab_size
        for k in range(1, len(context) + 2):
            following = self.followers.get(k, {}).get(context[len(context) - k + 1 :], {})
            total = sum(following.values())
            if total:
                freed = sum(self.discount(k, c) for c in following.values() if c)
                own = following.get(token, 0)
                p = ((own - self.discount(k, own)) if own else 0) / total + freed / total * p
        return p


@pytest.mark.parametrize("order", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("length", [1, 2, 7, 300])
def test_agrees_with_the_plain_version(order: int, length: int) -> None:
    ids = markov_ids(max(length, 2))[:length]
    held_out = markov_ids(40, seed=1)
    plain = PlainKneserNey(ids.tolist(), V, order)
    nats = NGramLM.fit(ids, V, order).nats_of(held_out)
    tokens = [V, *held_out.tolist()]
    expected = [-math.log(plain.probability(tokens[i], tuple(tokens[:i]))) for i in range(1, len(tokens))]
    assert np.allclose(nats, expected, rtol=0, atol=1e-12)


@given(
    ids=st.lists(st.integers(0, V - 1), min_size=1, max_size=60),
    order=st.integers(1, 8),
    context=st.lists(st.integers(0, V), min_size=1, max_size=9),
)
def test_probabilities_sum_to_one_at_every_context(ids: list[int], order: int, context: list[int]) -> None:
    lm = NGramLM.fit(np.array(ids), V, order)
    logits, _ = lm(torch.tensor([context]))
    p = logits.exp()
    assert (p > 0).all()
    assert torch.allclose(p.sum(-1), torch.ones(1, len(context), dtype=p.dtype), rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [2, 5, 8])
def test_every_context_of_a_real_text_sums_to_one(order: int) -> None:
    ids = np.frombuffer((__doc__ or "").encode() + b" abracadabra" * 5, np.uint8).astype(np.int64)
    lm = NGramLM.fit(ids, 256, order)
    p = lm(torch.from_numpy(np.concatenate([[256], ids]))[None])[0].exp()
    assert (p.sum(-1) - 1).abs().max() < 1e-12


@pytest.mark.parametrize("order", [1, 2, 4, 8])
def test_logits_and_scores_agree_whole_and_in_pieces(order: int) -> None:
    lm = NGramLM.fit(markov_ids(200), V, order)
    text = markov_ids(30, seed=3)
    inputs = torch.from_numpy(np.concatenate([[V], text[:-1]]))[None]
    whole, _ = lm(inputs)
    assert np.allclose(-whole[0].numpy()[np.arange(30), text], lm.nats_of(text), rtol=0, atol=1e-12)
    state, parts = None, []
    for a, b in ((0, 1), (1, 2), (2, 9), (9, 30)):
        logits, state = lm(inputs[:, a:b], state)
        parts.append(logits)
    assert torch.allclose(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)


def test_rows_of_a_batch_and_reordered_state() -> None:
    lm = NGramLM.fit(markov_ids(200), V, 3)
    ids = torch.randint(0, V + 1, (3, 6), generator=torch.Generator().manual_seed(0))
    order = torch.tensor([2, 2, 0])
    logits, state = lm(ids)
    assert torch.equal(lm(ids[order])[0], logits[order])
    more = torch.randint(0, V, (3, 4), generator=torch.Generator().manual_seed(1))
    continued, _ = lm(more, seqlab.core.reorder(state, order))
    assert torch.equal(continued, lm(torch.cat([ids[order], more], 1))[0][:, 6:])


def test_saving_and_loading_gives_the_same_probabilities() -> None:
    lm = NGramLM.fit(markov_ids(200), V, 4)
    loaded = NGramLM.from_tensors(V, 4, lm.tensors(), "here")
    text = markov_ids(50, seed=2)
    assert np.array_equal(lm.nats_of(text), loaded.nats_of(text))


def test_the_slow_way_of_sorting_counts_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where key and place do not fit into one number, the sort is indirect."""
    ids = markov_ids(100).astype(np.int64)
    huge = 1 << 60
    shifted, direct = NGramLM.fit(ids + huge, huge + V, 1), NGramLM.fit(ids, V, 1)
    assert np.array_equal(shifted.levels[0].counts, direct.levels[0].counts)


def test_discounts_follow_the_counts_of_counts_or_are_the_stated_ones() -> None:
    counts = np.repeat([1, 2, 3, 4, 9], [40, 20, 10, 5, 3])
    y = 40 / 80
    assert discounts_from(counts) == pytest.approx((1 - 2 * y * 20 / 40, 2 - 3 * y * 10 / 20, 3 - 4 * y * 5 / 10))
    assert discounts_from(np.array([1, 1, 2, 5])) == FIXED_DISCOUNTS
    # n_3 is so large that D(2) would be negative
    assert discounts_from(np.repeat([1, 2, 3, 4], [10, 1, 90, 1])) == FIXED_DISCOUNTS


def test_a_known_markov_source_is_learnt() -> None:
    """Model minus true source on the same text is below 0.01 bits per character, at the source's own order."""
    law = np.random.default_rng(0).dirichlet(np.full(8, 0.5), size=(8, 8))  # p(c | two before)
    text = drawn_from(law, 300_000, seed=1)
    train, held_out = text[:250_000], text[250_000:]
    truth = -np.log2(law[held_out[:-2], held_out[1:-1], held_out[2:]]).mean()
    found = NGramLM.fit(train, 8, 3).nats_of(held_out)[2:].mean() / math.log(2)
    assert -0.005 < found - truth < 0.01


def drawn_from(law: np.ndarray, length: int, seed: int) -> np.ndarray:
    sums = np.cumsum(law, axis=-1).tolist()
    ids = [0, 0]
    for u in np.random.default_rng(seed).random(length):
        ids.append(min(bisect.bisect(sums[ids[-2]][ids[-1]], u), law.shape[-1] - 1))
    return np.array(ids)


def test_wrong_orders_and_empty_texts_are_named() -> None:
    for order in (0, 9):
        with pytest.raises(UsageError, match=f"--order {order} is out of range"):
            NGramLM.fit(markov_ids(10), V, order)
    with pytest.raises(DataError, match="this one has 0"):
        NGramLM.fit(np.zeros(0, np.int64), V, 2)


def test_a_discount_of_zero_would_leave_unseen_tokens_nothing() -> None:
    assert discounts_from(np.array([1] * 6 + [2] * 3 + [3] * 4 + [4] * 6)) == FIXED_DISCOUNTS
    for seed in range(300):
        draw = np.random.default_rng(seed)
        ids = draw.choice(6, size=int(draw.integers(20, 120)), p=draw.dirichlet(np.full(6, 0.5)))
        lm = NGramLM.fit(ids, 6, 2)
        assert torch.isfinite(lm(torch.arange(7)[None])[0]).all()
