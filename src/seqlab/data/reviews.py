"""The table of film reviews that a package brings: columns text, label (0 or 1) and source."""

import csv
import io
from collections.abc import Callable

COLUMNS = ("text", "label")
LABELS = {"0": "negative", "1": "positive"}


def reviews_from(source: str) -> Callable[[bytes], str]:
    """What makes a table (columns text and label) of the rows of one source, in their order.

    A review stands as it was written, but for the HTML breaks in it: each becomes a newline.
    """

    def table(content: bytes) -> str:
        out = io.StringIO(newline="")
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in csv.DictReader(io.StringIO(content.decode("utf-8"), newline="")):
            if row["source"] == source:
                writer.writerow((row["text"].replace("<br />", "\n"), LABELS[row["label"]]))
        return out.getvalue()

    return table
