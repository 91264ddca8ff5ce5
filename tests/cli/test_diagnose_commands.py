"""`seqlab diagnose` from the command line."""

from pathlib import Path

import pytest
from tests.cli.conftest import TINY_FLAGS, Command
from tests.workflows.classify.conftest import reviews
from tests.workflows.translate.conftest import pairs

SMALL = ("--width", "12", "--length", "20", "--sequences", "3", "--threads", "1")
TEXT = "the cat sat on the mat and the dog sat on the log\n" * 60


@pytest.fixture
def trained(seqlab_command: Command, tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    answer = seqlab_command(
        *(
            "lm",
            "train",
            "text.txt",
            "--guide",
            "none",
            "--model",
            "lstm",
            "--tokenizer",
            "char",
            "--out",
            "run",
            *TINY_FLAGS,
        )
    )
    assert answer.code == 0, answer.err
    return tmp_path / "run"


def test_untrained_models_side_by_side(seqlab_command: Command, tmp_path: Path) -> None:
    answer = seqlab_command("diagnose", "gradients", "--model", "rnn,gru,lstm,attentive-rnn,transformer", *SMALL)
    assert answer.code == 0, answer.err
    assert "untrained models of width 12" in answer.out
    assert "seed 0" in answer.out
    for name in ("rnn", "gru", "lstm", "attentive-rnn", "transformer"):
        assert f"\n{name}: " in answer.out
    page = (tmp_path / "gradients.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 1 + 5 + 2, "the curves, a heat map each, the gates of two"
    assert "http" not in page.replace("http-equiv", "")


def test_what_is_orthogonal_already_is_not_tried_again(seqlab_command: Command) -> None:
    found = seqlab_command("diagnose", "gradients", "--model", "lstm", "--try", "--json", *SMALL).json
    rows = {row["cure"]: row["growth"]["rate"] for row in found["tried"]["lstm"]}
    assert "orthogonal initialisation" not in rows
    assert rows["as it is"] < rows["forget-gate bias 2"] < rows["forget-gate bias 4"]


def test_every_remedy_is_tried_on_the_same_sequences(seqlab_command: Command) -> None:
    words = ("diagnose", "gradients", "--model", "rnn", "--init", "uniform", "--try", "--json", *SMALL)
    found = seqlab_command(*words).json
    (model,) = found["models"]
    rows = {row["cure"]: row for row in found["tried"]["rnn"]}
    assert rows["as it is"]["growth"]["rate"] == pytest.approx(model["layers"][0]["growth"]["rate"], rel=1e-12)
    assert rows["as it is"]["verdict"] == model["verdict"] == found["verdict"] == "vanishing"
    growth = model["layers"][0]["growth"]
    assert (found["growth"], found["interval"]) == (growth["rate"], [growth["low"], growth["high"]])
    assert found["horizon"] == model["horizon"] == model["layers"][0]["horizon"]
    assert "orthogonal initialisation" in rows
    steps = next(int(name.split()[2]) for name in rows if name.startswith("shorter unroll"))
    assert 0.01 <= rows["as it is"]["growth"]["rate"] ** steps < 0.01 / rows["as it is"]["growth"]["rate"]
    named = next(cure["why"] for cure in found["cures"]["rnn"] if cure["name"] == "shorter unroll")
    assert f"over {steps} steps" in named
    assert rows["gated cell: lstm"]["growth"]["rate"] > rows["as it is"]["growth"]["rate"]
    assert {"orthogonal initialisation", "gated cell: gru", "layer normalisation"} <= rows.keys()
    assert {cure["name"] for cure in found["cures"]["rnn"]} >= {"orthogonal initialisation", "gated cell"}
    assert model["layers"][0]["bound"] > model["layers"][0]["growth"]["rate"]
    again = seqlab_command(*words).json
    assert again == found, "the same seed gives the same figures"
    other = seqlab_command(*words, "--seed", "1").json
    assert other["models"][0]["layers"][0]["growth"] != model["layers"][0]["growth"]


def test_a_run_is_examined_on_its_own_text_or_another(seqlab_command: Command, trained: Path, tmp_path: Path) -> None:
    flags = ("--length", "20", "--sequences", "4", "--threads", "1")
    own = seqlab_command("diagnose", "gradients", trained, "--json", *flags)
    assert own.code == 0, own.err
    (model,) = own.json["models"]
    assert [layer["tap"] for layer in model["layers"]] == ["recurrent.l0.hidden", "recurrent.l0.c"]
    assert {gate["name"][-1] for gate in model["gates"]} == {"i", "f", "o"}
    assert len(model["layers"][0]["quartiles"][1]) == 20
    assert model["jacobians"]["recurrent"][0]["spectral_norm"] > 0
    assert "the validation part of text.txt" in own.json["basis"]
    assert (trained / "gradients.html").exists()
    (tmp_path / "other.txt").write_text("a dog and a log on a mat\n" * 30, encoding="utf-8")
    other = seqlab_command("diagnose", "gradients", trained, "--text", "other.txt", "--out", "o.html", "--try", *flags)
    assert other.code == 0, other.err
    assert "from other.txt" in other.out
    assert "forget-gate bias 4" in other.out
    assert (tmp_path / "o.html").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "name a run folder, or an untrained model: --model rnn"),
        (("--model", "bigram"), 2, "--model 'bigram' has no gradient over time"),
        (("--model", "lstn"), 2, "did you mean 'lstm'"),
        (("--model", "rnn,rnn"), 2, "names 'rnn' twice"),
        (("--model", "rnn", "--length", "1"), 2, "--length 1 is too small; the least is 3"),
        (("--model", "rnn", "--sequences", "1"), 2, "--sequences 1 is too small"),
        (("--model", "transformer", "--init", "uniform", *SMALL), 2, "--init uniform is for rnn, gru and lstm"),
        (("--model", "rnn", "--text", "a.txt"), 2, "--text is for a run"),
        (("nowhere",), 2, "there is no run folder nowhere"),
    ],
    ids=str,
)
def test_wrong_use_is_one_line(seqlab_command: Command, words: tuple[str, ...], code: int, message: str) -> None:
    answer = seqlab_command("diagnose", "gradients", *words)
    assert (answer.code, answer.err.count("\n")) == (code, 1), answer.err
    assert message in answer.err


