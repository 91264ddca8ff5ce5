"""What a classifier may know of the held-out texts, and that rows which belong together are counted as such."""

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tests.workflows.classify.conftest import reviews

from seqlab.core.errors import DataError
from seqlab.core.reporting import Reporter
from seqlab.core.settings.classify import ClassifySettings
from seqlab.core.settings.fields import with_flags
from seqlab.data.label_batches import input_batch
from seqlab.diagnostics.attribution import integrated_gradients
from seqlab.evaluation.classification import accuracy_of
from seqlab.evaluation.paired import against_baselines
from seqlab.workflows.classify import errors
from seqlab.workflows.classify.build import class_weights
from seqlab.workflows.classify.data import ordered_labels, prepare_texts
from seqlab.workflows.classify.explain import pushes_of
from seqlab.workflows.classify.task import Classifying
from seqlab.workflows.classify.train import train_classifier
from seqlab.workflows.classify.whole_report import report_classifier
from seqlab.workflows.duel.classify import ClassifyContest

WriteTable = Callable[..., Path]


def decided(folder: Path) -> list[dict[str, str]]:
    with (folder / "predictions.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def prepared(table: Path, **flags: Any) -> tuple[ClassifySettings, Any]:
    settings = Classifying().fill(with_flags(ClassifySettings(), {"data": str(table), "bucket_bits": 12, **flags}))
    return settings, prepare_texts(settings, Reporter())


@pytest.mark.parametrize("kind", ["average", "gru"])
def test_other_test_texts_change_nothing_of_the_model(write_table: WriteTable, tmp_path: Path, kind: str) -> None:
    """Features, counts, vocabulary, weights and temperature come from training and validation texts alone."""
    rows = reviews(240)
    flags: dict[str, Any] = dict(threads=1, budget="6steps", eval_every=6, least_texts=1)
    flags |= dict(bucket_bits=14) if kind == "average" else dict(model="gru", width=4)
    first = train_classifier(write_table(rows), out=tmp_path / "a", **flags)
    tested = {int(row["row"]) - 2 for row in decided(tmp_path / "a")}
    others = [(f"{text} zebra{k} lovely" if k in tested else text, label) for k, (text, label) in enumerate(rows)]
    second = train_classifier(write_table(others, "others.csv"), out=tmp_path / "b", **flags)
    assert {int(row["row"]) - 2 for row in decided(tmp_path / "b")} == tested
    weights = [load_file(tmp_path / name / "model.safetensors") for name in "ab"]
    assert weights[0].keys() == weights[1].keys()
    assert all(weights[0][key].tobytes() == weights[1][key].tobytes() for key in weights[0])
    assert first.temperature == second.temperature
    assert first.final["test"]["ece"] != second.final["test"]["ece"]


def test_texts_of_one_author_are_no_independent_texts(write_table: WriteTable, tmp_path: Path) -> None:
    rows = [(text, label, f"author {k // 8}") for k, (text, label) in enumerate(reviews(320))]
    table = write_table(rows, header=("text", "label", "author"))
    how = dict(threads=1, bucket_bits=12, group="author", text="text", label="label")
    run = train_classifier(table, out=tmp_path / "run", **how)
    held_out = decided(tmp_path / "run")
    right = np.array([row["label"] == row["predicted"] for row in held_out])
    authors = np.array([rows[int(row["row"]) - 2][2] for row in held_out])
    expected = accuracy_of(right, authors)
    assert run.final["test"]["interval"] == [expected.low, expected.high]
    assert expected.high - expected.low > accuracy_of(right).high - accuracy_of(right).low
    read = prepared(table, group="author", text="text", label="label")[1]
    clusters = read.split.clusters[read.split.test]
    assert len(set(clusters.tolist())) == len(set(authors.tolist())) < len(held_out)
    fitted = {b.name: b.decided == read.truth[read.split.test] for b in read.baselines("test", False)}
    for row in run.final["baselines"]:
        paired = against_baselines(right, fitted, clusters)[row["name"]]
        assert row["difference"]["interval"] == [paired.low, paired.high]


def test_a_duel_judges_authors_not_texts(write_table: WriteTable) -> None:
    rows = [(text, label, f"author {k // 8}") for k, (text, label) in enumerate(reviews(160))]
    table = write_table(rows, header=("text", "label", "author"))
    contest = ClassifyContest(str(table), {"group": "author", "text": "text", "label": "label"}, Reporter())
    assert contest.sizes.sum() == len(contest.texts.split.test)
    assert set(contest.sizes.tolist()) == {8}


def test_naive_bayes_starts_with_the_scale_that_explains_the_training_texts_best(table: Path) -> None:
    settings, data = prepared(table)
    model = Classifying().build(settings, data, Reporter()).eval()
    rows, truth = data.split.train, torch.from_numpy(data.truth[data.split.train])

    def nats(factor: float) -> float:
        model.scale.mul_(factor)
        z = model(input_batch(data.inputs, rows), truth)
        model.scale.div_(factor)
        return float(torch.nn.functional.cross_entropy(z, truth))

    with torch.no_grad():
        assert float(model.scale) != 1
        assert nats(1.0) < min(nats(1.5), nats(1 / 1.5))


def test_classes_that_training_has_not_seen_do_not_weigh(write_table: WriteTable) -> None:
    rows = [(f"word {k}", "abc"[k % 3]) for k in range(60)]
    settings, data = prepared(write_table(rows), balance=True)
    without = data.split.train[data.truth[data.split.train] != 2][:-3]
    data = replace(data, split=replace(data.split, train=without))
    seen = np.bincount(data.truth[without], minlength=3)
    weights = class_weights(settings, data).numpy()
    assert seen[2] == 0
    assert weights[:2] == pytest.approx(seen[:2].sum() / (2 * seen[:2]))


def test_pushes_point_to_the_first_of_the_two_classes(table: Path, tmp_path: Path) -> None:
    run = train_classifier(table, out=tmp_path / "run", threads=1, ngrams=1, bucket_bits=14, batch=32)
    good = run.labels.index("positive")
    pushes = pushes_of(run, "lovely film", good, 1 - good)
    with_it, without = run.logits(["lovely film", "film"])
    margin = (with_it - without)[good] - (with_it - without)[1 - good]
    assert pushes.values[0] == pytest.approx(margin)
    assert pushes.values[0] > 0


@pytest.mark.parametrize("pooling", ["last", "attention"])
def test_pushes_of_words_add_up_without_the_begin_id(table: Path, tmp_path: Path, pooling: str) -> None:
    flags = dict(model="lstm", pooling=pooling, width=8, batch=16, budget="40steps", eval_every=20)
    run = train_classifier(table, out=tmp_path / "run", threads=1, **flags)
    text = "the lovely film with its dull music"
    pushes = pushes_of(run, text, 1, 0)
    x = run.model.embedding(torch.from_numpy(run.reader.read([text]).ids))
    no_words = torch.cat([x[:1], torch.zeros_like(x[1:])])
    with torch.no_grad():
        z = run.model.decide(torch.stack([no_words, x]), torch.tensor([len(x)] * 2))
    change = float((z[1, 1] - z[1, 0]) - (z[0, 1] - z[0, 0]))
    assert pushes.values.sum() == pytest.approx(change, abs=pushes.gap + 1e-5)
    assert pushes.gap < 0.05
    values, _ = integrated_gradients(run.model.decide, x.detach(), 1, 0, start=no_words.detach())
    assert values[0] == 0
    assert pushes.values == pytest.approx(values[1:])


def test_labels_have_one_order_whatever_they_look_like() -> None:
    assert ordered_labels(("10", "9", "inf", "1e3", "9")) == ("9", "10", "1e3", "inf")
    assert ordered_labels(("3", "nan", "1", "inf")) == ("1", "3", "inf", "nan")  # names: nan is no number


def test_labels_that_are_not_those_of_the_run_are_refused(table: Path, tmp_path: Path, monkeypatch: Any) -> None:
    run = train_classifier(table, out=tmp_path / "run", threads=1, bucket_bits=12)
    monkeypatch.setattr(
        "seqlab.workflows.classify.data.ordered_labels", lambda labels: tuple(sorted(set(labels)))[::-1]
    )
    with pytest.raises(DataError, match="are not those of the run"):
        report_classifier(run.folder, threads=1)


def test_a_report_needs_no_file_of_vectors(table: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(errors, "EXAMINED", {"average": (5, 2)})
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("good 1 0 0\nbad 0 1 0\nfilm 0 0 1\n")
    train_classifier(table, out=tmp_path / "run", threads=1, bucket_bits=12, vectors=str(vectors))
    vectors.unlink()
    _, found = report_classifier(tmp_path / "run", threads=1)
    assert found.slices
