"""A trained translator as it stands in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from seqlab.data.tokenizers import Tokenizer
from seqlab.runs.run import Run
from seqlab.workflows.translate.data import Languages, read_languages, read_pieces
from seqlab.workflows.translate.interpreter import Encoding, Interpreter, Progress, Translation


@dataclass(eq=False, repr=False)
class TranslatorRun(Run):
    """What the run folder of a translator holds. The model is in evaluation mode and has the best weights."""

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return read_pieces(self.kept)

    @cached_property
    def languages(self) -> Languages:
        return read_languages(self.kept)

    @property
    def targets(self) -> tuple[str, ...]:
        return self.languages.targets

    @cached_property
    def interpreter(self) -> Interpreter:
        return Interpreter(self.model, self.tokenizer, self.languages, self.files.identity or "")

    def encode(self, sources: Sequence[str], progress: Progress | None = None) -> Encoding:
        """Read the sources, once: the same value serves every target."""
        return self.interpreter.encode(sources, progress)

    def decode(self, encoding: Encoding, to: str, *, beam: int = 4, **how: Any) -> list[str]:
        """The translation of every source into one target (`hypotheses` has the options, and n-best lists)."""
        return [some[0].text for some in self.hypotheses(encoding, to, beam=beam, **how)]

    def translate(self, sources: Sequence[str], to: str, *, beam: int = 4, **how: Any) -> list[str]:
        return self.decode(self.encode(sources), to, beam=beam, **how)

    def hypotheses(self, encoding: Encoding, to: str, **how: Any) -> list[list[Translation]]:
        """The best translations of every source with their scores: beam=4, length_penalty=1.0, n_best=1, or drawn with
        temperature and seed."""
        return self.interpreter.hypotheses(encoding, to, **how)
