"""Sizes that must fit each other: each misfit is one line that names it, and values that work."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from seqlab.core.errors import UsageError


def check_heads(width: int, heads: int, kv_heads: int | None = None, *, in_pairs: bool = False) -> None:
    """Attention cuts its width into heads of one size, for rotary positions into pairs of numbers.

    Key/value heads are shared by equally many heads each.
    """
    if heads < 1 or width < 1:
        raise UsageError(f"width {width} cannot be cut into {heads} heads; the least is 1 of each")
    if kv_heads is not None and (kv_heads < 1 or heads % kv_heads):
        raise UsageError(
            f"{heads} heads cannot share {kv_heads} key/value heads evenly; choose "
            f"{_or(_around(kv_heads, _divisors(heads)))} key/value heads"
        )
    if width % heads:
        remedy = _fitting(width, heads, kv_heads or 1, 2 if in_pairs else 1)
        raise UsageError(f"width {width} cannot be cut into {heads} heads of one size; choose {remedy}")
    if in_pairs and width // heads % 2:
        raise UsageError(
            f"rotary positions turn pairs, but width {width} in {heads} heads has {width // heads} numbers in each; "
            f"choose {_fitting(width, heads, kv_heads or 1, 2)}, or other positions"
        )


def check_features(attention: str | None, features: int | None) -> None:
    """Only one kind of attention draws random features."""
    if features is not None and attention != "random_features":
        raise UsageError(f"--features {features} is for --attention random_features, not {attention}; leave it out")


def check_sinusoidal(width: int, heads: int = 1) -> None:
    """Sines and cosines come in pairs; the widths proposed can be cut into the heads too."""
    if width % 2:
        fitting = _or(_multiples(width, lcm(2, heads)))
        raise UsageError(f"sinusoidal positions need an even width, not {width}; choose width {fitting}")


def _fitting(width: int, heads: int, kv_heads: int, multiple: int) -> str:
    """Numbers of heads for this width, and widths for so many heads, whose heads hold a multiple of numbers."""
    fitting = [d for d in _divisors(width) if width // d % multiple == 0 and d % kv_heads == 0]
    others = _around(heads, fitting)
    return f"{f'heads {_or(others)}, or ' if others else ''}width {_or(_multiples(width, heads * multiple))}"


def _multiples(number: int, step: int) -> list[int]:
    """The multiples of a step around a number."""
    return _around(number, [number // step * step, (number // step + 1) * step])


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def _around(number: int, candidates: Sequence[int]) -> list[int]:
    """The nearest candidate below (above zero) and above, not the number itself."""
    below, above = [c for c in candidates if 0 < c < number], [c for c in candidates if c > number]
    return below[-1:] + above[:1]


def _or(numbers: Sequence[int]) -> str:
    return " or ".join(map(str, numbers))
