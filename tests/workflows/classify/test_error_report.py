"""The page that shows the errors: slices, challenge set, causes, coloured mistakes."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.workflows.classify.conftest import reviews

from seqlab.core.errors import DataError
from seqlab.data.words import read_words
from seqlab.diagnostics.attribution import Pushes
from seqlab.evaluation.calibration import softmax
from seqlab.evaluation.classification import figures_of
from seqlab.workflows.classify import errors
from seqlab.workflows.classify.errors_page import coloured
from seqlab.workflows.classify.errors_words import findings
from seqlab.workflows.classify.explain import pushes_of
from seqlab.workflows.classify.train import train_classifier
from seqlab.workflows.classify.whole_report import report_classifier


@pytest.fixture
def few_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a recurrent model, too, decides its edited texts in a moment."""
    monkeypatch.setattr(errors, "EXAMINED", {"average": (10, 5)})
    monkeypatch.setattr(errors, "EXAMINED_OTHERS", (2, 1))


def test_the_page_of_an_averaging_network(table: Path, tmp_path: Path, few_examined: None) -> None:
    train_classifier(table, out=tmp_path / "run", threads=1, ngrams=1, bucket_bits=14, batch=32)
    before = (tmp_path / "run" / "report.html").read_text()
    run, found = report_classifier(tmp_path / "run", threads=1)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "seqlab classify report" in before
    assert "seqlab classify report" not in page
    wrong = round((1 - run.final["test"]["accuracy"]) * run.final["test"]["n"])
    assert found.causes.errors == wrong > 0
    assert found.causes.shuffled[0] == 0  # an average of single words cannot see their order
    assert "Shuffling the words changed the decision in 0 of" in page
    assert found.challenge is not None
    assert found.challenge.total.pairs >= 120
    assert (
        sum(rate.n for one, rate in found.slices if one.name.startswith(("with negation", "without negation")))
        == (run.final["test"]["n"])
    )
    assert len(found.mistakes) == len({mistake.example.index for mistake in found.mistakes}) <= wrong
    for mistake in found.mistakes:
        predicted = run.predict([mistake.text])[0]
        assert predicted.label == run.labels[mistake.example.direction[1]] != run.labels[mistake.example.direction[0]]
    assert len(re.findall(r'<div class="text">', page)) == len(found.mistakes)


def test_the_findings_name_confusions_and_what_mends_them(table: Path, tmp_path: Path, few_examined: None) -> None:
    train_classifier(table, out=tmp_path / "run", threads=1, ngrams=1, bucket_bits=14, batch=32)
    _, found = report_classifier(tmp_path / "run", threads=1)
    truth, logits = np.repeat([0, 1], 50), np.tile([1.0, 0.0], (100, 1))
    logits[:3] = 0.0, 1.0
    causes = replace(
        found.causes,
        errors=53,
        counts=dict.fromkeys(found.causes.counts, 0) | {"opening": 28},
        applicable=dict.fromkeys(found.causes.counts, 28),
        base_rates=dict.fromkeys(found.causes.counts, (0, 110)),
    )
    measured = replace(found.measured, truth=truth, logits=logits, figures=figures_of(truth, softmax(logits), "ab"))
    said = findings(replace(found, causes=causes, measured=measured), ["a", "b"])
    assert said[0].startswith("53 of 100 test texts are decided wrongly: 53.0 % (")
    assert said[0].endswith("Most often: b taken for a (50), a taken for b (3).")
    opening = (
        "  opening (keeping only the first sentence): mends 28 of 28 errors, upsets 0 of 110 right decisions, +100 % ("
    )
    assert said[3].startswith(opening)


def test_the_page_of_a_recurrent_network(table: Path, tmp_path: Path, few_examined: None) -> None:
    flags = dict(model="gru", width=8, batch=16, budget="12steps", eval_every=6)
    train_classifier(table, out=tmp_path / "run", threads=1, **flags)
    run, found = report_classifier(tmp_path / "run", threads=1)
    assert "integrated gradients" in (tmp_path / "run" / "report.html").read_text()
    for mistake in found.mistakes[:3]:
        z = run.logits([mistake.text, ""])[0]
        true, chosen = mistake.example.direction
        assert z[chosen] > z[true]
        assert len(mistake.pushes.values) == len(read_words([mistake.text]).codes)


