"""Finished runs mixed: what is kept, what is refused, and what the figures do not count."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import nonsense, tiny_for

import seqlab
from seqlab.core.errors import DamageError, DataError, UsageError
from seqlab.data.sources import open_text
from seqlab.evaluation.mixed import read_members
from seqlab.evaluation.surprisal import nats_of_ids, policy_for
from seqlab.models.gate import constant_gate, context_gate
from seqlab.workflows.lm.members import MEMBERS
from seqlab.workflows.lm.mix import Mixture
from seqlab.workflows.lm.original import part_of
from seqlab.workflows.sheet.sheet import perplexity_sheet

Runs = dict[str, Path]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs of one text with characters: counts, a led network, one with a window; and some that do not fit them."""
    place = tmp_path_factory.mktemp("runs")
    text, other = place / "train.txt", place / "other.txt"
    text.write_text(nonsense(3000), encoding="utf-8", newline="")
    other.write_text(nonsense(3000, seed=1), encoding="utf-8", newline="")
    counted: dict[str, Any] = dict(model="ngram", tokenizer="char", order=3)
    made: dict[str, dict[str, Any]] = {
        "counts": counted,
        "led": tiny_for("gru", model="gru", tokenizer="char"),
        "window": tiny_for("transformer", model="transformer", heads=2, tokenizer="char", guide="none"),
        "bytes": counted | {"tokenizer": "byte"},
        "split": counted | {"split": "70/20/10"},
        "lower": counted | {"normalise": "lower"},
        "90": counted | {"split": "90/10", "order": 4},
        "90-led": tiny_for("gru", model="gru", tokenizer="char", split="90/10"),
    }
    for name, flags in made.items():
        seqlab.train_lm(text, out=place / name, **flags)
    seqlab.train_lm(other, out=place / "other", **counted)
    (place / "b").mkdir()
    seqlab.train_lm(shutil.copy(other, place / "b" / "train.txt"), out=place / "namesake", **counted)
    return {path.name: path for path in place.iterdir() if path.is_dir()} | {"train.txt": text, "other.txt": other}


