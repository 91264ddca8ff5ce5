"""A whole task: is the number of odd digits in a string even or odd? docs/tasks.md walks through it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seqlab.core.files import sha256_of, write_text
from seqlab.core.registry import TASKS
from seqlab.core.seeding import torch_generator
from seqlab.core.settings.fields import setting
from seqlab.core.settings.training import TrainingSettings
from seqlab.runs.task import Task
from seqlab.training.objectives import Loss, Score
from seqlab.training.plan import Learning

DEFAULTS = TrainingSettings(batch=8, learning_rate=0.02, weight_decay=0.0)


@dataclass(frozen=True)
class DataSettings:
    file: str = setting("", "strings of digits, one a line", place=True)


@dataclass(frozen=True)
class ParitySettings:
    data: DataSettings = field(default_factory=DataSettings)
    training: TrainingSettings = DEFAULTS


@dataclass(frozen=True)
class Strings:
    """Digits (N, T): all the data, or a batch of it, which the loop may cut."""

    digits: Tensor
    checksums: Any = None
    fresh, facts, files = True, {"digits": 10}, {"alphabet.txt": b"0123456789"}
    count = property(lambda self: len(self.digits))

    def cut(self, pieces: int) -> list["Strings"]:
        return [Strings(part) for part in self.digits.chunk(min(pieces, self.count))]


@dataclass(frozen=True)
class Drawn:  # batch k is a function of the data, the seed and k alone
    data: Strings
    count_per_step: int
    seed: int
    steps_per_epoch = 8

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> Strings:
        draw = torch_generator(self.seed, "order", step, rank)
        return Strings(self.data.digits[torch.randperm(self.data.count, generator=draw)[: self.count_per_step]])


def loss(model: nn.Module, batch: Strings, state: None) -> Loss:
    nats = nn.functional.cross_entropy(model(batch.digits), (batch.digits % 2).sum(1) % 2, reduction="sum")
    return Loss(nats, batch.count)


class Parity(Task):
    kind, unit, counted, settings_type = "parity", "nats_per_string", "strings", ParitySettings
    may_move = ("file",)

    def prepare(self, settings: ParitySettings, reporter: Any, kept: Any = None) -> Strings:
        content = Path(settings.data.file).read_text()
        digits = [[int(digit) for digit in line] for line in content.split()]
        return Strings(torch.tensor(digits), {"file": sha256_of(content.encode())})

    def outline(self, settings: ParitySettings, files: Any) -> nn.Module:
        table = nn.EmbeddingBag(len(files["alphabet.txt"]), 16, mode="sum")
        return nn.Sequential(table, nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 2))

    def learning(self, settings: ParitySettings, data: Strings, model: nn.Module) -> Learning:
        return Learning(Drawn(data, settings.training.batch, settings.training.seed), loss)

    def validate(self, model: nn.Module, data: Strings) -> Score:
        return Score(loss(model, data, None).total.item() / data.count, {})

    def measure(self, run: Any, data: Strings, reporter: Any) -> dict[str, Any]:
        return {"headline": {"label": "nats/string", "value": self.validate(run.model, data).value}}

    def report(self, run: Any, data: Strings) -> None:
        write_text(run.files.report_file, f"<p>{run.final['headline']['value']:.4f} nats a string</p>")

    def trial(self, folder: Path) -> dict[str, Any]:
        write_text(folder / "strings.txt", "\n".join(f"{k * k:04d}" for k in range(64)))
        return {"file": str(folder / "strings.txt"), "budget": "12steps", "eval_every": 4}


TASKS["parity"] = f"{__name__}:Parity"
