"""The duel: equal sizes, honest intervals, a winner only where there is one, and going on after an interruption."""

import io
import itertools
import json
import math
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import nonsense

import seqlab.workflows.duel.duel as workflow
from seqlab.cli import main
from seqlab.core.errors import DamageError, UsageError
from seqlab.core.registry import MODELS
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import with_flags
from seqlab.core.settings.lm import PRESETS, LMSettings, fill_lm
from seqlab.core.settings.training import SIZES
from seqlab.diagnostics.cost import count_parameters
from seqlab.evaluation.statistics import (
    SeedDifference,
    compare,
    compare_runs,
    interval_of,
    interval_of_runs,
    seeds_to_settle,
    text_to_settle,
)
from seqlab.models.build import build_lm_from_settings, outline_lm
from seqlab.runs.run import load
from seqlab.workflows.duel.duel import compare_lms
from seqlab.workflows.duel.folder import DuelFolder
from seqlab.workflows.duel.plan import Entrant, sized_settings
from seqlab.workflows.duel.report import model_rows
from seqlab.workflows.duel.sizes import Cost, cost_of, solve_width, with_width
from seqlab.workflows.duel.verdict import Comparison, Contestant, Duel, advice, verdict

TINY: dict[str, Any] = dict(budget="20steps", width=16, batch=4, context=8, eval_every=5, threads=1, tokenizer="char")
FLAGS = "--budget 20steps --width 16 --batch 4 --context 8 --eval-every 5 --threads 1 --tokenizer char"
TINY_FLAGS = FLAGS.split()


# --------------------------------------------------------------------------- statistics


def luck(draw: np.random.Generator, seeds: int, spread: float, *, mean: float = 1400.0) -> Callable[[], np.ndarray]:
    """Models on the same 60 blocks of 1,000 bytes: nats (seeds, 60), each run with its own luck, in bits per byte."""
    hardness = draw.normal(mean, 150, 60)

    def model() -> np.ndarray:
        own = hardness + draw.normal(0, 15, 60) + draw.normal(0, 5, (seeds, 60))
        return own + draw.normal(0, 1000 * math.log(2) * spread, (seeds, 1))

    return model


BLOCKS = np.full(60, 1000)


@pytest.mark.parametrize(("seeds", "spread"), [(3, 0.01), (5, 0.01), (5, 0.1)])
def test_intervals_over_seeds_cover_what_they_promise(seeds: int, spread: float) -> None:
    """A plain percentile bootstrap covers 83 % with 3 seeds and 89 % with 5 where their luck dominates."""
    draw = np.random.default_rng(11)
    truth, covered = 1.4 / math.log(2), 0
    for repetition in range(400):
        found = interval_of_runs(luck(draw, seeds, spread)(), BLOCKS, resamples=400, seed=repetition)
        covered += found.low <= truth <= found.high
    assert 0.91 <= covered / 400 <= 0.98


@pytest.mark.parametrize(("seeds", "spread"), [(2, 0.1), (3, 0.01), (3, 0.1), (5, 0.1)])
def test_equal_models_have_no_winner(seeds: int, spread: float) -> None:
    """300 duels of equal models: about one in twenty is called, not the one in five of a plain bootstrap (3 seeds)."""
    draw = np.random.default_rng(12)
    called = 0
    for repetition in range(300):
        model = luck(draw, seeds, spread)
        called += compare_runs(model(), model(), BLOCKS, resamples=400, seed=repetition).p < 0.05
    assert called / 300 <= 0.08


def test_a_real_winner_is_found() -> None:
    draw = np.random.default_rng(13)
    for _ in range(20):
        model = luck(draw, 3, 0.01)
        found = compare_runs(model() - 0.1 * 1000 * math.log(2), model(), BLOCKS, resamples=999)
        assert found.p < 0.05
        assert found.interval.high < 0
        assert found.value == pytest.approx(-0.1, abs=0.05)


def test_one_run_each_is_the_plain_paired_test() -> None:
    draw = np.random.default_rng(14)
    a, b = draw.normal(1400, 100, 60), draw.normal(1410, 100, 60)
    plain, found = compare(a, b, BLOCKS), compare_runs(a[None], b[None], BLOCKS)
    assert found.value == pytest.approx(plain.value)
    assert found.p == pytest.approx(plain.p, abs=0.01)
    assert found.interval.low == pytest.approx(plain.interval.low, rel=0.05)
    alone, over = interval_of(a, BLOCKS), interval_of_runs(a[None], BLOCKS)
    assert (over.low, over.high) == pytest.approx((alone.low, alone.high), rel=1e-9)


