"""The settings of language models: data, tokenizer, model, training, and the presets that fill them in.

A field whose default is None is filled in by the preset that fits the model, its size and the budget (`fill_lm`);
what a person says beats every preset.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import (
    ACTIVATIONS,
    ALL_MODELS,
    ATTENTIONS,
    FITTED_MODELS,
    GUIDES,
    MIXTURE,
    NORMS,
    PLACEMENTS,
    POSITIONS,
    SCORES,
    TOKENIZERS,
)
from seqlab.core.settings.fields import (
    BELOW_ONE,
    COUNT,
    NOT_NEGATIVE,
    Limits,
    Preset,
    check_settings,
    check_trains_so,
    dashed,
    fill,
    filled,
    flags_of,
    setting,
    value_of,
)
from seqlab.core.settings.lm_presets import COMMON_PRESET, LED_PRESETS, OWN_MODEL_PRESETS, PRESETS
from seqlab.core.settings.training import SIZES, TrainingSettings, size_for_budget
from seqlab.core.sizes import check_features, check_heads, check_sinusoidal
from seqlab.core.units import parse_split

RECURRENT = ("rnn", "gru", "lstm")
TRANSFORMER = ("transformer",)
NEURAL = (*RECURRENT, "attentive-rnn", *TRANSFORMER)
LM_NORMS = tuple(norm for norm in NORMS if norm != "batch")  # which mixes positions
HALVED = ("lstm", "transformer")  # whose products torch computes in bfloat16 too
PRECISIONS = ("float32", "bfloat16")
WINDOWED = ("attentive-rnn", "transformer")  # their context is part of the model
HIGHEST_ORDER = 8
ORDER = Limits(1, HIGHEST_ORDER, words=f"is out of range; n-grams have an order from 1 to {HIGHEST_ORDER}")
FOLDS = Limits(2, 100, words="is out of range; a text is cut into 2 to 100 folds")


@dataclass(frozen=True)
class DataSettings:
    text: str = setting("", "a text file, folder, .gz/.bz2/.xz, '-' or the name of a corpus", place=True)
    encoding: str = setting("utf-8", "encoding of the text files")
    glob: str = setting("", "files of a folder to read: '*.py,docs/*.md' (default: known endings of text and code)")
    normalise: str = setting("", "steps applied to the text first, such as lower,digits (see docs/measuring.md)")
    split: str = setting("80/10/10", "training/validation/test shares, contiguous, in percent", check=parse_split)


@dataclass(frozen=True)
class TokenizerSettings:
    kind: str | None = setting(
        None,
        "byte, char, word or bpe (default: bpe; word for bigram; char where counts lead and the text is below 1 MB)",
        flag="tokenizer",
        choices=TOKENIZERS,
    )
    vocab_size: int | None = setting(
        None, "tokens to learn for bpe and word (chosen by the size of the text)", limits=COUNT
    )


@dataclass(frozen=True)
class ModelSettings:
    kind: str = setting(
        "lstm", "rnn, gru, lstm, attentive-rnn, transformer, bigram or ngram", flag="model", choices=ALL_MODELS
    )
    size: str | None = setting(None, "small, medium, large or huge (chosen by the budget)", choices=SIZES)
    width: int | None = setting(None, "hidden width", limits=COUNT, kinds=(*NEURAL, "bigram"))
    depth: int | None = setting(None, "layers", limits=Limits(1, 1000), kinds=NEURAL)
    heads: int | None = setting(None, "attention heads (transformer)", limits=COUNT, kinds=TRANSFORMER)
    attention: str | None = setting(
        None, "softmax, separable or random_features (transformer)", choices=ATTENTIONS, kinds=TRANSFORMER
    )
    features: int | None = setting(
        None,
        "random features of each head (--attention random_features; 4 for each of its numbers)",
        limits=COUNT,
        kinds=TRANSFORMER,
    )
    positions: str | None = setting(
        None, "rotary, sinusoidal or learned (transformer)", choices=POSITIONS, kinds=TRANSFORMER
    )
    kv_heads: int | None = setting(
        None, "heads of keys and values, shared by the others (transformer; --heads)", limits=COUNT, kinds=TRANSFORMER
    )
    hidden: int | None = setting(
        None, "units of the feed-forward networks (transformer; 4 × --width)", limits=COUNT, kinds=TRANSFORMER
    )
    activation: str | None = setting(
        None, "gelu, gelu_tanh, relu or silu (transformer)", choices=ACTIVATIONS, kinds=TRANSFORMER
    )
    gated: bool | None = setting(None, "gated feed-forward networks (transformer)", kinds=TRANSFORMER)
    norm: str | None = setting(None, "layer or rms (transformer)", choices=LM_NORMS, kinds=TRANSFORMER)
    placement: str | None = setting(
        None, "of the norms: pre, post or parallel (transformer)", choices=PLACEMENTS, kinds=TRANSFORMER
    )
    score: str | None = setting(
        None, "dot, scaled or additive (attentive-rnn)", choices=SCORES, kinds=("attentive-rnn",)
    )
    guide: str | None = setting(
        None,
        "ngram: counts of the training text lead the network (the default); none: it learns by itself",
        choices=GUIDES,
        kinds=NEURAL,
    )
    folds: int | None = setting(
        None,
        "parts of the training text, each led by the counts of the others (--guide ngram; 10)",
        limits=FOLDS,
        kinds=NEURAL,
    )
    order: int | None = setting(
        None,
        "tokens in an n-gram, 1 to 8 (ngram, --guide ngram; chosen by the tokenizer)",
        limits=ORDER,
        kinds=("ngram", *NEURAL),
    )
    vectors: str | None = setting(
        None,
        "word vectors to start from: glove-6b-50d or a GloVe/word2vec file (bigram)",
        kinds=("bigram",),
        place=True,
    )
    vector_width: int | None = setting(
        None, "width of the word vectors (bigram; that of --vectors)", limits=COUNT, kinds=("bigram",)
    )
    train_vectors: bool | None = setting(None, "train the word vectors too (bigram)", kinds=("bigram",))
    tied: bool | None = setting(None, "share the embedding with the output layer", kinds=NEURAL)
    dropout: float | None = setting(None, "dropout probability", limits=BELOW_ONE, kinds=NEURAL)


@dataclass(frozen=True)
class LMTrainingSettings(TrainingSettings):
    context: int | None = setting(
        None, "tokens per sequence; the span of attention and of backpropagation", limits=COUNT
    )
    full_gradient: bool | None = setting(None, "exact gradient from the pair counts (bigram; up to 5,000 tokens)")
    precision: str | None = setting(
        None,
        "numbers of products while training: float32 or bfloat16 (lstm, transformer; default: bfloat16 for a led lstm "
        "where the processor has it)",
        choices=PRECISIONS,
        kinds=HALVED,
    )
    carry: bool | None = setting(None, "carry recurrent state from batch to batch (truncated BPTT)", kinds=RECURRENT)
    watch_gradients: int = setting(
        0,
        "steps between looks at how far back the gradient reaches, in metrics.jsonl (0: none)",
        limits=NOT_NEGATIVE,
    )


@dataclass(frozen=True)
class LMSettings:
    """Everything that decides what `seqlab lm train` computes."""

    data: DataSettings = field(default_factory=DataSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    training: LMTrainingSettings = field(default_factory=LMTrainingSettings)


# --------------------------------------------------------------------------- what a person did not say

TOKENIZERS_OF_MODELS = {"bigram": "word"}  # every other model: bpe, or what suits the text
CHARACTERS_BELOW = 1_000_000  # bytes of training text: where counts lead, characters are better there (docs/log.md)
NGRAM_ORDERS = {"char": 7, "byte": 7, "bpe": 6, "word": 3}  # docs/log.md


def fill_lm(settings: LMSettings) -> LMSettings:
    """Fill every None that a preset decides; what a person said stays.

    Where counts lead, the tokenizer may be left to the text (`tokenizer_for`, `with_tokenizer`).
    """
    check_settings(settings)
    model, training = settings.model, settings.training
    tokenizer = _fill_tokenizer(settings)
    if model.kind in FITTED_MODELS:
        preset: Preset = {"order": NGRAM_ORDERS.get(filled(tokenizer.kind), 5)}
    else:
        size = model.size or size_for_budget(training.budget)
        preset = COMMON_PRESET | PRESETS.get(model.kind, OWN_MODEL_PRESETS)[size] | {"size": size}
        if model.kind in NEURAL:
            preset |= _led(settings, size)
        if model.vectors is not None:
            preset.pop("vector_width", None)  # that of the vectors
    model = fill(model, preset)
    _check_sizes(model)
    _check_guide(settings.model)
    training = fill(training, preset)
    training.check()
    made = dataclasses.replace(settings, tokenizer=tokenizer, model=model, training=training)
    return made if tokenizer.kind is None else with_tokenizer(made, tokenizer.kind)


def tokenizer_for(settings: LMSettings, train_bytes: int) -> str:
    """Where neither a person nor the model decides, the size of the text does."""
    return settings.tokenizer.kind or ("char" if train_bytes < CHARACTERS_BELOW else "bpe")


def with_tokenizer(settings: LMSettings, kind: str) -> LMSettings:
    """The settings with this tokenizer, and what goes with it."""
    tokenizer = dataclasses.replace(settings.tokenizer, kind=kind)
    led = settings.model.guide == "ngram"
    model = fill(settings.model, {"order": NGRAM_ORDERS.get(kind, 5)} if led else {})
    return dataclasses.replace(settings, tokenizer=tokenizer, model=model)


def precision_for(settings: LMSettings, has_bfloat16: bool) -> str | None:
    """What nobody said: shorter numbers where they lose nothing and are faster (docs/log.md)."""
    model, said = settings.model, settings.training.precision
    if said is not None or model.kind not in HALVED:
        return said
    return "bfloat16" if has_bfloat16 and model.kind == "lstm" and model.guide == "ngram" else "float32"


def _led(settings: LMSettings, size: str) -> Preset:
    """That there is a guide, and the sizes that go with one."""
    if settings.model.guide == "none":
        return {}
    return {"guide": "ngram", "folds": 10} | LED_PRESETS.get(settings.model.kind, {}).get(size, {})


def _check_sizes(model: ModelSettings) -> None:
    """Refuse sizes that do not fit each other, as far as the model comes with seqlab."""
    if model.kind == "transformer":
        check_features(model.attention, model.features)
        if model.positions == "sinusoidal":
            check_sinusoidal(filled(model.width), filled(model.heads))
        in_pairs = model.positions == "rotary"
        check_heads(filled(model.width), filled(model.heads), model.kv_heads, in_pairs=in_pairs)


def _check_guide(said: ModelSettings) -> None:
    """Refuse what is said of counts where there are none."""
    for name in ("order", "folds"):
        if said.guide == "none" and getattr(said, name) is not None:
            raise UsageError(f"--{name} does not apply to --guide none; leave one of them out")


def model_fields(kind: str) -> set[str] | None:
    """The sizes of a model that comes with seqlab; None for one of somebody's own."""
    named = {f.name: f.metadata["kinds"] for f in dataclasses.fields(ModelSettings) if f.metadata["kinds"] is not None}
    own = {name for name, kinds in named.items() if kind in kinds}
    return own or None


