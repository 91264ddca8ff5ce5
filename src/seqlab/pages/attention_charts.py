"""Pictures of attention: maps of heads, where they look, what the loss is without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from seqlab.pages.canvas import blank_figure, folded, plain, png
from seqlab.pages.charts import HEAT, INK, TRAIN, VALIDATION

UNSETTLED = "#9aa3ad"
ACROSS = 2  # maps side by side


def _heat() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("heat", HEAT)


def head_maps(
    names: Sequence[str], queries: Sequence[str], keys: Sequence[str], weights: NDArray[Any], asked: str
) -> bytes:
    """One map for each head, as PNG: a row for each token that asks, a column for each that is asked.    (N, T, S)"""
    from matplotlib.colors import PowerNorm  # small shares are to be seen too

    across = min(ACROSS, len(names))
    down = -(-len(names) // across)
    width, height = 1.7 + 0.2 * len(keys), 1.6 + 0.2 * len(queries)
    figure = blank_figure(across * width + 0.8, down * height)
    grid = figure.subplots(down, across, squeeze=False)
    image = None
    for number, axes in enumerate(grid.flat):
        if number >= len(names):
            axes.set_visible(False)
            continue
        image = axes.imshow(weights[number], cmap=_heat(), norm=PowerNorm(0.5, 0, 1), aspect="auto")
        axes.set_xticks(range(len(keys)), keys, rotation=90, parse_math=False)
        axes.set_yticks(range(len(queries)), queries, parse_math=False)
        axes.tick_params(length=0, labelsize=8.5, labelcolor=INK)
        axes.set_title(names[number], color=INK, fontsize=10.5)
        axes.set_xlabel("attended to", fontsize=9)
        axes.set_ylabel(asked, fontsize=9)
    figure.colorbar(image, ax=grid, label="share of attention", shrink=min(1.0, 1.6 / down), aspect=30)
    return png(figure)


def change_chart(
    names: Sequence[str], means: Sequence[float], lows: Sequence[float], highs: Sequence[float], unit: str
) -> bytes:
    """By how much the loss is higher without each head, with its interval, as PNG."""
    figure = blank_figure(8.0, 1.2 + 0.24 * len(names))
    axes = figure.subplots()
    places = list(range(len(names)))
    ends = list(zip(lows, highs, strict=True))
    colours = [TRAIN if low > 0 else VALIDATION if high < 0 else UNSETTLED for low, high in ends]
    spread = [[m - low for m, low in zip(means, lows, strict=True)], [h - m for h, m in zip(highs, means, strict=True)]]
    axes.barh(places, means, color=colours, xerr=spread, error_kw={"ecolor": INK, "capsize": 2, "linewidth": 1})
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(places, names, parse_math=False)
    axes.invert_yaxis()
    axes.tick_params(labelsize=8, labelcolor=INK)
    axes.set_xlabel(f"loss without the head, minus the loss with it ({unit}); grey: could be none")
    plain(axes)
    return png(figure)


def place_chart(names: Sequence[str], places: Sequence[str], shares: NDArray[Any]) -> bytes:
    """How much of each head's attention goes to each kind of place, as PNG; NaN where there is no such place."""
    figure = blank_figure(2.2 + 0.95 * len(places), 1.7 + 0.24 * len(names))
    axes = figure.subplots()
    image = axes.imshow(100 * shares, cmap=_heat(), vmin=0, vmax=100, aspect="auto")
    for row in range(len(names)):
        for column in range(len(places)):
            value = shares[row, column]
            if value == value:
                axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", fontsize=7, color=INK)
    axes.set_xticks(range(len(places)), [folded(place, 12) for place in places])
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.tick_params(length=0, labelsize=8, labelcolor=INK)
    figure.colorbar(image, ax=axes, label="share of attention (%)")
    return png(figure)
