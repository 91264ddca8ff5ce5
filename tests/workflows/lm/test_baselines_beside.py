"""Every run says what it has to beat: simple methods on the text of its headline, as the sheet has them."""

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import nonsense

import seqlab
from seqlab.core.reporting import Reporter
from seqlab.data.sources import open_text
from seqlab.evaluation.baselines import last_bytes
from seqlab.models.ngram import NGramLM
from seqlab.workflows.lm import baselines, words
from seqlab.workflows.lm.original import part_of
from seqlab.workflows.lm.run import LMRun

FEW: dict[str, Any] = dict(model="gru", width=16, depth=1, batch=4, context=8, budget="4steps", threads=1)
COUNTS: dict[str, Any] = dict(model="ngram", tokenizer="byte", order=2, threads=1)


class Heard(Reporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)

    warn = note


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))


def bits(run: LMRun) -> dict[str, float]:
    assert run.final is not None
    return {one["name"]: one["bits_per_byte"] for one in run.final["baselines"]}


def assert_as_sure(final: dict[str, Any], row: dict[str, Any]) -> None:
    """The interval of the headline is that of the sheet, and holds the figure."""
    low, high = final["headline"]["interval"]
    assert [low, high] == pytest.approx(row["interval"], rel=1e-6)
    assert final["headline"]["caution"] == row["caution"]
    assert low < final["headline"]["value"] < high


@pytest.fixture
def small_text(tmp_path: Path) -> Path:
    """Long enough for several blocks in a tenth of it."""
    path = tmp_path / "small.txt"
    path.write_text(nonsense(7000), encoding="utf-8", newline="")
    return path


# --------------------------------------------------------------------------- the figures


@pytest.mark.parametrize("split", ["80/10/10", "90/10"])
def test_they_are_those_of_the_sheet_on_the_text_of_the_headline(small_text: Path, tmp_path: Path, split: str) -> None:
    run = seqlab.train_lm(small_text, out=tmp_path / "run", split=split, **COUNTS)
    final = run.final
    assert final is not None
    part = "test" if split == "80/10/10" else "validation"
    assert final["headline"]["label"] == f"bits/byte ({part})"
    assert final["headline"]["part"] == part
    assert final["headline"]["value"] == final[part]["bits_per_byte"]
    (tmp_path / "held.txt").write_text(part_of(run, part) or "", encoding="utf-8", newline="")
    sheet = seqlab.perplexity_sheet([tmp_path / "run"], [str(tmp_path / "held.txt")])
    rows = {row["model"].split()[0]: row for row in sheet.rows}
    found = bits(run)
    assert set(found) == {"uniform", "7-gram", "xz", "ppmd"}
    assert list(found.values()) == sorted(found.values())
    for name in ("7-gram", "xz", "ppmd"):
        assert found[name] == pytest.approx(rows[name]["bits_per_byte"], rel=1e-12)
    assert_as_sure(final, rows[str(tmp_path / "run")])
    assert run.metrics[-1]["baselines"] == final["baselines"]


