"""The settings of text classifiers: data, model, training, and what each kind of model takes unless told otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field

from seqlab.core.errors import UsageError
from seqlab.core.registry import ATTENTIONS, CLASSIFIERS
from seqlab.core.settings.duel import DuelSettings, Rules
from seqlab.core.settings.fields import (
    BELOW_ONE,
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    Limits,
    Preset,
    check_said_of_model,
    check_settings,
    fill,
    filled,
    setting,
)
from seqlab.core.settings.training import TrainingSettings
from seqlab.core.sizes import check_features, check_heads
from seqlab.core.units import parse_budget, parse_split

AVERAGE = ("average",)
RECURRENT = ("rnn", "gru", "lstm")
TRANSFORMER = ("transformer",)
ENCODERS = (*RECURRENT, *TRANSFORMER)
POOLINGS_OF = {
    "average": ("mean", "sum", "root"),
    **dict.fromkeys(RECURRENT, ("last", "mean", "max", "attention")),
    "transformer": ("mean", "max", "attention", "first"),
}
ALL_POOLINGS = tuple(sorted({pooling for known in POOLINGS_OF.values() for pooling in known}))
BITS = Limits(8, 28, words="is out of range; between 8 and 28 bits number the buckets")
ORDER = Limits(1, 8, words="is out of range; word n-grams have 1 to 8 words")


def check_budget(text: str) -> None:
    """Empty: that of the model's kind."""
    if text and parse_budget(text).unit == "tokens":
        raise UsageError(f"--budget {text}: classifiers count texts, not tokens; give 60s, 2000steps or 3epochs")


@dataclass(frozen=True)
class LabelledSettings:
    data: str = setting("", "a .csv, .tsv or .jsonl file, a folder per label, '-' or a corpus", place=True)
    text: str = setting("", "column of the texts; several, joined by a newline, with commas (title,body)")
    label: str = setting("", "column of the labels")
    group: str = setting("", "column of groups: rows of one group stay on one side of the split")
    encoding: str = setting("utf-8", "encoding of the files")
    split: str = setting("72/8/20", "training/validation/test shares of every label, in percent", check=parse_split)
    split_seed: int = setting(0, "seed of the split: another one, other texts are held out", limits=NOT_NEGATIVE)


@dataclass(frozen=True)
class ClassifierSettings:
    kind: str = setting("average", "average, rnn, gru, lstm or transformer", flag="model", choices=CLASSIFIERS)
    ngrams: int | None = setting(None, "longest word n-gram that is a feature", limits=ORDER, kinds=AVERAGE)
    bucket_bits: int | None = setting(None, "features are hashed into 2^N buckets", limits=BITS, kinds=AVERAGE)
    least_texts: int | None = setting(
        None, "a feature or word must stand in so many training texts", limits=COUNT, kinds=(*AVERAGE, *ENCODERS)
    )
    bayes: bool | None = setting(None, "weigh each feature by naive Bayes, from where training starts", kinds=AVERAGE)
    alpha: float | None = setting(None, "naive Bayes: added to every count", limits=POSITIVE, kinds=AVERAGE)
    width: int | None = setting(
        None, "hidden width; average: width of the features' vectors, 0 for none", limits=NOT_NEGATIVE
    )
    depth: int | None = setting(None, "layers; average: feed-forward layers above the vectors", limits=Limits(0, 1000))
    hidden: int | None = setting(None, "units of a feed-forward layer", limits=COUNT, kinds=AVERAGE)
    heads: int | None = setting(None, "attention heads", limits=COUNT, kinds=TRANSFORMER)
    attention: str | None = setting(
        None, "softmax, separable or random_features", choices=ATTENTIONS, kinds=TRANSFORMER
    )
    features: int | None = setting(
        None,
        "random features of each head (--attention random_features; 4 for each of its numbers)",
        limits=COUNT,
        kinds=TRANSFORMER,
    )
    bidirectional: bool | None = setting(None, "read in both directions", kinds=RECURRENT)
    pooling: str | None = setting(
        None,
        "from words to text: average: mean, sum or root (sum/√n); others: last, mean, max, attention, first",
        choices=ALL_POOLINGS,
    )
    vectors: str | None = setting(None, "word vectors to start from: glove-6b-50d or a file")
    train_vectors: bool | None = setting(None, "train the given vectors further")
    vocab_size: int | None = setting(None, "words that have an id of their own", limits=COUNT, kinds=ENCODERS)
    length: int | None = setting(
        None,
        "words read of a text; of a longer one, its beginning and its end",
        limits=Limits(2, 1_000_000),
        kinds=ENCODERS,
    )
    word_dropout: float | None = setting(
        None, "share of the words and n-grams left out in training", limits=BELOW_ONE, kinds=AVERAGE
    )
    dropout: float | None = setting(None, "share of activations set to zero in training", limits=BELOW_ONE)


