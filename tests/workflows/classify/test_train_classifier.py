"""Every kind of classifier from a table to figures, predictions and the same bytes again."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tests.workflows.classify.conftest import reviews

import seqlab
from seqlab.core.errors import DataError, UsageError
from seqlab.core.reporting import Reporter
from seqlab.workflows.classify.measure import what_to_try
from seqlab.workflows.classify.train import train_classifier

SMALL = {
    "average": dict(bucket_bits=12, batch=32),
    "rnn": dict(width=8, batch=16, budget="12steps", eval_every=6),
    "gru": dict(width=8, batch=16, budget="12steps", eval_every=6),
    "lstm": dict(width=8, batch=16, budget="12steps", eval_every=6, pooling="last"),
    "transformer": dict(width=8, heads=2, depth=1, batch=16, budget="12steps", eval_every=6, pooling="first"),
}


class Heard(Reporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)

    warn = note


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_every_kind_trains_measures_and_predicts(table: Path, tmp_path: Path, kind: str) -> None:
    run = train_classifier(table, model=kind, out=tmp_path / "run", threads=1, **SMALL[kind])
    final = run.final
    assert final is not None
    assert 46 <= final["test"]["n"] <= 50  # a fifth of 240
    low, high = final["test"]["interval"]
    assert 0 <= low <= final["test"]["accuracy"] <= high <= 1
    assert [row["name"] for row in final["baselines"]] == [
        *("majority", "TF-IDF + logistic regression", "naive-Bayes-weighted linear model")
    ]
    assert all(0 <= row["mcnemar_p"] <= 1 for row in final["baselines"])
    assert final["baselines"][0]["accuracy"] == pytest.approx(0.5, abs=0.03)
    texts = ["a good film", "a dull story", "", "unseen gibberish xyzzy"]
    again = seqlab.load(tmp_path / "run")
    for found in (run.predict(texts), again.predict(texts)):
        assert [sum(one.probabilities.values()) for one in found] == pytest.approx([1.0] * 4)
        assert all(one.label == max(one.probabilities, key=lambda k: one.probabilities[k]) for one in found)
    assert run.predict(texts) == again.predict(texts)
    assert (tmp_path / "run" / "report.html").read_text().startswith("<!doctype html>")


def test_the_averaging_network_learns_and_beats_majority(table: Path, tmp_path: Path) -> None:
    run = train_classifier(table, out=tmp_path / "run", threads=1, bucket_bits=14, batch=32)
    final = run.final
    assert final["test"]["accuracy"] > 0.75
    good, bad = run.predict(["lovely warm funny film", "dull dreary cold film"])
    assert (good.label, bad.label) == ("positive", "negative")


def test_the_order_of_words_cannot_matter_to_an_average_of_words(table: Path, tmp_path: Path) -> None:
    run = train_classifier(table, out=tmp_path / "run", threads=1, ngrams=1, bucket_bits=12, batch=32)
    texts = ["not a good film but a bad story", "story bad a but film good a not", "a a bad but film good not story"]
    first, *others = run.logits(texts)
    for other in others:
        assert np.array_equal(first, other)  # to the last bit: the same bag


def test_beyond_its_ngrams_order_cannot_matter_either(table: Path, tmp_path: Path) -> None:
    run = train_classifier(table, out=tmp_path / "run", threads=1, ngrams=2, bucket_bits=14, batch=32)
    same_pairs = run.logits(["a b a c a", "a c a b a"])  # a b, b a, a c, c a in both
    assert np.array_equal(*same_pairs)
    one, other = run.logits(["good film bad story", "bad film good story"])
    assert not np.array_equal(one, other)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(table: Path, tmp_path: Path) -> None:
    how = dict(threads=1, bucket_bits=12, batch=32, width=4)
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        train_classifier(table, out=tmp_path / name, seed=seed, **how)
    weights = {name: load_file(tmp_path / name / "model.safetensors") for name in "abc"}
    assert all(weights["a"][key].tobytes() == weights["b"][key].tobytes() for key in weights["a"])
    assert any(weights["a"][key].tobytes() != weights["c"][key].tobytes() for key in weights["a"])
    finals = [json.loads((tmp_path / name / "metrics.jsonl").read_text().splitlines()[-1]) for name in "ab"]
    for final in finals:
        for key in ("seconds", "crc", "run"):
            final.pop(key, None)
    assert finals[0] == finals[1]
    assert (tmp_path / "a" / "predictions.csv").read_bytes() == (tmp_path / "b" / "predictions.csv").read_bytes()


def test_the_split_does_not_depend_on_the_seed_of_training(table: Path, tmp_path: Path) -> None:
    rows = []
    for name, flags in (("a", {"seed": 1}), ("b", {"seed": 2}), ("c", {"seed": 1, "split_seed": 1})):
        train_classifier(table, out=tmp_path / name, threads=1, bucket_bits=12, **flags)
        rows.append([line.split(",")[0] for line in (tmp_path / name / "predictions.csv").read_text().splitlines()[1:]])
    assert rows[0] == rows[1] != rows[2]


def test_labels_are_names_whatever_they_look_like(write_table: Callable[..., Path], tmp_path: Path) -> None:
    rows = [
        (f"{word} film {k}", label) for k in range(60) for word, label in (("bad", "1"), ("fine", "10"), ("so", "2"))
    ]
    run = train_classifier(write_table(rows), out=tmp_path / "run", threads=1, bucket_bits=12, batch=16)
    assert run.labels == ("1", "2", "10")  # numbers by value
    assert run.predict(["bad film", "fine film", "so film"])[1].label == "10"
    assert [row["label"] for row in run.final["test"]["classes"]] == ["1", "2", "10"]


def test_balance_helps_the_rare_class(write_table: Callable[..., Path], tmp_path: Path) -> None:
    rows = [row for k, row in enumerate(reviews(600, seed=2)) if row[1] == "positive" or k % 12 == 0]
    recalls = {}
    for balance in (False, True):
        out = tmp_path / str(balance)
        run = train_classifier(
            write_table(rows),
            out=out,
            threads=1,
            bucket_bits=12,
            batch=32,
            balance=balance,
            bayes=False,
            width=4,
            learning_rate=0.02,
            budget="6epochs",
        )
        recalls[balance] = run.final["test"]["classes"][0]["recall"]
    assert recalls[True] > recalls[False]


def test_groups_and_repeated_texts_stay_on_one_side(write_table: Callable[..., Path], tmp_path: Path) -> None:
    rows = [(text, label, f"author {k % 30}") for k, (text, label) in enumerate(reviews(240))]
    rows += [(text.upper(), label, "") for text, label in reviews(24)]
    heard = Heard()
    table = write_table(rows, header=("text", "label", "author"))
    how = dict(out=tmp_path / "run", threads=1, bucket_bits=12, reporter=heard)
    train_classifier(table, text="text", label="label", group="author", **how)
    assert any("24 rows repeat the text" in line for line in heard.lines)
    table_of = {line: row for line, row in enumerate(rows, start=2)}
    held_out = {int(line.split(",")[0]) for line in (tmp_path / "run" / "predictions.csv").read_text().splitlines()[1:]}
    authors = {table_of[line][2] for line in held_out} - {""}
    outside = {row[2] for line, row in table_of.items() if line not in held_out} - {""}
    assert not authors & outside or len(authors & outside) <= 3  # validation authors are outside the test part too
    texts = {table_of[line][0].lower() for line in held_out}
    assert not texts & {row[0].lower() for line, row in table_of.items() if line not in held_out}


def test_several_columns_are_joined(write_table: Callable[..., Path], tmp_path: Path) -> None:
    rows = [(text.split()[0], text, label) for text, label in reviews(120)]
    table = write_table(rows, header=("title", "body", "stars"))
    run = train_classifier(table, text="title,body", label="stars", out=tmp_path / "run", threads=1, bucket_bits=12)
    with (tmp_path / "run" / "predictions.csv").open(newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    assert all(title == body.split()[0] for title, _, body in (text.partition("\n") for text in texts))
    assert 22 <= run.final["test"]["n"] <= 26


def test_a_label_that_training_never_saw_is_measured_not_refused(
    write_table: Callable[..., Path], tmp_path: Path
) -> None:
    """With groups it cannot be avoided: all rows of a label may be of one group that is held out."""
    rows = [(text, label, f"g{k % 20}") for k, (text, label) in enumerate(reviews(200))]
    rows += [(f"odd words here {k}", "rare", "h") for k in range(45)]
    heard = Heard()
    table = write_table(rows, header=("text", "label", "author"))
    for seed in range(2):
        out = tmp_path / f"run{seed}"
        run = train_classifier(
            table, group="author", out=out, threads=1, bucket_bits=12, split_seed=seed, reporter=heard
        )
        figures = {row["label"]: row for row in run.final["test"]["classes"]}
        assert set(figures) == {"negative", "positive", "rare"}


def test_too_many_classes_are_one_line(write_table: Callable[..., Path], tmp_path: Path) -> None:
    rows = [(f"text number {k}", f"id{k}") for k in range(100_000)]
    with pytest.raises(DataError, match="100,000 classes"):
        train_classifier(write_table(rows), out=tmp_path / "run", threads=1)
    assert not (tmp_path / "run").exists()


def test_many_classes_are_learnt_with_vectors(write_table: Callable[..., Path], tmp_path: Path) -> None:
    rows = [(f"word{k % 30} and word{(k * 7) % 30} row {k}", f"class {k % 30}") for k in range(900)]
    run = train_classifier(
        write_table(rows),
        out=tmp_path / "run",
        threads=1,
        bucket_bits=14,
        bayes=False,
        ngrams=1,
        width=16,
        learning_rate=0.05,
        budget="12epochs",
        batch=64,
    )
    assert run.final["test"]["accuracy"] > 0.5
    assert len(run.final["test"]["classes"]) == 30


def test_a_text_of_ten_megabytes_is_read(write_table: Callable[..., Path], tmp_path: Path) -> None:
    rows = [*reviews(60), ("good film " * 1_000_000, "positive")]
    run = train_classifier(write_table(rows), out=tmp_path / "run", threads=1, bucket_bits=12)
    assert run.predict(["good film " * 1_000_000])[0].label in ("negative", "positive")


def test_without_any_known_word_the_answer_is_how_common_the_classes_are(
    write_table: Callable[..., Path], tmp_path: Path
) -> None:
    rows = [row for k, row in enumerate(reviews(400)) if row[1] == "positive" or k % 8 == 0]
    run = train_classifier(write_table(rows), out=tmp_path / "run", threads=1, bucket_bits=22, budget="1steps")
    empty, unknown = run.predict(["", "xyzzy plugh"])
    assert empty.probabilities == unknown.probabilities
    assert empty.probabilities["positive"] > 0.6


def test_predict_wants_a_list(table: Path, tmp_path: Path) -> None:
    run = train_classifier(table, out=tmp_path / "run", threads=1, bucket_bits=12)
    with pytest.raises(UsageError, match=r"of one text: \[text\]"):
        run.predict("one text")
    assert run.predict([]) == []


def test_a_baseline_that_wins_is_said_to_win(table: Path, tmp_path: Path) -> None:
    run = train_classifier(table, out=tmp_path / "run", model="rnn", width=2, budget="1steps", threads=1)
    assert any("BEHIND" in sentence for sentence in run.final["verdict"])
    assert 'class="lost"' in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("kind", ["average", "gru", "transformer"])
@pytest.mark.parametrize("trained", [False, True])
def test_given_vectors_are_started_from_and_stay_if_they_should(
    table: Path, tmp_path: Path, kind: str, trained: bool
) -> None:
    words = ["good", "bad", "film", "story", "dull"]
    lines = [f"{word} {k} {-k} {k / 2} 1 0.5" for k, word in enumerate(words, start=1)]
    (tmp_path / "vectors.txt").write_text("\n".join(lines))
    flags = SMALL[kind] | ({"bucket_bits": 20} if kind == "average" else {})
    how = dict(out=tmp_path / "run", threads=1, vectors=str(tmp_path / "vectors.txt"), train_vectors=trained)
    run = train_classifier(table, model=kind, **how, **flags)
    matrix = run.model.vectors.weight if kind == "average" else run.model.embedding.weight[3:]
    given = np.array([[float(value) for value in line.split()[1:]] for line in lines], np.float32)
    near = [float(np.abs(matrix.detach().numpy() - row).sum(1).min()) for row in given]
    assert matrix.shape[1] == 5
    assert all(distance == 0 for distance in near) != trained
    assert run.record["checksums"].keys() == {"data", "vectors"}
    assert seqlab.load(tmp_path / "run").predict(["a good film"]) == run.predict(["a good film"])


def test_vectors_of_another_width_than_said_are_one_line(table: Path, tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("good 1 2 3\nbad 3 2 1\n")
    with pytest.raises((DataError, UsageError), match="3"):
        train_classifier(table, out=tmp_path / "run", threads=1, vectors=str(tmp_path / "vectors.txt"), width=8)


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_an_interrupted_run_goes_on_to_the_same_bits(table: Path, tmp_path: Path, kind: str) -> None:
    flags = SMALL[kind] | dict(model=kind, budget="10steps", eval_every=5, dropout=0.3, threads=1)
    flags |= dict(word_dropout=0.3, width=4) if kind == "average" else {}
    whole = train_classifier(table, out=tmp_path / "whole", **flags)
    asked = iter([False] * 7)
    stopped = train_classifier(table, out=tmp_path / "parts", stop=lambda: next(asked, True), **flags)
    assert stopped.interrupted
    assert stopped.predict(["a good film"])  # with the best weights so far
    parts = train_classifier(out=tmp_path / "parts", resume=True)
    for key, value in whole.model.state_dict().items():
        assert torch.equal(value, parts.model.state_dict()[key]), key
    same = ("test", "validation", "baselines", "temperature")
    assert {key: whole.final[key] for key in same} == {key: parts.final[key] for key in same}
    assert (tmp_path / "whole/predictions.csv").read_bytes() == (tmp_path / "parts/predictions.csv").read_bytes()


@pytest.mark.parametrize("flags", [{"attention": "separable"}, {"attention": "random_features", "features": 6}])
def test_attention_of_linear_cost_trains_and_loads(table: Path, tmp_path: Path, flags: dict[str, Any]) -> None:
    run = train_classifier(table, model="transformer", out=tmp_path / "run", threads=1, **SMALL["transformer"], **flags)
    again = seqlab.load(tmp_path / "run")
    layer = again.model.encoder.blocks[0].attention
    assert layer.kind == flags["attention"]
    assert len(getattr(layer, "directions", ())) == flags.get("features", 0)
    assert run.predict(["a good film"]) == again.predict(["a good film"])


def test_a_run_from_before_there_was_a_choice_of_attention_still_loads(table: Path, tmp_path: Path) -> None:
    run = train_classifier(table, model="transformer", out=tmp_path / "run", threads=1, **SMALL["transformer"])
    stored = run.files.read()
    assert stored.table["model"].pop("attention") == "softmax"
    run.files.write(stored.kind, {g: stored.table[g] for g in ("data", "model", "training")}, stored.record)
    old = seqlab.load(tmp_path / "run")
    assert old.settings.model.attention is None
    assert old.predict(["a good film"]) == run.predict(["a good film"])
    assert not train_classifier(out=tmp_path / "run", resume=True).interrupted


def test_naive_bayes_that_is_too_large_is_left_out_aloud(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqlab.workflows.classify.data.MOST_BAYES", 10)
    heard = Heard()
    run = train_classifier(table, out=tmp_path / "run", threads=1, reporter=heard, **SMALL["average"])
    assert run.model.weights is None
    assert any("too many for naive Bayes" in line for line in heard.lines)


@pytest.mark.parametrize(("split", "flattered"), [("80/20", True), ("72/8/20", False)])
def test_figures_of_the_texts_that_chose_the_weights_are_said_to_flatter(
    table: Path, tmp_path: Path, split: str, flattered: bool
) -> None:
    train_classifier(table, out=tmp_path / "run", threads=1, split=split, **SMALL["average"])
    assert ("which flatters the model" in (tmp_path / "run" / "report.html").read_text("utf-8")) is flattered


def test_where_naive_bayes_would_be_too_large_vectors_take_its_place(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Features times classes of counts."""
    monkeypatch.setattr("seqlab.workflows.classify.data.MOST_BAYES", 10)
    run = train_classifier(table, out=tmp_path / "run", threads=1, bucket_bits=12)
    assert run.model.weights is None
    assert run.model.vectors.weight.shape[1] == 64
    assert seqlab.load(tmp_path / "run").predict(["good"]) == run.predict(["good"])