def test_counts_of_the_guide_serve_where_they_are_the_same(
    small_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = seqlab.train_lm(small_text, out=tmp_path / "alone", **COUNTS)
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(NGramLM, "fit", lambda *_: pytest.fail("it was counted again"))
    assert bits(seqlab.train_lm(small_text, out=tmp_path / "led", tokenizer="char", **FEW)) == bits(alone)


def test_counts_of_a_normalised_text_are_not_those_of_the_original(small_text: Path, tmp_path: Path) -> None:
    """All figures, the baselines' too, are per byte of the original; so is the interval."""
    alone = seqlab.train_lm(small_text, out=tmp_path / "alone", **COUNTS)
    run = seqlab.train_lm(small_text, out=tmp_path / "lower", tokenizer="char", normalise="ascii,lower", **FEW)
    assert bits(run) == bits(alone)
    assert run.final is not None
    (tmp_path / "held.txt").write_text(part_of(run, "test") or "", encoding="utf-8", newline="")
    (row,) = seqlab.perplexity_sheet([run.folder], [str(tmp_path / "held.txt")], baselines=False).rows
    assert row["bits_per_byte"] == pytest.approx(run.final["test"]["bits_per_byte"], rel=1e-9)
    assert_as_sure(run.final, row)


def test_an_ngram_is_not_listed_beside_itself(small_text: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = dict(model="ngram", threads=1)
    same = seqlab.train_lm(small_text, out=tmp_path / "same", tokenizer="char", order=7, **how)
    assert set(bits(same)) == {"uniform", "xz", "ppmd"}
    shorter = seqlab.train_lm(small_text, out=tmp_path / "shorter", tokenizer="char", order=3, **how)
    bytes_ = seqlab.train_lm(small_text, out=tmp_path / "bytes", tokenizer="byte", order=7, **how)
    assert same.final is not None
    for other in (shorter, bytes_):
        assert bits(other)["7-gram"] == pytest.approx(same.final["test"]["bits_per_byte"], rel=1e-12)


def test_a_mixture_has_those_of_its_members(small_text: Path, tmp_path: Path) -> None:
    seqlab.train_lm(small_text, out=tmp_path / "a", **COUNTS)
    seqlab.train_lm(small_text, out=tmp_path / "b", model="ngram", tokenizer="byte", threads=1)
    both = seqlab.mix(tmp_path / "a", tmp_path / "b", out=tmp_path / "both", threads=1)
    assert bits(both) == bits(seqlab.load(tmp_path / "a"))
    assert both.final is not None
    low, high = both.final["headline"]["interval"]
    assert low < both.final["test"]["bits_per_byte"] < high


def test_unknown_characters_are_counted_in_the_interval(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(nonsense(7000) + "ab ☃ ba " * 200, encoding="utf-8")
    run = seqlab.train_lm(tmp_path / "x.txt", out=tmp_path / "run", tokenizer="char", **FEW)
    assert run.final is not None
    (tmp_path / "held.txt").write_text(part_of(run, "test") or "", encoding="utf-8", newline="")
    rows = seqlab.perplexity_sheet([run.folder], [str(tmp_path / "held.txt")], baselines=False).rows
    assert run.final["test"]["unknown_rate"] > 0
    assert_as_sure(run.final, rows[0])


def test_one_block_has_no_interval(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(nonsense(300), encoding="utf-8")
    run = seqlab.train_lm(tmp_path / "x.txt", out=tmp_path / "run", **COUNTS)
    assert run.final is not None
    assert run.final["headline"]["interval"] is None
    assert words.told(run.final)[0] == f"test text: {run.final['test']['bits_per_byte']:.3f} bits per byte"


def test_of_a_few_bytes_compressors_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("ab ba abba " * 300)
    run = seqlab.train_lm(tmp_path / "x.txt", out=tmp_path / "run", **COUNTS)
    assert set(bits(run)) == {"uniform", "7-gram"}


# --------------------------------------------------------------------------- once for each text


def test_they_are_measured_once_for_each_split_of_a_text(
    small_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bits(seqlab.train_lm(small_text, out=tmp_path / "a", **COUNTS))
    with monkeypatch.context() as patch:
        patch.setattr(baselines, "baselines", lambda *_, **__: pytest.fail("they were measured again"))
        assert bits(seqlab.train_lm(small_text, out=tmp_path / "b", **COUNTS)) == first
    (kept,) = (tmp_path / "cache" / "baselines").iterdir()
    for damage in (b"", b"[3]", b'[{"name": "xz"}]', b"\xff"):
        kept.write_bytes(damage)
        assert bits(seqlab.train_lm(small_text, out=tmp_path / f"after {damage!r}", **COUNTS)) == first
    assert bits(seqlab.train_lm(small_text, out=tmp_path / "c", split="60/20/20", **COUNTS)) != first


def test_a_cache_that_cannot_be_written_loses_nothing(small_text: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "baselines").write_text("a file where a folder should be")
    assert len(bits(seqlab.train_lm(small_text, out=tmp_path / "run", **COUNTS))) == 4


# --------------------------------------------------------------------------- when there are none


def test_a_text_that_has_changed_is_not_measured(
    small_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = seqlab.train_lm(small_text, out=tmp_path / "whole", **COUNTS)
    for name, change in (("gone", Path.unlink), ("other", lambda path: path.write_text("another text"))):
        text, heard = tmp_path / f"{name}.txt", Heard()
        text.write_bytes(small_text.read_bytes())
        with monkeypatch.context() as patch:
            patch.setattr("seqlab.workflows.lm.task.LanguageModelling.describe", lambda *_, f=change, t=text: f(t))
            run = seqlab.train_lm(text, out=tmp_path / name, reporter=heard, **COUNTS)
        assert run.final is not None
        assert whole.final is not None
        assert run.final["test"] == whole.final["test"]
        assert (run.final["baselines"], run.final["headline"]["interval"]) == ([], None)
        assert f"{name}.txt is not what it was when training began: no interval, no baselines" in heard.lines
        assert "Beside simple methods" not in (run.folder / "report.html").read_text()


def test_what_would_take_minutes_or_too_much_memory_is_left_out(
    small_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value, message in (
        ("MAX_HELD_OUT", 1_000, "no baselines: the test text has more than 1,000 bytes"),
        ("available_bytes", lambda: 1_000, "which cannot be had here"),
    ):
        heard = Heard()
        with monkeypatch.context() as patch:
            patch.setattr(baselines, name, value)
            run = seqlab.train_lm(small_text, out=tmp_path / name, reporter=heard, **COUNTS)
        assert run.final is not None
        assert run.final["baselines"] == []
        assert any(message in line for line in heard.lines)


def test_of_a_long_text_only_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "ä☃🙂b" * 20
    (tmp_path / "x.txt").write_text(content, encoding="utf-8")
    text = open_text(str(tmp_path / "x.txt"))
    for limit in range(1, 40):
        monkeypatch.setattr(baselines, "MAX_TRAINING_BYTES", limit)
        read = baselines._end_of(text, (0, text.bytes))
        assert len(read.encode()) <= limit + 4
        assert last_bytes(read, limit) == last_bytes(content, limit)
    monkeypatch.setattr(baselines, "MAX_TRAINING_BYTES", text.bytes)
    assert baselines._end_of(text, (0, text.bytes)) == content


def test_a_baseline_of_a_part_says_so(small_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqlab.evaluation.baselines.last_bytes", lambda text: last_bytes(text, 3_000))
    run = seqlab.train_lm(small_text, out=tmp_path / "run", **COUNTS)
    assert run.final is not None
    assert {one["note"] for one in run.final["baselines"]} == {"fitted on the last 3,000 bytes of the training text"}
    assert "fitted on the last 3,000 bytes" in words.told(run.final)[1]
    assert "The simple methods were fitted on the last 3,000" in (run.folder / "report.html").read_text()


# --------------------------------------------------------------------------- in words


def final(value: float, step: int = 5, **simple: float) -> dict[str, Any]:
    listed = [{"name": name, "bits_per_byte": found} for name, found in sorted(simple.items(), key=lambda s: s[1])]
    figures = {"bits_per_byte": value}
    headline = {"interval": [value - 0.1, value + 0.1]}
    return {"step": step, "validation": {}, "test": figures, "headline": headline, "baselines": listed}


def test_whoever_is_ahead_is_named_in_one_sentence() -> None:
    assert words.who_is_ahead(final(2.0, xz=2.1, ppmd=2.0)) is None
    one = words.who_is_ahead(final(2.0, xz=2.1, ppmd=1.9))
    learns = "on learning from the text that is compressed"
    assert one == f"ppmd is ahead of this model on the test text; unlike the model it goes {learns}"
    two = words.who_is_ahead(final(2.0, 0, xz=1.8, ppmd=1.9))
    assert two == f"xz and ppmd are ahead of this model on the test text; unlike the model they go {learns}"
    mixed = words.who_is_ahead(final(2.0, xz=1.8, uniform=1.95))
    assert mixed == "xz and uniform are ahead of this model on the test text; a longer --budget may change that"
    three = words.who_is_ahead(final(2.0, 0, xz=1.8, ppmd=1.9, uniform=1.95, other=3.0))
    assert three == "xz, ppmd and uniform are ahead of this model on the test text"


def test_what_is_told_of_a_run() -> None:
    first, second, last = words.told(final(2.0, xz=2.1, ppmd=2.05))
    assert first == "test text: 2.000 bits per byte (95 % interval 1.900 to 2.100)"
    assert second == "beside it, on the same text: ppmd 2.050, xz 2.100"
    assert last == f"bits per byte: {words.MEANING}"


def test_what_is_to_be_held_against_an_interval_is_said() -> None:
    found = final(2.0)
    found["headline"]["caution"] = "only 3 blocks"
    assert words.told(found)[0].endswith("(95 % interval 1.900 to 2.100; only 3 blocks)")


def test_a_run_of_before_is_told_as_far_as_it_goes() -> None:
    old = {"step": 5, "test": None, "validation": {"bits_per_byte": 2.5}}
    assert words.told(old) == ["validation text: 2.500 bits per byte", f"bits per byte: {words.MEANING}"]
