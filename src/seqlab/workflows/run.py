"""A trained run: model, tokenizer, settings and figures, ready to generate and to score."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from seqlab.core.errors import DamageError, UsageError
from seqlab.core.registry import FITTED_MODELS, look_up
from seqlab.core.seeding import torch_generator
from seqlab.core.settings import LMSettings, fitted
from seqlab.core.types import Surprisals
from seqlab.data.normalise import normalise, parse_steps
from seqlab.data.tokenizers import Tokenizer, load_tokenizer
from seqlab.evaluation.normalised import NormalisedScorer
from seqlab.evaluation.surprisal import Scorer
from seqlab.generation.sampling import Choice, generate
from seqlab.models.build import build_lm_from_settings
from seqlab.training.checkpoint import load_tensors, load_weights
from seqlab.workflows.run_folder import Line, RunFolder


class Run:
    """What a run folder holds. The model is in evaluation mode and has the best weights."""

    def __init__(
        self,
        folder: RunFolder,
        settings: LMSettings,
        record: dict[str, Any],
        tokenizer: Tokenizer,
        model: Any,
        step: int,
    ) -> None:
        self.folder = folder.path
        self.settings, self.record, self.tokenizer, self.model = settings, record, tokenizer, model
        self.files, self.step = folder, step  # the step that the weights are from

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def metrics(self) -> list[Line]:
        return self.files.read_metrics()

    @property
    def final(self) -> Line | None:
        return self.files.final()

    @property
    def interrupted(self) -> bool:
        """Whether the run has not finished: Ctrl-C, SIGTERM or a crash; `resume=True` goes on with it."""
        return self.final is None

    def __repr__(self) -> str:
        state = "interrupted" if self.interrupted else "finished"
        return f"Run({str(self.folder)!r}, {self.settings.model.kind}, weights of step {self.step:,}, {state})"

    @cached_property
    def scorer(self) -> Scorer | NormalisedScorer:
        """Scores any text; one that the run would have normalised pays for undoing that."""
        plain = Scorer(self.model, self.tokenizer)
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
        if tokens < 0:
            raise UsageError(f"--tokens {tokens} must not be negative")
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


def load(folder: str | Path) -> Run:
    """The run in a folder; every file that is read is checked first."""
    files = RunFolder(folder)
    settings, record = files.read_settings()
    tokenizer = load_tokenizer(files.tokenizer_file)
    if tokenizer.sha256 != record["tokenizer_sha256"]:
        raise DamageError(f"{files.tokenizer_file} is not the tokenizer of this run; restore it from a copy")
    if not files.model_file.exists():
        raise UsageError(f"{folder} has no trained weights yet; go on with 'seqlab lm train --out {folder} --resume'")
    weights, best = load_tensors(files.model_file)
    if settings.model.kind in FITTED_MODELS:
        made = look_up(FITTED_MODELS, settings.model.kind, "model").from_tensors
        model = made(tokenizer.vocab_size, fitted(settings.model.order), weights, str(files.model_file))
    else:
        model = build_lm_from_settings(settings, tokenizer.vocab_size)
        load_weights(model, weights, str(files.model_file))
    return Run(files, settings, record, tokenizer, model.eval(), best["step"])
