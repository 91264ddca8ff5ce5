"""Pictures of a classifier: what it confuses, how sure it may be, where it fails, and what it is measured against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.pages.canvas import blank_figure, folded, plain, png
from seqlab.pages.charts import COLOURS, HEAT, INK, LINE, VALIDATION

MOST = 20  # classes in a confusion picture
CLEAR = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.5}  # behind a figure on a line
BEFORE, AFTER = COLOURS[1], COLOURS[0]
# A reliability bin: mean confidence, accuracy, the interval of the accuracy, how many texts.
ReliabilityBin = tuple[float, float, float, float, int]


def confusion_picture(counts: NDArray[Any], names: Sequence[str], title: str) -> bytes:
    """Counts (K, K), rows the true class: each cell its count, coloured by its share of the row, as PNG.

    Of more than 20 classes those with most errors, missed or wrongly called, are shown; the shares stay those of
    the whole row.
    """
    from matplotlib.colors import LinearSegmentedColormap

    shares = 100 * counts / counts.sum(1, keepdims=True).clip(1)
    if len(names) > MOST:
        errors = counts.sum(0) + counts.sum(1) - 2 * np.diag(counts)
        kept = np.sort(np.argsort(-errors, kind="stable")[:MOST])
        title += f" (the {MOST} of {len(names):,} classes with most errors)"
        counts, shares, names = counts[np.ix_(kept, kept)], shares[np.ix_(kept, kept)], [names[k] for k in kept]
    kinds = len(names)
    labels = [_short(name) for name in names]
    size = min(1.0, 0.42 + 1.6 / kinds)
    figure = blank_figure(4.2 + size * kinds, 2.9 + size * kinds)
    axes = figure.subplots()
    heat = LinearSegmentedColormap.from_list("heat", HEAT)
    image = axes.imshow(shares, cmap=heat, vmin=0, vmax=100, aspect="auto")
    longest = max(len(f"{int(count):,}") for count in counts.flat)
    points = min(10.0, 72 * size / (0.68 * longest))
    for (row, column), count in np.ndenumerate(counts):
        # The layout need not measure what lies within a cell: that would take seconds.
        look = {"ha": "center", "va": "center", "color": INK, "fontsize": points, "in_layout": False}
        axes.text(column, row, f"{int(count):,}", **look)
    ticks = {"fontsize": 9, "parse_math": False}
    axes.set_xticks(range(kinds), labels, rotation=45, ha="right", rotation_mode="anchor", **ticks)
    axes.set_yticks(range(kinds), labels, **ticks)
    axes.set_xlabel("predicted class", color=INK)
    axes.set_ylabel("true class", color=INK)
    axes.set_title(folded(title, 40 + 5 * kinds), color=INK, fontsize=11, parse_math=False)
    axes.tick_params(length=0)
    figure.colorbar(image, ax=axes, label="share of the true class (% of its texts)")
    return png(figure)


def reliability_picture(
    before: Sequence[ReliabilityBin],
    after: Sequence[ReliabilityBin] | None,
    ece_before: float,
    ece_after: float | None,
    title: str,
    *,
    bins: int = 15,
) -> bytes:
    """Accuracy against confidence, beneath it how many texts are in each of the equal-width bins, as PNG."""
    from matplotlib.transforms import ScaledTranslation

    figure = blank_figure(7.2, 6.4)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    upper.plot([0, 100], [0, 100], color=INK, linewidth=1.0, linestyle=(0, (4, 3)), label="as sure as right")
    series = [("before", before, ece_before, BEFORE, "o", 0.0)]
    if after is not None and ece_after is not None:
        series.append(("after temperature", after, ece_after, AFTER, "s", 0.5))
    for name, rows, error, colour, marker, side in series:
        label = f"{name} (calibration error {100 * error:.1f} %)"
        table = 100 * np.array([row[:4] for row in rows], np.float64).reshape(-1, 4)
        look = {"color": colour, "fmt": marker, "label": label}
        if len(series) > 1:  # a little to either side, so that the bars of equal confidences stay apart
            look["transform"] = upper.transData + ScaledTranslation((side - 0.25) / 8, 0, figure.dpi_scale_trans)
        _points(upper, table[:, 0], table[:, 1], table[:, 2:].T, **look)
        # The mean confidence of a bin lies in it, up to its upper edge.
        places = np.ceil(table[:, 0] / 100 * bins - 1e-9).clip(1) - 1
        width = 100 / bins * (0.9 if len(series) == 1 else 0.45)
        left = 100 * (places + 0.05 + 0.9 * side) / bins
        lower.bar(left, [row[4] for row in rows], width, align="edge", color=colour)
    upper.set_ylabel("accuracy (% of texts)", color=INK)
    upper.set_ylim(-2, 102)
    upper.set_title(folded(title, 80), color=INK, fontsize=11, parse_math=False)
    handles, labels = upper.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    lower.set_xlabel("confidence: probability of the predicted class (%)", color=INK)
    lower.set_ylabel("texts in the bin", color=INK)
    lower.yaxis.get_major_locator().set_params(integer=True)
    lower.set_xlim(-1, 101)
    lower.set_ylim(bottom=0)
    for axes in (upper, lower):
        plain(axes)
    return png(figure)


def slice_picture(rows: Sequence[tuple[str, float, float, float, int]], overall: float) -> bytes:
    """Rows of (name of a slice, error rate, its interval, texts), and the error rate of all texts, as PNG."""
    labels = [f"{folded(name, LINE[1])} (n = {n:,})" for name, _, _, _, n in rows]
    figure, axes = _rows_figure(labels, extra=0.4)
    axes.axvline(100 * overall, color=VALIDATION, linewidth=1.3, label=f"all texts: {100 * overall:.1f} %")
    _row_points(axes, [row[1:4] for row in rows], also=[overall])
    axes.set_xlabel("error rate (% of texts)", color=INK)
    figure.legend(loc="outside upper center", frameon=False)
    return png(figure)


def accuracy_picture(rows: Sequence[tuple[str, float, float, float]]) -> bytes:
    """Rows of (name, accuracy, its interval): the model first, then its baselines, as PNG."""
    figure, axes = _rows_figure([folded(name, LINE[1]) for name, _, _, _ in rows])
    _row_points(axes, [row[1:] for row in rows], first=AFTER)
    axes.set_xlabel("accuracy (% of texts)", color=INK)
    return png(figure)


def _rows_figure(labels: Sequence[str], extra: float = 0.0) -> tuple[Any, Any]:
    """Axes with one labelled row for each name, from top to bottom, and room for names of several lines."""
    lines = max((label.count("\n") + 1 for label in labels), default=1)
    figure = blank_figure(8.4, 1.1 + extra + (0.14 + 0.19 * lines) * max(len(labels), 1))
    axes = figure.subplots()
    axes.set_yticks(range(len(labels)), labels, parse_math=False)
    axes.set_ylim(max(len(labels), 1) - 0.4, -0.6)
    plain(axes)
    return figure, axes


def _row_points(
    axes: Any, rows: Sequence[tuple[float, float, float]], *, also: Sequence[float] = (), first: str = INK
) -> None:
    """A point, its interval and its figure in each row; the axis spans the intervals and what it must `also` show."""
    for place, row in enumerate(rows):
        value, low, high = (100 * share for share in row)
        colour = first if place == 0 else INK
        reach = np.array([[low], [high]])
        _points(axes, np.array([value]), np.array([float(place)]), reach, color=colour, fmt="o", along="x")
        look = {"ha": "center", "fontsize": 8, "color": INK, "bbox": CLEAR}
        axes.annotate(f"{value:.1f}", (value, place), xytext=(0, 6), textcoords="offset points", **look)
    ends = [100 * share for share in (*also, *(share for row in rows for share in row)) if np.isfinite(share)]
    ends = ends or [0.0, 100.0]
    margin = max(1.0, 0.05 * (max(ends) - min(ends)))
    beyond = 0.3 * margin  # room for a point at 0 or 100 %, and no tick there
    axes.set_xlim(max(-beyond, min(ends) - margin), min(100 + beyond, max(ends) + margin))


def _points(
    axes: Any, x: NDArray[Any], y: NDArray[Any], limits: NDArray[Any], *, along: str = "y", **look: Any
) -> None:
    """Points with error bars from limits[0] to limits[1] along one axis; rounding never makes a bar negative."""
    centre = y if along == "y" else x
    reach = np.stack([centre - limits[0], limits[1] - centre]).clip(0)
    axes.errorbar(x, y, **{f"{along}err": reach}, markersize=6, capsize=3, elinewidth=1.3, linestyle="none", **look)


def _short(name: str) -> str:
    """On two lines of 20 characters at most, its beginning and its end, so that long names do not squeeze the cells."""
    lines = folded(name, 20).split("\n")
    return "\n".join(lines) if len(lines) <= 2 else f"{lines[0]}\n…{name[-19:].lstrip()}"
