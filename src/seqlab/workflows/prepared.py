"""The text, ready to train on: split, tokenizer, ids, and what the parts share."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

from seqlab.core.errors import DataError, UsageError
from seqlab.core.files import canonical_json, make_folder, sha256_of, write_bytes
from seqlab.core.registry import TOKENIZERS, look_up
from seqlab.core.reporting import Reporter
from seqlab.core.settings import LMSettings, default_vocab_size, fitted
from seqlab.core.units import parse_split
from seqlab.data.cache import cache_folder
from seqlab.data.normalise import normalise, parse_steps
from seqlab.data.overlap import Overlap, shared_passages
from seqlab.data.prepare import PARTS, Bounds, Part, prepare, read_pieces, read_slice, split_bounds
from seqlab.data.sources import Text, keep_text
from seqlab.data.tokenizers import Tokenizer
from seqlab.evaluation.restoration import restoration_costs


@dataclass(frozen=True)
class Undoing:
    """What it costs to restore a normalised part, and the units of the original that the total is spread over."""

    nats: float
    bytes: int
    characters: int
    words: int


@dataclass(frozen=True)
class Prepared:
    text: Text
    tokenizer: Tokenizer
    parts: dict[str, Part]
    overlap: Overlap
    used: Text  # what was encoded: the text itself, or what normalisation made of it
    bounds: Bounds  # of the parts in it
    undoing: dict[str, Undoing]  # of each part, if the text was normalised

    def read(self, name: str) -> str:
        """The text of one part, as it was encoded."""
        return read_slice(self.used, self.bounds[name])

    @classmethod
    def of(cls, text: Text, settings: LMSettings, tokenizer: Tokenizer | None, reporter: Reporter) -> Prepared:
        bounds = _checked_bounds(text, settings.data.split)
        steps = parse_steps(settings.data.normalise)
        used, bounds, undoing = _normalised(text, bounds, steps, reporter) if steps else (text, bounds, {})
        tokenizer = tokenizer or _fitted_tokenizer(used, bounds["train"], settings, reporter)
        with reporter.task("encoding", used.bytes):
            parts = prepare(used, tokenizer, bounds, _adding_up(reporter))
        return cls(text, tokenizer, parts, _overlap(used, bounds), used, bounds, undoing)


def _normalised(
    text: Text, bounds: Bounds, steps: tuple[str, ...], reporter: Reporter
) -> tuple[Text, Bounds, dict[str, Undoing]]:
    """Each part normalised by itself, joined as one text in the cache; the held-out parts with their price."""
    contents: dict[str, bytes] = {}
    undoing: dict[str, Undoing] = {}
    with reporter.task(f"normalising ({', '.join(steps)})", None):
        for name in PARTS:
            original = read_slice(text, bounds[name])
            normalised = normalise(original, steps)
            contents[name] = normalised.text.encode()
            if name != "train":
                nats = sum(step.nats for step in restoration_costs(normalised))
                undoing[name] = Undoing(nats, len(original.encode()), len(original), len(original.split()))
    whole = b"".join(contents.values())
    for name, (start, end) in bounds.items():
        if end > start and not contents[name]:
            raise DataError(f"--normalise {','.join(steps)} leaves nothing of the {name} part of {text.name}")
    used = keep_text(whole, text.name, text.licence)
    edges = [0, *itertools.accumulate(len(contents[name]) for name in PARTS)]
    return used, dict(zip(PARTS, itertools.pairwise(edges), strict=True)), undoing


def _checked_bounds(text: Text, split: str) -> Bounds:
    shares = dict(zip(PARTS, parse_split(split), strict=True))
    bounds = split_bounds(text, (shares["train"], shares["validation"], shares["test"]))
    for name, (start, end) in bounds.items():
        if start == end and shares[name] > 0:
            raise DataError(f"{text.name} has {text.bytes:,} bytes: too few for a {name} part with --split {split}")
    return bounds


def _fitted_tokenizer(text: Text, bounds: tuple[int, int], settings: LMSettings, reporter: Reporter) -> Tokenizer:
    size = bounds[1] - bounds[0]
    kind, asked = fitted(settings.tokenizer.kind), settings.tokenizer.vocab_size
    tokenizer_type = look_up(TOKENIZERS, kind, "tokenizer")
    if asked is not None and tokenizer_type.least_vocab_size is None:
        raise UsageError(f"--vocab-size is not a choice for the tokenizer '{kind}'; leave it out")
    wanted = asked or default_vocab_size(kind, size, settings.model.kind)
    with reporter.task("learning the tokenizer", size):
        advance = _adding_up(reporter)

        def watched() -> Iterator[str]:
            for piece in read_pieces(text, bounds):
                yield piece
                advance(len(piece))

        learnt: Tokenizer = tokenizer_type.fit(watched(), wanted)
    if asked is not None and learnt.vocab_size < asked:
        reporter.note(
            f"--vocab-size {asked:,} is more than the training text has: "
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
