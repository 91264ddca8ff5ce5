"""A contest: everything that tells the duels of one task from those of another.

Training with several seeds, going on after an interruption, figures, verdict, curves and page are the same for all
(`duel.compare_models`). To add one, write a class like `lm.LMContest`: rules, terms, a task, data and their scores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

from numpy.typing import NDArray

from seqlab.core.reporting import Reporter
from seqlab.core.settings.duel import Rules, flags_of_kind
from seqlab.core.settings.fields import with_flags
from seqlab.runs.task import Task
from seqlab.workflows.duel.entrants import Bought, Cost, Entrant, buy, shown_sizes
from seqlab.workflows.duel.terms import Terms


class Contest(ABC):
    """The data that all runs of one duel share, and the part of them that decides.

    That is the test part, or the validation part if there is no other. The task's settings have the flags `model`,
    which names the kind, and those of every training; `measure` leaves the figure of the validation part in
    ``final["validation"][terms.key]``, and `validate` its value on the way in ``Score.figures[terms.validation_key]``.
    """

    rules: ClassVar[Rules]
    terms: ClassVar[Terms]
    task: ClassVar[Task]

    # What opening the data tells: `__init__` of each contest sets these.
    name: str  # of the data
    sha256: str
    stem: str  # what the folder is called by
    place: dict[str, Any]  # flags that say where the data lie, so that every run can read them again
    part: str  # which one decides: test or validation

    def __init__(self, source: str, flags: dict[str, Any], reporter: Reporter) -> None:
        """Open the data; nothing is prepared yet. `flags` are settings for every model that has them."""
        self.flags, self.reporter = flags, reporter

    # ---- the data

    @cached_property
    def data(self) -> Any:
        """Prepared when it is first needed, for all runs."""
        return self.prepare()

    @abstractmethod
    def prepare(self) -> Any:
        """What the task's own `prepare` makes of the data."""

    def data_for(self, kind: str) -> Any:
        """What a model of this kind is given of it."""
        return self.data

    @property
    def question(self) -> dict[str, Any]:
        """Which data: what a duel that goes on must find again."""
        return {"task": self.task.kind, "data": self.name, "data_sha256": self.sha256}

    @property
    def sources(self) -> list[str]:
        """What names the data on the command line."""
        return [str(place) for place in self.place.values()]

    # ---- judging

    @property
    @abstractmethod
    def sizes(self) -> NDArray[Any]:
        """Of each block of the deciding part, in what the figure is per: bytes, texts."""

    @property
    def documents(self) -> NDArray[Any] | None:
        """The document that each block belongs to, where blocks are of documents."""
        return None

    @abstractmethod
    def score(self, run: Any) -> list[float]:
        """The loss summed over each block."""

    @property
    @abstractmethod
    def basis(self) -> str:
        """What the figures are of, in words."""

    # ---- who is told what

    def flags_for(self, kind: str) -> dict[str, Any]:
        """Those of the settings that a model of this kind has."""
        return flags_of_kind(kind, self.flags, self.rules)

    def plan(self, kinds: Sequence[str], budget: str, match: str) -> list[Entrant]:
        """What each model is given: its own preset and the whole budget, which becomes a number of steps here, once."""
        return [self.fitted(kind) if kind in self.rules.fitted else self._timed(kind, budget) for kind in kinds]

    def _timed(self, kind: str, budget: str) -> Entrant:
        return self.trained(kind, self._filled(self.flags_for(kind) | {"model": kind, "budget": budget}))

    def trained(self, kind: str, settings: Any) -> Entrant:
        """A model that is trained, with the steps that its budget buys."""
        data = self.data_for(kind)
        settings = self.task.settle(settings, data)
        with self.reporter.task(f"timing a step of the {kind}", None):
            bought = buy(self.task, settings, data)
        flags = self.flags_for(kind) | {"model": kind} | self.pinned(kind, settings) | bought.flags
        cost = self.cost(settings, bought)
        return Entrant(kind, flags, shown_sizes(settings), bought.steps, bought.count, cost, passes=bought.passes)

    def pinned(self, kind: str, settings: Any) -> dict[str, Any]:
        """What a budget of steps would decide otherwise than the budget that was asked for: the size."""
        size = getattr(settings.model, "size", None)
        return {} if size is None else {"size": size}

    def cost(self, settings: Any, bought: Bought) -> Cost:
        return Cost(bought.parameters, None)

    def fitted(self, kind: str) -> Entrant:
        """A model that is fitted at once."""
        flags = self.flags_for(kind) | {"model": kind}
        return Entrant(kind, flags, shown_sizes(self._filled(flags)))

    def _filled(self, flags: dict[str, Any]) -> Any:
        return self.task.fill(with_flags(self.rules.settings_type(), flags))
