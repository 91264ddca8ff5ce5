"""Pictures of a run."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.units import human_count
from seqlab.pages.canvas import blank_figure, folded, plain, png

TRAIN, VALIDATION, INK = "#8aa4c8", "#b3392f", "#222222"
# Okabe and Ito's palette, told apart by every eye.
STACKED = ("#d55e00", "#e69f00", "#f0e442", "#cc79a7", "#56b4e9", "#0072b2", "#009e73")
Curve = Sequence[tuple[float, float]]
# Even steps in OKLab from white over yellow, orange and rose to violet: ever darker, so ordered for every eye, and dark
# ink keeps a contrast above 4.5 on the last.
HEAT = ("#ffffff", "#fbfccc", "#fee59b", "#ffc97e", "#ffad76", "#f9947f", "#ee8298", "#da76b5", "#bd6fc9")
LINE = 28, 44  # characters on a line of a short and of a long label


def loss_curve(training: Curve, validation: Curve, *, counted: str, unit: str, title: str) -> bytes:
    """Training and validation loss (in `unit`) against what was trained on (`counted`, such as tokens), as PNG."""
    figure = blank_figure(7.2, 4.0)
    axes = figure.subplots()
    axes.plot(*_columns(training), color=TRAIN, linewidth=1.4, label="training")
    if validation:
        best = min(validation, key=lambda point: point[1])
        axes.plot(*_columns(validation), color=VALIDATION, marker="o", markersize=3.5, label="validation")
        ring = {"markersize": 9, "markerfacecolor": "none", "markeredgewidth": 1.4, "linestyle": "none"}
        axes.plot(*best, marker="o", color=VALIDATION, label=f"best: {best[1]:.3f}", **ring)
    if training:
        axes.set_ylim(*_range_without_first_spike([y for _, y in (*training, *validation)]))
    axes.set_xlabel(f"{counted} trained on")
    axes.set_xlim(left=0)
    count_along(axes)
    axes.set_ylabel(f"loss ({unit.replace('_', ' ')})")
    axes.set_title(title, color=INK, fontsize=11, parse_math=False)
    plain(axes)
    axes.legend(frameon=False, loc="best")
    return png(figure)


def _columns(curve: Curve) -> tuple[list[float], list[float]]:
    return [x for x, _ in curve], [y for _, y in curve]


def count_along(axes: Any) -> None:
    """The axis below counts: 0, 50 K, 1.2 M."""
    from matplotlib.ticker import FuncFormatter

    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: human_count(count)))


@dataclass(frozen=True)
class CurveOfRun:
    """What one run had reached after so many seconds and tokens; what is fitted has one value and no way to it."""

    seconds: list[float]
    counts: list[float]  # of tokens, or of whatever a batch counts
    values: list[float]


# Okabe and Ito's colours, which colour-blind readers tell apart; the dashes help in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", INK)
DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), "-.", (0, (8, 2, 2, 2, 2, 2)), (0, (1, 1)))


def duel_curves(models: dict[str, list[CurveOfRun]], title: str, *, label: str, counted: str) -> bytes:
    """A validation figure against seconds and against tokens: thick the mean over the seeds, thin each seed.

    `label` is what the figure is called, `counted` what a batch counts.
    """
    figure = blank_figure(10.0, 4.4)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, attribute, words in (
        (panels[0], "seconds", "training time (seconds)"),
        (panels[1], "counts", f"{counted} trained on"),
    ):
        for number, (name, runs) in enumerate(models.items()):
            _draw_model(axes, name, runs, attribute, number)
        axes.set_xlabel(words, color=INK)
        axes.set_xlim(left=0)
        plain(axes)
    count_along(panels[1])
    panels[0].set_ylabel(label, color=INK)
    panels[0].set_ylim(*_range_of_curves([run.values for runs in models.values() for run in runs]))
    figure.suptitle(title, color=INK, fontsize=11, parse_math=False)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 5), frameon=False)
    return png(figure)


def _draw_model(axes: Any, name: str, runs: Sequence[CurveOfRun], attribute: str, number: int) -> None:
    look = {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number % len(DASHES)]}
    if not any(len(run.values) > 1 for run in runs):
        level = sum(run.values[-1] for run in runs) / len(runs)
        axes.axhline(level, label=name, linewidth=1.6, **look)
        return
    for run in runs if len(runs) > 1 else ():
        axes.plot(getattr(run, attribute), run.values, linewidth=0.7, alpha=0.45, color=look["color"])
    axes.plot(_mean(runs, attribute), _mean(runs, "values"), label=name, linewidth=2.0, **look)


def _mean(runs: Sequence[CurveOfRun], attribute: str) -> list[float]:
    """Mean over the runs at each validation, as far as all of them went."""
    columns = zip(*(getattr(run, attribute) for run in runs), strict=False)
    return [sum(column) / len(column) for column in columns]


def _range_of_curves(curves: Sequence[Sequence[float]]) -> tuple[float, float]:
    """From the best value up to the worst after a tenth of the way: the first fall is cut off, no later rise is."""
    low = min(min(curve) for curve in curves)
    high = max(max(curve[len(curve) // 10 :]) for curve in curves)
    margin = 0.06 * (high - low) or 0.1
    return low - margin, high + margin


def _range_without_first_spike(values: list[float]) -> tuple[float, float]:
    """The first steps are far above the rest and would flatten the curve."""
    low, ranked = min(values), sorted(values)
    high = ranked[int(0.97 * (len(ranked) - 1))]
    margin = 0.06 * (high - low) or 0.1
    return low - margin, high + margin


def position_picture(
    edges: NDArray[Any], values: NDArray[Any], early_edges: NDArray[Any], early_values: NDArray[Any], mean: float
) -> bytes:
    """Bits per byte along the text: its first stretch in doubling steps, and all of it in equal ones, as PNG."""
    figure = blank_figure(9.6, 3.6)
    early, whole = figure.subplots(1, 2, sharey=True, width_ratios=(2, 3))
    early.bar(np.arange(len(early_values)), early_values, width=0.85, color=TRAIN)
    names = [f"{a:,}–{b:,}" for a, b in itertools.pairwise(early_edges)]
    early.set_xticks(np.arange(len(names)), names, rotation=45, ha="right", rotation_mode="anchor", fontsize=8)
    early.set_xlabel("bytes (the first stretch)")
    early.set_ylabel("loss (bits per byte)")
    scale, unit = (1e6, "million bytes") if edges[-1] >= 2e6 else (1e3, "thousand bytes")
    whole.stairs(values, edges / scale, fill=True, color=TRAIN)
    whole.set_xlim(0, edges[-1] / scale)
    whole.set_xlabel(f"position in the text ({unit})")
    for axes in (early, whole):
        axes.axhline(mean, color=VALIDATION, linewidth=1.2, label=f"whole text: {mean:.3f}")
        plain(axes)
    whole.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
    return png(figure)


def place_picture(names: Sequence[str], values: Sequence[float]) -> bytes:
    """Bits per token against the token's place in its word, as PNG."""
    figure = blank_figure(7.2, 3.0)
    axes = figure.subplots()
    bars = axes.bar(range(len(names)), values, width=0.75, color=TRAIN)
    axes.bar_label(bars, fmt="%.2f", fontsize=8, color=INK, padding=2)
    axes.set_xticks(range(len(names)), [name.replace(" ", "\n", 1) for name in names], fontsize=9)
    axes.set_xlabel("token of the word")
    axes.set_ylabel("loss (bits per token)")
    axes.margins(y=0.12)
    plain(axes)
    return png(figure)


