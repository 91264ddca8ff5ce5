"""A trained language model: ready to generate and to score."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from seqlab.core.seeding import torch_generator
from seqlab.core.settings.fields import check_group
from seqlab.core.settings.generation import GenerationSettings
from seqlab.core.types import Scorer, Surprisals
from seqlab.data.normalise import normalise, parse_steps
from seqlab.data.tokenizers import Tokenizer, read_tokenizer
from seqlab.evaluation.normalised import NormalisedScorer
from seqlab.evaluation.surprisal import ModelScorer
from seqlab.generation.sampling import Choice, generate
from seqlab.runs.run import Run
from seqlab.workflows.lm.data import TOKENIZER


@dataclass(eq=False, repr=False)
class LMRun(Run):
    """What the run folder of a language model holds. The model is in evaluation mode and has the best weights."""

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return read_tokenizer(self.kept[TOKENIZER], str(self.folder / TOKENIZER))

    @cached_property
    def scorer(self) -> Scorer:
        """Scores any text; one that the run would have normalised pays for undoing that."""
        plain = ModelScorer(self.model, self.tokenizer)
        return NormalisedScorer(plain, self.steps) if self.steps else plain

    @property
    def steps(self) -> tuple[str, ...]:
        """The normalisation that the model was trained after."""
        return parse_steps(self.settings.data.normalise)

    def score(self, text: str) -> Surprisals:
        """−ln p of every token of the text, with byte spans."""
        return self.scorer.score(text)

    def generate(
        self,
        prompt: str = "",
        tokens: int = 200,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
    ) -> str:
        """The continuation of the prompt; temperature 0 is greedy."""
        return b"".join(self.stream(prompt, tokens, temperature, top_k, top_p, seed)).decode("utf-8", "replace")

    def stream(
        self,
        prompt: str = "",
        tokens: int = 200,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
    ) -> Iterator[bytes]:
        """The bytes of the continuation, token by token. The unknown class is never generated."""
        check_group(GenerationSettings(tokens=tokens))
        read = [self.tokenizer.begin_id, *self.tokenizer.encode(normalise(prompt, self.steps).text).ids.tolist()]
        never = () if self.tokenizer.unknown_id is None else (self.tokenizer.unknown_id,)
        chosen = generate(
            self.model,
            read,
            tokens,
            Choice(temperature, top_k, top_p),
            torch_generator(seed, "sampling"),
            never=never,
        )
        return self.tokenizer.token_stream(chosen, previous=read[-1])
