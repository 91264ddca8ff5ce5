"""How a contest calls, counts and writes its figure: one place for everything a reader sees of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Terms:
    """The figure is Σ scores / (scale · Σ sizes) over the blocks of what decides; lower is better."""

    models: str  # who competes
    key: str  # of the figure in JSON, and its name as an attribute; metrics.jsonl has it as validation_KEY
    figure: str  # in words
    phrase: str  # a value in a sentence, {} being the number
    column: str  # head of the column
    form: str  # format of a value
    scale: float  # how much of a score makes one unit of the figure
    ordered: bool  # whether blocks follow each other, so that neighbours may be alike, and may be of documents
    validated: str  # what curves show
    curve_note: str  # what else is to be said of them
    counted: str  # what a batch counts, as the task says it
    block: str  # what is resampled, {} being its size in bytes
    blocks: str  # the same in a word
    held_out: str  # what more would be needed of
    noise: str  # where the noise lies that more seeds cannot reduce, as subject with its verb
    very: str  # what the best weights were chosen on, if there is no test part
    fitted: str  # how models come about that are fitted at once
    learnt: str  # what those have learnt
    flops: str | None = None  # head of the column for what training costs, if that is counted
    bounds: tuple[float, float] | None = None  # within which the figure lies by its nature
    others: str | None = None  # what intervals speak of, where blocks are rows

    @property
    def validation_key(self) -> str:
        return f"validation_{self.key}"

    def number(self, value: float, *, signed: bool = False) -> str:
        return format(value, f"{'+' * signed}{self.form}")

    def value(self, value: float) -> str:
        """With its unit."""
        return self.phrase.format(self.number(value))


BITS_PER_BYTE = Terms(
    models="language models",
    key="bits_per_byte",
    figure="bits per byte",
    phrase="{} bits per byte",
    column="bits/byte",
    form=".4f",
    scale=math.log(2),
    ordered=True,
    validated="bits per byte of validation text",
    curve_note="The curves validate on a part of the validation text.",
    counted="tokens",
    block="blocks of about {:,} bytes",
    blocks="blocks",
    held_out="held-out text",
    noise="the text alone leaves",
    very="this very text",
    fitted="fitted by counting",
    learnt="n-grams",
    flops="flops/token",
)

ERROR_RATE = Terms(
    models="classifiers",
    key="error_rate",
    figure="error rate",
    phrase="an error rate of {}",
    column="error rate",
    form=".2%",
    scale=1.0,
    ordered=False,
    validated="error rate on validation texts",
    curve_note="",
    counted="texts",
    block="different texts",
    blocks="texts",
    held_out="test data",
    noise="the test texts alone leave",
    very="these very texts",
    fitted="fitted at once",
    learnt="numbers",
    bounds=(0.0, 1.0),
    others="other texts of the kind of these",
)

BITS_PER_TARGET_BYTE = replace(
    BITS_PER_BYTE,
    models="translators",
    figure="bits per byte of the targets",
    phrase="{} bits per byte of the targets",
    ordered=False,
    validated="bits per byte of validation targets",
    curve_note="The curves validate on some of the validation pairs.",
    counted="pieces",
    block="sentence pairs",
    blocks="sentence pairs",
    held_out="held-out pairs",
    noise="the test pairs alone leave",
    very="these very pairs",
    fitted="fitted at once",
    learnt="numbers",
    flops=None,
    others="other sentence pairs of the kind of these",
)
