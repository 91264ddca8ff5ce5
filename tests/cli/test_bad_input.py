"""Each mistake is one clear line with the right exit code, and nothing is lost or overwritten."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import TINY_FLAGS, Command

BAD_FILES = {
    "empty.txt": (b"", 1, "empty.txt is empty"),
    "short.txt": (b"abc def\n", 1, "tokens, fewer than one context"),
    "binary.txt": (b"\x00\x01\x02" * 50, 1, "looks like a binary file"),
    "latin.txt": ("Grüße\n".encode("latin-1") * 50, 1, "not valid utf-8 at byte 2 (line 1"),
}


RANDOM = ["--model", "transformer", "--attention", "random_features"]


@pytest.mark.parametrize("name", BAD_FILES)
def test_unusable_files(seqlab_command: Command, tmp_path: Path, name: str) -> None:
    content, code, message = BAD_FILES[name]
    (tmp_path / name).write_bytes(content)
    answer = seqlab_command("lm", "train", name, "--out", "run", *TINY_FLAGS)
    assert (answer.code, answer.out) == (code, "")
    assert message in answer.err
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["lm", "train", "missing.txt"], 1, "there is no file, folder or corpus 'missing.txt'"),
        (["lm", "train", "."], 1, "holds no file that is known as text or code by its ending; it is empty"),
        (["lm", "train"], 2, "no text is named"),
        (["lm", "train", "pydoc", "--modell", "gru"], 2, "unknown option --modell; did you mean '--model'?"),
        (["lm", "train", "pydoc", "--model", "grru"], 2, "--model 'grru' is not known; did you mean 'gru'?"),
        (["lm", "train", "pydoc", "--width", "wide"], 2, "argument --width: invalid int value: 'wide'"),
        (["lm", "train", "pydoc", "--budget", "soon"], 2, "budget 'soon' is not understood"),
        (["lm", "train", "pydoc", "--split", "50/10"], 2, "adds up to 60, not to 100"),
        (["lm", "train", "pydoc", "--threads", "0"], 2, "--threads 0 must lie between 1 and 1024"),
        (["lm", "train", "pydoc", "--encoding", "utf-9"], 2, "--encoding 'utf-9' is not known"),
        (["lm", "train", "pydoc", "--resume"], 2, "--resume needs the run's folder"),
        (["lm", "train", "pydoc", "--config", "nothing.toml"], 2, "there is no settings file nothing.toml"),
        (["lm", "train", "pydoc", "--from", "nowhere"], 2, "there is no run folder nowhere"),
        (["lm", "generate", "nowhere"], 2, "there is no run folder nowhere"),
        (["lm", "generate", "."], 2, "is not a run folder"),
        (["lm", "perplexity", "nowhere"], 2, "no text is named"),
        (["lm"], 2, "a command is missing"),
        (["qqqq"], 2, "unknown command 'qqqq'; known: claims, classify, cost, data, demo, diagnose, lm"),
        (["lm", "trian"], 2, "unknown command 'trian'; did you mean 'train'?"),
        (["data", "get", "shakespear"], 2, "unknown corpus 'shakespear'; did you mean 'shakespeare'?"),
        (["lm", "train", "pydoc", "--encoding", "hex"], 2, "--encoding 'hex' is not known"),
        (["lm", "train", "pydoc", "--split", "nan/10"], 2, "split 'nan/10' is not understood"),
        (["lm", "train", "pydoc", "--vocab-size", "100"], 2, "--vocab-size 100 is too small for bpe"),
        (["lm", "train", "pydoc", "--weight-decay", "nan"], 2, "--weight-decay nan must be a number"),
        (["lm", "train", "pydoc", "--config", "a", "--from", "b"], 2, "give one of them"),
        (["lm", "train", "x" * 300], 1, "File name too long"),
        (["lm", "train", "\udcff.txt"], 2, "is not valid Unicode; rename the file"),
        (["lm", "train", "pydoc", "--out", "y" * 300], 1, "File name too long"),
        (["lm", "train", "pydoc", *RANDOM, "--features", "0"], 2, "--features 0 is too small; the least is 1"),
        (["lm", "train", "pydoc", *RANDOM, "--features", "-3"], 2, "--features -3 is too small; the least is 1"),
        (
            ["lm", "train", "pydoc", "--model", "transformer", "--features", "9"],
            2,
            "--features 9 is for --attention random_features, not softmax; leave it out",
        ),
        (
            ["classify", "train", "x.csv", "--model", "transformer", "--attention", "separable", "--features", "9"],
            2,
            "--features 9 is for --attention random_features, not separable; leave it out",
        ),
        (["classify", "train", "x.csv", *RANDOM, "--features", "0"], 2, "--features 0 is too small; the least is 1"),
        (
            ["lm", "train", "pydoc", *RANDOM, "--width", "60", "--heads", "7"],
            2,
            "width 60 cannot be cut into 7 heads of one size; choose heads 6 or 10, or width 56 or 70",
        ),
        (
            ["classify", "train", "x.csv", *RANDOM, "--width", "60", "--heads", "7"],
            2,
            "width 60 cannot be cut into 7 heads of one size; choose heads 6 or 10, or width 56 or 70",
        ),
        (["classify", "train", "x.csv", "--features", "9"], 2, "model 'average' has no setting 'features'"),
        (["lm", "train", "pydoc", "extra"], 2, "unexpected argument 'extra'"),
    ],
)
def test_wrong_use(seqlab_command: Command, words: list[str], code: int, message: str) -> None:
    answer = seqlab_command(*words)
    assert answer.code == code
    assert message in answer.err
    assert answer.err.startswith("seqlab: ")
    assert answer.err.count("\n") == 1
    assert answer.out == ""


def test_an_existing_folder_is_left_alone(seqlab_command: Command, trained: Path, small_text: Path) -> None:
    before = {p: p.read_bytes() for p in trained.rglob("*") if p.is_file()}
    answer = seqlab_command("lm", "train", small_text, "--out", trained, *TINY_FLAGS)
    assert answer.code == 2
    assert "exists already; go on with --resume or choose another --out" in answer.err
    assert {p: p.read_bytes() for p in trained.rglob("*") if p.is_file()} == before


def test_out_below_a_file(seqlab_command: Command, small_text: Path) -> None:
    answer = seqlab_command("lm", "train", small_text, "--out", small_text / "run", *TINY_FLAGS)
    assert answer.code == 2
    assert "is a file, not a folder" in answer.err


def test_an_unwritable_folder(
    seqlab_command: Command, small_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    if os.geteuid() == 0:  # nothing is closed to root: let the system call answer as it would to a person
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != closed)
    answer = seqlab_command("lm", "train", small_text, "--out", closed / "run", *TINY_FLAGS)
    assert answer.code == 1
    assert "permission denied; choose another --out" in answer.err
    assert list(closed.iterdir()) == []


def limited(words: list[str], blocks: int, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run seqlab where no file may grow beyond so many KiB: writing fails as it does on a full disk."""
    command = f"trap '' XFSZ; ulimit -f {blocks}; exec \"$@\""
    seqlab = [sys.executable, "-m", "seqlab", *words]
    return subprocess.run(
        ["bash", "-c", command, "bash", *seqlab], capture_output=True, text=True, env=os.environ | environment
    )


