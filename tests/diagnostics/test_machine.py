"""The calibration of a machine: how its tables are read, what it is made of, and which files are taken."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqlab.core.errors import UsageError
from seqlab.diagnostics import machine
from seqlab.diagnostics.machine import (
    KINDS,
    MODEL_ERROR,
    PROBES_KEPT,
    Calibration,
    Table,
    calibrate,
    calibration_file,
    calibration_of,
    machine_identity,
    read_calibration,
    seconds_of,
)
from seqlab.diagnostics.rehearsal import Operation

SHORT, CHAIN, MIXED = 1e-6, 0.5, 2.0  # seconds that the injected timer gives: an operation, the chain, the probe


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A timer that takes no time, and small sizes; what was asked for, in order."""
    asked: list[str] = []

    def instant(run: Callable[[], Any], least: float = 1e-3, repetitions: int = 3) -> float:
        run()
        asked.append("probe" if repetitions == 5 else "chain" if least > 1e-3 else "operation")
        return {"probe": MIXED, "chain": CHAIN, "operation": SHORT}[asked[-1]]

    monkeypatch.setattr(machine, "seconds_of", instant)
    for name in ("ROWS", "INNER", "COLUMNS", "SMALL", "LENGTHS", "LSTM_ROWS", "LSTM_WIDTHS"):
        monkeypatch.setattr(machine, name, (4, 8))
    monkeypatch.setattr(machine, "NUMBERS", (256, 1024, 4096))
    return asked


@pytest.fixture
def own_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def flat(**seconds: float) -> dict[str, Table]:
    """Tables of one point at size 1, so that everything beyond grows in proportion."""
    return {name: Table(((1.0,),) * axes, (seconds.get(name, 1.0),)) for name, axes in KINDS.items()}


def calibration(**changes: Any) -> Calibration:
    return dataclasses.replace(Calibration(machine_identity(), flat(), 0.0, 1.0), **changes)


# --------------------------------------------------------------------------- tables

AXES = ((1.0, 4.0, 64.0), (2.0, 32.0))
GRID = Table(AXES, (1.0, 3.0, 2.0, 5.0, 7.0, 60.0))


def test_at_its_crossings_a_table_gives_what_was_measured() -> None:
    for place, seconds in zip(itertools.product(*AXES), GRID.seconds, strict=True):
        assert GRID.at(*place) == pytest.approx(seconds)


def test_between_two_crossings_logarithms_lie_on_a_line() -> None:
    assert GRID.at(2, 2) == pytest.approx(math.sqrt(1 * 2))  # half way from 1 to 4
    assert GRID.at(4, 8) == pytest.approx(math.sqrt(2 * 5))
    assert GRID.at(16, 8) == pytest.approx((2 * 5 * 7 * 60) ** 0.25)


@given(st.floats(0.1, 1000), st.floats(0.1, 1000), st.floats(1, 10))
def test_more_work_never_takes_less_time(x: float, y: float, factor: float) -> None:
    assert GRID.at(x * factor, y) >= GRID.at(x, y) * (1 - 1e-12)
    assert GRID.at(x, y * factor) >= GRID.at(x, y) * (1 - 1e-12)


def test_beyond_its_grid_seconds_grow_in_proportion_and_below_it_not_at_all() -> None:
    assert GRID.at(128, 32) == pytest.approx(2 * 60)
    assert GRID.at(128, 320) == pytest.approx(20 * 60)
    assert GRID.at(0.01, 1) == GRID.at(0, 0) == pytest.approx(1)
    assert Table(((2.0,),), (3.0,)).at(8) == pytest.approx(12)


# --------------------------------------------------------------------------- operations


def price(op: Operation, **seconds: float) -> float:
    return calibration(tables=flat(**seconds), overhead=0.25).price(op) - 0.25


def test_each_kind_of_operation_is_read_from_its_table() -> None:
    assert price(Operation("product", (1, 2, 3, 4), "mm"), product=5) == pytest.approx(5 * 24)
    assert price(Operation("product", (64, 2, 3, 4), "bmm"), products=7) == pytest.approx(7 * 24)
    assert price(Operation("product", (128, 2, 3, 4), "bmm"), products=7) == pytest.approx(2 * 7 * 24)
    assert price(Operation("product", (1, 0, 3, 4), "mm"), look=0.5) == pytest.approx(0.5)
    assert price(Operation("look", (), "view"), look=0.5) == pytest.approx(0.5)
    assert price(Operation("move", (10,), "add"), move=3) == pytest.approx(30)
    assert price(Operation("draw", (10,), "bernoulli_"), draw=3) == pytest.approx(30)
    for name, table in (("tanh_backward", "tanh"), ("gelu", "gelu"), ("sigmoid_", "sigmoid"), ("log", "exp")):
        assert price(Operation("squash", (10,), name), **{table: 9}) == pytest.approx(90)


