"""The text, ready to train on: split, tokenizer, ids, and what the parts share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqlab.core.errors import DataError
from seqlab.core.reporting import Reporter
from seqlab.core.settings import LMSettings
from seqlab.core.units import parse_split
from seqlab.data.overlap import Overlap, shared_passages
from seqlab.data.prepare import Bounds, Part, pieces_of, prepare, split_bounds
from seqlab.data.sources import Text
from seqlab.data.tokenizers import Tokenizer
from seqlab.workflows.vocabulary import fit_tokenizer


@dataclass(frozen=True)
class Prepared:
    text: Text
    tokenizer: Tokenizer
    parts: dict[str, Part]
    overlap: Overlap | None

    @classmethod
    def of(cls, text: Text, settings: LMSettings, tokenizer: Tokenizer | None, reporter: Reporter) -> Prepared:
        bounds = split_bounds(text, parse_split(settings.data.split))
        for name in ("train", "validation"):
            if bounds[name][0] == bounds[name][1]:
                size = f"{text.name} has {text.bytes:,} bytes"
                raise DataError(f"{size}: too few for a {name} part with --split {settings.data.split}")
        if tokenizer is None:
            wanted = settings.tokenizer
            tokenizer = fit_tokenizer(
                wanted.kind, wanted.vocab_size, pieces_of(text, bounds["train"]), bounds["train"][1]
            )
        done = 0
        reporter.start("encoding", text.bytes, "bytes")

        def advance(count: int) -> None:
            nonlocal done
            done += count
            reporter.advance(done)

        parts = prepare(text, tokenizer, bounds, advance)
        reporter.finish()
        return cls(text, tokenizer, parts, _overlap(text, bounds))


def _overlap(text: Text, bounds: Bounds) -> Overlap | None:
    """What the held-out parts share with the training part."""
    if bounds["train"][1] == text.bytes:
        return None
    content = np.memmap(text.path, np.uint8, mode="r")
    return shared_passages(content[: bounds["train"][1]], content[bounds["train"][1] :])
