"""The duel: from a text to a verdict, going on after an interruption, and the command."""

import csv
import html
import io
import itertools
import json
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import nonsense

import seqlab.workflows.duel.lm as workflow
from seqlab.cli import main
from seqlab.core.errors import DamageError, UsageError
from seqlab.core.reporting import Reporter
from seqlab.core.settings.lm_presets import PRESETS
from seqlab.runs.run import load
from seqlab.workflows.duel.entrants import Cost, Entrant
from seqlab.workflows.duel.folder import DuelFolder
from seqlab.workflows.duel.lm import compare_lms
from seqlab.workflows.duel.report import model_rows
from seqlab.workflows.duel.verdict import Duel

TINY: dict[str, Any] = dict(budget="20steps", width=16, batch=4, context=8, eval_every=5, threads=1, tokenizer="char")
FLAGS = "--budget 20steps --width 16 --batch 4 --context 8 --eval-every 5 --threads 1 --tokenizer char"
TINY_FLAGS = FLAGS.split()


# --------------------------------------------------------------------------- duels


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """About 120 KB: a test part of twelve blocks, enough for a verdict."""
    path = tmp_path / "tale.txt"
    path.write_text(nonsense(22_000), encoding="utf-8", newline="")
    return path


def figures(duel: Duel) -> Any:
    """Everything that is not a time or a place."""
    table = json.loads(json.dumps(duel.as_json()))
    for model in table["models"]:
        del model["seconds"], model["runs"]
    del table["folder"]
    return table


