"""What a training will take: memory against what torch's allocator gave, seconds under clocks of our own."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.diagnostics.cost_cases import CASES, CLASSES, V
from tests.diagnostics.test_machine import calibration
from torch import nn

from seqlab.core.settings.training import TrainingSettings
from seqlab.core.types import LabelBatch, PaddedBatch, PairBatch, TokenBatch
from seqlab.diagnostics import forecast, pieces
from seqlab.diagnostics.forecast import (
    Memory,
    Rehearsal,
    can_recompute,
    extrapolated,
    memory_of,
    recomputing,
    rehearse_memory,
    step_seconds,
)
from seqlab.diagnostics.machine import MODEL_ERROR
from seqlab.models import build_lm
from seqlab.models.guided import GATES, Guide, GuidedLM
from seqlab.models.ngram import NGramLM
from seqlab.models.translator import Translator
from seqlab.training.objectives import Labels, Loss, NextToken, TargetTokens
from seqlab.training.plan import Learning

ROWS, LENGTH, SOURCE = 8, 12, 9
BESIDE = 0.5 + 0.25 + forecast.LOOP_SECONDS  # optimiser and making a batch, under the clocks of these tests
SETTINGS = TrainingSettings(budget="10steps", learning_rate=0.01, weight_decay=0.1, batch=ROWS)


@dataclass
class Repeated:
    """The same batches in turn."""

    batches: list[Any]
    steps_per_epoch: int = 100

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> Any:
        return self.batches[step % len(self.batches)]

    @property
    def count_per_step(self) -> int:
        count: int = self.batches[0].count
        return count


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(0, V, shape)


def tokens(rows: int, length: int) -> TokenBatch:
    return TokenBatch(ids(rows, length), ids(rows, length), fresh=True)


def learning_of(model: nn.Module, rows: int = ROWS) -> Learning:
    """Of full rows: no padding."""
    if isinstance(model, Translator):
        read = PaddedBatch(ids(rows, SOURCE), torch.full((rows,), SOURCE))
        pairs = PairBatch(read, ids(rows, LENGTH), ids(rows, LENGTH), rows * LENGTH)
        return Learning(Repeated([pairs]), TargetTokens())
    if hasattr(model, "classes"):
        texts = PaddedBatch(ids(rows, LENGTH), torch.full((rows,), LENGTH))
        return Learning(Repeated([LabelBatch(texts, torch.randint(0, CLASSES, (rows,)))]), Labels())
    return Learning(Repeated([tokens(rows, LENGTH)]), NextToken(carry=False))


def made(name: str) -> Any:
    torch.manual_seed(0)
    return CASES[name]()


# --------------------------------------------------------------------------- peaks


def allocated_peak(model: nn.Module, learning: Learning, accumulate: int, file: Path) -> int:
    """The largest sum of what torch's allocator gave in one step, its gradients included."""

    def step() -> None:
        for piece in learning.batches(0).cut(accumulate):
            learning.objective(model, piece, None).total.backward()  # type: ignore[no-untyped-call]

    model.train()
    step()
    model.zero_grad(set_to_none=True)
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    model.zero_grad(set_to_none=True)
    profile.export_chrome_trace(str(file))
    events = json.loads(file.read_text())["traceEvents"]
    changes = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event["name"] == "[memory]")
    return max(itertools.accumulate(size for _, size in changes))


@pytest.mark.parametrize("accumulate", [1, 2, 8])
@pytest.mark.parametrize(
    "name",
    [
        *("lm gru", "lm transformer, dropout", "lm transformer, recompute", "lm attentive-rnn, window"),
        *("classify transformer", "classify gru", "translate transformer", "translate gru, additive"),
    ],
)
def test_a_step_holds_what_torch_s_allocator_gives(name: str, accumulate: int, tmp_path: Path) -> None:
    """In pieces, the gradients of earlier ones are counted whole, though each is added to as soon as it is there."""
    model = made(name)
    learning = learning_of(model)
    rehearsal = rehearse_memory(model, learning)
    real = allocated_peak(model, learning, accumulate, tmp_path / "trace.json")
    counted_twice = rehearsal.gradients if accumulate > 1 else 0
    assert 0.98 * real <= rehearsal.tensor_bytes(accumulate) <= 1.02 * real + counted_twice


