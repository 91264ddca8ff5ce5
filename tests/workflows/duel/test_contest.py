"""A duel of another task, from start to page: strings of digits that a model gets right or wrong."""

import html
import itertools
import json
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from tests.contracts.parity import DEFAULTS, DataSettings, Drawn, Parity, Strings, loss
from torch import Tensor, nn

import seqlab
from seqlab.cli.duel import duel_text
from seqlab.core.errors import DamageError, UsageError
from seqlab.core.files import sha256_of
from seqlab.core.registry import TASKS
from seqlab.core.reporting import Reporter
from seqlab.core.settings.duel import DuelSettings, Rules
from seqlab.core.settings.fields import setting
from seqlab.core.settings.training import TrainingSettings
from seqlab.evaluation.statistics import equal_rows
from seqlab.runs.task import Task
from seqlab.training.objectives import Score
from seqlab.training.plan import Learning
from seqlab.workflows.duel.contest import Contest
from seqlab.workflows.duel.duel import compare_models
from seqlab.workflows.duel.folder import DuelFolder
from seqlab.workflows.duel.judge import curves_of
from seqlab.workflows.duel.terms import ERROR_RATE
from seqlab.workflows.duel.verdict import Duel

# --------------------------------------------------------------------------- the task: parity, of several kinds


class Constant(nn.Module):
    """Fitted at once: the answer that is right most often."""

    def __init__(self, digits: Tensor | None = None) -> None:
        super().__init__()
        odd = torch.zeros(1) if digits is None else answers(digits).double().mean()[None]
        self.register_buffer("odd", odd.float())

    def forward(self, digits: Tensor) -> Tensor:
        odd: Tensor = self.odd  # type: ignore[assignment]
        return torch.cat([1 - odd, odd]).log().expand(len(digits), 2)


def answers(digits: Tensor) -> Tensor:
    return (digits % 2).sum(1) % 2


def error_rate(model: nn.Module, digits: Tensor) -> float:
    return float((model(digits).argmax(1) != answers(digits)).double().mean())


KINDS = {"curved": "", "straight": "", "constant": ""}


@dataclass(frozen=True)
class ModelSettings:
    kind: str = setting("curved", "curved, straight or constant", flag="model", choices=tuple(KINDS))
    width: int | None = setting(None, "sums before the bend", kinds=("curved",))


@dataclass(frozen=True)
class KindsSettings:
    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingSettings = DEFAULTS


@dataclass(frozen=True)
class Parts:
    train: Strings
    validation: Strings
    test: Strings
    checksums: dict[str, str]
    facts: ClassVar[dict[str, Any]] = {}
    files: ClassVar[dict[str, bytes]] = {"alphabet.txt": b"0123456789"}


class ParityOfKinds(Parity):
    kind: ClassVar[str] = "parity-of-kinds"
    settings_type = KindsSettings

    def fill(self, settings: KindsSettings) -> KindsSettings:
        if settings.model.kind == "curved" and settings.model.width is None:
            settings = replace(settings, model=replace(settings.model, width=16))
        filled: KindsSettings = super().fill(settings)
        return filled

    def prepare(self, settings: KindsSettings, reporter: Any, kept: Any = None) -> Parts:  # type: ignore[override]
        content = Path(settings.data.file).read_bytes()
        parts = [Strings(torch.tensor(part)) for part in split(content)]
        return Parts(*parts, {"file": sha256_of(content)})

    def build(self, settings: KindsSettings, data: Parts, reporter: Any) -> nn.Module:
        return Constant(data.train.digits) if settings.model.kind == "constant" else self.outline(settings, data.files)

    def outline(self, settings: KindsSettings, files: Mapping[str, bytes]) -> nn.Module:  # type: ignore[override]
        table = partial(nn.EmbeddingBag, len(files["alphabet.txt"]), mode="sum")
        if settings.model.kind == "constant":
            return Constant()
        width = settings.model.width or 0
        return nn.Sequential(table(width), nn.Tanh(), nn.Linear(width, 2)) if width else table(2)

    def learning(self, settings: KindsSettings, data: Parts, model: nn.Module) -> Learning | None:  # type: ignore[override]
        if isinstance(model, Constant):
            return None
        return Learning(Drawn(data.train, settings.training.batch or 0, settings.training.seed), loss)

    def validate(self, model: nn.Module, data: Parts) -> Score:  # type: ignore[override]
        part = data.validation
        rate = error_rate(model, part.digits)
        return Score(loss(model, part, None).total.item() / part.count, {"validation_error_rate": rate})

    def measure(self, run: Any, data: Parts, reporter: Any) -> dict[str, Any]:  # type: ignore[override]
        parts = {name: getattr(data, name).digits for name in ("validation", "test")}
        rates = {name: {"error_rate": error_rate(run.model, d)} if len(d) else None for name, d in parts.items()}
        return {**rates, "headline": {"label": "error rate", "value": error_rate(run.model, parts["validation"])}}


