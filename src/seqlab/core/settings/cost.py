"""What can be asked of `seqlab cost`: the settings of every task that change what training costs, and sizes of data.

Nobody reads a text here, so what the data would decide is said, or assumed: `DataSizes`, `ASSUMED`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import FITTED_MODELS
from seqlab.core.settings.classify import ClassifySettings, check_said_of_classifier, fill_classify
from seqlab.core.settings.fields import (
    Field,
    Limits,
    check_group,
    dashed,
    declared_type,
    filled,
    flags_of,
    setting,
    with_flags,
)
from seqlab.core.settings.lm import (
    FULL_GRADIENT_VOCABULARY,
    LMSettings,
    check_said,
    default_vocab_size,
    fill_lm,
    tokenizer_for,
    with_tokenizer,
)
from seqlab.core.settings.translate import TranslateSettings, check_said_of_translator, fill_translate
from seqlab.core.units import parse_budget

EXAMPLES = Limits(1, 10**15)
LENGTH = Limits(1, 10_000_000)
TYPES = {"int": int, "float": float, "bool": bool, "str": str}


@dataclass(frozen=True)
class DataSizes:
    """What data would say of a model and its batches. None: assumed, and named as such."""

    vocab_size: int | None = setting(
        None, "tokens, words or pieces that the model knows (average: words and n-grams)", limits=Limits(2, 1 << 28)
    )
    classes: int | None = setting(None, "classes to decide between", limits=Limits(2, 20_000))
    targets: int | None = setting(None, "languages to translate into", limits=Limits(1, 10_000))
    length: int | None = setting(
        None, "positions of a text, or of a target, its marks included (average: words and n-grams)", limits=LENGTH
    )
    source_length: int | None = setting(None, "positions of a source (default: --length)", limits=LENGTH)
    tokens: int | None = setting(None, "tokens of the training text, for a budget in epochs", limits=EXAMPLES)
    texts: int | None = setting(None, "training texts, for a budget in epochs", limits=EXAMPLES)
    pairs: int | None = setting(None, "training pairs, for a budget in epochs", limits=EXAMPLES)


@dataclass(frozen=True)
class Costed:
    """A task whose costs can be asked for without data."""

    settings_type: type
    fill: Callable[[Any], Any]
    check_said: Callable[[Any, Collection[str]], None]
    sizes: tuple[str, ...]  # which DataSizes it has
    examples: str  # which of them says how much data there is

    @property
    def flags(self) -> dict[str, Field]:
        """Its own settings that change what training costs."""
        known = flags_of(self.settings_type)
        return {
            name: f
            for name, (group, f) in known.items()
            if name in TRAINING or (group == "model" and name not in NOT_COUNTED) or name == "tokenizer"
        }


def _fill_lm(settings: LMSettings) -> LMSettings:
    """As of a large text, where only the text would decide on the tokenizer."""
    filled_in = fill_lm(settings)
    return with_tokenizer(filled_in, tokenizer_for(filled_in, LARGE_TEXT))


TRAINING = ("budget", "batch", "context", "optimiser", "ema", "accumulate", "recompute", "carry", "full_gradient")
# What only data can fill (vectors), what costs nothing, and what DataSizes says.
NOT_COUNTED = ("vectors", "order", "folds", "ngrams", "bucket_bits", "least_texts", "alpha", "vocab_size", "length")
COSTED: Mapping[str, Costed] = {
    "lm": Costed(LMSettings, _fill_lm, check_said, ("vocab_size", "tokens"), "tokens"),
    "classify": Costed(
        *(ClassifySettings, fill_classify, check_said_of_classifier),
        *(("vocab_size", "classes", "length", "texts"), "texts"),
    ),
    "translate": Costed(
        *(TranslateSettings, fill_translate, check_said_of_translator),
        *(("vocab_size", "targets", "length", "source_length", "pairs"), "pairs"),
    ),
}
SIZES = {f.name: f for f in dataclasses.fields(DataSizes)}
HELP = {
    "model": "kind of model (default: lstm for lm, average for classify, transformer for translate)",
    "batch": "sequences of a step; translate: tokens of a step, padding counted",
    "budget": "how long to train: 60s, 5m, 2000steps, 5Mtokens or 3epochs (as train has it)",
    "tokenizer": "byte, char, word or bpe: says how large the vocabulary is, unless --vocab-size does",
    "width": "hidden width",
    "depth": "layers",
}

# Unless a person says otherwise; the output names what was assumed.
LARGE_TEXT = 10**9  # bytes
VOCABULARIES = {"byte": 256, "char": 100}  # of bpe and word: that of a large text
AVERAGE_FEATURES, AVERAGE_LENGTH = 500_000, 400  # words and n-grams: known, and of one text
PIECES, PIECES_OF_A_PAIR = 8_000, 32
CLASSES, TARGETS = 2, 1
BIGRAM_TOKENS = 100_000  # of the text that every step of a bigram's exact gradient reads


def tasks_with(name: str) -> tuple[str, ...]:
    """The tasks that have a flag."""
    return tuple(task for task, known in COSTED.items() if name in known.flags or name in known.sizes)


def cost_fields() -> dict[tuple[str, ...], list[Field]]:
    """Every flag as a field that fills nothing in, by the tasks that have it."""
    known: dict[str, Field] = {}
    for task in COSTED.values():
        known |= {name: f for name, f in task.flags.items() if name not in known}
    known |= SIZES
    rows: list[tuple[str, Any, Any]] = [
        (name, TYPES[declared_type(f)], setting(None, HELP.get(name, f.metadata["help"]))) for name, f in known.items()
    ]
    found: dict[tuple[str, ...], list[Field]] = {}
    for f in dataclasses.fields(dataclasses.make_dataclass("CostFlags", rows)):
        found.setdefault(tasks_with(f.name), []).append(f)
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


# --------------------------------------------------------------------------- what is asked


@dataclass(frozen=True)
class Asked:
    """Settings of a task, filled in, and what is known of the data."""

    task: str
    settings: Any
    sizes: DataSizes
    said: Collection[str]


def refuse_unknown_flags(task: str, said: Collection[str]) -> None:
    """Refuse a flag that the task lacks."""
    if task not in COSTED:
        raise UsageError(f"--task '{task}' is not known{nearest(task, COSTED)}")
    known = COSTED[task]
    for name in said:
        others = tasks_with(name)
        if name not in known.flags and name not in known.sizes:
            raise UsageError(
                f"task '{task}' has no --{dashed(name)}; it is for {' and '.join(others)}"
                if others
                else f"unknown setting '{name}'{nearest(name, {*known.flags, *known.sizes})}"
            )


def settings_of(task: str, said: Mapping[str, Any]) -> Asked:
    """Checked and filled in; refuses in one line what could never be trained."""
    refuse_unknown_flags(task, said)
    known, sizes = COSTED[task], sizes_of(task, said)
    flags = {name: value for name, value in said.items() if name in known.flags}
    if flags.get("model") in FITTED_MODELS:
        raise UsageError(f"model '{flags['model']}' is counted, not trained: it has no steps whose costs to predict")
    settings = known.fill(with_flags(known.settings_type(), flags))
    known.check_said(settings, flags)
    refuse_epochs_without_a_size(task, settings, sizes, said)
    return Asked(task, settings, sizes, set(said))


def sizes_of(task: str, said: Mapping[str, Any]) -> DataSizes:
    """What is said of the data, checked."""
    sizes = DataSizes(**{name: value for name, value in said.items() if name in COSTED[task].sizes})
    check_group(sizes)
    return sizes


def refuse_epochs_without_a_size(task: str, settings: Any, sizes: DataSizes, said: Collection[str]) -> None:
    """A preset's epochs are left open; those that a person asked for need to know how long one is."""
    budget, flag = settings.training.budget, COSTED[task].examples
    if "budget" in said and parse_budget(budget).unit == "epochs" and getattr(sizes, flag) is None:
        raise UsageError(f"--budget {budget} needs to know how long an epoch is; add --{flag} N, or give it in steps")


