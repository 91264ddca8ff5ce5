"""Texts that training reads: piped, short, in one line, without a test part, repeating themselves."""

import io
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import seqlab
from seqlab.core.errors import DataError


def test_a_run_from_standard_input_can_be_resumed(
    tmp_path: Path, small_text: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(small_text.read_bytes())))
    seqlab.train_lm("-", out=tmp_path / "run", **tiny)
    run = seqlab.train_lm(out=tmp_path / "run", resume=True, budget="14steps")
    assert run.final["step"] == 14  # type: ignore[index]


def test_a_pipe_is_a_text(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = small_text.read_bytes()
    writer = threading.Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    run = seqlab.train_lm(pipe, out=tmp_path / "run", **tiny)
    writer.join()
    assert run.record["text_bytes"] == len(content)
    assert seqlab.train_lm(out=tmp_path / "run", resume=True, budget="14steps").final["step"] == 14  # type: ignore[index]


@pytest.mark.parametrize("content", ["x", "short text", "a b c d e f g"])
def test_texts_shorter_than_a_context_are_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(content)
    with pytest.raises(DataError, match=r"tokens, fewer than one context|too few for a validation part"):
        seqlab.train_lm(tmp_path / "t.txt", out=tmp_path / "run", budget="2steps")
    assert not (tmp_path / "run").exists()


def test_one_enormous_line_trains(tmp_path: Path, tiny: dict[str, Any]) -> None:
    (tmp_path / "t.txt").write_text("abcdefghij" * 30_000)
    run = seqlab.train_lm(tmp_path / "t.txt", out=tmp_path / "run", tokenizer="bpe", vocab_size=300, **tiny)
    assert run.final["validation"]["bytes"] == 30_000  # type: ignore[index]


def test_without_a_test_part(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = seqlab.train_lm(small_text, out=tmp_path / "run", split="90/10", **tiny)
    assert run.final["test"] is None  # type: ignore[index]
    assert "test text" not in (run.folder / "report.html").read_text().split("Every token")[0]


def test_shared_passages_are_reported_and_remembered(tmp_path: Path, tiny: dict[str, Any]) -> None:
    from seqlab.core.reporting import Reporter

    class Listener(Reporter):
        def __init__(self) -> None:
            self.lines: list[str] = []

        def note(self, line: str) -> None:
            self.lines.append(line)

    passage = "This very sentence stands in the training text and again in the part held out for validation. "
    filler = " ".join(f"w{k * 7919 % 9973}" for k in range(900))
    (tmp_path / "t.txt").write_text(passage + filler + filler[::-1] + passage)
    said = []
    for out in ("1", "2"):
        listener = Listener()
        run = seqlab.train_lm(tmp_path / "t.txt", out=tmp_path / out, reporter=listener, **tiny)
        said.append(next(line for line in listener.lines if "passages of 64 bytes" in line))
    assert said[0] == said[1]
    assert "This very sentence stands" in said[0]
    assert "This very sentence stands" in (run.folder / "report.html").read_text()
