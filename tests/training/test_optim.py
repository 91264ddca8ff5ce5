"""Which parameters decay: decided by what owns them, never by a name."""

from typing import Any

import pytest
import torch
from torch import nn

from seqlab.core.registry import MODELS
from seqlab.core.traits import LookUpTable
from seqlab.models import build_lm
from seqlab.training.optim import ADAMW_BETAS, build_optimiser, decay_groups

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((kind, {}) for kind in sorted(MODELS)),
    *((kind, {"tied": True}) for kind in ("lstm", "attentive-rnn", "transformer")),
    *(("transformer", {"positions": positions}) for positions in ("learned", "sinusoidal")),
    ("attentive-rnn", {"score": "additive"}),
]
LOOKED_UP_NAMES = {"embedding.weight", "embedding.position.table"}


def names_in_groups(model: nn.Module) -> tuple[list[str], list[str]]:
    """What decays, and what does not."""
    name_of = {id(parameter): name for name, parameter in model.named_parameters()}
    found: dict[float, list[str]] = {0.1: [], 0.0: []}
    for group in decay_groups(model, 0.1):
        found[group["weight_decay"]] = [name_of[id(parameter)] for parameter in group["params"]]
    return found[0.1], found[0.0]


@pytest.mark.parametrize(("kind", "sizes"), VARIANTS, ids=str)
def test_matrices_decay_in_the_order_of_the_model(kind: str, sizes: dict[str, Any]) -> None:
    model = build_lm(kind, vocab_size=11, **sizes)
    matrices = {name for name, p in model.named_parameters() if p.ndim >= 2} - LOOKED_UP_NAMES
    names = [name for name, _ in model.named_parameters()]
    decaying, others = names_in_groups(model)
    assert decaying == [name for name in names if name in matrices]
    assert others == [name for name in names if name not in matrices]


def test_learned_positions_do_not_decay() -> None:
    model = build_lm("transformer", vocab_size=11, positions="learned")
    assert "embedding.position.table" in dict(model.named_parameters())
    assert "embedding.position.table" not in names_in_groups(model)[0]


class Odd(nn.Module):
    """Names that say the opposite of what the modules are."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding_mixer = nn.Linear(3, 3)
        self.table = nn.Embedding(4, 3)
        self.embedding = nn.ModuleDict({"norm": nn.LayerNorm((2, 3)), "rms": nn.RMSNorm((2, 3))})
        self.places = LookUpTable()
        self.places.rows = nn.Parameter(torch.ones(2, 3))
        self.kernel = nn.Parameter(torch.ones(2, 3, 4))
        self.frozen = nn.Linear(3, 3).requires_grad_(False)


def test_names_do_not_matter() -> None:
    decaying, others = names_in_groups(Odd())
    assert decaying == ["kernel", "embedding_mixer.weight"]
    assert {"table.weight", "places.rows", "embedding.norm.weight", "embedding.rms.weight"} <= set(others)
    assert not [name for name in decaying + others if name.startswith("frozen")]


def test_a_group_with_nothing_in_it_is_left_out() -> None:
    assert [group["weight_decay"] for group in decay_groups(nn.Linear(2, 2, bias=False), 0.1)] == [0.1]
    assert [group["weight_decay"] for group in decay_groups(nn.Embedding(2, 2), 0.1)] == [0.0]


def test_the_optimisers_use_the_groups() -> None:
    for kind in ("adamw", "sgd"):
        optimiser = build_optimiser(nn.Linear(2, 2), 0.1, 0.3, kind=kind)
        assert [(group["weight_decay"], len(group["params"])) for group in optimiser.param_groups] == [(0.3, 1), (0, 1)]
    assert build_optimiser(nn.Linear(2, 2), 0.1, 0.3).param_groups[0]["betas"] == ADAMW_BETAS == (0.9, 0.99)