def check_said(settings: LMSettings, said: Collection[str]) -> None:
    """Refuse what a person said of a model that has no such thing."""
    kind, known = settings.model.kind, model_fields(settings.model.kind)
    check_watched(kind, settings.training.watch_gradients)
    for name, (group, f) in flags_of(LMSettings).items():
        if name not in said:
            continue
        if kind in FITTED_MODELS and (group == "training" or name == "size"):
            raise UsageError(f"--{dashed(name)} does not apply: model '{kind}' is {_how_fitted(kind)}; leave it out")
        if known is not None and f.metadata["kinds"] and kind not in f.metadata["kinds"]:
            if group == "training":
                check_trains_so(f, kind)
            raise UsageError(f"model '{kind}' has no setting '{name}'{nearest(name, known)}")


def check_watched(kind: str, watch_gradients: int | None) -> None:
    if watch_gradients and kind == "bigram":
        raise UsageError("--watch-gradients: a bigram carries nothing over time; leave it out")


def _how_fitted(kind: str) -> str:
    return "made of finished runs" if kind == MIXTURE else "fitted by counting"


def refuse_other_model(have: LMSettings, said: Mapping[str, Any], folder: Path, *, windowed: bool) -> None:
    """`--from` goes on with a run's model, tokenizer and normalisation; only what they do not fix may be said."""
    if have.model.kind in FITTED_MODELS:
        what = "a mixture" if have.model.kind == MIXTURE else "an n-gram"
        raise UsageError(f"--from {folder}: {what} is {_how_fitted(have.model.kind)} and cannot be trained further")
    for name, (group, f) in flags_of(LMSettings).items():
        fixed = (group in ("model", "tokenizer") and f.name != "dropout") or f.name == "normalise"
        fixed = fixed or (f.name == "context" and windowed)
        if fixed and name in said and said[name] != value_of(have, group, f):
            raise UsageError(
                f"--{dashed(name)} {said[name]} conflicts with --from {folder}, "
                f"which has {value_of(have, group, f) or 'none'}; leave it out"
            )