# --------------------------------------------------------------------------- the contest


def split(content: bytes) -> list[list[list[int]]]:
    """Training, validation and test part: lines, with a blank line between the parts."""
    parts = [*content.decode().split("\n\n"), ""][:3]
    return [[[int(digit) for digit in line] for line in part.split()] for part in parts]


class ParityContest(Contest):
    rules = Rules(
        settings_type=KindsSettings,
        kinds=KINDS,
        fitted=("constant",),
        elsewhere={"file": "the file comes first", "model": "name the models", "seed": "say how many with --seeds"},
        example="curved,straight",
        command=("judge", "compare"),
    )
    terms = replace(ERROR_RATE, models="judges of strings", counted="strings", blocks="strings")
    task: ClassVar[Task] = ParityOfKinds()

    def __init__(self, source: str, flags: dict[str, Any], reporter: Reporter) -> None:
        super().__init__(source, flags, reporter)
        content = Path(source).read_bytes()
        self.name, self.sha256, self.stem = Path(source).name, sha256_of(content), Path(source).stem
        self.place = {"file": source}
        _, validation, test = split(content)
        self.part = "test" if test else "validation"
        self.rows = test or validation
        self.blocks = equal_rows([tuple(row) for row in self.rows])

    def prepare(self) -> Parts:
        settings = KindsSettings(DataSettings(self.place["file"]))
        return ParityOfKinds().prepare(settings, self.reporter)

    @property
    def sizes(self) -> Any:
        return np.bincount(self.blocks)

    def score(self, run: Any) -> list[float]:
        digits = torch.tensor(self.rows)
        errors = (run.model(digits).argmax(1) != answers(digits)).double().numpy()
        scores: list[float] = np.bincount(self.blocks, errors).tolist()
        return scores

    @property
    def basis(self) -> str:
        return f"error rate on the {self.part} strings: {len(self.rows):,}, of which {len(self.sizes):,} are different"


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, "parity-of-kinds", f"{__name__}:ParityOfKinds")
        yield


def write_strings(folder: Path) -> Path:
    """600 strings of three digits to learn from, 100 to choose by, 300 (some of them twice) to decide."""
    draw = np.random.default_rng(0)
    lines = ["".join(map(str, row)) for row in draw.integers(10, size=(1000, 3))]
    path = folder / "digits.txt"
    path.write_text("\n\n".join("\n".join(part) for part in (lines[:600], lines[600:700], lines[700:])))
    return path


@pytest.fixture
def strings(tmp_path: Path) -> Path:
    return write_strings(tmp_path)


MODELS = "curved,straight,constant"
TINY = {"budget": "80steps", "batch": 64, "eval_every": 20, "learning_rate": 0.05}


def compare_strings(
    source: Path, models: str = MODELS, match: str = "time", seeds: int = 2, *, out: Any, reporter: Any = None, **f: Any
) -> Duel:
    asked = DuelSettings(models, match, seeds)
    return compare_models(ParityContest, str(source), asked, TINY | f, out=out, threads=1, reporter=reporter)


# --------------------------------------------------------------------------- duels


class Watcher(Reporter):
    """Interrupts, as Ctrl-C does, on the way of the run whose name it is given."""

    def __init__(self, stop: str = "") -> None:
        self.stop = stop
        self.lines: list[str] = []
        self.tasks: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)

    warn = note

    def start(self, task: str, total: float | None) -> None:
        self.tasks.append(task)

    def advance(self, done: float, figures: dict[str, Any] | None = None) -> None:
        if self.tasks[-1] == f"{self.stop}: training" and done >= 30:
            self.stop = ""
            signal.raise_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Duel, list[str]]:
    """A duel of all kinds with two seeds each, and what was said on the way."""
    place = tmp_path_factory.mktemp("parity")
    watcher = Watcher()
    return compare_strings(write_strings(place), out=place / "duel", reporter=watcher, width=32), watcher.lines


