"""Looks at the gradients on the way: figures in the metrics, and not a bit of the model changed."""

import json
from pathlib import Path
from typing import Any

import pytest

from seqlab.core.errors import UsageError
from seqlab.workflows.lm.train import train_lm

SMALL: dict[str, Any] = dict(width=16, depth=1, tokenizer="char", batch=4, context=16, dropout=0.2, eval_every=4)
LAYERS = {"rnn": 1, "gru": 1, "lstm": 2, "attentive-rnn": 1, "transformer": 1}


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
        windowed = kind in ("attentive-rnn", "transformer")
        assert all(layer["growth"] > 0 for layer in line["gradients"]["layers"])
        assert all(layer["lags"] == (15 if windowed else 31) for layer in line["gradients"]["layers"])


def test_a_run_that_goes_on_looks_at_the_same_steps(text: Path, tmp_path: Path) -> None:
    how = SMALL | dict(model="gru", budget="8steps", watch_gradients=2)
    whole = train_lm(text, out=tmp_path / "whole", **how)
    asked = iter(range(100))
    train_lm(text, out=tmp_path / "cut", stop=lambda: next(asked) >= 5, **how)
    train_lm(out=tmp_path / "cut", resume=True)
    assert looks(tmp_path / "cut") == looks(whole.folder)
    assert len(looks(whole.folder)) == 4


def test_a_run_killed_after_a_look_goes_on(text: Path, tmp_path: Path) -> None:
    """At the very step that is validated, looked at and saved: what is saved knows of the line."""
    how = SMALL | dict(model="gru", budget="12steps", watch_gradients=2)
    whole = train_lm(text, out=tmp_path / "whole", **how)
    for die_at in range(1, 12):
        folder = tmp_path / f"killed-{die_at}"
        asked = iter(range(100))

        def die(last: int = die_at, count: Any = asked) -> bool:
            if next(count) >= last:
                raise SystemExit(9)
            return False

        with pytest.raises(SystemExit):
            train_lm(text, out=folder, stop=die, **how)
        train_lm(out=folder, resume=True)
        assert looks(folder) == looks(whole.folder)
        assert (folder / "model.safetensors").read_bytes() == (whole.folder / "model.safetensors").read_bytes()


def test_what_carries_nothing_is_not_watched(text: Path, tmp_path: Path) -> None:
    for kind, message in (("bigram", "a bigram carries nothing over time"), ("ngram", "is fitted by counting")):
        with pytest.raises(UsageError, match=message):
            train_lm(text, out=tmp_path / kind, model=kind, watch_gradients=2)
