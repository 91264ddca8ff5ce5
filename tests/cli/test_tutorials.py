"""The three tutorials are executed from top to bottom, and leave the files that they name."""

import re
import sys
from pathlib import Path
from pydoc_data import topics

import pytest
from tests.cli.conftest import Command
from tests.cli.documents import blocks, page_text, shortened_code, standard_input, typed

READERS = ("student", "researcher", "engineer")
KINDS = "html|csv|tsv|json|jsonl|toml|txt|png|py|safetensors|zip"
SCRIPT = re.compile(rf"# ([\w-]+\.({KINDS}))\n")  # the first line of what is to be saved under that name


@pytest.fixture
def few_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The corpus `pydoc` with its first topics only, in a cache that no other test reads; every step is timed whole."""
    monkeypatch.setattr("seqlab.diagnostics.forecast.QUICK", 3600.0)
    monkeypatch.setattr(topics, "topics", dict(sorted(topics.topics.items())[:8]))
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("few_topics")
@pytest.mark.parametrize("reader", READERS)
def test_a_tutorial_runs_and_leaves_what_it_names(
    seqlab_command: Command, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], reader: str
) -> None:
    page = f"docs/tutorial-{reader}.md"
    names: dict[str, object] = {"__name__": "__main__"}

    def hear(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", standard_input(text))

    for language, content in blocks(page, "sh|python"):
        capfd.readouterr()
        script = SCRIPT.match(content)
        if script:
            Path(script[1]).write_text(shortened_code(content), encoding="utf-8")
        elif language == "python":
            exec(compile(shortened_code(content), page, "exec"), names)
            assert capfd.readouterr().out, content
        else:
            for line in content.strip().split("\n"):
                typed(line, seqlab_command, hear, answers="t\nf\nt\n")
    missing = [name for name in named_files(page) if not list(Path().rglob(name))]
    assert not missing


def named_files(page: str) -> list[str]:
    """Files and folders that a page names in `code`: such that end as files do, and all in runs/."""
    found = re.findall(rf"`([\w./-]+\.(?:{KINDS})|runs/[\w./-]+)`", page_text(page))
    assert len(found) > 3
    return [name.rstrip("/") for name in dict.fromkeys(found)]
