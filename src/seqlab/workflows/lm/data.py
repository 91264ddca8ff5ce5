"""The text, ready to train on: split, tokenizer, ids, and what the parts share."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from seqlab.core.cache import cache_folder
from seqlab.core.errors import DataError, UsageError
from seqlab.core.files import canonical_json, make_folder, sha256_of, write_bytes
from seqlab.core.registry import TOKENIZERS, look_up
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import filled
from seqlab.core.settings.lm import DataSettings, LMSettings, default_vocab_size, tokenizer_for, with_tokenizer
from seqlab.core.units import parse_split
from seqlab.data.normalise import normalise, parse_steps
from seqlab.data.overlap import Overlap, shared_passages
from seqlab.data.prepare import PARTS, Bounds, Part, prepare, read_pieces, read_slice, split_bounds
from seqlab.data.sources import Text, keep_text, open_text
from seqlab.data.tokenizers import Tokenizer, read_tokenizer
from seqlab.data.vectors import WordVectors
from seqlab.evaluation.baselines import held_bytes
from seqlab.evaluation.reading_on import BYTES_A_TOKEN
from seqlab.evaluation.restoration import restoration_costs
from seqlab.evaluation.surprisal import unavoidable_nats
from seqlab.models.folds import Folded
from seqlab.models.guided import Guide
from seqlab.runs.task import Kept
from seqlab.workflows.lm.guide import GUIDE, counted
from seqlab.workflows.lm.members import Members, kept_members
from seqlab.workflows.lm.vectors import read_vectors

TOKENIZER = "tokenizer.json"


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
    original: Bounds  # of the parts in the text itself
    undoing: dict[str, Undoing]  # of each part, if the text was normalised
    vectors: WordVectors | None = None
    folded: Folded | None = None  # counts of the training part, as a guide
    seconds_to_count: float = 0.0
    mixed: Members | None = None  # finished runs, if the model is a mixture of them

    def read(self, name: str) -> str:
        """The text of one part, as it was encoded."""
        return read_slice(self.used, self.bounds[name])

    def original_bytes(self, name: str) -> int:
        start, end = self.original[name]
        return end - start

    @property
    def headline_part(self) -> str:
        """The test text where there is one."""
        return "test" if self.original_bytes("test") else "validation"

    @property
    def baseline_bytes(self) -> int:
        """What measuring simple methods beside the run, and the run as it reads on, holds in memory."""
        part = self.headline_part
        simple = held_bytes(self.original_bytes("train"), self.original_bytes(part))
        return max(simple, BYTES_A_TOKEN * self.parts[part].facts.tokens)

    @cached_property
    def validation_overhead(self) -> tuple[float, int]:
        """Nats of the validation part that no model decides (spelling, restoration), and its bytes before that."""
        spelling = 0.0
        if self.parts["validation"].facts.unknown:
            spelling = unavoidable_nats(self.read("validation"), self.tokenizer)
        undo = self.undoing.get("validation")
        if undo is None:
            return spelling, self.parts["validation"].facts.bytes
        return spelling + undo.nats, undo.bytes

    # ---- what the run folder is told

    @property
    def checksums(self) -> dict[str, str]:
        found = {"text": self.text.sha256, "tokenizer": self.tokenizer.sha256}
        found |= {} if self.mixed is None else self.mixed.checksums
        return found | ({} if self.vectors is None else {"vectors": self.vectors.sha256})

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "vocab_size": self.tokenizer.vocab_size,
            "text_name": self.text.name,
            "text_bytes": self.text.bytes,
            "text_sha256": self.text.sha256,
            "licence": self.text.licence,
            "tokenizer_sha256": self.tokenizer.sha256,
            **({} if self.mixed is None else self.mixed.facts),
        }

    @cached_property
    def files(self) -> dict[str, bytes]:
        found = {TOKENIZER: self.tokenizer.to_bytes()}
        found |= {} if self.mixed is None else self.mixed.files
        return found if self.folded is None else found | {GUIDE: Guide(self.folded.model).to_bytes()}


def prepare_text(settings: LMSettings, reporter: Reporter, kept: Kept | None = None) -> Prepared:
    """Read, split, normalise, tokenize and encode the text; what an earlier run kept is used again."""
    text = _open(settings.data, reporter, kept)
    original = bounds = _checked_bounds(text, settings.data.split)
    settings = with_tokenizer(settings, tokenizer_for(settings, bounds["train"][1]))
    steps = parse_steps(settings.data.normalise)
    used, bounds, undoing = _normalised(text, bounds, steps, reporter) if steps else (text, bounds, {})
    if kept is None:
        tokenizer = _learnt_tokenizer(used, bounds["train"], settings, reporter)
    else:
        tokenizer = read_tokenizer(kept.files[TOKENIZER], TOKENIZER)
    with reporter.task("encoding", used.bytes):
        parts = prepare(used, tokenizer, bounds, _adding_up(reporter))
    vectors = None if kept is not None else read_vectors(settings.model, tokenizer, parts["train"], reporter)
    begun = time.perf_counter()
    folded = counted(settings, parts["train"].ids, tokenizer.vocab_size, reporter)
    seconds = 0.0 if folded is None else time.perf_counter() - begun
    overlap = _overlap(used, bounds)
    mixed = None if kept is None else kept_members(settings, kept.files)
    return Prepared(text, tokenizer, parts, overlap, used, bounds, original, undoing, vectors, folded, seconds, mixed)


def _open(settings: DataSettings, reporter: Reporter, kept: Kept | None) -> Text:
    """The text; for a run that goes on, the very same text.

    What came through a pipe then is taken from the cache, unless it is named, and so read, again.
    """
    source, how = settings.text, (settings.encoding, settings.glob)
    checksums = None if kept is None else kept.checksums
    named = kept is not None and kept.named
    if checksums is not None and not named and not Path(source).is_file() and not Path(source).is_dir():
        spooled = cache_folder() / "texts" / f"{checksums['text']}.txt"
        source, how = (str(spooled), ("utf-8", "")) if spooled.exists() else (source, how)
    with reporter.downloading() as progress:
        text = open_text(source, *how, progress=progress)
    for line in text.notes:
        reporter.note(line)
    if checksums is not None and text.sha256 != checksums["text"]:
        raise UsageError(
            f"{source} is not the text this run was trained on (its checksum differs); restore it, "
            "or go on from the weights with --from"
        )
    return text


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


def _learnt_tokenizer(text: Text, bounds: tuple[int, int], settings: LMSettings, reporter: Reporter) -> Tokenizer:
    size = bounds[1] - bounds[0]
    kind, asked = filled(settings.tokenizer.kind), settings.tokenizer.vocab_size
    tokenizer_type = look_up(TOKENIZERS, kind, "tokenizer")
    if asked is not None and tokenizer_type.least_vocab_size is None:
        raise UsageError(f"--vocab-size is not a choice for the tokenizer '{kind}'; leave it out")
    wanted = asked or default_vocab_size(kind, size, settings.model.kind, settings.model.guide)
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
