"""From ids to one vector: embedding, every encoder, every pooling. What stands beside a sequence never matters."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqlab import layers
from seqlab.core.errors import UsageError
from seqlab.core.registry import LAYERS, POOLINGS, look_up

V, D, T = 11, 8, 6
LENGTHS = torch.tensor([6, 1, 4, 0, 3])


class Classifier(nn.Module):
    """ids (B, T), lengths (B,) -> one vector for each sequence."""

    def __init__(self, encoder: Any, pooling: str) -> None:
        super().__init__()
        self.embedding = layers.TokenEmbedding(V, D, position=layers.SinusoidalPosition(D))
        self.encoder = encoder
        self.pooling = layers.build_pooling(pooling, encoder.width, encoder.directions)

    def forward(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        pooled: Tensor = self.pooling(self.encoder(self.embedding(ids), lengths), lengths)
        return pooled


def transformer(**options: Any) -> layers.TransformerEncoder:
    style = layers.BlockStyle(**options)
    blocks = [layers.EncoderBlock(style.attention(D, 2), **style.block(D)) for _ in range(2)]
    return layers.TransformerEncoder(blocks, style.last_norm(D))


ENCODERS: dict[str, Callable[[], Any]] = {
    "rnn": lambda: layers.RecurrentEncoder(layers.RNN(D, D)),
    "gru-both": lambda: layers.RecurrentEncoder(layers.GRU(D, D, bidirectional=True)),
    "lstm-both": lambda: layers.RecurrentEncoder(layers.LSTM(D, 5, 2, bidirectional=True)),
    "transformer": transformer,
    "transformer-post": lambda: transformer(placement="post", norm="rms"),
    "transformer-grouped": lambda: transformer(kv_heads=1, gated=True, placement="parallel"),
}


@pytest.fixture(params=product(ENCODERS, POOLINGS), ids="-".join)
def model(request: pytest.FixtureRequest) -> Classifier:
    encoder, pooling = request.param
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return Classifier(ENCODERS[encoder](), pooling).double().eval()


def ids(seed: int = 0, time: int = T) -> Tensor:
    return torch.randint(V, (len(LENGTHS), time), generator=torch.Generator().manual_seed(seed))


def close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(torch.isfinite(a).all()) and torch.allclose(a, b, rtol=0, atol=1e-12)


def test_padding_order_and_size_of_the_batch_never_matter(model: Classifier) -> None:
    text = ids()
    together = model(text, LENGTHS)
    real = torch.arange(T) < LENGTHS[:, None]
    assert close(model(torch.where(real, text, ids(seed=1)), LENGTHS), together)
    assert close(model(torch.cat([text, ids(seed=2)], 1), LENGTHS), together)
    order = torch.tensor([3, 1, 4, 0, 2])
    assert close(model(text[order], LENGTHS[order]), together[order])
    assert close(torch.cat([model(text[:2], LENGTHS[:2]), model(text[2:], LENGTHS[2:])]), together)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model(text[row : row + 1, :length])
        assert close(alone, together[row : row + 1])
        assert bool(alone.any()) == (length > 0)


def test_gradients_stay_out_of_the_padding(model: Classifier) -> None:
    x = torch.randn(len(LENGTHS), T, D, dtype=torch.float64, requires_grad=True)
    pooled = model.pooling(model.encoder(x, LENGTHS), LENGTHS)
    (gradient,) = torch.autograd.grad(pooled.square().sum(), x)
    real = torch.arange(T) < LENGTHS[:, None]
    assert torch.count_nonzero(gradient[~real]) == 0
    assert gradient[real].abs().sum() > 0
    assert torch.isfinite(gradient).all()


def test_nan_in_the_padding_reaches_nothing(model: Classifier) -> None:
    x = torch.randn(len(LENGTHS), T, D, dtype=torch.float64)
    x[torch.arange(T) >= LENGTHS[:, None]] = torch.nan
    pooled = model.pooling(model.encoder(x, LENGTHS), LENGTHS)
    pooled.square().sum().backward()
    assert torch.isfinite(pooled).all()
    assert all(p.grad is None or bool(torch.isfinite(p.grad).all()) for p in model.parameters())


def test_pooling_is_its_definition() -> None:
    y = torch.randn(len(LENGTHS), T, D, dtype=torch.float64)
    pools = {kind: layers.build_pooling(kind, D).double() for kind in POOLINGS}
    both = layers.build_pooling("last", D, directions=2)
    for row, length in enumerate(LENGTHS.tolist()):
        if length == 0:
            continue
        seen = y[row, :length]
        attention: Any = pools["attention"]
        weights = torch.softmax(torch.tanh(seen @ attention.project.weight.T + attention.project.bias) @ attention.v, 0)
        expected = {
            "last": seen[-1],
            "first": seen[0],
            "mean": sum(seen) / length,
            "max": seen.max(0).values,
            "attention": sum(w * v for w, v in zip(weights, seen, strict=True)),
        }
        for kind, value in expected.items():
            assert close(pools[kind](y, LENGTHS)[row], value), kind
        ends = torch.cat([seen[-1, : D // 2], seen[0, D // 2 :]])
        assert close(both(y, LENGTHS)[row], ends)


@pytest.mark.parametrize("kind", sorted(kind for kind in LAYERS if kind.endswith("-pooling")))
def test_every_registered_pooling_can_be_chosen(kind: str) -> None:
    pooling = layers.build_pooling(kind.removesuffix("-pooling"), D).double()
    assert type(pooling) is look_up(LAYERS, kind, "layer")
    y = torch.randn(2, 3, D, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda y: pooling(y, torch.tensor([3, 2])), (y,))
    assert pooling(y[:, :0]).shape == (2, D)
    for dtype in (torch.float32, torch.bfloat16):
        assert pooling.to(dtype)(y.to(dtype)).dtype == dtype


def test_the_last_vector_of_both_directions_is_the_final_state() -> None:
    layer = layers.GRU(D, 5, bidirectional=True).double()
    x = torch.randn(len(LENGTHS), T, D, dtype=torch.float64)
    y, state = layer(x, lengths=LENGTHS)
    assert close(layers.build_pooling("last", 10, 2)(y, LENGTHS), torch.cat([state[0], state[1]], -1))


def test_embedding_is_its_definition() -> None:
    norm = nn.LayerNorm(D, eps=1e-12)
    embedding = layers.TokenEmbedding(
        V, D, scale=D**0.5, position=layers.LearnedPosition(9, D), types=2, norm=norm
    ).double()
    nn.init.normal_(norm.weight)
    text, types = ids(), torch.arange(T).expand(len(LENGTHS), T) % 2
    table: Any = embedding.position
    for row, t in product(range(2), range(T)):
        x = D**0.5 * embedding.weight[text[row, t]] + table.table[2 + t] + embedding.types[t % 2]  # type: ignore[index]
        assert close(embedding(text, 2, types)[row, t], norm(x))
    assert close(embedding(text), embedding(text, 0, torch.zeros_like(text)))
    starts = torch.arange(len(LENGTHS)) % 4
    assert close(embedding(text, starts)[3], embedding(text[3:4], 3)[0])
    with pytest.raises(UsageError, match="knows no types"):
        layers.TokenEmbedding(V, D)(text, types=types)


def test_a_tied_head_is_the_embedding() -> None:
    embedding = layers.TokenEmbedding(V + 1, D).double()
    free, tied = (layers.OutputHead(D, V, tied=t).double() for t in (False, True))
    for head in (free, tied):
        head.start(0.1)
        nn.init.normal_(head.bias)
    y = torch.randn(2, 3, D, dtype=torch.float64)
    assert close(tied(y, embedding), y @ embedding.weight[:V].T + tied.bias)
    assert close(free(y), y @ free.weight.T + free.bias)
    assert [name for name, _ in tied.named_parameters()] == ["bias"]
    tied(y, embedding).sum().backward()
    assert embedding.weight.grad is not None
    assert torch.count_nonzero(embedding.weight.grad[V]) == 0


def test_wrong_use_is_named() -> None:
    with pytest.raises(UsageError, match="pooling 'men' is not known; did you mean 'mean'"):
        layers.build_pooling("men", D)
    with pytest.raises(UsageError, match=r"y has shape \(2, 3\), but pooling reads \(batch, time, width\)"):
        layers.MeanPooling()(torch.zeros(2, 3))
    with pytest.raises(UsageError, match="one block or more, not 0"):
        layers.TransformerEncoder([])
    with pytest.raises(UsageError, match="activation 'gelo' is not known; did you mean 'gelu'"):
        layers.FeedForward(D, activation="gelo")
    with pytest.raises(UsageError, match="0 hidden units is too small"):
        layers.FeedForward(D, 0)