def test_pushes_of_a_long_text_are_those_of_what_was_read(table: Path, tmp_path: Path) -> None:
    flags = dict(model="gru", width=8, batch=16, budget="6steps", eval_every=6, length=6)
    run = train_classifier(table, out=tmp_path / "run", threads=1, **flags)
    pushes = pushes_of(run, "a b c d e f g h i j", 1, 0)
    assert np.flatnonzero(pushes.values).tolist() == [0, 1, 2, 7, 8, 9]


def test_more_classes_have_no_challenge_set(
    write_table: Callable[..., Path], tmp_path: Path, few_examined: None
) -> None:
    rows = [(text, f"{label}{k % 4 // 2}") for k, (text, label) in enumerate(reviews(240))]
    train_classifier(write_table(rows), out=tmp_path / "run", threads=1, bucket_bits=12)
    _, found = report_classifier(tmp_path / "run", threads=1)
    assert found.challenge is None
    assert "Challenge set" not in (tmp_path / "run" / "report.html").read_text()
    assert found.as_json()["challenge"] is None


def test_the_same_report_twice_is_the_same_page(table: Path, tmp_path: Path, few_examined: None) -> None:
    train_classifier(table, out=tmp_path / "run", threads=1, bucket_bits=12)
    report_classifier(tmp_path / "run", threads=1)
    first = (tmp_path / "run" / "report.html").read_bytes()
    report_classifier(tmp_path / "run", threads=1)
    assert (tmp_path / "run" / "report.html").read_bytes() == first


def test_data_that_changed_are_refused(table: Path, tmp_path: Path) -> None:
    train_classifier(table, out=tmp_path / "run", threads=1, bucket_bits=12)
    table.write_text(table.read_text() + "one more,positive\n")
    with pytest.raises(DataError, match="have changed since it was trained"):
        report_classifier(tmp_path / "run", threads=1)


def test_coloured_text_is_escaped_and_keeps_every_character() -> None:
    text = 'a <b>bad</b> & "good" film'
    words = read_words([text])
    spans = tuple((int(a), int(b)) for a, b in zip(words.starts, words.ends, strict=True))
    page = coloured(text, Pushes(spans, np.linspace(-1, 1, len(spans))))
    assert "<b>" not in page
    plain = re.sub(r"<span[^>]*>|</span>", "", str(page))
    for entity, sign in (("&lt;", "<"), ("&gt;", ">"), ("&#34;", '"'), ("&amp;", "&")):
        plain = plain.replace(entity, sign)
    assert plain == text


def test_of_a_very_long_text_beginning_and_end_are_shown() -> None:
    text = " ".join(f"w{k}" for k in range(1000))
    words = read_words([text])
    spans = tuple((int(a), int(b)) for a, b in zip(words.starts, words.ends, strict=True))
    page = str(coloured(text, Pushes(spans, np.zeros(len(spans)))))
    assert "(760 words)" in page
    assert "w0 " in page
    assert page.endswith("w999")
    assert "w500" not in page


def test_colours_stand_on_the_words_where_lower_case_is_longer(table: Path, tmp_path: Path) -> None:
    """The small form of İ has two characters: spans count in the lower-cased text, even if none leaves the other."""
    text = "İİ good film   "
    run = train_classifier(table, out=tmp_path / "run", threads=1, bucket_bits=12)
    pushes = pushes_of(run, text, 1, 0)
    strong = Pushes(pushes.spans, np.array([0.0, 1.0, 0.0]))
    assert re.findall(r"<span[^>]*>(.*?)</span>", str(coloured(text, strong))) == ["good"]


def test_data_that_were_moved_can_be_named(table: Path, tmp_path: Path, few_examined: None) -> None:
    train_classifier(table, out=tmp_path / "run", threads=1, bucket_bits=12)
    moved = table.rename(tmp_path / "moved.csv")
    with pytest.raises(DataError, match="say where they are with --data"):
        report_classifier(tmp_path / "run", threads=1)
    _, found = report_classifier(tmp_path / "run", data=moved, threads=1)
    assert found.slices