def test_some_products_at_once_lie_between_one_and_many() -> None:
    def at(b: float) -> float:
        return price(Operation("product", (b, 2, 3, 4), "bmm"), product=1, products=64)

    assert at(1) == pytest.approx(24)
    assert at(32.5) == pytest.approx(24 * (1 + 64) / 2)
    assert at(63.999) == pytest.approx(at(64), rel=1e-3)


def test_attention_grows_with_the_square_of_the_length_beyond_its_table() -> None:
    def at(b: float, T: float, S: float, d: float) -> float:
        return price(Operation("attention", (b, T, S, d)), attention=2)

    longest = machine.LENGTHS[-1]
    assert at(3, 100, 400, 64) == pytest.approx(3 * 64 / machine.HEAD_WIDTH * 2 * 200)
    assert at(1, 4 * longest, 4 * longest, 32) == pytest.approx(16 * at(1, longest, longest, 32))


def test_an_lstm_grows_with_its_steps_and_its_input() -> None:
    found = price(Operation("lstm", (32, 5, 30, 10)), lstm=2)
    assert found == pytest.approx(32 / machine.LSTM_STEPS * (30 + 10) / 20 * 2 * 5 * 10)


def test_a_step_is_the_sum_of_its_operations_and_their_calls() -> None:
    step = [Operation("move", (10,), "add"), Operation("look", (), "view")]
    assert calibration(overhead=0.25).seconds(step) == pytest.approx(10 + 1 + 2 * 0.25)


# --------------------------------------------------------------------------- how sure


@given(st.lists(st.floats(1e-3, 1e3), max_size=60))
def test_the_range_contains_the_prediction_and_every_speed_that_was_seen(probes: list[float]) -> None:
    low, high = calibration(probes=tuple(probes)).range
    assert low <= 1 - MODEL_ERROR < 1 < 1 + MODEL_ERROR <= high
    assert all(low < probe < high for probe in probes)


def test_now_is_the_last_probe() -> None:
    assert calibration().now == 1
    assert calibration(probe=2.0, probes=(9.0, 3.0)).now == 1.5


# --------------------------------------------------------------------------- made


def test_seconds_of_is_the_median_of_repetitions_of_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock of our own: warming takes 7 s, trying 0.25 s; then each repetition its own time, two calls each."""
    durations = iter([7.0, 0.25, 1.0, 1.0, 3.0, 3.0, 2.0, 2.0])
    now = [0.0]
    monkeypatch.setattr(machine.time, "perf_counter", lambda: now[0])

    def run() -> None:
        now[0] += next(durations)

    assert seconds_of(run, least=0.5, repetitions=3) == 2.0
    assert next(durations, None) is None


def test_a_call_that_lasts_long_enough_is_not_timed_once_more_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    durations = iter([7.0, 4.0, 1.0, 2.0])
    now = [0.0]
    monkeypatch.setattr(machine.time, "perf_counter", lambda: now[0])

    def run() -> None:
        now[0] += next(durations)

    assert seconds_of(run, least=0.5, repetitions=3) == 2.0
    assert next(durations, None) is None


def test_a_calibration_knows_every_kind_and_is_read_back_equal(timer: list[str], own_cache_folder: Path) -> None:
    shares: list[float] = []
    made = calibration_of(progress=shares.append)
    assert made.fresh
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert {name: len(table.axes) for name, table in made.tables.items()} == KINDS
    assert timer.count("probe") == timer.count("chain") == 1
    back = read_calibration(calibration_file())
    assert back == made
    assert not back.fresh


def test_overhead_is_what_a_call_takes_beside_its_work(timer: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operation of the chain is a millionth of a second's work here; the chain takes half a second."""
    rehearsed = []
    rehearse = machine.rehearse
    monkeypatch.setattr(machine, "rehearse", lambda *given: rehearsed.append(rehearse(*given)) or rehearsed[-1])
    calls = calibrate().overhead
    assert calls == pytest.approx(CHAIN / len(rehearsed[0].operations) - SHORT, rel=1e-6)


def test_making_one_moves_no_random_stream(timer: list[str]) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    calibrate()
    assert torch.equal(torch.get_rng_state(), before)


def test_it_is_made_once_and_then_probed(timer: list[str], own_cache_folder: Path) -> None:
    calibration_of()
    timer.clear()
    again = calibration_of()
    assert timer == ["probe"]
    assert again.probes == (MIXED,)
    assert not again.fresh
    assert calibration_of().probes == (MIXED, MIXED)
    assert calibration_of(anew=True).fresh
    assert timer.count("chain") == 1


