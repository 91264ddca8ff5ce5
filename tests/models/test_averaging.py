"""The averaging network against a plain loop over its equations, and what naive Bayes says without the text itself."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from seqlab.core.errors import UsageError
from seqlab.core.types import BagBatch
from seqlab.data.bags import BagReader, Bags, texts_with_feature
from seqlab.data.label_batches import input_batch
from seqlab.models.averaging import POWERS, AveragingClassifier, kept_at_random

F, TEXTS, VECTORED = 11, 9, 7
DRAW = np.random.default_rng(0)
ROWS = [np.flatnonzero(DRAW.random(F) < rate) for rate in (0.5, 0.0, 0.9, 0.2, 0.6, 0.4, 0.8, 0.1, 0.5)]
ROWS[7] = np.array([3])
TRUTH = {2: np.array([0, 1, 1, 0, 1, 0, 1, 1, 0]), 3: np.array([0, 1, 2, 0, 1, 2, 0, 1, 1])}


def bags(rows: Any = None) -> Bags:
    rows = ROWS if rows is None else rows
    sizes = np.array([len(row) for row in rows], np.int64)
    features = np.concatenate([np.zeros(0, np.int32), *rows]).astype(np.int32)
    return Bags(features, np.ones(len(features), np.uint16), np.concatenate([[0], np.cumsum(sizes)]))


def batch(rows: Any = None) -> BagBatch:
    made = bags(rows)
    found = input_batch(made, np.arange(len(made)))
    assert isinstance(found, BagBatch)
    return found


def counted(classes: int, left_out: int | None = None) -> np.ndarray[Any, Any]:
    """c_fk by a loop, with one text left out or none."""
    counts = np.zeros((F, classes))
    for row, (features, k) in enumerate(zip(ROWS, TRUTH[classes], strict=True)):
        if row != left_out:
            counts[features, k] += 1
    return counts


def model(classes: int, *, jitter: bool = True, **options: Any) -> AveragingClassifier:
    torch.manual_seed(1)
    made = AveragingClassifier(classes, F, **options).double()
    if made.weights is not None:
        made.count(torch.from_numpy(counted(classes)))
    if jitter:
        with torch.no_grad():
            for weight in made.parameters():
                weight.add_(0.3 * torch.randn_like(weight))
    return made


def ratio(counts: np.ndarray[Any, Any], f: int, k: int, alpha: float) -> float:
    """r_fk = ln (c_fk + α)/(C_k + αF) − ln (c_f¬k + α)/(C_¬k + αF)"""
    others = [j for j in range(counts.shape[1]) if j != k]
    own = (counts[f, k] + alpha) / (counts[:, k].sum() + alpha * F)
    rest = (sum(counts[f, j] for j in others) + alpha) / (sum(counts[:, j].sum() for j in others) + alpha * F)
    return math.log(own) - math.log(rest)


def plain(made: AveragingClassifier, own: bool, power: float, alpha: float, scale: float) -> Tensor:
    """z = b + s n^{−p} Σ w_f ∘ r_f + W layers(n_e^{−p} Σ e_f), text by text and feature by feature."""
    classes = made.classes
    columns = [1] if classes == 2 else list(range(classes))
    rows = []
    for text, features in enumerate(ROWS):
        z = made.bias
        if made.weights is not None:
            counts = counted(classes, text if own else None)
            for f in features.tolist():
                r = torch.tensor([ratio(counts, f, k, alpha) for k in columns], dtype=torch.float64)
                z = z + scale * len(features) ** -power * made.weights.weight[f] * r
        if made.vectors is not None:
            known = [f for f in features.tolist() if f < len(made.vectors.weight)]
            mean = sum((made.vectors.weight[f] for f in known), torch.zeros(made.vectors.weight.shape[1]).double())
            hidden = mean * max(1, len(known)) ** -power
            for layer in made.layers:
                if isinstance(layer, torch.nn.Linear):
                    hidden = (layer.weight @ hidden + layer.bias).clamp(min=0)
            z = z + made.output.weight @ hidden + made.output.bias
        rows.append(torch.cat([torch.zeros(1).double(), z]) if classes == 2 else z)
    return torch.stack(rows)


PARTS = {
    "bayes": dict(bayes=True),
    "vectors": dict(bayes=False, width=4),
    "some-vectors": dict(bayes=False, width=4, vectored=VECTORED, hidden=5, depth=2),
    "both": dict(bayes=True, width=4, vectored=VECTORED, hidden=5, depth=1),
}


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("pooling", sorted(POWERS))
@pytest.mark.parametrize("parts", sorted(PARTS))
@pytest.mark.parametrize("classes", [2, 3])
def test_values_and_gradients_are_those_of_the_equations(classes: int, parts: str, pooling: str, own: bool) -> None:
    power = {"mean": 1.0, "root": 0.5, "sum": 0.0}[pooling]
    made = model(classes, alpha=0.7, scale=0.25, pooling=pooling, **PARTS[parts])
    truth = torch.from_numpy(TRUTH[classes])
    found = []
    for z in (made(batch(), truth if own else None), plain(made, own, power, 0.7, 0.25)):
        made.zero_grad()
        torch.nn.functional.cross_entropy(z, truth, reduction="sum").backward()
        found.append((z.detach(), *(weight.grad.clone() for weight in made.parameters())))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_text_left_out_is_as_if_the_others_alone_had_been_counted(classes: int) -> None:
    made, again, truth = model(classes), model(classes), torch.from_numpy(TRUTH[classes])
    z = made(batch(), truth)
    for row in range(TEXTS):
        others = np.delete(np.arange(TEXTS), row)
        again.count(torch.from_numpy(texts_with_feature(bags(), others, TRUTH[classes], F, classes)))
        torch.testing.assert_close(again(batch([ROWS[row]])), z[row : row + 1], rtol=0, atol=1e-12)
    assert not torch.allclose(z, made(batch()))


@pytest.mark.parametrize("classes", [2, 3])
def test_words_that_are_dropped_were_counted_all_the_same(classes: int) -> None:
    """What is taken out is the whole text, also where part of it is not read."""
    made, truth = model(classes), torch.from_numpy(TRUTH[classes])
    whole = batch()
    left = torch.arange(len(whole.features)) % 2 == 0
    some = made.ratios_without(whole, truth, whole.features[left], whole.rows[left])
    assert torch.equal(some, made.ratios_without(whole, truth, whole.features, whole.rows)[left])


@pytest.mark.parametrize("classes", [2, 3])
def test_training_starts_from_naive_bayes(classes: int) -> None:
    """Scikit-learn's MultinomialNB on presence, for each class against the others, with a level prior."""
    from sklearn.naive_bayes import MultinomialNB

    made = model(classes, jitter=False, pooling="sum", alpha=0.5)
    seen = np.zeros((TEXTS, F))
    for row, features in enumerate(ROWS):
        seen[row, features] = 1
    z = made(batch()).detach().numpy()
    for k in [1] if classes == 2 else range(classes):
        fitted = MultinomialNB(alpha=0.5, fit_prior=False).fit(seen, TRUTH[classes] == k)
        odds = fitted.predict_log_proba(seen)
        np.testing.assert_allclose(z[:, k], odds[:, 1] - odds[:, 0], atol=1e-10)
    if classes == 2:
        assert not z[:, 0].any()


