"""`seqlab classify …`: what a person types, what comes back, and what is refused in one line."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Command
from tests.workflows.classify.conftest import reviews

FLAGS = ("--bucket-bits", "12", "--batch", "32", "--threads", "1")


@pytest.fixture
def reviews_csv(tmp_path: Path) -> Path:
    rows = [f'"{text}",{label}' for text, label in reviews(160)]
    (tmp_path / "my.csv").write_text("\n".join(["review,stars", *rows]) + "\n", encoding="utf-8")
    return tmp_path / "my.csv"


@pytest.fixture
def classifier(seqlab_command: Command, reviews_csv: Path) -> Path:
    answer = seqlab_command(
        "classify", "train", "my.csv", "--text", "review", "--label", "stars", "--out", "run", *FLAGS
    )
    assert answer.code == 0, answer.err
    assert "naive-Bayes-weighted linear model" in answer.out
    assert "next: seqlab classify report run" in answer.out
    return reviews_csv.parent / "run"


def test_train_answers_in_json(seqlab_command: Command, reviews_csv: Path) -> None:
    answer = seqlab_command("classify", "train", "my.csv", "--out", "run", "--json", *FLAGS)
    assert answer.code == 0, answer.err
    found = answer.json
    assert found["run"] == "run"
    assert found["seconds"] >= 0
    assert found["test"].keys() >= {"n", "accuracy", "interval"}
    assert all(row.keys() >= {"name", "accuracy", "interval", "mcnemar_p"} for row in found["baselines"])


def test_predict(seqlab_command: Command, classifier: Path) -> None:
    answer = seqlab_command("classify", "predict", "run", "a good film", "a dull film", "--json")
    assert answer.code == 0, answer.err
    first, second = answer.json["predictions"]
    assert set(first["probabilities"]) == {"negative", "positive"}
    assert [first["label"], second["label"]] == ["positive", "negative"]
    plain = seqlab_command("classify", "predict", "run", "a good film").out
    label, probability = plain.strip().split("\t")
    assert label == "positive"
    assert float(probability) == pytest.approx(first["probabilities"]["positive"], abs=1e-4)


def test_texts_may_follow_an_option(seqlab_command: Command, classifier: Path) -> None:
    found = [
        seqlab_command("classify", "predict", str(classifier), *words)
        for words in (("--json", "a", "b"), ("a", "b", "--json"))
    ]
    assert found[0].out == found[1].out
    assert len(json.loads(found[0].out)["predictions"]) == 2


def test_predict_a_file_and_a_table(seqlab_command: Command, classifier: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("a good film\na dull film\n")
    (tmp_path / "new.csv").write_text("id,review\n1,a good film\n2,a dull film\n")
    lines = seqlab_command("classify", "predict", "run", "--file", "lines.txt", "--json").json
    table = seqlab_command("classify", "predict", "run", "--file", "new.csv", "--text", "review", "--json").json
    assert lines == table
    assert len(lines["predictions"]) == 2


def test_predict_standard_input_line_by_line(classifier: Path) -> None:
    words = [sys.executable, "-m", "seqlab", "classify", "predict", "run"]
    done = subprocess.run(
        words, input="a good film\n\na dull film", capture_output=True, text=True, cwd=classifier.parent, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    labels = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert len(labels) == 3
    assert (labels[0], labels[2]) == ("positive", "negative")


def test_report_says_what_it_found_and_names_its_page(seqlab_command: Command, classifier: Path) -> None:
    answer = seqlab_command("classify", "report", "run", "--json", "--threads", "1")
    assert answer.code == 0, answer.err
    assert answer.json["page"] == "run/report.html"
    assert (classifier / "report.html").exists()
    errors, figures = answer.json["errors"]["causes"]["errors"], answer.json["errors"]["figures"]
    assert errors == round(figures["error_rate"] * figures["n"])
    found = answer.json["findings"]
    assert found[0].startswith(f"{errors} of {figures['n']} test texts are decided wrongly: ")
    assert f"{figures['ece']:.4f} with the logits divided by {figures['temperature']:.3f}" in found[1]
    printed = seqlab_command("classify", "report", "run", "--threads", "1").out.splitlines()
    assert [line.strip() for line in printed] == [*found, "", "page: run/report.html  (open it in a browser)"]


def test_resume_and_runs_list(seqlab_command: Command, classifier: Path) -> None:
    answer = seqlab_command("classify", "train", "--out", "run", "--resume")
    assert answer.code == 0
    assert "has finished" in answer.err
    listed = seqlab_command("runs", "list", ".", "--json")
    assert "accuracy (test)" in json.dumps(listed.json)


def test_a_folder_for_each_label(seqlab_command: Command, tmp_path: Path) -> None:
    for k, (text, label) in enumerate(reviews(80)):
        (tmp_path / "letters" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "letters" / label / f"{k}.txt").write_text(text)
    answer = seqlab_command("classify", "train", "letters", "--out", "run", "--json", *FLAGS)
    assert answer.code == 0, answer.err
    assert 14 <= answer.json["test"]["n"] <= 18


def test_compare(seqlab_command: Command, reviews_csv: Path) -> None:
    words = ("classify", "compare", "my.csv", "--models", "average,gru", "--seeds", "2", "--budget", "6steps")
    flags = ("--bucket-bits", "12", "--width", "4", "--out", "duel", "--threads", "1")
    answer = seqlab_command(*words, *flags, "--json")
    assert answer.code == 0, answer.err
    found = answer.json
    assert [one["kind"] for one in found["models"]] == ["average", "gru"]
    assert all(0 <= one["error_rate"] <= 1 for one in found["models"])
    again = seqlab_command(*words, *flags, "--json").json
    assert again == found
    assert "error rate" in (reviews_csv.parent / "duel" / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["train"], 2, "no data are named"),
        (["train", "missing.csv"], 1, "there is no file, folder or corpus 'missing.csv'"),
        (["train", "imbd"], 1, "did you mean 'imdb'?"),
        (["train", "my.csv", "--text", "body"], 2, "its columns are 'review', 'stars'"),
        (["train", "my.csv", "--label", "star"], 2, "its columns are 'review', 'stars'"),
        (["train", "my.csv", "--model", "lstn"], 2, "did you mean 'lstm'?"),
        (["train", "my.csv", "--model", "gru", "--ngrams", "2"], 2, "model 'gru' has no setting 'ngrams'"),
        (["train", "my.csv", "--pooling", "last"], 2, "--pooling last is not a choice for model 'average'"),
        (["train", "my.csv", "--budget", "5Mtokens"], 2, "classifiers count texts, not tokens"),
        (["train", "my.csv", "--no-bayes", "--width", "0"], 2, "needs naive Bayes or vectors"),
        (["train", "my.csv", "--model", "transformer", "--heads", "5"], 2, "cannot be cut into 5 heads"),
        (["train", "my.csv", "--least-texts", "1000"], 1, "lower --least-texts"),
        (["train", "my.csv", "--resume"], 2, "--resume needs the run's folder"),
        (["predict", "nowhere", "text"], 2, "there is no run folder nowhere"),
        (["predict", "nowhere", "text", "--file", "x"], 2, "give one of them"),
        (["predict", "nowhere", "--text", "review"], 2, "give --file too"),
        (["report", "nowhere"], 2, "there is no run folder nowhere"),
        (["compare", "my.csv"], 2, "--models names no model; for example --models average,lstm,transformer"),
        (["compare", "my.csv", "--models", "average,ngram"], 2, "unknown model 'ngram'"),
        (["compare", "my.csv", "--models", "average,gru", "--seed", "3"], 2, "say how many with --seeds"),
        (["compare", "my.csv", "--models", "gru,lstm", "--ngrams", "2"], 2, "none of gru, lstm has it"),
    ],
)
def test_wrong_use_is_one_line(
    seqlab_command: Command, reviews_csv: Path, words: list[str], code: int, message: str
) -> None:
    answer = seqlab_command("classify", *words)
    assert (answer.code, answer.out) == (code, "")
    assert message in answer.err.splitlines()[-1]
    assert not list(reviews_csv.parent.glob("runs/*"))


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        ("text,label\na,x\nb,x\n", 1, "one"),
        ("text,label\n" + "".join(f"t{k},c{k}\n" for k in range(5)), 1, "too few"),
        ('text,label\na,x\n"b,y\nc,z\n', 1, "line 3"),
        ("text,label\na,x\nb\n", 1, "line 3"),
        ("text,label\n", 1, "has no row with a label"),
        ("", 1, "empty"),
    ],
)
def test_bad_tables_are_one_line(
    seqlab_command: Command, tmp_path: Path, content: str, code: int, message: str
) -> None:
    (tmp_path / "bad.csv").write_text(content)
    answer = seqlab_command("classify", "train", "bad.csv", "--out", "run")
    assert (answer.code, answer.out) == (code, "")
    assert message in answer.err
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_mixed_encodings_name_the_line(seqlab_command: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_bytes("text,label\ngrün,x\n".encode() + "blöd,y\n".encode("latin-1"))
    answer = seqlab_command("classify", "train", "bad.csv", "--out", "run")
    assert answer.code == 1
    assert "line 3" in answer.err
    assert "--encoding" in answer.err


def test_a_language_model_is_no_classifier(seqlab_command: Command, trained: Path) -> None:
    answer = seqlab_command("classify", "predict", "run", "text")
    assert (answer.code, answer.out) == (2, "")
    assert "holds a run of kind 'lm', not 'classify'" in answer.err


def test_a_line_that_is_no_utf8_is_refused_by_its_number(classifier: Path) -> None:
    words = [sys.executable, "-m", "seqlab", "classify", "predict", "run"]
    done = subprocess.run(words, input=b"\xef\xbb\xbfa good film\nb\xffd\n", capture_output=True, cwd=classifier.parent)
    assert done.returncode == 1
    assert done.stdout.decode().startswith("positive\t")
    assert "standard input, line 2: byte 0xff is not valid UTF-8" in done.stderr.decode()
    assert "unexpected" not in done.stderr.decode()


def test_a_prediction_is_one_line_whatever_the_label(seqlab_command: Command, tmp_path: Path) -> None:
    rows = [f'"{text}","{label}\nsecond line"' for text, label in reviews(160)]
    (tmp_path / "odd.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    assert seqlab_command("classify", "train", "odd.csv", "--out", "odd", *FLAGS).code == 0
    assert seqlab_command("classify", "predict", "odd", "a good film").out.split("\t")[0] == "positive second line"


def test_a_group_that_leaves_no_text_is_one_line(seqlab_command: Command, reviews_csv: Path) -> None:
    answer = seqlab_command("classify", "train", "my.csv", "--group", "review", "--out", "run")
    assert answer.code == 2
    assert "which column is the text? Say --text" in answer.err


def test_what_was_piped_keeps_its_name(
    seqlab_command: Command, reviews_csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(reviews_csv.read_bytes())))
    assert seqlab_command("classify", "train", "-", "--out", "run", *FLAGS).code == 0
    answer = seqlab_command("classify", "train", "--out", "run", "--resume", "--budget", "3epochs")
    assert answer.code == 0, answer.err
    assert "standard input: 160 texts" in answer.err
    assert "average on standard input" in (reviews_csv.parent / "run" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty; give a file with some text in it"),
        ("text,label\n" + "same,a\nsame,b\n" * 9, "which leaves 1 to"),
    ],
)
def test_data_that_cannot_be_split_say_why(seqlab_command: Command, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "t.csv").write_text(content)
    answer = seqlab_command("classify", "train", "t.csv", "--out", "run")
    assert answer.code == 1
    assert message in answer.err


def test_too_little_time_names_no_flag_that_classify_lacks(seqlab_command: Command, reviews_csv: Path) -> None:
    answer = seqlab_command("classify", "train", "my.csv", "--out", "run", *FLAGS, "--budget", "0.001s")
    assert "too few to learn much" in answer.err
    assert "--size" not in answer.err
