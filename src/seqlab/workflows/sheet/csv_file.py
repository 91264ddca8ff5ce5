"""Per-token surprisals as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

from seqlab.core.files import write_text
from seqlab.workflows.sheet.sheet import Scored

COLUMNS = ("model", "text", "token", "start", "end", "unknown", "nats", "bits", "spelling_nats", "restoration_nats")


def write_csv(path: str | Path, scored: Sequence[Scored]) -> None:
    """One line for each token: what it cost, and the bytes of the text that it covers."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")  # so that a bare return in a token is quoted too
    writer.writerow((*COLUMNS, "written"))
    for one in scored:
        table, content = one.surprisals, one.content.encode()
        undo = [0.0] * len(table) if table.restoration is None else table.restoration.tolist()
        columns = (table.start.tolist(), table.end.tolist(), table.unknown.tolist(), table.nats.tolist())
        rows = zip(*columns, table.spelling.tolist(), undo, strict=True)
        for k, (start, end, unknown, nats, spelling, restoration) in enumerate(rows):
            figures = (repr(nats), repr(nats / math.log(2)), repr(spelling), repr(restoration))
            written = content[start:end].decode("utf-8", "replace")
            writer.writerow((one.reader.name, one.text.name, k, start, end, int(unknown), *figures, written))
    write_text(path, out.getvalue())
