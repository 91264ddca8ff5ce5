"""Which surprisals the colours of a heat map run over."""

from __future__ import annotations

import re
from dataclasses import dataclass

from seqlab.core.errors import UsageError
from seqlab.core.settings.fields import setting

BitRange = tuple[float, float]
RANGES: tuple[BitRange, ...] = ((0, 2), (0, 4), (0, 8), (0, 16), (0, 32))  # in bits; every page offers them
WITHIN = 0.95  # of the tokens lie below the upper end of the range that is chosen where nobody says
MOST_BITS = 1000.0


def parse_range(text: str) -> BitRange:
    """``0-8`` or ``2.5-10``: bits from which and up to which colours change."""
    match = re.fullmatch(r"\s*(\d*\.?\d+)\s*[-–]\s*(\d*\.?\d+)\s*", text)
    low, high = (float(match[1]), float(match[2])) if match else (0.0, 0.0)
    if not low < high <= MOST_BITS:
        raise UsageError(
            f"--heat-range '{text}' is not understood; give two numbers of bits up to {MOST_BITS:,.0f}, such as 0-8"
        )
    return low, high


@dataclass(frozen=True)
class HeatSettings:
    heat_range: str | None = setting(
        None,
        f"bits over which the colours of --html run, such as 0-8 (default: {', '.join(f'{a}-{b}' for a, b in RANGES)}, "
        f"the first that holds {WITHIN:.0%} of the tokens; the page lets you choose among them)",
        check=parse_range,
    )
