"""Looks at the gradients on the way: figures in the metrics, and not a bit of the model changed."""

import json
from pathlib import Path
from typing import Any

import pytest

from seqlab.workflows.lm.train import train_lm

SMALL: dict[str, Any] = dict(width=16, depth=1, tokenizer="char", batch=4, context=16, dropout=0.2, eval_every=4)
LAYERS = {"rnn": 1, "gru": 1, "lstm": 2, "attentive-rnn": 1, "transformer": 1, "bigram": 0}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text("the cat sat on the mat and the dog sat on the log\n" * 60, encoding="utf-8")
    return file


def looks(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if "gradients" in line]


@pytest.mark.parametrize("kind", LAYERS)
def test_looking_changes_nothing(text: Path, tmp_path: Path, kind: str) -> None:
    sizes = SMALL | (dict(heads=2) if kind == "transformer" else {})
    if kind == "bigram":
        sizes = {name: sizes[name] for name in ("width", "tokenizer", "eval_every")}
    how = sizes | dict(model=kind, budget="8steps")
    blind = train_lm(text, out=tmp_path / "blind", **how)
    seeing = train_lm(text, out=tmp_path / "seeing", watch_gradients=3, **how)
    ours, theirs = (dict(run.model.named_parameters()) for run in (seeing, blind))
    assert all((ours[name] == theirs[name]).all() for name in ours)
    found = looks(seeing.folder)
    assert [line["step"] for line in found] == [3, 6]
    assert not looks(blind.folder)
    for line in found:
        assert len(line["gradients"].get("layers", [])) == LAYERS[kind]
        assert all(layer["growth"] > 0 for layer in line["gradients"].get("layers", []))


def test_a_run_that_goes_on_looks_at_the_same_steps(text: Path, tmp_path: Path) -> None:
    how = SMALL | dict(model="gru", budget="8steps", watch_gradients=2)
    whole = train_lm(text, out=tmp_path / "whole", **how)
    asked = iter(range(100))
    train_lm(text, out=tmp_path / "cut", stop=lambda: next(asked) >= 5, **how)
    train_lm(out=tmp_path / "cut", resume=True)
    assert looks(tmp_path / "cut") == looks(whole.folder)
    assert len(looks(whole.folder)) == 4
