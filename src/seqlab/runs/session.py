"""One training from beginning to report, whatever the task, with the run folder as its only output."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from seqlab.core.files import sha256_of_file
from seqlab.core.memory import give_back
from seqlab.core.reporting import Reporter
from seqlab.core.seeding import initialising, seed_dropout
from seqlab.core.settings.fields import to_table, with_changes
from seqlab.core.state import pack, unpack
from seqlab.core.units import human_moment, number_of, parse_budget
from seqlab.runs.conflicts import refuse_shorter
from seqlab.runs.estimate import Estimate, check_memory, check_weights, estimate, validations_in
from seqlab.runs.folder import Line, RunFolder
from seqlab.runs.metrics_files import Events
from seqlab.runs.record import identity_of, training_key, validation_key, versions
from seqlab.runs.run import Run, load_own, save_own
from seqlab.runs.task import Task
from seqlab.training.averaging import WeightAverage
from seqlab.training.checkpoint import load_optimiser, load_weights, optimiser_tensors, with_prefix, without_prefix
from seqlab.training.interruption import catch_interruption
from seqlab.training.loop import Logged, Plan, Position, train
from seqlab.training.objectives import Score
from seqlab.training.optim import optimiser_facts, optimiser_for
from seqlab.training.plan import Learning, StepCount, count_steps, make_plan, plan_steps

FEW_STEPS = 20
FAR_OFF = 0.25  # of a time budget: an estimate that differs by more is explained
SAVE_SECONDS = 30.0  # a crash costs at most this much work


@dataclass
class Session:
    """One training: everything the loop's callbacks need. What is fitted at once learns nothing, in no steps."""

    task: Task
    folder: RunFolder
    settings: Any
    record: dict[str, Any]
    data: Any
    model: Any
    reporter: Reporter
    learning: Learning | None = None
    optimiser: torch.optim.Optimizer | None = None
    plan: Plan | None = None
    average: WeightAverage | None = None
    position: Position = field(default_factory=Position)
    expected: Estimate | None = None  # for whoever listens
    events: Events | None = None
    stop: Callable[[], bool] | None = None
    interrupted: Callable[[], bool] = lambda: False

    # ---- the loop and what follows

    def run(self) -> Run:
        """Train, measure, report; returns the run, which has not finished if it was interrupted."""
        if not self.settings.training.tensorboard:
            return self._run()
        self.events = Events(self.folder.path, self.position.step)
        with contextlib.closing(self.events):
            return self._run()

    def _run(self) -> Run:
        outcome = self._train()
        if outcome != "interrupted":
            return self._finish(outcome)
        assert self.plan is not None
        self.reporter.warn(
            f"interrupted at step {self.position.step:,} of {self.plan.steps:,}; everything is saved: "
            f"go on with {self.task.way_on(self.folder.path)}"
        )
        if self.folder.model_file.exists():
            return self._run_with_best()
        return self._as_run(self.position.step)

    def _train(self) -> str:
        self.task.describe(self)
        if self.learning is None or self.plan is None or self.optimiser is None:
            return "fitted"
        self._say_what_it_takes()
        self._warn_of_few_steps()
        self._begun = self._last_save = time.perf_counter()
        self._count_before = self.position.count
        learning, plan, average = self.learning, self.plan, self.average
        with catch_interruption(self.stop) as interrupted, self.reporter.task("training", plan.steps):
            self.interrupted = interrupted
            where = self.position, self, average
            return train(self.model, learning.objective, self.optimiser, learning.batches, plan, *where)

    def _say_what_it_takes(self) -> None:
        assert self.plan is not None
        if self.expected is not None:
            steps = self.plan.steps - self.position.step
            validations = validations_in(steps, self.plan.eval_every)
            remark = self._why_not_the_budget(self.expected.seconds(steps, validations))
            for line in self.expected.lines(steps, validations, remark):
                self.reporter.note(line)

    def _why_not_the_budget(self, whole: float) -> str:
        """A time budget is made into steps by a timing of its own: the machine may have been faster or slower then."""
        assert self.expected is not None
        budget, then = self.settings.training.budget, self.record.get("seconds_per_step")
        asked, now = parse_budget(budget).seconds, self.expected.step.seconds
        if asked is None or then is None or self.position.step:
            return ""
        left = max(1e-3, asked - self.position.seconds)
        if abs(whole / left - 1) <= FAR_OFF or abs(now / then - 1) <= FAR_OFF / 2:
            return ""
        speed = "faster" if then < now else "slower"
        return (
            f"; --budget {budget} bought so many at {human_moment(then)} a step: the machine was {speed} at that moment"
        )

    def _warn_of_few_steps(self) -> None:
        budget, steps = self.settings.training.budget, self.record["steps"]
        if steps < FEW_STEPS and parse_budget(budget).seconds is not None:
            self.reporter.warn(
                f"--budget {budget} buys only {number_of(steps, 'step')} here: too few to learn much; "
                "give more time or a smaller model"
            )

    def _finish(self, outcome: str) -> Run:
        """Load the best weights, once; measure, once; write the last line and the report."""
        if not self.folder.model_file.exists():  # never validated: the last weights are the best there are
            self.keep_best(self.position)
        run = self._as_run(0) if self.learning is None else self._run_with_best()
        give_back()  # what the steps held
        line: Line = {"final": True, "step": self.position.step, "outcome": outcome, "best_step": run.step}
        line |= {self.task.counted: self.position.count, "seconds": self.position.seconds}
        with self.reporter.task("measuring", None):
            figures = self.task.measure(run, self.data, self.reporter)
        self._write(line | figures)
        with self.reporter.task("writing the report", None):
            self.task.report(run, self.data)
        return run

    def _run_with_best(self) -> Run:
        weights, best = load_own(self.folder, self.folder.model_file)
        load_weights(self.model, weights, str(self.folder.model_file))
        return self._as_run(best["step"])

    def _as_run(self, step: int) -> Run:
        task, model = self.task, self.model.eval()
        return task.run_type(task, self.folder, self.settings, self.record, self.data.files, model, step)

    # ---- callbacks of the loop

    def judged(self) -> contextlib.AbstractContextManager[None]:
        """The model as it is measured and kept: with the average of its weights, if there is one."""
        return contextlib.nullcontext() if self.average is None else self.average.inside(self.model)

    def validate(self) -> Score:
        give_back()
        with self.judged():
            return self.task.validate(self.model, self.data)

    def keep_best(self, position: Position) -> None:
        record = {"step": position.step}
        if position.step:
            record[validation_key(self.task.unit)] = position.record()["best"]
        with self.judged():
            save_own(self.folder, self.folder.model_file, self.task.weights(self.model), record)

    def stepped(self, position: Position) -> None:
        """A look inside now and then, before anything is saved: a line of its own in the metrics.

        Neither weights nor a random stream are touched. With an average of the weights it is that which is looked at.
        """
        every = self.task.look_every(self.settings)
        if not every or position.step % every:
            return
        self.model.eval()
        try:
            with self.judged(), torch.random.fork_rng(devices=[]):
                found = self.task.look(self.model, self.data)
        finally:
            self.model.train()
        position.lines += 1
        self._write({"step": position.step, self.task.counted: position.count} | found)

    def log(self, position: Position, logged: Logged) -> None:
        line: Line = {"step": position.step, self.task.counted: position.count, "seconds": round(position.seconds, 3)}
        line |= {training_key(self.task.unit): logged.loss, "learning_rate": logged.learning_rate}
        line["gradient_norm"] = logged.gradient_norm
        if logged.validation is not None:
            line |= {validation_key(self.task.unit): logged.validation.value, **logged.validation.figures}
        self._write(line)
        self.reporter.advance(position.step, self._shown(position, logged))
        if logged.validation is not None:
            self.save(position)

    def _write(self, line: Line) -> None:
        self.folder.append_metrics(line)
        if self.events is not None:
            self.events.add(line)

    def _shown(self, position: Position, logged: Logged) -> dict[str, str]:
        """What stands beside the progress bar."""
        seconds = max(1e-9, time.perf_counter() - self._begun)
        shown = self.task.shown(self.data, logged.loss, (position.count - self._count_before) / seconds)
        if logged.validation is not None:
            shown["validation"] = self.task.shown_validation(logged.validation)
        return shown

    def after_step(self, position: Position) -> None:
        self.reporter.advance(position.step)
        if time.perf_counter() - self._last_save > SAVE_SECONDS:
            self.save(position)

    def save(self, position: Position) -> None:
        """What exact resume needs; of a model that is fitted at once, the model itself."""
        if self.optimiser is None:
            return self.keep_best(position)
        shape, carried = pack(position.carried, "carried")
        tensors = with_prefix("model/", dict(self.model.state_dict()))
        tensors |= with_prefix("optimiser/", optimiser_tensors(self.model, self.optimiser))
        if self.average is not None:
            tensors |= with_prefix("average/", self.average.weights)
        tensors |= carried | {"random": torch.get_rng_state()}
        self.folder.sync_metrics()
        record = {"position": position.record(), "carried": shape, "steps": self.record["steps"]}
        save_own(self.folder, self.folder.checkpoint_file, tensors, record)
        self._last_save = time.perf_counter()

    def write_settings(self) -> None:
        self.folder.write(self.task.kind, to_table(self.settings), self.record)


