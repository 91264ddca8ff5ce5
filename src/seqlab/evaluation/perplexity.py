"""Perplexity in every unit, from sums and counts; means are formed here, at the very end."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seqlab.core.errors import UsageError
from seqlab.core.types import Surprisals


@dataclass(frozen=True)
class Figures:
    """Total nats and what they are spread over."""

    nats: float
    tokens: int
    characters: int
    bytes: int
    words: int | None = None
    unknown: int = 0
    restoration: float = 0.0  # the share of `nats` that undoes a normalisation

    @property
    def nats_per_token(self) -> float:
        return self.nats / self.tokens if self.tokens else math.nan

    @property
    def bits_per_byte(self) -> float:
        """total nats / (ln 2 · bytes)"""
        return self.nats / (math.log(2) * self.bytes) if self.bytes else math.nan

    @property
    def bits_per_character(self) -> float:
        return self.nats / (math.log(2) * self.characters) if self.characters else math.nan

    @property
    def nats_per_character(self) -> float:
        return self.nats / self.characters if self.characters else math.nan

    @property
    def restoration_bits_per_byte(self) -> float:
        return self.restoration / (math.log(2) * self.bytes) if self.bytes else math.nan

    @property
    def unknown_rate(self) -> float:
        return self.unknown / self.tokens if self.tokens else 0.0

    def perplexity(self, units: int | None) -> float | None:
        """exp(total nats / units); None where the unit was not counted or the figure has no finite value."""
        if not units:
            return None
        exponent = self.nats / units
        return math.exp(exponent) if exponent < 700 else math.inf

    def as_json(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "bytes": self.bytes,
            "characters": self.characters,
            "unknown_rate": self.unknown_rate,
            "nats": self.nats,
            "nats_per_token": self.nats_per_token,
            "nats_per_character": self.nats_per_character,
            "perplexity_per_token": self.perplexity(self.tokens),
            "perplexity_per_word": self.perplexity(self.words),
            "perplexity_per_character": self.perplexity(self.characters),
            "bits_per_character": self.bits_per_character,
            "bits_per_byte": self.bits_per_byte,
            "restoration_bits_per_byte": self.restoration_bits_per_byte,
        }


def figures_of(surprisals: Surprisals, text: str) -> Figures:
    """The figures of one scored text; a word is a maximal run of non-space in it."""
    covered, size = int(surprisals.end[-1]) if len(surprisals) else 0, len(text.encode())
    if covered != size and not surprisals.lossy:
        raise UsageError(f"the table covers {covered:,} bytes and the text has {size:,}; give the text that was scored")
    return Figures(
        nats=surprisals.total,
        tokens=len(surprisals),
        characters=len(text),
        bytes=size,
        words=sum(1 for _ in re.finditer(r"\S+", text)),
        unknown=int(surprisals.unknown.sum()),
        restoration=0.0 if surprisals.restoration is None else float(surprisals.restoration.sum()),
    )


def add_up(parts: Sequence[Figures]) -> Figures:
    """The figures of several texts as one; words only where all were counted."""
    words = [part.words for part in parts if part.words is not None]
    return Figures(
        nats=math.fsum(part.nats for part in parts),
        tokens=sum(part.tokens for part in parts),
        characters=sum(part.characters for part in parts),
        bytes=sum(part.bytes for part in parts),
        words=sum(words) if len(words) == len(parts) else None,
        unknown=sum(part.unknown for part in parts),
        restoration=math.fsum(part.restoration for part in parts),
    )
