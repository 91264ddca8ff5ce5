"""The text, ready to train on: split, tokenizer, ids, and what the parts share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

from seqlab.core.errors import DataError, UsageError
from seqlab.core.files import canonical_json, make_folder, sha256_of, write_bytes
from seqlab.core.registry import TOKENIZERS, look_up
from seqlab.core.reporting import Reporter
from seqlab.core.settings import LMSettings, TokenizerSettings, default_vocab_size, fitted
from seqlab.core.units import parse_split
from seqlab.data.cache import cache_folder
from seqlab.data.overlap import Overlap, shared_passages
from seqlab.data.prepare import PARTS, Bounds, Part, pieces_of, prepare, read_slice, split_bounds
from seqlab.data.sources import Text
from seqlab.data.tokenizers import Tokenizer


@dataclass(frozen=True)
class Prepared:
    text: Text
    tokenizer: Tokenizer
    parts: dict[str, Part]
    overlap: Overlap
    bounds: Bounds

    def read(self, name: str) -> str:
        """The text of one part."""
        return read_slice(self.text, self.bounds[name])

    @classmethod
    def of(cls, text: Text, settings: LMSettings, tokenizer: Tokenizer | None, reporter: Reporter) -> Prepared:
        bounds = _checked_bounds(text, settings.data.split)
        tokenizer = tokenizer or _fitted_tokenizer(text, bounds["train"], settings.tokenizer, reporter)
        with reporter.task("encoding", text.bytes):
            parts = prepare(text, tokenizer, bounds, _adding_up(reporter))
        return cls(text, tokenizer, parts, _overlap(text, bounds), bounds)


def _checked_bounds(text: Text, split: str) -> Bounds:
    shares = dict(zip(PARTS, parse_split(split), strict=True))
    bounds = split_bounds(text, (shares["train"], shares["validation"], shares["test"]))
    for name, (start, end) in bounds.items():
        if start == end and shares[name] > 0:
            raise DataError(f"{text.name} has {text.bytes:,} bytes: too few for a {name} part with --split {split}")
    return bounds


def _fitted_tokenizer(
    text: Text, bounds: tuple[int, int], settings: TokenizerSettings, reporter: Reporter
) -> Tokenizer:
    size = bounds[1] - bounds[0]
    kind = fitted(settings.kind)
    tokenizer_type = look_up(TOKENIZERS, kind, "tokenizer")
    if settings.vocab_size is not None and tokenizer_type.least_vocab_size is None:
        raise UsageError(f"--vocab-size is not a choice for the tokenizer '{kind}'; leave it out")
    wanted = settings.vocab_size or default_vocab_size(kind, size)
    with reporter.task("learning the tokenizer", size):
        advance = _adding_up(reporter)

        def watched() -> Iterator[str]:
            for piece in pieces_of(text, bounds):
                yield piece
                advance(len(piece))

        learnt: Tokenizer = tokenizer_type.fit(watched(), wanted)
    if settings.vocab_size is not None and learnt.vocab_size < settings.vocab_size:
        reporter.note(
            f"--vocab-size {settings.vocab_size:,} is more than the training text has: "
            f"the vocabulary holds {learnt.vocab_size:,} tokens"
        )
    return learnt


def _adding_up(reporter: Reporter) -> Callable[[int], None]:
    """A callback that takes amounts and reports their sum."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        reporter.advance(done)

    return advance


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
