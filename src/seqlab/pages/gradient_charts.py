"""Pictures of gradients: lag curves, a heat map over time and layers, gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.pages.canvas import blank_figure, plain, png

LEAST = 1e-30  # what is smaller is drawn there
Curves = Mapping[str, NDArray[np.float64]]


def lag_picture(curves: Curves, bounds: Mapping[str, float], title: str) -> bytes:
    """Median and the middle half over sequences, relative to lag 1, on a logarithmic scale; a bound is dashed."""
    figure = blank_figure(9.0, 4.8)
    axes = figure.add_subplot()
    lowest = 1.0
    for number, (name, norms) in enumerate(curves.items()):
        colour = f"C{number % 10}"
        start = max(float(np.median(norms[:, 1])), LEAST)
        low, middle, high = np.maximum(np.quantile(norms, (0.25, 0.5, 0.75), axis=0) / start, LEAST)
        lags = np.arange(norms.shape[1])
        axes.plot(lags[1:], middle[1:], color=colour, label=name)
        axes.fill_between(lags[1:], low[1:], high[1:], color=colour, alpha=0.2, linewidth=0)
        lowest = min(lowest, float(middle[1:].min()))
        if name in bounds:
            bound = np.exp((lags[1:] - 1) * np.log(max(bounds[name], LEAST)))
            shown = bound < 1e6
            axes.plot(
                lags[1:][shown], bound[shown], color=colour, linestyle="--", label=f"bound δ^k, δ = {bounds[name]:.2f}"
            )
    axes.axhline(0.01, color="#555555", linestyle=":", linewidth=1)
    end = max(norms.shape[1] for norms in curves.values())
    axes.text(end, 0.012, "1 %: the horizon", fontsize=8, color="#333333", va="bottom", ha="right")
    axes.set_yscale("log")
    axes.set_ylim(bottom=min(0.003, max(lowest / 3, 1e-18)), top=max(3.0, axes.get_ylim()[1]))
    axes.set_xlabel("lag k = T − t, in positions")
    axes.set_ylabel(r"$\|\partial L_T/\partial h_{T-k}\|$, relative to lag 1")
    axes.set_title(title, parse_math=False)
    plain(axes)
    _legend_below(figure, axes)
    return png(figure)


def heat_picture(curves: Curves, title: str) -> bytes:
    """log₁₀ of the median norm: a row for each layer, a column for each lag."""
    figure = blank_figure(9.0, 2.2 + 0.42 * len(curves))
    axes = figure.add_subplot()
    rows = np.full((len(curves), max(norms.shape[1] for norms in curves.values())), np.nan)  # layers may differ in T
    for row, norms in zip(rows, curves.values(), strict=True):
        row[: norms.shape[1]] = np.log10(np.maximum(np.median(norms, 0), LEAST))
    low, high = float(np.nanmin(rows)), float(np.nanmax(rows))
    limits = {"vmin": min(low, high - 1), "vmax": high}  # a decade at least: what is even should look even
    image = axes.imshow(rows, aspect="auto", cmap="viridis", interpolation="nearest", **limits)
    axes.set_yticks(range(len(curves)), list(curves), fontsize=8)
    axes.set_xlabel("lag, in positions")
    axes.set_title(title)
    figure.colorbar(image, ax=axes, label="log₁₀ of the median norm")
    return png(figure)


def gate_picture(gates: Sequence[tuple[str, Sequence[int]]], title: str) -> bytes:
    """A histogram for each gate, 0 is shut and 1 is open."""
    columns = min(3, len(gates))
    rows = -(-len(gates) // columns)
    figure = blank_figure(3.1 * columns + 0.3, 2.3 * rows + 0.3)
    for number, (name, counts) in enumerate(gates):
        axes = figure.add_subplot(rows, columns, number + 1)
        shares = np.asarray(counts) / max(1, sum(counts))
        edges = np.linspace(0, 1, len(counts) + 1)
        axes.bar(edges[:-1], 100 * shares, width=np.diff(edges), align="edge", color="#3b6ea5")
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("value (0 shut, 1 open)", fontsize=8)
        axes.set_ylabel("share, %", fontsize=8)
        plain(axes)
    figure.suptitle(title, fontsize=10)
    return png(figure)


def memory_picture(
    points: Mapping[str, Sequence[tuple[float, float, float, float]]],
    horizons: Mapping[str, float | None],
    chance: float,
    title: str,
) -> bytes:
    """Accuracy with its interval against the lag; a tick at the top marks the horizon of each untrained model."""
    figure = blank_figure(8.0, 4.2)
    axes = figure.add_subplot()
    last = max(lag for some in points.values() for lag, *_ in some)
    for number, (name, some) in enumerate(points.items()):
        lags, middle, low, high = (np.array(column) for column in zip(*some, strict=True))
        colour = f"C{number}"
        errors = 100 * np.stack([middle - low, high - middle]).clip(min=0)
        axes.errorbar(lags, 100 * middle, yerr=errors, color=colour, marker="o", capsize=2, label=name)
        horizon = horizons[name]
        if horizon is not None and horizon <= 1.1 * last:
            axes.axvline(horizon, ymin=0.94, color=colour, linewidth=3)
    axes.axhline(100 * chance, color="#555555", linestyle=":", linewidth=1)
    axes.text(last, 100 * chance + 1, "chance", fontsize=8, ha="right", color="#333333")
    axes.set_ylim(0, 108)
    axes.set_xlabel("lag, in positions (bars at the top: horizon of the untrained model)")
    axes.set_ylabel("accuracy, %")
    axes.set_title(title, parse_math=False)
    plain(axes)
    _legend_below(figure, axes)
    return png(figure)


def _legend_below(figure: Any, axes: Any) -> None:
    """Beneath the picture, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    across = max(1, min(4, 120 // (8 + max(map(len, labels), default=1))))
    figure.legend(handles, labels, loc="outside lower center", ncols=across, frameon=False, fontsize=8)
