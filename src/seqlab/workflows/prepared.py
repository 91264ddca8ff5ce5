"""The text, ready to train on: split, tokenizer, ids, and what the parts share."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import numpy as np

from seqlab.core.errors import DataError
from seqlab.core.files import canonical_json, make_folder, sha256_of, write_bytes
from seqlab.core.reporting import Reporter
from seqlab.core.settings import LMSettings
from seqlab.core.units import parse_split
from seqlab.data.cache import cache_folder
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
    overlap: Overlap

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
        reporter.start("encoding", text.bytes)

        def advance(count: int) -> None:
            nonlocal done
            done += count
            reporter.advance(done)

        parts = prepare(text, tokenizer, bounds, advance)
        reporter.finish()
        return cls(text, tokenizer, parts, _overlap(text, bounds))


def _overlap(text: Text, bounds: Bounds) -> Overlap:
    """What the held-out parts share with the training part; remembered, since a large text takes a while."""
    cut = bounds["train"][1]
    path = cache_folder() / "overlaps" / f"{sha256_of(canonical_json([text.sha256, cut]))[:32]}.json"
    try:
        return Overlap(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):  # not there, or not whole
        content = np.memmap(text.path, np.uint8, mode="r")
        found = shared_passages(content[:cut], content[cut:])
        make_folder(path.parent)
        write_bytes(path, canonical_json(asdict(found)))
        return found
