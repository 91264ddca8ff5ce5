"""Perplexity for models that seqlab did not make: any `nn.Module` with its tokenizer, or a Hugging Face folder.

scorer = seqlab.scorer(module, tokenizer, context=256)
surprisals = scorer.score(text)
seqlab.figures(surprisals, text).bits_per_byte
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqlab.core.errors import DataError, NotFiniteError, SeqlabError, UsageError
from seqlab.core.traits import HasTraits, Traits
from seqlab.core.types import Surprisals
from seqlab.evaluation.outside_tokenizers import encoder_of
from seqlab.evaluation.spelling import spelling_of
from seqlab.evaluation.surprisal import BATCH, Impossible, charge, impossible_in, nats_of_ids, policy_for

LONGEST_CONTEXT = 1024  # of a Hugging Face model, unless another is asked for: windows of more take minutes on a CPU
MOST_LOGITS = 2**25  # numbers held at once, 128 MB: large vocabularies are scored in smaller batches
PROBE = 8  # tokens read to learn the width of the logits and whether the module looks ahead

Progress = Callable[[float], None]


class ModuleScorer:
    """A module and its tokenizer: ``module(ids)``, ids (B, T), gives logits (B, T, V) of the next token.

    The logits may be the output itself, its first item or its ``.logits``. The text is read in windows of `context`
    tokens (default: the module's own ``.context``, if it has one). The first token is predicted from `begin_id`;
    without one it is charged ln V, as if all outputs were equally likely. ``str(scorer.policy)`` says which.
    Surprisals of a tokenizer that drops part of the text are marked `lossy`.
    """

    def __init__(
        self,
        module: nn.Module,
        tokenizer: Any,
        *,
        context: int | None = None,
        begin_id: int | None = None,
        name: str = "module",
    ) -> None:
        if not isinstance(module, nn.Module):
            raise UsageError(f"{name} is a {type(module).__name__}, not a torch.nn.Module")
        context = _own_window(module) if context is None else context
        if context is not None and context < 1:
            raise UsageError(f"context {context} of {name} is too short; the least is 1")
        self.module, self.tokenizer, self.begin_id, self.name = module, tokenizer, begin_id, name
        self.encode = encoder_of(tokenizer)
        self._model = _Stateless(module, context)
        self.policy = policy_for(self._model)
        if begin_id is None:
            self.policy = replace(self.policy, note="the first token of the text, which follows nothing, costs ln V")

    def score(self, text: str, *, batch: int | None = None, progress: Progress | None = None) -> Surprisals:
        """−ln p of every token; the batch size (default: what fits 128 MB of logits) does not change the figures."""
        encoding = self.encode(text)
        if len(encoding) == 0:
            return charge(np.zeros(0), encoding, text, None, None)
        try:
            with _evaluating(self.module), _quiet_logs():
                impossible = impossible_in(encoding, text, self.tokenizer)
                nats = self._nats(encoding.ids, batch, impossible, progress)
        except IndexError as error:
            raise UsageError(
                f"{self.name} failed on ids up to {encoding.ids.max()}, begin id {self.begin_id}, in windows of "
                f"{self._window} tokens ({_line(error)}); is this its tokenizer, and does it take such a context?"
            ) from None
        if np.isnan(nats).any():
            raise NotFiniteError(f"{self.name} gives NaN at token {np.isnan(nats).argmax():,}; are its weights sound?")
        return charge(nats, encoding, text, spelling_of(self.tokenizer), impossible)

    @property
    def _window(self) -> int:
        return self.policy.segment + self.policy.warmup

    def _nats(
        self, ids: NDArray[np.int64], batch: int | None, impossible: Impossible | None, progress: Progress | None
    ) -> NDArray[np.float64]:
        """Without a begin id the first token takes its place: it is read, and the rest follows it."""
        width = self._probe(ids)
        batch = batch or min(BATCH, max(1, MOST_LOGITS // (self._window * width)))
        if self.begin_id is not None:
            how: dict[str, Any] = dict(batch=batch, impossible=impossible, progress=progress)
            return nats_of_ids(self._model, ids, self.begin_id, self.policy, **how)
        rest_impossible = impossible and Impossible(impossible.classes, impossible.at[1:])
        how = dict(batch=batch, impossible=rest_impossible, progress=progress)
        rest = nats_of_ids(self._model, ids[1:], int(ids[0]), self.policy, **how)
        return np.concatenate([[math.log(width)], rest])

    @torch.inference_mode()
    def _probe(self, ids: NDArray[np.int64]) -> int:
        """The width V of the logits. A module whose predictions change with a later token has no perplexity."""
        begin = [] if self.begin_id is None else [self.begin_id]
        row = [*begin, *ids.tolist()][: max(1, min(PROBE, self._window - 1))]
        other = [*row[:-1], int(row[-1] == 0)]
        logits, _ = self._model(torch.tensor([row, other]))
        past = logits[:, :-1]
        noise = 100 * torch.finfo(torch.float32).eps * float(logits.nan_to_num(0, 0, 0).abs().max())
        if past.numel() and float((past[0] - past[1]).nan_to_num().abs().max()) > noise:
            raise UsageError(
                f"{self.name} looks ahead: another token {len(row)} changes the predictions before it; "
                "perplexity needs a causal model"
            )
        return int(logits.shape[-1])


def _own_window(module: nn.Module) -> int | None:
    """The window of a seqlab model; of anybody else's, its attribute `context`, by which such a thing often goes."""
    if isinstance(module, HasTraits) and isinstance(module.traits, Traits):
        return module.traits.window
    context = getattr(module, "context", None)
    return context if isinstance(context, int) else None


class _Stateless(nn.Module):
    """Any module in the form that `nats_of_ids` calls: whole windows, no state carried from one to the next."""

    def __init__(self, module: nn.Module, context: int | None) -> None:
        super().__init__()
        self.module, self.traits = module, Traits(window=context, stateless=True)

    def forward(self, ids: Tensor, state: None = None) -> tuple[Tensor, None]:
        output = self.module(ids)
        logits = output[0] if isinstance(output, tuple) else getattr(output, "logits", output)
        if not isinstance(logits, Tensor) or logits.ndim != 3 or logits.shape[:2] != ids.shape:
            what = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise UsageError(f"the module gave {what} for ids {tuple(ids.shape)}; logits (B, T, V) are needed")
        # Half precision is too coarse for sums of exponentials.
        return logits if logits.dtype == torch.float64 else logits.float(), None


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards every part is in the mode it was in, frozen parts too."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def load_hf(folder: str | Path, *, context: int | None = None) -> ModuleScorer:
    """A Hugging Face causal language model from a local folder, in float32: safetensors only, no code from it run.

    Nothing is downloaded. The context is that of the model's configuration, at most 1,024 unless `context` says
    more. The first token follows the tokenizer's begin token, for want of one its end token, else it costs ln V.
    """
    folder = Path(folder)
    _check_folder(folder)
    transformers = _import_transformers()
    with _quiet_logs(), _quiet_loading(transformers), _one_line_errors(folder):
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        _check_causal(transformers, config, folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model = _load_model(transformers, folder)
    window, cut = _context(config, context, folder)
    begin_id, begin = _begin(tokenizer)
    scorer = ModuleScorer(model, tokenizer, context=window, begin_id=begin_id, name=str(folder))
    note = begin if begin_id is not None else scorer.policy.note
    scorer.policy = replace(scorer.policy, note=note + cut)
    return scorer


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; give a local Hugging Face folder (seqlab downloads no models)")
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} has no config.json; a Hugging Face model is saved with save_pretrained(folder)")
    if not any((folder / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json")):
        raise DataError(
            f"{folder} has no model.safetensors; pickled weights are not read, save it again with save_pretrained"
        )
    if not (folder / "tokenizer.json").is_file():
        raise DataError(
            f"{folder} has no tokenizer.json, and slow tokenizers give no offsets; save its fast tokenizer there"
        )


def _import_transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise UsageError("Hugging Face folders need transformers: pip install 'seqlab[hf]'") from None
    return transformers


def _check_causal(transformers: Any, config: Any, folder: Path) -> None:
    known = transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    if config.is_encoder_decoder or type(config) not in known:
        raise DataError(f"{folder} holds a {config.model_type} model, which is not a causal language model")


def _load_model(transformers: Any, folder: Path) -> nn.Module:
    """The model, if the folder has all of its weights: what is missing would be drawn at random."""
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=torch.float32,
        output_loading_info=True,
    )
    absent = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
    if absent:
        raise DataError(f"{folder} lacks weights of {type(model).__name__}: {absent[0]} and {len(absent) - 1} more")
    model.config.use_cache = False  # every window is read once
    loaded: nn.Module = model
    return loaded


def _context(config: Any, asked: int | None, folder: Path) -> tuple[int, str]:
    """The window, and what to say about it if the model could read more."""
    text = config.get_text_config()
    names = ("max_position_embeddings", "n_positions", "n_ctx")
    limit = next((n for n in (getattr(text, name, None) for name in names) if isinstance(n, int) and n > 0), None)
    if asked is not None:
        if limit is not None and asked > limit:
            raise UsageError(f"context {asked:,} is more than the {limit:,} positions of {folder}")
        return asked, ""
    if limit is None:
        return LONGEST_CONTEXT, "; the model names no limit to its context"
    cut = f"; the model could read {limit:,} tokens" if limit > LONGEST_CONTEXT else ""
    return min(limit, LONGEST_CONTEXT), cut


def _begin(tokenizer: Any) -> tuple[int | None, str]:
    """The id before the text, and how to say so."""
    if tokenizer.bos_token_id is not None:
        return tokenizer.bos_token_id, f"the first token of the text follows the begin token {tokenizer.bos_token}"
    if tokenizer.eos_token_id is not None:
        note = f"the first token of the text follows the end token {tokenizer.eos_token}, there being no begin token"
        return tokenizer.eos_token_id, note
    return None, ""


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """No advice from transformers, such as on attention masks: padding is on the right, where nothing is counted."""
    logger = logging.getLogger("transformers")
    former = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(former)


@contextmanager
def _quiet_loading(transformers: Any) -> Iterator[None]:
    """No progress bars and no Python warnings while weights are loaded."""
    bars = transformers.utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if shown:
            bars.enable_progress_bar()


@contextmanager
def _one_line_errors(folder: Path) -> Iterator[None]:
    """transformers raises many kinds of errors on a folder that it cannot read: each becomes one line."""
    try:
        yield
    except SeqlabError:
        raise
    except Exception as error:
        raise DataError(f"transformers cannot load {folder}: {_line(error)}") from error


def _line(error: Exception) -> str:
    """The first line of an error's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
