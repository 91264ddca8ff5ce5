"""What a training will take, before its first step: seconds of a step, and the most memory that the process will hold.

    seconds = accumulate · Σ t(operation)  +  making a batch  +  a step of the optimiser      (the last two are timed)
    peak    = process now + moments + average + max over the step (what is held)

The operations and what they hold are watched on small pieces of real batches (`rehearsal`) and scaled up to the whole
step; `machine` knows what each takes. Neither the model nor a random stream is touched.
"""

from __future__ import annotations

import copy
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqlab.core.settings.training import TrainingSettings
from seqlab.core.types import Batch, TokenBatch
from seqlab.diagnostics.machine import Calibration
from seqlab.diagnostics.rehearsal import Rehearsed, rehearse, scaled
from seqlab.training.optim import optimiser_for
from seqlab.training.plan import Learning

FEW, SOME = 2, 4  # rows of the two rehearsals
QUICK = 0.5  # seconds: a piece that takes less is rehearsed whole
LONG = 2048  # positions of a row from which on shorter ones are rehearsed
SHARES = (1 / 16, 1 / 8, 1 / 4)  # of such a row
SAMPLED = 24  # batches whose sizes are looked at
STRATA = (1 / 8, 3 / 8, 5 / 8, 7 / 8)  # of the sampled batches by size: these stand for all
OPTIMISER_TENSORS = {"sgd": 0, "momentum": 1, "momentum-average": 1}  # remembered beside each weight; 2 in the others


@dataclass(frozen=True)
class Memory:
    """Bytes at the worst moment, by what they are for."""

    process: int  # what the process holds before: libraries, data
    weights: int  # held already: part of the process
    moments: int  # of the optimiser, and an average of the weights
    step: int  # gradients, and what the step holds beside them

    @property
    def peak(self) -> int:
        return self.process + self.moments + self.step

    @property
    def needed(self) -> int:
        """Beside what the process holds."""
        return self.peak - self.process


