"""One training from beginning to report, with the run folder as its only output."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from seqlab.core.reporting import Reporter
from seqlab.core.seeding import seed_dropout
from seqlab.core.settings import FULL_GRADIENT_VOCABULARY, LMSettings, fitted
from seqlab.core.state import pack, unpack
from seqlab.core.units import human_count, parse_budget
from seqlab.data.batching import PairBatches, StreamBatches, WindowBatches
from seqlab.evaluation.surprisal import policy_for
from seqlab.models.build import build_lm_from_settings
from seqlab.training.checkpoint import (
    load_optimiser,
    load_tensors,
    load_weights,
    optimiser_tensors,
    save_tensors,
    with_prefix,
    without_prefix,
)
from seqlab.training.interruption import catch_interruption
from seqlab.training.loop import Plan, Position, train
from seqlab.training.optim import build_optimiser
from seqlab.workflows.budget import StepCount, count_steps, make_plan, measure_step, validations_on_the_way
from seqlab.workflows.measure import quick_validation, score_parts
from seqlab.workflows.prepared import Prepared
from seqlab.workflows.record import facts_of
from seqlab.workflows.report import write_report
from seqlab.workflows.run import Run, load
from seqlab.workflows.run_folder import Line, RunFolder
from seqlab.workflows.vectors import read_vectors, start_from_vectors

MUCH_SHARED = 0.05  # of the held-out text: from here on the figures flatter
FEW_STEPS = 20
SAVE_SECONDS = 30.0  # a crash costs at most this much work


Batches = StreamBatches | WindowBatches | PairBatches


@dataclass
class Job:
    """One training: everything the loop's callbacks need, with the run folder as the only output."""

    folder: RunFolder
    settings: LMSettings
    record: dict[str, Any]
    prepared: Prepared
    model: Any
    optimiser: torch.optim.Optimizer
    batches: Batches
    plan: Plan
    position: Position
    reporter: Reporter
    interrupted: Callable[[], bool] = lambda: False
    outcome: str = ""

    # ---- beginning and going on

    @classmethod
    def begin(
        cls,
        folder: RunFolder,
        settings: LMSettings,
        prepared: Prepared,
        parent: Run | None,
        flags: dict[str, Any],
        reporter: Reporter,
    ) -> Job:
        """A new job; nothing is written before `open_folder`."""
        seed_dropout(settings.training.seed)
        vectors = read_vectors(settings, prepared, flags.get("vector_width"), reporter)
        if vectors is not None:
            width = vectors.matrix.shape[1]
            settings = dataclasses.replace(settings, model=dataclasses.replace(settings.model, vector_width=width))
        model = build_lm_from_settings(settings, prepared.tokenizer.vocab_size)
        if vectors is not None:
            start_from_vectors(model, vectors)
        if parent is not None:
            model.load_state_dict(parent.model.state_dict())
        batches, carry = _batches(settings, prepared, model)
        settings, count = _fit_steps(settings, model, batches, carry, prepared)
        plan = make_plan(settings.training, count.steps, carry=carry)
        record = _record(prepared, model, batches, count, flags, parent)
        optimiser = _optimiser(model, settings)
        return cls(folder, settings, record, prepared, model, optimiser, batches, plan, Position(), reporter)

    def open_folder(self) -> None:
        """Write what resume needs; settings.toml comes last: a folder that has it can be resumed."""
        self.prepared.tokenizer.save(self.folder.tokenizer_file)
        self.save(self.position)
        self.folder.write_settings(self.settings, self.record)

    @classmethod
    def resume(
        cls,
        folder: RunFolder,
        settings: LMSettings,
        record: dict[str, Any],
        prepared: Prepared,
        longer: str | None,
        reporter: Reporter,
    ) -> Job:
        model = build_lm_from_settings(settings, prepared.tokenizer.vocab_size)
        batches, carry = _batches(settings, prepared, model)
        optimiser = _optimiser(model, settings)
        position = _load_checkpoint(folder, model, optimiser)
        if longer is not None:
            settings, record = _lengthen(settings, record, batches, longer, position, reporter)
            position.misses = 0
        plan = make_plan(settings.training, record["steps"], carry=carry)
        job = cls(folder, settings, record, prepared, model, optimiser, batches, plan, position, reporter)
        folder.cut_metrics(position.step, position.lines)
        if longer is not None:
            job.save(position)
            folder.write_settings(settings, record)
        reporter.note(f"resuming at step {position.step:,} of {plan.steps:,}")
        return job

    # ---- the loop and what follows

    def run(self) -> None:
        self._describe()
        self._begun = self._last_save = time.perf_counter()
        self._tokens_before = self.position.tokens
        with catch_interruption() as interrupted:
            self.interrupted = interrupted
            with self.reporter.task("training", self.plan.steps):
                self.outcome = train(self.model, self.optimiser, self.batches, self.plan, self.position, self)
        if self.outcome == "interrupted":
            self.reporter.warn(
                f"interrupted at step {self.position.step:,} of {self.plan.steps:,}; everything is saved: "
                f"go on with 'seqlab lm train --out {self.folder.path} --resume'"
            )
            return
        self._measure()

    def _describe(self) -> None:
        note = self.reporter.note
        parts = self.prepared.parts
        counts = " / ".join(f"{human_count(p.facts.tokens)}" for p in parts.values())
        note(
            f"{self.prepared.text.name}: {self.prepared.text.bytes:,} bytes, {self.settings.tokenizer.kind} tokens "
            f"{counts} (train / validation / test), vocabulary {self.prepared.tokenizer.vocab_size:,}"
        )
        overlap = self.prepared.overlap
        (self.reporter.warn if overlap.fraction > MUCH_SHARED else note)(overlap.sentence())
        model = self.settings.model
        depth = f", depth {model.depth}" if model.depth else ""
        note(
            f"{model.kind} {model.size}: width {model.width}{depth}, "
            f"{human_count(self.record['parameters'])} parameters; {self.plan.steps:,} steps of "
            f"{self.batches.tokens_per_step:,} tokens; {self.record['threads']} threads, "
            f"seed {self.settings.training.seed}"
        )
        if self.plan.steps < FEW_STEPS and parse_budget(self.settings.training.budget).seconds is not None:
            self.reporter.warn(
                f"--budget {self.settings.training.budget} buys only {self.plan.steps} steps here: too few "
                "to learn much; give more time or a smaller --size"
            )

    def _measure(self) -> None:
        """Load the best weights, score the whole validation text and, once, the test text; write the report."""
        if not self.folder.model_file.exists():  # never validated: the last weights are the best there are
            self.keep_best(self.position)
        weights, best = load_tensors(self.folder.model_file)
        load_weights(self.model, weights, str(self.folder.model_file))
        self.model.eval()
        line: Line = {"final": True, "step": self.position.step, "outcome": self.outcome}
        line |= {"best_step": best["step"], "tokens": self.position.tokens, "seconds": self.position.seconds}
        line["context"] = str(policy_for(self.model))
        self.folder.append_metrics(line | score_parts(self.model, self.prepared, self.reporter))
        write_report(self.result, self.prepared.overlap, self.prepared.text)

    @property
    def result(self) -> Run:
        """The run as it stands in the folder, with the best weights so far (if there are any yet)."""
        if self.folder.model_file.exists():
            return load(self.folder.path)
        return Run(self.folder, self.settings, self.record, self.prepared.tokenizer, self.model.eval(), 0)

    # ---- callbacks of the loop

    def validate(self) -> float:
        return quick_validation(self.model, self.prepared.parts["validation"], self.prepared.tokenizer.begin_id)

    def keep_best(self, position: Position) -> None:
        record = {"step": position.step, "validation_nats_per_token": position.record()["best"]}
        save_tensors(self.folder.model_file, dict(self.model.state_dict()), record)

    def log(self, position: Position, figures: dict[str, float]) -> None:
        line = {
            "step": position.step,
            "tokens": position.tokens,
            "seconds": round(position.seconds, 3),
            **figures,
        }
        self.folder.append_metrics(line)
        self.reporter.advance(position.step, figures | self._speed(position))
        if "validation_nats_per_token" in figures:
            self.save(position)

    def _speed(self, position: Position) -> dict[str, float]:
        facts = self.prepared.parts["train"].facts
        seconds = max(1e-9, time.perf_counter() - self._begun)
        return {
            "characters_per_token": facts.characters / facts.tokens,
            "tokens_per_second": (position.tokens - self._tokens_before) / seconds,
        }

    def after_step(self, position: Position) -> None:
        self.reporter.advance(position.step)
        if time.perf_counter() - self._last_save > SAVE_SECONDS:
            self.save(position)

    def save(self, position: Position) -> None:
        shape, carried = pack(position.carried, "carried")
        tensors = with_prefix("model/", dict(self.model.state_dict()))
        tensors |= with_prefix("optimiser/", optimiser_tensors(self.model, self.optimiser))
        tensors |= carried | {"random": torch.get_rng_state()}
        self.folder.sync_metrics()
        save_tensors(self.folder.checkpoint_file, tensors, {"position": position.record(), "carried": shape})
        self._last_save = time.perf_counter()


