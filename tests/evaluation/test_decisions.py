"""What a classifier says of many texts: in their order, however they are read together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from seqlab.core.types import BEGIN, PaddedBatch
from seqlab.data.bags import BagReader, Bags
from seqlab.data.label_batches import input_batch
from seqlab.data.word_ids import IdReader, IdRows
from seqlab.data.words import read_words
from seqlab.evaluation import decisions
from seqlab.evaluation.decisions import logits_of
from seqlab.models.averaging import AveragingClassifier
from seqlab.models.encoder_classifier import GRUClassifier, TransformerClassifier

LEXICON = ["a", "b", "c", "d", "e", "f", "g"]
DRAW = np.random.default_rng(0)
TEXTS = [" ".join(DRAW.choice(LEXICON, size)) for size in DRAW.integers(0, 25, 41)]
ROWS = {"all": None, "some": np.array([7, 3, 3, 40, 0]), "none": np.zeros(0, np.int64)}


def inputs_of(kind: str) -> Bags | IdRows:
    if kind == "average":
        return BagReader(2, 8).read(TEXTS)
    return IdReader(np.sort(read_words([" ".join(LEXICON[:5])]).codes), 20).read(TEXTS)


def model_of(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "average":
        made = AveragingClassifier(3, 256, width=5, depth=1, hidden=4, word_dropout=0.4, dropout=0.4)
        made.count(torch.randint(9, (256, 3)))
        return made.double()
    if kind == "gru":
        return GRUClassifier(3, 5, 6, dropout=0.4).double()
    return TransformerClassifier(3, 5, 8, 1, 2, dropout=0.4).double()


@pytest.mark.parametrize("rows", sorted(ROWS))
@pytest.mark.parametrize("kind", ["average", "gru", "transformer"])
@pytest.mark.parametrize("at_once", [1, 30, 16_384])
def test_many_are_decided_as_one_by_one(kind: str, rows: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "BAGS_AT_ONCE", at_once)
    monkeypatch.setattr(decisions, "WORDS_AT_ONCE", at_once)
    model, inputs, wanted = model_of(kind).eval(), inputs_of(kind), ROWS[rows]
    heard: list[int] = []
    found = logits_of(model, inputs, wanted, progress=heard.append)
    asked = range(len(TEXTS)) if wanted is None else wanted.tolist()
    assert found.shape == (len(asked), 3)
    assert found.dtype == np.float64
    with torch.no_grad():
        for row, z in zip(asked, found, strict=True):
            np.testing.assert_allclose(z, model(input_batch(inputs, np.array([row])))[0], rtol=0, atol=1e-9)
    assert heard == sorted(heard)
    assert heard[-1:] == ([len(asked)] if asked else [])


@pytest.mark.parametrize("kind", ["average", "gru"])
def test_nothing_is_drawn_and_the_mode_comes_back(kind: str) -> None:
    model, inputs = model_of(kind).train(), inputs_of(kind)
    before = torch.get_rng_state()
    first = logits_of(model, inputs)
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(first, logits_of(model.eval(), inputs))
    assert not model.training
    assert all(weight.grad is None for weight in model.parameters())


class Watched:
    """Says of each text how many words it has; remembers the sizes of the batches."""

    classes, training = 1, False

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def eval(self) -> None: ...

    def train(self, mode: bool) -> None: ...

    def __call__(self, inputs: Any) -> torch.Tensor:
        padded = isinstance(inputs, PaddedBatch)
        self.shapes.append(tuple(inputs.ids.shape) if padded else (len(inputs),))
        sizes: torch.Tensor = inputs.lengths if padded else inputs.offsets.diff()
        return sizes[:, None].float()


def test_batches_keep_to_their_limit_and_pad_little(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = np.random.default_rng(1).integers(1, 60, 300)
    sizes[17] = 500  # more than fits
    rows = IdRows(np.full(sizes.sum(), BEGIN), np.concatenate([[0], np.cumsum(sizes)]))
    monkeypatch.setattr(decisions, "WORDS_AT_ONCE", 240)
    watched = Watched()
    assert np.array_equal(logits_of(watched, rows)[:, 0], sizes)
    assert all(texts * words <= 240 or texts == 1 for texts, words in watched.shapes)
    assert sum(texts for texts, _ in watched.shapes) == 300
    assert sum(texts * words for texts, words in watched.shapes) < 1.2 * sizes.sum()
    for (texts, _), (_, words) in zip(watched.shapes, watched.shapes[1:], strict=False):
        assert (texts + 1) * words > 240 or words >= 60  # no batch could have held one more


def test_bags_keep_to_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "BAGS_AT_ONCE", 16)
    watched, inputs = Watched(), inputs_of("average")
    assert np.array_equal(logits_of(watched, inputs)[:, 0], np.diff(inputs.offsets))
    assert watched.shapes == [(16,), (16,), (9,)]
