"""Pictures of experiments: curves with what a formula predicts beside them."""

from __future__ import annotations

from typing import Any

from seqlab.pages.canvas import blank_figure, plain, png

FEW = 20  # points that are marked


def experiment_picture(picture: Any) -> bytes:
    """A picture as an experiment describes it: title, axes, lines; what a formula predicts is dashed."""
    figure = blank_figure(8.0, 4.0)
    axes = figure.add_subplot()
    for line in picture.lines:
        style: dict[str, str] = {"linestyle": "--", "color": "#333333"} if line.dashed else {}
        marker = "o" if len(line.x) <= FEW and not line.dashed else None
        axes.plot(line.x, line.y, label=line.name, linewidth=1.6, marker=marker, markersize=4.5, **style)
    if picture.log_x:
        axes.set_xscale("log")
    if picture.log_y:
        axes.set_yscale("log")
    axes.set_xlabel(picture.x)
    axes.set_ylabel(picture.y)
    axes.set_title(picture.title)
    axes.legend(fontsize=8, loc="best")
    plain(axes)
    return png(figure)
