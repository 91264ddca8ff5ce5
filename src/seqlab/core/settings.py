"""Every setting, its default and its meaning: the only home of all three.

Settings are frozen dataclasses; each field carries its help text, from which the flags, their help and
the record in `settings.toml` are made. Nothing here needs torch. A field whose default is None is filled
in by the preset that fits the model, its size and the budget (`fit_lm_settings`); what a person
says beats every preset.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, TypeVar

from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import ALL_MODELS, FITTED_MODELS, TOKENIZERS
from seqlab.core.units import parse_budget, parse_split


def setting(default: Any, help: str, *, flag: str | None = None, choices: Any = None) -> Any:
    """A field with its help text; `flag` names it on the command line where the field name would mislead."""
    return field(default=default, metadata={"help": help, "flag": flag, "choices": choices})


SIZES = ("small", "medium", "large", "huge")
POSITIONS = ("rotary", "sinusoidal", "learned")
ATTENTIONS = ("softmax", "separable", "random_features")
SCORES = ("dot", "scaled", "additive")
DECAYS = ("cosine", "linear", "constant")
OPTIMISERS = ("adamw", "sgd")


@dataclass(frozen=True)
class DataSettings:
    text: str = setting("", "a text file, folder, .gz/.bz2/.xz, '-' or the name of a corpus")
    encoding: str = setting("utf-8", "encoding of the text files")
    normalise: str = setting("", "steps applied to the text first, such as lower,digits (see docs/measuring.md)")
    split: str = setting("80/10/10", "training/validation/test shares, contiguous, in percent")


@dataclass(frozen=True)
class TokenizerSettings:
    kind: str | None = setting(
        None, "byte, char, word or bpe (default: bpe; word for bigram)", flag="tokenizer", choices=TOKENIZERS
    )
    vocab_size: int | None = setting(None, "tokens to learn for bpe and word (chosen by the size of the text)")


@dataclass(frozen=True)
class ModelSettings:
    kind: str = setting(
        "lstm", "rnn, gru, lstm, attentive-rnn, transformer, bigram or ngram", flag="model", choices=ALL_MODELS
    )
    size: str | None = setting(None, "small, medium, large or huge (chosen by the budget)", choices=SIZES)
    width: int | None = setting(None, "hidden width")
    depth: int | None = setting(None, "layers")
    heads: int | None = setting(None, "attention heads (transformer)")
    attention: str | None = setting(None, "softmax, separable or random_features (transformer)", choices=ATTENTIONS)
    positions: str | None = setting(None, "rotary, sinusoidal or learned (transformer)", choices=POSITIONS)
    score: str | None = setting(None, "dot, scaled or additive (attentive-rnn)", choices=SCORES)
    order: int | None = setting(None, "tokens in an n-gram, 1 to 8 (ngram; chosen by the tokenizer)")
    vectors: str | None = setting(None, "word vectors to start from: glove-6b-50d or a GloVe/word2vec file (bigram)")
    vector_width: int | None = setting(None, "width of the word vectors (bigram; that of --vectors)")
    train_vectors: bool | None = setting(None, "train the word vectors too (bigram)")
    tied: bool | None = setting(None, "share the embedding with the output layer")
    dropout: float | None = setting(None, "dropout probability")


@dataclass(frozen=True)
class TrainingSettings:
    budget: str = setting("60s", "how long to train: 60s, 5m, 1h, 2000steps, 5Mtokens or 3epochs")
    batch: int | None = setting(None, "sequences per step")
    context: int | None = setting(None, "tokens per sequence; the span of attention and of backpropagation")
    full_gradient: bool | None = setting(None, "exact gradient from the pair counts (bigram; up to 5,000 tokens)")
    optimiser: str = setting("adamw", "adamw or sgd (plain gradient descent)", choices=OPTIMISERS)
    accumulate: int = setting(1, "cut each batch into this many pieces to save memory (the same step but for dropout)")
    learning_rate: float | None = setting(None, "peak learning rate")
    warmup: float = setting(0.05, "share of the steps over which the learning rate rises")
    decay: str = setting("linear", "cosine, linear or constant, down to final_lr", choices=DECAYS)
    final_lr: float = setting(0.0, "learning rate at the end, as a share of the peak")
    weight_decay: float | None = setting(None, "decoupled weight decay of the matrices")
    clip: float = setting(1.0, "largest global gradient norm")
    carry: bool | None = setting(None, "carry recurrent state from batch to batch (truncated BPTT)")
    eval_every: int | None = setting(None, "steps between validations (chosen so that they cost little time)")
    patience: int = setting(10, "stop after this many validations without a better one; 0: never")
    seed: int = setting(0, "seed of every random stream")


@dataclass(frozen=True)
class LMSettings:
    """Everything that decides what `seqlab lm train` computes."""

    data: DataSettings = field(default_factory=DataSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)


# --------------------------------------------------------------------------- presets

Preset = dict[str, Any]
Value = TypeVar("Value")

# Found by experiment on 2 cores (docs/log.md): what each kind gets out of its time. In a minute the number of steps
# is what is scarce, so batches are small and nothing is dropped; with more time the text is read more often, so the
# layers are wider and dropout grows.
_RECURRENT: Preset = dict(depth=1, batch=32, context=32, weight_decay=0.1)
_LONG: Preset = dict(batch=16, context=64, weight_decay=0.3)
_ATTENTIVE: Preset = dict(depth=1, batch=32, context=32, weight_decay=0.1, score="scaled")
_ATTENTION: Preset = dict(batch=16, attention="softmax", positions="rotary", weight_decay=0.1)
_BIGRAM: Preset = dict(vector_width=50, train_vectors=True, batch=64, context=16, learning_rate=3e-2, weight_decay=0.0)
PRESETS: dict[str, dict[str, Preset]] = {
    "bigram": {
        "small": dict(width=50) | _BIGRAM,
        "medium": dict(width=100) | _BIGRAM,
        "large": dict(width=200) | _BIGRAM,
        "huge": dict(width=400) | _BIGRAM,
    },
    "rnn": {
        "small": dict(width=256, learning_rate=2e-3, dropout=0.0) | _RECURRENT,
        "medium": dict(width=384, learning_rate=1.5e-3, dropout=0.1) | _RECURRENT,
        "large": dict(width=640, learning_rate=1e-3, dropout=0.3) | _RECURRENT,
        "huge": dict(width=896, learning_rate=7e-4, dropout=0.5) | _RECURRENT | _LONG,
    },
    "gru": {
        "small": dict(width=256, learning_rate=6e-3, dropout=0.0) | _RECURRENT,
        "medium": dict(width=320, learning_rate=5e-3, dropout=0.15) | _RECURRENT,
        "large": dict(width=384, learning_rate=4e-3, dropout=0.3) | _RECURRENT | _LONG,
        "huge": dict(width=512, learning_rate=3e-3, dropout=0.5) | _RECURRENT | _LONG,
    },
    "lstm": {
        "small": dict(width=256, learning_rate=6e-3, dropout=0.0) | _RECURRENT,
        "medium": dict(width=320, learning_rate=5e-3, dropout=0.15) | _RECURRENT,
        "large": dict(width=384, learning_rate=4e-3, dropout=0.3) | _RECURRENT | _LONG,
        "huge": dict(width=512, learning_rate=3e-3, dropout=0.5) | _RECURRENT | _LONG,
    },
    "attentive-rnn": {
        "small": dict(width=256, learning_rate=2e-3, dropout=0.0) | _ATTENTIVE,
        "medium": dict(width=384, learning_rate=1.5e-3, dropout=0.1) | _ATTENTIVE,
        "large": dict(width=512, learning_rate=1e-3, dropout=0.3) | _ATTENTIVE,
        "huge": dict(width=640, learning_rate=7e-4, dropout=0.5) | _ATTENTIVE,
    },
    "transformer": {
        "small": dict(width=128, depth=3, heads=4, context=64, learning_rate=4e-3, dropout=0.0) | _ATTENTION,
        "medium": dict(width=192, depth=4, heads=6, context=128, learning_rate=2e-3, dropout=0.1) | _ATTENTION,
        "large": dict(width=320, depth=6, heads=5, context=256, learning_rate=1e-3, dropout=0.2) | _ATTENTION,
        "huge": dict(width=384, depth=8, heads=6, context=256, learning_rate=7e-4, dropout=0.3) | _ATTENTION,
    },
}
# Models of one's own start from these.
OWN_MODEL_PRESETS: dict[str, Preset] = PRESETS["gru"]

COMMON_PRESET: Preset = dict(tied=False, carry=True)
TOKENIZERS_OF_MODELS = {"bigram": "word"}  # every other model: bpe
NGRAM_ORDERS = {"char": 7, "byte": 7, "bpe": 4, "word": 3}  # docs/log.md


def size_for_budget(budget: str) -> str:
    """The preset that gets the most out of a budget on a small machine (docs/log.md)."""
    seconds = parse_budget(budget).seconds
    if seconds is None or seconds < 100:
        return "small"
    if seconds < 300:
        return "medium"
    return "large" if seconds < 1800 else "huge"


def fit_lm_settings(settings: LMSettings) -> LMSettings:
    """Fill every None that a preset decides; what a person said stays."""
    check_lm_settings(settings)
    model, training = settings.model, settings.training
    tokenizer = _fit_tokenizer(settings)
    if model.kind in FITTED_MODELS:
        preset: Preset = {"order": NGRAM_ORDERS.get(fitted(tokenizer.kind), 5)}
    else:
        size = model.size or size_for_budget(training.budget)
        preset = COMMON_PRESET | PRESETS.get(model.kind, OWN_MODEL_PRESETS)[size] | {"size": size}
    return dataclasses.replace(
        settings, tokenizer=tokenizer, model=_fill(model, preset), training=_fill(training, preset)
    )


def _fit_tokenizer(settings: LMSettings) -> TokenizerSettings:
    kind = settings.tokenizer.kind or TOKENIZERS_OF_MODELS.get(settings.model.kind, "bpe")
    return dataclasses.replace(settings.tokenizer, kind=kind)


def fitted(value: Value | None) -> Value:
    """A value that `fit_lm_settings` has filled in."""
    assert value is not None, "settings are fitted before use"
    return value


def _fill(group: Any, preset: Preset) -> Any:
    missing = {f.name for f in dataclasses.fields(group) if getattr(group, f.name) is None}
    return dataclasses.replace(group, **{name: preset[name] for name in missing & preset.keys()})


FULL_GRADIENT_VOCABULARY = 5_000  # up to here a step on all pairs is cheap enough to be the better choice
BYTES_PER_BPE_TOKEN = 900  # of training text for each token of the vocabulary (docs/log.md)
BPE_VOCABULARY = (320, 4096)
WORD_VOCABULARY, BIGRAM_VOCABULARY = 10_000, 4_000


def default_vocab_size(kind: str, train_bytes: int, model: str = "") -> int | None:
    """BPE: one token for so many bytes of training text, within a range; byte and char have no choice.

    The bigram's cost grows with the square of its words: it takes fewer.
    """
    if kind == "bpe":
        least, most = BPE_VOCABULARY
        return min(most, max(least, train_bytes // BYTES_PER_BPE_TOKEN))
    if kind == "word":
        return BIGRAM_VOCABULARY if model == "bigram" else WORD_VOCABULARY
    return None


# --------------------------------------------------------------------------- checks

AT_LEAST_ONE = (
    *("vocab_size", "width", "depth", "heads", "order", "vector_width"),
    *("batch", "context", "accumulate", "eval_every"),
)
LARGEST = 1_000_000  # of any of them
MOST_THREADS = 1024
POSITIVE = ("learning_rate", "clip")
NOT_NEGATIVE = ("weight_decay", "patience", "seed")
SHARES = ("dropout", "warmup", "final_lr")


def check_lm_settings(settings: LMSettings) -> None:
    """Refuse values out of range, each with one line that names the value, the limit and the remedy."""
    parse_budget(settings.training.budget)
    parse_split(settings.data.split)
    for name, (group, f) in flags_of(LMSettings).items():
        value = getattr(getattr(settings, group), f.name)
        if value is None:
            continue
        choices = f.metadata["choices"]
        if choices is not None and value not in choices:
            raise UsageError(f"--{dashed(name)} '{value}' is not known{nearest(str(value), choices)}")
        check_range(f.name, value)


def check_range(name: str, value: Any) -> None:
    flag = dashed(name)
    if name in AT_LEAST_ONE and value < 1:
        raise UsageError(f"--{flag} {value} is too small; the least is 1")
    if name in AT_LEAST_ONE and value > LARGEST:
        raise UsageError(f"--{flag} {value} is too large; the most is {LARGEST:,}")
    if name in POSITIVE and not 0 < value < math.inf:
        raise UsageError(f"--{flag} {value} must be a number greater than 0")
    if name in NOT_NEGATIVE and not 0 <= value < math.inf:
        raise UsageError(f"--{flag} {value} must be a number of 0 or more")
    if name in SHARES and not 0 <= value <= 1:
        raise UsageError(f"--{flag} {value} must lie between 0 and 1")


def check_threads(threads: int | None) -> None:
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise UsageError(f"--threads {threads} must lie between 1 and {MOST_THREADS}")


# --------------------------------------------------------------------------- flags and tables

Table = dict[str, dict[str, Any]]
NOT_SETTINGS = {"sha256", "seqlab", "record"}  # what a settings.toml holds besides them


def dashed(name: str) -> str:
    return name.replace("_", "-")


def flags_of(settings_type: Any) -> dict[str, tuple[str, dataclasses.Field[Any]]]:
    """Flag name -> (group, field) for every field of a settings dataclass made of groups."""
    found: dict[str, tuple[str, dataclasses.Field[Any]]] = {}
    for group in dataclasses.fields(settings_type):
        for f in dataclasses.fields(getattr(settings_type(), group.name)):
            found[f.metadata["flag"] or f.name] = (group.name, f)
    return found


def with_flags(settings: LMSettings, given: dict[str, Any]) -> LMSettings:
    """The settings with `given` (flag name -> value) put over them; an unknown name is refused."""
    known = flags_of(LMSettings)
    changes: Table = {}
    for name, value in given.items():
        if name not in known:
            raise UsageError(f"unknown setting '{name}'{nearest(name, known)}")
        group, f = known[name]
        _check_type(f"setting '{name}'", value, str(f.type))
        changes.setdefault(group, {})[f.name] = value
    return _with_changes(settings, changes)


def to_table(settings: LMSettings) -> Table:
    """Groups of plain values, for TOML (which has no null: what is None is left out)."""
    groups = dataclasses.asdict(settings)
    return {g: {k: v for k, v in values.items() if v is not None} for g, values in groups.items()}


def from_table(table: dict[str, Any], source: str) -> LMSettings:
    """The settings of a `settings.toml`; `source` names the file in errors."""
    settings = LMSettings()
    changes: Table = {}
    groups = {group.name for group in dataclasses.fields(settings)}
    for name in table.keys() - groups - NOT_SETTINGS:
        raise UsageError(f"{source}: unknown setting or table '{name}'{nearest(name, groups)}")
    for group in dataclasses.fields(settings):
        values = table.get(group.name, {})
        if not isinstance(values, dict):
            raise UsageError(f"{source}: '{group.name}' is {values!r}; it must be a table of settings")
        known = {f.name: f for f in dataclasses.fields(getattr(settings, group.name))}
        for name, value in values.items():
            if name not in known:
                raise UsageError(f"{source}: unknown setting '{group.name}.{name}'{nearest(name, known)}")
            _check_type(f"{source}: {group.name}.{name}", value, str(known[name].type))
        changes[group.name] = values
    return _with_changes(settings, changes)


def _check_type(where: str, value: Any, declared: str) -> None:
    wanted = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}
    allowed = wanted[declared.partition(" ")[0]]
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        raise UsageError(f"{where} is {value!r}; it must be of type {declared.partition(' ')[0]}")


def _with_changes(settings: LMSettings, changes: Table) -> LMSettings:
    groups = {g: dataclasses.replace(getattr(settings, g), **values) for g, values in changes.items()}
    return dataclasses.replace(settings, **groups)
