"""What a cost is made of: terms, each a coefficient times named sizes, which give its number and its formula.

    2·B·n_t·d_model·3·d_model        the products of three projections of B sequences of n_t positions

Symbols: B sequences, n_t positions (of the target), n_s positions of the source, d_model, heads and head_width (the
numbers in a head), columns (these and one more, which sums weights), d_ff, m random features, V tokens or classes, H
units of a recurrent layer that reads D numbers. What models have in two sizes has two names (H and H_decoder, V and
V_guide, d_model and d_encoded); a symbol that two layers need for two sizes all the same has a number the second time:
d_ff, d_ff_2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

PARTS = (
    *("embedding", "projections", "scores", "mixing", "feed-forward", "recurrent", "norms", "guide"),
    *("output", "loss", "other"),
)
BACKWARD = 2  # the gradients by both factors of a product: each as many products as the forward pass
INDEX = 8  # bytes of an id
FLAG = 1  # byte of a mask's entry

What = Literal["parameters", "flops", "saved", "textbook"]
Size = int | Fraction
Factor = tuple[str, Size]


@dataclass(frozen=True)
class Term:
    """coefficient · Π factors, of one part. `backward`: how often as many products the backward pass takes."""

    what: What
    part: str
    coefficient: Size | float
    factors: tuple[Factor, ...] = ()
    backward: int = BACKWARD
    role: str | None = None  # of the attention layer that it belongs to
    once: str | None = None  # what several layers share: counted for the first of them

    @property
    def value(self) -> int | float:
        total: Any = self.coefficient
        for _, size in self.factors:
            total = total * size
        return as_number(total)

    @property
    def formula(self) -> str:
        factors = [name for name, _ in self.factors]
        if self.coefficient != 1 or not factors:
            factors.insert(0, f"{as_number(self.coefficient)}")
        return "·".join(factors)


def products(part: str, *factors: Factor | int, backward: int = BACKWARD) -> Term:
    """Two operations for each multiply-add."""
    return Term("flops", part, 2, _named(factors), backward)


def parameters(part: str, *factors: Factor | int) -> Term:
    return Term("parameters", part, 1, _named(factors))


def saved(part: str, use: Use, *factors: Factor | int) -> Term:
    """Bytes of the numbers that autograd keeps for the backward pass."""
    return Term("saved", part, use.number, _named(factors))


def saved_ids(part: str, *factors: Factor | int) -> Term:
    return Term("saved", part, INDEX, _named(factors))


def saved_flags(part: str, *factors: Factor | int) -> Term:
    return Term("saved", part, FLAG, _named(factors))


def textbook(*factors: Factor | int) -> Term:
    """Multiply-adds as the textbooks say them."""
    return Term("textbook", "", 1, _named(factors))


def _named(factors: Iterable[Factor | int]) -> tuple[Factor, ...]:
    return tuple((str(factor), factor) if isinstance(factor, int) else factor for factor in factors)


@dataclass(frozen=True)
class Use:
    """How a layer is used: what it reads, and what the walk has said of it on the way.

    batch, length    B sequences of so many positions; `name` is what the length is called; "" where a layer reads one
                     vector of each sequence
    keys             positions that attention looks at, where they are others than its own; called `keys_name`
    source           of an encoder-decoder: the length of what the encoder reads
    causal           a position sees itself and those before it: (n+1)/2 on average
    part, sizes      of a Linear: the part that its products belong to, and what its two sizes are called
    own_input        it is the layer that keeps its input for the backward pass (nobody else does)
    input_gradient   somebody below learns
    number           bytes of an activation
    width            of the vectors, for layers that do not know it themselves (pooling)
    width_name       what the width of vectors is called that are looked up or pooled
    units            what the units of a recurrent layer are called
    windowed         a layer with a window sees no further; else as if it were as wide as the text
    masked           lengths are given, so that padding is masked
    step_by_step     it is called once for each position
    kept             what is computed is kept for the backward pass, not computed again
    """

    batch: int
    length: int
    name: str = "n_t"
    keys: int | None = None
    keys_name: str = "n_s"
    source: int | None = None
    causal: bool = False
    part: str | None = None
    sizes: tuple[str, str] | None = None
    own_input: bool = True
    input_gradient: bool = True
    number: int = 4
    width: int | None = None
    width_name: str = "d_model"
    units: str = "H"
    windowed: bool = True
    masked: bool = False
    step_by_step: bool = False
    kept: bool = True

    @property
    def rows(self) -> tuple[Factor, ...]:
        return (("B", self.batch), *self.time)

    @property
    def key_rows(self) -> tuple[Factor, ...]:
        """The same of the positions that attention looks at."""
        return self.rows if self.keys is None else (("B", self.batch), (self.keys_name, self.keys))

    @property
    def time(self) -> tuple[Factor, ...]:
        return ((self.name, self.length),) if self.name else ()

    def on_source(self) -> Use:
        """The same for the encoder's side."""
        return replace(self, length=self.source or self.length, name="n_s", causal=False)

    def of_each_sequence(self) -> Use:
        return replace(self, length=1, name="")


@dataclass(frozen=True)
class Inside:
    """A layer inside another, and how it is used there."""

    name: str
    use: Use


# --------------------------------------------------------------------------- many terms


def renamed(terms: Iterable[Term]) -> tuple[list[Term], dict[str, int]]:
    """Terms in which a symbol means one size, and what each means."""
    meaning: dict[str, int] = {}

    def symbol(name: str, size: Size) -> str:
        if not name.isidentifier():
            return name  # a number, or an expression in other symbols
        number, tried = 1, name
        while meaning.setdefault(tried, int(size)) != size:
            number += 1
            tried = f"{name}_{number}"
        return tried

    found = []
    for term in terms:
        found.append(replace(term, factors=tuple((symbol(name, size), size) for name, size in term.factors)))
    return found, meaning


def total(terms: Iterable[Term]) -> int | float:
    return as_number(sum(term.value for term in terms))


def formula(terms: Iterable[Term]) -> str:
    """Σ of the terms; what is there k times stands once, with k before it."""
    counts = Counter(term.formula for term in terms if term.value)
    return " + ".join(text if times == 1 else f"{times}·{text}" for text, times in counts.items()) or "0"


def as_number(value: Any) -> int | float:
    """An integer where it is one."""
    exact = Fraction(value)
    return int(exact) if exact.denominator == 1 else float(exact)
