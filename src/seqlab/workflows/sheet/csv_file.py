"""Surprisals as CSV: of every token, or of every block that intervals rest on."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

from seqlab.core.files import write_text
from seqlab.workflows.sheet.scored import Scored

COLUMNS = ("model", "text", "token", "start", "end", "unknown", "nats", "bits", "spelling_nats", "restoration_nats")
BLOCK_COLUMNS = ("model", "text", "document", "block", "start", "end", "nats", "bits_per_byte")


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


def write_blocks_csv(path: str | Path, scored: Sequence[Scored]) -> None:
    """One line for each block of each text: the bytes that it covers, and what a model paid for them."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(BLOCK_COLUMNS)
    for one in scored:
        edges, bits = one.edges.tolist(), (one.blocks / one.sizes / math.log(2)).tolist()
        columns = zip(one.documents.tolist(), edges, edges[1:], one.blocks.tolist(), bits, strict=False)
        for k, (document, start, end, nats, per_byte) in enumerate(columns):
            figures = (repr(nats), repr(per_byte))
            writer.writerow((one.reader.name, one.text.name, document, k, start, end, *figures))
    write_text(path, out.getvalue())