def check_vocab_size(settings: LMSettings) -> None:
    """Refuse a size that the tokenizer cannot have, as far as it comes with seqlab."""
    kind, size = settings.tokenizer.kind, settings.tokenizer.vocab_size
    if size is None or kind not in ("byte", "char", *LEAST_VOCABULARY):
        return
    if kind not in LEAST_VOCABULARY:
        raise UsageError(f"--vocab-size is not a choice for the tokenizer '{kind}'; leave it out")
    least = LEAST_VOCABULARY[kind]
    if size < least:
        raise UsageError(f"--vocab-size {size} is too small for {kind}; the least is {least}")


def _fill_tokenizer(settings: LMSettings) -> TokenizerSettings:
    """What is neither said nor decided by the model is left to the text, if counts lead."""
    asked, model = settings.tokenizer, settings.model
    kind = asked.kind or TOKENIZERS_OF_MODELS.get(model.kind)
    if kind is None and (model.kind not in NEURAL or model.guide == "none" or asked.vocab_size is not None):
        kind = "bpe"
    return dataclasses.replace(asked, kind=kind)


# What a domain's model is, unless somebody says otherwise: the same tokens for every text.
MATRIX_DEFAULTS = {"model": ModelSettings().kind, "tokenizer": "char", "budget": TrainingSettings().budget}

