"""Long texts: memory that grows with the length and not with its square; sums that never grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.layers.test_recompute import kept_numbers
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from seqlab.core.errors import UsageError
from seqlab.core.registry import ATTENTIONS, POSITIONS
from seqlab.core.state import tensors_of
from seqlab.core.types import PaddedBatch
from seqlab.evaluation import surprisal
from seqlab.generation.reading import Row, read_all, read_on
from seqlab.models import build_lm
from seqlab.models.encoder_classifier import TransformerClassifier
from seqlab.ops import attention

V, T = 9, 600
LINEAR = ["separable", "random_features"]


class Largest(TorchDispatchMode):
    """Watches how many numbers the largest tensor holds that any operation makes, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for made in tree_leaves(result):
            if isinstance(made, Tensor):
                self.numbers = max(self.numbers, made.untyped_storage().nbytes() // made.element_size())
        return result


def drawn(rows: int, length: int) -> Tensor:
    return torch.randint(V, (rows, length), generator=torch.Generator().manual_seed(0))


def lm(attention: str, context: int, **options: Any) -> Any:
    return build_lm("transformer", V, width=16, depth=1, heads=2, context=context, attention=attention, **options)


def lm_loss(model: nn.Module, length: int) -> Tensor:
    result: Tensor = model(drawn(1, length))[0].square().sum()
    return result


def classifier_loss(model: nn.Module, length: int) -> Tensor:
    lengths = torch.tensor([length, length // 2])
    result: Tensor = model(PaddedBatch(drawn(2, length), lengths)).square().sum()
    return result


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("kind", ATTENTIONS)
class TestNothingGrowsWithTheSquare:
    @pytest.fixture(autouse=True)
    def small_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(attention, "ROWS", 64)

    @pytest.mark.parametrize("positions", POSITIONS)
    def test_of_a_language_model(self, kind: str, dropout: float, positions: str) -> None:
        with Largest() as largest:
            lm_loss(lm(kind, T, dropout=dropout, positions=positions), T).backward()
        assert T < largest.numbers < T * T

    def test_of_a_classifier(self, kind: str, dropout: float) -> None:
        with Largest() as largest:
            classifier_loss(TransformerClassifier(4, V, 16, 1, 2, attention=kind, dropout=dropout), T).backward()
        assert T < largest.numbers < T * T

    def test_what_is_kept_for_the_gradient_grows_with_the_length(self, kind: str, dropout: float) -> None:
        model = lm(kind, 2 * T, dropout=dropout)
        once, twice = (kept_numbers(model, lambda length=n * T: lm_loss(model, length)) for n in (1, 2))
        assert twice < 2.2 * once
        reader = TransformerClassifier(4, V, 16, 1, 2, attention=kind, dropout=dropout)
        once, twice = (kept_numbers(reader, lambda length=n * T: classifier_loss(reader, length)) for n in (1, 2))
        assert twice < 2.2 * once


def test_a_window_in_a_longer_text_keeps_no_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "ROWS", 64)
    model = lm("softmax", 100)
    once, twice = (kept_numbers(model, lambda length=n * T: lm_loss(model, length)) for n in (1, 2))
    assert twice < 2.2 * once


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_long_segments_are_scored_a_few_at_a_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids, seen = lm(kind, 32).double(), drawn(1, 500)[0].numpy(), []
    model.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[0]))
    policy = surprisal.policy_for(model)
    usual = surprisal.nats_of_ids(model, ids, V, policy)
    assert max(seen) == len(surprisal.segment_starts(500, policy)) > 3
    for most, rows in ((100, 3), (5, 1)):
        seen.clear()
        monkeypatch.setattr(surprisal, "FED_WHOLE", most)
        assert np.allclose(surprisal.nats_of_ids(model, ids, V, policy), usual, rtol=1e-10, atol=0)
        assert max(seen) == rows


# --------------------------------------------------------------------------- writing


def bytes_carried(model: Any, tokens: int) -> int:
    """What the state holds after so many tokens that the model wrote itself, the likeliest each time."""
    row = Row(0, [V])
    limit = model.traits.max_positions
    with torch.inference_mode():
        groups = read_all(model, [row], limit)
        for _ in range(tokens - 1):
            row.ids.append(int(groups[0].logits.argmax()))
            groups = read_on(model, groups, limit)
    assert len(row.ids) == tokens
    assert torch.isfinite(groups[0].logits).all()
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors_of(groups[0].state)}
    return sum(storages.values())


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kind", LINEAR)
def test_linear_attention_remembers_as_much_after_a_thousand_tokens(kind: str, positions: str) -> None:
    """Far beyond the context of 16 that it was made for."""
    model = lm(kind, 16, positions=positions).eval()
    assert bytes_carried(model, 1000) == bytes_carried(model, 10) > 0


def test_softmax_attention_remembers_every_token_of_its_context() -> None:
    long = lm("softmax", 2000).eval()
    assert bytes_carried(long, 1000) > 10 * bytes_carried(long, 10)  # which has room for 64 already
    short = lm("softmax", 16).eval()
    assert bytes_carried(short, 1000) <= 2 * bytes_carried(short, 100)


def test_learned_positions_end_in_one_line() -> None:
    model = lm("separable", 16, positions="learned")
    with pytest.raises(UsageError, match="^position 16 is beyond the 16 learned positions; feed at most 16 tokens$"):
        model(drawn(1, 17))