def test_the_noise_is_told_apart() -> None:
    draw = np.random.default_rng(15)
    shared = draw.normal(1400, 100, 4000)
    sizes = np.full(4000, 1000)
    runs = np.array([[-2.0], [0.0], [2.0]]) * math.log(2) * 10 + shared
    other = np.repeat(draw.normal(1400, 100, 4000)[None], 3, 0)
    found = compare_runs(runs, other, sizes, resamples=4000)
    assert found.spreads == pytest.approx((0.02, 0.0), abs=1e-9)
    assert found.block_variance == pytest.approx(2 * 100**2 / 4000 / (1000 * math.log(2)) ** 2, rel=0.1)


def difference(value: float, spreads: tuple[float, float], variance: float) -> SeedDifference:
    same = compare_runs(np.ones((1, 2)), np.ones((1, 2)), np.ones(2), resamples=9)
    return SeedDifference(value, same.interval, 0.5, spreads, variance)


def test_how_many_more_seeds() -> None:
    found = difference(0.0197, (0.03, 0.04), 0.0)
    assert seeds_to_settle(found) == 25  # 1.96 · √(0.0025/25) = 0.0196; with 24 it is 0.0200
    assert advice(found, 3) == "about 22 more seeds for each model would settle it: --seeds 25"
    assert advice(found, 30) == "about 1 more seed for each model would settle it: --seeds 31"
    assert seeds_to_settle(difference(0.0196, (0.03, 0.04), 0.76e-4)) == 105
    hopeless = difference(0.0196, (0.03, 0.04), 4e-4)
    assert seeds_to_settle(hopeless) == math.inf
    assert text_to_settle(hopeless) == pytest.approx(4.0)
    assert advice(hopeless, 3) == (
        "more seeds cannot settle it: the text alone leaves ±0.0392; "
        "about 4 times as much held-out text would be needed"
    )
    assert "more than 1,000 seeds" in advice(difference(1e-5, (0.03, 0.04), 0.0), 3)
    assert "more than 1,000 times" in advice(difference(1e-6, (0.03, 0.04), 1e-4), 3)
    assert "try --seeds 3" in advice(difference(0.01, (0.0, 0.0), 1e-4), 1)
    assert advice(difference(0.0, (0.1, 0.1), 1e-4), 3) == "the two do not differ at all"


def contestant(kind: str, bits: float) -> Contestant:
    interval = difference(0, (0, 0), 0).interval
    return Contestant(Entrant(kind, {}, {}), [], 1, bits, interval, 1.0, 1.0)


def test_a_winner_beats_every_other_model() -> None:
    three = [contestant("gru", 2.0), contestant("ngram", 1.8), contestant("lstm", 1.9)]

    def pairs(*p: float) -> list[Comparison]:
        found = difference(-0.1, (0.01, 0.01), 0.0)
        return [
            Comparison(a.kind, b.kind, found, p_value, None if p_value < 0.05 else "ask again")
            for (a, b), p_value in zip(itertools.combinations(three, 2), p, strict=True)
        ]

    winner, sentence = verdict(three, pairs(0.01, 0.9, 0.04))  # gru − lstm is open, which does not matter
    assert winner == "ngram"
    assert sentence.startswith("The winner is ngram: 1.8000 bits per byte")
    winner, sentence = verdict(three, pairs(0.01, 0.01, 0.06))
    assert winner is None
    assert sentence.startswith("There is no winner: ngram has the least, 1.8000")
    assert "its lead over lstm (0.1000) is open (p = 0.06): ask again" in sentence
    assert "over gru" not in sentence
    assert verdict(three[:1], [])[0] is None
    assert "alone took part" in verdict(three[:1], [])[1]


# --------------------------------------------------------------------------- sizes


def settings_of(kind: str, **said: Any) -> LMSettings:
    return fill_lm(with_flags(LMSettings(), {"model": kind, **said}))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", sorted(MODELS))
def test_outlines_have_the_parameters_of_models(kind: str, size: str) -> None:
    settings = settings_of(kind, size=size)
    before = torch.get_rng_state()
    outline = outline_lm(settings, 300)
    assert torch.equal(before, torch.get_rng_state())
    assert {p.device.type for p in outline.parameters()} == {"meta"}
    assert count_parameters(outline) == count_parameters(build_lm_from_settings(settings, 300))


@pytest.mark.parametrize("match", ["parameters", "flops"])
@pytest.mark.parametrize("first", ["lstm", "transformer"])
@pytest.mark.parametrize("kind", sorted(MODELS))
def test_solved_widths_cost_as_much(kind: str, first: str, match: str) -> None:
    for size in ("small", "large"):
        target = cost_of(settings_of(first, size=size), 1000).by(match)
        solved = solve_width(settings_of(kind, size=size), 1000, match, target)
        assert cost_of(solved, 1000).by(match) == pytest.approx(target, rel=0.02)
        depth = settings_of(kind, size=size).model.depth
        assert solved.model.depth == depth
        build_lm_from_settings(solved, 30)  # the heads divide the width, evenly


