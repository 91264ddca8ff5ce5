"""Any text, cut into tokens anywhere, also inside a character, and some tokens without bytes."""

import numpy as np
from hypothesis import strategies as st

from seqlab.core.types import Surprisals

texts = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \n\r\tAa1.é日😀<&"), min_size=1, max_size=60
)


def random_surprisals(text: str, data: st.DataObject) -> Surprisals:
    """Spans that partition the text's bytes, with arbitrary nats."""
    n = len(text.encode())
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=n + 3)))
    edges = np.array([0, *cuts, n])
    count = len(edges) - 1
    nats = np.array(data.draw(st.lists(st.floats(0, 30), min_size=count, max_size=count)))
    unknown = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    return Surprisals(nats, edges[:-1], edges[1:], unknown, np.zeros(count))
