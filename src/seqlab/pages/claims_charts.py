"""Pictures of claims: verdicts by kind of proof, simulated figures against what they must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqlab.pages.canvas import blank_figure, plain, png
from seqlab.pages.charts import COLOURS, INK

OF_VERDICT = (COLOURS[0], COLOURS[4], COLOURS[1], "#8a8f98")  # true, conditional, false, empirical


def verdicts_picture(counts: Mapping[str, Mapping[str, int]]) -> bytes:
    """Kind of proof -> verdict -> how many claims, as bars, PNG."""
    kinds, verdicts = list(counts), list(dict.fromkeys(name for row in counts.values() for name in row))
    figure = blank_figure(8.6, 1.3 + 0.42 * len(kinds))
    axes = figure.subplots()
    ends = np.zeros(len(kinds))
    for number, verdict in enumerate(verdicts):
        values = np.array([counts[kind].get(verdict, 0) for kind in kinds])
        if not values.any():
            continue
        colour = OF_VERDICT[number % len(OF_VERDICT)]
        axes.barh(range(len(kinds)), values, left=ends, height=0.7, color=colour, label=verdict)
        ends += values
    for place, total in enumerate(ends):
        axes.annotate(f"{total:.0f}", (total, place), xytext=(5, 0), textcoords="offset points", va="center", color=INK)
    axes.set_yticks(range(len(kinds)), kinds, parse_math=False, fontsize=9)
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.margins(x=0.08)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("claims (number)", color=INK)
    plain(axes)
    figure.legend(loc="outside upper center", ncols=len(verdicts), frameon=False, fontsize=9)
    return png(figure)


@dataclass(frozen=True)
class Simulated:
    """A simulated figure with its interval, and the values that it may have."""

    name: str
    value: float
    interval: tuple[float, float]
    wanted: tuple[float, float]


def intervals_picture(figures: Sequence[Simulated]) -> bytes:
    """Each figure's interval on a scale of its own: 0 what it must be, ±1 the half width of its interval, as PNG."""
    figure = blank_figure(8.6, 1.2 + 0.2 * len(figures))
    axes = figure.subplots()
    for place, one in enumerate(figures):
        low, high = one.interval
        half = (high - low) / 2 or 1.0
        nearest = min(max(one.value, one.wanted[0]), one.wanted[1])
        centre = (one.value - nearest) / half
        axes.plot([(low - nearest) / half, (high - nearest) / half], [place, place], color=COLOURS[0], linewidth=2.4)
        axes.plot(centre, place, "o", color=INK, markersize=3.5)
    axes.axvline(0, color=COLOURS[1], linewidth=1.2, label="what it must be")
    axes.set_yticks(range(len(figures)), [one.name for one in figures], parse_math=False, fontsize=7)
    axes.set_ylim(len(figures) - 0.5, -0.5)
    axes.set_xlabel("distance from what it must be (half widths of the interval)", color=INK)
    plain(axes)
    figure.legend(loc="outside upper center", frameon=False, fontsize=9)
    return png(figure)
