"""The demonstration, offline and short."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.cli.conftest import Command, seqlab_command  # noqa: F401 (a fixture)

from seqlab.cli.demo import _who_is_ahead
from seqlab.workflows.demo import Row, alone_budget


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No registry, and a cache that holds nothing."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "no-index").as_uri())
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("offline")
def test_the_demo_without_a_registry(seqlab_command: Command) -> None:  # noqa: F811 (the fixture)
    answer = seqlab_command("demo", "--budget", "30steps", "--threads", 1)
    assert answer.code == 0, answer.err
    warnings = [line for line in answer.err.split("\n") if line.startswith("warning: ")]
    missing, shared = warnings  # one line each: no registry; and pydoc repeats itself, which flatters its figures
    assert "shakespeare" in missing
    assert "using 'pydoc' instead" in missing
    assert "stands in the training text" in shared
    story = [line.split() for line in answer.out.split("\n") if line.startswith(("counts", "network", "both"))]
    assert sorted(line[:2] for line in story) == [
        ["both", "lstm"], ["both,", "reading"], ["counts", "alone"], ["network", "alone"]
    ]  # fmt: skip
    for name in ("7-gram", "lstm led by a 7-gram of its characters", "uniform", "unigram", "xz", "30 steps"):
        assert name in answer.out
    assert "bits/byte" in answer.out
    assert "A sample of 400 characters" in answer.out
    assert "stands word for word in the training text" in answer.out
    assert "runs/demo-1/report.html" in answer.out
    assert "runs/demo-1-alone/report.html" in answer.out
    assert answer.out.count("    seqlab lm ") == 3
    (ahead,) = re.findall(r"Better than both together in this time: (.*?)\.", answer.out)
    assert "ppmd" in ahead.split(", ")  # pydoc repeats itself


def test_whatever_is_ahead_of_both_is_named() -> None:
    rows = [Row("both", "lstm led", 4.0, 2.0), Row("counts", "7-gram", 3.0, 1.9), Row("", "xz", 5.0, 2.1)]
    (line,) = _who_is_ahead(SimpleNamespace(rows=rows))
    assert line.startswith("Better than both together in this time: 7-gram. ")
    assert _who_is_ahead(SimpleNamespace(rows=[rows[0], rows[2]])) == []


def test_compressors_learn_on_and_are_held_against_the_model_that_does() -> None:
    both, reading = Row("both", "lstm led", 4.0, 2.0), Row("reading", "the same", 3.0, 1.7, learns_on=True)
    slower, faster = Row("", "xz", 3.5, 1.8, learns_on=True), Row("", "ppmd", 2.5, 1.6, learns_on=True)
    assert _who_is_ahead(SimpleNamespace(rows=[both, reading, slower])) == []
    (line,) = _who_is_ahead(SimpleNamespace(rows=[both, reading, slower, faster]))
    assert line.startswith("Better than both together in this time: ppmd. ")
    (line,) = _who_is_ahead(SimpleNamespace(rows=[both, slower]))
    assert line.startswith("Better than both together in this time: xz. ")


def test_the_network_alone_has_a_share_of_a_time_and_all_of_other_budgets() -> None:
    found = {budget: alone_budget(budget) for budget in ("60s", "2s", "5m", "30steps", "2epochs")}
    assert found == {"60s": "20s", "2s": "1s", "5m": "100s", "30steps": "30steps", "2epochs": "2epochs"}


@pytest.mark.usefixtures("offline")
def test_the_demo_as_json(seqlab_command: Command) -> None:  # noqa: F811 (the fixture)
    answer = seqlab_command("demo", "--budget", "3steps", "--threads", 1, "--json")
    result = answer.json
    assert result["corpus"] == "pydoc"
    assert len(result["sample"]) == 400
    assert result["copied"] in result["sample"]
    ranked = [row["bits_per_byte"] for row in result["rows"]]
    assert ranked == sorted(ranked, reverse=True)
    assert [row["role"] for row in result["rows"] if row["role"]].count("both") == 1
    assert {row["role"] for row in result["rows"]} == {None, "counts", "network", "both", "reading"}
    text = next(Path("cache/corpora").glob("pydoc*.txt")).read_bytes().decode()
    assert result["copied"] in text