@pytest.mark.parametrize("name", ["lm transformer, dropout", "classify transformer", "translate gru"])
def test_pieces_that_are_not_all_as_large(name: str, tmp_path: Path) -> None:
    model = made(name)
    for rows, accumulate in ((9, 2), (7, 3), (15, 2)):
        learning = learning_of(model, rows)
        rehearsal = rehearse_memory(model, learning)
        real = allocated_peak(model, learning, accumulate, tmp_path / "trace.json")
        assert 0.98 * real <= rehearsal.tensor_bytes(accumulate) <= 1.02 * real + rehearsal.gradients


def test_a_step_that_is_scaled_up_holds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 2 and 4 rows, where 8 would take too long to try, and 8 themselves."""
    for name in ("lm transformer", "classify rnn", "translate gru"):
        model = made(name)
        learning = learning_of(model)
        tried = rehearse_memory(model, learning).tensor_bytes(1)
        with monkeypatch.context() as patch:
            patch.setattr(forecast, "QUICK", 0.0)
            seen = rows_seen(patch)
            assert rehearse_memory(model, learning).tensor_bytes(1) == pytest.approx(tried, abs=8)
        assert max(seen) == pieces.SOME < ROWS


def rows_seen(patch: pytest.MonkeyPatch) -> list[int]:
    """Rows of every piece that is run."""
    seen: list[int] = []
    step = forecast._Watched._step

    def seeing(watched: Any, piece: Any) -> None:
        seen.append(len(piece.labels if isinstance(piece, LabelBatch) else piece.inputs))  # cutting would be watched
        step(watched, piece)

    patch.setattr(forecast._Watched, "_step", seeing)
    return seen


def test_long_rows_are_told_from_shorter_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention that drops weights holds T × T of them: a, bT and cT² from T/16, T/8 and T/4."""
    model = made("lm transformer, dropout")
    learning = Learning(Repeated([tokens(4, 256)]), NextToken(carry=False))
    whole = rehearse_memory(model, learning)
    assert (whole.of_length, whole.length) == (None, 0)
    monkeypatch.setattr(forecast, "LONG", 256)
    told = rehearse_memory(model, learning)
    assert told.length == 256
    assert told.of_length is not None
    for rows in (1, 2, 4):
        assert told.at(rows) == pytest.approx(whole.at(rows), rel=0.05)
    one = Learning(Repeated([tokens(4, 128)]), NextToken(carry=False))
    assert told.of_length(128) == pytest.approx(rehearse_memory(model, one).at(1), rel=0.05)


def test_the_largest_of_the_sampled_batches_counts() -> None:
    model = made("classify gru")
    small, large = (learning_of(model, rows).batches(0) for rows in (3, 8))
    mixed = Learning(Repeated([small, small, large, small]), Labels())
    assert rehearse_memory(model, mixed).rows == 8
    alone = rehearse_memory(model, Learning(Repeated([large]), Labels()))
    assert rehearse_memory(model, mixed).tensor_bytes(1) == alone.tensor_bytes(1)
    assert rehearse_memory(model, mixed).scatter == alone.scatter == forecast.SCATTER
    assert rehearse_memory(model, mixed).holes == forecast.HOLES > alone.holes == 0


def test_reading_is_watched_for_its_first_calls() -> None:
    model, calls = made("lm gru"), []

    def read() -> None:
        with torch.no_grad():
            for _ in range(9):
                calls.append(model(ids(1, 4)))

    found = rehearse_memory(model, learning_of(model), read)
    assert len(calls) == forecast.READ_CALLS_IN_PIECES
    kept = forecast.READ_CALLS_IN_PIECES * 4 * V * 4  # logits
    assert found.reading >= forecast.SCATTER_PIECES * kept
    assert rehearse_memory(model, learning_of(model)).reading == 0


# --------------------------------------------------------------------------- pieces and lengths

LINE = Rehearsal(at=lambda rows: 10.0 * rows, rows=12, gradients=5)


