"""Classifiers that read word by word: padding and neighbours never matter, and torch.nn says the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.core.registry import ATTENTIONS, CLASSIFIERS, look_up
from seqlab.core.settings.classify import ENCODERS, POOLINGS_OF, RECURRENT
from seqlab.core.types import BEGIN, RESERVED, PaddedBatch
from seqlab.data.word_ids import IdReader
from seqlab.data.words import read_words
from seqlab.layers import LSTM
from seqlab.models.encoder_classifier import EncoderClassifier, GRUClassifier, LSTMClassifier

WORDS, WIDTH, CLASSES = 9, 8, 3
LENGTHS = torch.tensor([5, 1, 7, 3, 1, 6])
ALL_KINDS = (*ENCODERS, "transformer separable", "transformer random_features")  # softmax is what it has unless told
CASES = [
    (kind, pooling, directions)
    for kind in ALL_KINDS
    for pooling in POOLINGS_OF[kind.split()[0]]
    for directions in ((1, 2) if kind in RECURRENT else (1,))
]


def build(kind: str, pooling: str, directions: int = 1, depth: int = 2, **options: Any) -> EncoderClassifier:
    kind, _, attention = kind.partition(" ")
    sizes: dict[str, Any] = dict(heads=2) if kind == "transformer" else dict(bidirectional=directions == 2)
    sizes |= {"attention": attention} if attention else {}
    torch.manual_seed(1)
    made: EncoderClassifier = look_up(CLASSIFIERS, kind, "model")(
        CLASSES, WORDS, WIDTH, depth, pooling=pooling, **(sizes | options)
    )
    with torch.no_grad():  # so that nothing is hidden by a small start
        for weight in made.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return made.double().eval()


def ids(seed: int = 0, columns: int = 7) -> Tensor:
    drawn = torch.randint(WORDS + RESERVED, (len(LENGTHS), columns), generator=torch.Generator().manual_seed(seed))
    drawn[:, 0] = BEGIN
    return drawn


def close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(a.isfinite().all()) and torch.allclose(a, b, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("kind", "pooling", "directions"), CASES)
def test_padding_and_neighbours_never_change_a_prediction(kind: str, pooling: str, directions: int) -> None:
    made, text = build(kind, pooling, directions), ids()
    together = made(PaddedBatch(text, LENGTHS))
    assert together.shape == (len(LENGTHS), CLASSES)
    real = torch.arange(7) < LENGTHS[:, None]
    assert close(made(PaddedBatch(torch.where(real, text, ids(1)), LENGTHS)), together)
    assert close(made(PaddedBatch(torch.cat([text, ids(2)], 1), LENGTHS)), together)
    order = torch.tensor([3, 1, 5, 4, 0, 2])
    assert close(made(PaddedBatch(text[order], LENGTHS[order])), together[order])
    for row, length in enumerate(LENGTHS.tolist()):
        alone = made(PaddedBatch(text[row : row + 1, :length], LENGTHS[row : row + 1]))
        assert close(alone, together[row : row + 1])


@pytest.mark.parametrize(("kind", "pooling", "directions"), CASES)
def test_every_word_counts(kind: str, pooling: str, directions: int) -> None:
    """Another word anywhere in a text changes its logits and no other's."""
    made, text = build(kind, pooling, directions), ids()
    together = made(PaddedBatch(text, LENGTHS))
    for place in (1, 3, 6):
        other = text.clone()
        other[2, place] = RESERVED + (other[2, place] - RESERVED + 1) % WORDS
        changed = made(PaddedBatch(other, LENGTHS))
        assert not torch.allclose(changed[2], together[2], rtol=0, atol=1e-9)
        assert close(changed[[0, 1, 3, 4, 5]], together[[0, 1, 3, 4, 5]])


@pytest.mark.parametrize(("kind", "pooling", "directions"), CASES)
def test_the_order_of_the_words_counts(kind: str, pooling: str, directions: int) -> None:
    made, lengths = build(kind, pooling, directions), torch.tensor([4])
    one, two = (made(PaddedBatch(torch.tensor([[BEGIN, *words]]), lengths)) for words in ((4, 7, 9), (9, 7, 4)))
    assert not torch.allclose(one, two, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("kind", "pooling", "directions"), CASES)
