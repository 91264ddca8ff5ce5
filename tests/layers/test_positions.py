"""Positions against their formulas."""

import math

import pytest
import torch

from seqlab.core.errors import UsageError
from seqlab.layers.positions import LearnedPosition, RotaryPosition, SinusoidalPosition, angles


def test_sinusoidal_positions_follow_the_formula() -> None:
    d = 6
    added = SinusoidalPosition(d)(torch.zeros(1, 4, d, dtype=torch.float64), start=3)[0]
    for row, p in enumerate(range(3, 7)):
        for i in range(d // 2):
            theta = p / 10000 ** (2 * i / d)
            assert added[row, 2 * i].item() == pytest.approx(math.sin(theta), abs=1e-12)
            assert added[row, 2 * i + 1].item() == pytest.approx(math.cos(theta), abs=1e-12)


def test_rotary_products_depend_on_the_distance_alone() -> None:
    rotary = RotaryPosition(8)
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    near = (rotary(q, 5) * rotary(k, 2)).sum()
    far = (rotary(q, 1005) * rotary(k, 1002)).sum()
    other = (rotary(q, 5) * rotary(k, 1)).sum()
    assert torch.allclose(near, far, rtol=0, atol=1e-10)
    assert not torch.allclose(near, other, atol=1e-3)
    assert torch.allclose(rotary(q, 9).norm(), q.norm())
    assert angles(torch.tensor([2]), 4).tolist()[0] == pytest.approx([2, 0.02])


def test_positions_count_from_zero_unless_told() -> None:
    learned = LearnedPosition(4, 6)
    assert torch.equal(learned(torch.zeros(2, 3, 6)), learned.table[:3].expand(2, 3, 6))
    assert torch.equal(learned(torch.zeros(2, 4, 6))[0], learned.table)  # all there are
    x = torch.randn(2, 1, 3, 6, dtype=torch.float64)
    for layer, values in ((SinusoidalPosition(6), x[:, 0]), (RotaryPosition(6), x)):
        assert torch.equal(layer(values), layer(values, 0))
        assert not torch.equal(layer(values), layer(values, 1))


def test_learned_positions_end_in_one_line() -> None:
    with pytest.raises(UsageError, match="position 4 is beyond the 4 learned positions"):
        LearnedPosition(4, 6)(torch.zeros(1, 2, 6), start=3)
    with pytest.raises(UsageError, match="even width, not 5; choose width 4 or 6"):
        SinusoidalPosition(5)
    with pytest.raises(UsageError, match="even width per head, not 3"):
        RotaryPosition(3)


def test_rotary_positions_may_start_differently_in_each_sequence() -> None:
    rotary, u = RotaryPosition(6), torch.randn(3, 2, 4, 6, dtype=torch.float64)
    together = rotary(u, torch.tensor([0, 5, 2]))
    for row, start in enumerate((0, 5, 2)):
        assert torch.allclose(together[row : row + 1], rotary(u[row : row + 1], start), rtol=0, atol=1e-14)


@pytest.mark.parametrize("layer", [SinusoidalPosition(6), LearnedPosition(9, 6)], ids=lambda m: type(m).__name__)
def test_added_positions_may_start_differently_in_each_sequence(layer: torch.nn.Module) -> None:
    x = torch.randn(3, 4, 6)
    together = layer(x, torch.tensor([0, 5, 2]))
    for row, start in enumerate((0, 5, 2)):
        assert torch.equal(together[row : row + 1], layer(x[row : row + 1], start))


def test_one_sequence_beyond_the_learned_positions_is_enough() -> None:
    with pytest.raises(UsageError, match="position 4 is beyond the 4 learned positions"):
        LearnedPosition(4, 6)(torch.zeros(3, 2, 6), start=torch.tensor([0, 3, 1]))


def test_rotary_positions_take_any_layout_of_memory() -> None:
    rotary, wide = RotaryPosition(8), torch.randn(1, 2, 4, 17, dtype=torch.float64)
    for view in (
        wide[..., :8],
        wide[..., 1:9],
        wide[..., :16:2],
        wide.transpose(2, 3)[:, :, :4, :4].repeat(1, 1, 1, 2),
    ):
        assert torch.equal(rotary(view, 3), rotary(view.contiguous(), 3))


@pytest.mark.parametrize(
    "layer", [SinusoidalPosition(6), LearnedPosition(9, 6), RotaryPosition(6)], ids=lambda m: type(m).__name__
)
def test_another_width_is_named(layer: torch.nn.Module) -> None:
    with pytest.raises(UsageError, match=r"x has shape \(2, 3, 4\), but the positions are for a last dimension of 6"):
        layer(torch.zeros(2, 3, 4))