# --------------------------------------------------------------------------- shapes


@dataclass(frozen=True)
class Shapes:
    """Sizes of a model and of its batches, all decided."""

    vocabulary: int
    rows: int  # sequences of a step
    length: int  # positions of each
    source_length: int | None = None
    classes: int = CLASSES
    targets: int = TARGETS
    examples: int | None = None  # tokens, texts or pairs to learn from
    assumed: tuple[str, ...] = ()


def shapes_of(asked: Asked) -> Shapes:
    """What nobody said is assumed, and named."""
    return {"lm": _of_lm, "classify": _of_classifier, "translate": _of_translator}[asked.task](asked)


def _of_lm(asked: Asked) -> Shapes:
    model, training = asked.settings.model, asked.settings.training
    kind = filled(asked.settings.tokenizer.kind)
    default = VOCABULARIES.get(kind) or _of_large_text(kind, model) or filled(_of_large_text("bpe", model))
    vocabulary, assumed = _or_assumed(asked.sizes.vocab_size, default, "a vocabulary of {:,} tokens (--vocab-size)")
    rows, length = filled(training.batch), filled(training.context)
    assumed += assumed_of_bigram(asked, vocabulary)
    if model.guide == "ngram":
        assumed += ("a guide whose counts take no memory: they grow with the text (--guide none: no guide)",)
    return Shapes(vocabulary, rows, length, examples=asked.sizes.tokens, assumed=assumed)


