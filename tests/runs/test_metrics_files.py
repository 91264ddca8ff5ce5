"""The metrics as a table and as events: the same numbers as in metrics.jsonl, before and after a resume."""

import csv
import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest

import seqlab
from seqlab.core.errors import SeqlabError, UsageError
from seqlab.runs.folder import RunFolder
from seqlab.runs.metrics_files import Events, MetricsTable, numbers_of
from seqlab.runs.session import Session


class Crash(BaseException):
    """Stands for the process dying on the spot."""


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def assert_table_is_the_lines(folder: Path) -> None:
    lines = [line for line in RunFolder(folder).read_metrics() if not line.get("final")]
    rows = rows_of(folder)
    assert len(rows) == len(lines) > 1
    for row, line in zip(rows, lines, strict=True):
        assert {name: float(value) for name, value in row.items() if value} == numbers_of(line)


def test_the_table_has_every_number_of_every_line(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    seqlab.train_lm(small_text, out=tmp_path / "run", model="gru", tokenizer="char", watch_gradients=4, **tiny)
    assert_table_is_the_lines(tmp_path / "run")
    header = rows_of(tmp_path / "run")[0].keys()
    assert {"step", "train_nats_per_token", "validation_nats_per_token", "validation_bits_per_byte"} <= header
    assert "gradients.layers.0.growth" in header


def test_the_table_is_cut_back_with_the_lines(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was logged after the last checkpoint is logged again, once."""
    saved = Session.save

    def save(session: Session, position: Any) -> None:
        if position.step > 4:
            raise Crash
        saved(session, position)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "save", save)
        with pytest.raises(Crash):
            seqlab.train_lm(small_text, out=tmp_path / "run", model="gru", tokenizer="char", **tiny)
    assert [int(row["step"]) for row in rows_of(tmp_path / "run")] == [*range(1, 9)]
    (tmp_path / "run" / "metrics.csv").write_text("step,torn\n1,")  # whatever is there: it is never read
    seqlab.train_lm(out=tmp_path / "run", resume=True)
    assert [int(row["step"]) for row in rows_of(tmp_path / "run")] == [*range(1, 13)]
    assert_table_is_the_lines(tmp_path / "run")


def test_a_number_that_comes_late_has_a_column_of_its_own(tmp_path: Path) -> None:
    table, lines = MetricsTable(tmp_path / "t.csv"), list[dict[str, Any]]()
    for line in ({"step": 1, "a": 0.1}, {"step": 2, "a": math.pi}, {"step": 3, "b": {"c": [1, 2.5]}}, {"step": 4}):
        lines.append(line)
        table.add(line, lambda: lines)
    table.add({"step": 4, "final": True, "x": 1}, lambda: lines)
    written = (tmp_path / "t.csv").read_text()
    assert written == f"step,a,b.c.0,b.c.1\n1,0.1,,\n2,{math.pi!r},,\n3,,1,2.5\n4,,,\n"


def test_numbers_are_no_words_and_no_truths() -> None:
    words = {"final": True, "name": "x", "none": None}
    line = {"step": 1, **words, "list": [{"n": 1.5, "s": "y"}], "deep": {"a": {"b": 2}}}
    assert numbers_of(line) == {"step": 1, "list.0.n": 1.5, "deep.a.b": 2}


def test_without_the_package_nothing_is_trained(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'seqlab\[tensorboard\]'"):
        seqlab.train_lm(small_text, out=tmp_path / "run", tensorboard=True, **tiny)
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="needs the package tensorboard"):
        Events(tmp_path, 0)


def read_events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    return {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_tensorboard_reads_what_the_lines_say(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    """Also after a resume that was told so only then."""
    how = tiny | {"model": "gru", "tokenizer": "char", "tensorboard": True}
    run = seqlab.train_lm(small_text, out=tmp_path / "run", **how)
    plain = seqlab.train_lm(small_text, out=tmp_path / "plain", **how | {"tensorboard": False})
    assert plain.files.identity == run.files.identity, "it changes no bit of what is computed"
    assert not (tmp_path / "plain" / "tensorboard").exists()
    seqlab.train_lm(out=tmp_path / "run", resume=True, budget="16steps")
    events = read_events(tmp_path / "run")
    for name in ("train_nats_per_token", "validation_nats_per_token"):
        expected = [(line["step"], line[name]) for line in run.metrics if name in line and not line.get("final")]
        assert events[name] == [(step, pytest.approx(value, rel=1e-6)) for step, value in expected]
    assert events["final/validation.bits_per_byte"][-1][0] == 16


def test_events_on_a_full_disk_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("a file where the folder should be")
    with pytest.raises(SeqlabError, match="cannot write"):
        Events(tmp_path, 0)
