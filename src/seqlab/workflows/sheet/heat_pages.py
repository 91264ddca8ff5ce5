"""The heat map pages of a sheet: one for each model and text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seqlab.core.files import write_text
from seqlab.core.settings.heat import parse_range
from seqlab.workflows.lm.original import text_read
from seqlab.workflows.sheet.heat_map import Colours, bits_of, colours_for, heat_map_page
from seqlab.workflows.sheet.scored import Scored
from seqlab.workflows.sheet.verdicts import about


def write_pages(path: str | Path, scored: Sequence[Scored], heat_range: str | None = None) -> list[str]:
    """`path` itself if there is one model and one text, else path-1, path-2, …; returns what was written where.

    All begin with the same range of colours.
    """
    wanted = [one for one in scored if not one.reader.baseline]
    path = Path(path)
    places = [path] if len(wanted) == 1 else [path.with_stem(f"{path.stem}-{k}") for k in range(1, len(wanted) + 1)]
    asked = None if heat_range is None else parse_range(heat_range)
    colours = colours_for(np.concatenate([bits_of(one.surprisals) for one in wanted]), asked)
    for place, one in zip(places, wanted, strict=True):
        write_text(place, _page(one, colours))
    return [f"{place}: {one.text.name}, read by {one.reader.name}" for place, one in zip(places, wanted, strict=True)]


def _page(one: Scored, colours: Colours) -> str:
    read = None if one.reader.run is None else text_read(one.reader.run)
    interval = one.interval
    return heat_map_page(
        f"{one.text.name}, read by {one.reader.name}",
        one.content,
        one.surprisals,
        counts=None if read is None else Counter(read.split()),
        context=str(one.reader.scorer.policy),
        bits_per_byte=one.figures.bits_per_byte,
        interval=(interval.low, interval.high),
        colours=colours,
        about=about(interval),
    )
