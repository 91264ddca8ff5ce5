"""A run goes on with a longer budget of any unit, and says what becomes of its schedule."""

from pathlib import Path
from typing import Any

import pytest

import seqlab
from seqlab.core.errors import UsageError
from seqlab.core.reporting import Reporter
from seqlab.runs.conflicts import longer_budget
from seqlab.training import plan
from seqlab.training.schedules import Schedule

SECONDS = 5.0  # that a step is found to take


class Heard(Reporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def timed(small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run of 60 s, which are 12 steps of 32 tokens."""
    monkeypatch.setattr(plan, "measure_step", lambda *_: SECONDS)
    monkeypatch.setattr(plan, "measure_validation", lambda *_: 0.0)
    how = tiny | {"budget": "60s", "tokenizer": "byte", "guide": "none"}
    run = seqlab.train_lm(small_text, out=tmp_path / "run", model="gru", **how)
    assert (run.final["step"], run.record["seconds_per_step"]) == (12, SECONDS)
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("budget", "steps"), [("15steps", 15), ("512tokens", 16), ("80s", 16), ("0.06epochs", 16), ("12steps", 12)]
)
def test_a_time_budget_is_extended_in_any_unit(timed: Path, budget: str, steps: int) -> None:
    heard = Heard()
    run = seqlab.train_lm(out=timed, resume=True, budget=budget, reporter=heard)
    assert (run.final["step"], run.record["steps"]) == (steps, steps)
    if steps == 12:
        assert run.settings.training.budget == "60s", "the same number of steps changes nothing"
        return
    assert run.settings.training.budget == budget
    (said,) = [line for line in heard.lines if "longer budget" in line]
    rate = run.settings.training.learning_rate
    old, new = (Schedule(rate, n, 0.05, "linear", 0.0) for n in (12, steps))
    assert f"12 → {steps} steps" in said
    assert f"at step 12 the learning rate changes from {old(11):.2g} to {new(12):.2g}" in said
    assert f"it ends at {new(steps - 1):.2g}" in said
    assert seqlab.train_lm(out=timed, resume=True).final["step"] == steps


@pytest.mark.parametrize("budget", ["5steps", "100tokens", "0.01epochs", "50s"])
def test_a_shorter_budget_is_refused_in_any_unit(timed: Path, budget: str) -> None:
    before = (timed / "metrics.jsonl").read_bytes()
    with pytest.raises(UsageError, match=rf"--budget {budget} conflicts with the run's 60s \(12 steps\)"):
        seqlab.train_lm(out=timed, resume=True, budget=budget)
    assert (timed / "metrics.jsonl").read_bytes() == before


def test_only_a_run_whose_steps_were_timed_can_be_given_more_time() -> None:
    counted, timed_record = {"steps": 12}, {"steps": 12, "seconds_per_step": SECONDS}
    with pytest.raises(UsageError, match="of which no step was timed; say how many steps, tokens or epochs"):
        longer_budget("5m", "12steps", counted)
    assert longer_budget("5m", "12steps", timed_record) == "5m"
    assert longer_budget("1 min", "60s", timed_record) is None
    assert longer_budget(None, "60s", timed_record) is None
    assert longer_budget("2Mtokens", "12steps", counted) == "2Mtokens"
