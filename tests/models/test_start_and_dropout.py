"""The models as wholes: where dropout acts, how they start."""

import math

import pytest
import torch
from torch import Tensor

from seqlab.core.errors import UsageError
from seqlab.core.registry import MODELS
from seqlab.models import build_lm


@pytest.mark.parametrize("kind", sorted(MODELS.keys() - {"bigram"}))  # the bigram has neither dropout nor tying
def test_dropout_acts_in_training_and_only_there(kind: str) -> None:
    lm = build_lm(kind, vocab_size=9, width=16, depth=2, dropout=0.5)
    ids = torch.arange(8)[None]
    assert not torch.equal(lm.train()(ids)[0], lm(ids)[0])
    assert torch.equal(lm.eval()(ids)[0], lm(ids)[0])


def test_dropout_acts_at_the_input_and_at_the_output_of_the_recurrence() -> None:
    lm = build_lm("gru", vocab_size=9, width=400, depth=1, dropout=0.5).train()
    seen: dict[str, Tensor] = {}
    lm.recurrent.register_forward_pre_hook(lambda _m, args: seen.update(input=args[0]))
    lm.output.register_forward_pre_hook(lambda _m, args: seen.update(output=args[0]))
    lm(torch.arange(8)[None])
    for place, value in seen.items():
        dropped = (value == 0).double().mean().item()
        assert 0.4 < dropped < 0.6, place


@pytest.mark.parametrize("kind", sorted(MODELS.keys() - {"bigram"}))
@pytest.mark.parametrize("tied", [False, True])
def test_an_untrained_model_is_nearly_uniform(kind: str, tied: bool) -> None:
    lm = build_lm(kind, vocab_size=200, width=64, tied=tied).eval()
    ids = torch.randint(0, 200, (8, 32), generator=torch.Generator().manual_seed(0))
    logits, _ = lm(ids)
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).item()
    assert abs(loss - math.log(200)) < 0.6


def test_learned_positions_of_an_earlier_version_load() -> None:
    lm, other = (
        build_lm("transformer", vocab_size=5, width=8, depth=1, heads=2, context=4, positions="learned", seed=s)
        for s in (0, 1)
    )
    weights = lm.state_dict()
    weights["position.table"] = weights.pop("embedding.position.table")
    other.load_state_dict(weights)
    ids = torch.tensor([[5, 1, 2]])
    assert torch.equal(other(ids)[0], lm(ids)[0])


@pytest.mark.parametrize("kind", ["gru", "transformer"])
def test_a_tied_model_can_start_anew(kind: str) -> None:
    lm = build_lm(kind, vocab_size=9, width=16, depth=1, tied=True)
    before = lm.embedding.weight.clone()
    lm.reset_parameters()
    assert not torch.equal(lm.embedding.weight, before)
    assert lm.output.weight is None
    with pytest.raises(UsageError, match="a tied head has no matrix of its own"):
        lm.output(torch.zeros(1, 1, 16))
