"""What a training will take, before its first step: seconds of a step, and the most memory that the process will hold.

    seconds = accumulate · Σ t(operation) · (timed / Σ t of a piece that is tried)  +  making a batch  +  the optimiser
    peak    = process now + moments + average + max(what a step holds, saving, reading held-out data)

The operations and what they hold are watched on small pieces of real batches (`rehearsal`) and scaled up to the whole
step; `machine` knows what each takes. A step that is quick is timed whole and needs no calibration. Neither the model
nor a random stream is touched.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from seqlab.core.memory import resident_bytes
from seqlab.core.settings.training import TrainingSettings
from seqlab.core.traits import traits_of
from seqlab.core.types import Batch, TokenBatch
from seqlab.core.units import parse_budget
from seqlab.diagnostics.cost import optimiser_bytes
from seqlab.diagnostics.machine import MODEL_ERROR, Calibration, seconds_of
from seqlab.diagnostics.pieces import bytes_of, piece_of, rows_of, sampled, shortened, strata, two_pieces
from seqlab.diagnostics.rehearsal import Rehearsed, rehearse, scaled
from seqlab.layers.blocks import Block
from seqlab.training.optim import optimiser_for
from seqlab.training.plan import Learning

QUICK = 1.5  # seconds: what takes less is rehearsed, and timed, as it is
LONG = 2048  # positions of a row from which on shorter ones are rehearsed
SHARES = (1 / 16, 1 / 8, 1 / 4)  # of such a row
SCATTER, SCATTER_RECOMPUTED, SCATTER_PIECES = 1.25, 2.0, 2.4  # measured: docs/benchmarks.md
HOLES, MOST_HOLES = 1.5, 200_000_000  # of uneven batches: times their tensors, and bytes at most; measured too
LOOP_SECONDS = 2e-4  # of the loop itself in each step: clock, signals, progress
READ_CALLS = 2  # of the model, after which reading holds what it ever will
READ_CALLS_IN_PIECES = 6  # of a model that carries its state: the first ones are warm-up, of which nothing is looked at


# --------------------------------------------------------------------------- memory


@dataclass(frozen=True)
class Memory:
    """Bytes at the worst moment, by what they are for. The weights are part of the process."""

    process: int  # what the process holds before: libraries, data, weights
    weights: int
    moments: int  # of the optimiser, and an average of the weights
    step: int  # gradients, and what the step holds beside them
    reading: int  # what reading held-out data holds, and the libraries of the report

    @property
    def saving(self) -> int:
        """A checkpoint is put together in memory before it is written, and checked by its bytes."""
        return 2 * (self.weights + self.moments)

    @property
    def needed(self) -> int:
        """Beside what the process holds."""
        return self.moments + max(self.step, self.saving, self.reading)

    @property
    def peak(self) -> int:
        return self.process + self.needed


@dataclass(frozen=True)
class Rehearsal:
    """What a piece of some rows of the largest batch takes, for any number of rows.

    A process holds more than its tensors: what was freed lies scattered between what is used. A step holds `scatter`
    times its tensors, `scatter_pieces` times where it takes and frees the same again and again, in pieces. Batches
    that differ in their rows leave holes that the next does not fill, `holes` times its tensors, and no more of large
    ones, which the system takes back at once.
    """

    at: Callable[[int], float]  # rows of a piece -> bytes at its worst moment
    rows: int  # of the largest batch
    gradients: int  # bytes
    batch: int = 0  # bytes of the largest batch, whole: with the rows of a guide they are many
    reading: int = 0  # bytes that reading held-out data holds
    of_length: Callable[[int], float] | None = None  # positions of one row -> the same; None where rows are not cut
    length: int = 0  # of a row
    scatter: float = 1.0
    scatter_pieces: float = 1.0
    holes: float = 0.0

    def tensor_bytes(self, accumulate: int) -> int:
        """Pieces after the first find the gradients of those before them."""
        rows = self._rows_of_piece(accumulate)
        return int(self.at(rows)) + (self.gradients if rows < self.rows else 0)

    def step_bytes(self, accumulate: int) -> int:
        once = self._rows_of_piece(accumulate) == self.rows
        tensors = self.tensor_bytes(accumulate)
        held = tensors * (self.scatter if once else self.scatter_pieces) + min(self.holes * tensors, MOST_HOLES)
        return int(held) + self.batch

    def _rows_of_piece(self, accumulate: int) -> int:
        return -(-self.rows // min(accumulate, self.rows))

    def nearest_fit(self, accumulate: int, spare: float) -> int | None:
        """The fewest pieces, of those that double, with which a step takes no more than `spare` bytes."""
        for pieces in itertools.chain(_doubled(accumulate, self.rows), [self.rows]):
            if self.step_bytes(pieces) <= spare:
                return pieces
        return None

    def nearest_length(self, spare: float) -> int | None:
        """The longest row, of those that halve, of which one at a time takes no more than `spare` bytes."""
        length = self.length // 2
        while self.of_length is not None and length >= 1:
            if self.scatter_pieces * (self.of_length(length) + self.gradients) <= spare:
                return length
            length //= 2
        return None


def rehearse_memory(model: nn.Module, learning: Learning, read: Callable[[], Any] | None = None) -> Rehearsal:
    """From the largest of some batches, and from the first calls of `read`, which has the model read held-out data."""
    batches = sampled(learning)[1]
    batch = max(batches, key=bytes_of)
    uneven = len({rows_of(one) for one in batches}) > 1
    gradients = sum(w.numel() * w.element_size() for w in model.parameters() if w.requires_grad)
    with _untouched(model):
        watched = _Watched(model, learning, batch)
        watched.rehearse_few()
        reading = 0.0 if read is None else _reading_bytes(read, model)
    return Rehearsal(
        at=watched.peak_bytes,
        rows=watched.rows,
        gradients=gradients,
        batch=bytes_of(batch),
        reading=int(reading),
        of_length=watched.bytes_of_length if watched.length else None,
        length=watched.length,
        scatter=SCATTER_RECOMPUTED if _recomputes(model) else SCATTER,
        scatter_pieces=SCATTER_PIECES,
        holes=HOLES if uneven else 0.0,
    )


def _reading_bytes(read: Callable[[], Any], model: nn.Module) -> float:
    """What reading held-out data holds: in pieces, that is taken and freed again and again."""
    in_pieces = traits_of(model).carries_state
    watched = rehearse(read, model, READ_CALLS_IN_PIECES if in_pieces else READ_CALLS).peak_bytes
    return watched * (SCATTER_PIECES if in_pieces else 1.0)


def memory_of(model: nn.Module, training: TrainingSettings, rehearsal: Rehearsal, later: int = 0) -> Memory:
    """Asked after a rehearsal, when whatever the first step loads is there. A time budget is timed on a copy.

    `later`: what measuring and the report hold beside what reading does.
    """
    weights = sum(w.numel() * w.element_size() for w in model.parameters())
    moments = optimiser_bytes(model, training.optimiser, ema=bool(training.ema))
    step = rehearsal.step_bytes(training.accumulate)
    if parse_budget(training.budget).seconds is not None:
        step += weights
    return Memory(resident_bytes(), weights, moments, step, rehearsal.reading + later)


# --------------------------------------------------------------------------- memory for time


def can_recompute(model: nn.Module) -> bool:
    return any(isinstance(module, Block) for module in model.modules())


def _recomputes(model: nn.Module) -> bool:
    return any(isinstance(module, Block) and module.recompute for module in model.modules())


@contextlib.contextmanager
def recomputing(model: nn.Module, *, on: bool = True) -> Iterator[None]:
    """The model with blocks that compute their inside again, or do not."""
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    former = [block.recompute for block in blocks]
    try:
        for block in blocks:
            block.recompute = on
        yield
    finally:
        for block, was in zip(blocks, former, strict=True):
            block.recompute = was


# --------------------------------------------------------------------------- time


@dataclass(frozen=True)
class StepSeconds:
    seconds: float
    low: float
    high: float
    timed: bool  # the whole step was tried; otherwise a part of it, and the rest is from the calibration


def step_seconds(
    model: nn.Module,
    learning: Learning,
    training: TrainingSettings,
    calibration: Callable[[], Calibration],
    progress: Callable[[float], None] = lambda share: None,
) -> StepSeconds:
    """Of one whole training step; `calibration` is asked for only where a step is too long to be tried whole."""
    making, batches = sampled(learning)
    chosen = strata(batches)
    with _untouched(model):
        watched = [_Watched(model, learning, batch) for batch in chosen]
        quick = []
        for done, one in enumerate(watched, start=1):
            quick.append(one.whole_seconds(training.accumulate))
            progress(done / len(watched))
        beside = making + _optimiser_seconds(model, training) + LOOP_SECONDS
        if all(seconds is not None for seconds in quick):
            whole = statistics.fmean(seconds for seconds in quick if seconds is not None) + beside
            return StepSeconds(whole, whole * (1 - MODEL_ERROR), whole * (1 + MODEL_ERROR), timed=True)
        known = calibration()
        correction = watched[len(watched) // 2].correction(known)
        priced = statistics.fmean(one.priced(training.accumulate, known) for one in watched) * correction
    low, high = (factor / known.now for factor in known.range)
    return StepSeconds(priced + beside, priced * low + beside, priced * high + beside, timed=False)


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
    return statistics.median(times[1:])


# --------------------------------------------------------------------------- a batch, watched in pieces


class _Watched:
    """A batch of which pieces are rehearsed and timed; of long rows, shorter ones (`LONG`)."""

    def __init__(self, model: nn.Module, learning: Learning, batch: Batch) -> None:
        self.rows = rows_of(batch)
        self._model, self._learning, self._batch = model, learning, batch
        self._cuts, self._lengths, self._length = [batch], [1.0], 1.0
        if isinstance(batch, TokenBatch) and batch.inputs.shape[1] >= LONG:
            self._length = float(batch.inputs.shape[1])
            self._lengths = [float(int(self._length * share)) for share in SHARES]
            self._cuts = [shortened(batch, int(length)) for length in self._lengths]
        self._pairs: dict[int, tuple[Rehearsed, Rehearsed]] = {}

    # ---- rehearsed

    def peak_bytes(self, rows: int) -> float:
        with _untouched(self._model):
            return self._whole([self._rehearsed(cut, rows).peak_bytes for cut in self._cuts])

    @property
    def length(self) -> int:
        """Positions of a long row; 0 for others."""
        return int(self._length) if len(self._cuts) > 1 else 0

    def bytes_of_length(self, length: int) -> float:
        """Of one row."""
        with _untouched(self._model):
            return extrapolated(self._lengths, [self._rehearsed(cut, 1).peak_bytes for cut in self._cuts], length)

    def rehearse_few(self) -> None:
        """What any number of rows is scaled from."""
        for cut in self._cuts:
            self._pair(cut)

    def priced(self, accumulate: int, calibration: Calibration) -> float:
        pieces = min(accumulate, self.rows)
        rows = -(-self.rows // pieces)
        return pieces * self._whole([calibration.seconds(self._rehearsed(cut, rows).operations) for cut in self._cuts])

    def _whole(self, values: list[float]) -> float:
        """A row's value, from those of its cuts."""
        return values[0] if len(values) == 1 else extrapolated(self._lengths, values, self._length)

    def _rehearsed(self, cut: Batch, rows: int) -> Rehearsed:
        """The step on so many rows: every number in it grows in a line with them."""
        small, large = two_pieces(cut)
        a, b = rows_of(small), rows_of(large)
        pair = self._pair(cut)
        if rows <= b or pair[1].seconds * rows / b < QUICK:
            return self._rehearse(piece_of(cut, rows))
        return scaled(*pair, (rows - a) / (b - a)) or self._rehearse(piece_of(cut, rows))

    def _pair(self, cut: Batch) -> tuple[Rehearsed, Rehearsed]:
        if id(cut) not in self._pairs:
            small, large = two_pieces(cut)
            self._step(small)  # whatever is made once, such as tables of positions, is not part of a step
            self._pairs[id(cut)] = self._rehearse(small), self._rehearse(large)
        return self._pairs[id(cut)]

    def _rehearse(self, piece: Batch) -> Rehearsed:
        return rehearse(lambda: self._step(piece), self._model)

    # ---- timed

    def whole_seconds(self, accumulate: int) -> float | None:
        """Seconds of the whole batch, timed; None where that would not be quick."""
        pieces = min(accumulate, self.rows)
        rows = -(-self.rows // pieces)
        if not self._is_quick(rows):
            return None
        return pieces * self._timed(piece_of(self._batch, rows))

    def _is_quick(self, rows: int) -> bool:
        """So many whole rows; long ones take at least as much for each position as their longest cut."""
        if len(self._cuts) == 1:
            return rows_of(self._largest_quick()) >= rows
        return self._seconds(piece_of(self._cuts[-1], rows)) / SHARES[-1] <= QUICK

    def correction(self, calibration: Calibration) -> float:
        """By how much a piece takes longer than the sum of its operations."""
        piece = self._largest_quick()
        return self._timed(piece) / calibration.seconds(self._rehearse(piece).operations)

    def _largest_quick(self) -> Batch:
        """The largest piece that is not expected to take longer than `QUICK`; at least the least one."""
        for cut in reversed(self._cuts):
            small = two_pieces(cut)[0]
            seconds = self._seconds(small) / rows_of(small)
            rows = min(self.rows, int(QUICK / seconds))
            if rows >= 1:
                return piece_of(cut, rows)
        return piece_of(self._cuts[0], 1)

    def _seconds(self, piece: Batch) -> float:
        begun = time.perf_counter()
        self._step(piece)
        once = time.perf_counter() - begun
        if once > QUICK:
            return once
        begun = time.perf_counter()
        self._step(piece)
        return time.perf_counter() - begun

    def _timed(self, piece: Batch) -> float:
        return seconds_of(lambda: self._step(piece), least=0.0)

    def _step(self, piece: Batch) -> None:
        self._model.zero_grad(set_to_none=True)
        self._learning.objective(self._model, piece, None).total.backward()  # type: ignore[no-untyped-call]


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


def _doubled(start: int, end: int) -> Iterator[int]:
    while start < end:
        yield start
        start *= 2


@contextlib.contextmanager
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
        with torch.no_grad():
            for name, value in model.named_buffers():
                value.copy_(buffers[name])