LEAST_VOCABULARY = {"bpe": 257, "word": 2}  # every byte and one merge; the unknown class and a word
FULL_GRADIENT_VOCABULARY = 5_000  # up to here a step on all pairs is cheap enough to be the better choice
BYTES_PER_BPE_TOKEN = 900  # of training text for each token of the vocabulary (docs/log.md)
BPE_VOCABULARY = (320, 4096)
BYTES_PER_COUNTED_TOKEN = 2000  # where n-grams are counted, shorter tokens are better: they are met more often
COUNTED_BPE_VOCABULARY = (320, 1000)
WORD_VOCABULARY, BIGRAM_VOCABULARY = 10_000, 4_000


def default_vocab_size(kind: str, train_bytes: int, model: str = "", guide: str | None = None) -> int | None:
    """BPE: one token for so many bytes of training text, within a range; byte and char have no choice.

    The bigram's cost grows with the square of its words: it takes fewer.
    """
    if kind == "bpe":
        counted = "ngram" in (model, guide)
        least, most = COUNTED_BPE_VOCABULARY if counted else BPE_VOCABULARY
        return min(most, max(least, train_bytes // (BYTES_PER_COUNTED_TOKEN if counted else BYTES_PER_BPE_TOKEN)))
    if kind == "word":
        return BIGRAM_VOCABULARY if model == "bigram" else WORD_VOCABULARY
    return None
