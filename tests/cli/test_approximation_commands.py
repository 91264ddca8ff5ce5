"""`seqlab diagnose approximation` from the command line: drawn queries and keys, and runs of every task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.conftest import TINY_FLAGS, Command
from tests.cli.test_attention_commands import TEXT, write_reviews
from tests.workflows.translate.conftest import pairs

import seqlab
from seqlab.core.reporting import Reporter
from seqlab.core.settings.diagnose import AttentionSettings
from seqlab.diagnostics import kernel_variance
from seqlab.diagnostics.approximation import exact_weights
from seqlab.diagnostics.attention_maps import attention_of
from seqlab.diagnostics.queries_and_keys import asked_of
from seqlab.workflows.diagnose.approximation import run_sequences
from seqlab.workflows.diagnose.attended import subject_of

FEW = ("--features", "4,16", "--length", "8", "--sequences", "4", "--draws", "1", "--threads", "1")
DRAWN = ("--scales", "0.1,2", "--widths", "32", *FEW)
Case = dict[str, Any]


@pytest.fixture(autouse=True)
def few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_variance, "MEASURED", 2)


def train_lm(seqlab_command: Command, tmp_path: Path, *words: str) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    flags = ("--tokenizer", "char", "--out", "run", *TINY_FLAGS)
    answer = seqlab_command("lm", "train", "text.txt", "--guide", "none", *words, *flags)
    assert answer.code == 0, answer.err


def check_case(case: Case) -> None:
    """Every figure has its interval, and the verdict follows from the paired one."""
    for error in (case["separable"], *case["random_features"]):
        apart = error["against_uniform"]
        assert error["variation"]["low"] <= error["variation"]["mean"] <= error["variation"]["high"]
        difference = error["variation"]["mean"] - case["uniform"]["variation"]["mean"]
        assert apart["mean"] == pytest.approx(difference)
        word = "better" if apart["high"] < 0 else "worse" if apart["low"] > 0 else "undecided"
        assert error["verdict"] == word
    assert case["uniform"]["against_uniform"] is None


def test_drawn_queries_and_keys(seqlab_command: Command, tmp_path: Path) -> None:
    found = seqlab_command("diagnose", "approximation", "--json", *DRAWN).json
    small, large = found["cases"]
    assert (small["scale_asked"], large["scale_asked"], small["width"]) == (0.1, 2.0, 32)
    assert [(e["features"], e["directions"]) for e in small["random_features"]] == [
        *((4, "independent"), (16, "independent"), (4, "orthogonal"), (16, "orthogonal"))
    ]
    for case in found["cases"]:
        check_case(case)
    assert small["logit_scale"] == pytest.approx(0.1, rel=0.3)
    assert [v["features"] for v in small["variance_of_the_kernel"]] == [4, 16, 4, 16]
    assert large["variance_of_the_kernel"] == [], "no pair is short enough"
    assert "worth nothing here" in large["sentence"]
    page = (tmp_path / "approximation.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 1
    assert "http" not in page
    assert seqlab_command("diagnose", "approximation", "--json", *DRAWN).json == found
    answer = seqlab_command("diagnose", "approximation", *DRAWN, "--out", "own/a.html", "--directions", "orthogonal")
    assert answer.code == 0, answer.err
    assert large["sentence"].split(":")[0] in answer.out
    assert "Theory and measurement agree in" in answer.out
    assert "independent" not in answer.out.split("(Variance of")[0]
    assert (tmp_path / "own" / "a.html").exists()


def test_a_figure_does_not_depend_on_what_else_is_asked(seqlab_command: Command) -> None:
    more = seqlab_command("diagnose", "approximation", "--json", *DRAWN).json["cases"][1]
    flags = ("--scales", "2", "--widths", "32", *FEW, "--features", "16", "--directions", "orthogonal")
    (alone,) = seqlab_command("diagnose", "approximation", "--json", *flags).json["cases"]
    assert alone["random_features"] == more["random_features"][-1:]
    other = seqlab_command("diagnose", "approximation", "--json", *flags, "--causal", "--seed", "1").json["cases"][0]
    assert other["uniform"] != alone["uniform"]


@pytest.mark.parametrize("attention", ["softmax", "separable", "random_features"])
def test_a_language_model(seqlab_command: Command, tmp_path: Path, attention: str) -> None:
    train_lm(seqlab_command, tmp_path, "--model", "transformer", "--heads", "2", "--attention", attention)
    found = seqlab_command("diagnose", "approximation", "run", "--json", *FEW).json
    assert [(case["number"], case["group"]) for case in found["cases"]] == [
        *(("0.0", "blocks.0.attention"), ("0.1", "blocks.0.attention"))
    ]
    for case in found["cases"]:
        check_case(case)
        assert case["uniform"]["output"]["mean"] > 0
    assert "4 sequences of 8 tokens from the validation part of text" in found["basis"]
    own = f"the run's own attention is '{attention}': measured is the softmax of its queries and keys"
    assert (own in found["basis"]) is (attention != "softmax")
    assert (tmp_path / "run" / "approximation.html").exists()
    if attention == "softmax":
        (tmp_path / "other.txt").write_text(TEXT[:300], encoding="utf-8")
        flags = ("--text", "other.txt", "--out", "o.html", *FEW)
        answer = seqlab_command("diagnose", "approximation", "run", *flags)
        assert answer.code == 0, answer.err
        assert "tokens from other" in answer.out
        assert "Head 0.1 (blocks.0.attention): " in answer.out
        assert (tmp_path / "o.html").exists()


def check_weights(folder: Path, length: int) -> None:
    """The softmax of the queries and keys of each sequence, without padding, is what the layer attends with."""
    run: Any = seqlab.load(folder)
    subject = subject_of(run, AttentionSettings(length=length, sequences=4), None, Reporter())
    seen = attention_of(run.model, lambda: subject.run(run.model))
    asked = asked_of(run.model, lambda: subject.run(run.model))
    assert asked
    for path, own in asked.items():
        queries, keys, _ = subject.sides(path)
        assert len(set(keys.lengths.tolist())) > 1, "some are padded"
        for row, heads in enumerate(run_sequences(subject, path, own)):
            real = seen[path][row, :, : int(queries.lengths[row]), : int(keys.lengths[row])]
            torch.testing.assert_close(exact_weights(heads), real, atol=2e-6, rtol=1e-4)


def test_a_classifier(seqlab_command: Command, tmp_path: Path) -> None:
    write_reviews(tmp_path / "reviews.csv")
    words = ("classify", "train", "reviews.csv", "--model", "transformer", "--budget", "3steps", "--width", "8")
    assert seqlab_command(*words, "--heads", "2", "--depth", "1", "--out", "run", "--threads", "1").code == 0
    found = seqlab_command("diagnose", "approximation", "run", "--json", *FEW).json
    assert {case["group"] for case in found["cases"]} == {"encoder.blocks.0.attention"}
    check_weights(tmp_path / "run", 60)


def test_a_translator(seqlab_command: Command, tmp_path: Path) -> None:
    lines = ["english\tfrench", *("\t".join(row[:2]) for row in pairs(120))]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ("translate", "train", "pairs.tsv", "--budget", "3steps", "--width", "16", "--depth", "1", "--pointer")
    assert seqlab_command(*words, "--held-out", "10", "--out", "run", "--threads", "1").code == 0
    found = seqlab_command("diagnose", "approximation", "run", "--json", *FEW, "--length", "60").json
    layers = {"encoder.blocks.0.attention", "decoder.0.attention", "decoder.0.cross"}
    assert {case["group"] for case in found["cases"]} == layers
    for case in found["cases"]:
        check_case(case)
    check_weights(tmp_path / "run", 60)


def test_what_cannot_be_measured(seqlab_command: Command, tmp_path: Path) -> None:
    train_lm(seqlab_command, tmp_path, "--model", "gru")
    for words, said in (
        (("run",), "the run run is a gru: it has no attention to approximate"),
        (("nothing",), "nothing"),
        (("--features", "0"), "--features 0 must lie between 1 and 65,536"),
        (("--features", "many"), "--features many must be whole numbers with commas between"),
        (("--scales=-1,2",), "--scales -1,2 must lie between 0.001 and 1000"),
        (("--scales", "nan"), "--scales nan must lie between"),
        (("--scales", "big"), "--scales big must be numbers with commas between"),
        (("--widths", ","), "--widths , names no number"),
        (("--directions", "left"), "--directions 'left' is not known"),
        (("--sequences", "1"), "--sequences 1 is too small"),
        (("--draws", "0"), "--draws 0 is too small"),
        (("--features", "65536", "--length", "512"), "times as much as is possible; give smaller ones"),
        (("--text", "text.txt"), "--text text.txt is read by a run; name one"),
        (("run", "--scales", "2"), "--scales is for drawn queries and keys"),
        (("--out", "."), "is a folder; name a file"),
    ):
        answer = seqlab_command("diagnose", "approximation", *words)
        assert answer.code == 2, (words, answer.err)
        assert said in answer.err
        assert answer.err.count("\n") == 1
    help_text = seqlab_command("diagnose", "approximation", "--help").out
    assert "examples:" in help_text
    assert "--features" in help_text
