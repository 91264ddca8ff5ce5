"""What can be asked of `claims`."""

from __future__ import annotations

from dataclasses import dataclass

from seqlab.core.settings.experiments import SEEDS
from seqlab.core.settings.fields import Limits, setting


@dataclass(frozen=True)
class ShowSettings:
    seed: int = setting(0, "seed of every random instance", limits=SEEDS)


@dataclass(frozen=True)
class CheckSettings(ShowSettings):
    jobs: int = setting(1, "processes side by side, of one thread each", limits=Limits(1, 64))


@dataclass(frozen=True)
class QuizSettings:
    seed: int = setting(0, "seed of the choice of questions", limits=SEEDS)
    questions: int = setting(10, "how many are asked", limits=Limits(1, 1000))
