"""What every picture shares: an empty figure, plain axes, long names on several lines, PNG bytes."""

from __future__ import annotations

import contextlib
import io
import logging
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any

from seqlab.pages.fonts import give_fonts

DPI = 150  # pixels of an inch


def blank_figure(width: float, height: float) -> Any:
    """A figure of so many inches, which no window ever shows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain(axes: Any) -> None:
    """A faint grid behind the data, no frame above and to the right."""
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def png(figure: Any) -> bytes:
    """The picture, the same bytes each time. A letter that no font has becomes a box, without a word about it."""
    buffer = io.BytesIO()
    with _quiet():
        give_fonts(figure)
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Nothing is said about fonts: which letters none has, which weight was taken for another."""
    log = logging.getLogger("matplotlib.font_manager")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
            yield
    finally:
        log.setLevel(level)


def folded(name: str, width: int) -> str:
    """A long name on several lines."""
    return "\n".join(textwrap.wrap(name, width)) or name
