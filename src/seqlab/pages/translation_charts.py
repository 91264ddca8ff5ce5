"""Pictures of a translator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from seqlab.pages.canvas import blank_figure, plain, png
from seqlab.pages.charts import HEAT, INK, TRAIN, VALIDATION


def score_curve(points: Sequence[tuple[float, float]], copying: float) -> bytes:
    """BLEU of greedy translations of some validation sentences against training time, beside copying, as PNG."""
    figure = blank_figure(7.2, 3.6)
    axes = figure.subplots()
    minutes = points[-1][0] > 300
    scale, unit = (60.0, "minutes") if minutes else (1.0, "seconds")
    axes.plot(
        [x / scale for x, _ in points], [y for _, y in points], color=TRAIN, marker="o", markersize=3.5, label="model"
    )
    axes.axhline(copying, color=VALIDATION, linewidth=1.2, linestyle="--", label=f"copying the source: {copying:.1f}")
    axes.set_xlabel(f"training time ({unit})")
    axes.set_ylabel("BLEU (validation, greedy)")
    axes.set_xlim(left=0)
    plain(axes)
    axes.legend(frameon=False, loc="best")
    return png(figure)


def alignment_picture(source: Sequence[str], target: Sequence[str], weights: NDArray[Any], words: str) -> bytes:
    """For each piece of the translation (a row) its attention to each piece of the source, as PNG."""
    from matplotlib.colors import LinearSegmentedColormap

    figure = blank_figure(2.6 + 0.34 * len(source), 1.9 + 0.26 * len(target))
    axes = figure.subplots()
    image = axes.imshow(weights, cmap=LinearSegmentedColormap.from_list("heat", HEAT), vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(source)), source, rotation=60, ha="right", rotation_mode="anchor", parse_math=False)
    axes.set_yticks(range(len(target)), target, parse_math=False)
    axes.tick_params(length=0, labelsize=8.5, labelcolor=INK)
    axes.set_xlabel("source")
    axes.set_ylabel("translation")
    axes.set_title(words, color=INK, fontsize=10)
    figure.colorbar(image, ax=axes, label="share of attention")
    return png(figure)
