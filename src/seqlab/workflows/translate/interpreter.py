"""A translator with its pieces and targets: encode once, decode into any of them."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.core.errors import UsageError, check_texts
from seqlab.core.seeding import torch_generator
from seqlab.core.state import reorder
from seqlab.data.pair_batches import source_batch
from seqlab.data.tokenizers import Tokenizer
from seqlab.generation.beam import Hypothesis, Search, beam_search, decode_one_by_one
from seqlab.generation.sampling import Choice
from seqlab.workflows.translate.data import Languages

TOKENS_AT_ONCE = 4096  # of sources that are encoded together, padding counted
ROWS_AT_ONCE = 64  # hypotheses that are decoded together
PER_PIECE, AND_MORE = 2, 20  # a translation has at most 2 n + 20 pieces for n of the source
Progress = Callable[[int], None]


@dataclass(frozen=True)
class EncodedBatch:
    """Sources of similar length, encoded side by side."""

    places: tuple[int, ...]  # in the list of sources
    sizes: tuple[int, ...]  # pieces of each
    memory: Any


@dataclass(frozen=True)
class Encoding:
    """What `encode` gives: everything that decoding into any target needs. `by` names the run whose encoder made it."""

    sources: tuple[str, ...]
    batches: tuple[EncodedBatch, ...]
    by: str

    def __len__(self) -> int:
        return len(self.sources)


@dataclass(frozen=True)
class Translation:
    """One translation; `score` is Σ ln p of its pieces, `ended` says that the model ended it itself."""

    text: str
    score: float
    ended: bool


NOTHING = Translation("", 0.0, True)  # of an empty source


@dataclass(frozen=True)
class Interpreter:
    """A model in evaluation mode; `identity` tells its encodings from those of others."""

    model: Any
    tokenizer: Tokenizer
    languages: Languages
    identity: str = ""

    def encode(self, sources: Sequence[str], progress: Progress | None = None) -> Encoding:
        """Read the sources, once: the same value serves every target."""
        check_texts(sources, "the sentences")
        batches, done = [], 0
        for batch in self._encoded(sources):
            batches.append(batch)
            done += len(batch.places)
            if progress is not None:
                progress(done)
        return Encoding(tuple(sources), tuple(batches), self.identity)

    def encode_in_turn(self, sources: Sequence[str]) -> Iterator[Encoding]:
        """The same, some sources at a time, so that memory does not grow with their number: each has all of
        `sources`, and batches of some of them."""
        for batch in self._encoded(sources):
            yield Encoding(tuple(sources), (batch,), self.identity)

    @torch.inference_mode()
    def _encoded(self, sources: Sequence[str]) -> Iterator[EncodedBatch]:
        ids = self.tokenizer.encode_each([" ".join(text.split()) for text in sources])
        there = np.flatnonzero([len(some) > 0 for some in ids])  # of nothing the translation is nothing
        for places in (there[some] for some in _similar([len(ids[k]) + 1 for k in there])):
            memory = self.model.encode(source_batch([ids[k] for k in places], self._end))
            yield EncodedBatch(tuple(places), tuple(len(ids[k]) for k in places), memory)

    def hypotheses(
        self,
        encoding: Encoding,
        to: str,
        *,
        beam: int = 4,
        length_penalty: float = 1.0,
        n_best: int = 1,
        temperature: float = 0.0,
        seed: int = 0,
        first: int = 0,
        cached: bool = True,
        progress: Progress | None = None,
    ) -> list[list[Translation]]:
        """The `n_best` translations of every source, best first; an empty one has an empty translation.

        A beam of 1 is greedy; a temperature above 0 draws instead of searching, source k from the stream of number
        `first` + k.
        """
        if not isinstance(encoding, Encoding):
            raise UsageError("decode takes what encode gave; to translate sentences at once there is translate")
        if encoding.by != self.identity:
            raise UsageError("this encoding was made by another run; encode the sources with this one")
        if temperature and n_best > 1:
            raise UsageError("n_best goes with a beam; leave it out where a temperature draws")
        tag = self.tokenizer.begin_id + self.languages.tag_of(to)
        search = Search(beam, length_penalty, n_best)
        found = [[NOTHING] for _ in encoding.sources]
        done = 0
        for batch in self._pieces(encoding, beam):
            for place, some in zip(
                batch.places, self._searched(batch, tag, search, temperature, (seed, first), cached), strict=True
            ):
                found[place] = [Translation(self._text(one), one.score, one.ended) for one in some]
            done += len(batch.places)
            if progress is not None:
                progress(done)
        return found

    def _searched(
        self,
        batch: EncodedBatch,
        tag: int,
        search: Search,
        temperature: float,
        stream: tuple[int, int],
        cached: bool,
    ) -> list[list[Hypothesis]]:
        limits = [PER_PIECE * size + AND_MORE for size in batch.sizes]
        if search.beam > 1 and not temperature:
            return beam_search(self.model, batch.memory, tag, limits, self._end, search, cached=cached)
        seed, first = stream
        draws = [torch_generator(seed, "sampling", first + place) for place in batch.places]
        choice = Choice(temperature)
        found = decode_one_by_one(self.model, batch.memory, tag, limits, self._end, choice, draws, cached=cached)
        return [[one] for one in found]

    def _pieces(self, encoding: Encoding, beam: int) -> Iterator[EncodedBatch]:
        """Encoded batches cut so that few enough hypotheses are decoded together."""
        most = max(1, ROWS_AT_ONCE // beam)
        for batch in encoding.batches:
            for start in range(0, len(batch.places), most):
                rows = slice(start, start + most)
                memory = batch.memory
                if len(batch.places) > most:
                    memory = reorder(memory, torch.arange(len(batch.places))[rows])
                yield EncodedBatch(batch.places[rows], batch.sizes[rows], memory)

    def _text(self, found: Hypothesis) -> str:
        """One line, whatever was drawn: no control characters, one space for white space."""
        text = b"".join(self.tokenizer.token_stream(found.ids)).decode("utf-8", "ignore")
        plain = "".join(" " if unicodedata.category(sign) == "Cc" else sign for sign in text)
        return " ".join(plain.split())

    @property
    def _end(self) -> int:
        end = self.tokenizer.end_id
        assert end is not None
        return end


def _similar(sizes: Sequence[int]) -> list[NDArray[np.int64]]:
    """Places of sources of similar length, the longest first, few enough that padding costs little."""
    order = np.argsort(-np.asarray(sizes, np.int64), kind="stable")
    batches, start = [], 0
    while start < len(order):
        longest = sizes[order[start]]
        end = start + max(1, TOKENS_AT_ONCE // longest)
        batches.append(order[start:end])
        start = end
    return batches
