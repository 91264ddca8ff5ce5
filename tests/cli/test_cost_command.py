"""`seqlab cost` from the command line."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Command

import seqlab
from seqlab.diagnostics import machine
from seqlab.diagnostics.machine import Calibration, Table
from seqlab.models import build_lm
from seqlab.runs.task import find_task
from seqlab.runs.train import train

TINY = ("--width", "16", "--vocab-size", "60", "--batch", "4", "--threads", "1")
KEYS = {
    *("parameters", "flops_forward", "flops_backward", "memory_bytes", "seconds_per_step", "parts", "symbols"),
    *("bottleneck", "textbook", "seconds_low", "seconds_high", "peak_bytes", "steps", "seconds", "fits"),
}
WRONG_USE = [
    (
        "--model transformer --width 64 --heads 3",
        "width 64 cannot be cut into 3 heads of one size; choose heads 2 or 4",
    ),
    ("--context 0", "--context 0 is too small; the least is 1"),
    ("--batch 0", "--batch 0 is too small; the least is 1"),
    ("--model transformer --attention random_features --features 0", "--features 0 is too small; the least is 1"),
    ("--model transformer --features 4", "--features 4 is for --attention random_features, not softmax"),
    ("--model lstmm", "--model 'lstmm' is not known; did you mean 'lstm'?"),
    ("--size mediun", "--size 'mediun' is not known; did you mean 'medium'?"),
    ("--task translat", "--task 'translat' is not known; did you mean 'translate'?"),
    ("--optimiser adamm", "--optimiser 'adamm' is not known; did you mean 'adam'?"),
    ("--task classify --size small", "task 'classify' has no --size; it is for lm and translate"),
    ("--task translate --attention separable", "task 'translate' has no --attention; it is for lm and classify"),
    ("--classes 4", "task 'lm' has no --classes; it is for classify"),
    ("--model gru --heads 2", "model 'gru' has no setting 'heads'"),
    ("--model gru --recompute", "--recompute is for transformer, not for model 'gru'; leave it out"),
    ("--model ngram", "model 'ngram' is counted, not trained: it has no steps whose costs to predict"),
    ("--budget 3epochs", "--budget 3epochs needs to know how long an epoch is; add --tokens N, or give it in steps"),
    ("--task classify --budget 5Mtokens", "classifiers count texts, not tokens"),
    ("--budget soon", "budget 'soon' is not understood"),
    ("--calibration nowhere.json", "there is no such file; make it with --calibrate added"),
    ("nowhere", "there is no run folder nowhere"),
    (".", ". is not a run folder: it has no settings.toml"),
    ("nowhere --model gru", "there is no run folder nowhere"),
    ("--out nowhere/page.html", "there is no folder"),
    ("--threads 0", "--threads 0 must lie between 1 and 1024"),
    ("--widht 4", "unknown option --widht; did you mean '--width'?"),
]


def refused(answer: Any, message: str) -> None:
    """One line, and exit code 2."""
    assert answer.code == 2, answer.err
    assert answer.out == ""
    assert answer.err.count("\n") == 1
    assert message in answer.err


def test_the_figures_are_those_of_the_model(seqlab_command: Command) -> None:
    words = ("--model", "transformer", "--heads", "2", "--depth", "2", "--context", "8", "--budget", "9steps", *TINY)
    answer = seqlab_command("cost", *words, "--guide", "none", "--json")
    assert answer.code == 0, answer.err
    found = answer.json
    assert found.keys() >= KEYS
    by_hand = seqlab.cost(build_lm("transformer", 60, width=16, depth=2, heads=2, context=8), 4, 8)
    for name in ("parameters", "flops_forward", "flops_backward", "memory_bytes", "symbols"):
        assert found[name] == getattr(by_hand, name), name
    assert [part["name"] for part in found["parts"]] == [part.name for part in by_hand.parts]
    assert found["seconds_low"] <= found["seconds_per_step"] <= found["seconds_high"]
    assert (found["steps"], found["page"]) == (9, None)
    assert found["seconds"] == pytest.approx(9 * found["seconds_per_step"])
    assert found["textbook"][0]["textbook"] == 2 * (8 * 8 * 16 + 8 * 16 * 16)


def test_the_table_says_what_everything_is(seqlab_command: Command, tmp_path: Path) -> None:
    answer = seqlab_command(
        "cost", "--model", "transformer", "--heads", "2", "--context", "8", *TINY, "--out", "c.html"
    )
    assert answer.code == 0, answer.err
    for said in (
        "one step: 4 sequences of 8 positions; optimiser adamw",
        "memory by count",
        "bottleneck at 8 positions",
    ):
        assert said in answer.out
    assert re.search(r"^  scores +=.*n_t·\(n_t\+1\)/2·d_model = ", answer.out, flags=re.M)
    assert "  d_model = 16  numbers in the vector of a token" in answer.out
    assert "N²k + Nk²" in answer.out
    assert "--budget 60s buys about" in answer.out
    assert "the training times a step again" in answer.out
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 2
    assert "http" not in page


@pytest.mark.parametrize("task", ["classify", "translate"])
def test_other_tasks(seqlab_command: Command, task: str) -> None:
    answer = seqlab_command("cost", "--task", task, "--length", "8", *TINY)
    assert answer.code == 0, answer.err
    assert "assumed: " in answer.out
    assert "--vocab-size" not in answer.out.split("\n")[2], "it was said"


def test_recompute_says_what_it_trades(seqlab_command: Command) -> None:
    words = ("cost", "--model", "transformer", "--heads", "2", "--context", "8", *TINY)
    assert "--recompute would keep" in seqlab_command(*words).out
    assert "--recompute: a step holds" in seqlab_command(*words, "--recompute").out


def test_a_run(seqlab_command: Command, trained: Path, tmp_path: Path) -> None:
    answer = seqlab_command("cost", "run", "--json", "--threads", "1")
    assert answer.code == 0, answer.err
    assert (answer.json["steps"], answer.json["batch"], answer.json["length"]) == (8, 4, 8)
    assert answer.json["page"] == "run/cost.html"
    assert (trained / "cost.html").is_file()
    refused(seqlab_command("cost", "run", "--model", "gru"), "run and --model both say what the model is")
    refused(seqlab_command("cost", "run", "--width", "8"), "run has its own width; leave out --width")
    refused(seqlab_command("cost", "run", "--task", "classify"), "--task classify does not fit run, a run of kind 'lm'")
    task = find_task("lm")
    said = task.trial(tmp_path) | dict(model="transformer", positions="learned", heads=2, budget="2steps")
    train(task, said, out=tmp_path / "learned", threads=1)
    refused(seqlab_command("cost", "learned", "--context", "9"), "beyond the 8 learned positions of learned; give 8")


@pytest.mark.parametrize(("words", "message"), WRONG_USE)
def test_wrong_use(seqlab_command: Command, words: str, message: str) -> None:
    refused(seqlab_command("cost", *words.split()), message)


def test_a_calibration_that_is_damaged_or_of_another_machine(
    seqlab_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {kind: Table(((1.0,),) * axes, (1e-6,)) for kind, axes in machine.KINDS.items()}
    made = Calibration(machine.machine_identity(), tables, 1e-6, 1e-3)
    monkeypatch.setattr(machine, "calibrate", lambda **_: made)
    words = ("cost", "--model", "gru", "--context", "8", *TINY)
    assert seqlab_command(*words, "--calibrate", "--calibration", "here.json").code == 0
    assert seqlab_command(*words, "--calibration", "here.json").code == 0
    file = tmp_path / "here.json"
    whole = file.read_text()
    file.write_text(whole.replace('"torch": "', '"torch": "0.'))
    refused(seqlab_command(*words, "--calibration", "here.json"), "was calibrated on another machine")
    file.write_text(whole[:100])
    refused(seqlab_command(*words, "--calibration", "here.json"), "holds no calibration")
