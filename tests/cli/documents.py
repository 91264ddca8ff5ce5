"""What the pages tell people to type, and how it is executed: as it stands, only with shorter budgets."""

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Command

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))))
BUDGET = "6steps"


def page_text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, languages: str) -> list[tuple[str, str]]:
    """(language, content) of the fenced blocks in one of the `languages` (sh|python), in their order."""
    return re.findall(rf"```({languages})\n(.*?)```", page_text(page), flags=re.S)


def shortened(line: str) -> list[str]:
    """The words of a command: training takes a few steps, a diagnosis reads short sequences, little is translated."""
    words = shlex.split(line)[1:]
    if words[0] == "diagnose" and words[1] in ("gradients", "attention") and "--length" not in words:
        words += ["--length", "16"]
    if "--budget" in words:
        words[words.index("--budget") + 1] = BUDGET
    elif words[1:2] == ["train"] and not {"--resume", "--config", "ngram"} & set(words):
        words += ["--budget", BUDGET]
    if words[:2] == ["translate", "train"] and "--resume" not in words:
        words += ["--held-out", "20"]
    return words


def shortened_code(code: str) -> str:
    return re.sub(r'budget="[^"]+"', f'budget="{BUDGET}"', code)


def typed(line: str, command: Command, hear: Callable[[str], None], answers: str = "") -> str:
    """What a line of a page prints, as a shell has it: `a | b` and `a > file`; seqlab runs in this process.

    `hear` puts a text on standard input; the first command finds `answers` there.
    """
    line, _, place = line.partition(" > ")
    said = answers
    for stage in line.split(" | "):
        if stage.startswith("seqlab "):
            hear(said)
            answer = command(*shortened(stage))
            assert answer.code == 0, f"{stage}: {answer.err}"
            said = answer.out
        else:
            said = _in_a_shell(stage, said)
    if place:
        Path(place).write_text(said, encoding="utf-8")
    return said


def _in_a_shell(line: str, said: str) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(["bash", "-c", line], input=said, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{line}: {done.stderr}"
    return done.stdout


def standard_input(text: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()))
