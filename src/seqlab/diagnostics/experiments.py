"""What an experiment tells: a question, a formula, what it predicts, what was measured, and whether they agree."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from seqlab.core.settings.experiments import question_of

NEAR = 0.05  # a formula that leaves out small terms may be so far off, as a share
SHOWN, JUDGED = 1.959964, 3.290527  # standard errors: intervals of 95 % are shown, those of 99.9 % decide
AGREES = "agrees: the prediction lies in the 99.9 % interval, widened by what the formula leaves out"


@dataclass(frozen=True)
class Finding:
    """One figure. The interval is over repetitions; a figure without chance has none (low = high)."""

    what: str
    predicted: float
    measured: float
    low: float
    high: float
    tolerance: float = 0.0  # how far the formula itself may be off

    @property
    def agrees(self) -> bool:
        """Within the interval of 99.9 %: an experiment has several figures, and a page many experiments."""
        if not all(map(math.isfinite, (self.predicted, self.measured))):
            return False
        below, above = self.measured - self.low, self.high - self.measured
        wider = JUDGED / SHOWN
        return -wider * above - self.tolerance <= self.measured - self.predicted <= wider * below + self.tolerance

    def as_json(self) -> dict[str, Any]:
        names = ("what", "predicted", "measured", "low", "high", "tolerance")
        return {name: getattr(self, name) for name in names} | {"agrees": self.agrees}


@dataclass(frozen=True)
class Line:
    """A curve to draw."""

    name: str
    x: list[float]
    y: list[float]
    dashed: bool = False


@dataclass(frozen=True)
class Picture:
    title: str
    x: str  # what the axes are, with units
    y: str
    lines: list[Line]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Experiment:
    name: str
    question: str
    formula: str
    answer: str  # in a sentence, from the figures
    settings: dict[str, Any]
    findings: list[Finding]
    pictures: list[Picture] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        return all(finding.agrees for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "question": self.question,
            "formula": self.formula,
            "answer": self.answer,
            "settings": self.settings,
            "findings": [finding.as_json() for finding in self.findings],
            "agrees": self.agrees,
        }


def exact(what: str, predicted: float, measured: float, tolerance: float) -> Finding:
    """A figure without chance; `tolerance` is what rounding may do."""
    return Finding(what, predicted, measured, measured, measured, tolerance)


def estimated(what: str, predicted: float, measured: float, error: float, *, near: float = NEAR) -> Finding:
    """A mean with its standard error: 95 % by the normal distribution; the formula holds up to a share `near`."""
    half = SHOWN * error
    return Finding(what, predicted, measured, measured - half, measured + half, near * abs(predicted))


def counted(what: str, predicted: float, hits: int, draws: int, *, near: float = NEAR) -> Finding:
    """A share of independent draws, with Wilson's interval."""
    share, z = hits / draws, SHOWN
    middle = (share + z**2 / (2 * draws)) / (1 + z**2 / draws)
    half = z * math.sqrt(share * (1 - share) / draws + z**2 / (4 * draws**2)) / (1 + z**2 / draws)
    low, high = min(share, middle - half), max(share, middle + half)
    return Finding(what, predicted, share, max(low, 0.0), min(high, 1.0), near * predicted)


def described(
    name: str, asked: Any, formula: str, answer: str, findings: list[Finding], pictures: list[Picture]
) -> Experiment:
    """With the question and the settings of what was asked."""
    return Experiment(name, question_of(name), formula, answer, dataclasses.asdict(asked), findings, pictures)
