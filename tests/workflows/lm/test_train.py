"""From a text to a run folder, from Python."""

import io
import math
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import tiny_for

import seqlab
from seqlab.core.errors import DataError, NotFiniteError, UsageError
from seqlab.core.registry import MODELS, TOKENIZERS
from seqlab.core.settings.fields import with_flags
from seqlab.core.settings.lm import LMSettings, fill_lm
from seqlab.core.settings.training import SIZES
from seqlab.core.units import Budget
from seqlab.data.prepare import split_bounds
from seqlab.data.sources import open_text
from seqlab.evaluation.surprisal import ModelScorer
from seqlab.models.build import build_lm_from_settings
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
    assert ("model/blocks.0.attention.directions" in weights(tmp_path / "run")) is (attention == "random_features")


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
    run = seqlab.train_lm(small_text, out=tmp_path / "run", **tiny)
    test_tokens, validation_tokens = (run.final[p]["tokens"] for p in ("test", "validation"))  # type: ignore[index]
    assert test_tokens != validation_tokens
    assert scored.count(test_tokens) == 1
    assert scored[-1] == test_tokens


def test_the_run_folder_is_complete(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = seqlab.train_lm(small_text, out=tmp_path / "run", **tiny)
    names = {p.name for p in run.folder.iterdir()}
    assert names == {
        "settings.toml", "tokenizer.json", "model.safetensors", "checkpoints",
        "metrics.jsonl", "loss.png", "samples.txt", "report.html",
    }  # fmt: skip
    record = run.record
    assert record["steps"] == 12
    assert record["threads"] == 1
    assert record["text_sha256"] == open_text(str(small_text)).sha256
    assert set(record["versions"]) >= {"seqlab", "torch", "python", "numpy"}
    assert record["asked"]["budget"] == "12steps"
    assert (run.folder / "loss.png").read_bytes().startswith(b"\x89PNG")
    page = (run.folder / "report.html").read_text()
    assert "data:image/png;base64," in page
    assert "http" not in page.replace("http-equiv", "")
    for figure in ("nats_per_token", "bits_per_byte"):
        assert f"{run.final['validation'][figure]:.4f}" in page  # type: ignore[index]


def test_a_page_shows_hostile_text_as_text(tmp_path: Path, tiny: dict[str, Any]) -> None:
    path = tmp_path / "<script>alert(1)<script>.txt"
    path.write_text("<script>alert(2)</script> & <b>bold</b>\n" * 300)
    run = seqlab.train_lm(path, out=tmp_path / "run", tokenizer="char", **tiny)
    page = (run.folder / "report.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


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


def test_a_run_from_standard_input_can_be_resumed(
    tmp_path: Path, small_text: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(small_text.read_bytes())))
    seqlab.train_lm("-", out=tmp_path / "run", **tiny)
    run = seqlab.train_lm(out=tmp_path / "run", resume=True, budget="14steps")
    assert run.final["step"] == 14  # type: ignore[index]


def test_without_a_test_part(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = seqlab.train_lm(small_text, out=tmp_path / "run", split="90/10", **tiny)
    assert run.final["test"] is None  # type: ignore[index]
    assert "test text" not in (run.folder / "report.html").read_text().split("Every token")[0]


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


def test_existing_folders_are_never_overwritten(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "precious.txt").write_text("x")
    with pytest.raises(UsageError, match="exists already; go on with --resume or choose another --out"):
        seqlab.train_lm(small_text, out=tmp_path / "notes", **tiny)
    with pytest.raises(UsageError, match="not a run folder"):
        seqlab.train_lm(small_text, out=tmp_path / "notes", resume=True, **tiny)
    assert (tmp_path / "notes" / "precious.txt").read_text() == "x"
    with pytest.raises(UsageError, match="--resume needs the run's folder"):
        seqlab.train_lm(small_text, resume=True)


def test_default_folders_are_numbered(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        run = seqlab.train_lm(small_text, model="rnn", **tiny)
        assert run.folder == Path(f"runs/small-rnn-{number}")


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
    with pytest.raises(UsageError, match="--carry is not a choice for model 'transformer'"):
        seqlab.train_lm(small_text, out=tmp_path / "run", model="transformer", carry=True, **tiny)
    assert not (tmp_path / "run").exists()


def test_greedy_generation_is_the_same_from_disk(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = seqlab.train_lm(small_text, out=tmp_path / "run", tokenizer="word", **tiny)
    text = run.generate("the of", 12, temperature=0)
    assert text == seqlab.load(tmp_path / "run").generate("the of", 12, temperature=0)
    assert text.startswith((" ", "\n"))
    assert "\ufffd" not in run.generate("zebra", 50, temperature=2.0)
    assert np.isfinite(ModelScorer(run.model, run.tokenizer).score("zebra").nats).all()


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
    carried, fresh = (weights(tmp_path / str(c))["model/output.weight"] for c in (True, False))
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


def test_a_folder_that_seqlab_did_not_begin_is_not_touched(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    """Even if its files have the names that a run's have."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "tokenizer.json").write_text("precious")
    (other / "metrics.jsonl").write_text("precious")
    for resume in (False, True):
        with pytest.raises(UsageError, match=r"exists already|not a run folder"):
            seqlab.train_lm(small_text, out=other, resume=resume, **tiny)
    assert {p.read_text() for p in other.iterdir()} == {"precious"}


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