# --------------------------------------------------------------------------- beginning and going on


def begin(
    task: Task,
    folder: RunFolder,
    settings: Any,
    data: Any,
    asked: dict[str, Any],
    parent: Run | None,
    reporter: Reporter,
    recorded: StepCount | None = None,
) -> Session:
    """A new session, planned and ready; nothing is written before `open_folder`. Recorded steps are not timed."""
    begun = time.perf_counter()
    seed_dropout(settings.training.seed)
    settings = task.settle(settings, data)
    check_weights(task, settings, data)
    with initialising(settings.training.seed):
        model = task.build(settings, data, reporter)
    if parent is not None:
        model.load_state_dict(parent.model.state_dict())
    learning = task.learning(settings, data, model)
    count, fitting, expected = StepCount(0), time.perf_counter() - begun, None
    if learning is not None:
        expected = _expected(task, settings, data, model, learning, reporter)
        count, every = (
            plan_steps(model, learning, settings.training, lambda: task.validate(model, data))
            if recorded is None
            else (recorded, settings.training.eval_every)
        )
        give_back()
        settings = with_changes(settings, {"training": {"eval_every": every}})
    record = _record(task, data, model, asked, parent) | count.facts()
    record["summary"] = task.summary(settings, data)
    record |= {"seconds_to_fit": fitting} if learning is None else learning.facts
    session = Session(task, folder, settings, record, data, model, reporter, expected=expected)
    session = _with_loop(session, learning)
    if learning is not None:
        session.position.seconds = learning.spent
    return session