def test_gradients_are_finite_and_padding_has_none(kind: str, pooling: str, directions: int) -> None:
    made, text = build(kind, pooling, directions), ids()
    unused = int(text.max())
    text = text.masked_fill(text == unused, BEGIN)
    text = text.masked_fill(torch.arange(7) >= LENGTHS[:, None], unused)  # padded with a word that no text has
    for rows in (slice(None), slice(1, 2)):  # all of them, and one of length 1
        made.zero_grad()
        made(PaddedBatch(text[rows], LENGTHS[rows])).square().sum().backward()
        assert all(weight.grad is None or bool(weight.grad.isfinite().all()) for weight in made.parameters())
        assert made.embedding.weight.grad is not None
        assert not made.embedding.weight.grad[unused].any()
        assert made.embedding.weight.grad[BEGIN].any()


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_an_empty_text_is_readable(kind: str) -> None:
    made = build(kind, POOLINGS_OF[kind.split()[0]][0])
    read = IdReader(read_words(["word"]).codes, 4).read(["", "word", "  "])
    logits = made(read.batch(torch.arange(3).numpy()))
    assert bool(logits.isfinite().all())
    assert close(logits[0], logits[2])
    assert not torch.allclose(logits[0], logits[1])
    assert close(made(read.batch(torch.arange(1).numpy())), logits[:1])


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("depth", [1, 2])
def test_an_lstm_with_last_pooling_is_torchs(depth: int, directions: int) -> None:
    """Packed by torch.nn.LSTM, of which the last hidden vectors are read."""
    made = build("lstm", "last", directions, depth)
    theirs = nn.LSTM(WIDTH, WIDTH, depth, batch_first=True, bidirectional=directions == 2).double()
    made.encoder.recurrent = LSTM.from_torch(theirs)
    text = ids()
    x = made.embedding.weight[text]
    packed = nn.utils.rnn.pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    _, (h, _) = theirs(packed)
    last = torch.cat(list(h[-directions:]), -1)
    expected = last @ made.output.weight.T + made.output.bias
    assert close(made(PaddedBatch(text, LENGTHS)), expected)
    again, _ = made.encoder.recurrent.to_torch()(x[2:3])
    assert close(again[:, -1, :WIDTH], h[-directions, 2:3])


def test_mean_pooling_is_the_mean_over_the_text_alone() -> None:
    made, text = build("gru", "mean", 2), ids()
    y = made.encoder(made.embedding(text), LENGTHS)
    means = torch.stack([y[row, :length].mean(0) for row, length in enumerate(LENGTHS.tolist())])
    assert close(made(PaddedBatch(text, LENGTHS)), made.output(means))


def test_widths_dropout_and_the_classes_of_the_texts() -> None:
    made = build("lstm", "attention", 2, vector_width=5, dropout=0.5)
    assert isinstance(made, LSTMClassifier)
    assert made.embedding.weight.shape == (WORDS + RESERVED, 5)
    inputs = PaddedBatch(ids(), LENGTHS)
    assert torch.equal(made(inputs, torch.zeros(6, dtype=torch.int64)), made(inputs))
    assert torch.equal(made(inputs), made.decide(made.embedding(inputs.ids), inputs.lengths))
    made.train()
    assert not torch.equal(made(inputs), made(inputs))
    assert "vocabulary" in made.state_dict()


def test_reading_backwards_matters() -> None:
    """The backward half of a last vector has read the text from its end: it stands at its beginning."""
    made, text = build("gru", "last", 2, depth=1), ids()
    assert isinstance(made, GRUClassifier)
    y = made.encoder(made.embedding(text), LENGTHS)
    ends = torch.stack([y[row, length - 1, :WIDTH] for row, length in enumerate(LENGTHS.tolist())])
    expected = made.output(torch.cat([ends, y[:, 0, WIDTH:]], -1))
    assert close(made(PaddedBatch(text, LENGTHS)), expected)


def test_the_kinds_of_attention_are_those_of_the_layer() -> None:
    """Another kind is another function of the same weights; the number of random features is what was said."""
    inputs = PaddedBatch(ids(), LENGTHS)
    made = {attention: build(f"transformer {attention}", "mean") for attention in ATTENTIONS}
    assert torch.equal(made["softmax"](inputs), build("transformer", "mean")(inputs))
    for attention in ("separable", "random_features"):
        assert not torch.allclose(made[attention](inputs), made["softmax"](inputs), rtol=0, atol=1e-6)
        assert {block.attention.kind for block in made[attention].encoder.blocks} == {attention}
    head = WIDTH // 2
    assert made["random_features"].encoder.blocks[0].attention.directions.shape == (4 * head, head)
    few = build("transformer random_features", "mean", features=5)
    assert few.encoder.blocks[1].attention.directions.shape == (5, head)
    with pytest.raises(UsageError, match="features=5 is a choice for attention 'random_features'"):
        build("transformer separable", "mean", features=5)
