"""From the command to the loop: how far it is, and what is refused before torch is even loaded."""

import json
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from tests.cli.conftest import TINY_FLAGS, Command

import seqlab
from seqlab.training import loop

SOURCE = Path(seqlab.__file__).parent
MOST_FUNCTIONS = 10

WRONG_USE = [
    ("lm train my.txt --width -1", 2, "--width -1 is too small; the least is 1"),
    ("lm train my.txt --dropout 2", 2, "--dropout 2.0 must be at least 0 and below 1"),
    ("lm train my.txt --model lstmm", 2, "did you mean 'lstm'"),
    ("lm train my.txt --model gru --heads 2", 2, "model 'gru' has no setting 'heads'"),
    ("lm train my.txt --model transformer --carry", 2, "--carry is for rnn, gru, lstm, not for model 'transformer'"),
    ("lm train my.txt --model gru --recompute", 2, "--recompute is for transformer, not for model 'gru'; leave it out"),
    ("lm train my.txt --model ngram --recompute", 2, "--recompute does not apply: model 'ngram' is fitted by counting"),
    ("classify train my.csv --recompute", 2, "--recompute is for transformer, not for model 'average'; leave it out"),
    ("classify train my.csv --model lstm --recompute", 2, "is for transformer, not for model 'lstm'; leave it out"),
    ("translate train my.tsv --model gru --recompute", 2, "is for transformer, not for model 'gru'; leave it out"),
    ("cost --model transformer --width 64 --heads 3", 2, "width 64 cannot be cut into 3 heads of one size"),
    ("cost --task classify --context 9", 2, "task 'classify' has no --context; it is for lm"),
    ("lm train my.txt --model ngram --budget 5s", 2, "--budget does not apply"),
    ("lm train my.txt --model ngram --order 9", 2, "--order 9 is out of range"),
    ("lm train my.txt --tokenizer char --vocab-size 9", 2, "--vocab-size is not a choice for the tokenizer 'char'"),
    ("lm train my.txt --vocab-size 12", 2, "--vocab-size 12 is too small for bpe; the least is 257"),
    ("lm train my.txt --budget soon", 2, "budget 'soon' is not understood"),
    ("lm train my.txt --split 1/2", 2, "split '1/2'"),
    ("lm train my.txt --normalise zzz", 2, "unknown normalisation step 'zzz'"),
    ("lm train my.txt --encoding zzz", 2, "--encoding 'zzz' is not known"),
    ("lm train my.txt --threads 0", 2, "--threads 0 must lie between 1 and 1024"),
    ("lm train my.txt --witdh 3", 2, "did you mean '--width'"),
    ("lm train my.txt --out taken", 2, "taken exists already"),
    ("lm compare my.txt --models lstm,gru --out taken", 2, "taken exists already and holds no duel"),
    ("lm train my.txt --from nowhere", 2, "there is no run folder nowhere"),
    ("lm train my.txt --config nowhere.toml", 2, "there is no settings file nowhere.toml"),
    ("lm train my.txt --config a --from b", 2, "give one of them"),
    ("lm train nothing.txt", 1, "there is no file, folder or corpus 'nothing.txt'"),
    ("lm train --resume", 2, "--resume needs the run's folder"),
    ("lm train --resume --out nowhere", 2, "there is no run folder nowhere"),
    ("lm train", 2, "no text is named"),
    ("lm compare my.txt", 2, "--models names no model"),
    ("lm compare my.txt --models lstm,lstmm", 2, "did you mean 'lstm'"),
    ("lm compare my.txt --models lstm,gru --match weight", 2, "--match 'weight' is not known"),
    ("lm compare my.txt --models lstm,gru --seeds 0", 2, "--seeds 0 must lie between 1 and 1,000"),
    ("lm compare my.txt --models lstm,gru --heads 3", 2, "none of lstm, gru has it"),
    ("lm compare my.txt --models lstm,gru --seed 3", 2, "say how many with --seeds"),
    ("lm generate nowhere", 2, "there is no run folder nowhere"),
    ("lm generate nowhere --top-p 2", 2, "--top-p 2.0 must be greater than 0 and at most 1"),
    ("lm generate nowhere --temperature nan", 2, "--temperature nan must be a number of 0 (greedy) or more"),
    ("lm generate nowhere --samples 0", 2, "--samples 0 is too small; the least is 1"),
    ("lm generate nowhere --prompt a --prompts my.txt", 2, "--prompt and --prompts both say what to continue"),
    ("lm generate nowhere --prompts nothing.txt", 2, "--prompts nothing.txt cannot be read: No such file or directory"),
    ("lm generate nowhere --prompts taken", 2, "--prompts taken cannot be read: Is a directory"),
    ("lm generate nowhere --prompts empty.txt", 2, "--prompts empty.txt is empty; write one prompt on each line"),
    ("lm generate nowhere --prompts latin.txt", 2, "--prompts latin.txt is not valid utf-8 at byte 3"),
    ("lm generate nowhere --prompts -", 2, "there is no run folder nowhere"),
    ("lm perplexity --on my.txt", 2, "no model is named"),
    ("lm perplexity nowhere --on my.txt", 2, "there is no run folder nowhere"),
    ("lm perplexity nowhere", 2, "no text is named"),
    ("lm perplexity nowhere+other --on my.txt", 2, "there is no run folder nowhere"),
    ("lm mix", 2, "arguments are required: RUN"),
    (
        "lm mix nowhere",
        2,
        "a mixture needs at least two runs; for example: seqlab lm mix runs/a runs/b --out runs/both",
    ),
    ("lm mix nowhere other", 2, "there is no run folder nowhere"),
    ("lm perplexity --matrix my.txt", 2, "name at least two"),
    ("lm perplexity --matrix my.txt my.txt --budget x", 2, "budget 'x' is not understood"),
    ("runs show nowhere", 2, "there is no run folder nowhere"),
    ("runs list nowhere", 1, "there is no folder nowhere"),
    ("data get nope", 2, "unknown corpus 'nope'"),
    ("demo --budget x", 2, "budget 'x' is not understood"),
    ("lm", 2, "a command is missing"),
]
SCRIPT = """
import contextlib, io, json, sys
from seqlab.cli import main
answers = []
for words in json.load(sys.stdin):
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        code = main(words.split())
    answers.append([code, err.getvalue(), "torch" in sys.modules])
print(json.dumps(answers))
"""


