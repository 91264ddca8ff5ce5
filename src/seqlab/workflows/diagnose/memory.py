"""How far models remember: tasks over growing lags, learnt from nothing, with the gradient's horizon beside."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqlab.core.errors import UsageError, nearest
from seqlab.core.files import write_text
from seqlab.core.reporting import Reporter
from seqlab.core.settings.diagnose import KINDS, MemorySettings
from seqlab.core.settings.experiments import listed
from seqlab.core.settings.fields import check_group
from seqlab.diagnostics.gradient_flow import Verdict, judge, lag_curves
from seqlab.diagnostics.memory_tasks import LEAST_LAG, TASKS, MemoryTask, Remembered, lag_loss, learn
from seqlab.models import build_lm
from seqlab.pages.gradient_charts import memory_picture
from seqlab.pages.render import embedded, render
from seqlab.training.determinism import using_threads
from seqlab.workflows.diagnose.asked import check_page, heads_for
from seqlab.workflows.diagnose.words import horizon_words

SEQUENCES = 8  # of which the untrained gradient is measured
HEADER = ["task", "model", "lag", "accuracy %", "95 % interval", "by chance", "growth per step g", "horizon"]


@dataclass(frozen=True, eq=False)
class MemoryRow:
    task: str
    model: str
    lag: int
    found: Remembered
    chance: float
    verdict: Verdict  # on the untrained model, over the same sequences

    def as_json(self) -> dict[str, Any]:
        return {
            **{"task": self.task, "model": self.model, "lag": self.lag, "accuracy": self.found.accuracy},
            **{"right": self.found.right, "asked": self.found.asked, "interval": list(self.found.interval)},
            **{"chance": self.chance, "steps": self.found.steps, "growth": self.verdict.growth.rate},
            **{"horizon": self.verdict.horizon, "expected_horizon": self.verdict.expected_horizon},
        }

    def words(self) -> list[str]:
        low, high = self.found.interval
        return [
            *(self.task, self.model, f"{self.lag:,}", f"{100 * self.found.accuracy:.1f}"),
            *(f"{100 * low:.1f} to {100 * high:.1f}", f"{100 * self.chance:.1f}"),
            *(f"{self.verdict.growth.rate:.4f}", horizon_words(self.verdict)),
        ]


@dataclass(frozen=True, eq=False)
class Memory:
    rows: list[MemoryRow]
    basis: str
    page: Path

    def as_json(self) -> dict[str, Any]:
        return {"basis": self.basis, "rows": [row.as_json() for row in self.rows], "page": str(self.page)}


def diagnose_memory(
    *, out: str | Path = "memory.html", threads: int | None = None, reporter: Reporter | None = None, **asked: Any
) -> Memory:
    """Train every model on every task at every lag; `asked` are the fields of MemorySettings. Writes the page `out`."""
    settings = MemorySettings(**asked)
    check_group(settings)
    reporter = reporter or Reporter()
    kinds = _named(settings.models, KINDS, "models")
    tasks = _named(settings.tasks, TASKS, "tasks")
    lags = listed("lags", settings.lags, LEAST_LAG, 5000)
    check_page(Path(out))
    if "transformer" in kinds:
        heads_for(settings.width)
    rows = []
    with using_threads(threads):
        for task in tasks:
            for kind in kinds:
                for lag in lags:
                    rows.append(_row(TASKS[task], kind, lag, settings, reporter))
    basis = (
        f"untrained models of width {settings.width}, {settings.steps:,} steps of 32 fresh sequences at learning rate "
        f"{settings.learning_rate:g}, judged on {settings.examples:,} others; seed {settings.seed}; growth and horizon "
        "of the gradient before training, on the same kind of sequences"
    )
    write_text(Path(out), _page(rows, basis))
    return Memory(rows, basis, Path(out))


def _row(task: MemoryTask, kind: str, lag: int, settings: MemorySettings, reporter: Reporter) -> MemoryRow:
    draw = torch.Generator().manual_seed(settings.seed)
    ids, targets = task.make(lag, SEQUENCES, draw)
    model = _model(kind, task, ids.shape[1], settings)
    untrained: Any = copy.deepcopy(model).double().eval()
    curves = lag_curves(untrained, lambda: lag_loss(untrained, ids, targets))
    verdict = max((judge(norms) for norms in curves.values()), key=lambda v: v.growth.rate)
    with reporter.task(f"{task.name} over {lag}: {kind}", settings.steps):
        found = learn(
            model,
            task,
            lag,
            steps=settings.steps,
            learning_rate=settings.learning_rate,
            examples=settings.examples,
            seed=settings.seed + 1,
            progress=reporter.advance,
        )
    return MemoryRow(task.name, kind, lag, found, task.chance, verdict)


def _model(kind: str, task: MemoryTask, length: int, settings: MemorySettings) -> nn.Module:
    sizes: dict[str, Any] = {"width": settings.width, "depth": 2 if kind == "transformer" else 1, "dropout": 0.0}
    sizes |= {"heads": heads_for(settings.width)} if kind == "transformer" else {}
    sizes |= {"context": length} if kind in ("attentive-rnn", "transformer") else {}
    model: nn.Module = build_lm(kind, task.vocab_size, seed=settings.seed, **sizes)
    return model


def _named(listed: str, known: Any, flag: str) -> list[str]:
    names = [name.strip() for name in listed.split(",") if name.strip()]
    if not names:
        raise UsageError(f"--{flag} names nothing; choose from {', '.join(known)}")
    for name in names:
        if name not in known:
            raise UsageError(f"--{flag} '{name}' is not known{nearest(name, known)}")
        if names.count(name) > 1:
            raise UsageError(f"--{flag} names '{name}' twice; name each once")
    return names


def _page(rows: list[MemoryRow], basis: str) -> str:
    pictures = []
    for task in dict.fromkeys(row.task for row in rows):
        own = [row for row in rows if row.task == task]
        points = {
            kind: [(r.lag, r.found.accuracy, *r.found.interval) for r in own if r.model == kind]
            for kind in dict.fromkeys(r.model for r in own)
        }
        horizons = {r.model: r.verdict.horizon or r.verdict.expected_horizon for r in own}
        pictures.append(embedded(memory_picture(points, horizons, own[0].chance, f"{task}: accuracy against the lag")))
    return render(
        "memory.html.j2", title="Memory", basis=basis, header=HEADER, rows=[r.words() for r in rows], pictures=pictures
    )
