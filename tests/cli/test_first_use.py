"""What a new user stumbles over: messages that lead to the mistake, and nothing that is accepted without a word."""

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.conftest import TINY_FLAGS, Command

import seqlab
from seqlab.cli import main
from seqlab.core.errors import SeqlabError, UsageError
from seqlab.core.files import check_targets, why_not_writable, write_failures

SHORT_TRAINING = "--width 16 --depth 1 --batch 4 --context 8 --budget 40steps --threads 1 --guide none"
ONE_STEP = "--width 16 --depth 1 --batch 1 --context 8 --budget 1step --threads 1"

# --------------------------------------------------------------------------- messages that lead to the mistake


def test_a_zero_byte_is_named_where_it_is(seqlab_command: Command, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"nine bits\n" * 3000 + b"\0" + b"more\n" * 500)
    answer = seqlab_command("lm", "train", "x.txt", "--out", "run", *TINY_FLAGS)
    assert answer.code == 1
    assert "zero at byte 30,000, line 3,001" in answer.err


@pytest.mark.parametrize(
    "words",
    [
        ("lm", "train", "pydoc", "--out", ""),
        ("lm", "train", "pydoc", "--from", ""),
        ("lm", "train", "--config", ""),
        ("lm", "compare", "pydoc", "--models", "gru,rnn", "--out", ""),
        ("lm", "perplexity", "run", "--on", "pydoc", "--csv", ""),
        ("lm", "perplexity", "run", "--on", "pydoc", "--html", ""),
        ("lm", "perplexity", "run", "--on", "pydoc", "--csv-blocks", ""),
        ("classify", "train", "x.csv", "--out", ""),
        ("translate", "train", "x.tsv", "--out", ""),
        ("demo", "--out", ""),
        ("diagnose", "gradients", "run", "--out", ""),
        ("claims", "report", "--out", ""),
        ("cost", "--model", "gru", "--out", ""),
    ],
    ids=" ".join,
)
def test_an_empty_name_is_not_this_folder(seqlab_command: Command, tmp_path: Path, words: tuple[str, ...]) -> None:
    answer = seqlab_command(*words)
    assert answer.code == 2
    assert "'' names nothing; leave it out" in answer.err
    assert list(tmp_path.iterdir()) == []


def test_an_empty_name_of_a_run_or_text_is_refused(seqlab_command: Command, tmp_path: Path) -> None:
    for words in (("lm", "generate", ""), ("lm", "perplexity", "", "--on", "pydoc"), ("runs", "show", "")):
        assert "names no run folder" in seqlab_command(*words).err
    with pytest.raises(UsageError, match="names no run folder"):
        seqlab.load("")
    with pytest.raises(UsageError, match="--csv '' names nothing"):
        check_targets({"--csv": ""})


def test_a_cache_that_cannot_be_written_names_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    for place, named in ((tmp_path / "cache" / "texts" / "x", True), (tmp_path / "runs" / "x", False)):
        with pytest.raises(SeqlabError) as refused, write_failures(place):
            place.write_text("the folder is not there")
        assert ("set SEQLAB_CACHE to a folder that can be written" in str(refused.value)) is named
        assert str(place) in str(refused.value)


def test_a_read_only_file_system_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not_writable(tmp_path) is None
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert why_not_writable(tmp_path) == "permission denied"

    class ReadOnly:
        f_flag = os.ST_RDONLY

    monkeypatch.setattr(os, "statvfs", lambda path: ReadOnly)
    assert why_not_writable(tmp_path) == "read-only file system"
    with pytest.raises(SeqlabError, match="read-only file system; choose another --out"):
        seqlab.train_lm("pydoc", out=tmp_path / "run", threads=1)
    with pytest.raises(SeqlabError, match="cannot write into .*: read-only file system"):
        check_targets({"--csv": str(tmp_path / "x.csv")})


def test_a_text_of_a_few_lines_is_sent_nowhere_else(seqlab_command: Command, tmp_path: Path) -> None:
    (tmp_path / "three.txt").write_text("one line\nand two\nand three\n")
    answer = seqlab_command("lm", "train", "three.txt", "--out", "run", "--tokenizer", "char", "--threads", "1")
    assert answer.code == 1
    assert "so few teach nothing" in answer.err
    assert "--context" not in answer.err


def test_a_text_that_is_too_short_to_learn_from_is_said_to_be(seqlab_command: Command, tmp_path: Path) -> None:
    """Training text and validation text have no letter in common: the model is sure, and wrong."""
    (tmp_path / "short.txt").write_text("ab" * 80 + "cd" * 20)
    sizes = SHORT_TRAINING.split()
    answer = seqlab_command("lm", "train", "short.txt", "--out", "run", "--tokenizer", "byte", *sizes)
    assert answer.code == 0
    assert "warning: 160 tokens to learn from: so few teach next to nothing" in answer.err
    assert "nats per token of the validation text, no better than guessing among 256 tokens (5.545)" in answer.err
    assert "nats per token of the test text, no better" in answer.err


def test_a_model_that_has_learnt_is_not_warned_of(seqlab_command: Command, small_text: Path) -> None:
    answer = seqlab_command("lm", "train", small_text, "--out", "run", "--tokenizer", "char", *TINY_FLAGS)
    assert "no better than guessing" not in answer.err
    assert "next to nothing" not in answer.err


def test_one_of_a_thing_is_singular(seqlab_command: Command, small_text: Path) -> None:
    sizes = ONE_STEP.split()
    answer = seqlab_command("lm", "train", small_text, "--out", "run", "--tokenizer", "byte", *sizes)
    assert answer.code == 0
    everything = answer.out + answer.err
    assert "1 step of 8 tokens; 1 thread, seed 0" in everything
    assert "for 1 step and 1 validation" in everything
    assert "finished after 1 step, 8 tokens" in everything
    for wrong in ("1 steps", "1 threads", "1 validations"):
        assert f" {wrong}" not in everything