def test_a_model_solved_for_itself_is_itself() -> None:
    for kind in MODELS:
        settings = settings_of(kind)
        for match in ("parameters", "flops"):
            assert solve_width(settings, 500, match, cost_of(settings, 500).by(match)) == settings


def test_the_width_that_is_said_is_the_first_model_s() -> None:
    said = {"width": 200, "dropout": 0.1, "heads": 2}
    for match in ("parameters", "flops"):
        sized = sized_settings(("ngram", "gru", "transformer", "bigram"), "20steps", match, {"width": 200}, 100)
        assert list(sized) == ["gru", "transformer", "bigram"]
        assert sized["gru"].model.width == 200
        target = cost_of(sized["gru"], 100).by(match)
        own = settings_of("transformer", size="small", budget="20steps")
        assert sized["transformer"] == solve_width(own, 100, match, target)
    matched = sized_settings(("gru", "transformer", "bigram"), "20steps", "time", said, 100)
    assert [settings.model.width for settings in matched.values()] == [200, 200, 200]
    assert matched["transformer"].model.heads == 2
    assert matched["bigram"].model.dropout is None


def test_heads_follow_the_width_and_keep_a_sensible_one() -> None:
    settings = settings_of("transformer")  # 128 in 4 heads of 32
    for width in range(1, 300):
        found = with_width(settings, width)
        if found is not None:
            heads = found.model.heads or 0
            assert width % heads == 0
            assert width // heads % 2 == 0
            assert min(8, width) <= width // heads <= 64
    assert with_width(settings, 144).model.heads == 4  # type: ignore[union-attr]
    assert with_width(settings, 134) is None
    assert with_width(settings, 132, fixed_heads=True) is None
    assert with_width(settings, 136, fixed_heads=True).model.heads == 4  # type: ignore[union-attr]


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
        *("duel.json", "curves.png", "report.html", "ngram-seed0"),
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
    assert duel.winner == "ngram"  # twenty steps teach nobody anything
    assert duel.sentence.startswith("The winner is ngram")
    assert [(c.a, c.b) for c in duel.comparisons] == list(itertools.combinations(["lstm", "ngram", "transformer"], 2))
    page = (out / "report.html").read_text()
    assert duel.sentence in page
    assert "data:image/png;base64," in page
    assert "http" not in page.replace("http-equiv", "")
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")


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
    assert any(note.startswith("one seed") for note in duel.notes)
    assert any(note.startswith("only 20 steps") for note in duel.notes)
    cells = {row[0]: row[2:4] for row in model_rows(duel)}
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
    assert sum("training" in task for task in watcher.tasks) == 2


def test_a_crash_while_scoring_loses_no_training(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = TINY | dict(models="gru", seeds=1, out=tmp_path / "duel")

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
    assert any("added after a look at the result (1 → 2)" in note for note in more.notes)
    other = compare_lms(text, seeds=1, **(asked | {"models": "gru"}))
    assert other.folder == Path("runs/compare-tale-2")
    assert "alone took part" in other.sentence


def test_another_question_in_the_same_folder_is_refused(text: Path, tmp_path: Path) -> None:
    asked = TINY | dict(models="gru", seeds=2, out=tmp_path / "duel")
    compare_lms(text, **asked)
    before = contents(tmp_path / "duel")
    for change, words in (
        ({"models": "rnn"}, "another duel: models gru, not rnn"),
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
    asked = TINY | dict(models="gru", seeds=1, out=tmp_path / "duel")
    compare_lms(text, **asked)
    file = DuelFolder(tmp_path / "duel").file
    file.write_bytes(file.read_bytes().replace(b'"width":16', b'"width":61'))
    with pytest.raises(DamageError, match="duel.json is not what seqlab wrote"):
        compare_lms(text, **asked)


def test_without_a_test_part_the_validation_part_decides(text: Path, tmp_path: Path) -> None:
    duel = compare_lms(text, models="gru", seeds=1, out=tmp_path / "duel", split="80/20", **TINY)
    assert duel.part == "validation"
    assert "there is no test part" in duel.notes[0]
    final = load(duel.contestants[0].runs[0]).final
    assert final is not None
    assert duel.contestants[0].bits_per_byte == pytest.approx(final["validation"]["bits_per_byte"], rel=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"models": "lstm,trasformer"}, "unknown model 'trasformer'; did you mean 'transformer'"),
        ({"models": ""}, "--models names no model"),
        ({"models": "gru,gru"}, "names 'gru' twice"),
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
    assert "The winner is ngram" in out
    assert "gru − ngram" in out
    assert "fitted" in out
    assert "folder: runs/compare-tale-1" in out
    code, out, err = command(*words, "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert answer["winner"] == "ngram"
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
