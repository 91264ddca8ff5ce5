"""A misfit of sizes names itself, and every value that it proposes fits."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqlab.core.errors import UsageError
from seqlab.core.settings.lm import LMSettings, ModelSettings, fill_lm
from seqlab.core.sizes import check_heads, check_sinusoidal
from seqlab.layers import EncoderBlock, FeedForward, MultiHeadAttention, RotaryPosition
from seqlab.models import build_lm

SMALL = st.integers(1, 60)


def proposed(message: str, what: str) -> list[int]:
    """The numbers after "heads " or "width " in the remedy."""
    remedy = message.partition("choose ")[2]
    found = re.search(rf"{what} (\d+(?: or \d+)*)", remedy)
    return [int(number) for number in found.group(1).split(" or ")] if found else []


@given(width=SMALL, heads=SMALL, shared=st.integers(1, 60), in_pairs=st.booleans())
def test_every_remedy_works(width: int, heads: int, shared: int, in_pairs: bool) -> None:
    kv_heads = heads if heads % shared else shared
    fits = width % heads == 0 and (not in_pairs or width // heads % 2 == 0)
    try:
        check_heads(width, heads, kv_heads, in_pairs=in_pairs)
        assert fits
    except UsageError as error:
        assert not fits
        widths, others = proposed(str(error), "width"), proposed(str(error), "heads")
        assert widths
        for other in widths:
            check_heads(other, heads, kv_heads, in_pairs=in_pairs)
        for other in others:
            check_heads(width, other, kv_heads, in_pairs=in_pairs)


@given(width=SMALL, heads=SMALL)
def test_widths_for_sinusoidal_positions_fit_the_heads_too(width: int, heads: int) -> None:
    try:
        check_sinusoidal(width, heads)
        assert width % 2 == 0
    except UsageError as error:
        for other in proposed(str(error), "width"):
            check_sinusoidal(other, heads)
            check_heads(other, heads)


@given(heads=SMALL, kv_heads=SMALL)
def test_key_value_heads(heads: int, kv_heads: int) -> None:
    try:
        check_heads(heads, heads, kv_heads)
        assert heads % kv_heads == 0
    except UsageError as error:
        numbers = str(error).partition("choose ")[2].removesuffix(" key/value heads")
        for other in numbers.split(" or "):
            check_heads(heads, heads, int(other))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            dict(width=16, heads=3),
            "width 16 cannot be cut into 3 heads of one size; choose heads 2 or 4, or width 12 or 18",
        ),
        (
            dict(width=15, heads=3),
            "rotary positions turn pairs, but width 15 in 3 heads has 5 numbers in each; choose width 12",
        ),
        (dict(width=16, heads=3, positions="learned"), "choose heads 2 or 4, or width 15 or 18"),
    ],
)
def test_the_real_fault_is_named_before_and_after_torch(sizes: dict[str, int | str], message: str) -> None:
    model = ModelSettings(kind="transformer", **sizes)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=re.escape(message)):
        fill_lm(LMSettings(model=model))
    with pytest.raises(UsageError, match=re.escape(message)):
        build_lm("transformer", vocab_size=5, **sizes)


def test_layers_name_it_too() -> None:
    with pytest.raises(UsageError, match="6 heads cannot share 4 key/value heads evenly; choose 3 or 6 key"):
        MultiHeadAttention(24, 6, n_kv_heads=4)
    with pytest.raises(UsageError, match="even width per head, not 5 of 5; choose 4"):
        RotaryPosition(5)
    with pytest.raises(UsageError, match="even width per head, not 4 of 1; choose heads of 2 numbers or more"):
        RotaryPosition(1, turned=4)
    with pytest.raises(UsageError, match="do not fit heads of 5; choose an even width"):
        MultiHeadAttention(15, 3, rotary=RotaryPosition(4))
    with pytest.raises(UsageError, match="head_width 0 is too small"):
        MultiHeadAttention(16, 4, head_width=0)
    with pytest.raises(UsageError, match="width 8 does not fit a block of 16"):
        EncoderBlock(MultiHeadAttention(16, 4), mlp=FeedForward(8))
    with pytest.raises(UsageError, match="a start for each sequence needs"):
        RotaryPosition(4)(torch.zeros(2, 3, 4), torch.tensor([1, 2]))
    with pytest.raises(UsageError, match="even width per head, not 6 of 4; choose 4"):
        RotaryPosition(4, turned=6)
    with pytest.raises(UsageError, match="rotary positions for heads of 4 do not fit heads of 8"):
        MultiHeadAttention(16, 2, rotary=RotaryPosition(4))
    with pytest.raises(UsageError, match="pairing 'half' is not known; did you mean 'halves'"):
        RotaryPosition(4, pairing="half")