@pytest.fixture
def unpainted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take a second each."""
    monkeypatch.setattr("seqlab.workflows.duel.judge.duel_curves", lambda *_, **__: b"picture")


def test_a_duel_of_another_task_from_start_to_page(finished: tuple[Duel, list[str]], strings: Path) -> None:
    duel, out = finished[0], finished[0].folder
    trained = [f"{kind}-seed{seed}" for kind in ("curved", "straight") for seed in (0, 1)]
    files = {"duel.json", "curves.png", "report.html", "models.csv", "pairs.csv"}
    assert {p.name for p in out.iterdir()} == {*files, "constant-seed0", *trained}
    test = torch.tensor(split(strings.read_bytes())[2])
    for one in duel.contestants:
        rates = [error_rate(seqlab.load(run).model, test) for run in one.runs]
        assert one.error_rate == pytest.approx(np.mean(rates), rel=1e-12)
        assert 0 <= one.interval.low <= one.value <= one.interval.high <= 1
        assert one.interval.blocks == len(set(map(tuple, test.tolist()))) < len(test)
        assert not hasattr(one, "bits_per_byte")
    curved, straight, constant = duel.contestants
    assert curved.entrant.sizes == {"width": 32}
    assert "width" not in straight.entrant.flags
    assert constant.entrant.fitted
    assert (curved.strings, straight.seeds, constant.seeds) == (80 * 64, 2, 1)
    assert duel.winner == "curved"
    assert duel.sentence.startswith(f"The winner is curved: an error rate of {curved.value:.2%} (")
    assert [(c.a, c.b) for c in duel.comparisons] == list(itertools.combinations(MODELS.split(","), 2))
    assert duel.comparisons[0].found.value == pytest.approx(curved.value - straight.value)
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_every_word_is_the_task_s_own(finished: tuple[Duel, list[str]]) -> None:
    duel, lines = finished
    page = (duel.folder / "report.html").read_text()
    assert html.escape(duel.sentence) in page
    written = "\n".join([duel_text(duel), json.dumps(duel.as_json()), *lines])
    for alien in ("bits", "byte", "token", "n-gram", "flops", "counting", "held-out text"):
        assert alien not in written
        assert alien not in page.split("</style>")[1].replace("base64", "")
    assert "A duel of judges of strings" in page
    assert "Error rate on validation texts against training time and against strings" in page
    assert " Judged: error rate on the test strings: 300, of which " in duel.sentence
    assert "each was given 80steps (10 passes through the training part), 2 seeds each." in duel.sentence
    assert "It speaks of other texts of the kind of these." in duel.sentence
    answer = duel.as_json()
    assert {"kind", "sizes", "parameters", "seeds", "runs", "error_rate", "interval", "seconds", "strings"} <= set(
        answer["models"][0]
    )
    assert answer["winner"] == duel.winner
    assert any(line.startswith("curved-seed0: an error rate of ") for line in lines)
    assert "constant: fitted at once, once: no seeds, no sizes, no budget" in lines


def test_curves_are_the_validations_on_the_way(finished: tuple[Duel, list[str]]) -> None:
    folder = DuelFolder(finished[0].folder)
    curves = curves_of(folder, folder.read(), ParityContest.terms)
    assert list(curves) == ["curved", "straight", "constant (fitted)"]
    for run, curve in zip(("curved-seed0", "curved-seed1"), curves["curved"], strict=True):
        lines = [line for line in seqlab.load(folder.path / run).metrics if "validation_error_rate" in line]
        assert curve.values == [line["validation_error_rate"] for line in lines]
        assert curve.counts == [64 * step for step in (20, 40, 60, 80)]
    assert len(curves["constant (fitted)"][0].values) == 1


def figures(duel: Duel) -> Any:
    """Everything that is not a time or a place."""
    table = json.loads(json.dumps(duel.as_json()))
    for model in table["models"]:
        del model["seconds"], model["runs"]
    del table["folder"]
    return table


@pytest.mark.usefixtures("unpainted")
def test_it_goes_on_exactly_and_takes_more_seeds(
    finished: tuple[Duel, list[str]], strings: Path, tmp_path: Path
) -> None:
    torn = compare_strings(strings, out=tmp_path / "torn", reporter=Watcher("straight-seed1"), width=32)
    assert torn.sentence == "interrupted: 4 of 5 runs are finished; repeat the same command to go on"
    assert torn.as_json()["interrupted"]
    again = compare_strings(strings, out=tmp_path / "torn", width=32)
    assert figures(again) == figures(finished[0])
    more = compare_strings(strings, out=tmp_path / "torn", seeds=3, width=32)
    assert [one.seeds for one in more.contestants] == [3, 3, 1]
    assert "(2 → 3)" in more.sentence
    (tmp_path / "torn" / "curved-seed0" / "metrics.jsonl").unlink()
    with pytest.raises(DamageError, match="curved-seed0"):
        compare_strings(strings, out=tmp_path / "torn", seeds=3, width=32)


@pytest.mark.usefixtures("unpainted")
def test_a_time_budget_is_timed_once_for_each_model(strings: Path, tmp_path: Path) -> None:
    duel = compare_strings(strings, "curved,straight", out=tmp_path / "duel", budget="0.05s")
    for one in duel.contestants:
        assert {seqlab.load(run).record["steps"] for run in one.runs} == {one.entrant.steps}


@pytest.mark.usefixtures("unpainted")
def test_without_a_test_part_the_validation_part_decides(strings: Path, tmp_path: Path) -> None:
    strings.write_text("\n\n".join(strings.read_text().split("\n\n")[:2]))
    duel = compare_strings(strings, "curved,constant", seeds=1, out=tmp_path / "duel")
    assert duel.part == "validation"
    assert "no test part, and the best weights were chosen on these very texts: the figures flatter" in duel.sentence
    final = seqlab.load(duel.contestants[0].runs[0]).final
    assert duel.contestants[0].value == pytest.approx(final["validation"]["error_rate"])


@pytest.mark.usefixtures("unpainted")
def test_a_model_without_errors_says_that_its_interval_says_nothing(strings: Path, tmp_path: Path) -> None:
    train, validation, _ = strings.read_text().split("\n\n")
    even = "\n".join(f"{k}{k}0" for k in range(10) for _ in range(4))  # the constant answers "even" or is always wrong
    strings.write_text("\n\n".join([train, validation, even]))
    duel = compare_strings(strings, "constant,curved", seeds=1, out=tmp_path / "duel")
    assert duel.contestants[0].value in (0.0, 1.0)
    assert duel.contestants[0].interval.blocks == 10
    assert "But only 10 different texts: the interval is unreliable." in duel.sentence
    assert "But constant: the same on all strings" in duel.sentence


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"match": "parameters"}, "--match parameters is not a choice here: .*; say --match time"),
        ({"match": "flops"}, "--match flops is not a choice here"),
        ({"match": "tim"}, "--match 'tim' is not known; did you mean 'time'"),
        ({"models": "curvd"}, "unknown model 'curvd'; did you mean 'curved'"),
        ({"models": " "}, "for example --models curved,straight"),
        ({"models": "straight,constant", "width": 3}, "--width does not apply: none of straight, constant has it"),
        ({"models": "straight"}, "--models names straight alone; a duel needs two models, such as curved,straight"),
        ({"seed": 1}, "--seed is not a choice for a duel: say how many with --seeds"),
        ({"file": "x"}, "--file is not a choice for a duel: the file comes first"),
    ],
)
def test_wrong_questions_are_one_line(change: dict[str, Any], words: str, strings: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        compare_strings(strings, out=tmp_path / "duel", **change)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "duel").exists()


def test_a_duel_of_language_models_is_another_duel(strings: Path, tmp_path: Path, small_text: Path) -> None:
    seqlab.compare_lms(
        small_text, models="ngram,bigram", budget="2steps", seeds=1, out=tmp_path / "duel", threads=1, tokenizer="char"
    )
    with pytest.raises(UsageError, match="holds a duel of another task; choose another --out"):
        compare_strings(strings, out=tmp_path / "duel")
