"""Pictures of costs: operations and bytes of every part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from seqlab.pages.canvas import blank_figure, plain, png

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")  # of Okabe and Ito's palette: the layers of a bar
INK = "#222222"
SCALES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
LABEL_SHARE = 0.012  # of the longest bar, between its end and its figure


def parts_picture(names: Sequence[str], layers: Mapping[str, Sequence[float]], *, label: str, unit: str) -> bytes:
    """A bar for each part, made of `layers` (name -> a value of each part), with its total at its end, as PNG.

    `unit` is FLOP or B; the axis takes the prefix (M, G …) that fits the longest bar.
    """
    totals = np.sum([list(values) for values in layers.values()], axis=0)
    longest = float(totals.max(initial=0.0)) or 1.0
    scale, prefix = next(((size, letter) for size, letter in SCALES if longest >= size), (1.0, ""))
    figure = blank_figure(5.8, 1.5 + 0.32 * len(names))
    axes = figure.subplots()
    left = np.zeros(len(names))
    for (name, values), colour in zip(layers.items(), COLOURS, strict=False):
        lengths = np.asarray(values, float) / scale
        axes.barh(range(len(names)), lengths, left=left, height=0.68, color=colour, label=name)
        left += lengths
    for row, total in enumerate(totals / scale):
        axes.text(total + LABEL_SHARE * longest / scale, row, f"{total:.3g}", va="center", fontsize=9, color=INK)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, 1.14 * longest / scale)
    axes.set_xlabel(f"{label} ({prefix}{unit})")
    plain(axes)
    if len(layers) > 1:
        figure.legend(loc="outside upper center", ncols=len(layers), frameon=False)
    return png(figure)
