"""Going on in odd situations: what was lost, what was named otherwise, what an earlier version wrote."""

import io
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import nonsense

import seqlab
from seqlab.core.errors import DamageError, DataError, UsageError
from seqlab.runs import session
from seqlab.workflows.lm.task import LanguageModelling
from seqlab.workflows.overview import list_runs

STOPS_EARLY: dict[str, Any] = dict(budget="80steps", eval_every=4, patience=2, learning_rate=3.0, decay="constant")


def after(steps: int) -> Any:
    """A `stop` that says yes once it was asked so often."""
    asked = iter(range(10**6))
    return lambda: next(asked) >= steps


def test_a_text_that_is_named_is_read_and_no_other(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came through a pipe lies in the cache, but a person who names a text means that one."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(small_text.read_bytes())))
    seqlab.train_lm("-", out=tmp_path / "run", **tiny)
    with pytest.raises(UsageError, match="pydoc is not the text this run was trained on"):
        seqlab.train_lm("pydoc", out=tmp_path / "run", resume=True, budget="14steps")
    with pytest.raises(DataError, match="there is no file, folder or corpus 'missing.txt'"):
        seqlab.train_lm("missing.txt", out=tmp_path / "run", resume=True, budget="14steps")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(nonsense(500, 9).encode())))
    with pytest.raises(UsageError, match="is not the text"):
        seqlab.train_lm("-", out=tmp_path / "run", resume=True, budget="14steps")
    assert seqlab.train_lm(out=tmp_path / "run", resume=True, budget="14steps").final["step"] == 14  # type: ignore[index]