@dataclass(frozen=True)
class Rehearsal:
    """What a piece of some rows of the largest batch takes, for any number of rows."""

    at: Callable[[int], float]  # rows of a piece -> bytes at its worst moment
    rows: int  # of the largest batch
    gradients: int  # bytes

    def step_bytes(self, accumulate: int) -> int:
        """Pieces after the first find the gradients of those before them."""
        rows = -(-self.rows // min(accumulate, self.rows))
        return int(self.at(rows)) + (self.gradients if rows < self.rows else 0)

    def nearest_fit(self, accumulate: int, spare: float) -> int | None:
        """The fewest pieces with which a step takes no more than `spare` bytes."""
        for pieces in itertools.chain(_doubled(accumulate, self.rows), [self.rows]):
            if self.step_bytes(pieces) <= spare:
                return pieces
        return None


@dataclass(frozen=True)
class StepSeconds:
    seconds: float
    low: float
    high: float


# --------------------------------------------------------------------------- memory


def rehearse_memory(model: nn.Module, learning: Learning) -> Rehearsal:
    """From the largest of some batches; every number a step holds grows in a line with its rows."""
    batch = max(_sampled(learning)[1], key=_numbers)
    gradients = sum(w.numel() * w.element_size() for w in model.parameters() if w.requires_grad)
    with _untouched(model):
        if isinstance(batch, TokenBatch) and batch.inputs.shape[1] >= LONG:
            at = _long_rows(model, learning, batch)
        else:
            at = _by_rows(model, learning, batch)
    return Rehearsal(at, _rows(batch), gradients)


def memory_of(model: nn.Module, training: TrainingSettings, rehearsal: Rehearsal) -> Memory:
    weights = sum(w.numel() * w.element_size() for w in model.parameters())
    trained = rehearsal.gradients
    moments = OPTIMISER_TENSORS.get(training.optimiser, 2) * trained + (weights if training.ema else 0)
    return Memory(resident_bytes(), weights, moments, rehearsal.step_bytes(training.accumulate))


def _by_rows(model: nn.Module, learning: Learning, batch: Batch) -> Callable[[int], float]:
    rows = _rows(batch)
    small, large = _pieces(batch)
    begun = time.perf_counter()
    pair = [_rehearsed(model, learning, piece) for piece in (small, large)]
    took = time.perf_counter() - begun
    if took * rows / max(1, _rows(small) + _rows(large)) < QUICK and rows > SOME:
        large = batch
        pair[1] = _rehearsed(model, learning, batch)
    a, b = _rows(small), _rows(large)

    def at(count: int) -> float:
        if a == b:
            return pair[0].peak_bytes
        line = scaled(pair[0], pair[1], (count - a) / (b - a))
        if line is not None:
            return line.peak_bytes
        return pair[0].peak_bytes + (count - a) / (b - a) * (pair[1].peak_bytes - pair[0].peak_bytes)

    return at


def _long_rows(model: nn.Module, learning: Learning, batch: TokenBatch) -> Callable[[int], float]:
    """By a curve a + bT + cT² through shorter rows."""
    length = batch.inputs.shape[1]
    cuts = [_shortened(batch, int(length * share)) for share in SHARES]
    lines = [_by_rows(model, learning, cut) for cut in cuts]
    lengths = [cut.inputs.shape[1] for cut in cuts]
    return lambda count: extrapolated(lengths, [line(count) for line in lines], length)


def extrapolated(at: Sequence[float], values: Sequence[float], to: float) -> float:
    """a + bx + cx² with a, b, c ≥ 0, least squares of relative errors: what costs grow like."""
    x, y = np.asarray(at, float), np.asarray(values, float)
    best, found = np.inf, float(y[-1] * to / x[-1])
    for powers in itertools.chain.from_iterable(itertools.combinations(range(3), k) for k in (1, 2, 3)):
        design = np.stack([x**p for p in powers], 1) / y[:, None]
        weights, *_ = np.linalg.lstsq(design, np.ones_like(y), rcond=None)
        error = float(((design @ weights - 1) ** 2).sum())
        if (weights >= 0).all() and error < best - 1e-9:
            best, found = error, float(sum(w * to**p for w, p in zip(weights, powers, strict=True)))
    return found


# --------------------------------------------------------------------------- time


def step_seconds(
    model: nn.Module, learning: Learning, training: TrainingSettings, calibration: Calibration
) -> StepSeconds:
    """Of one whole training step. What is timed is timed now; what is priced is as of the calibration."""
    making, batches = _sampled(learning)
    with _untouched(model):
        priced = statistics.fmean(
            _priced(model, learning, batch, training.accumulate, calibration) for batch in _strata(batches)
        )
    beside = making + _optimiser_seconds(model, training)
    low, high = calibration.range
    priced *= calibration.now
    return StepSeconds(
        priced + beside, priced * low / calibration.now + beside, priced * high / calibration.now + beside
    )


def _priced(model: nn.Module, learning: Learning, batch: Batch, accumulate: int, calibration: Calibration) -> float:
    pieces = min(accumulate, _rows(batch))
    rows = -(-_rows(batch) // pieces)
    if isinstance(batch, TokenBatch) and batch.inputs.shape[1] >= LONG:
        cuts = [_shortened(batch, int(batch.inputs.shape[1] * share)) for share in SHARES]
        seconds = [calibration.seconds(_whole(model, learning, cut, rows).operations) for cut in cuts]
        lengths = [cut.inputs.shape[1] for cut in cuts]
        return pieces * extrapolated(lengths, seconds, batch.inputs.shape[1])
    return pieces * calibration.seconds(_whole(model, learning, batch, rows).operations)


def _whole(model: nn.Module, learning: Learning, batch: Batch, rows: int) -> Rehearsed:
    """The step on so many rows: rehearsed as it is where that is quick, else scaled from few rows."""
    small, large = _pieces(batch)
    a, b = _rows(small), _rows(large)
    if rows <= b:
        return _rehearsed(model, learning, batch.cut(_rows(batch) // rows)[0])
    begun = time.perf_counter()
    pair = _rehearsed(model, learning, small), _rehearsed(model, learning, large)
    quick = (time.perf_counter() - begun) * rows / (a + b) < QUICK
    line = None if quick else scaled(*pair, (rows - a) / (b - a))
    return line or _rehearsed(model, learning, batch.cut(max(1, _rows(batch) // rows))[0])


def _optimiser_seconds(model: nn.Module, training: TrainingSettings) -> float:
    """Clipping and a step of the optimiser (and of the average), timed on a copy."""
    trial = copy.deepcopy(model)
    for weight in trial.parameters():
        weight.grad = torch.zeros_like(weight) if weight.requires_grad else None
    optimiser = optimiser_for(trial, training)
    average = [torch.zeros_like(w) for w in trial.parameters()] if training.ema else []
    times = []
    for _ in range(4):
        begun = time.perf_counter()
        nn.utils.clip_grad_norm_(trial.parameters(), 1.0)
        optimiser.step()
        for mean, weight in zip(average, trial.parameters(), strict=False):
            mean.lerp_(weight.detach(), 0.1)
        times.append(time.perf_counter() - begun)
    return min(times[1:])


# --------------------------------------------------------------------------- pieces of batches


def _sampled(learning: Learning) -> tuple[float, list[Batch]]:
    """Seconds to make a batch, and batches of one epoch. One is enough where all are of one size."""
    batches = [learning.batches(0)]
    if isinstance(batches[0], TokenBatch) or _rows(batches[0]) == 1:
        begun = time.perf_counter()
        learning.batches(1)
        return time.perf_counter() - begun, batches
    steps = max(1, int(learning.batches.steps_per_epoch))
    chosen = sorted({int(k) for k in np.linspace(0, steps - 1, min(steps, SAMPLED))})
    begun = time.perf_counter()
    batches = [learning.batches(step) for step in chosen]
    return (time.perf_counter() - begun) / len(chosen), batches


def _strata(batches: list[Batch]) -> list[Batch]:
    by_size = sorted(batches, key=_numbers)
    return [by_size[int(share * len(by_size))] for share in (STRATA if len(by_size) >= len(STRATA) else (0.5,))]


def _pieces(batch: Batch) -> tuple[Batch, Batch]:
    rows = _rows(batch)
    return batch.cut(max(1, rows // FEW))[0], batch.cut(max(1, rows // SOME))[0]


def _rows(batch: Batch) -> int:
    return len(batch.cut(sys.maxsize))


def _shortened(batch: TokenBatch, length: int) -> TokenBatch:
    return replace(batch, inputs=batch.inputs[:, :length], targets=batch.targets[:, :length])


def _numbers(batch: Any) -> int:
    """In all tensors of a batch."""
    if isinstance(batch, Tensor):
        return batch.numel()
    return sum(_numbers(getattr(batch, f.name)) for f in fields(batch)) if is_dataclass(batch) else 0


def _rehearsed(model: nn.Module, learning: Learning, batch: Batch) -> Rehearsed:
    return rehearse(lambda: learning.objective(model, batch, None).total.backward(), model)  # type: ignore[no-untyped-call]


def _doubled(start: int, end: int) -> Iterator[int]:
    while start < end:
        yield start
        start *= 2


@contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """Train as in earnest, and leave mode, buffers and gradients as they were."""
    was, buffers = model.training, {name: value.clone() for name, value in model.named_buffers()}
    model.train()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        model.train(was)
        model.zero_grad(set_to_none=True)
        for name, value in model.named_buffers():
            value.copy_(buffers[name])


# --------------------------------------------------------------------------- the machine's memory


def resident_bytes() -> int:
    """What this process holds now; 0 where the system does not say."""
    return _kilobytes(Path("/proc/self/status"), "VmRSS") or 0


def available_bytes() -> int | None:
    """What may still be taken: of the machine, and of the group of processes that this one belongs to."""
    free = _kilobytes(Path("/proc/meminfo"), "MemAvailable")
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        spare = limit - int((group / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no limit, or another system
        return free
    return spare if free is None else min(free, spare)


def _kilobytes(file: Path, name: str) -> int | None:
    try:
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.startswith(name + ":"):
                return 1024 * int(line.split()[1])
    except (OSError, ValueError):
        pass
    return None
