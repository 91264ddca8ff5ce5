"""Who takes part in a duel, and what each is told: decided once, and recorded."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import filled
from seqlab.runs.task import Task
from seqlab.training.plan import plan_steps

SHOWN_SIZES = ("width", "depth", "heads", "order")


@dataclass(frozen=True)
class Cost:
    """What one set of sizes comes to."""

    parameters: int
    flops_per_token: float | None  # of training: forward and backward; None: nobody says what it costs

    def by(self, match: str) -> float:
        return filled(self.flops_per_token) if match == "flops" else float(self.parameters)


@dataclass(frozen=True)
class Entrant:
    """One model of the duel. `flags` is what its training is told, but for the seed and where the data lie."""

    kind: str
    flags: dict[str, Any]
    sizes: dict[str, Any]
    steps: int | None = None
    tokens: int | None = None  # or whatever else a batch counts
    cost: Cost | None = None  # None: fitted, which has neither
    deviation: float | None = None  # of its cost from the first model's, where they are to be equal
    passes: float | None = None  # through the training part

    @property
    def fitted(self) -> bool:
        return self.cost is None

    @property
    def size_words(self) -> str:
        return ", ".join(f"{name} {self.sizes[name]}" for name in SHOWN_SIZES if name in self.sizes)

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Entrant:
        cost = None if record["cost"] is None else Cost(**record["cost"])
        return cls(**(record | {"cost": cost}))


def shown_sizes(settings: Any) -> dict[str, Any]:
    """The sizes of a model, of those that a table shows."""
    model = getattr(settings, "model", None)
    return {name: getattr(model, name) for name in SHOWN_SIZES if getattr(model, name, None) is not None}


@dataclass(frozen=True)
class Bought:
    """What a budget buys."""

    parameters: int
    steps: int
    eval_every: int
    count: int  # of tokens, texts, …
    passes: float  # through the training part

    @property
    def flags(self) -> dict[str, Any]:
        """What tells every run of the model the same."""
        return {"budget": f"{self.steps}steps", "eval_every": self.eval_every}


def buy(task: Task, settings: Any, data: Any) -> Bought:
    """The steps that the budget of settled settings buys; a time budget is timed here. Nothing is written."""
    network = task.build(settings, data, Reporter())
    learning = filled(task.learning(settings, data, network))
    count, every = plan_steps(network, learning, settings.training, lambda: task.validate(network, data))
    steps, batches = count.steps, learning.batches
    passes = steps / batches.steps_per_epoch
    return Bought(task.parameters(network), steps, every, steps * batches.count_per_step, passes)
