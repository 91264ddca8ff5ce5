"""A task: everything that tells one capability from another. Training, saving, resuming and reporting are the same.

To add one, write a class like those in `workflows` and register it (docs/tasks.md has a worked example):

    from seqlab.core.registry import TASKS
    TASKS["parity"] = "my_module:Parity"
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.core.registry import TASKS, look_up
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import check_settings
from seqlab.core.units import human_count
from seqlab.training.checkpoint import load_weights
from seqlab.training.objectives import Score
from seqlab.training.plan import Learning

if TYPE_CHECKING:
    from seqlab.runs.run import Run
    from seqlab.runs.session import Session


PICTURES = 64 << 20  # bytes of the libraries that a report with pictures loads (docs/benchmarks.md)


class Data(Protocol):
    """What a task has read, ready to learn from."""

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of everything read; the first is that of the data itself."""

    @property
    def facts(self) -> dict[str, Any]:
        """What the record says of it."""

    @property
    def files(self) -> dict[str, bytes]:
        """What the run folder keeps, by name: whatever loading needs besides settings and weights."""


@dataclass(frozen=True)
class Kept:
    """What an earlier run left: the files it keeps and, if it is to go on with the same data, their checksums."""

    files: Mapping[str, bytes]
    checksums: Mapping[str, str] | None = None
    named: bool = False  # a person says anew where the data lie: they are read from there and nowhere else


class Task(ABC):
    kind: ClassVar[str]
    unit: ClassVar[str]  # of losses and validations, such as nats_per_token: names them in the metrics
    counted: ClassVar[str]  # what a batch counts, such as tokens
    settings_type: ClassVar[type]
    may_move: ClassVar[tuple[str, ...]] = ()  # flags that --resume may say anew: where the data lies

    # ---- settings

    def fill(self, settings: Any) -> Any:
        """Check the settings and fill every None that a preset decides; what a person said stays."""
        check_settings(settings)
        return settings

    def check(self, settings: Any, said: Mapping[str, Any]) -> None:  # noqa: B027 (most tasks refuse nothing more)
        """Refuse what a person said and this task, or this model, has no use for. No data is read."""

    def name(self, settings: Any) -> str:
        """What folders of runs are called by."""
        return self.kind

    def summary(self, settings: Any, data: Any) -> dict[str, str]:
        """Which model on which data, in a word each: what a list of runs shows."""
        return {"model": self.kind, "data": next(iter(data.checksums))}

    def way_on(self, folder: Path) -> str:
        """How a person goes on with an interrupted run."""
        return f"the same call with out={str(folder)!r} and resume=True"

    def inherit(self, parent: Run, said: Mapping[str, Any]) -> Any:
        """The settings that go on with a parent's weights; refuses what these fix otherwise."""
        raise UsageError(f"--from is not a choice for '{self.kind}'")

    # ---- data and model

    @abstractmethod
    def prepare(self, settings: Any, reporter: Reporter, kept: Kept | None = None) -> Any:
        """Read the data (`Data`)."""

    def settle(self, settings: Any, data: Any) -> Any:
        """Decide what only the data can decide."""
        return settings

    def build(self, settings: Any, data: Any, reporter: Reporter) -> nn.Module:
        """A new model: at its start, or fitted at once."""
        return self.outline(settings, data.files)

    @abstractmethod
    def outline(self, settings: Any, files: Mapping[str, bytes]) -> nn.Module:
        """A model of the right shapes; whatever it draws comes from torch's default generator, which is seeded."""

    def restore(self, settings: Any, files: Mapping[str, bytes], weights: dict[str, Tensor], source: str) -> nn.Module:
        """The model with these weights; `source` names their file in errors."""
        model = self.outline(settings, files)
        load_weights(model, weights, source)
        return model

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        return dict(model.state_dict())

    def smaller(self, settings: Any) -> tuple[str, ...]:
        """The settings that a person may choose smaller where memory is short."""
        return ()

    def look_every(self, settings: Any) -> int:
        """Steps between two looks inside the model on the way; 0: none."""
        return 0

    def look(self, model: nn.Module, data: Any) -> dict[str, Any]:
        """What a look inside finds, for the metrics. The model is in evaluation mode, and stays as it is."""
        return {}

    def parameters(self, model: nn.Module) -> int:
        """How many numbers were learnt."""
        return sum(weight.numel() for weight in model.parameters())

    # ---- training and measuring

    @abstractmethod
    def learning(self, settings: Any, data: Any, model: nn.Module) -> Learning | None:
        """Batches and objective; None for a model that is fitted at once."""

    @abstractmethod
    def validate(self, model: nn.Module, data: Any) -> Score:
        """A quick look on the way; lower is better."""

    def read_held_out(self, model: nn.Module, data: Any) -> Any:
        """Have the model read what it is measured on, the most of it at once; an estimate watches its first calls."""
        return self.validate(model, data)

    def later_bytes(self, data: Any) -> int:
        """What measuring and the report hold beside what reading held-out data does; an estimate counts it."""
        return PICTURES

    @abstractmethod
    def measure(self, run: Run, data: Any, reporter: Reporter) -> dict[str, Any]:
        """The final figures, as JSON values; `headline` (label, value) is the one to look at first."""

    @abstractmethod
    def report(self, run: Run, data: Any) -> None:
        """Write the pages a person looks at; report.html comes last."""

    def describe(self, session: Session) -> None:
        """Say what is about to be trained."""
        session.reporter.note(f"{self.name(session.settings)}: {human_count(session.record['parameters'])} parameters")

    def shown(self, data: Any, loss: float, speed: float) -> dict[str, str]:
        """Words worth showing beside the progress bar, by name: mean training loss, units per second."""
        return {"loss": f"loss {loss:.3f}", "speed": f"{human_count(speed)} {self.counted}/s"}

    def shown_validation(self, score: Score) -> str:
        """The same of a validation."""
        return f"validation {score.value:.3f}"

    @property
    def run_type(self) -> type[Run]:
        """What `load` gives."""
        from seqlab.runs.run import Run

        return Run

    # ---- trying it

    @abstractmethod
    def trial(self, folder: Path) -> dict[str, Any]:
        """Flags of a training that takes a moment, on data made in `folder`: what the contract suite runs."""


def find_task(kind: str) -> Task:
    task: Task = look_up(TASKS, kind, "task")()
    return task
