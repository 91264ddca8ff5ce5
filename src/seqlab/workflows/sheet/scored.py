"""What a sheet measures: one model on one text, and one model on all texts together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from seqlab.core.types import Scorer, Surprisals
from seqlab.data.sources import Text
from seqlab.evaluation.perplexity import Figures, add_up, figures_of
from seqlab.evaluation.statistics import Interval, Numbers, Places, block_edges, block_sums, documents_of, interval_of
from seqlab.workflows.lm.run import LMRun


@dataclass(frozen=True)
class Reader:
    """Something that scores text, and what is known of it."""

    name: str
    scorer: Scorer
    bound: str  # "exact": a distribution over strings; else why the figure is not quite that
    trained_on: str = ""  # SHA-256
    run: LMRun | None = None
    baseline: bool = False


@dataclass(frozen=True)
class Scored:
    """One model on one text: the table of surprisals and everything that derives from it."""

    reader: Reader
    text: Text
    content: str
    surprisals: Surprisals

    @cached_property
    def edges(self) -> Places:
        """Bytes at which the blocks begin, and the end of the text."""
        return block_edges(self.content.encode(), self.text.documents)

    @cached_property
    def blocks(self) -> Numbers:
        """Nats in each block."""
        return block_sums(self.surprisals, self.edges)

    @cached_property
    def sizes(self) -> Places:
        """Bytes in each block."""
        return np.diff(self.edges)

    @cached_property
    def documents(self) -> Places:
        """The document of each block, numbered from 0."""
        return documents_of(self.edges, self.text.documents)

    @cached_property
    def figures(self) -> Figures:
        return figures_of(self.surprisals, self.content)

    @cached_property
    def interval(self) -> Interval:
        return interval_of(self.blocks, self.sizes, documents=self.documents)

    @cached_property
    def closed(self) -> Scored:
        """Unknown tokens as one class, their spelling free."""
        table = self.surprisals
        return replace(self, surprisals=replace(table, nats=table.nats - table.spelling, spelling=np.zeros(len(table))))


@dataclass(frozen=True)
class Pooled:
    """One model on several texts, each with the documents that it holds."""

    parts: tuple[Scored, ...]

    @property
    def reader(self) -> Reader:
        return self.parts[0].reader

    @cached_property
    def text(self) -> Text:
        """All of them, under a name for the sheet."""
        texts = [part.text for part in self.parts]
        return Text(texts[0].path, f"all {len(texts)} texts", sum(text.bytes for text in texts), "")

    @cached_property
    def blocks(self) -> Numbers:
        return np.concatenate([part.blocks for part in self.parts])

    @cached_property
    def sizes(self) -> Places:
        return np.concatenate([part.sizes for part in self.parts])

    @cached_property
    def documents(self) -> Places:
        """Numbered through all texts."""
        before = np.cumsum([0, *(len(part.text.documents) for part in self.parts)])
        return np.concatenate([part.documents + first for part, first in zip(self.parts, before, strict=False)])

    @cached_property
    def figures(self) -> Figures:
        return add_up([part.figures for part in self.parts])

    @cached_property
    def interval(self) -> Interval:
        return interval_of(self.blocks, self.sizes, documents=self.documents)

    @cached_property
    def closed(self) -> Pooled:
        return Pooled(tuple(part.closed for part in self.parts))


Measured = Scored | Pooled