def test_bytes_of_a_step_in_pieces() -> None:
    """The rows of the largest piece; from the second piece on the first one's gradients are there."""
    assert [LINE.step_bytes(pieces) for pieces in (1, 2, 3, 5, 12, 99)] == [120, 65, 45, 35, 15, 15]
    assert replace(LINE, rows=1).step_bytes(4) == 10
    scattered = replace(LINE, scatter=1.5, scatter_pieces=3.0)
    assert [scattered.step_bytes(pieces) for pieces in (1, 2)] == [180, 195]


def test_a_batch_is_held_as_a_whole_while_its_pieces_are_learnt_from() -> None:
    assert [replace(LINE, batch=1000).step_bytes(pieces) for pieces in (1, 2, 12)] == [1120, 1065, 1015]


def test_the_holes_of_uneven_batches_are_bounded() -> None:
    uneven = replace(LINE, holes=1.5)
    assert [uneven.step_bytes(pieces) for pieces in (1, 2)] == [120 + 180, 65 + 97]
    large = Rehearsal(at=lambda rows: 1e9 * rows, rows=1, gradients=0, holes=1.5)
    assert large.step_bytes(1) == 1_000_000_000 + forecast.MOST_HOLES


def test_the_rows_of_a_guide_are_part_of_a_batch() -> None:
    network = build_lm("gru", vocab_size=V + GATES, width=8, depth=1)
    model = GuidedLM(network, Guide(NGramLM.fit(np.arange(60) % V, V, 2)))
    batch, rows = tokens(ROWS, LENGTH), torch.zeros(ROWS, LENGTH, V)
    alone, led = (
        rehearse_memory(model, Learning(Repeated([one]), NextToken(carry=False)))
        for one in (batch, replace(batch, guide=rows))
    )
    assert led.batch - alone.batch == rows.nbytes
    assert alone.batch == batch.inputs.nbytes + batch.targets.nbytes


def test_the_nearest_number_of_pieces() -> None:
    assert [LINE.nearest_fit(1, spare) for spare in (120, 119, 65, 64, 35, 25, 15, 14)] == [1, 2, 2, 4, 4, 8, 12, None]
    assert LINE.nearest_fit(3, 120) == 3
    assert LINE.nearest_fit(3, 26) == 6
    assert LINE.nearest_fit(20, 15) == 12


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0, 500))
def test_a_nearest_fit_fits(rows: int, accumulate: int, spare: float) -> None:
    some = replace(LINE, rows=rows)
    pieces = some.nearest_fit(accumulate, spare)
    if pieces is None:
        assert some.step_bytes(rows) > spare
    else:
        assert some.step_bytes(pieces) <= spare


def test_the_nearest_length() -> None:
    long = replace(LINE, of_length=lambda length: float(length), length=4096)
    assert [long.nearest_length(spare) for spare in (1e6, 2053, 2052, 1029, 6, 5)] == [2048, 2048, 1024, 1024, 1, None]
    assert LINE.nearest_length(1e6) is None


# --------------------------------------------------------------------------- memory


def test_memory_by_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "resident_bytes", lambda: 1000)
    model = nn.Linear(6, 4)
    weights = (6 * 4 + 4) * 4
    rehearsal = replace(LINE, reading=7)
    found = memory_of(model, SETTINGS, rehearsal, later=30)
    assert found == Memory(process=1000, weights=weights, moments=2 * weights, step=120, reading=37)
    assert found.needed == 2 * weights + max(120, found.saving, 37)
    assert found.peak == 1000 + found.needed

    def with_settings(**changes: Any) -> Memory:
        return memory_of(model, replace(SETTINGS, **changes), rehearsal, later=30)

    assert with_settings(accumulate=2).step == 65
    assert with_settings(optimiser="sgd").moments == 0
    assert with_settings(optimiser="momentum", momentum=0.9).moments == weights
    assert with_settings(ema=0.9).moments == 3 * weights
    assert with_settings(budget="5s").step == 120 + weights  # a step is timed on a copy
    model.bias.requires_grad_(False)
    assert with_settings().moments == 2 * 6 * 4 * 4
    assert with_settings().weights == weights


