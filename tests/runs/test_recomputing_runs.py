"""Runs that train with --recompute: another cost, and not one other bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import tiny_for
from tests.runs.test_resume import assert_identical, outcome

import seqlab
from seqlab.core.errors import UsageError
from seqlab.core.registry import CLASSIFIERS, MODELS, TRANSLATORS
from seqlab.core.settings.fields import with_flags
from seqlab.core.settings.lm import LMSettings
from seqlab.runs.record import identity_of
from seqlab.runs.task import find_task
from seqlab.runs.train import train
from seqlab.workflows.diagnose.attention import diagnose_attention
from seqlab.workflows.diagnose.gradients import diagnose_gradients
from seqlab.workflows.lm.task import LanguageModelling

SMALL: dict[str, dict[str, Any]] = {
    "lm": dict(model="transformer", depth=2, heads=2, watch_gradients=6),
    "classify": dict(model="transformer", depth=2, heads=2, vocab_size=50),
    "translate": dict(model="transformer", depth=1, heads=2),
}


def flags_for(kind: str, folder: Path) -> dict[str, Any]:
    flags = find_task(kind).trial(folder) | SMALL[kind] | {"dropout": 0.3}
    return {name: value for name, value in flags.items() if name != "bidirectional"}


@pytest.mark.parametrize("kind", SMALL)
def test_the_run_is_the_same_in_every_bit_also_resumed_either_way(kind: str, tmp_path: Path) -> None:
    task, flags = find_task(kind), flags_for(kind, tmp_path)
    whole = train(task, flags, out=tmp_path / "plain", threads=1)
    saving = train(task, flags | {"recompute": True}, out=tmp_path / "saving", threads=1)
    assert saving.files.identity == whole.files.identity
    assert_identical(outcome(tmp_path / "saving"), outcome(tmp_path / "plain"))
    for begun, resumed in ((False, True), (True, False)):
        folder, asked = tmp_path / f"begun-{begun}", iter([False] * 5)
        assert train(
            task, flags | {"recompute": begun}, out=folder, threads=1, stop=lambda asked=asked: next(asked, True)
        ).interrupted
        run = train(task, {"recompute": resumed}, out=folder, resume=True)
        assert run.settings.training.recompute is resumed
        assert seqlab.load(folder).settings.training.recompute is resumed
        assert_identical(outcome(folder), outcome(tmp_path / "plain"))


def test_it_does_not_say_who_a_run_is() -> None:
    task = LanguageModelling()
    record = {"steps": 3, "threads": 1, "checksums": {"text": "ab"}, "versions": {"torch": "1"}}

    def identity(**flags: Any) -> str:
        return identity_of("lm", task.fill(with_flags(LMSettings(), {"model": "transformer"} | flags)), record)

    assert identity(recompute=True) == identity()
    assert identity(accumulate=2) != identity()  # its dropout differs


def test_a_run_that_recomputes_can_be_diagnosed(small_text: Path, tmp_path: Path) -> None:
    sizes = tiny_for("transformer", model="transformer", heads=2, depth=2)
    found = []
    for recompute in (False, True):
        run = seqlab.train_lm(
            small_text, out=tmp_path / f"{recompute}" / "run", recompute=recompute, guide="none", **sizes
        )
        assert run.model.blocks[0].recompute is recompute
        gradients = diagnose_gradients(run.folder, out=tmp_path / f"{recompute}-g.html", length=8, sequences=4)
        attention = diagnose_attention(run.folder, out=tmp_path / f"{recompute}-a.html", length=8, sequences=4)
        found.append([gradients.as_json(), attention.as_json()])
    for one, other in zip(*found, strict=True):
        keys = one.keys() - {"run", "page", "seconds", "model", "out"}
        assert len(keys) > 3
        assert {key: one[key] for key in keys} == {key: other[key] for key in keys}


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        (kind, model)
        for kind, known in (("lm", MODELS), ("classify", CLASSIFIERS), ("translate", TRANSLATORS))
        for model in sorted(known.keys() - {"transformer"})
    ],
)
def test_other_models_are_refused_in_one_line(kind: str, model: str, tmp_path: Path) -> None:
    task = find_task(kind)
    settings = task.fill(with_flags(task.settings_type(), {"model": model, "recompute": True}))
    place = {"lm": "text", "classify": "data", "translate": "data"}[kind]
    settings = with_flags(settings, {place: "somewhere"})
    with pytest.raises(UsageError, match=f"--recompute is for transformer, not for model '{model}'; leave it out"):
        task.check(settings, {"recompute": True})


def test_a_config_of_another_model_is_refused_too(small_text: Path, tmp_path: Path) -> None:
    sizes = tiny_for("transformer", model="transformer", heads=2, recompute=True, budget="2steps", tokenizer="char")
    seqlab.train_lm(small_text, out=tmp_path / "run", **sizes)
    config = tmp_path / "settings.toml"
    lines = (tmp_path / "run" / "settings.toml").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("heads", "attention", "positions", "activation", "gated"))]
    config.write_text("\n".join(kept).replace('kind = "transformer"', 'kind = "gru"'))
    with pytest.raises(UsageError, match="--recompute is for Transformers: model 'gru' has no blocks; leave it out"):
        seqlab.train_lm(config=config, out=tmp_path / "other")
