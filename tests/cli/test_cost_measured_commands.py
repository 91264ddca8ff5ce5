"""`seqlab cost --scaling` and `--crossover` from the command line, on shapes that take a moment."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Command

from seqlab.diagnostics.timed_layers import Stopwatch

SMALL = ("--width", "8", "--heads", "2", "--lengths", "4,8,16", "--rounds", "2", "--threads", "1")


def test_scaling(seqlab_command: Command, tmp_path: Path) -> None:
    words = ("cost", "--scaling", "--axes", "length", "--layers", "softmax,rnn", *SMALL)
    found = seqlab_command(*words, "--json").json
    assert {(row["layer"], row["what"]) for row in found["rows"]} == {
        (layer, what) for layer in ("softmax", "rnn") for what in ("forward", "training", "bytes")
    }
    assert found["page"] == "scaling.html"
    assert (tmp_path / "scaling.html").exists()
    answer = seqlab_command(*words, "--causal", "--out", "own.html")
    assert answer.code == 0, answer.err
    assert "measured exponents agree" in answer.out
    assert "page: own.html" in answer.out
    assert (tmp_path / "own.html").exists()


def test_crossover(seqlab_command: Command, tmp_path: Path) -> None:
    found = seqlab_command("cost", "--crossover", *SMALL, "--features", "4", "--json").json
    assert {row["verdict"] for row in found["rows"]} <= {"start", "never", "crosses"}
    assert found["lengths"] == [4, 8, 16]
    answer = seqlab_command("cost", "--crossover", *SMALL)
    assert answer.code == 0, answer.err
    assert "Training, causal: separable" in answer.out
    assert (tmp_path / "crossover.html").exists()


def test_interrupted(seqlab_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: object, run: object) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(Stopwatch, "__call__", interrupted)
    answer = seqlab_command("cost", "--crossover", *SMALL)
    assert (answer.code, answer.err) == (1, "seqlab: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_wrong_use(seqlab_command: Command, tmp_path: Path) -> None:
    for words, said in (
        ("--scaling --crossover", "--scaling and --crossover are two measurements; ask for one"),
        ("--lengths 1,2,3", "--lengths is for --scaling or --crossover; add it"),
        ("--causal", "--causal is for --scaling; add it"),
        ("--rounds 3 --model gru", "--rounds is for --scaling or --crossover"),
        ("runs/mine --scaling", "--scaling measures layers, not a run; leave runs/mine out"),
        ("--scaling --model gru", "--scaling has no --model"),
        ("--crossover --length 5", "--crossover has no --length"),
        ("--crossover --axes width", "--crossover has no --axes"),
        ("--scaling --calibrate", "--scaling has no --calibrate"),
        ("--scaling --heads 3", "width 128 cannot be cut into 3 heads of one size"),
        ("--crossover --lengths 9,5,1", "--lengths 9,5,1 must increase"),
        ("--crossover --features 0", "--features 0 is too small; the least is 1"),
        ("--crossover --threads 0", "--threads 0 must lie between 1 and 1024"),
        ("--crossover --out .", "is a folder; name a file"),
    ):
        answer = seqlab_command("cost", *words.split())
        assert (answer.code, answer.err.count("\n")) == (2, 1), (words, answer.err)
        assert said in answer.err
    assert list(tmp_path.iterdir()) == []
    shown = seqlab_command("cost", "--help").out
    assert "--scaling" in shown
    assert "--head-counts" in shown
