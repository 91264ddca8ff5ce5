"""The recipes on tiny models: equal cost is equal, a second start ends with the same bytes, errors are one line."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqlab
from seqlab.core.errors import UsageError
from seqlab.core.reporting import Reporter

RECIPES = Path(__file__).parents[2] / "recipes"
sys.path.insert(0, str(RECIPES))

import equal_cost  # noqa: E402
import extrapolation  # noqa: E402
import kept_runs  # noqa: E402

TINY = "--tokens 32 --width 8 --heads 2 --depth 1 --threads 1 --split 80/10/10"


def asked(recipe: Any, folder: Path, text: Path, more: str) -> argparse.Namespace:
    parser: argparse.ArgumentParser = recipe.parser()
    return parser.parse_args([*TINY.split(), "--folder", str(folder), "--corpus", str(text), *more.split()])


def equal_flops(folder: Path, text: Path, more: str = "") -> None:
    recipe = equal_cost.recipe
    recipe(asked(equal_cost, folder, text, f"--terms flops --contexts 8,16 --flops 3e6 {more}"), Reporter())


def beyond(folder: Path, text: Path, more: str = "") -> None:
    recipe = extrapolation.recipe
    recipe(asked(extrapolation, folder, text, f"--context 8 --steps 3 {more}"), Reporter())


def results(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*_*.*") if path.is_file()} | {
        path.name: path.read_bytes() for path in folder.glob("extrapolation.*")
    }


def stop_after(monkeypatch: pytest.MonkeyPatch, trainings: int, steps: int) -> None:
    """Stop one of the trainings after some steps, as SIGTERM does."""
    done = {"trainings": 0, "steps": 0}
    train = kept_runs.train

    def stopped(*given: Any, **named: Any) -> Any:
        done["trainings"] += 1

        def stop() -> bool:
            done["steps"] += done["trainings"] == trainings
            return done["steps"] > steps

        return train(*given, **named, stop=stop)

    monkeypatch.setattr(kept_runs, "train", stopped)


@pytest.mark.parametrize("recipe", [equal_flops, beyond])
def test_a_recipe_that_was_stopped_ends_with_the_same_bytes(
    recipe: Callable[[Path, Path], None], small_text: Path, tmp_path: Path
) -> None:
    recipe(tmp_path / "whole", small_text)
    with pytest.MonkeyPatch.context() as patched:
        stop_after(patched, trainings=2, steps=2)
        with pytest.raises(kept_runs.InterruptedRecipe, match="repeat the same command"):
            recipe(tmp_path / "pieces", small_text)
    assert not results(tmp_path / "pieces")
    recipe(tmp_path / "pieces", small_text)
    whole = results(tmp_path / "whole")
    assert len(whole) == 3
    assert results(tmp_path / "pieces") == whole


def test_what_is_scored_is_not_trained_again(small_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beyond(tmp_path, small_text)
    before = results(tmp_path)
    for path in tmp_path.glob("extrapolation.*"):
        path.unlink()
    monkeypatch.setattr(kept_runs, "train", None)
    beyond(tmp_path, small_text)
    assert results(tmp_path) == before


def test_the_same_flops_are_spent_and_figures_are_those_of_the_runs(small_text: Path, tmp_path: Path) -> None:
    equal_flops(tmp_path, small_text, "--seeds 2")
    result = json.loads((tmp_path / "equal_cost.json").read_text())
    assert [(row["context"], row["attention"]) for row in result["rows"]] == [
        (context, kind) for context in (8, 16) for kind in ("softmax", "separable", "random_features")
    ]
    for row in result["rows"]:
        step = 32 * row["flops_per_token"]
        assert all(abs(flops - 3e6) <= step / 2 for flops in row["flops"])
        names = [f"flops-{row['context']}-{row['attention']}-seed{seed}" for seed in (0, 1)]
        runs = [seqlab.load(tmp_path / "runs" / name) for name in names]
        assert [run.record["steps"] for run in runs] == row["steps"]
        assert np.mean([run.final["test"]["bits_per_byte"] for run in runs]) == pytest.approx(row["bits_per_byte"])
        assert row["interval"][0] < row["bits_per_byte"] < row["interval"][1]
    by_kind = {(row["context"], row["attention"]): row["bits_per_byte"] for row in result["rows"]}
    assert len(result["comparisons"]) == 4
    for found in result["comparisons"]:
        difference = by_kind[found["context"], found["a"]] - by_kind[found["context"], "softmax"]
        assert found["difference"] == pytest.approx(difference)


def test_conclusions_say_who_wins_and_where_nobody_does() -> None:
    place = {"term": "time", "context": 256, "a": "separable", "b": "softmax"}
    said = [equal_cost._conclusion(place | {"difference": d, "p": p}) for d, p in ((0.1, 0.01), (-0.1, 0.01), (1, 0.2))]
    assert "softmax is better than separable by 0.1000" in said[0]
    assert "separable is better than softmax by 0.1000" in said[1]
    assert "nothing decides" in said[2]


def test_steps_share_out_the_operations() -> None:
    assert equal_cost.steps_for(6e12, 8192, 2.95e6) == 248
    assert equal_cost.steps_for(1, 8192, 2.95e6) == 1


def test_beyond_the_trained_length(small_text: Path, tmp_path: Path) -> None:
    beyond(tmp_path, small_text)
    result = json.loads((tmp_path / "extrapolation.json").read_text())
    found = {(row["positions"], row["attends"], row["scored"]): row for row in result["rows"]}
    assert {key[:2] for key in found} == {
        *(("rotary", how) for how in ("all", "last n")),
        *(("sinusoidal", how) for how in ("all", "last n")),
        *(("learned", how) for how in ("all", "longer table")),
    }
    assert [row["scored"] for row in result["undefined"]] == [16, 32]
    run = seqlab.load(tmp_path / "runs" / "rotary-seed0")
    text = small_text.read_text()
    test = text[len(text) - int(0.1 * len(text)) :]
    longer = run.with_context(16)
    assert longer.model.context == 16
    assert str(longer.scorer.policy).startswith("segments of 8 tokens, each read after the 8 tokens")
    assert longer.score(test).total != run.score(test).total
    assert found["rotary", "all", 8]["bits_per_byte"] == pytest.approx(run.final["test"]["bits_per_byte"])
    assert "not defined" in (tmp_path / "extrapolation.md").read_text()


def test_a_longer_table_changes_nothing_where_it_was_trained(small_text: Path, tmp_path: Path) -> None:
    beyond(tmp_path, small_text)
    run = seqlab.load(tmp_path / "runs" / "learned-seed0")
    longer = extrapolation.with_longer_table(run, 32)
    ids = torch.arange(32)[None] % run.tokenizer.vocab_size
    with torch.inference_mode():
        assert torch.equal(longer(ids[:, :8])[0], run.model(ids[:, :8])[0])
        assert longer(ids)[0].shape[1] == 32


def test_an_n_gram_model_is_scored_beside_them(small_text: Path, tmp_path: Path) -> None:
    equal_flops(tmp_path, small_text)
    counted = json.loads((tmp_path / "equal_cost.json").read_text())["counted"]
    run = seqlab.load(tmp_path / "runs" / "ngram")
    assert run.settings.model.kind == "ngram"
    assert counted["bits_per_byte"] == pytest.approx(run.final["test"]["bits_per_byte"])


def test_ctrl_c_between_trainings_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["equal_cost.py", "--folder", "anywhere", "--threads", "1"])
    assert kept_runs.start(interrupted, equal_cost.parser()) == 1
    assert capsys.readouterr().err == "interrupted; what is done is saved: repeat the same command to go on\n"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("--contexts 8,12", "--tokens 32 is not a multiple of context 12"),
        ("--contexts 8,x", "--contexts 8,x is not understood"),
        ("--terms time,steps", "--terms time,steps is not understood"),
        ("--flops 0", "--flops 0 must be more than 0"),
        ("--contexts 8 --budget 5steps", "--budget 5steps is no time"),
    ],
)
def test_wrong_use_is_one_line(more: str, words: str, small_text: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words) as error:
        equal_cost.recipe(asked(equal_cost, tmp_path, small_text, more), Reporter())
    assert "\n" not in str(error.value)


def test_another_question_is_refused(small_text: Path, tmp_path: Path) -> None:
    beyond(tmp_path, small_text)
    with pytest.raises(UsageError, match="was begun with steps 3, not 4; repeat that or choose another --folder"):
        beyond(tmp_path, small_text, "--steps 4")


def test_damaged_scores_are_named(small_text: Path, tmp_path: Path) -> None:
    beyond(tmp_path, small_text)
    path = tmp_path / "scores" / "rotary-seed0.json"
    path.write_text(path.read_text().replace("1", "2", 1))
    with pytest.raises(kept_runs.DamageError, match="rotary-seed0.json is not what the recipe wrote"):
        beyond(tmp_path, small_text)