def _expected(
    task: Task, settings: Any, data: Any, model: nn.Module, learning: Learning, reporter: Reporter
) -> Estimate | None:
    """Refuses what would not fit into memory; how long it takes is found out for whoever listens."""
    with reporter.task("rehearsing a step: will it fit into memory?", None):
        memory = check_memory(task, settings, model, learning, data)
    try:
        if not reporter.listening:
            return None
        return estimate(settings, model, learning, memory, lambda: task.validate(model, data), reporter)
    finally:
        give_back()


def open_folder(session: Session) -> None:
    """Write what resume needs; settings.toml comes last: a folder that has it can be resumed."""
    session.folder.begin(identity_of(session.task.kind, session.settings, session.record))
    session.record["files"] = session.folder.keep(session.data.files)
    session.save(session.position)
    session.write_settings()


def go_on(
    task: Task,
    folder: RunFolder,
    settings: Any,
    record: dict[str, Any],
    data: Any,
    longer: str | None,
    reporter: Reporter,
) -> Session:
    """The session that a folder's run goes on with, from its last checkpoint."""
    if not record["steps"]:
        return _refit(task, folder, settings, record, data, reporter)
    tensors, saved = load_own(folder, folder.checkpoint_file)
    source = str(folder.checkpoint_file)
    model = task.restore(settings, data.files, without_prefix("model/", tensors), source)
    session = Session(task, folder, settings, record, data, model, reporter)
    session = _with_loop(session, task.learning(settings, data, model))
    assert session.optimiser is not None
    assert session.learning is not None
    session.expected = _expected(task, settings, data, model, session.learning, reporter)
    load_optimiser(model, session.optimiser, without_prefix("optimiser/", tensors))
    if session.average is not None:
        session.average.load(without_prefix("average/", tensors))
    torch.set_rng_state(tensors["random"])
    position = Position.from_record(saved["position"], unpack(saved["carried"], tensors, "carried"))
    session.position = position
    if position.best_step:
        load_own(folder, folder.model_file)  # refused now rather than after hours of training
    if longer is not None:
        _lengthen(session, longer)
    folder.cut_metrics(position.step, position.lines)
    if longer is not None:
        session.write_settings()
    if saved["steps"] != session.record["steps"]:  # a longer budget gives new patience
        position.misses = 0
    reporter.note(f"resuming at step {position.step:,} of {session.record['steps']:,}")
    return session


