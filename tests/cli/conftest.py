import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from seqlab.cli import main, terminal

FLAGS = "--width 16 --depth 1 --batch 4 --context 8 --budget 8steps --eval-every 4 --threads 1"
TINY_FLAGS = tuple(FLAGS.split())


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Answer]


@pytest.fixture
def seqlab_command(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `seqlab WORDS…` in an empty folder; gives exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(terminal, "SHOW_AFTER", 3600.0)  # a busy machine says in between what it is doing

    def run(*words: object) -> Answer:
        capfd.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as leave:  # --help and --version
            code = int(leave.code or 0)
        out, err = capfd.readouterr()
        return Answer(code, out, err)

    return run


@pytest.fixture
def trained(seqlab_command: Command, small_text: Path, tmp_path: Path) -> Path:
    """A tiny trained run."""
    answer = seqlab_command("lm", "train", small_text, "--out", "run", "--tokenizer", "char", *TINY_FLAGS)
    assert answer.code == 0, answer.err
    return tmp_path / "run"
