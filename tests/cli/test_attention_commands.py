"""`seqlab diagnose attention` and `seqlab diagnose experiment` from the command line."""

from pathlib import Path

import pytest
from tests.cli.conftest import TINY_FLAGS, Command
from tests.workflows.classify.conftest import reviews
from tests.workflows.translate.conftest import pairs

from seqlab.core.settings.experiments import EXPERIMENTS

TEXT = "the cat f(a) [x] sat on the mat (b) and {c} the dog sat on the log\n" * 60
NOTE = "the model reads 8 positions at a time: --length is 8, not 64\n"
FEW = ("--length", "16", "--sequences", "4", "--threads", "1")


def write_reviews(path: Path) -> None:
    rows = [f'"{text}",{label}' for text, label in reviews(60)]
    path.write_text("\n".join(["text,label", *rows]), encoding="utf-8")


@pytest.fixture
def trained(seqlab_command: Command, tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    words = (
        "lm",
        "train",
        "text.txt",
        "--guide",
        "none",
        "--model",
        "transformer",
        "--tokenizer",
        "char",
        "--heads",
        "2",
        "--out",
        "run",
    )
    answer = seqlab_command(*words, *TINY_FLAGS)
    assert answer.code == 0, answer.err
    return tmp_path / "run"


def test_a_language_model(seqlab_command: Command, trained: Path, tmp_path: Path) -> None:
    more = (*FEW, "--sequences", "30")
    found = seqlab_command("diagnose", "attention", "run", "--json", *more).json
    assert [row["number"] for row in found["heads"]] == ["0.0", "0.1"]
    for row in found["heads"]:
        assert row["loss_without"]["low"] <= row["loss_without"]["mean"] <= row["loss_without"]["high"]
        assert {"previous", "first", "itself", "earlier occurrence", "matching bracket"} <= row["patterns"].keys()
    assert "30 sequences of 8 tokens from the validation part of text" in found["basis"]
    page = (trained / "attention.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 3, "losses, places, one layer"
    assert "http" not in page.replace("http-equiv", "")
    assert "it is higher when the head adds nothing, paired over the sequences" in page
    (tmp_path / "other.txt").write_text(TEXT[:300], encoding="utf-8")
    flags = ("--text", "other.txt", "--heads", "0.1", "--out", "o.html", *FEW)
    answer = seqlab_command("diagnose", "attention", "run", *flags)
    assert answer.code == 0, answer.err
    assert "0.1   blocks.0.attention" in answer.out
    assert "0.0   blocks" not in answer.out
    assert "pointer" not in answer.out
    assert (tmp_path / "o.html").exists()
    again = seqlab_command("diagnose", "attention", "run", "--json", *more).json
    assert again == found


def test_an_attentive_rnn_has_one_head(seqlab_command: Command, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    words = (
        "lm",
        "train",
        "text.txt",
        "--guide",
        "none",
        "--model",
        "attentive-rnn",
        "--tokenizer",
        "char",
        "--out",
        "run",
    )
    assert seqlab_command(*words, *TINY_FLAGS).code == 0
    found = seqlab_command("diagnose", "attention", "run", "--json", *FEW).json
    assert [row["layer"] for row in found["heads"]] == ["recurrent.layers.0"]
    assert found["heads"][0]["loss_without"]["mean"] != 0
    assert "higher when the network is a plain RNN, paired" in Path("run/attention.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("model", ["transformer", "gru"])
def test_a_classifier(seqlab_command: Command, tmp_path: Path, model: str) -> None:
    write_reviews(tmp_path / "reviews.csv")
    sizes = ("--heads", "2", "--depth", "1") if model == "transformer" else ("--pooling", "attention")
    words = (
        "classify",
        "train",
        "reviews.csv",
        "--model",
        model,
        "--budget",
        "3steps",
        "--width",
        "8",
        *sizes,
        "--out",
        "run",
    )
    answer = seqlab_command(*words, "--threads", "1")
    assert answer.code == 0, answer.err
    found = seqlab_command("diagnose", "attention", "run", "--json", *FEW).json
    assert "the loss is that of their labels" in found["basis"]
    layers = {row["layer"] for row in found["heads"]}
    assert layers == ({"encoder.blocks.0.attention"} if model == "transformer" else {"pooling"})
    (tmp_path / "lines.txt").write_text("a good film\na very bad film indeed\ngood\n", encoding="utf-8")
    found = seqlab_command("diagnose", "attention", "run", "--text", "lines.txt", "--json", *FEW).json
    assert "3 texts of lines.txt" in found["basis"]
    assert "their own decisions" in found["basis"]
    table = seqlab_command("diagnose", "attention", "run", "--text", "reviews.csv", "--json", *FEW).json
    assert "4 texts of reviews.csv" in table["basis"]


@pytest.mark.parametrize("model", ["transformer", "gru"])
def test_a_translator(seqlab_command: Command, tmp_path: Path, model: str) -> None:
    lines = ["english\tfrench", *("\t".join(row[:2]) for row in pairs(120))]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ("translate", "train", "pairs.tsv", "--model", model, "--budget", "3steps", "--width", "16", "--depth", "1")
    answer = seqlab_command(*words, "--pointer", "--held-out", "10", "--out", "run", "--threads", "1")
    assert answer.code == 0, answer.err
    found = seqlab_command("diagnose", "attention", "run", "--json", *FEW).json
    layers = {row["layer"] for row in found["heads"]}
    if model == "gru":
        assert layers == {"attention", "pointer"}
    else:
        assert layers == {"encoder.blocks.0.attention", "decoder.0.attention", "decoder.0.cross", "pointer"}
        own = next(row for row in found["heads"] if row["layer"] == "decoder.0.attention")
        assert "previous" in own["patterns"]
    across = next(row for row in found["heads"] if row["layer"] == "pointer")
    assert "same position" in across["patterns"]
    page = (tmp_path / "run" / "attention.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 2 + len(layers)
    without = "the head adds nothing" if model == "transformer" else "what the decoder attends to adds nothing"
    assert f"higher when {without} or the pointer never copies, paired" in page
    (tmp_path / "lines.txt").write_text("one two three\nfour five\n", encoding="utf-8")
    flags = ("--text", "lines.txt", "--json", "--length", "60", "--threads", "1")
    own = seqlab_command("diagnose", "attention", "run", *flags).json
    assert "with the run's own translations" in own["basis"]
    table = seqlab_command("diagnose", "attention", "run", "--text", "pairs.tsv", "--json", *FEW).json
    assert "pairs of pairs.tsv" in table["basis"]


def test_what_cannot_be_looked_at(seqlab_command: Command, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("a", encoding="utf-8")
    for words, said in (
        (("run", "--text", "one.txt"), "one.txt has 1 token: attention needs"),
        (("run", "--text", "none.txt"), "there is no file, folder or corpus 'none.txt'"),
        (("run", "--heads", "0.7"), "layer 0 (blocks.0.attention) has 2 heads, counted from 0"),
        (("run", "--heads", "3.0"), "there are 1 attention layers"),
        (("run", "--heads", "first"), "'first' is no LAYER.HEAD"),
        (("run", "--length", "1"), "--length 1 is too small"),
        (("nothing",), "nothing"),
    ):
        answer = seqlab_command("diagnose", "attention", *words)
        assert answer.code == (1 if "none.txt" in words else 2), words
        assert said in answer.err
        assert answer.err.replace(NOTE, "").count("\n") == 1
    train = (
        "lm",
        "train",
        "text.txt",
        "--guide",
        "none",
        "--model",
        "gru",
        "--tokenizer",
        "char",
        "--out",
        "gru",
        *TINY_FLAGS,
    )
    assert seqlab_command(*train).code == 0
    answer = seqlab_command("diagnose", "attention", "gru")
    assert (answer.code, "the run gru is a gru: it has no attention to look at" in answer.err) == (2, True)
    write_reviews(tmp_path / "reviews.csv")
    assert seqlab_command("classify", "train", "reviews.csv", "--out", "average", "--threads", "1").code == 0
    answer = seqlab_command("diagnose", "attention", "average")
    assert (answer.code, "it has no attention to look at" in answer.err) == (2, True)


# --------------------------------------------------------------------------- experiments


def test_the_list_has_one_experiment_a_line(seqlab_command: Command) -> None:
    answer = seqlab_command("diagnose", "experiment", "list")
    assert [line.split()[0] for line in answer.out.splitlines()] == list(EXPERIMENTS)
    assert list(seqlab_command("diagnose", "experiment", "list", "--json").json["experiments"]) == list(EXPERIMENTS)


def test_one_experiment(seqlab_command: Command, tmp_path: Path) -> None:
    answer = seqlab_command("diagnose", "experiment", "copying", "--keys", "2,5", "--share", "0.9", "--out", "lesson")
    assert answer.code == 0, answer.err
    assert "prediction: q = λk_a" in answer.out
    assert "n = 5: λ for 90 % of the attention" in answer.out
    page = (tmp_path / "lesson" / "copying.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 1
    found = seqlab_command("diagnose", "experiment", "averaging", "--json", "--out", "a.html").json
    (one,) = found["experiments"]
    assert one["agrees"] is True
    assert one["settings"]["keys"] == 10
    assert {"question", "formula", "answer", "findings"} <= one.keys()
    assert (tmp_path / "a.html").exists()


@pytest.mark.long
def test_all_experiments_on_one_page(seqlab_command: Command, tmp_path: Path) -> None:
    found = seqlab_command("diagnose", "experiment", "all", "--out", "lesson", "--seed", "3", "--json").json
    assert [one["name"] for one in found["experiments"]] == list(EXPERIMENTS)
    assert all(one["agrees"] and one["settings"]["seed"] == 3 for one in found["experiments"])
    page = (tmp_path / "lesson" / "experiments.html").read_text(encoding="utf-8")
    assert f"agree in {len(EXPERIMENTS)} of {len(EXPERIMENTS)}" in page
    for name in EXPERIMENTS:
        assert f'id="{name}"' in page


def test_an_experiment_that_cannot_be_run(seqlab_command: Command) -> None:
    for words, said in (
        (("copyng",), "did you mean 'copying'"),
        (("copying", "--keys", "1"), "--keys 1 must lie between 2 and 1,000"),
        (("averaging", "--keys", "1"), "--keys 1 is too small; the least is 3"),
        (("all", "--keys", "3"), "unknown option --keys"),
        ((), "a command is missing"),
    ):
        answer = seqlab_command("diagnose", "experiment", *words)
        assert answer.code == 2, words
        assert said in answer.err
