"""`measure_scaling` and `measure_crossover` with times from a formula: rows, sentences, JSON, pages, memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import seqlab
from seqlab.core.errors import UsageError
from seqlab.core.reporting import Reporter
from seqlab.core.settings.cost_measured import CrossoverSettings
from seqlab.diagnostics.timed_layers import Run, Shape, held_bytes, step_bytes
from seqlab.workflows.cost import crossover, scaling
from seqlab.workflows.cost.crossover import fitting_lengths

SCALING: dict[str, Any] = dict(
    **dict(layers="softmax,gru", lengths="8,16,32", widths="8,16,32", head_counts="1,2,4"),
    **dict(length=16, width=8, heads=2, rounds=3),
)
CROSSOVER: dict[str, Any] = dict(lengths="4,8,16,32,64", width=8, heads=2, rounds=3)


def by_length(run: Run) -> float:
    """softmax n² d, others 20 n d, at one head; times the number of heads' root."""
    shape = run.shape
    n = shape.length
    return 1e-6 * (n * n if shape.kind == "softmax" else 20 * n) * shape.width * shape.heads**0.5


class Watching(Reporter):
    def __init__(self) -> None:
        self.total: float | None = None
        self.seen: list[float] = []

    def start(self, task: str, total: float | None) -> None:
        self.total = total

    def advance(self, done: float, figures: dict[str, str] | None = None) -> None:
        self.seen.append(done)


# --------------------------------------------------------------------------- scaling


def test_scaling(tmp_path: Path) -> None:
    watching, page = Watching(), tmp_path / "s.html"
    before = torch.random.get_rng_state()
    found = seqlab.measure_scaling(**SCALING, out=page, timer=by_length, reporter=watching)
    assert torch.equal(torch.random.get_rng_state(), before)
    rows = {(row["layer"], row["axis"], row["what"]): row for row in json.loads(json.dumps(found.as_json()))["rows"]}
    assert len(rows) == 3 * (2 + 2 + 1), "a gru has no heads"
    assert rows["softmax", "length", "forward"]["exponent"] == pytest.approx(2)
    assert rows["gru", "length", "training"]["exponent"] == pytest.approx(1)
    assert rows["gru", "width", "training"]["interval"] == pytest.approx([1, 1])
    assert rows["softmax", "heads", "forward"]["exponent"] == pytest.approx(0.5)
    assert rows["gru", "length", "forward"]["verdict"] == "agrees"
    assert rows["gru", "width", "forward"]["verdict"] == "differs"
    assert rows["gru", "width", "forward"]["formula"] == pytest.approx(2)
    assert rows["softmax", "heads", "forward"]["reason"] == "uncounted"
    assert rows["gru", "length", "bytes"]["interval"] is None
    assert rows["gru", "width", "forward"]["tendency"] == 2
    assert all(len(row) == len(found.header) for row in found.rows)
    assert watching.seen == list(range(int(watching.total or 0)))
    text = page.read_text(encoding="utf-8")
    assert text.count("data:image/png;base64,") == 3
    assert "http" not in text
    count = sum(row["verdict"] == "agrees" for row in rows.values())
    assert found.answer[0].startswith(f"{count} of 15 measured exponents agree")
    assert "Against length n, time of a step: softmax n^2.00" in found.answer[1]


