"""A run is also measured as it goes on learning from the text of its headline, as compressors do."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Command, seqlab_command  # noqa: F401 (the fixture)
from tests.conftest import nonsense

import seqlab
from seqlab.workflows.lm import words
from seqlab.workflows.lm.original import part_of
from seqlab.workflows.lm.run import LMRun

FEW: dict[str, Any] = dict(model="gru", width=16, depth=1, batch=4, context=8, budget="4steps", threads=1)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Its last fifth has a phrase that comes again and again, and not before; and a letter that training never saw."""
    path = tmp_path / "text.txt"
    again = "The Quick brown foxes jump ☃ over it. "
    path.write_text(nonsense(9000) + again * 250, encoding="utf-8", newline="")
    return path


def held_out(run: LMRun, folder: Path) -> str:
    path = folder / "held.txt"
    path.write_text(part_of(run, "test") or "", encoding="utf-8", newline="")
    return str(path)


@pytest.mark.parametrize(
    "flags",
    [
        dict(tokenizer="char"),
        dict(tokenizer="char", normalise="lower"),
        dict(tokenizer="bpe", vocab_size=300, guide="none"),
    ],
    ids=str,
)
def test_it_is_what_the_sheet_finds(text: Path, tmp_path: Path, flags: dict[str, Any]) -> None:
    run = seqlab.train_lm(text, out=tmp_path / "run", **FEW, **flags)
    assert run.final is not None
    sheet = seqlab.perplexity_sheet([run.folder], [held_out(run, tmp_path)], reading_on=True, threads=1)
    rows = {row["model"]: row for row in sheet.rows if not row["closed_vocabulary"]}
    plain, reading = rows[str(run.folder)], rows[f"{run.folder}, reading on"]
    found = run.final["reading_on"]
    assert found["bits_per_byte"] == pytest.approx(reading["bits_per_byte"], rel=1e-6)
    assert found["tokens"] == run.final["test"]["tokens"]
    assert plain["bits_per_byte"] == pytest.approx(run.final["test"]["bits_per_byte"], rel=1e-6)
    assert found["bits_per_byte"] < 0.8 * plain["bits_per_byte"]
    assert reading["rank"] < plain["rank"]
    assert "counts of all of the text before" in reading["context"]
    (pair,) = (row for row in sheet.comparisons if {row["a"], row["b"]} == {plain["model"], reading["model"]})
    assert "; one run, with and without reading on" in pair["sentence"]


def test_unknown_words_pay_for_their_spelling_as_before(text: Path, tmp_path: Path) -> None:
    run = seqlab.train_lm(text, out=tmp_path / "run", tokenizer="word", **FEW)
    assert run.final is not None
    sheet = seqlab.perplexity_sheet([run.folder], [held_out(run, tmp_path)], reading_on=True, threads=1)
    opened, closed = (
        {row["model"]: row["nats"] for row in sheet.rows if row["closed_vocabulary"] is one} for one in (False, True)
    )
    names = str(run.folder), f"{run.folder}, reading on"
    spelling = [opened[name] - closed[name] for name in names]
    assert spelling[0] == pytest.approx(spelling[1], rel=1e-9)
    assert run.final["reading_on"]["unknown_rate"] == run.final["test"]["unknown_rate"] > 0.1
    assert closed[names[1]] < closed[names[0]]
    assert opened[names[1]] / (run.final["reading_on"]["bytes"]) == pytest.approx(
        run.final["reading_on"]["bits_per_byte"] * math.log(2), rel=1e-6
    )


def test_an_ngram_and_a_mixture_read_on_too(text: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = dict(model="ngram", tokenizer="byte", threads=1)
    for order in (2, 4):
        seqlab.train_lm(text, out=tmp_path / f"{order}", order=order, **how)
    both = seqlab.mix(tmp_path / "2", tmp_path / "4", out=tmp_path / "both", threads=1)
    for run in (seqlab.load(tmp_path / "2"), both):
        assert run.final is not None
        assert run.final["reading_on"]["bits_per_byte"] < 0.8 * run.final["test"]["bits_per_byte"]
    named = f"{tmp_path / '2'}+{tmp_path / '4'}"
    sheet = seqlab.perplexity_sheet([named], [held_out(both, tmp_path)], reading_on=True, baselines=False, threads=1)
    assert [row["model"].endswith(", reading on") for row in sheet.rows] == [True, False]


def test_a_held_out_text_too_short_to_learn_from_has_none(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(nonsense(900), encoding="utf-8")
    run = seqlab.train_lm(tmp_path / "x.txt", out=tmp_path / "run", tokenizer="char", **FEW)
    assert run.final is not None
    assert run.final["reading_on"] is None
    assert "reading on" not in (run.folder / "report.html").read_text()


def test_the_page_and_the_json_have_it(text: Path, tmp_path: Path, seqlab_command: Command) -> None:  # noqa: F811 (the fixture)
    out = str(tmp_path / "run")
    flags = [f"--{name}={value}" for name, value in FEW.items()]
    answer = seqlab_command("lm", "train", str(text), "--out", out, "--tokenizer", "char", *flags, "--json")
    found = json.loads(answer.out)
    bits = found["reading_on"]["bits_per_byte"]
    assert 0 < bits < found["test"]["bits_per_byte"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert f'<b>this model, reading on</b></td><td class="n"><b>{bits:.3f}</b>' in page
    sheet = seqlab_command("lm", "perplexity", out, "--on", str(text), "--reading-on", "--no-baselines", "--threads", 1)
    assert sheet.code == 0, sheet.err
    assert "run, reading on" in sheet.out
    refused = seqlab_command("lm", "perplexity", "--matrix", out, str(text), "--reading-on")
    assert (refused.code, "--reading-on does not go with --matrix" in refused.err) == (2, True)


def test_what_is_told_of_it() -> None:
    final: dict[str, Any] = {
        "step": 5, "validation": {}, "test": {"bits_per_byte": 2.0}, "headline": {},
        "baselines": [{"name": "ppmd", "bits_per_byte": 1.8}, {"name": "7-gram", "bits_per_byte": 2.1}],
    }  # fmt: skip
    assert words.as_it_reads_on(final) is None
    assert words.as_it_reads_on(final | {"reading_on": None}) is None
    reading = final | {"reading_on": {"bits_per_byte": 1.7}}
    assert words.as_it_reads_on(reading) == f"{words.READING_ON}: 1.700 (ppmd 1.800)"
    assert words.as_it_reads_on(reading | {"baselines": []}) == f"{words.READING_ON}: 1.700"
    assert words.told(reading)[-2] == f"{words.READING_ON}: 1.700 (ppmd 1.800)"