def test_a_duel_from_text_to_verdict(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "duel"
    duel = compare_lms(text, models="lstm,ngram,transformer", match="parameters", seeds=2, out=out, **TINY)
    assert {p.name for p in out.iterdir()} == {
        *("duel.json", "curves.png", "report.html", "models.csv", "pairs.csv", "ngram-seed0"),
        *(f"{kind}-seed{seed}" for kind in ("lstm", "transformer") for seed in (0, 1)),
    }
    lstm, ngram, transformer = duel.contestants
    assert lstm.entrant.sizes["width"] == 16
    assert transformer.parameters == pytest.approx(lstm.parameters, rel=0.1)
    assert transformer.entrant.deviation == pytest.approx(transformer.parameters / lstm.parameters - 1)
    assert (lstm.seeds, ngram.seeds) == (2, 1)
    assert ngram.entrant.fitted
    for one in duel.contestants:
        runs = [load(run) for run in one.runs]
        tests = [run.final["test"]["bits_per_byte"] for run in runs]  # type: ignore[index]
        assert one.bits_per_byte == pytest.approx(np.mean(tests), rel=1e-6)
        assert one.interval.low < one.bits_per_byte < one.interval.high
        assert one.parameters == runs[0].record["parameters"]
    assert len({load(run).record["tokenizer_sha256"] for one in duel.contestants for run in one.runs}) == 1
    assert duel.winner is None  # twenty steps teach nobody anything
    assert duel.sentence.startswith("There is no winner: ngram has the least")
    assert "lstm (20 steps, 0.0081 passes through its training part) and transformer (20 steps" in duel.sentence
    assert "have only begun to learn: this tells who starts fastest, no more; give a longer --budget." in duel.sentence
    assert [(c.a, c.b) for c in duel.comparisons] == list(itertools.combinations(["lstm", "ngram", "transformer"], 2))
    page = (out / "report.html").read_text()
    assert duel.sentence in page
    assert "data:image/png;base64," in page
    assert "http" not in page.replace("http-equiv", "")
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    links = re.findall(r'href="([^"]+)"', page)
    assert {"models.csv", "pairs.csv", "lstm-seed1/report.html", "ngram-seed0/report.html"} <= set(links)
    assert all((out / link).is_file() for link in links)
    note = " ".join(page.split("Thick: the mean over the seeds")[1].split("</p>")[0].split())
    assert "a part of the validation text" in note
    assert "all of the test part" in note


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_the_tables_lie_beside_the_page_with_every_digit(text: Path, tmp_path: Path) -> None:
    duel = compare_lms(text, models="bigram,ngram", seeds=2, out=tmp_path / "duel", **TINY)
    models, pairs = (rows_of(tmp_path / "duel" / name) for name in ("models.csv", "pairs.csv"))
    best_first = sorted(duel.contestants, key=lambda one: one.value)
    assert [row["model"] for row in models] == [one.kind for one in best_first]
    for row, one in zip(models, best_first, strict=True):
        figures = (one.value, one.interval.low, one.interval.high, one.parameters, one.count)
        names = ("bits_per_byte", "low", "high", "parameters", "tokens")
        assert tuple(float(row[name]) for name in names) == figures
    assert {row["model"]: row["seeds"] for row in models} == {"bigram": "2", "ngram": ""}
    assert [(row["a"], row["b"]) for row in pairs] == [("bigram", "ngram")]
    assert float(pairs[0]["difference"]) == duel.comparisons[0].found.value


def test_a_page_says_what_the_terminal_warned_of_and_how_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The held-out end of this text stands in its beginning too; the command goes on with the duel that it made."""
    monkeypatch.chdir(tmp_path)
    Path("my tale.txt").write_text(nonsense(1500) * 2, encoding="utf-8", newline="")
    watcher = Watcher()
    asked = TINY | dict(models="bigram,ngram", seeds=1, out="duel", reporter=watcher)
    compare_lms("my tale.txt", **asked)
    (warning,) = (line for line in watcher.lines if "stands in the training text" in line)
    page = html.unescape(Path("duel/report.html").read_text(encoding="utf-8"))
    assert warning in page
    command = page.split("<pre>")[1].split("</pre>")[0]
    words = shlex.split(command)
    assert words[:4] == ["seqlab", "lm", "compare", "my tale.txt"]
    assert {"--models", "bigram,ngram", "--eval-every", "5", "--tokenizer", "char"} <= set(words)
    before = contents(tmp_path / "duel" / "bigram-seed0")
    assert main(words[1:]) == 0
    assert contents(tmp_path / "duel" / "bigram-seed0") == before
    again = html.unescape(Path("duel/report.html").read_text(encoding="utf-8"))
    assert warning in again, "no run was trained this time"


def test_equal_flops_mean_equal_tokens(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS["transformer"]["small"], "batch", 8)  # half as many tokens in a step
    flags = {k: v for k, v in TINY.items() if k not in ("batch", "context")} | {"width": 48}
    duel = compare_lms(
        text, models=["gru", "transformer", "bigram"], match="flops", seeds=1, out=tmp_path / "d", **flags
    )
    costs = [one.entrant.cost for one in duel.contestants]
    assert all(cost is not None for cost in costs)
    assert [cost.flops_per_token for cost in costs if cost] == pytest.approx([costs[0].flops_per_token] * 3, rel=0.1)  # type: ignore[union-attr]
    assert [one.tokens for one in duel.contestants] == [20 * 32 * 32] * 3
    assert [one.entrant.steps for one in duel.contestants] == [20, 40, 20]
    assert "But one seed each compares runs, not recipes" in duel.sentence
    cells = {row[0]: row[4:6] for row in model_rows(duel)}
    assert [("%" in cell) for cell in cells["transformer"]] == [False, True]  # how far off stands beside the flops


def test_matched_times_keep_the_presets_and_time_each_model_once(text: Path, tmp_path: Path) -> None:
    flags = TINY | {"budget": "0.3s"}
    del flags["width"]
    duel = compare_lms(text, models="rnn,bigram", seeds=2, out=tmp_path / "duel", **flags)
    rnn, bigram = duel.contestants
    assert (rnn.entrant.sizes["width"], bigram.entrant.sizes["width"]) == (256, 50)
    for one in duel.contestants:
        steps = {load(run).record["steps"] for run in one.runs}
        assert steps == {one.entrant.steps}


class Watcher(Reporter):
    """Interrupts, as Ctrl-C does, at the first step of the run whose name it is given."""

    def __init__(self, stop: str = "") -> None:
        self.stop, self.lines, self.tasks = stop, [], []  # type: ignore[var-annotated]

    def note(self, line: str) -> None:
        self.lines.append(line)

    warn = note

    def start(self, task: str, total: float | None) -> None:
        self.tasks.append(task)

    def advance(self, done: float, figures: dict[str, Any] | None = None) -> None:
        if self.tasks[-1] == f"{self.stop}: training" and done >= 7:
            self.stop = ""
            signal.raise_signal(signal.SIGINT)


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(p): (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def test_an_interrupted_duel_goes_on(text: Path, tmp_path: Path) -> None:
    asked = TINY | dict(models="gru,rnn", match="parameters", seeds=2)
    whole = compare_lms(text, out=tmp_path / "whole", **asked)
    watcher = Watcher(stop="gru-seed1")
    torn = compare_lms(text, out=tmp_path / "torn", reporter=watcher, **asked)
    assert not torn.finished
    assert torn.sentence == "interrupted: 2 of 4 runs are finished; repeat the same command to go on"
    assert torn.sentence in watcher.lines
    assert torn.as_json()["winner"] is None
    finished = {name: contents(tmp_path / "torn" / name) for name in ("gru-seed0", "rnn-seed0")}
    watcher = Watcher()
    again = compare_lms(text, out=tmp_path / "torn", reporter=watcher, **asked)
    assert {name: contents(tmp_path / "torn" / name) for name in finished} == finished
    assert figures(again) == figures(whole)
    assert not any("seed0: training" in task for task in watcher.tasks)
    assert sum(task.endswith(": training") for task in watcher.tasks) == 2


def test_a_crash_while_scoring_loses_no_training(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = TINY | dict(models="gru,ngram", seeds=1, out=tmp_path / "duel")

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(workflow, "block_sums", die)
        with pytest.raises(KeyboardInterrupt):
            compare_lms(text, **asked)
    before = contents(tmp_path / "duel" / "gru-seed0")
    assert compare_lms(text, **asked).finished
    assert contents(tmp_path / "duel" / "gru-seed0") == before


def test_a_finished_duel_is_reported_again_and_takes_more_seeds(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = TINY | dict(models="gru,rnn")
    first = compare_lms(text, seeds=1, **asked)
    assert first.folder == Path("runs/compare-tale-1")
    watcher = Watcher()
    again = compare_lms(text, seeds=1, reporter=watcher, **asked)
    assert (again.folder, figures(again)) == (first.folder, figures(first))
    assert not watcher.tasks
    more = compare_lms(text, seeds=2, **asked)
    assert more.folder == first.folder
    assert [one.seeds for one in more.contestants] == [2, 2]
    assert "But seeds were added after a look at the result (1 → 2): p values are too small." in more.sentence
    assert "But two seeds tell little about the luck of the seed" in more.sentence
    assert "two seeds" not in again.sentence
    other = compare_lms(text, seeds=1, **(asked | {"models": "gru,bigram"}))
    assert other.folder == Path("runs/compare-tale-2")


def test_another_question_in_the_same_folder_is_refused(text: Path, tmp_path: Path) -> None:
    asked = TINY | dict(models="gru,ngram", seeds=2, out=tmp_path / "duel")
    compare_lms(text, **asked)
    before = contents(tmp_path / "duel")
    for change, words in (
        ({"models": "rnn,ngram"}, "another duel: models gru,ngram, not rnn,ngram"),
        ({"budget": "30steps"}, "another duel: budget 20steps, not 30steps"),
        ({"match": "flops"}, "another duel: match time, not flops"),
        ({"width": 17}, "another duel: settings "),
        ({"seeds": 1}, "has 2 seeds already, not 1"),
    ):
        with pytest.raises(UsageError, match=words):
            compare_lms(text, **(asked | change))
    text.write_text(nonsense(22_000, seed=1))
    with pytest.raises(UsageError, match="another duel: text sha256 "):
        compare_lms(text, **asked)
    assert contents(tmp_path / "duel") == before
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "precious.txt").write_text("x")
    with pytest.raises(UsageError, match="exists already and holds no duel"):
        compare_lms(text, **(asked | {"out": tmp_path / "notes"}))


def test_a_changed_record_is_not_believed(text: Path, tmp_path: Path) -> None:
    asked = TINY | dict(models="gru,ngram", seeds=1, out=tmp_path / "duel")
    compare_lms(text, **asked)
    file = DuelFolder(tmp_path / "duel").file
    file.write_bytes(file.read_bytes().replace(b'"width":16', b'"width":61'))
    with pytest.raises(DamageError, match="duel.json is not what seqlab wrote"):
        compare_lms(text, **asked)


def test_without_a_test_part_the_validation_part_decides(text: Path, tmp_path: Path) -> None:
    duel = compare_lms(text, models="gru,ngram", seeds=1, out=tmp_path / "duel", split="80/20", **TINY)
    assert duel.part == "validation"
    assert "There is no test part, and the best weights were chosen on this very text" in duel.sentence
    final = load(duel.contestants[0].runs[0]).final
    assert final is not None
    assert duel.contestants[0].bits_per_byte == pytest.approx(final["validation"]["bits_per_byte"], rel=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"models": "lstm,trasformer"}, "unknown model 'trasformer'; did you mean 'transformer'"),
        ({"models": ""}, "--models names no model"),
        ({"models": "gru,gru"}, "names 'gru' twice"),
        ({"models": "gru"}, "--models names gru alone; a duel needs two models, such as lstm,transformer,gru"),
        ({"match": "paramters"}, "--match 'paramters' is not known; did you mean 'parameters'"),
        ({"seeds": 0}, "--seeds 0 must lie between 1 and 1,000"),
        ({"budget": "soon"}, "budget 'soon' is not understood"),
        ({"size": "large"}, "--size is not a choice for a duel: the sizes follow from --budget"),
        ({"seed": 3}, "--seed is not a choice for a duel: say how many with --seeds"),
        ({"model": "gru"}, "--model is not a choice for a duel: name the models with --models"),
        ({"heads": 4}, "--heads does not apply: none of gru, rnn has it"),
        ({"tokenizer": "chr"}, "--tokenizer 'chr' is not known; did you mean 'char'"),
        ({"dropot": 0.1}, "unknown setting 'dropot'; did you mean 'dropout'"),
    ],
)
def test_wrong_questions_are_one_line(change: dict[str, Any], words: str, text: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        compare_lms(text, **(TINY | {"models": "gru,rnn", "out": tmp_path / "duel"} | change))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "duel").exists()


def test_a_text_that_can_be_read_only_once(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.read_bytes())))
    duel = compare_lms("-", models="gru,rnn", seeds=1, out=tmp_path / "duel", **TINY)
    assert duel.finished


# --------------------------------------------------------------------------- the command


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> tuple[int, str, str]:
        capfd.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as leave:
            code = int(leave.code or 0)
        return (code, *capfd.readouterr())

    return run


def test_the_command(command: Any, text: Path) -> None:
    words = ("lm", "compare", text, "--models", "gru,ngram", "--seeds", 1, "--match", "parameters", *TINY_FLAGS)
    code, out, err = command(*words)
    assert code == 0, err
    assert "There is no winner: ngram has the least" in out
    assert "gru − ngram" in out
    assert "fitted" in out
    assert "folder: runs/compare-tale-1" in out
    code, out, err = command(*words, "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert answer["winner"] is None
    assert {
        "kind",
        "sizes",
        "parameters",
        "flops_per_token",
        "seeds",
        "runs",
        "bits_per_byte",
        "interval",
        "seconds",
    } <= (answer["models"][0].keys())
    assert answer["models"][1]["flops_per_token"] is None
    assert {"a", "b", "difference", "interval", "p"} <= answer["comparisons"][0].keys()
    assert not any(line.startswith("{") for line in err.splitlines())


def test_the_command_refuses_and_helps(command: Any, text: Path) -> None:
    code, out, _ = command("lm", "compare", "--help")
    assert code == 0
    assert "seqlab lm compare my.txt --models lstm,transformer,gru" in out
    for wrong in (("--match", "luck"), ("--size", "small"), ("--seeds", "none")):
        code, out, err = command("lm", "compare", text, "--models", "gru,rnn", *wrong)
        assert code == 2
        assert len(err.strip().splitlines()) == 1
        assert out == ""


def test_costs_are_kept_in_the_record() -> None:
    entrant = Entrant("gru", {"width": 3}, {"width": 3}, 5, 100, Cost(7, 8.5), 0.01)
    assert Entrant.from_json(json.loads(json.dumps(entrant.as_json()))) == entrant
