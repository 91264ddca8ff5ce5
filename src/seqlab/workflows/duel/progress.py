"""How far a training had come: a verdict about models needs more than a start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqlab.runs.folder import RunFolder
from seqlab.workflows.duel.entrants import Entrant
from seqlab.workflows.duel.terms import Terms

FEW_STEPS = 100
LAST = 0.25  # of the steps
STEEP = 0.1  # of the validation figure


@dataclass(frozen=True)
class Progress:
    """What a model was given, and its validation figure three quarters through and at the end, means over the seeds."""

    steps: int
    passes: float  # through the training part
    before: float
    after: float

    @property
    def fell(self) -> float:
        """By how much its validation figure fell over the last quarter of its steps."""
        return self.before - self.after

    @property
    def short(self) -> bool:
        return self.steps < FEW_STEPS and self.passes < 1

    @property
    def steep(self) -> bool:
        return self.fell > STEEP * self.before

    @property
    def begun(self) -> bool:
        """Whether it has only begun to learn.

        That is so after fewer than 100 steps and less than one pass through the training part, or where its
        validation figure still fell by more than a tenth over the last quarter of its steps.
        """
        return self.short or self.steep

    @property
    def why(self) -> str:
        if self.short:
            return f"{self.steps:,} step{'s' * (self.steps != 1)}, {self.passes:.2g} passes through its training part"
        return f"over the last quarter of its steps its validation figure fell by {self.fell / self.before:.0%}"


def progress_of(entrant: Entrant, runs: Sequence[RunFolder], terms: Terms) -> Progress | None:
    """None for a model that is fitted at once."""
    if entrant.fitted or entrant.steps is None or entrant.passes is None:
        return None
    before, after = np.mean([_late_validations(run, terms) for run in runs], axis=0)
    return Progress(entrant.steps, entrant.passes, float(before), float(after))


def _late_validations(run: RunFolder, terms: Terms) -> tuple[float, float]:
    """The figure three quarters through, between two validations where none was there, and at the last one."""
    lines = [line for line in run.read_metrics() if terms.validation_key in line]
    steps, figures = ([line[key] for line in lines] for key in ("step", terms.validation_key))
    if not lines:
        return 0.0, 0.0
    return float(np.interp((1 - LAST) * steps[-1], steps, figures)), figures[-1]
