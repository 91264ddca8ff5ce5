"""The neural bigram: hand-derived gradients, counted pairs, vectors."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.conftest import nonsense

import seqlab
from seqlab.core.errors import DataError, UsageError
from seqlab.core.reporting import Reporter
from seqlab.core.types import PairCounts
from seqlab.data.batching import PairBatches, count_pairs
from seqlab.models.bigram import BigramLM
from seqlab.ops import pairs as module
from seqlab.ops.reference.gradients import sigmoid_network_gradients
from seqlab.training.loop import Plan, Position, training_step
from seqlab.training.objectives import counted_pairs
from seqlab.training.optim import build_optimiser
from seqlab.training.schedules import Schedule

V = 30


def ids_of(length: int, vocab: int = V, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).zipf(1.4, length) % vocab


def text_nats(lm: Any, ids: np.ndarray) -> torch.Tensor:
    """The same loss through autograd, one pair at a time."""
    inputs = torch.from_numpy(np.concatenate([[lm.vocab_size], ids[:-1]]))[None]
    return F.cross_entropy(lm(inputs)[0][0], torch.from_numpy(ids), reduction="sum")


@pytest.mark.parametrize("rows", [1, 7, 256])
@pytest.mark.parametrize(("length", "vocab"), [(1, 5), (2, 5), (50, 5), (400, 30), (3000, 300)])
def test_value_and_gradient_equal_autograd(rows: int, length: int, vocab: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", rows)  # the blocks of contexts change nothing
    lm = BigramLM(vocab, width=6, vector_width=4).double()
    ids = ids_of(length, vocab)
    nats = lm.nats_of_pairs(PairBatches(ids, vocab, vocab, None, 0)(0))
    nats.backward()
    mine = {name: p.grad.clone() for name, p in lm.named_parameters()}
    lm.zero_grad()
    expected = text_nats(lm, ids)
    expected.backward()
    assert nats.item() == pytest.approx(expected.item(), rel=1e-12)
    for name, p in lm.named_parameters():
        assert torch.allclose(mine[name], p.grad, rtol=0, atol=1e-10 * max(1, length)), name


def test_gradient_equals_the_plain_reference_pair_by_pair() -> None:
    lm = BigramLM(V, width=6, vector_width=4).double()
    ids = ids_of(40)
    lm.nats_of_pairs(PairBatches(ids, V, V, None, 0)(0)).backward()
    first = np.concatenate([[V], ids[:-1]])
    x = lm.embedding.weight.detach()[torch.from_numpy(first)]
    weights = (lm.hidden.weight.T, lm.hidden.bias, lm.output.weight.T, lm.output.bias)
    found = sigmoid_network_gradients(x, *(w.detach() for w in weights), torch.from_numpy(ids))
    rows = torch.zeros_like(lm.embedding.weight).index_add_(0, torch.from_numpy(first), found[0])
    mine = (lm.embedding.weight, lm.hidden.weight, lm.hidden.bias, lm.output.weight, lm.output.bias)
    for parameter, plain in zip(mine, (rows, found[1].T, found[2], found[3].T, found[4]), strict=True):
        assert torch.allclose(parameter.grad, plain, rtol=0, atol=1e-10)


def test_a_hundred_steps_of_sgd_by_hand_and_by_autograd_give_the_same_weights() -> None:
    by_hand = BigramLM(V, width=6, vector_width=4).double()
    by_autograd = copy.deepcopy(by_hand)
    batches = PairBatches(ids_of(2000), V, V, 64, seed=3)
    plan = Plan(Schedule(0.5, 100, 0.0, "constant", 1.0), 100, 1000, 1000, 0, clip=1e9)
    optimiser, position = build_optimiser(by_hand, 0.5, 0.0, kind="sgd"), Position()
    for step in range(100):
        batch = batches(step)
        training_step(by_hand, counted_pairs, optimiser, batch, plan, position, rate=0.5)
        context = torch.repeat_interleave(batch.contexts[batch.rows], batch.counts)
        target = torch.repeat_interleave(batch.columns, batch.counts)
        loss = F.cross_entropy(by_autograd(context[None])[0][0], target)
        by_autograd.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in by_autograd.parameters():
                p -= 0.5 * p.grad
    for (name, a), b in zip(by_hand.named_parameters(), by_autograd.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-10), name
    assert not torch.allclose(a, BigramLM(V, width=6, vector_width=4).double().output.bias)


def as_counts(batch: PairCounts) -> dict[tuple[int, int], int]:
    triples = zip(batch.contexts[batch.rows].tolist(), batch.columns.tolist(), batch.counts.tolist(), strict=True)
    return {(first, second): count for first, second, count in triples}


def test_pairs_are_counted_with_the_begin_id_in_front() -> None:
    batch = PairBatches(np.array([1, 2, 1, 2, 0]), 9, 3, None, 0)(7)
    seen = as_counts(batch)
    assert seen == {(9, 1): 1, (1, 2): 2, (2, 1): 1, (2, 0): 1}
    assert batch.count == 5
    with pytest.raises(DataError, match="no tokens"):
        PairBatches(np.zeros(0, int), 9, 3, None, 0)


def test_drawn_pairs_are_those_of_the_text_once_an_epoch() -> None:
    ids = ids_of(130)
    batches = PairBatches(ids, V, V, 32, seed=1)
    assert batches.steps_per_epoch == 4
    drawn: dict[tuple[int, int], int] = {}
    for step in range(4):
        b = batches(step)
        assert b.count == 32
        for pair, n in as_counts(b).items():
            drawn[pair] = drawn.get(pair, 0) + n
    whole = count_pairs(np.concatenate([[V], ids[:-1]]) * V + ids, V)
    every = as_counts(whole)
    assert sum(drawn.values()) == 128
    assert all(n <= every[pair] for pair, n in drawn.items())
    again = PairBatches(ids, V, V, 32, seed=1)(2)
    assert torch.equal(again.rows, batches(2).rows)


# --------------------------------------------------------------------------- with vectors, from the command's side


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(nonsense(3000), encoding="utf-8", newline="")
    return path


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.txt"
    draw = np.random.default_rng(0)
    words = ["the", "of", "and", "café", "unheard", "was"]
    path.write_text("".join(f"{w} {' '.join(f'{x:.4f}' for x in draw.normal(0, 1, 7))}\n" for w in words), "utf-8")
    return path


TINY: dict[str, Any] = dict(model="bigram", width=8, budget="30steps", eval_every=10, threads=1)


def test_vectors_are_where_the_model_starts_and_what_they_cover_is_told(
    text: Path, vectors: Path, tmp_path: Path
) -> None:
    notes: list[str] = []
    reporter = Reporter()
    reporter.note = notes.append  # type: ignore[method-assign]
    fixed = seqlab.train_lm(
        text, out=tmp_path / "fixed", vectors=str(vectors), train_vectors=False, reporter=reporter, **TINY
    )
    assert any("words have a vector" in note and "stay as they are" in note for note in notes)
    words = fixed.tokenizer.words
    rows = {line.split()[0]: [float(x) for x in line.split()[1:]] for line in vectors.read_text("utf-8").splitlines()}
    weight = fixed.model.embedding.weight
    assert weight.shape[1] == 7
    for word in ("the", "was", "café"):
        assert weight[1 + words.index(word)].tolist() == pytest.approx(rows[word], abs=1e-6)
    trained = seqlab.train_lm(text, out=tmp_path / "trained", vectors=str(vectors), **TINY)
    moved = trained.model.embedding.weight[1 + words.index("the")].tolist()
    assert moved != pytest.approx(rows["the"], abs=1e-6)
    assert trained.final["validation"]["nats"] < fixed.final["validation"]["nats"]  # type: ignore[index]
    vectors.unlink()
    assert seqlab.load(tmp_path / "fixed").score("the of").total > 0  # the run needs the file no more


def test_ids_without_a_vector_start_at_the_spread_of_those_that_have_one() -> None:
    lm = BigramLM(V, width=6, vector_width=40)
    known = torch.zeros(V, dtype=torch.bool)
    known[: V // 2] = True
    before = lm.embedding.weight[V // 2 :].clone()
    lm.set_vectors(torch.randn(V, 40, generator=torch.Generator().manual_seed(0)) * 3, known)
    assert torch.allclose(lm.embedding.weight[V // 2 :], before * (lm.embedding.weight[: V // 2].std() / 0.4))
    assert 2.5 < lm.embedding.weight[V // 2 :].std() < 3.5


def test_vectors_of_which_no_word_is_known_change_nothing() -> None:
    lm = BigramLM(V, width=6, vector_width=40)
    before = lm.embedding.weight.clone()
    lm.set_vectors(torch.full((V, 40), 7.0), torch.zeros(V, dtype=torch.bool))
    assert torch.equal(lm.embedding.weight, before)


def test_wrong_vectors_are_one_line(text: Path, vectors: Path, tmp_path: Path) -> None:
    with pytest.raises((UsageError, DataError), match="7"):
        seqlab.train_lm(text, out=tmp_path / "run", vectors=str(vectors), vector_width=50, **TINY)
    with pytest.raises(UsageError, match="--tokenizer word"):
        seqlab.train_lm(text, out=tmp_path / "run", vectors=str(vectors), tokenizer="char", **TINY)
    with pytest.raises(UsageError, match="has no setting 'vectors'"):
        seqlab.train_lm(text, out=tmp_path / "run", model="gru", vectors=str(vectors), budget="1steps")
    vectors.write_bytes(vectors.read_bytes()[:-20])
    with pytest.raises(DataError, match="last line, 6, has 5 of 7 values"):
        seqlab.train_lm(text, out=tmp_path / "run", vectors=str(vectors), **TINY)
    assert not (tmp_path / "run").exists()


def test_a_vocabulary_larger_than_the_text_has_is_told(text: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    reporter = Reporter()
    reporter.note = notes.append  # type: ignore[method-assign]
    run = seqlab.train_lm(text, out=tmp_path / "run", vocab_size=90_000, reporter=reporter, **TINY)
    assert any("90,000 is more than the training text has" in note for note in notes)
    assert run.tokenizer.vocab_size < 200
    with pytest.raises(UsageError, match="--vocab-size 0 is too small"):
        seqlab.train_lm(text, out=tmp_path / "other", vocab_size=0, **TINY)


def test_the_exact_gradient_and_drawn_pairs_both_learn(text: Path, tmp_path: Path) -> None:
    for name, settings in (
        ("full", {}),
        ("drawn", dict(full_gradient=False, batch=16, context=8)),
        ("sgd", dict(optimiser="sgd", learning_rate=2.0)),
    ):
        run = seqlab.train_lm(text, out=tmp_path / name, **(TINY | settings))
        lines = [line["validation_nats_per_token"] for line in run.metrics if "validation_nats_per_token" in line]
        assert lines[-1] < lines[0] < np.log(run.tokenizer.vocab_size) + 0.2, name
