"""The pages of `cost --scaling` and `cost --crossover`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from seqlab.diagnostics.crossover import Crossover, Curve
from seqlab.diagnostics.scaling import Growth
from seqlab.pages.cost_measured_charts import Line, Panel, cost_picture
from seqlab.pages.render import embedded, render
from seqlab.workflows.cost import crossover_words, scaling_words

MILLISECOND, MEGABYTE = 1e-3, 1e6
UNITS = {"forward": MILLISECOND, "training": MILLISECOND, "bytes": MEGABYTE}
LABELS = {"forward": "forward (ms)", "training": "forward + backward (ms)", "bytes": "peak of a step (MB)"}


# --------------------------------------------------------------------------- scaling


def scaling_page(found: Any) -> str:
    axes = dict.fromkeys(growth.axis for growth in found.growths)
    return render(
        "cost_measured.html.j2",
        title="How layers scale, measured",
        pictures=[_scaling_picture(found.growths, axis) for axis in axes],
        reasons=[scaling_words.why(growth) for growth in found.growths if growth.word != "agrees"],
        texts=4,
        widest=66,
        **_shared(found),
    )


def _shared(found: Any) -> dict[str, Any]:
    names = ("basis", "answer", "header", "rows", "notes")
    return {name: getattr(found, name) for name in names}


def _scaling_picture(growths: Sequence[Growth], axis: str) -> tuple[str, str, str]:
    """Forward pass, step and bytes beside each other."""
    own = [growth for growth in growths if growth.axis == axis]
    across = f"{axis} {scaling_words.SYMBOLS[axis]}"
    panels = [
        Panel(what, across, LABELS[what], [_measured_line(growth) for growth in own if growth.what == what])
        for what in dict.fromkeys(growth.what for growth in own)
    ]
    picture = cost_picture(panels, columns=3, formula="formula, through the largest size")
    return f"Against {axis}", f"Time and memory against {axis}", embedded(picture)


def _measured_line(growth: Growth) -> Line:
    """The formula has another unit; it is drawn through what was measured at the largest size."""
    unit, scale = UNITS[growth.what], growth.measured[-1] / growth.counted[-1]
    return Line(
        scaling_words.layer_name(growth.layer),
        growth.sizes,
        [value / unit for value in growth.measured],
        [value * scale / unit for value in growth.counted],
    )


# --------------------------------------------------------------------------- crossover


def crossover_page(found: Any) -> str:
    seconds = [place for place in _places(found.curves) if place[0] != "bytes"]
    memory = [place for place in _places(found.curves) if place[0] == "bytes"]
    pictures = [
        ("Seconds against length", "Seconds of softmax and linear attention against length", seconds),
        ("Memory against length", "Peak memory of a training step against length", memory),
    ]
    return render(
        "cost_measured.html.j2",
        title="Where linear attention becomes worth it",
        pictures=[(name, alt, embedded(_curves_picture(found, places))) for name, alt, places in pictures],
        reasons=[],
        texts=3,
        widest=50,
        **_shared(found),
    )


def _places(curves: Sequence[Curve]) -> list[tuple[str, bool]]:
    return list(dict.fromkeys((curve.what, curve.causal) for curve in curves))


def _curves_picture(found: Any, places: Sequence[tuple[str, bool]]) -> bytes:
    panels = []
    for what, causal in places:
        name = f"{crossover_words.WHATS[what]}, {crossover_words.attention(causal)}"
        crossed = {one.kind: one for one in found.found if (one.what, one.causal) == (what, causal)}
        own = [curve for curve in found.curves if (curve.what, curve.causal) == (what, causal)]
        lines = [_curve_line(curve, crossed.get(curve.kind)) for curve in own]
        panels.append(Panel(name, "length n (positions)", LABELS[what], lines))
    marked = any(line.crossing is not None for panel in panels for line in panel.lines)
    return cost_picture(panels, columns=2, crossing="crosses softmax" if marked else None)


def _curve_line(curve: Curve, crossed: Crossover | None) -> Line:
    """A dotted line stands where it crosses softmax."""
    inside = crossed is not None and 0 < crossed.length < math.inf
    values = [value / UNITS[curve.what] for value in curve.medians]
    place = crossed.length if crossed is not None and inside else None
    return Line(crossover_words.KINDS[curve.kind], curve.lengths, values, crossing=place)