def _batches(settings: LMSettings, prepared: Prepared, model: Any) -> tuple[Batches, bool]:
    carry = bool(settings.training.carry) and getattr(model, "carries_state", False)
    training = settings.training
    ids, begin_id = prepared.parts["train"].ids, prepared.tokenizer.begin_id
    if getattr(model, "learns_from_pairs", False):
        few = model.vocab_size <= FULL_GRADIENT_VOCABULARY
        full = few if training.full_gradient is None else training.full_gradient
        size = None if full else fitted(training.batch) * fitted(training.context)
        return PairBatches(ids, begin_id, model.vocab_size, size, training.seed), False
    make = StreamBatches if carry else WindowBatches
    return make(ids, begin_id, fitted(training.batch), fitted(training.context), training.seed), carry


def _optimiser(model: Any, settings: LMSettings) -> torch.optim.Optimizer:
    training = settings.training
    rate, decay = fitted(training.learning_rate), fitted(training.weight_decay)
    return build_optimiser(model, rate, decay, kind=training.optimiser)


def _fit_steps(
    settings: LMSettings, model: Any, batches: Any, carry: bool, prepared: Prepared
) -> tuple[LMSettings, StepCount]:
    """Turn the budget into steps, and decide how often to validate."""
    training = settings.training
    budget = parse_budget(training.budget)

    def measured() -> tuple[float, float]:
        trial = make_plan(dataclasses.replace(training, eval_every=1), 1, carry=carry)
        step = measure_step(model, lambda m: _optimiser(m, settings), batches, trial, budget.seconds or 0.0)
        start = time.perf_counter()
        quick_validation(model, prepared.parts["validation"], prepared.tokenizer.begin_id)
        return step, time.perf_counter() - start

    count = count_steps(budget, batches, measured, training.eval_every)
    every = training.eval_every or max(1, -(-count.steps // validations_on_the_way(budget)))
    return dataclasses.replace(settings, training=dataclasses.replace(training, eval_every=every)), count


def _record(
    prepared: Prepared,
    model: Any,
    batches: Any,
    count: StepCount,
    flags: dict[str, Any],
    parent: Run | None,
) -> dict[str, Any]:
    record = facts_of(prepared, sum(p.numel() for p in model.parameters()), flags)
    record |= {"steps": count.steps, "batch": batches.batch}
    if count.seconds_per_step is not None:
        record |= {"seconds_per_step": count.seconds_per_step, "seconds_per_validation": count.seconds_per_validation}
    if parent is not None:
        record["from"] = {"run": str(parent.folder.resolve()), "step": parent.step}
    return record


def _load_checkpoint(folder: RunFolder, model: Any, optimiser: torch.optim.Optimizer) -> Position:
    tensors, saved = load_tensors(folder.checkpoint_file)
    load_weights(model, without_prefix("model/", tensors), str(folder.checkpoint_file))
    load_optimiser(model, optimiser, without_prefix("optimiser/", tensors))
    torch.set_rng_state(tensors["random"])
    return Position.from_record(saved["position"], unpack(saved["carried"], tensors, "carried"))


def _lengthen(
    settings: LMSettings,
    record: dict[str, Any],
    batches: Any,
    budget: str,
    position: Position,
    reporter: Reporter,
) -> tuple[LMSettings, dict[str, Any]]:
    """A longer budget: more steps, and a learning rate that falls later. Says so."""
    old = make_plan(settings.training, record["steps"], carry=False)
    measured = (record.get("seconds_per_step", 0.0), record.get("seconds_per_validation", 0.0))
    count = count_steps(parse_budget(budget), batches, lambda: measured, settings.training.eval_every)
    training = dataclasses.replace(settings.training, budget=budget)
    new = make_plan(training, count.steps, carry=False)
    here = min(position.step, old.steps - 1)
    reporter.note(
        f"longer budget: {old.steps:,} → {new.steps:,} steps; the learning rate at step {position.step:,} changes "
        f"from {old.schedule(here):.2g} to {new.schedule(position.step):.2g}; the result differs from a run given "
        "the longer budget at once"
    )
    return dataclasses.replace(settings, training=training), record | {"steps": count.steps}