def matrix_picture(
    names_of_models: Sequence[str], names_of_texts: Sequence[str], bits: NDArray[Any], *, title: str
) -> bytes:
    """Every model on every text: bits per byte (M, N), each cell with its figure, as PNG."""
    from matplotlib.colors import LinearSegmentedColormap

    models, texts = ([folded(name, LINE[0]) for name in names] for names in (names_of_models, names_of_texts))
    figure = blank_figure(3.4 + 1.05 * len(texts), 2.4 + 0.72 * len(models))
    axes = figure.subplots()
    image = axes.imshow(bits, cmap=LinearSegmentedColormap.from_list("heat", HEAT), aspect="auto")
    for (row, column), value in np.ndenumerate(bits):
        axes.text(column, row, "–" if np.isnan(value) else f"{value:.2f}", ha="center", va="center", color=INK)
    axes.set_xticks(range(len(texts)), texts, rotation=30, ha="right", rotation_mode="anchor", parse_math=False)
    axes.set_yticks(range(len(models)), models, parse_math=False)
    axes.set_xlabel("text scored")
    axes.set_ylabel("model trained on")
    axes.set_title(folded(title, 32 + 12 * len(texts)), color=INK, fontsize=11, parse_math=False)
    axes.tick_params(length=0)
    figure.colorbar(image, ax=axes, label="loss (bits per byte)")
    return png(figure)


def gap_picture(rows: Sequence[tuple[str, str, Mapping[str, float]]]) -> bytes:
    """What each gap consists of, as PNG: rows of (trained on, text read, class -> bits per byte).

    Classes that make the gap wider are stacked to the right of zero, those that narrow it to the left.
    """
    labels = [
        folded(f"trained on {model},", LINE[1]) + "\n" + folded(f"read {text}", LINE[1]) for model, text, _ in rows
    ]
    lines = max(label.count("\n") + 1 for label in labels)
    figure = blank_figure(10.0, 1.4 + (0.12 + 0.19 * lines) * len(rows))
    axes = figure.subplots()
    ends = {1: np.zeros(len(rows)), -1: np.zeros(len(rows))}
    for name, colour in zip(rows[0][2], STACKED, strict=True):
        shares = np.array([shares[name] for _, _, shares in rows])
        left = np.where(shares < 0, ends[-1], ends[1])
        axes.barh(range(len(rows)), shares, left=left, height=0.7, color=colour, label=name)
        for sign, end in ends.items():
            end += np.where(np.sign(shares) == sign, shares, 0)
    totals = [sum(shares.values()) for _, _, shares in rows]
    axes.plot(totals, range(len(rows)), "D", color=INK, markersize=5, markeredgecolor="white", label="whole gap")
    for row, total in enumerate(totals):
        axes.annotate(f"{total:+.2f}", (ends[1][row], row), xytext=(6, 0), textcoords="offset points", va="center")
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(rows)), labels, parse_math=False)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.margins(x=0.1)
    axes.set_xlabel("gap to the text's own model (bits per byte)")
    plain(axes)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    return png(figure)
