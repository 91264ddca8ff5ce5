"""Pictures of approximated attention: what it misses by, against the number of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqlab.pages.canvas import blank_figure, plain, png
from seqlab.pages.charts import COLOURS, INK

ACROSS = 3  # panels side by side
LEAST, NARROWEST = 1e-6, 2.5  # what is smaller is nothing; so much is between the ends of an axis
Point = tuple[float, float, float, float]  # m, mean, low, high
MARKS = {"independent": "o", "orthogonal": "s"}


@dataclass(frozen=True)
class Panel:
    title: str
    curves: Mapping[str, Sequence[Point]]  # kind of directions -> points
    uniform: float
    separable: float


def approximation_picture(panels: Sequence[Panel]) -> bytes:
    """A panel for each head or logit scale, both axes logarithmic, as PNG."""
    across = 2 if len(panels) == 4 else min(ACROSS, len(panels))
    down = -(-len(panels) // across)
    figure = blank_figure(max(3.1 * across, 5.2) + 0.4, 2.5 * down + 0.7)
    grid = figure.subplots(down, across, squeeze=False)
    for number, axes in enumerate(grid.flat):
        if number >= len(panels):
            axes.set_visible(False)
            continue
        _draw(axes, panels[number])
        if number + across >= len(panels):
            axes.set_xlabel("random features m", fontsize=9)
        if number % across == 0:
            axes.set_ylabel("mean total variation", fontsize=9)
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return png(figure)


def _draw(axes: Any, panel: Panel) -> None:
    from matplotlib.ticker import FixedLocator, FormatStrFormatter, FuncFormatter, LogLocator, NullFormatter

    places = sorted({m for points in panel.curves.values() for m, *_ in points})
    axes.axhline(
        panel.uniform, color=INK, linestyle="--", linewidth=1.5, label="uniform attention: above it, worthless"
    )
    axes.axhline(panel.separable, color=COLOURS[2], linestyle=":", linewidth=2.0, label="separable attention")
    for colour, (name, points) in zip(COLOURS, panel.curves.items(), strict=False):
        m, mean, low, high = zip(*points, strict=True)
        spread = [[a - b for a, b in zip(mean, low, strict=True)], [b - a for a, b in zip(mean, high, strict=True)]]
        look: dict[str, Any] = {"marker": MARKS[name], "markersize": 4.5, "capsize": 2.5, "linewidth": 1.6}
        axes.errorbar(m, mean, yerr=spread, color=colour, label=f"random features, {name}", **look)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_major_formatter(FormatStrFormatter("%d"))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    bottom, top = _range(panel)
    axes.set_ylim(bottom, top)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if top > 8 * bottom else (1, 2, 3, 4, 5, 6, 8)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=8.5, labelcolor=INK)
    axes.set_title(panel.title, color=INK, fontsize=9.5, parse_math=False)
    plain(axes)


def _range(panel: Panel) -> tuple[float, float]:
    """From below the smallest error that is not nothing to above the largest, over a factor of NARROWEST at least."""
    points = [point for some in panel.curves.values() for point in some]
    levels = [panel.uniform, panel.separable, *(mean for _, mean, _, _ in points)]
    high = 1.15 * max(*levels, *(point[3] for point in points), 10 * LEAST)
    low = min((value for value in levels if value > LEAST), default=high)
    return min(0.85 * low, high / NARROWEST), high
