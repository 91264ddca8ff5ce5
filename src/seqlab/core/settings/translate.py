"""The settings of translators: data, tokenizer, model, training, and the presets that fill them in."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field

from seqlab.core.registry import PLACEMENTS, SCORES, TRANSLATORS
from seqlab.core.settings.duel import DuelSettings, Rules
from seqlab.core.settings.fields import (
    BELOW_ONE,
    COUNT,
    NOT_NEGATIVE,
    SHARE,
    Limits,
    Preset,
    check_said_of_model,
    check_settings,
    fill,
    filled,
    setting,
)
from seqlab.core.settings.training import SIZES, TrainingSettings
from seqlab.core.sizes import check_heads
from seqlab.core.units import parse_budget

TRANSFORMER = ("transformer",)
RECURRENT = ("gru", "lstm")
SPLITS = ("end", "random")
BETWEEN_FILES = "\n"  # in one setting; no name of a file has it


@dataclass(frozen=True)
class ParallelSettings:
    data: str = setting("", "a .tsv, .csv or .jsonl with a column for each language, a text file, a corpus", place=True)
    beside: str = setting("", "text files whose line k translates line k of the first, one a line", place=True)
    source: str = setting("", "column of the source (default: the first)")
    to: str = setting("", "targets, with commas between: columns (default: all others), names of files, or corpora")
    encoding: str = setting("utf-8", "encoding of the files")
    held_out: int = setting(2000, "rows to validate on, and as many to test on; at most a tenth each", limits=COUNT)
    split: str | None = setting(
        None, "which rows are held out: the end (running text: corpora) or random ones (files)", choices=SPLITS
    )
    split_seed: int = setting(0, "seed of a random split", limits=NOT_NEGATIVE)


@dataclass(frozen=True)
class PiecesSettings:
    vocab_size: int | None = setting(
        None, "pieces of words, shared by all languages (chosen by the amount of text)", limits=Limits(257, 100_000)
    )
    length: int = setting(
        160, "pairs with more pieces than this are not trained on (nothing is ever cut)", limits=Limits(2, 10_000)
    )


@dataclass(frozen=True)
class TranslatorSettings:
    kind: str = setting("transformer", "transformer, gru or lstm", flag="model", choices=TRANSLATORS)
    size: str | None = setting(None, "small, medium, large or huge (default: by the budget)", choices=SIZES)
    width: int | None = setting(None, "hidden width", limits=COUNT)
    depth: int | None = setting(None, "layers of the encoder, and of the decoder", limits=Limits(1, 1000))
    decoder_depth: int | None = setting(None, "layers of the decoder, if it has another number", limits=Limits(1, 1000))
    heads: int | None = setting(None, "attention heads", limits=COUNT, kinds=TRANSFORMER)
    hidden: int | None = setting(
        None, "units of a feed-forward network (default: 4·width)", limits=COUNT, kinds=TRANSFORMER
    )
    placement: str | None = setting(
        None, "norms before each part (pre) or after it (post)", choices=PLACEMENTS[:2], kinds=TRANSFORMER
    )
    aligned: bool | None = setting(
        None, "the decoder compares its own position with those of the source's words", kinds=TRANSFORMER
    )
    score: str | None = setting(
        None, "how a decoder compares itself with the source: dot, scaled or additive", choices=SCORES, kinds=RECURRENT
    )
    input_feeding: bool | None = setting(None, "the decoder reads what it last attended to (slower)", kinds=RECURRENT)
    pointer: bool | None = setting(
        None, "can copy from the source, and starts by doing so (default: where copying already scores)"
    )
    tied: bool | None = setting(None, "one table of vectors for reading and writing")
    dropout: float | None = setting(None, "share of activations set to zero in training", limits=BELOW_ONE)


@dataclass(frozen=True)
class TranslateTrainingSettings(TrainingSettings):
    budget: str = setting("10m", "how long to train: 10m, 1h, 20000steps, 5Mtokens or 3epochs", check=parse_budget)
    batch: int | None = setting(None, "tokens per step (pairs of similar length, padding counted)", limits=COUNT)
    smoothing: float = setting(0.1, "share of each target that is spread over all pieces", limits=SHARE)


@dataclass(frozen=True)
class TranslateSettings:
    """Everything that decides what `seqlab translate train` computes."""

    data: ParallelSettings = field(default_factory=ParallelSettings)
    tokenizer: PiecesSettings = field(default_factory=PiecesSettings)
    model: TranslatorSettings = field(default_factory=TranslatorSettings)
    training: TranslateTrainingSettings = field(default_factory=TranslateTrainingSettings)


# Found by experiment on 2 cores (docs/log.md).
_COMMON: Preset = dict(batch=1024, weight_decay=0.01, tied=True)
_BLOCKS: Preset = dict(placement="pre", aligned=True)
_CELLS: Preset = dict(score="scaled", input_feeding=False)
_OF_CELLS: dict[str, Preset] = {
    "small": dict(width=128, depth=1, dropout=0.1, learning_rate=4e-3) | _COMMON | _CELLS,
    "medium": dict(width=256, depth=1, dropout=0.1, learning_rate=4e-3) | _COMMON | _CELLS,
    "large": dict(width=384, depth=1, dropout=0.2, learning_rate=1.5e-3) | _COMMON | _CELLS,
    "huge": dict(width=512, depth=2, dropout=0.3, learning_rate=1e-3) | _COMMON | _CELLS,
}
PRESETS: dict[str, dict[str, Preset]] = {
    "transformer": {
        "small": dict(width=128, depth=2, heads=4, dropout=0.1, learning_rate=5e-3) | _COMMON | _BLOCKS,
        "medium": dict(width=160, depth=2, heads=4, dropout=0.1, learning_rate=4e-3) | _COMMON | _BLOCKS,
        "large": dict(width=256, depth=3, heads=4, dropout=0.1, learning_rate=2e-3) | _COMMON | _BLOCKS,
        "huge": dict(width=384, depth=4, heads=6, dropout=0.2, learning_rate=1e-3) | _COMMON | _BLOCKS,
    },
    "gru": _OF_CELLS,
    "lstm": _OF_CELLS,
}
BYTES_PER_PIECE = 2000  # of training text, source and targets, for each piece of the vocabulary
PIECES = (300, 8000)


def default_pieces(train_bytes: int) -> int:
    least, most = PIECES
    return min(most, max(least, train_bytes // BYTES_PER_PIECE))


def size_of_budget(budget: str) -> str:
    seconds = parse_budget(budget).seconds
    if seconds is None or seconds < 300:
        return "small"
    return "medium" if seconds < 7200 else "large"


def fill_translate(settings: TranslateSettings) -> TranslateSettings:
    """Fill every None that the model's kind and the budget decide; what a person said stays."""
    check_settings(settings)
    kind = settings.model.kind
    size = settings.model.size or size_of_budget(settings.training.budget)
    preset = PRESETS.get(kind, PRESETS["transformer"])[size] | {"size": size}
    model, training = fill(settings.model, preset), fill(settings.training, preset)
    training.check()
    if kind == "transformer":
        check_heads(filled(model.width), filled(model.heads), None, in_pairs=True)
    return dataclasses.replace(settings, model=model, training=training)


def check_said_of_translator(settings: TranslateSettings, said: Collection[str]) -> None:
    """Refuse what a person said of a model that has no such thing; one of somebody's own may have anything."""
    if settings.model.kind in PRESETS:
        check_said_of_model(settings, said)


def names_in(listed: str) -> list[str]:
    """Names with commas between."""
    return [name.strip() for name in listed.split(",") if name.strip()]


# --------------------------------------------------------------------------- duels


@dataclass(frozen=True)
class TranslatorDuelSettings(DuelSettings):
    models: str = setting("", "transformer, gru or lstm, with commas between")


TRANSLATE_RULES = Rules(
    settings_type=TranslateSettings,
    kinds=TRANSLATORS,
    fitted=(),
    elsewhere={
        "data": "the data come first",
        "model": "name the models with --models transformer,gru",
        "seed": "say how many with --seeds",
    },
    example="transformer,gru,lstm",
    command=("translate", "compare"),
    own_kind=lambda kind: kind not in PRESETS,
)
