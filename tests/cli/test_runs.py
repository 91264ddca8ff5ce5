"""`seqlab runs list|show`: whatever lies below a folder, in one table."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Command
from tests.contracts.parity import Parity

import seqlab
from seqlab.core.errors import DataError
from seqlab.runs.folder import RunFolder
from seqlab.runs.session import Session
from seqlab.runs.train import train
from seqlab.workflows.overview import list_runs, show_run


class Crash(BaseException):
    """Stands for the process dying on the spot."""


@pytest.fixture
def several(small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run, a fitted one, one that died, one of another kind, one that is damaged, and other files."""
    place = tmp_path / "runs"
    seqlab.train_lm(small_text, out=place / "a-gru", model="gru", **tiny)
    seqlab.train_lm(small_text, out=place / "deep" / "b-counts", model="ngram", tokenizer="char")
    with monkeypatch.context() as patch:
        patch.setattr(Session, "after_step", lambda _, position: _die(position.step == 5))
        with pytest.raises(Crash):
            seqlab.train_lm(small_text, out=place / "c-half", model="rnn", **tiny)
    train(Parity(), Parity().trial(tmp_path), out=place / "d-parity", threads=1)
    shutil.copytree(place / "a-gru", place / "e-damaged")
    (place / "e-damaged" / "metrics.jsonl").write_text('{"step": 1}\n')
    (place / "notes").mkdir()
    (place / "notes" / "settings.toml").write_text("[tool]\nname = 'not a run'\n")
    return place


def _die(now: bool) -> None:
    if now:
        raise Crash


def test_every_run_has_its_row(several: Path) -> None:
    rows = {Path(facts.run).name: facts for facts in list_runs(several)}
    assert sorted(rows) == ["a-gru", "b-counts", "c-half", "d-parity", "e-damaged"]
    gru, counts, half, parity, damaged = (rows[name] for name in sorted(rows))
    run = seqlab.load(several / "a-gru")
    assert (gru.kind, gru.model, gru.text, gru.state) == ("lm", "gru", "small.txt", "finished")
    assert (gru.step, gru.steps) == (12, 12)
    assert (gru.figure, gru.figure_label) == (run.final["test"]["bits_per_byte"], "bits/byte (test)")
    assert (counts.model, counts.state, counts.steps) == ("ngram", "fitted", None)
    assert (half.state, half.steps, half.figure_label) == ("interrupted", 12, "validation bits per byte")
    assert (parity.kind, parity.figure_label) == ("parity", "nats/string")
    assert damaged.state.startswith("damaged: ")
    with RunFolder(several / "c-half").locked():
        assert next(facts for facts in list_runs(several) if "c-half" in facts.run).state == "training"


def test_one_run_in_detail(several: Path) -> None:
    found = show_run(several / "a-gru")
    assert found.settings["model"]["kind"] == "gru"
    assert found.record["threads"] == 1
    assert found.final is not None
    assert {"model.safetensors", "metrics.jsonl", "checkpoints/last.safetensors"} <= {name for name, _ in found.files}
    assert found.identity == RunFolder(several / "a-gru").identity


def test_the_commands(several: Path, seqlab_command: Command) -> None:
    answer = seqlab_command("runs", "list", several)
    assert answer.code == 0
    assert len(answer.out.splitlines()) == 7
    assert "bits/byte (test)" in answer.out
    rows = seqlab_command("runs", "list", several, "--json").json["runs"]
    assert {"run", "kind", "model", "text", "state", "step", "steps", "figure", "seconds"} <= rows[0].keys()
    shown = seqlab_command("runs", "show", several / "a-gru")
    assert "learning_rate" in shown.out
    details = json.loads(seqlab_command("runs", "show", several / "a-gru", "--json").out)
    assert details["settings"]["training"]["budget"] == "12steps"
    (several / "empty").mkdir()
    assert "no runs below" in seqlab_command("runs", "list", several / "empty").out


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no folder"):
        list_runs(tmp_path / "nothing")