def test_what_does_not_fit_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The larger lengths of softmax attention, which shares the memory with a gru."""
    base = Shape("softmax", 1, 1, 8, 2)
    shapes = [base.at("length", n) for n in (8, 16, 32)]
    spare = 2 * (sum(map(held_bytes, shapes)) + step_bytes(shapes[-1])) / 0.8 + 1
    monkeypatch.setattr(scaling, "available_bytes", lambda: spare)
    only = SCALING | {"axes": "length", "lengths": "8,16,32,64,4096"}
    found = seqlab.measure_scaling(**only, timer=by_length)
    (left, *_) = [one for one in found.as_json()["left_out"] if one["layer"] == "softmax"]
    assert left["sizes"][-1] == 4096
    assert 8 not in left["sizes"]
    assert "left out, too large for the memory" in found.notes
    assert found.page is None
    monkeypatch.setattr(scaling, "available_bytes", lambda: 100)
    with pytest.raises(UsageError, match="fewer than 3 sizes of any layer fit into the memory"):
        seqlab.measure_scaling(**only, timer=by_length)


# --------------------------------------------------------------------------- crossover


def test_crossover(tmp_path: Path) -> None:
    """n² against 20 n: they cross at n = 20, counted at d/N = 4 keys of a head for separable attention."""
    watching, page = Watching(), tmp_path / "c.html"
    found = seqlab.measure_crossover(**CROSSOVER, out=page, timer=by_length, reporter=watching)
    answer = json.loads(json.dumps(found.as_json()))
    rows = {(row["kind"], row["causal"], row["what"]): row for row in answer["rows"]}
    assert len(rows) == 12
    for causal in (False, True):
        for what in ("forward", "training"):
            row = rows["separable", causal, what]
            assert (row["verdict"], row["length"]) == ("crosses", pytest.approx(20))
            assert row["interval"] == pytest.approx([20, 20])
            assert row["counted"] == (8 if causal else 5)
            assert row["ratios"] == pytest.approx([20 / n for n in (4, 8, 16, 32, 64)])
    memory = rows["random_features", True, "bytes"]
    assert (memory["verdict"], memory["length"], memory["counted_verdict"]) == ("never", None, "never")
    assert len(answer["curves"]) == 18
    assert all(len(row) == len(found.header) for row in found.rows)
    assert "separable faster from n = 20 on (20), counted from n = 5" in found.answer[0]
    assert "separable not before n = 64" in found.answer[-1]
    assert watching.seen == list(range(int(watching.total or 0)))
    text = page.read_text(encoding="utf-8")
    assert text.count("data:image/png;base64,") == 2
    assert "http" not in text
    assert "m = 16 random features" in found.basis


def test_always_and_never_in_words() -> None:
    first = seqlab.measure_crossover(**CROSSOVER, timer=lambda run: 2.0 if run.shape.kind == "softmax" else 1.0)
    assert "separable faster from the start, n = 4 (below 4), 0.50 times softmax's at n = 64" in first.answer[0]
    last = seqlab.measure_crossover(**CROSSOVER, timer=lambda run: 1.0 if run.shape.kind == "softmax" else 2.0)
    assert "separable not before n = 64 (above 64), 2.00 times" in last.answer[0]
    assert last.as_json()["rows"][0]["interval"] == [None, None]
    assert last.rows[0][3:5] == ["not before 64", "above 64"]


def test_lengths_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    base = Shape("random_features", 1, 1, 8, 2)
    asked = [4, 8, 16, 1 << 14]
    assert fitting_lengths(base, asked, None) == asked
    assert fitting_lengths(base, asked, 1e6) == asked[:3]
    with pytest.raises(UsageError, match="only 0 of the lengths fit into the 1.0 kB of memory"):
        fitting_lengths(base, asked, 1000)
    monkeypatch.setattr(crossover, "available_bytes", lambda: 1e6)
    found = seqlab.measure_crossover(**CROSSOVER | {"lengths": "4,8,16,16384"}, timer=by_length)
    assert (found.lengths, found.left_out) == ([4, 8, 16], [16384])
    assert found.notes.endswith("n = 16,384")


# --------------------------------------------------------------------------- both


@pytest.mark.parametrize("measure", [seqlab.measure_scaling, seqlab.measure_crossover])
def test_interrupted_leaves_nothing(measure: Any, tmp_path: Path) -> None:
    def interrupted(run: Run) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(out=tmp_path / "page.html", lengths="4,8,16", width=8, heads=2, timer=interrupted, **_small(measure))
    assert list(tmp_path.iterdir()) == []


def _small(measure: Any) -> dict[str, str]:
    return {"axes": "length"} if measure is seqlab.measure_scaling else {}


def test_settings_or_keywords() -> None:
    named = seqlab.measure_crossover(CrossoverSettings(**CROSSOVER), timer=by_length)
    assert named.as_json() == seqlab.measure_crossover(**CROSSOVER, timer=by_length).as_json()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"lengths": "8,4,16"}, "--lengths 8,4,16 must increase; give 4,8,16"),
        ({"lengths": "8,8,16"}, "must increase; give 8,16"),
        ({"lengths": "4,8"}, "2 sizes are too few for a slope; give 3 or more"),
        ({"lengths": "a,b,c"}, "must be whole numbers with commas between"),
        ({"lengths": "0,1,2"}, "must lie between 1 and 1,048,576"),
        ({"heads": 3}, "width 8 cannot be cut into 3 heads of one size"),
        ({"rounds": 1}, "--rounds 1 is too small"),
        ({"batch": 0}, "--batch 0 is too small"),
    ],
)
@pytest.mark.parametrize("measure", [seqlab.measure_scaling, seqlab.measure_crossover])
def test_wrong_use(measure: Any, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as error:
        measure(**{"width": 8, "heads": 2} | _small(measure) | asked)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_wrong_use_of_scaling() -> None:
    for asked, said in (
        ({"layers": "softmax,foo"}, "--layers 'foo' is not known"),
        ({"axes": ","}, "--axes names nothing"),
        ({"layers": "gru", "axes": "heads"}, "--layers gru have no heads"),
        ({"layers": "gru", "features": 4}, "--features 4 is for layer 'random_features'"),
        ({"features": 0}, "--features 0 is too small"),
        ({"head_counts": "1,2,3"}, "width 128 cannot be cut into 3 heads"),
        ({"widths": "32,64,66"}, "width 66 cannot be cut into 4 heads"),
    ):
        with pytest.raises(UsageError) as error:
            seqlab.measure_scaling(**asked)  # type: ignore[arg-type]
        assert said in str(error.value)