def _of_large_text(tokenizer: str, model: Any) -> int | None:
    return default_vocab_size(tokenizer, LARGE_TEXT, model.kind, model.guide)


def reads_all_pairs(asked: Asked, vocabulary: int) -> bool:
    """Whether every step of a bigram reads the whole text: its exact gradient."""
    exact = asked.settings.training.full_gradient
    return asked.settings.model.kind == "bigram" and (
        vocabulary <= FULL_GRADIENT_VOCABULARY if exact is None else exact
    )


def assumed_of_bigram(asked: Asked, vocabulary: int) -> tuple[str, ...]:
    """It multiplies each different token of a step once; the count takes every token of a batch."""
    if asked.settings.model.kind != "bigram":
        return ()
    counted = "counted as if each token of a batch were multiplied (a step multiplies each different one once)"
    if not reads_all_pairs(asked, vocabulary):
        return (counted,)
    text = () if asked.sizes.tokens else (f"a text of {BIGRAM_TOKENS:,} tokens (--tokens), all of it in each step",)
    return (*text, counted)


def _of_classifier(asked: Asked) -> Shapes:
    model, sizes = asked.settings.model, asked.sizes
    bags = model.kind == "average"
    known, longest = (AVERAGE_FEATURES, AVERAGE_LENGTH) if bags else (model.vocab_size, model.length)
    what = "words and n-grams" if bags else "words"
    vocabulary, one = _or_assumed(sizes.vocab_size, filled(known), "{:,} " + what + " known (--vocab-size)")
    classes, two = _or_assumed(sizes.classes, CLASSES, "{} classes (--classes)")
    length, three = _or_assumed(
        sizes.length,
        min(filled(longest), vocabulary) if bags else filled(longest),
        "texts of {:,} " + what + " (--length)",
    )
    if bags:
        check_bag(length, vocabulary)
    batch = filled(asked.settings.training.batch)
    return Shapes(vocabulary, batch, length, classes=classes, examples=sizes.texts, assumed=(*one, *two, *three))


def check_bag(length: int, known: int) -> None:
    """A feature stands in a bag once."""
    if length > known:
        raise UsageError(
            f"--length {length:,}: a text cannot have more words and n-grams than the {known:,} that are known; "
            "give less, or a larger --vocab-size"
        )


def _of_translator(asked: Asked) -> Shapes:
    """A batch holds as many pairs as have its tokens, source and target padded to one length."""
    sizes = asked.sizes
    vocabulary, one = _or_assumed(sizes.vocab_size, PIECES, "{:,} pieces (--vocab-size)")
    targets, two = _or_assumed(sizes.targets, TARGETS, "{} target (--targets)")
    length, three = _or_assumed(sizes.length, PIECES_OF_A_PAIR, "targets of {:,} pieces (--length)")
    pointer = () if asked.settings.model.pointer is not None else ("no pointer (--pointer)",)
    rows = max(1, filled(asked.settings.training.batch) // max(length, sizes.source_length or length))
    assumed = (*one, *two, *three, *pointer)
    return Shapes(vocabulary, rows, length, sizes.source_length, 2, targets, sizes.pairs, assumed)


def _or_assumed(said: int | None, default: int, words: str) -> tuple[int, tuple[str, ...]]:
    return (default, (words.format(default),)) if said is None else (said, ())