def test_ratios_of_many_features_in_single_precision() -> None:
    draw = np.random.default_rng(3)
    counts = draw.integers(0, 40_000, (5000, 3))
    made = AveragingClassifier(3, 5000)
    made.count(torch.from_numpy(counts))
    exact = np.log((counts + 1) / (counts.sum(1, keepdims=True) - counts + 1))
    totals = counts.sum(0)
    exact -= np.log((totals + 5000) / (totals.sum() - totals + 5000))
    np.testing.assert_allclose(made.ratios(torch.arange(5000)).numpy(), exact, atol=2e-6)


@pytest.mark.parametrize("parts", sorted(PARTS))
@pytest.mark.parametrize("classes", [2, 3])
def test_a_text_without_known_features_gives_the_bias(classes: int, parts: str) -> None:
    made = model(classes, **(PARTS[parts] | dict(depth=0)))
    z = made(batch([[], [0, 3], []]), torch.zeros(3, dtype=torch.int64))
    bias = made.bias if made.vectors is None else made.bias + made.output.bias
    expected = torch.cat([torch.zeros(1).double(), bias]) if classes == 2 else bias
    torch.testing.assert_close(z[0], expected, rtol=0, atol=0)
    torch.testing.assert_close(z[2], expected, rtol=0, atol=0)
    z.sum().backward()
    assert all(bool(weight.grad.isfinite().all()) for weight in made.parameters())


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("pooling", sorted(POWERS))
@pytest.mark.parametrize("classes", [2, 3])
def test_neighbours_never_matter(classes: int, pooling: str, own: bool) -> None:
    made, truth = model(classes, pooling=pooling, **PARTS["both"]).eval(), torch.from_numpy(TRUTH[classes])
    together = made(batch(), truth if own else None)
    for row, features in enumerate(ROWS):
        alone = made(batch([features]), truth[row : row + 1] if own else None)
        torch.testing.assert_close(alone, together[row : row + 1], rtol=0, atol=1e-12)
    order = np.random.default_rng(4).permutation(TEXTS)
    shuffled = made(batch([ROWS[row] for row in order]), truth[order] if own else None)
    torch.testing.assert_close(shuffled, together[order], rtol=0, atol=1e-12)