@pytest.mark.parametrize("how", ["lost", "exchanged", "damaged"])
def test_best_weights_are_looked_for_before_training_goes_on(
    how: str, small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny | {"eval_every": 4, "budget": "40steps"}
    for name, seed in (("run", 0), ("other", 1)):
        seqlab.train_lm(small_text, out=tmp_path / name, seed=seed, stop=after(14), **settings)
    model = tmp_path / "run" / "model.safetensors"
    content = model.read_bytes()
    {
        "lost": model.unlink,
        "exchanged": lambda: shutil.copy(tmp_path / "other" / "model.safetensors", model),
        "damaged": lambda: model.write_bytes(content[:-3] + b"xyz"),
    }[how]()
    monkeypatch.setattr(session, "train", lambda *_: pytest.fail("it trained before it looked"))
    with pytest.raises(DamageError, match=r"model\.safetensors"):
        seqlab.train_lm(out=tmp_path / "run", resume=True)


def test_an_interrupted_run_says_which_step_its_weights_are_from(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    assert seqlab.train_lm(small_text, out=tmp_path / "early", stop=after(3), **tiny).step == 3
    assert seqlab.train_lm(small_text, out=tmp_path / "later", stop=after(6), **tiny).step == 4


def test_a_longer_budget_that_was_killed_half_way_still_has_new_patience(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = seqlab.train_lm(small_text, out=tmp_path / "run", model="rnn", **(tiny | STOPS_EARLY))
    assert stopped.final["outcome"] == "stopped early"  # type: ignore[index]
    before = stopped.final["step"]  # type: ignore[index]
    with monkeypatch.context() as patch:
        patch.setattr(session.Session, "run", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            seqlab.train_lm(out=tmp_path / "run", resume=True, budget="200steps")
    run = seqlab.train_lm(out=tmp_path / "run", resume=True)
    assert run.record["steps"] == 200
    assert run.final["step"] > before  # type: ignore[index]


def test_a_report_of_former_figures_does_not_stay(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = seqlab.train_lm(small_text, out=tmp_path / "run", **tiny)
    before = run.files.report_file.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(LanguageModelling, "report", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            seqlab.train_lm(out=tmp_path / "run", resume=True, budget="24steps")
    seqlab.train_lm(out=tmp_path / "run", resume=True)
    assert "24" in run.files.report_file.read_text()
    assert run.files.report_file.read_text() != before


KILL_AT_FIRST_REPLACEMENT = """
import os, signal, sys, seqlab
replace = os.replace
def dying(source, target):
    if str(target).startswith(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
os.replace = dying
seqlab.train_lm(sys.argv[1], out=sys.argv[2], tokenizer="byte", budget="2steps", threads=1)
"""


def test_killed_at_its_very_first_write_a_folder_can_be_begun_anew(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    """A real kill leaves the lock and a partial file; an exception in its place would clear them up."""
    environment = os.environ | {"SEQLAB_CACHE": str(tmp_path / "cache")}
    words = [sys.executable, "-c", KILL_AT_FIRST_REPLACEMENT, str(small_text), str(tmp_path / "run")]
    killed = subprocess.run(words, env=environment, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert ".lock" in left
    assert any(name.startswith("..beginning.") and name.endswith(".partial") for name in left)
    assert seqlab.train_lm(small_text, out=tmp_path / "run", **tiny).final is not None
    (tmp_path / "duel").mkdir()
    (tmp_path / "duel" / ".duel.json.123.partial").write_bytes(b"half")
    small = {k: v for k, v in tiny.items() if k != "depth"}
    assert seqlab.compare_lms(small_text, models="gru,ngram", seeds=1, out=tmp_path / "duel", **small).finished


@pytest.mark.parametrize("content", ["[]", '{"step": 1}', '"x"', "7", "{"])
def test_lines_that_nobody_wrote_are_named(
    content: str, small_text: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    run = seqlab.train_lm(small_text, out=tmp_path / "runs" / "a", **tiny)
    run.files.metrics_file.write_text(f"{content}\n")
    with pytest.raises(DamageError, match=r"metrics\.jsonl is damaged at line 1"):
        run.metrics  # noqa: B018
    assert [facts.state.split(":")[0] for facts in list_runs(tmp_path / "runs")] == ["damaged"]


def test_settings_cannot_be_edited_past_their_checksum(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = seqlab.train_lm(small_text, out=tmp_path / "run", **tiny)
    path = run.files.settings_file
    text = path.read_text()
    without = "\n".join(line for line in text.splitlines() if not line.startswith("sha256"))
    for edited in (
        without.replace("[record]", "[record]\nwhen = 1979-05-27").replace("12steps", "999steps"),
        text.replace("[record]", "[recorded]"),
        text.replace('kind = "lm"', 'kind = ["lm"]'),
    ):
        path.write_text(edited)
        with pytest.raises((DamageError, UsageError)):
            seqlab.load(run.folder)
    (tmp_path / "junk" / "settings.toml").mkdir(parents=True)
    assert len(list_runs(tmp_path)) == 1


def test_a_duel_whose_run_lost_its_figures_says_so(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    how = {k: v for k, v in tiny.items() if k != "depth"} | {
        "models": "gru,ngram",
        "seeds": 1,
        "out": tmp_path / "duel",
    }
    seqlab.compare_lms(small_text, **how)
    shutil.copytree(tmp_path / "duel" / "gru-seed0", tmp_path / "kept")
    shutil.rmtree(tmp_path / "duel" / "gru-seed0")
    seqlab.train_lm(small_text, out=tmp_path / "duel" / "gru-seed0", model="gru", seed=7, **tiny)
    with pytest.raises(DamageError, match="gru-seed0 holds another run than the one that was scored"):
        seqlab.compare_lms(small_text, **how)
    shutil.rmtree(tmp_path / "duel" / "gru-seed0")
    shutil.copytree(tmp_path / "kept", tmp_path / "duel" / "gru-seed0")
    (tmp_path / "duel" / "gru-seed0" / "metrics.jsonl").unlink()
    with pytest.raises(DamageError, match="gru-seed0 has lost its figures"):
        seqlab.compare_lms(small_text, **how)