def _refit(
    task: Task, folder: RunFolder, settings: Any, record: dict[str, Any], data: Any, reporter: Reporter
) -> Session:
    """A model that is fitted at once is read again, or fitted again if it was lost."""
    if folder.model_file.exists():
        weights, _ = load_own(folder, folder.model_file)
        model = task.restore(settings, data.files, weights, str(folder.model_file))
    else:
        model = task.build(settings, data, reporter)
    folder.cut_metrics(0, 0)
    return _with_loop(Session(task, folder, settings, record, data, model, reporter), None)


def _with_loop(session: Session, learning: Learning | None) -> Session:
    """The session with what the loop needs, if there is anything to learn."""
    if learning is None:
        session.position.seconds = session.record["seconds_to_fit"]
        return session
    session.learning = learning
    session.optimiser = optimiser_for(session.model, session.settings.training)
    session.record["optimiser"] = optimiser_facts(session.optimiser, session.model)
    session.plan = make_plan(session.settings.training, session.record["steps"])
    if session.settings.training.ema:
        session.average = WeightAverage(session.model, session.settings.training.ema)
    return session


def _record(task: Task, data: Any, model: nn.Module, asked: dict[str, Any], parent: Run | None) -> dict[str, Any]:
    record: dict[str, Any] = {
        "asked": asked,
        "threads": torch.get_num_threads(),
        "parameters": task.parameters(model),
        **data.facts,
        "checksums": data.checksums,
        "versions": versions(),
    }
    if parent is not None:
        who = parent.files.identity or sha256_of_file(parent.files.model_file)  # older runs have no identity
        record["from"] = {"run": str(parent.folder.resolve()), "step": parent.step, "identity": who}
    return record


def _lengthen(session: Session, budget: str) -> None:
    """A longer budget: more steps, and a learning rate that falls later. Says so."""
    record, position, learning, old = session.record, session.position, session.learning, session.plan
    assert learning is not None
    assert old is not None
    measured = (record.get("seconds_per_step", 0.0), record.get("seconds_per_validation", 0.0))
    training = session.settings.training
    count = count_steps(parse_budget(budget), learning.batches, lambda: measured, training.eval_every)
    if count.steps < old.steps:
        refuse_shorter(budget, training.budget, old.steps)
    session.settings = with_changes(session.settings, {"training": {"budget": budget}})
    session.record = record | {"steps": count.steps}
    session.plan = new = make_plan(session.settings.training, count.steps)
    here = min(position.step, old.steps - 1)
    session.reporter.note(
        f"longer budget: {old.steps:,} → {number_of(new.steps, 'step')}; the schedule is stretched over all of them: "
        f"at step {position.step:,} the learning rate changes from {old.schedule(here):.2g} to "
        f"{new.schedule(position.step):.2g}, and it ends at {new.schedule(new.steps - 1):.2g}; the result differs from "
        "a run given the longer budget at once"
    )