def read(text: str, order: int) -> tuple[list[int], list[int]]:
    found = BagReader(order, 16).read([text])
    return found.features.tolist(), found.counts.tolist()


def test_the_order_of_words_cannot_matter_beyond_their_ngrams() -> None:
    words = ["a", "very", "very", "good", "film"]
    bags_of_one = {str(read(" ".join(order), 1)) for order in itertools.permutations(words)}
    assert len(bags_of_one) == 1
    # Two walks through the same pairs of words, in another order.
    one, two = "x a y x b y x", "x b y x a y x"
    assert read(one, 2) == read(two, 2)
    assert read(one, 3) != read(two, 3)
    assert read("good not bad", 2) != read("bad not good", 2)


def test_word_dropout_keeps_something_of_every_text() -> None:
    rows = torch.repeat_interleave(torch.arange(400), torch.arange(400) % 5)
    torch.manual_seed(0)
    for rate in (0.5, 0.99):
        left = kept_at_random(rows, 400, rate)
        seen = torch.bincount(rows[left], minlength=400)
        assert torch.equal(seen > 0, torch.arange(400) % 5 > 0)
    many = torch.zeros(20_000, dtype=torch.int64)
    assert abs(kept_at_random(many, 1, 0.3).double().mean() - 0.7) < 0.02
    assert bool(kept_at_random(many, 1, 0.0).all())


@pytest.mark.parametrize("pooling", sorted(POWERS))
def test_word_dropout_divides_by_what_is_left(pooling: str) -> None:
    made = model(3, pooling=pooling, word_dropout=0.6, **PARTS["both"])
    whole, truth = batch(), torch.from_numpy(TRUTH[3])
    torch.manual_seed(5)
    left = kept_at_random(whole.rows, TEXTS, 0.6)
    torch.manual_seed(5)
    dropped = made.train()(whole)
    rows = [whole.features[left & (whole.rows == row)].tolist() for row in range(TEXTS)]
    assert 0 < sum(map(len, rows)) < len(whole.features)
    torch.testing.assert_close(dropped, made.eval()(batch(rows)), rtol=0, atol=1e-12)
    assert not torch.allclose(dropped, made(whole))
    assert torch.equal(made(whole, truth), made(whole, truth)), "nothing is dropped in evaluation"


@pytest.mark.parametrize("classes", [2, 3])
def test_saved_and_loaded(classes: int, tmp_path: Path) -> None:
    made = model(classes, scale=0.3, **PARTS["both"])
    made.kept.copy_(torch.arange(F) * 3)
    save_file(made.state_dict(), tmp_path / "model.safetensors")
    fresh = AveragingClassifier(classes, F, **PARTS["both"]).double()
    fresh.load_state_dict(load_file(tmp_path / "model.safetensors"))
    truth = torch.from_numpy(TRUTH[classes])
    for own in (None, truth):
        assert torch.equal(fresh(batch(), own), made(batch(), own))
    assert torch.equal(fresh.kept, made.kept)


def test_neither_sum_is_refused() -> None:
    with pytest.raises(UsageError, match="give --bayes or a --width above 0"):
        AveragingClassifier(2, F, bayes=False, width=0)


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("classes", [2, 3])
def test_with_vectors_training_starts_as_naive_bayes_all_the_same(classes: int, depth: int) -> None:
    alone = model(classes, jitter=False)
    beside = model(classes, jitter=False, width=5, depth=depth)
    assert torch.equal(beside(batch()), alone(batch()))
    beside(batch()).square().sum().backward()
    assert beside.output.weight.grad is not None
    assert bool(beside.output.weight.grad.any())
    without = model(classes, jitter=False, width=5, depth=depth, bayes=False)
    assert without(batch()).abs().max() > 0, "without naive Bayes it starts from random vectors"
