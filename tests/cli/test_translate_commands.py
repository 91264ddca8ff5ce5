"""`seqlab translate` from the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Command
from tests.workflows.translate.conftest import pairs

TINY = [
    "--width",
    "16",
    "--depth",
    "1",
    "--heads",
    "2",
    "--batch",
    "300",
    "--vocab-size",
    "300",
    "--threads",
    "1",
    "--budget",
    "6steps",
    "--eval-every",
    "3",
]


@pytest.fixture
def words_tsv(tmp_path: Path) -> Path:
    lines = ["english\tfrench\tbackwards", *("\t".join(row) for row in pairs(120))]
    (tmp_path / "words.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "words.tsv"


@pytest.fixture
def translator(seqlab_command: Command, words_tsv: Path, tmp_path: Path) -> Path:
    assert seqlab_command("translate", "train", "words.tsv", "--out", "run", *TINY).code == 0
    return tmp_path / "run"


def test_train_run_evaluate(seqlab_command: Command, words_tsv: Path) -> None:
    answer = seqlab_command("translate", "train", "words.tsv", "--out", "run", "--json", *TINY)
    trained = json.loads(answer.out)
    assert {"run", "seconds", "validation", "test", "targets"} <= trained.keys()
    assert {"target", "bleu", "chrf", "interval", "signature"} <= trained["targets"][0].keys()
    assert "the source is column 'english', the targets are 'french', 'backwards'" in answer.err
    done = json.loads(seqlab_command("translate", "run", "run", "--to", "french", "sun moon", "fire", "--json").out)
    assert [(row["source"], row["target"]) for row in done["translations"]] == [
        ("sun moon", "french"),
        ("fire", "french"),
    ]
    scored = json.loads(seqlab_command("translate", "evaluate", "run", "--beam", "1", "--json").out)
    assert {"target", "bleu", "chrf", "interval", "signature"} <= scored["targets"][0].keys()
    shown = seqlab_command("translate", "evaluate", "run", "--against", "run", "--beam", "1")
    assert "copying the source" in shown.out
    assert "could well be luck" in shown.out
    listed = seqlab_command("runs", "list", ".")
    assert "transformer" in listed.out


def test_run_prints_a_line_for_each_target(seqlab_command: Command, translator: Path, tmp_path: Path) -> None:
    answer = seqlab_command("translate", "run", "run", "sun moon")
    assert [line.split("\t")[0] for line in answer.out.splitlines()] == ["french", "backwards"]
    assert "encoded once for 2 targets" in answer.err
    (tmp_path / "lines.txt").write_text("sun\nmoon star\n")
    plain = seqlab_command("translate", "run", "run", "--to", "french", "--file", "lines.txt")
    assert len(plain.out.splitlines()) == 2
    several = seqlab_command("translate", "run", "run", "--to", "french", "--n-best", "3", "sun moon")
    assert len(several.out.splitlines()) == 3
    drawn = [
        seqlab_command("translate", "run", "run", "sun", "--temperature", "1", "--seed", seed).out for seed in "112"
    ]
    assert drawn[0] == drawn[1]


def test_standard_input_line_by_line(translator: Path) -> None:
    words = [sys.executable, "-m", "seqlab", "translate", "run", str(translator), "--to", "french"]
    done = subprocess.run(words, input="sun\nmoon\n\n", capture_output=True, text=True, check=True)
    lines = done.stdout.split("\n")
    assert len(lines) == 4
    assert lines[2] == ""  # of nothing the translation is nothing
    typed = subprocess.run([*words, "--n-best", "2"], input="sun\n", capture_output=True, text=True, check=True)
    assert len(typed.stdout.splitlines()) == 2
    refused = subprocess.run([*words, "--beam", "0"], input="", capture_output=True, text=True, check=False)
    assert refused.returncode == 2


def test_resume(seqlab_command: Command, translator: Path) -> None:
    answer = seqlab_command("translate", "train", "--out", "run", "--resume", "--budget", "9steps")
    assert answer.code == 0
    assert "finished after 9 steps" in answer.out


def test_two_files(seqlab_command: Command, tmp_path: Path) -> None:
    rows = pairs(60)
    for name, column in (("a.txt", 0), ("b.txt", 1)):
        (tmp_path / name).write_text("\n".join(row[column] for row in rows), encoding="utf-8")
    answer = seqlab_command("translate", "train", "a.txt", "b.txt", "--to", "fr", "--out", "run", *TINY)
    assert answer.code == 0
    assert "the targets are fr, line by line" in answer.err
    (tmp_path / "b.txt").write_text("one line only\n")
    broken = seqlab_command("translate", "train", "a.txt", "b.txt", "--out", "other", *TINY)
    assert broken.code == 2
    assert "a.txt has 60, b.txt has 1" in broken.err
    assert broken.err.count("\n") == 1
    again = seqlab_command("translate", "train", "--out", "run", "--resume", "--budget", "9steps")
    assert again.code != 0
    assert again.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "no data are named"),
        (["missing.tsv"], 1, "there is no file or aligned corpus 'missing.tsv'"),
        (["bible-kjv"], 2, "--to with one or more of bible-web"),
        (["bible-kjv", "--to", "bible-wep"], 1, "did you mean 'bible-web'"),
        (["bible-kjv", "--to", "imdb"], 2, "has no translations"),
        (["words.tsv", "--to", "german"], 2, "no column 'german' for --to"),
        (["words.tsv", "--to", "french,french"], 2, "given twice"),
        (["words.tsv", "--model", "rnn"], 2, "--model 'rnn' is not known"),
        (["words.tsv", "--model", "gru", "--heads", "2"], 2, "model 'gru' has no setting 'heads'"),
        (["words.tsv", "--width", "15", "--heads", "4"], 2, "width 15 cannot be cut into 4 heads"),
        (["words.tsv", "missing.txt"], 1, "there is no file 'missing.txt'"),
        (["words.tsv", "--score", "dot"], 2, "model 'transformer' has no setting 'score'"),
        (["words.tsv", "--smoothing", "2"], 2, "between 0 and 1"),
    ],
)
def test_wrong_use_is_one_line(
    seqlab_command: Command, words_tsv: Path, words: list[str], code: int, message: str
) -> None:
    answer = seqlab_command("translate", "train", *words)
    assert (answer.code, answer.out) == (code, "")
    assert message in answer.err
    assert answer.err.count("\n") == 1


def test_wrong_use_of_a_run_is_one_line(seqlab_command: Command, translator: Path, tmp_path: Path) -> None:
    for words, message in [
        (["run", "run", "--to", "german", "sun"], "was not trained for 'german'; it knows french, backwards"),
        (["run", "run", "--to", "french,french", "sun"], "given twice"),
        (["run", "run", "--beam", "0", "sun"], "--beam 0 is out of range"),
        (["run", "run", "--file", "x.txt", "sun"], "both say what to translate"),
        (["run", "nowhere", "sun"], "nowhere"),
        (["evaluate", "run", "--part", "train"], "--part 'train' is not known"),
    ]:
        answer = seqlab_command("translate", *words)
        assert answer.code == 2, words
        assert message in answer.err
        assert answer.err.count("\n") == 1


def test_compare(seqlab_command: Command, words_tsv: Path) -> None:
    words = ["translate", "compare", "words.tsv", "--models", "transformer,gru", "--seeds", "2", "--budget", "4steps"]
    words += [
        "--width",
        "16",
        "--depth",
        "1",
        "--batch",
        "300",
        "--vocab-size",
        "300",
        "--threads",
        "1",
        "--to",
        "french",
        "--out",
        "duel",
    ]
    answer = seqlab_command(*words, "--json")
    assert answer.code == 0, answer.err
    assert [one["kind"] for one in answer.json["models"]] == ["transformer", "gru"]
    assert "bits per byte of the targets" in (words_tsv.parent / "duel" / "report.html").read_text()
    again = seqlab_command(*words)
    assert "test targets (french)" in again.out
    wrong = seqlab_command("translate", "compare", "words.tsv", "--models", "transformer,rnn")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
