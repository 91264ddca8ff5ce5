"""Blocks that compute their inside again: the same bits of every gradient, and less is kept on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import seqlab
from seqlab.core.errors import UsageError
from seqlab.core.types import IGNORED, PaddedBatch, PairBatch
from seqlab.layers.feed_forward import FeedForward
from seqlab.layers.recompute import recompute_blocks
from seqlab.models import build_lm
from seqlab.models.encoder_classifier import TransformerClassifier
from seqlab.models.translator import TransformerTranslator

V, T = 9, 14
DRAWN = torch.randint(V, (3, T), generator=torch.Generator().manual_seed(0))
LENGTHS = torch.tensor([14, 3, 9])


def lm(**options: Any) -> nn.Module:
    model: nn.Module = build_lm("transformer", V, width=16, depth=3, heads=2, context=T, dropout=0.3, **options)
    return model


def classifier(**options: Any) -> nn.Module:
    torch.manual_seed(1)
    return TransformerClassifier(4, V - 3, 16, 3, 2, dropout=0.3, **options)


def translator(**options: Any) -> nn.Module:
    torch.manual_seed(1)
    return TransformerTranslator(V, 1, 16, 2, 2, decoder_depth=3, dropout=0.3, **options)


def in_pieces(model: Any) -> Tensor:
    """The gradient goes from the second piece through the state into the first."""
    first, state = model(DRAWN[:, :5])
    second, _ = model(DRAWN[:, 5:], state)
    result: Tensor = torch.cat([first, second], 1).square().sum()
    return result


def classified(model: Any) -> Tensor:
    result: Tensor = model(PaddedBatch(DRAWN, LENGTHS)).square().sum()
    return result


def translated(model: Any) -> Tensor:
    targets = DRAWN.masked_fill(torch.arange(T) >= LENGTHS[:, None], IGNORED)
    batch = PairBatch(PaddedBatch(DRAWN, LENGTHS), DRAWN, targets, int(LENGTHS.sum()))
    result: Tensor = model.nats(batch, 0.1)
    return result


CASES: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "lm": (lm, {}, lambda model: model(DRAWN)[0].square().sum()),
    "lm in pieces": (lm, {}, in_pieces),
    "lm post-norm": (lm, {"placement": "post"}, in_pieces),
    "lm separable": (lm, {"attention": "separable"}, in_pieces),
    "lm random features": (lm, {"attention": "random_features", "tied": True}, in_pieces),
    "classifier": (classifier, {}, classified),
    "classifier separable": (classifier, {"attention": "separable"}, classified),
    "translator": (translator, {}, translated),
    "translator with a pointer": (translator, {"pointer": True}, translated),
}


def outcome(model: nn.Module, loss_of: Any) -> list[Tensor]:
    """The loss, every gradient and the state of the random numbers after a training step."""
    torch.manual_seed(5)
    loss = loss_of(model)
    loss.backward()
    grads = [weight.grad for weight in model.parameters() if weight.grad is not None]
    return [loss.detach(), *grads, torch.get_rng_state()]


@pytest.mark.parametrize("case", CASES)
def test_the_bits_are_the_same(case: str) -> None:
    make, options, loss_of = CASES[case]
    plain, again = make(**options), make(**options)
    recompute_blocks(again, "transformer")
    for mode in (True, False):
        found = [outcome(model.train(mode), loss_of) for model in (plain, again)]
        assert len(found[0]) > 10
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
        plain.zero_grad()
        again.zero_grad()


@pytest.mark.parametrize("case", CASES)
def test_only_a_training_step_computes_twice(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, options, loss_of = CASES[case]
    model, calls, forward = make(**options), [0], FeedForward.forward

    def counted(self: FeedForward, x: Tensor) -> Tensor:
        calls[0] += 1
        return forward(self, x)

    monkeypatch.setattr(FeedForward, "forward", counted)

    def count(gradients: bool) -> int:
        calls[0] = 0
        with torch.set_grad_enabled(gradients):
            loss = loss_of(model)
            if gradients:
                loss.backward()
        return calls[0]

    once = count(True)
    recompute_blocks(model, "transformer")
    assert count(True) == 2 * once
    assert count(False) == once
    model.eval()
    assert count(True) == once


def kept_numbers(model: nn.Module, loss_of: Callable[[], Tensor]) -> int:
    """Numbers that the graph holds when the loss is there, each storage once, without the weights."""
    held: dict[int, Tensor] = {}  # the tensors themselves, so that no place is used twice

    def pack(tensor: Tensor) -> Tensor:
        held[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss_of()
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    return sum(t.untyped_storage().nbytes() // t.element_size() for place, t in held.items() if place not in weights)


@pytest.mark.parametrize("case", CASES)
def test_less_is_kept_on_the_way(case: str) -> None:
    make, options, loss_of = CASES[case]
    plain, again = make(**options), make(**options)
    recompute_blocks(again, "transformer")
    assert kept_numbers(again, lambda: loss_of(again)) < kept_numbers(plain, lambda: loss_of(plain)) / 2


def test_whoever_listens_hears_each_value_once_and_changes_nothing() -> None:
    model = lm()
    recompute_blocks(model, "transformer")
    unheard = outcome(model, in_pieces)
    model.zero_grad()
    with seqlab.taps(model, "*.hidden", "*.weights") as seen:
        heard = outcome(model, in_pieces)
        assert {len(seen.calls(name)) for name in seen} == {2}
        assert len(seen) == 6
    assert all(torch.equal(a, b) for a, b in zip(unheard, heard, strict=True))


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(UsageError, match="--recompute is for Transformers: model 'gru' has no blocks; leave it out"):
        recompute_blocks(build_lm("gru", V, width=8), "gru")
