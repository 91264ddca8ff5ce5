"""The demonstration, offline and short."""

from pathlib import Path

import pytest
from tests.cli.conftest import Command, seqlab_command  # noqa: F401 (a fixture)


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
    for name in ("uniform", "unigram", "7-gram", "xz", "seqlab lstm"):
        assert name in answer.out
    assert "perplexity/char" in answer.out
    assert "bits/byte" in answer.out
    assert "A sample of 400 characters" in answer.out
    assert "stands word for word in the training text" in answer.out
    assert "runs/demo-1" in answer.out
    assert answer.out.count("    seqlab lm ") == 3
    assert "Better than the neural model in this time" in answer.out  # 30 steps beat no n-gram, and the demo says so


@pytest.mark.usefixtures("offline")
def test_the_demo_as_json(seqlab_command: Command) -> None:  # noqa: F811 (the fixture)
    answer = seqlab_command("demo", "--budget", "3steps", "--threads", 1, "--json")
    result = answer.json
    assert result["corpus"] == "pydoc"
    assert len(result["sample"]) == 400
    assert result["copied"] in result["sample"]
    ranked = [row["bits_per_byte"] for row in result["rows"]]
    assert ranked == sorted(ranked, reverse=True)
    text = next(Path("cache/corpora").glob("pydoc*.txt")).read_bytes().decode()
    assert result["copied"] in text