def test_few_validation_texts_do_not_make_predictions_absurdly_sure(
    write_table: Callable[..., Path], tmp_path: Path
) -> None:
    rows = [(f"{'good' if k % 2 else 'bad'} film {k}", "positive" if k % 2 else "negative") for k in range(60)]
    run = train_classifier(write_table(rows), out=tmp_path / "run", threads=1, bucket_bits=20)
    assert run.final["temperature"] > 1 / 3
    assert max(run.predict(["good film"])[0].probabilities.values()) < 0.9999


@pytest.mark.parametrize(
    ("changed", "hint"),
    [
        ({}, "after 10 steps the model was still getting better: try --budget 20epochs"),
        ({"test": None}, "after 10 steps the model was still getting better: try --budget 20epochs"),
        ({"best_step": 8}, None),  # it had been better before
        ({"step": 500, "best_step": 500}, None),
        ({"step": 0, "best_step": 0}, None),
        ({"baselines": [{"accuracy": 0.9}, {"accuracy": None}]}, None),
    ],
)
def test_a_longer_budget_is_named_where_it_may_help(changed: dict[str, Any], hint: str | None) -> None:
    final: dict[str, Any] = {"test": {"accuracy": 0.91}, "validation": {"accuracy": 0.9}, "step": 10, "best_step": 10}
    final |= {"texts": 2160, "baselines": [{"accuracy": 0.93}, {"accuracy": None}]}
    assert what_to_try(final | changed, train_texts=1080) == hint