def test_a_disk_that_fills_up_loses_nothing(seqlab_command: Command, small_text: Path, tmp_path: Path) -> None:
    """The first checkpoint fits, later ones (with the optimiser's moments) do not."""
    flags = "--tokenizer char --width 64 --depth 1 --batch 4 --context 8 --budget 8steps --eval-every 4 --threads 1"
    words = ["lm", "train", str(small_text), "--out", str(tmp_path / "run"), *flags.split()]
    answer = limited(words, blocks=250)
    assert answer.returncode == 1
    assert "cannot write" in answer.stderr
    assert "File too large" in answer.stderr
    assert "Traceback" not in answer.stderr
    resumed = seqlab_command(*words[:5], "--resume")
    assert resumed.code == 0, resumed.err
    assert not list((tmp_path / "run").rglob("*.partial"))


def test_a_cache_that_cannot_be_written(small_text: Path, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("x")
    words = ["lm", "train", str(small_text), "--out", str(tmp_path / "run"), *TINY_FLAGS]
    answer = limited(words, blocks=10_000, SEQLAB_CACHE=str(blocker / "cache"))
    assert answer.returncode == 1
    first, refused = answer.stderr.splitlines()
    assert first.endswith("loading torch …")
    assert refused.startswith("seqlab: cannot write")
    assert "set SEQLAB_CACHE" in refused


def test_debug_shows_the_traceback(seqlab_command: Command) -> None:
    with pytest.raises(Exception, match="there is no file"):
        seqlab_command("lm", "train", "missing.txt", "--debug")


def test_a_reader_that_leaves_early_is_no_error(trained: Path) -> None:
    command = f"{sys.executable} -m seqlab lm generate {trained} --tokens 400 | head -c 20"
    answer = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert "Traceback" not in answer.stderr
    assert "Exception" not in answer.stderr


@pytest.mark.parametrize(
    "words", [("lm", "generate", "nowhere"), ("classify", "train", "nowhere.csv"), ("lm", "nought")]
)
def test_with_json_an_error_is_one_object_on_stdout(seqlab_command: Command, words: tuple[str, ...]) -> None:
    answer = seqlab_command(*words, "--json")
    assert answer.code in (1, 2)
    found = json.loads(answer.out)
    assert list(found) == ["error"]
    assert answer.err == f"seqlab: {found['error']}\n"


def test_a_context_beyond_the_learned_positions(seqlab_command: Command, small_text: Path) -> None:
    """They are as many as the context that the model was made with; whoever wants more trains another."""
    sizes = ["--model", "transformer", "--heads", "2", "--positions", "learned", *TINY_FLAGS]
    assert seqlab_command("lm", "train", small_text, "--out", "run", *sizes).code == 0
    for words in (["--from", "run", "--out", "more", str(small_text)], ["--resume", "--out", "run"]):
        answer = seqlab_command("lm", "train", *words, "--context", "999")
        assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
        assert "--context 999 conflicts with" in answer.err
    answer = seqlab_command("lm", "generate", "run", "--tokens", "60")  # it goes on from what it read last
    assert answer.code == 0
