"""The duel of optimisers: one language model, one budget of steps, each optimiser with its own tuned learning rate."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqlab.core.errors import NotFiniteError
from seqlab.core.reporting import Reporter
from seqlab.core.seeding import initialising, seed_dropout
from seqlab.core.settings.duel import OPTIMISER_RULES, DuelSettings
from seqlab.core.settings.fields import filled, with_changes, with_flags
from seqlab.core.settings.lm import LMSettings, check_said, fill_lm
from seqlab.core.settings.training import size_for_budget
from seqlab.models.build import known_sizes
from seqlab.training.averaging import WeightAverage
from seqlab.training.loop import Position, training_step
from seqlab.training.optim import optimiser_for
from seqlab.training.plan import make_plan
from seqlab.workflows.duel.duel import compare_models
from seqlab.workflows.duel.entrants import Entrant, buy, shown_sizes
from seqlab.workflows.duel.lm import LMContest
from seqlab.workflows.duel.verdict import Duel

MODEL = "gru"
TRIAL_SHARE = 0.2  # of a run's steps that a learning rate is tried for
TRIAL_SEED = 1_000_003  # no run has it
FACTOR = 10**0.5
# Where the search begins: a multiple of the model's own learning rate, which is AdamW's.
BEGIN = {"sgd": 100.0, "momentum": 10.0, "momentum-average": 100.0}
MOST_TRIALS = 9


def compare_optimisers(
    text: str | Path,
    *,
    optimisers: str | Sequence[str],
    seeds: int = DuelSettings().seeds,
    out: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    **flags: Any,
) -> Duel:
    """Tune each optimiser's learning rate on the validation text, train with every seed, judge on the test text.

    All have the same model, batches and number of steps: those that `budget` buys the first. `flags` are settings of
    `train_lm`.
    """
    named = optimisers if isinstance(optimisers, str) else ",".join(optimisers)
    asked = DuelSettings(named, "time", seeds)
    return compare_models(OptimiserContest, str(text), asked, flags, out=out, threads=threads, reporter=reporter)


class OptimiserContest(LMContest):
    rules = OPTIMISER_RULES

    @property
    def model(self) -> str:
        kind: str = self.said.get("model", MODEL)
        return kind

    @property
    def question(self) -> dict[str, Any]:
        return super().question | {"model": self.model}

    def flags_for(self, kind: str) -> dict[str, Any]:
        has_guide = "guide" in known_sizes(self.model)
        said = {name: value for name, value in self.said.items() if has_guide or name != "guide"}
        return said | {"model": self.model, "optimiser": kind}

    def plan(self, kinds: Sequence[str], budget: str, match: str) -> list[Entrant]:
        entrants: list[Entrant] = []
        for kind in kinds:
            flags = self.flags_for(kind) | {"size": size_for_budget(budget), "budget": budget}
            if entrants:
                flags |= {name: entrants[0].flags[name] for name in ("budget", "eval_every")}
            settings = fill_lm(with_flags(LMSettings(), flags))
            check_said(settings, self.flags)
            entrants.append(self._tuned(kind, settings))
        return entrants

    def _tuned(self, kind: str, settings: LMSettings) -> Entrant:
        settings = self.task.settle(settings, self.data)
        with self.reporter.task(f"timing a step of {kind}", None):
            bought = buy(self.task, settings, self.data)
        steps = max(1, round(TRIAL_SHARE * bought.steps))
        rate = self._best_rate(kind, settings, steps)
        flags = self.flags_for(kind) | {"size": settings.model.size, "learning_rate": rate} | bought.flags
        sizes = shown_sizes(settings)
        cost = self.cost(settings, bought)
        return Entrant(kind, flags, sizes, bought.steps, bought.count, cost, passes=bought.passes)

    def _best_rate(self, kind: str, settings: LMSettings, steps: int) -> float:
        """Rates a factor √10 apart, until the best has a worse one on either side."""
        start = filled(settings.training.learning_rate) * BEGIN.get(kind, 1.0)
        losses: dict[int, float] = {}

        def loss(number: int) -> float:
            if number not in losses:
                losses[number] = self._trial(settings, float(f"{start * FACTOR**number:.3g}"), steps)
            return losses[number]

        with self.reporter.task(f"tuning the learning rate of {kind}", None):
            best = min((-1, 0, 1), key=loss)
            while best in (min(losses), max(losses)) and len(losses) < MOST_TRIALS:
                loss(best - 1 if best == min(losses) else best + 1)
                best = min(losses, key=losses.__getitem__)
        rate = float(f"{start * FACTOR**best:.3g}")
        tried = ", ".join(f"{start * FACTOR**k:.2g}: {value:.4f}" for k, value in sorted(losses.items()))
        edge = ", the last that was tried" if best in (min(losses), max(losses)) else ""
        self.reporter.note(f"{kind}: learning rate {rate:g}{edge} (validation nats after {steps:,} steps: {tried})")
        return rate

    def _trial(self, settings: LMSettings, rate: float, steps: int) -> float:
        """The validation loss after a short training of its own; one that fails is infinitely bad."""
        settings = with_changes(
            settings, {"training": {"learning_rate": rate, "seed": TRIAL_SEED, "eval_every": steps}}
        )
        seed_dropout(TRIAL_SEED)
        with initialising(TRIAL_SEED):
            model = self.task.build(settings, self.data, Reporter())
        learning = filled(self.task.learning(settings, self.data, model))
        plan, position = make_plan(settings.training, steps), Position()
        optimiser = optimiser_for(model, settings.training)
        ema = settings.training.ema
        average = WeightAverage(model, ema) if ema else None
        model.train()
        try:
            for step in range(steps):
                batch, now = learning.batches(step), plan.schedule(step)
                training_step(model, learning.objective, optimiser, batch, plan, position, now)
                if average is not None:
                    average.update(model, position.step)
        except NotFiniteError:
            return float("inf")
        with contextlib.nullcontext() if average is None else average.inside(model):
            return self.task.validate(model.eval(), self.data).value
