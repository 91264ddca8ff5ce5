"""How a duel of optimisers finds each learning rate."""

from pathlib import Path
from typing import Any

import pytest

from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import with_flags
from seqlab.core.settings.lm import LMSettings, fill_lm
from seqlab.workflows.duel.optimisers import BEGIN, MOST_TRIALS, OptimiserContest


class Notes(Reporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def contest(tmp_path: Path) -> OptimiserContest:
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 80, encoding="utf-8")
    return OptimiserContest(str(tmp_path / "text.txt"), {"tokenizer": "char"}, Notes())


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
@pytest.mark.parametrize("away", [0.03, 1.0, 30.0])
def test_the_search_goes_on_until_the_best_has_worse_neighbours(
    contest: OptimiserContest, monkeypatch: pytest.MonkeyPatch, kind: str, away: float
) -> None:
    settings = fill_lm(
        with_flags(LMSettings(), {"text": "t", "model": "gru", "learning_rate": 0.01, "optimiser": kind})
    )
    best, tried = 0.01 * BEGIN.get(kind, 1.0) * away, []

    def trial(_settings: Any, rate: float, _steps: int) -> float:
        tried.append(rate)
        return abs(rate - best) / best if rate < 10 * best else float("inf")

    monkeypatch.setattr(contest, "_trial", trial)
    found = contest._best_rate(kind, settings, 10)
    assert found == min(tried, key=lambda rate: abs(rate - best))
    assert best / 2 < found < best * 2
    assert min(tried) < found < max(tried)
    assert len(tried) == len(set(tried)) <= MOST_TRIALS


def test_a_search_that_ends_at_its_edge_says_so(contest: OptimiserContest, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = fill_lm(with_flags(LMSettings(), {"text": "t", "model": "gru", "learning_rate": 0.01}))
    monkeypatch.setattr(contest, "_trial", lambda _settings, rate, _steps: 1 / rate)
    contest._best_rate("adamw", settings, 10)
    assert "the last that was tried" in contest.reporter.lines[-1]  # type: ignore[attr-defined]
