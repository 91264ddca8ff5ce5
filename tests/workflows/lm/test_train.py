"""From a text to a run, from Python."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import tiny_for

import seqlab
from seqlab.core.errors import NotFiniteError, UsageError
from seqlab.core.registry import MODELS, TOKENIZERS
from seqlab.core.settings.fields import with_flags
from seqlab.core.settings.lm import LMSettings, fill_lm
from seqlab.core.settings.training import SIZES
from seqlab.core.units import Budget
from seqlab.data.prepare import split_bounds
from seqlab.data.sources import open_text
from seqlab.evaluation.surprisal import ModelScorer
from seqlab.models.build import build_lm_from_settings
from seqlab.training import plan as planning
from seqlab.training.checkpoint import load_tensors
from seqlab.training.plan import count_steps, validations_on_the_way
from seqlab.workflows.lm import measure


@pytest.mark.parametrize("tokenizer", sorted(TOKENIZERS))
@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_model_with_every_tokenizer(model: str, tokenizer: str, small_text: Path, tmp_path: Path) -> None:
    run = seqlab.train_lm(small_text, out=tmp_path / "run", model=model, tokenizer=tokenizer, **tiny_for(model))
    assert run.final is not None
    validation = run.final["validation"]
    assert 0 < validation["nats_per_token"] < math.log(run.tokenizer.vocab_size) + 1
    assert run.final["test"]["tokens"] > 0
    loaded = seqlab.load(tmp_path / "run")
    assert loaded.settings == run.settings
    assert isinstance(loaded.generate("the ", tokens=5), str)


@pytest.mark.parametrize("attention", ["softmax", "separable", "random_features"])
def test_every_kind_of_attention_trains_writes_and_resumes(
    attention: str, small_text: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    options = tiny | dict(model="transformer", heads=2, attention=attention)
    run = seqlab.train_lm(small_text, out=tmp_path / "run", **options)
    assert run.settings.model.attention == attention
    assert run.final is not None
    before = run.final["tokens"]
    assert seqlab.load(tmp_path / "run").generate("the ", tokens=12)
    longer = seqlab.train_lm(out=tmp_path / "run", resume=True, budget="40steps")
    assert longer.final is not None
    assert longer.final["tokens"] > before
    assert ("model/network.blocks.0.attention.directions" in weights(tmp_path / "run")) is (
        attention == "random_features"
    )


def test_attention_and_scores_belong_to_their_models(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="model 'gru' has no setting 'attention'"):
        seqlab.train_lm(small_text, out=tmp_path / "run", model="gru", attention="separable", **tiny)
    with pytest.raises(UsageError, match="--attention 'sotfmax' is not known; did you mean 'softmax'"):
        seqlab.train_lm(small_text, out=tmp_path / "run", model="transformer", attention="sotfmax", **tiny)
    run = seqlab.train_lm(small_text, out=tmp_path / "run", model="attentive-rnn", score="additive", **tiny)
    assert any(name.endswith("W_1") for name in weights(tmp_path / "run"))
    assert run.settings.model.score == "additive"


def test_the_figures_are_those_of_scoring_the_text(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    """The validation figure in the run folder is what `run.score` gives on the validation part."""
    run = seqlab.train_lm(small_text, out=tmp_path / "run", tokenizer="word", vocab_size=12, **tiny)
    bounds = split_bounds(open_text(str(small_text)), (0.8, 0.1, 0.1))
    for part in ("validation", "test"):
        content = small_text.read_bytes()[slice(*bounds[part])].decode()
        table = seqlab.load(tmp_path / "run").score(content)
        figures = run.final[part]  # type: ignore[index]
        assert table.unknown.any()
        assert figures["nats"] == pytest.approx(table.total, rel=1e-6)
        assert figures["tokens"] == len(table)
        assert figures["bytes"] == table.end[-1] == len(content.encode())


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_tensors(folder / "checkpoints" / "last.safetensors")[0]


def same_weights(a: Path, b: Path) -> bool:
    mine, theirs = weights(a), weights(b)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[k], theirs[k]) for k in mine)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_same_settings_and_seed_give_the_same_bits(model: str, small_text: Path, tmp_path: Path) -> None:
    settings = tiny_for(model, model=model, dropout=0.3)
    torch.manual_seed(1)
    one = seqlab.train_lm(small_text, out=tmp_path / "1", **settings)
    torch.manual_seed(2)
    two = seqlab.train_lm(small_text, out=tmp_path / "2", **settings)
    seqlab.train_lm(small_text, out=tmp_path / "3", seed=1, **settings)
    assert same_weights(tmp_path / "1", tmp_path / "2")
    assert not same_weights(tmp_path / "1", tmp_path / "3")
    assert one.final["validation"] == two.final["validation"]  # type: ignore[index]
    assert one.generate("the", 20, seed=3) == two.generate("the", 20, seed=3)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_evaluating_more_often_changes_no_weight(model: str, small_text: Path, tmp_path: Path) -> None:
    for every in (1, 4, 12):
        settings = tiny_for(model, model=model, dropout=0.3, eval_every=every, patience=0)
        seqlab.train_lm(small_text, out=tmp_path / str(every), **settings)
    assert same_weights(tmp_path / "1", tmp_path / "4")
    assert same_weights(tmp_path / "1", tmp_path / "12")


def test_the_test_text_is_scored_once_and_at_the_end(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[int] = []
    original = measure.nats_of_ids

    def spy(model: Any, ids: Any, *args: Any, **kwargs: Any) -> Any:
        scored.append(len(ids))
        return original(model, ids, *args, **kwargs)

    monkeypatch.setattr(measure, "nats_of_ids", spy)
    run = seqlab.train_lm(small_text, out=tmp_path / "run", tokenizer="bpe", **tiny)
    test_tokens, validation_tokens = (run.final[p]["tokens"] for p in ("test", "validation"))  # type: ignore[index]
    assert test_tokens != validation_tokens
    assert scored.count(test_tokens) == 1
    assert scored[-1] == test_tokens


def test_going_on_from_trained_weights(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    parent = seqlab.train_lm(small_text, out=tmp_path / "parent", model="gru", tokenizer="char", **tiny)
    more = tmp_path / "more.txt"
    more.write_text("quite another text, with zebras 漢\n" * 200)
    child = seqlab.train_lm(more, out=tmp_path / "child", from_run=tmp_path / "parent", budget="1step", threads=1)
    assert child.settings.model == parent.settings.model
    assert child.tokenizer.sha256 == parent.tokenizer.sha256
    moved = max(
        (a - b).abs().max().item() for a, b in zip(parent.model.parameters(), child.model.parameters(), strict=True)
    )
    assert 0 < moved < 0.05
    assert child.final["validation"]["unknown_rate"] > 0  # type: ignore[index]
    assert child.record["from"]["run"] == str((tmp_path / "parent").resolve())
    with pytest.raises(UsageError, match="--width 99 conflicts with --from"):
        seqlab.train_lm(more, out=tmp_path / "other", from_run=tmp_path / "parent", width=99)


def test_recorded_settings_run_again_to_the_same_bits(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    seqlab.train_lm(small_text, out=tmp_path / "1", model="rnn", **tiny)
    seqlab.train_lm(out=tmp_path / "2", config=tmp_path / "1" / "settings.toml", threads=1)
    assert same_weights(tmp_path / "1", tmp_path / "2")


def test_a_time_budget_is_repeated_with_the_steps_that_it_bought(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [0.5, 0.25, 0.25]
    monkeypatch.setattr(planning, "measure_step", lambda *_: seconds.pop(0))
    monkeypatch.setattr(planning, "measure_validation", lambda *_: 0.0)
    first = seqlab.train_lm(small_text, out=tmp_path / "1", model="rnn", guide="none", **tiny | {"budget": "10s"})
    config = tmp_path / "1" / "settings.toml"
    again = seqlab.train_lm(out=tmp_path / "2", config=config, threads=1)
    assert (first.record["steps"], again.record["steps"]) == (20, 20)
    assert same_weights(tmp_path / "1", tmp_path / "2")
    assert again.files.identity == first.files.identity
    assert seqlab.train_lm(out=tmp_path / "3", config=config, threads=1, budget="10s").record["steps"] == 40
    (tmp_path / "edited.toml").write_text(config.read_text().replace("seed = 0", "seed = 1"))
    edited = seqlab.train_lm(out=tmp_path / "4", config=tmp_path / "edited.toml", threads=1)
    assert edited.record["steps"] == 40


def test_early_stopping_keeps_the_best_weights(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    settings = tiny | {"budget": "400steps", "eval_every": 2, "patience": 2, "learning_rate": 0.3, "decay": "constant"}
    run = seqlab.train_lm(small_text, out=tmp_path / "run", model="rnn", **settings)
    assert run.final is not None
    assert run.final["outcome"] == "stopped early"
    assert run.final["best_step"] < run.final["step"] < 400
    checks = {x["step"]: x["validation_nats_per_token"] for x in run.metrics if "validation_nats_per_token" in x}
    assert checks[run.final["best_step"]] == min(checks.values())


def test_a_loss_that_explodes_stops_the_run_and_keeps_the_last_good_state(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    settings = tiny | {"learning_rate": 1e38, "warmup": 0.0, "clip": 1e30, "width": 16}
    with pytest.raises(NotFiniteError, match=r"at step \d+; .*try a smaller --learning-rate"):
        seqlab.train_lm(small_text, out=tmp_path / "run", model="transformer", heads=2, **settings)
    load_tensors(tmp_path / "run" / "checkpoints" / "last.safetensors")


def test_budgets_become_steps() -> None:
    class Batches:
        count_per_step, steps_per_epoch = 100, 7

    def never() -> tuple[float, float]:
        raise AssertionError("only a time budget is timed")

    assert count_steps(Budget(9, "steps"), Batches, never, None).steps == 9
    assert count_steps(Budget(950, "tokens"), Batches, never, None).steps == 10
    assert count_steps(Budget(3, "epochs"), Batches, never, None).steps == 21
    minute = Budget(60, "seconds")
    assert count_steps(minute, Batches, lambda: (0.5, 0.0), None).steps == 120
    assert count_steps(minute, Batches, lambda: (0.5, 1.0), None).steps == 100  # ten validations of a second
    assert count_steps(minute, Batches, lambda: (0.5, 1.0), 2).steps == 60
    assert count_steps(minute, Batches, lambda: (0.5, 50.0), None).steps == 24  # at least a fifth is training
    assert [validations_on_the_way(Budget(s, "seconds")) for s in (10, 60, 600, 3600)] == [10, 10, 30, 50]


def test_a_time_budget_is_recorded_as_steps_and_touches_no_weight(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    tiny = tiny | {"patience": 0}  # a fast machine buys so many steps that the text is learnt by heart before the end
    timed = seqlab.train_lm(small_text, out=tmp_path / "timed", dropout=0.2, **(tiny | {"budget": "0.5s"}))
    steps = timed.record["steps"]
    assert timed.final["step"] == steps  # type: ignore[index]
    assert timed.record["seconds_per_step"] > 0
    seqlab.train_lm(small_text, out=tmp_path / "counted", dropout=0.2, **(tiny | {"budget": f"{steps}steps"}))
    assert same_weights(tmp_path / "timed", tmp_path / "counted")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", sorted(MODELS))
def test_presets_build_and_grow(kind: str, size: str) -> None:
    settings = fill_lm(with_flags(LMSettings(), {"model": kind, "size": size}))
    model = build_lm_from_settings(settings, 300)
    count = sum(p.numel() for p in model.parameters())
    logits, _ = model(torch.zeros(1, 2, dtype=torch.long))
    assert logits.shape == (1, 2, 300)
    for other in SIZES[: SIZES.index(size)]:
        less = fill_lm(with_flags(LMSettings(), {"model": kind, "size": other}))
        assert sum(p.numel() for p in build_lm_from_settings(less, 300).parameters()) < count


def test_settings_a_model_does_not_have_are_refused(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="model 'gru' has no setting 'heads'"):
        seqlab.train_lm(small_text, out=tmp_path / "run", model="gru", heads=2, **tiny)
    for tokenizer, size, message in (
        ("bpe", 12, "--vocab-size 12 is too small for bpe; the least is 257"),
        ("word", 1, "--vocab-size 1 is too small for word; the least is 2"),
        ("char", 5, "--vocab-size is not a choice for the tokenizer 'char'"),
    ):
        with pytest.raises(UsageError, match=message):
            seqlab.train_lm(small_text, out=tmp_path / "run", tokenizer=tokenizer, vocab_size=size, **tiny)
    with pytest.raises(UsageError, match="--carry is for rnn, gru, lstm, not for model 'transformer'; leave it out"):
        seqlab.train_lm(small_text, out=tmp_path / "run", model="transformer", carry=True, **tiny)
    assert not (tmp_path / "run").exists()


def test_greedy_generation_is_the_same_from_disk(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = seqlab.train_lm(small_text, out=tmp_path / "run", tokenizer="word", **tiny)
    text = run.generate("the of", 12, temperature=0)
    assert text == seqlab.load(tmp_path / "run").generate("the of", 12, temperature=0)
    assert text.startswith((" ", "\n"))
    assert "\ufffd" not in run.generate("zebra", 50, temperature=2.0)
    assert np.isfinite(ModelScorer(run.model, run.tokenizer).score("zebra").nats).all()


@pytest.mark.parametrize("model", ["lstm", "transformer", "ngram"])
def test_a_list_of_prompts_is_continued_as_each_would_be(model: str, small_text: Path, tmp_path: Path) -> None:
    options = {} if model == "ngram" else tiny_for(model)
    run = seqlab.train_lm(small_text, out=tmp_path / "run", model=model, tokenizer="char", **options)
    run.model.double()
    prompts = ["the of", "", "and to the of and", "the of"]
    texts = run.generate(prompts, 20, temperature=0.9, top_p=0.9, seed=5)
    assert texts == [run.generate(p, 20, temperature=0.9, top_p=0.9, seed=5 + k) for k, p in enumerate(prompts)]
    assert run.generate([], 20) == []
    assert run.generate(["the"], 20) == [run.generate("the", 20)]
    with pytest.raises(UsageError, match="--tokens -1 must not be negative"):
        run.generate(prompts, -1)


def test_a_run_whose_tokenizer_has_an_end_stops_there(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = seqlab.train_lm(small_text, out=tmp_path / "run", tokenizer="char", **tiny)
    run.model = build_lm_from_settings(run.settings, run.tokenizer.vocab_size + 1).double().eval()
    run.tokenizer = run.tokenizer.with_end()
    whole = run.generate(["the", "of"], 200, temperature=3.0)
    assert all(len(text) < 200 for text in whole)
    assert whole[1] == run.generate("of", 200, temperature=3.0, seed=1)


def test_the_final_figures_are_those_of_the_best_weights(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    settings = tiny | {"budget": "400steps", "eval_every": 2, "patience": 2, "learning_rate": 0.3, "decay": "constant"}
    run = seqlab.train_lm(small_text, out=tmp_path / "run", model="rnn", **settings)
    bounds = split_bounds(open_text(str(small_text)), (0.8, 0.1, 0.1))
    content = small_text.read_bytes()[slice(*bounds["validation"])].decode()
    assert run.final is not None
    assert run.step == run.final["best_step"] < run.final["step"]
    assert run.final["validation"]["nats"] == pytest.approx(
        seqlab.load(tmp_path / "run").score(content).total, rel=1e-6
    )


def test_carrying_state_is_a_choice(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    for carry in (True, False):
        seqlab.train_lm(small_text, out=tmp_path / str(carry), model="gru", carry=carry, **tiny)
    carried, fresh = (weights(tmp_path / str(c))["model/network.output.weight"] for c in (True, False))
    assert not torch.equal(carried, fresh)


def test_training_leaves_torch_as_it_was(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    original = measure.nats_of_ids

    def spy(*args: Any, **kwargs: Any) -> Any:
        modes.append((torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()))
        return original(*args, **kwargs)

    monkeypatch.setattr(measure, "nats_of_ids", spy)
    before = torch.get_rng_state()
    seqlab.train_lm(small_text, out=tmp_path / "run", dropout=0.5, **(tiny | {"threads": 2}))
    assert set(modes) == {(True, 2)}
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == 1
    assert not torch.are_deterministic_algorithms_enabled()