@pytest.fixture(scope="module")
def both(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mixed") / "both"
    seqlab.mix(runs["counts"], runs["led"], runs["window"], out=out, threads=1)
    return out


def test_it_is_better_than_each_of_its_members(tmp_path: Path) -> None:
    """A 7-gram and an LSTM on Python's own documentation."""
    text = tmp_path / "pydoc.txt"
    content = open_text("pydoc").path.read_bytes()[:30_000]
    text.write_bytes(content)
    how: dict[str, Any] = dict(tokenizer="char", threads=1)
    seqlab.train_lm(text, out=tmp_path / "counts", model="ngram", order=7, **how)
    sizes: dict[str, Any] = dict(width=48, batch=16, context=24, budget="150steps", learning_rate=1e-2)
    seqlab.train_lm(text, out=tmp_path / "lstm", model="lstm", guide="none", **sizes, **how)
    run = seqlab.mix(tmp_path / "counts", tmp_path / "lstm", out=tmp_path / "both", threads=1)
    final = run.final
    assert final is not None
    for part in ("validation", "test"):
        alone = [one[part]["nats_per_token"] for one in final["mixture"]["members"]]
        assert final[part]["nats_per_token"] < min(alone) - 0.01
    assert final["headline"]["value"] == final["test"]["bits_per_byte"]


# --------------------------------------------------------------------------- figures


@pytest.mark.parametrize("names", [("counts", "led"), ("90", "90-led")])
def test_no_figure_counts_what_its_weights_were_fitted_on(runs: Runs, tmp_path: Path, names: tuple[str, str]) -> None:
    """The test text: weights from the validation text. Each half of the validation text: weights from the other."""
    members = [seqlab.load(runs[name]) for name in names]
    run = seqlab.mix(*members, out=tmp_path / "both", threads=1)
    assert run.final is not None
    ids, readings = {}, {}
    for part in ("validation", "test"):
        ids[part] = run.tokenizer.encode(part_of(members[0], part) or "").ids
        readings[part] = read_members(run.model, ids[part], run.tokenizer.begin_id)
    known = readings["validation"]
    fit: Callable[..., Any] = context_gate if run.record["mixture"]["per_context"] else constant_gate
    extra = (lambda f: f) if fit is context_gate else (lambda f: f.shape[1])
    half = len(ids["validation"]) // 2
    first, second = (fit(known.log_p[s], extra(known.features[s])) for s in (slice(half), slice(half, None)))
    gates = torch.cat([second.log_weights(known.features[:half]), first.log_weights(known.features[half:])])
    assert run.final["validation"]["nats"] == pytest.approx(float(known.nats(gates).sum()), rel=1e-9)
    whole = fit(known.log_p, extra(known.features))
    assert torch.equal(run.model.gate.bias, whole.bias)
    if names[0] == "90":
        assert run.final["test"] is None
        assert run.final["headline"]["label"] == "bits/byte (validation)"
        return
    test = readings["test"]
    nats = test.nats(whole.log_weights(test.features))
    assert run.final["test"]["nats"] == pytest.approx(float(nats.sum()), rel=1e-9)
    content = part_of(members[0], "test") or ""
    assert run.score(content).nats == pytest.approx(nats, abs=1e-12)


def test_the_figures_of_the_members_are_their_own(runs: Runs, both: Path) -> None:
    mixed = seqlab.load(both).final["mixture"]
    assert [member["name"] for member in mixed["members"]] == ["counts", "led", "window"]
    assert [member["model"] for member in mixed["members"]] == ["ngram", "gru", "transformer"]
    assert sum(member["weight"] for member in mixed["members"]) == pytest.approx(1)
    for member in mixed["members"]:
        own = seqlab.load(runs[member["name"]])
        for name in ("validation", "test"):
            assert member[name]["nats"] == pytest.approx(own.final[name]["nats"], rel=1e-6)
            assert member[name]["tokens"] == own.final[name]["tokens"]
        assert member["identity"] == own.files.identity
    said = mixed["sentence"]
    assert (
        "tokens of the validation text; in the validation figure each half is scored with weights from the other"
        in said
    )


def test_only_the_first_tokens_are_fitted_and_the_rest_is_scored_with_their_weights(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("mixing", "members"):
        monkeypatch.setattr(f"seqlab.workflows.lm.{module}.FIT_TOKENS", 400)
    run = seqlab.mix(runs["counts"], runs["led"], out=tmp_path / "both", threads=1)
    assert run.final is not None
    assert run.record["mixture"]["tokens"] == 400
    ids = run.tokenizer.encode(part_of(run, "validation") or "").ids
    known = read_members(run.model, ids, run.tokenizer.begin_id)
    rest = known.nats(run.model.gate.log_weights(known.features))[400:]
    assert run.measured["validation"].nats[400:] == pytest.approx(rest, abs=1e-12)
    first = read_members(run.model, ids[:400], run.tokenizer.begin_id).first(400)
    assert torch.allclose(first.log_p, known.log_p[:400], rtol=0, atol=1e-6)


def test_a_normalised_text_and_unknown_words_pay_as_ever(runs: Runs, tmp_path: Path) -> None:
    flags: dict[str, Any] = dict(tokenizer="word", vocab_size=14, normalise="lower")
    seqlab.train_lm(runs["train.txt"], out=tmp_path / "counts", model="ngram", order=2, **flags)
    seqlab.train_lm(runs["train.txt"], out=tmp_path / "gru", **tiny_for("gru", model="gru", **flags))
    run = seqlab.mix(tmp_path / "counts", tmp_path / "gru", out=tmp_path / "both", threads=1)
    assert run.final is not None
    assert run.final["test"]["unknown_rate"] > 0.1
    for member in run.final["mixture"]["members"]:
        own = seqlab.load(tmp_path / member["name"]).final["test"]
        assert {k: v for k, v in member["test"].items() if isinstance(v, int)} == {
            k: v for k, v in own.items() if isinstance(v, int)
        }
        assert member["test"]["nats"] == pytest.approx(own["nats"], rel=1e-6)
        assert run.final["test"]["nats"] < 1.01 * own["nats"]
    table = run.score(part_of(run, "test") or "")
    assert table.total == pytest.approx(run.final["test"]["nats"], rel=1e-9)


# --------------------------------------------------------------------------- a run like any other


def test_it_loads_again_without_its_members(runs: Runs, tmp_path: Path) -> None:
    copies = [shutil.copytree(runs[name], tmp_path / name) for name in ("counts", "led", "window")]
    made = seqlab.mix(*copies, out=tmp_path / "both", threads=1)
    for copy in copies:
        shutil.rmtree(copy)
    run = seqlab.load(tmp_path / "both")
    text = "the of and to in"
    assert np.array_equal(run.score(text).nats, made.score(text).nats)
    assert run.generate("the", 30, seed=3) == made.generate("the", 30, seed=3)
    assert run.generate(["the", "of a"], 12, temperature=0) == [
        run.generate(p, 12, temperature=0) for p in ("the", "of a")
    ]
    assert {path.name for path in run.folder.iterdir()} == {
        "settings.toml", "tokenizer.json", MEMBERS, "member-2-guide.safetensors", "model.safetensors", "checkpoints",
        "metrics.jsonl", "samples.txt", "report.html",
    }  # fmt: skip
    page = (run.folder / "report.html").read_text()
    assert "A mixture of finished runs: " in page
    assert "numbers that its members have learnt" in page
    again = seqlab.train_lm(out=run.folder, resume=True)
    assert again.final == run.final


def test_the_same_runs_give_the_same_bytes(runs: Runs, both: Path, tmp_path: Path) -> None:
    unsaved = seqlab.mix(*(runs[name] for name in ("counts", "led", "window")), threads=1)
    assert isinstance(unsaved, Mixture)
    assert not unsaved.interrupted
    assert unsaved.final is None
    assert "not saved" in repr(unsaved)
    assert unsaved.generate("the", 20) == seqlab.load(both).generate("the", 20)
    one = unsaved.save(tmp_path / "one")
    assert one.files.identity == seqlab.load(both).files.identity
    for name in ("model.safetensors", "tokenizer.json", MEMBERS, "member-2-guide.safetensors", "samples.txt"):
        assert (tmp_path / "one" / name).read_bytes() == (both / name).read_bytes()
    assert one.final is not None
    times = {"seconds"}
    final = seqlab.load(both).final
    assert {k: v for k, v in one.final.items() if k not in times} == {k: v for k, v in final.items() if k not in times}


def test_a_mixture_is_mixed_by_its_members(runs: Runs, both: Path) -> None:
    inner = seqlab.mix(runs["counts"], runs["led"], threads=1)
    outer = seqlab.mix(inner, runs["window"], threads=1)
    flat = seqlab.load(both)
    assert torch.equal(outer.model.gate.slopes, flat.model.gate.slopes)
    assert [member["name"] for member in outer.record["mixture"]["members"]] == ["counts", "led", "window"]
    with pytest.raises(UsageError, match="counts is named twice; name each run once"):
        seqlab.mix(both, runs["counts"])


def test_names_with_a_plus(runs: Runs, tmp_path: Path) -> None:
    odd = shutil.copytree(runs["counts"], tmp_path / "a+b")
    shutil.copytree(runs["led"], tmp_path / "led")
    text = str(runs["other.txt"])
    names = [odd, f"{odd}+{tmp_path / 'led'}", f"{runs['window']}+{odd}"]
    sheet = perplexity_sheet(names, [text], baselines=False, threads=1)
    rows = {row["model"]: row for row in sheet.rows}
    assert rows.keys() == {str(name) for name in names}
    assert rows[str(odd)]["mixture"] is None
    assert [member["name"] for member in rows[names[1]]["mixture"]["members"]] == ["a+b", "led"]
    assert [member["name"] for member in rows[names[2]]["mixture"]["members"]] == ["window", "a+b"]
    assert rows[names[1]]["mixture"]["sentence"].endswith("tokens of the validation text")
    assert not sheet.notes


def test_text_that_the_weights_were_fitted_on_is_pointed_out(runs: Runs, tmp_path: Path) -> None:
    name = f"{runs['counts']}+{runs['led']}"
    part = tmp_path / "part.txt"
    part.write_text((part_of(seqlab.load(runs["counts"]), "validation") or "")[50:900], encoding="utf-8", newline="")
    notes = perplexity_sheet([name], [str(part), str(runs["train.txt"])], baselines=False, threads=1).notes
    assert notes == [
        f"part.txt has text that the weights of {name} were fitted on: its figures flatter a little",
        f"train.txt is the very text that {name} was trained on: its figures flatter",
    ]


# --------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("counts",), "a mixture needs at least two runs; for example: seqlab lm mix"),
        (("counts", "counts"), "counts is named twice"),
        (("counts", "other"), "cannot be mixed: one is of train.txt, the other of other.txt; train both on one text"),
        (("counts", "namesake"), "cannot be mixed: their texts, both called train.txt, differ; train both on one text"),
        (("led", "split"), "one has --split 80/10/10, the other 70/20/10, so one has learnt what the other holds out"),
        (("counts", "lower"), "one has --normalise none, the other lower; train both on one text"),
        (("led", "counts", "bytes"), "their tokenizers differ (char, "),
        (("bytes", "led"), "the pieces of one overlap those of the other, so mixed at token boundaries they are no"),
    ],
)
def test_runs_that_do_not_fit_each_other(runs: Runs, names: tuple[str, ...], message: str, tmp_path: Path) -> None:
    asked: list[Callable[[], Any]] = [lambda: seqlab.mix(*(runs[name] for name in names), out=tmp_path / "out")]
    if len(names) > 1:
        asked.append(lambda: seqlab.mix(*(seqlab.load(runs[name]) for name in names)))
        asked.append(lambda: perplexity_sheet(["+".join(str(runs[n]) for n in names)], [str(runs["other.txt"])]))
    for ask in asked:
        with pytest.raises(UsageError) as caught:
            ask()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_places_and_other_kinds_that_are_refused(runs: Runs, both: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="both exists already; choose another --out"):
        seqlab.mix(runs["counts"], runs["led"], out=both)
    with pytest.raises(UsageError, match=r"there is no run folder .*nowhere"):
        seqlab.mix(runs["counts"], tmp_path / "nowhere")
    with pytest.raises(UsageError, match="--threads 0 must lie between"):
        seqlab.mix(runs["counts"], runs["led"], threads=0)
    with pytest.raises(UsageError, match="a mixture is made of finished runs and cannot be trained further"):
        seqlab.train_lm(runs["train.txt"], from_run=both)
    with pytest.raises(UsageError, match="--budget does not apply: model 'mixture' is made of finished runs"):
        seqlab.train_lm(out=both, resume=True, budget="9s")
    with pytest.raises(UsageError, match="--model 'mixture' is not known"):
        seqlab.train_lm(runs["train.txt"], model="mixture")
    with pytest.raises(UsageError, match="read as they were trained; leave it out"):
        perplexity_sheet([both], [str(runs["other.txt"])], context=4)


