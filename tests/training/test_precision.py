"""Training whose products are computed in bfloat16."""

from typing import Any

import numpy as np
import pytest
import torch

from seqlab.data.batching import WindowBatches
from seqlab.models import build_lm
from seqlab.models.folds import count_folds
from seqlab.models.guided import GATES, Guide, GuidedLM
from seqlab.training.objectives import NextToken

V = 9
SIZES: dict[str, dict[str, Any]] = {"lstm": {}, "transformer": {"heads": 2, "context": 12}}


@pytest.mark.parametrize("guide", [False, True])
@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_products_in_bfloat16_round_and_nothing_else_does(kind: str, guide: bool) -> None:
    """The same gradients but for the rounding of 8 binary digits, in float32, and the same bits each time."""
    ids = np.random.default_rng(3).integers(0, V, 400)
    folded = count_folds(ids, V, 3, 4)
    network = build_lm(kind, vocab_size=V + GATES if guide else V, width=16, depth=2, **SIZES[kind])
    model = GuidedLM(network, Guide(folded.model)) if guide else network
    with torch.no_grad():  # a guided one starts with zeros
        network.output.weight.normal_(std=0.5, generator=torch.Generator().manual_seed(1))
    batch = WindowBatches(ids, V, 4, 12, 0, folded.expected if guide else None)(0)

    def gradients(precision: str) -> tuple[float, list[torch.Tensor]]:
        loss = NextToken(carry=False, precision=precision)(model, batch, None)
        assert loss.total.dtype == torch.float32
        return loss.total.item(), list(torch.autograd.grad(loss.total, list(model.parameters())))

    (plain, wanted), (short, found), (again, same) = map(gradients, ("float32", "bfloat16", "bfloat16"))
    assert short == pytest.approx(plain, rel=1e-2)
    assert short != plain
    assert again == short
    for a, b, c in zip(wanted, found, same, strict=True):
        assert b.dtype == torch.float32
        assert torch.equal(b, c)
        assert (a - b).norm() <= 0.05 * a.norm() + 1e-3