def test_the_worst_moment_is_one_of_three() -> None:
    base = Memory(process=0, weights=1, moments=2, step=0, reading=0)
    assert replace(base, step=10**6).needed == 2 + 10**6
    assert replace(base, reading=10**6).needed == 2 + 10**6
    assert base.needed == 2 + base.saving
    assert base.saving >= base.weights + base.moments  # a checkpoint holds them at least once


# --------------------------------------------------------------------------- extrapolation


@given(st.tuples(*[st.floats(0, 50)] * 3), st.floats(1, 10_000))
def test_polynomials_are_found_exactly(weights: tuple[float, float, float], to: float) -> None:
    a, b, c = weights

    def cost(x: float) -> float:
        return 1 + a + b * x + c * x * x

    at = (8.0, 16.0, 32.0)
    assert extrapolated(at, [cost(x) for x in at], to) == pytest.approx(cost(to), rel=1e-3)


def test_what_bends_down_is_never_told_below_a_line() -> None:
    """√x: no polynomial with weights ≥ 0 goes through it; what is told lies above it and grows."""
    at, root = (64.0, 128.0, 256.0), [8.0, 11.3, 16.0]
    assert 32 <= extrapolated(at, root, 1024) <= 64
    assert extrapolated(at, root, 2048) > extrapolated(at, root, 1024)
    assert extrapolated((1, 2, 4), (7, 7, 7), 100) == pytest.approx(7)


# --------------------------------------------------------------------------- which batches stand for all


def test_batches_are_sampled_over_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    now = iter(range(100))
    monkeypatch.setattr(pieces.time, "perf_counter", lambda: float(next(now)))

    class Numbered(Repeated):
        def __call__(self, step: int, rank: int = 0, world: int = 1) -> Any:
            asked.append(step)
            return super().__call__(step)

    model = made("classify gru")
    some = learning_of(model).batches(0)
    making, batches = pieces.sampled(Learning(Numbered([some], 1000), Labels()))
    assert len(batches) == pieces.SAMPLED == len(set(asked[1:]))
    assert (min(asked), max(asked)) == (0, 999)
    assert making == pytest.approx(1 / pieces.SAMPLED)  # our clock moves on by a second between two looks
    asked.clear()
    pieces.sampled(Learning(Numbered([some], 3), Labels()))
    assert sorted(set(asked)) == [0, 1, 2]
    asked.clear()
    making, batches = pieces.sampled(Learning(Numbered([tokens(4, 5)], 1000), NextToken(carry=False)))
    assert len(batches) == 1  # all are of one size
    assert making == 1


def test_strata_are_quantiles_of_the_size() -> None:
    sized = [tokens(1, length) for length in (9, 2, 7, 1, 5, 3, 8, 4)]
    assert [batch.inputs.shape[1] for batch in pieces.strata(sized)] == [2, 4, 7, 9]
    assert [batch.inputs.shape[1] for batch in pieces.strata(sized[:3])] == [7]


# --------------------------------------------------------------------------- seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A row takes so many seconds; making a batch 0.25 s and the optimiser 0.5 s, always."""

    def set_clocks(row: float) -> None:
        monkeypatch.setattr(forecast, "_optimiser_seconds", lambda *_: 0.5)
        monkeypatch.setattr(forecast, "sampled", lambda learning: (0.25, pieces.sampled(learning)[1]))
        for name in ("_seconds", "_timed"):
            monkeypatch.setattr(forecast._Watched, name, lambda _, piece: row * pieces.rows_of(piece))

    return set_clocks


def test_a_quick_step_is_timed_whole_and_needs_no_calibration(clocks: Callable[..., None]) -> None:
    clocks(0.01)
    model = made("lm gru")
    whole = ROWS * 0.01 + BESIDE
    expected = (whole, whole * (1 - MODEL_ERROR), whole * (1 + MODEL_ERROR))
    for accumulate in (1, 2, 8):
        training = replace(SETTINGS, accumulate=accumulate)
        found = step_seconds(model, learning_of(model), training, lambda: pytest.fail("not needed"))
        assert found.timed
        assert (found.seconds, found.low, found.high) == pytest.approx(expected)


