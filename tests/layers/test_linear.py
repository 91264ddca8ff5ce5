"""The one-row path of the linear layer against torch's product, and where it is taken."""

import pytest
import torch
from torch import nn

from seqlab.layers import Linear, linear


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5,), (1, 5), (1, 1, 5), (2, 5), (3, 1, 5)], ids=str)
def test_one_row_is_the_same_product(shape: tuple[int, ...], bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "LARGE", 0)
    mine, theirs = Linear(5, 7, bias=bias).double(), nn.Linear(5, 7, bias=bias).double()
    theirs.load_state_dict(mine.state_dict())
    x = torch.randn(*shape, dtype=torch.float64)
    with torch.no_grad():
        assert mine(x).shape == (*shape[:-1], 7)
        assert torch.allclose(mine(x), theirs(x), rtol=0, atol=1e-14)
    assert torch.equal(mine(x), theirs(x))  # with gradients: torch's own


def test_the_fast_path_is_taken_for_one_row_without_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    plain = nn.Linear.forward
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: seen.append(tuple(x.shape)) or plain(self, x))
    layer = Linear(512, 512)
    with torch.no_grad():
        layer(torch.randn(1, 1, 512))
        assert not seen
        layer(torch.randn(1, 2, 512))
    layer(torch.randn(1, 1, 512))
    assert seen == [(1, 2, 512), (1, 1, 512)]
