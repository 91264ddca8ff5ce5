"""Pictures of measured costs: how layers scale, and where linear attention crosses softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from seqlab.pages.canvas import blank_figure, plain, png
from seqlab.pages.charts import COLOURS, INK

MARKS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True)
class Line:
    """Something measured at some sizes, and what a formula gives there, in the same unit."""

    name: str
    sizes: Sequence[float]
    values: Sequence[float]
    formula: Sequence[float] = ()
    crossing: float | None = None  # the size that is marked


@dataclass(frozen=True)
class Panel:
    title: str
    across: str  # the axis below, with its unit
    up: str
    lines: Sequence[Line] = field(default_factory=tuple)


def cost_picture(
    panels: Sequence[Panel], *, columns: int, formula: str | None = None, crossing: str | None = None
) -> bytes:
    """A panel beside the other, both axes logarithmic, as PNG.

    `formula` says what the thin dashed lines are, `crossing` what the dotted ones are.
    """
    columns = min(columns, len(panels))
    down = -(-len(panels) // columns)
    figure = blank_figure(3.5 * columns + 0.3, 2.9 * down + 0.8)
    figure.get_layout_engine().set(h_pad=0.1, w_pad=0.1)
    grid = figure.subplots(down, columns, squeeze=False)
    colours = _colours(panels)
    for number, axes in enumerate(grid.flat):
        if number < len(panels):
            _draw(axes, panels[number], colours)
        else:
            axes.set_visible(False)
    handles: dict[str, Any] = {}
    for axes in grid.flat:
        handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    for words, style in ((formula, "--"), (crossing, ":")):
        if words is not None:
            (handles[words],) = grid.flat[0].plot([], [], color=INK, linewidth=1.0, linestyle=style)
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=min(4, len(handles)),
        frameon=False,
        fontsize=9,
    )
    return png(figure)


def _colours(panels: Sequence[Panel]) -> dict[str, int]:
    """Every name keeps its colour in all panels."""
    names = dict.fromkeys(line.name for panel in panels for line in panel.lines)
    return {name: number for number, name in enumerate(names)}


def _draw(axes: Any, panel: Panel, colours: dict[str, int]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

    places = sorted({size for line in panel.lines for size in line.sizes})
    for line in panel.lines:
        number = colours[line.name]
        colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
        if line.formula:
            axes.plot(line.sizes, line.formula, color=colour, linewidth=1.0, linestyle="--", alpha=0.8)
        axes.plot(line.sizes, line.values, color=colour, marker=mark, markersize=4, linewidth=1.6, label=line.name)
        if line.crossing is not None:
            axes.axvline(line.crossing, color=colour, linewidth=1.0, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_locator(LogLocator(subs=(1,) if _decades(panel) > 1.5 else (1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=8, labelcolor=INK)
    axes.set_xlabel(panel.across, fontsize=9, color=INK)
    axes.set_ylabel(panel.up, fontsize=9, color=INK)
    axes.set_title(panel.title, color=INK, fontsize=10, parse_math=False)
    plain(axes)


def _decades(panel: Panel) -> float:
    """How many powers of ten lie between the smallest and the largest value."""
    from math import log10

    values = [value for line in panel.lines for value in (*line.values, *line.formula)]
    return log10(max(values) / min(values))