def test_only_the_latest_probes_are_kept(timer: list[str], own_cache_folder: Path) -> None:
    made = calibration_of()
    machine._keep(dataclasses.replace(made, probes=tuple(map(float, range(1, PROBES_KEPT + 1)))), calibration_file())
    found = calibration_of()
    assert len(found.probes) == PROBES_KEPT == 50
    assert found.probes[0] == 2.0
    assert found.probes[-1] == MIXED
    assert read_calibration(calibration_file()).probes == found.probes


def test_another_number_of_threads_is_another_machine(timer: list[str], own_cache_folder: Path) -> None:
    one = calibration_file()
    calibration_of()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        assert calibration_file() != one
        assert not calibration_file().exists()
        with pytest.raises(UsageError, match=rf"another machine \(threads {threads}, here {threads + 1}\)"):
            calibration_of(one)
        assert calibration_of().fresh
    finally:
        torch.set_num_threads(threads)
    assert len(list((own_cache_folder / "calibration").iterdir())) == 2


def test_a_cache_that_cannot_be_written_is_survived(timer: list[str], own_cache_folder: Path) -> None:
    own_cache_folder.write_text("a file where a folder should be")
    assert calibration_of().fresh
    assert calibration_of().fresh


# --------------------------------------------------------------------------- files that are not taken


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    file = tmp_path / "kept.json"
    machine._keep(calibration(probes=(1.5,)), file)
    assert read_calibration(file) == calibration(probes=(1.5,))
    return file


def changed(file: Path, **changes: Any) -> Path:
    record = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in record.items() if value is not ...}))
    return file


def with_table(file: Path, name: str, table: Any) -> Path:
    return changed(file, tables=json.loads(file.read_text())["tables"] | {name: table})


def refused(file: Path) -> str:
    with pytest.raises(UsageError) as caught:
        calibration_of(file)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(str(file))
    assert line.endswith("make one with 'seqlab cost --calibrate'")
    return line


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"7", b"null", b"\xff\xfe", b'{"tables": []}', b"{}"])
def test_a_file_that_is_something_else(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "torn.json"
    file.write_bytes(content)
    assert "holds no calibration (" in refused(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "holds no calibration (" in refused(tmp_path / "none.json")
    assert "holds no calibration (" in refused(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("probe", value) for value in (0.0, -1.0, math.nan, math.inf)),
        *(("probes", value) for value in ([0.0], [math.nan], [1.0, -1.0])),
        *(("overhead", value) for value in (math.nan, -1.0, math.inf)),
        *(("format", value) for value in (0, 2, None)),
    ],
)
def test_a_number_that_cannot_be_computed_with(name: str, value: Any, kept: Path) -> None:
    assert "holds a damaged or older calibration" in refused(changed(kept, **{name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [("probe", None), ("probes", 3), ("probes", ["x"]), ("overhead", {}), ("machine", 3), ("machine", ...)],
)
def test_a_value_of_another_type(name: str, value: Any, kept: Path) -> None:
    assert "holds no calibration (" in refused(changed(kept, **{name: value}))


@pytest.mark.parametrize(
    "table",
    [
        {"axes": [[1.0, 2.0]], "seconds": [1.0]},
        {"axes": [[1.0]], "seconds": [0.0]},
        {"axes": [[1.0]], "seconds": [math.nan]},
        {"axes": [[2.0, 1.0]], "seconds": [1.0, 1.0]},
        {"axes": [[0.0, 1.0]], "seconds": [1.0, 1.0]},
        {"axes": [[1.0], [1.0]], "seconds": [1.0]},
        {"axes": [[]], "seconds": []},
    ],
)
def test_a_damaged_table(table: Any, kept: Path) -> None:
    assert "holds a damaged or older calibration" in refused(with_table(kept, "move", table))


def test_a_table_too_few(kept: Path) -> None:
    tables = json.loads(kept.read_text())["tables"]
    del tables["lstm"]
    assert "holds a damaged or older calibration" in refused(changed(kept, tables=tables))


@pytest.mark.parametrize("name", ["processor", "system", "threads", "torch"])
def test_another_machine(name: str, kept: Path) -> None:
    here = machine_identity()
    line = refused(changed(kept, machine=here | {name: "another"}))
    assert f"was calibrated on another machine ({name} another, here {here[name]})" in line
    del here[name]
    assert f"({name} None, here " in refused(changed(kept, machine=here))


def test_a_torn_file_in_the_cache_is_made_anew(timer: list[str], own_cache_folder: Path) -> None:
    calibration_of()
    calibration_file().write_text(calibration_file().read_text()[:100])
    assert calibration_of().fresh
    assert not calibration_of().fresh