def test_a_text_that_is_gone_or_changed_is_named(tmp_path: Path) -> None:
    text = tmp_path / "mine.txt"
    text.write_text(nonsense(1000, seed=9))
    for name, order in (("one", 2), ("two", 3)):
        seqlab.train_lm(text, out=tmp_path / name, model="ngram", tokenizer="char", order=order)
    text.write_text("something else " * 99)
    with pytest.raises(
        UsageError, match=r"is not the text this run was trained on.*weights of a mixture are fitted on"
    ):
        seqlab.mix(tmp_path / "one", tmp_path / "two")
    text.unlink()
    with pytest.raises(
        DataError, match=r"there is no file.*the weights of a mixture are fitted on the text of its runs"
    ):
        seqlab.mix(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize("name", ["model.safetensors", MEMBERS, "member-2-guide.safetensors", "tokenizer.json"])
def test_a_damaged_or_missing_file_is_refused(both: Path, tmp_path: Path, name: str) -> None:
    copy = shutil.copytree(both, tmp_path / "copy")
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(DamageError, match=name):
        seqlab.load(copy)
    (copy / name).unlink()
    with pytest.raises((DamageError, UsageError), match=str(copy)):
        seqlab.load(copy)


def test_a_file_of_another_mixture_is_refused(runs: Runs, both: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(both, tmp_path / "copy")
    seqlab.mix(runs["counts"], runs["led"], out=tmp_path / "two", threads=1)
    for name in ("model.safetensors", MEMBERS):
        kept = (copy / name).read_bytes()
        shutil.copy(tmp_path / "two" / name, copy / name)
        with pytest.raises(DamageError, match="of another run|belongs to another run"):
            seqlab.load(copy)
        (copy / name).write_bytes(kept)
    assert seqlab.load(copy).generate("a", 5)


def test_a_mixture_that_was_killed_while_it_was_measured_is_measured_again(both: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(both, tmp_path / "copy")
    for name in ("metrics.jsonl", "report.html", "samples.txt"):
        (copy / name).unlink()
    final = seqlab.train_lm(out=copy, resume=True).final
    assert final == seqlab.load(both).final
    assert (copy / "report.html").exists()


def test_lost_weights_cannot_be_made_again_from_the_folder(both: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(both, tmp_path / "copy")
    (copy / "model.safetensors").unlink()
    with pytest.raises(
        UsageError, match="the weights of this mixture are lost; mix its runs again with 'seqlab lm mix'"
    ):
        seqlab.train_lm(out=copy, resume=True)


def test_a_windowed_member_keeps_its_own_policy(runs: Runs, both: Path) -> None:
    """Beside members that read on and on: what the run scores alone is what the mixture hears of it."""
    window, run = seqlab.load(runs["window"]), seqlab.load(both)
    ids = run.tokenizer.encode(part_of(run, "test") or "").ids
    alone = nats_of_ids(window.model, ids, run.tokenizer.begin_id, policy_for(window.model))
    assert read_members(run.model, ids, run.tokenizer.begin_id).nats_alone(2) == pytest.approx(alone, abs=1e-9)
    assert "window: segments of 4 tokens, each read after the 4 tokens before it" in str(run.scorer.policy)