@pytest.mark.parametrize("flags", [("gru", "--pooling", "last"), ("lstm",), ("transformer", "--heads", "2")], ids=str)
def test_a_classifier_is_examined_on_its_own_texts(
    seqlab_command: Command, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    rows = [f'"{text}",{label}' for text, label in reviews(60)]
    (tmp_path / "my.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    budget = ("--width", "8", "--depth", "1", "--budget", "3steps", "--threads", "1", "--out", "run")
    assert seqlab_command("classify", "train", "my.csv", "--model", *flags, *budget).code == 0
    answer = seqlab_command("diagnose", "gradients", "run", "--length", "8", "--json", "--threads", "1")
    assert answer.code == 0, answer.err
    (model,) = answer.json["models"]
    taps = [layer["tap"] for layer in model["layers"]]
    if flags[0] == "gru":
        assert taps == ["encoder.recurrent.l0.hidden", "encoder.recurrent.l0_reverse.hidden"]
        for layer in model["layers"]:  # the last states are read, so that both directions lose what is far
            assert layer["quartiles"][1][0] > layer["quartiles"][1][-1]
    elif flags[0] == "lstm":
        assert "encoder.recurrent.l0_reverse.c" in taps
        assert [(head["name"], head["head"]) for head in model["heads"]] == [("pooling.weights", 0)]
    else:
        assert taps == ["encoder.blocks.0.stream"]
    assert all(0 <= head["evenness"] <= 1 for head in model["heads"])
    answer = seqlab_command("diagnose", "gradients", "run", "--try")
    assert (answer.code, answer.err.count("\n")) == (2, 1), answer.err
    assert "--try is for language models" in answer.err


@pytest.mark.parametrize("flags", [("transformer", "--heads", "2"), ("lstm",), ("gru", "--input-feeding")], ids=str)
def test_a_translator_is_examined_on_its_own_pairs(
    seqlab_command: Command, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    lines = ["english\tfrench", *("\t".join(row[:2]) for row in pairs(120))]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    budget = ("--width", "16", "--depth", "1", "--budget", "3steps", "--threads", "1", "--out", "run")
    trained = seqlab_command("translate", "train", "pairs.tsv", "--model", *flags, "--vocab-size", "280", *budget)
    assert trained.code == 0, trained.err
    answer = seqlab_command("diagnose", "gradients", "run", "--length", "6", "--json", "--threads", "1")
    assert answer.code == 0, answer.err
    (model,) = answer.json["models"]
    taps = [layer["tap"] for layer in model["layers"]]
    if flags[0] == "gru":
        assert taps == ["encoder.recurrent.l0.hidden", "encoder.recurrent.l0_reverse.hidden"]
        assert "without decoder.l0.hidden, which is called position by position" in answer.json["basis"]
    elif flags[0] == "lstm":
        assert {"encoder.recurrent.l0.c", "encoder.recurrent.l0_reverse.c", "decoder.l0.c"} <= set(taps)
    else:
        assert taps == ["encoder.blocks.0.stream", "decoder.0.stream"]
    assert "validation pairs of pairs.tsv" in answer.json["basis"]
    assert "a first step of adamw" in answer.json["basis"]
    answer = seqlab_command("diagnose", "gradients", "run", "--text", "other.txt")
    assert (answer.code, answer.err.count("\n")) == (2, 1), answer.err


def test_wrong_use_of_a_run_is_one_line(seqlab_command: Command, trained: Path) -> None:
    for words, message in (
        (("--width", "8"), "--width is for an untrained model"),
        (("--length", "4000"), "too few for two sequences of 4001; give a smaller --length"),
    ):
        answer = seqlab_command("diagnose", "gradients", trained, *words)
        assert (answer.code, answer.err.count("\n")) == (2, 1), answer.err
        assert message in answer.err
    bigram = ("lm", "train", "text.txt", "--model", "bigram", "--out", "pairs", "--budget", "5steps", "--threads", "1")
    assert seqlab_command(*bigram).code == 0
    answer = seqlab_command("diagnose", "gradients", "pairs")
    assert (answer.code, answer.err.count("\n")) == (2, 1), answer.err
    assert "carries nothing over time" in answer.err


# --------------------------------------------------------------------------- optimisers


def test_what_optimisers_do(seqlab_command: Command, tmp_path: Path) -> None:
    answer = seqlab_command("diagnose", "optimisers")
    assert answer.code == 0, answer.err
    assert "times as fast as those with large ones" in answer.out
    assert " NO" not in answer.out
    page = (tmp_path / "optimisers.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 3
    found = seqlab_command("diagnose", "optimisers", "--json").json
    assert [one["name"] for one in found["experiments"]] == ["decay", "momentum", "bias-correction"]
    assert all(one["agrees"] for one in found["experiments"])


def test_optimisers_compete_with_learning_rates_of_their_own(seqlab_command: Command, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    flags = ("--tokenizer", "char", "--width", "8", "--batch", "4", "--context", "8", "--threads", "1")
    words = ("diagnose", "optimisers", "--duel", "adamw,sgd", "--on", "text.txt", "--budget", "30steps", *flags)
    answer = seqlab_command(*words, "--seeds", "2", "--out", "duel", "--json")
    assert answer.code == 0, answer.err
    rates = {}
    for name in ("adamw", "sgd"):
        settings = (tmp_path / "duel" / f"{name}-seed0" / "settings.toml").read_text(encoding="utf-8")
        assert f'optimiser = "{name}"' in settings
        rates[name] = float(settings.partition("learning_rate = ")[2].partition("\n")[0])
    assert rates["sgd"] > 3 * rates["adamw"], "plain descent wants larger steps"
    assert answer.err.count("learning rate") == 2
    assert {row["kind"] for row in answer.json["models"]} == {"adamw", "sgd"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--duel", "adamw,sgd"), "a duel needs a text: --on my.txt"),
        (("--on", "a.txt"), "--on is for a duel"),
        (("--seeds", "2"), "--seeds is for a duel"),
        (("--width", "8"), "--width is for a duel"),
        (("--duel", "adamw,sgdd", "--on", "text.txt"), "unknown optimiser 'sgdd'; did you mean 'sgd'"),
        (("--duel", "sgd,sgd", "--on", "text.txt"), "names 'sgd' twice"),
        (("--duel", "sgd,muon", "--on", "text.txt", "--heads", "2"), "model 'gru' has no setting 'heads'"),
        (("--duel", "sgd", "--on", "text.txt"), "--duel names sgd alone; a duel needs two optimisers, such as adamw"),
    ],
    ids=str,
)
def test_wrong_use_of_optimisers_is_one_line(
    seqlab_command: Command, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    answer = seqlab_command("diagnose", "optimisers", *words)
    assert (answer.code, answer.err.count("\n")) == (2, 1), answer.err
    assert message in answer.err


# --------------------------------------------------------------------------- memory

FEW = ("--width", "8", "--steps", "5", "--examples", "20", "--threads", "1")


def test_memory_over_growing_lags(seqlab_command: Command, tmp_path: Path) -> None:
    words = ("diagnose", "memory", "--models", "rnn,transformer", "--lags", "6,3", *FEW)
    answer = seqlab_command(*words, "--json")
    assert answer.code == 0, answer.err
    rows = answer.json["rows"]
    assert [(row["task"], row["model"], row["lag"]) for row in rows] == [
        (task, kind, lag) for task in ("copy", "adding") for kind in ("rnn", "transformer") for lag in (3, 6)
    ]
    for row in rows:
        assert row["asked"] == 20 * (3 if row["task"] == "copy" else 1)
        assert row["interval"][0] <= row["accuracy"] <= row["interval"][1]
    assert seqlab_command(*words, "--json").json == answer.json, "the same seed gives the same figures"
    assert (tmp_path / "memory.html").read_text(encoding="utf-8").count("data:image/png;base64,") == 2
    assert "by chance" in seqlab_command(*words).out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--models", "lstn"), "--models 'lstn' is not known; did you mean 'lstm'"),
        (("--models", "bigram"), "--models 'bigram' is not known"),
        (("--tasks", "sorting"), "--tasks 'sorting' is not known"),
        (("--lags", "1"), "--lags 1 must lie between 3 and 5,000"),
        (("--lags", "ten"), "--lags ten must be whole numbers"),
        (("--models", ""), "--models names nothing"),
        (("--width", "9"), "--width 9: a transformer turns pairs of numbers"),
        (("--out", "."), "--out . is a folder; name a file"),
    ],
    ids=str,
)
def test_wrong_use_of_memory_is_one_line(seqlab_command: Command, words: tuple[str, ...], message: str) -> None:
    answer = seqlab_command("diagnose", "memory", *words)
    assert (answer.code, answer.err.count("\n")) == (2, 1), answer.err
    assert message in answer.err