def test_wrong_use_is_answered_in_one_line_before_torch_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("to be or not to be\n" * 50)
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin.txt").write_bytes("Grüße".encode("latin-1"))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "x").write_text("x")
    asked = json.dumps([words for words, _, _ in WRONG_USE])
    ended = subprocess.run([sys.executable, "-c", SCRIPT], input=asked, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    for (words, code, message), (found, err, torch_loaded) in zip(WRONG_USE, json.loads(ended.stdout), strict=True):
        assert (found, err.count("\n")) == (code, 1), (words, err)
        assert message in err, (words, err)
        assert not torch_loaded, words


def test_at_most_ten_functions_stand_between_the_command_and_the_loop(
    seqlab_command: Command, small_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[list[str]] = []

    def look_back(*_: object) -> None:
        frames = [frame for frame in traceback.extract_stack() if Path(frame.filename).is_relative_to(SOURCE)]
        walks.append([frame.name for frame in frames])
        raise RuntimeError("seen enough")

    monkeypatch.setattr(loop, "training_step", look_back)
    assert seqlab_command("lm", "train", small_text, "--out", "run", *TINY_FLAGS).code == 1
    walk = walks[0]
    assert (walk[0], walk[-1]) == ("main", "train")
    assert len(walk) <= MOST_FUNCTIONS
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text()
    described = page.split("## The walk of `seqlab lm train")[1].split("###")[0]
    passed_by = [name for name in walk if f"{name}`" not in described]
    assert not passed_by, "docs/architecture.md walks past a function"


def test_conflicts_with_a_run_are_told_before_torch_is_loaded(seqlab_command: Command, small_text: Path) -> None:
    """What the folder's own settings decide needs neither torch nor the text."""
    sizes = ["--tokenizer", "char", *TINY_FLAGS]
    assert seqlab_command("lm", "train", small_text, "--out", "run", *sizes).code == 0
    assert seqlab_command("lm", "train", small_text, "--model", "ngram", "--out", "counts").code == 0
    asked = {
        "lm train my.txt --from run --width 99": "--width 99 conflicts with --from run, which has 16",
        "lm train my.txt --from counts": "an n-gram is fitted by counting and cannot be trained further",
        "cost run --width 99": "run has its own width; leave out --width",
        "lm mix run counts": "their tokenizers differ (char, ",
        "lm perplexity run+counts --on my.txt": "are no distribution over strings: train both with one tokenizer",
        "cost counts": "counts has a model 'ngram', which is counted, not trained",
        "lm train --out run --resume --width 99": "--width 99 conflicts with 16",
        "lm train --out run --resume --budget 2steps": "--budget 2steps conflicts with the run's 8steps",
        "lm train --out run --resume --threads 7": "--threads 7 conflicts with the run's 1",
        "lm train --out run --resume --from run": "leave out --config and --from",
        "lm train --out counts --resume --budget 5s": "--budget does not apply",
    }
    ended = subprocess.run([sys.executable, "-c", SCRIPT], input=json.dumps([*asked]), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    for (words, message), (code, err, torch_loaded) in zip(asked.items(), json.loads(ended.stdout), strict=True):
        assert code == 2, words
        assert message in err, (words, err)
        assert not torch_loaded, words
