"""The text that the benchmarks share: the first million bytes of Shakespeare, in a file of its own."""

import tempfile
from pathlib import Path

from seqlab.data.corpora import load_corpus

MILLION = 1_000_000


def first_million_bytes() -> Path:
    path = Path(tempfile.gettempdir()) / "seqlab-bench-shakespeare-1MB.txt"
    content = load_corpus("shakespeare").path.read_bytes()[:MILLION]
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)
    return path
