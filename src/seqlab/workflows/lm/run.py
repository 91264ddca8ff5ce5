"""A trained language model: ready to generate and to score."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import overload

from seqlab.core.errors import UsageError, check_text, check_texts
from seqlab.core.seeding import torch_generator
from seqlab.core.settings.fields import check_group, check_settings, check_types, with_changes
from seqlab.core.settings.generation import GenerationSettings
from seqlab.core.traits import traits_of
from seqlab.core.types import Scorer, Surprisals
from seqlab.data.normalise import normalise, parse_steps
from seqlab.data.tokenizers import Tokenizer, WholeCharacters, read_tokenizer
from seqlab.evaluation.mixed import MixtureScorer
from seqlab.evaluation.normalised import NormalisedScorer
from seqlab.evaluation.surprisal import ModelScorer
from seqlab.generation.sampling import Choice, generate_each
from seqlab.models.mixture import MixtureLM
from seqlab.runs.run import Run
from seqlab.workflows.lm.data import TOKENIZER
from seqlab.workflows.lm.members import member_names


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
        if isinstance(self.model, MixtureLM):
            plain = MixtureScorer(self.model, self.tokenizer, member_names(self.kept))
        return NormalisedScorer(plain, self.steps) if self.steps else plain

    @property
    def steps(self) -> tuple[str, ...]:
        """The normalisation that the model was trained after."""
        return parse_steps(self.settings.data.normalise)

    def with_context(self, context: int) -> LMRun:
        """The same weights with another context: so many tokens are attended to and scored in at a time.

        Beyond the trained context this is extrapolation. Learned positions end where their table ends.
        """
        traits = traits_of(self.model)
        if isinstance(self.model, MixtureLM):
            raise UsageError(
                f"--context {context}: the members of {self.folder} read as they were trained; leave it out"
            )
        if traits.window is None:
            kind = self.settings.model.kind
            raise UsageError(f"--context {context}: model '{kind}' in {self.folder} reads on and on; leave it out")
        if traits.max_positions is not None and context != traits.max_positions:
            raise UsageError(
                f"--context {context}: {self.folder} has {traits.max_positions} learned positions and is defined for "
                "no other context; leave it out, or train with --positions rotary or sinusoidal"
            )
        settings = with_changes(self.settings, {"training": {"context": context}})
        check_settings(settings)
        model = self.task.restore(settings, self.kept, self.model.state_dict(), str(self.files.model_file))
        return replace(self, settings=settings, model=model.eval())

    def score(self, text: str) -> Surprisals:
        """−ln p of every token of the text, with byte spans."""
        check_text(text, "what score reads")
        return self.scorer.score(text)

    @overload
    def generate(
        self,
        prompt: str = ...,
        tokens: int = ...,
        temperature: float = ...,
        top_k: int | None = ...,
        top_p: float | None = ...,
        seed: int = ...,
    ) -> str: ...

    @overload
    def generate(
        self,
        prompt: list[str],
        tokens: int = ...,
        temperature: float = ...,
        top_k: int | None = ...,
        top_p: float | None = ...,
        seed: int = ...,
    ) -> list[str]: ...

    def generate(
        self,
        prompt: str | list[str] = "",
        tokens: int = 200,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
    ) -> str | list[str]:
        """The continuation of the prompt; temperature 0 is greedy. With a list of prompts, that of each.

        Prompt k of a list has the seed `seed + k` and is continued as it would be alone, but all are written side by
        side, which is faster. (Rounding depends on the batch: in a tie to six digits another token may win.)
        """
        prompts = [prompt] if isinstance(prompt, str) else prompt
        written = self.stream_each(prompts, tokens, temperature, top_k, top_p, seed)
        parts: list[list[bytes]] = [[] for _ in prompts]
        for row, part in written:
            parts[row].append(part)
        texts = [b"".join(some).decode() for some in parts]
        return texts[0] if isinstance(prompt, str) else texts

    def stream(
        self,
        prompt: str = "",
        tokens: int = 200,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
    ) -> Iterator[bytes]:
        """The bytes of the continuation, token by token: those of whole characters, each when its last byte is there.

        The unknown class is never generated; bytes that make no character are left out.
        """
        written = self.stream_each([prompt], tokens, temperature, top_k, top_p, seed)
        return (part for _, part in written)

    def stream_each(
        self,
        prompts: list[str],
        tokens: int = 200,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
    ) -> Iterator[tuple[int, bytes]]:
        """(Number of the prompt, bytes of its next token) as they are written; prompt k has the seed `seed + k`."""
        check_texts(prompts, "the prompts")
        check_types(GenerationSettings(tokens, temperature, top_k, top_p, seed))
        check_group(GenerationSettings(tokens=tokens))
        read = [self._ids(prompt) for prompt in prompts]
        written = generate_each(
            self.model,
            read,
            tokens,
            Choice(temperature, top_k, top_p),
            [torch_generator(seed + k, "sampling") for k in range(len(prompts))],
            never=() if self.tokenizer.unknown_id is None else (self.tokenizer.unknown_id,),
            end=self.tokenizer.end_id,
        )
        return self._spelt(written, [ids[-1] for ids in read])

    def _ids(self, prompt: str) -> list[int]:
        return [self.tokenizer.begin_id, *self.tokenizer.encode(normalise(prompt, self.steps).text).ids.tolist()]

    def _spelt(self, written: Iterator[tuple[int, int]], previous: list[int]) -> Iterator[tuple[int, bytes]]:
        whole = [WholeCharacters() for _ in previous]
        for row, token in written:
            yield row, whole[row](self.tokenizer.token_bytes(token, previous[row]))
            previous[row] = token