@dataclass(frozen=True)
class ClassifyTrainingSettings(TrainingSettings):
    budget: str = setting(
        "", "how long to train: 60s, 5m, 2000steps or 3epochs (average: 2epochs; others: 5m)", check=check_budget
    )
    balance: bool = setting(False, "every class counts the same, however rare it is")


@dataclass(frozen=True)
class ClassifySettings:
    """Everything that decides what `seqlab classify train` computes."""

    data: LabelledSettings = field(default_factory=LabelledSettings)
    model: ClassifierSettings = field(default_factory=ClassifierSettings)
    training: ClassifyTrainingSettings = field(default_factory=ClassifyTrainingSettings)


# Found by experiment on 2 cores (docs/log.md).
_RECURRENT: Preset = dict(
    **dict(width=64, depth=1, bidirectional=True, pooling="attention", dropout=0.3, vocab_size=30_000, length=200),
    **dict(least_texts=2, train_vectors=True, batch=64, learning_rate=4e-3, weight_decay=0.01, budget="5m"),
)
PRESETS: dict[str, Preset] = {
    "average": dict(
        **dict(ngrams=3, bucket_bits=24, least_texts=2, alpha=6.0, depth=0, hidden=64, pooling="root"),
        **dict(word_dropout=0.0, dropout=0.0, train_vectors=True),
        **dict(batch=256, learning_rate=0.1, weight_decay=0.0, budget="2epochs"),
    ),
    **dict.fromkeys(RECURRENT, _RECURRENT),
    "transformer": dict(
        **dict(width=64, depth=2, heads=4, attention="softmax", pooling="mean", dropout=0.2, vocab_size=30_000),
        **dict(
            length=200, least_texts=2, train_vectors=True, batch=32, learning_rate=2e-3, weight_decay=0.05, budget="5m"
        ),
    ),
}
# Vectors take smaller steps than the weights of naive Bayes alone, and tell something of words that stand in one text.
WITH_VECTORS: Preset = dict(learning_rate=0.03, least_texts=1)
WITHOUT_BAYES: Preset = dict(width=8, pooling="mean", batch=128, learning_rate=0.03, budget="5epochs")


def fill_classify(settings: ClassifySettings) -> ClassifySettings:
    """Fill every None that the model's kind decides; what a person said stays."""
    check_settings(settings)
    kind = settings.model.kind
    preset = PRESETS.get(kind, PRESETS["gru"])
    if kind == "average" and settings.model.vectors is not None:
        preset = preset | WITH_VECTORS
    if kind == "average" and settings.model.bayes is False:
        preset = preset | WITHOUT_BAYES
    model, training = fill(settings.model, preset), fill(settings.training, preset)
    training.check()
    if not training.budget:
        training = dataclasses.replace(training, budget=preset["budget"])
    if kind in POOLINGS_OF and model.pooling not in POOLINGS_OF[kind]:
        known = ", ".join(POOLINGS_OF[kind])
        raise UsageError(f"--pooling {model.pooling} is not a choice for model '{kind}'; it has {known}")
    if kind == "average" and model.bayes is False and model.width == 0:
        raise UsageError("an averaging network needs naive Bayes or vectors; leave out --no-bayes or --width 0")
    if kind in ENCODERS and not (filled(model.width) and filled(model.depth)):
        raise UsageError(f"model '{kind}' needs a --width and a --depth of 1 or more")
    if kind == "transformer":
        check_heads(filled(model.width), filled(model.heads), None, in_pairs=True)
        check_features(model.attention, model.features)
    return dataclasses.replace(settings, model=model, training=training)


def check_said_of_classifier(settings: ClassifySettings, said: Collection[str]) -> None:
    """Refuse what a person said of a model that has no such thing; one of somebody's own may have anything."""
    if settings.model.kind in PRESETS:
        check_said_of_model(settings, said)


# --------------------------------------------------------------------------- duels


@dataclass(frozen=True)
class ClassifierDuelSettings(DuelSettings):
    models: str = setting("", "average, rnn, gru, lstm or transformer, with commas between")


CLASSIFY_RULES = Rules(
    settings_type=ClassifySettings,
    kinds=CLASSIFIERS,
    fitted=(),
    elsewhere={
        "data": "the data come first",
        "model": "name the models with --models average,lstm",
        "seed": "say how many with --seeds",
    },
    example="average,lstm,transformer",
    command=("classify", "compare"),
    own_kind=lambda kind: kind not in PRESETS,
)