# --------------------------------------------------------------------------- accepted without a word


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("lm", "train", "pydoc", "--dropout", "1.0"), "--dropout 1.0 must be at least 0 and below 1"),
        (("classify", "train", "x.csv", "--dropout", "1"), "--dropout 1.0 must be at least 0 and below 1"),
        (("classify", "train", "x.csv", "--word-dropout", "1"), "--word-dropout 1.0 must be at least 0 and below 1"),
        (("translate", "train", "x.tsv", "--dropout", "1"), "--dropout 1.0 must be at least 0 and below 1"),
        (("lm", "train", "pydoc", "--batch", "4", "--accumulate", "5"), "--accumulate 5 cuts a batch of 4 into more"),
        (("lm", "train", "pydoc", "--accumulate", "33"), "--accumulate 33 cuts a batch of 32 into more pieces"),
        (("classify", "train", "x.csv", "--accumulate", "300"), "--accumulate 300 cuts a batch of 256 into more"),
        (("translate", "train", "x.tsv", "--accumulate", "1025"), "--accumulate 1025 cuts a batch of 1024 into"),
        (
            ("lm", "train", "pydoc", "--budget", "999999999999h"),
            "budget '999999999999h' is too long; the most is a year",
        ),
        (("demo", "--budget", "999999999999h"), "is too long; the most is a year"),
        (("cost", "--budget", "9e9h"), "is not understood"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_meant_is_refused(seqlab_command: Command, words: tuple[str, ...], message: str) -> None:
    answer = seqlab_command(*words)
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert message in answer.err


def test_a_model_beyond_any_memory_is_refused_before_it_is_made(
    seqlab_command: Command, small_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqlab.workflows.lm.task.LanguageModelling.build", lambda *_: pytest.fail("it was made"))
    words = ["lm", "train", small_text, "--out", "run", "--tokenizer", "char", "--width", "100000", "--depth", "300"]
    answer = seqlab_command(*words, "--budget", "2steps")
    assert (answer.code, answer.err.count("\n"), Path("run").exists()) == (2, 1, False)
    assert re.search(r"the model's weights, gradients and moments need \d+ TB of memory and ", answer.err)
    assert "(they would fit with --width " in answer.err


def test_word_vectors_of_another_language_are_refused(seqlab_command: Command, small_text: Path) -> None:
    Path("v.txt").write_text("слово 1 2\nмир 3 4\n", encoding="utf-8")
    answer = seqlab_command("lm", "train", small_text, "--model", "bigram", "--vectors", "v.txt", "--out", "run")
    assert answer.code == 1
    assert "v.txt: none of the " in answer.err
    assert "words of the text, such as '" in answer.err
    assert not Path("run").exists()


# --------------------------------------------------------------------------- streams, Python, full disks


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_closed_streams_swallow_what_is_said(tmp_path: Path, closed: str) -> None:
    command = f'exec "$@" {closed}'
    for words, code in ((["data", "list"], 0), (["lm", "nought"], 2)):
        seqlab_words = [sys.executable, "-m", "seqlab", *words]
        answer = subprocess.run(["bash", "-c", command, "bash", *seqlab_words], capture_output=True, text=True)
        assert answer.returncode == code
        assert "Error" not in answer.stderr


def test_a_result_without_standard_output(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, stream, None)
    assert main(["lm", "generate", str(trained), "--tokens", "3"]) == 0
    assert main(["lm", "generate", str(trained), "--prompts", "-"]) == 2


def test_python_refuses_what_is_no_text(trained: Path) -> None:
    run = seqlab.load(trained)
    for wrong in (5, None, b"x", [1], [None]):
        with pytest.raises(UsageError, match="must be a"):
            run.generate(wrong)
    for wrong in (5, None, b"x", ["x"]):
        with pytest.raises(UsageError, match=r"what score reads must be a text \(str\), not"):
            run.score(wrong)
    for how in ({"tokens": "5"}, {"tokens": 2.5}, {"temperature": "hot"}, {"top_k": 1.5}):
        with pytest.raises(UsageError, match="it must be of type"):
            run.generate("x", **how)
    assert run.generate(["a", "b"], 3) == [run.generate("a", 3), run.generate("b", 3, seed=1)]


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """No file may grow beyond so many bytes: writing fails as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("flag", ["--csv", "--html"])
def test_a_full_disk_does_not_lose_the_sheet(
    seqlab_command: Command, trained: Path, small_text: Path, flag: str
) -> None:
    words = ["lm", "perplexity", trained, "--on", small_text, "--no-baselines"]
    whole = seqlab_command(*words)
    with full_disk(60_000):
        answer = seqlab_command(*words, flag, "tokens.out")
    assert answer.code == 1
    assert answer.out == whole.out
    assert "seqlab: cannot write tokens.out: File too large" in answer.err
    assert not list(Path().glob("*tokens.out*"))
    with full_disk(60_000):
        answer = seqlab_command(*words, flag, "tokens.out", "--json")
    assert answer.code == 1
    found = json.loads(answer.out)
    assert found.pop("error").startswith("cannot write tokens.out")
    assert found == seqlab_command(*words, "--json").json


def test_version_says_what_a_bug_report_needs(seqlab_command: Command) -> None:
    answer = seqlab_command("--version")
    assert answer.code == 0
    assert answer.out.startswith(f"seqlab {seqlab.__version__}\n")
    found = seqlab_command("--version", "--json").json
    for name in ("python", "torch", "numpy", "system", "processor", "memory"):
        assert f"{name:<14}{found[name]}" in answer.out