def test_long_rows_are_timed_whole_if_their_longest_cut_says_that_they_are_quick(clocks: Callable[..., None]) -> None:
    """A cut of a quarter takes 0.1 s here, or 0.4 s: the whole is expected to take four times that."""
    model = made("lm gru")
    long = Learning(Repeated([tokens(2, forecast.LONG)]), NextToken(carry=False))
    clocks(0.05)
    found = step_seconds(model, long, SETTINGS, lambda: pytest.fail("not needed"))
    assert (found.timed, found.seconds) == (True, pytest.approx(2 * 0.05 + BESIDE))
    clocks(0.2)
    known = calibration(probe=1.0, probes=())
    assert not step_seconds(model, long, SETTINGS, lambda: known).timed


def test_a_slow_step_is_told_from_a_piece_and_the_calibration(clocks: Callable[..., None]) -> None:
    """Every operation costs the same here, whatever its size; a piece takes what its rows take."""
    clocks(0.6)  # two rows are quick, four are not
    model, known = made("lm gru"), calibration(probe=1.0, probes=(2.0, 1.25))
    flat = {name: replace(table, seconds=(1e-9,)) for name, table in known.tables.items()}
    known = replace(known, tables=flat, overhead=1.0)
    found = step_seconds(model, learning_of(model), SETTINGS, lambda: known)
    assert not found.timed
    piece = 2 * 0.6  # so long for as many operations as the whole has
    assert found.seconds == pytest.approx(piece + BESIDE, rel=1e-3)
    assert found.low == pytest.approx(piece * (1 - MODEL_ERROR) / 1.25 + BESIDE, rel=1e-3)
    assert found.high == pytest.approx(piece * 2.0 * (1 + MODEL_ERROR) / 1.25 + BESIDE, rel=1e-3)
    in_pieces = step_seconds(model, learning_of(model), replace(SETTINGS, accumulate=2), lambda: known)
    assert in_pieces.seconds == pytest.approx(2 * piece + BESIDE, rel=1e-3)


# --------------------------------------------------------------------------- what is left alone


class Normed(nn.Module):
    """Keeps running means, and reads tokens as a language model does."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.out = nn.Embedding(V, 8), nn.BatchNorm1d(8), nn.Linear(8, V)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, None]:
        hidden = self.norm(self.table(x).flatten(0, 1))
        return self.out(self.drop(hidden)).unflatten(0, x.shape), None


@pytest.mark.parametrize("training", [True, False])
def test_the_model_and_the_random_stream_are_left_alone(training: bool) -> None:
    model = Normed().train(training)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(4)
    stream = torch.get_rng_state()
    learning = learning_of(model)
    torch.set_rng_state(stream)
    found = rehearse_memory(model, learning, lambda: learning.objective(model, learning.batches(0), None))
    found.step_bytes(1)
    step_seconds(model, learning, replace(SETTINGS, ema=0.9), calibration)
    assert torch.equal(torch.get_rng_state(), stream)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training is model.drop.training is training
    assert all(weight.grad is None for weight in model.parameters())


def test_a_step_that_fails_leaves_the_model_alone_too() -> None:
    model, calls = Normed().eval(), []

    def objective(model: Any, batch: Any, state: Any) -> Loss:
        calls.append(batch)
        if len(calls) == 3:
            raise MemoryError("no more")
        return NextToken(carry=False)(model, batch, state)

    with pytest.raises(MemoryError):
        rehearse_memory(model, Learning(Repeated([tokens(ROWS, 6)]), objective))
    assert not model.training
    assert int(model.norm.num_batches_tracked) == 0
    assert all(weight.grad is None for weight in model.parameters())


def test_recomputing_for_a_while() -> None:
    model = made("lm transformer")
    assert can_recompute(model)
    assert not can_recompute(made("lm gru"))
    learning = learning_of(model)
    plain = rehearse_memory(model, learning).tensor_bytes(1)
    with recomputing(model):
        assert rehearse_memory(model, learning).tensor_bytes(1) < plain
        with recomputing(model, on=False):
            assert rehearse_memory(model, learning).tensor_bytes(1) == plain
        assert all(block.recompute for block in model.blocks)
    assert not any(block.recompute for block in model.blocks)
