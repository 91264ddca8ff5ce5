"""The sheet: units agree, intervals and tests derive from one table, closed figures are labelled and not ranked."""

import csv
import itertools
import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import nonsense, tiny_for

import seqlab
from seqlab.core.errors import DamageError, DataError, UsageError
from seqlab.evaluation.baselines import compressor_nats
from seqlab.workflows.lm.original import part_of
from seqlab.workflows.sheet.csv_file import write_blocks_csv, write_csv
from seqlab.workflows.sheet.sheet import Sheet, perplexity_sheet


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three runs on one text: characters, words with many unknown, BPE."""
    place = tmp_path_factory.mktemp("runs")
    text = place / "train.txt"
    text.write_text(nonsense(4000), encoding="utf-8", newline="")
    other = place / "other.txt"
    other.write_text(nonsense(9000, seed=5).replace("was", "wuz").replace("his", "HIS☃"), encoding="utf-8", newline="")
    made = {"char": dict(tokenizer="char", order=4), "word": dict(tokenizer="word", vocab_size=20, order=2)}
    for name, settings in made.items():
        seqlab.train_lm(text, out=place / name, model="ngram", **settings)
    seqlab.train_lm(text, out=place / "bpe", **tiny_for("gru", model="gru", tokenizer="bpe", vocab_size=280))
    return {"train": text, "other": other, **{name: place / name for name in (*made, "bpe")}}


@pytest.fixture(scope="module")
def sheet(folders: dict[str, Path]) -> Sheet:
    runs = [folders[name] for name in ("word", "char", "bpe")]
    return perplexity_sheet(runs, [str(folders["other"])])


def row_of(sheet: Sheet, folder: Path, *, closed: bool = False) -> dict[str, Any]:
    return next(r for r in sheet.rows if r["model"] == str(folder) and r["closed_vocabulary"] is closed)


def test_all_units_derive_from_one_total(sheet: Sheet, folders: dict[str, Path]) -> None:
    content = folders["other"].read_text("utf-8")
    words = len(content.split())
    for row in sheet.rows:
        nats = row["nats"]
        assert row["bits_per_byte"] == pytest.approx(nats / math.log(2) / len(content.encode()), rel=1e-13)
        if row["tokens"] is None:
            continue
        assert row["nats_per_token"] == pytest.approx(nats / row["tokens"], rel=1e-13)
        assert row["bits_per_character"] == pytest.approx(nats / math.log(2) / len(content), rel=1e-13)
        for unit, count in (("token", row["tokens"]), ("word", words), ("character", len(content))):
            assert row[f"perplexity_per_{unit}"] == pytest.approx(math.exp(nats / count), rel=1e-12)
            bits = nats / math.log(2) / count
            assert row[f"perplexity_per_{unit}"] == pytest.approx(2**bits, rel=1e-12)  # base 2 and base e agree


def test_rows_come_from_the_runs_own_surprisals(sheet: Sheet, folders: dict[str, Path]) -> None:
    content = folders["other"].read_text("utf-8")
    for name in ("word", "char", "bpe"):
        table = seqlab.load(folders[name]).score(content)
        assert row_of(sheet, folders[name])["nats"] == table.total
        assert row_of(sheet, folders[name])["tokens"] == len(table)


def test_closed_figures_are_labelled_beside_the_open_one_and_never_ranked(
    sheet: Sheet, folders: dict[str, Path]
) -> None:
    opened, closed = (row_of(sheet, folders["word"], closed=c) for c in (False, True))
    assert closed["bits_per_byte"] < opened["bits_per_byte"]
    assert closed["unknown_rate"] == opened["unknown_rate"] > 0.05
    assert closed["rank"] is None
    ranks = [row["rank"] for row in sheet.rows if not row["closed_vocabulary"]]
    assert ranks == list(range(1, len(ranks) + 1))
    figures = [row["bits_per_byte"] for row in sheet.rows if not row["closed_vocabulary"]]
    assert figures == sorted(figures)
    assert not any(r["closed_vocabulary"] for r in sheet.rows if r["model"] == str(folders["bpe"]))


def test_intervals_hold_the_figure_in_every_unit(sheet: Sheet) -> None:
    measured = [row for row in sheet.rows if row["interval"]]
    assert measured
    for row in measured:
        low, high = row["interval"]
        assert low < row["bits_per_byte"] < high
        for unit, (least, most) in row["intervals"].items():
            assert least < row[unit] < most
        assert row["blocks"] > 30
    assert {row["bound"].partition(":")[0] for row in measured} == {"exact", "upper bound", "closed vocabulary"}


def test_baselines_stand_beside_the_models(sheet: Sheet, folders: dict[str, Path]) -> None:
    names = [row["model"] for row in sheet.rows]
    assert "7-gram of characters on train.txt" in names
    train = part_of(seqlab.load(folders["char"]), "train")
    assert train is not None
    content = folders["other"].read_text("utf-8")
    for name in ("gzip", "bz2", "xz", "ppmd"):
        row = next(r for r in sheet.rows if r["model"] == f"{name} after the training text")
        assert row["nats"] == compressor_nats(name, train, content)
        assert row["tokens"] is row["perplexity_per_token"] is row["interval"] is None
    without = perplexity_sheet([folders["char"]], [str(folders["other"])], baselines=False)
    assert [row["model"] for row in without.rows if row["rank"]] == [str(folders["char"])]


def test_a_named_ngram_is_not_repeated_as_a_baseline(folders: dict[str, Path], tmp_path: Path) -> None:
    seqlab.train_lm(folders["train"], out=tmp_path / "seven", model="ngram", tokenizer="char", order=7)
    names = [row["model"] for row in perplexity_sheet([tmp_path / "seven"], [str(folders["other"])]).rows]
    assert not any("7-gram" in name for name in names)
    assert any("xz" in name for name in names)


def test_every_pair_is_tested_on_the_same_blocks(sheet: Sheet, folders: dict[str, Path]) -> None:
    assert len(sheet.comparisons) == 6  # three runs and the n-gram
    by_pair = {(c["a"], c["b"]): c for c in sheet.comparisons}
    one = by_pair[(str(folders["word"]), str(folders["char"]))]
    word, char = (row_of(sheet, folders[name])["bits_per_byte"] for name in ("word", "char"))
    assert one["difference"] == pytest.approx(word - char, rel=1e-9)
    assert one["interval"][0] < one["difference"] < one["interval"][1]
    for comparison in sheet.comparisons:
        assert comparison["p"] >= comparison["p_alone"]
        real = comparison["p"] < 0.05
        assert ("the difference is real" in comparison["sentence"]) is real
        assert ("may be chance" in comparison["sentence"]) is not real


def test_a_short_text_has_an_unreliable_interval(folders: dict[str, Path], tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("the of and to in that it is was he")
    rows = perplexity_sheet([folders["char"]], [str(short)], baselines=False).rows
    assert "unreliable" in rows[0]["caution"]


def test_another_script_is_scored_as_stated(folders: dict[str, Path], tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.txt"
    foreign.write_text("漢字 かな交じり文 " * 50, encoding="utf-8")
    sheet = perplexity_sheet([folders["word"], folders["char"]], [str(foreign)], baselines=False)
    assert all(math.isfinite(row["bits_per_byte"]) for row in sheet.rows)
    assert row_of(sheet, folders["char"])["unknown_rate"] == pytest.approx(0.8)
    assert any("are unknown to" in note for note in sheet.notes)


def test_the_training_text_itself_is_pointed_out(folders: dict[str, Path]) -> None:
    sheet = perplexity_sheet([folders["char"]], [str(folders["train"])], baselines=False)
    assert any("the very text" in note for note in sheet.notes)


def test_normalising_lowers_the_flattering_figure_and_pays_for_it(folders: dict[str, Path]) -> None:
    other = str(folders["other"])
    plain = perplexity_sheet([folders["char"]], [other], baselines=False).rows[0]
    lowered = perplexity_sheet([folders["char"]], [other], normalise="ascii,lower", baselines=False).rows[0]
    assert lowered["flattering_bits_per_byte"] < plain["bits_per_byte"]
    assert lowered["restoration_bits_per_byte"] > 0
    total = lowered["flattering_bits_per_byte"] + lowered["restoration_bits_per_byte"]
    assert lowered["bits_per_byte"] == pytest.approx(total, rel=1e-12)
    assert plain["restoration_bits_per_byte"] == 0
    assert plain["raw_bits_per_byte"] is plain["normalisation"] is None
    assert lowered["raw_bits_per_byte"] == pytest.approx(plain["bits_per_byte"], rel=1e-12)
    verdict = "helps" if lowered["bits_per_byte"] < plain["bits_per_byte"] else "hurts"
    assert any(word in lowered["normalisation"] for word in (f"ascii,lower {verdict}", "no difference"))
    with pytest.raises(UsageError, match="lowr"):
        perplexity_sheet([folders["char"]], [other], normalise="lowr")


def test_a_run_trained_on_normalised_text_pays_too(folders: dict[str, Path], tmp_path: Path) -> None:
    settings = dict(model="ngram", tokenizer="char", order=3)
    run = seqlab.train_lm(folders["other"], out=tmp_path / "run", normalise="lower,punctuation", **settings)
    assert run.final is not None
    validation = run.final["validation"]
    assert validation["restoration_bits_per_byte"] > 0
    original = part_of(run, "validation")
    assert original is not None
    assert validation["bytes"] == len(original.encode())
    assert validation["nats"] == pytest.approx(run.score(original).total, rel=1e-9)
    assert isinstance(run.generate("The HIS", tokens=5), str)
    trained = seqlab.train_lm(folders["other"], out=tmp_path / "gru", normalise="lower", **tiny_for("gru"))
    resumed = seqlab.train_lm(out=tmp_path / "gru", resume=True)
    assert trained.final == resumed.final


def test_the_csv_has_every_token_with_its_span(sheet: Sheet, tmp_path: Path) -> None:
    write_csv(tmp_path / "tokens.csv", sheet.scored)
    with (tmp_path / "tokens.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for one in sheet.scored:
        mine = [row for row in rows if row["model"] == one.reader.name]
        assert np.array([float(row["nats"]) for row in mine]).tolist() == one.surprisals.nats.tolist()
        content = one.content.encode()
        assert all(content[int(r["start"]) : int(r["end"])].decode("utf-8", "replace") == r["written"] for r in mine)


def test_no_model_is_wrong_use(folders: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="no model is named"):
        perplexity_sheet([], [str(folders["other"])])


def test_a_moved_training_text_costs_only_the_baselines(folders: dict[str, Path], tmp_path: Path) -> None:
    text = tmp_path / "gone.txt"
    text.write_text(nonsense(800), encoding="utf-8")
    seqlab.train_lm(text, out=tmp_path / "run", model="ngram", tokenizer="char", order=2)
    text.unlink()
    sheet = perplexity_sheet([tmp_path / "run"], [str(folders["other"])])
    assert {row["model"] for row in sheet.rows} == {str(tmp_path / "run")}
    json.dumps(sheet.rows)


def test_texts_of_one_name_are_told_apart(folders: dict[str, Path], tmp_path: Path) -> None:
    for name, words in (("x", "the of WERT and"), ("y", "it is was he")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t.txt").write_text(words)
    sources = [str(tmp_path / "x" / "t.txt"), str(tmp_path / "y" / "t.txt")]
    sheet = perplexity_sheet([folders["word"]] * 2, [*sources, sources[0]], baselines=False)
    ranked = [row for row in sheet.rows if row["rank"]]
    assert [(r["text"], r["closed_vocabulary"]) for r in ranked] == [(s, False) for s in (*sources, "all 2 texts")]
    assert [row["rank"] for row in ranked] == [1, 1, 1]


def test_one_block_decides_nothing(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text(nonsense(60))
    sheet = perplexity_sheet([folders["word"], folders["char"]], [str(tmp_path / "short.txt")], baselines=False)
    assert sheet.comparisons[0]["p"] == 1
    assert "may be chance" in sheet.comparisons[0]["sentence"]


def test_normalising_twice_pays_twice(folders: dict[str, Path], tmp_path: Path) -> None:
    settings = dict(model="ngram", tokenizer="char", order=3)
    run = seqlab.train_lm(folders["other"], out=tmp_path / "run", normalise="lower", **settings)
    row = perplexity_sheet([tmp_path / "run"], [str(folders["other"])], normalise="spaces", baselines=False).rows[0]
    table = run.score(folders["other"].read_text("utf-8"))
    assert table.restoration is not None
    assert row["restoration_bits_per_byte"] * row["bytes"] * math.log(2) > table.restoration.sum()
    assert row["flattering_bits_per_byte"] + row["restoration_bits_per_byte"] == pytest.approx(row["bits_per_byte"])


def test_normalisation_goes_with_the_weights_and_must_leave_something(folders: dict[str, Path], tmp_path: Path) -> None:
    settings = tiny_for("gru", model="gru", tokenizer="char", normalise="lower")
    seqlab.train_lm(folders["train"], out=tmp_path / "parent", **settings)
    child = seqlab.train_lm(folders["other"], out=tmp_path / "child", from_run=tmp_path / "parent", budget="2steps")
    assert child.settings.data.normalise == "lower"
    with pytest.raises(UsageError, match="--normalise digits conflicts"):
        seqlab.train_lm(folders["other"], out=tmp_path / "x", from_run=tmp_path / "parent", normalise="digits")
    dotted = tmp_path / "dots.txt"
    dotted.write_text(nonsense(1000) + "." * 2000)
    with pytest.raises(DataError, match="leaves nothing of the validation part"):
        seqlab.train_lm(dotted, out=tmp_path / "y", model="ngram", tokenizer="char", normalise="punctuation")


def test_a_lost_part_of_an_ngram_run_is_made_again(folders: dict[str, Path], tmp_path: Path) -> None:
    settings = dict(model="ngram", tokenizer="char", order=3)
    run = seqlab.train_lm(folders["train"], out=tmp_path / "run", **settings)
    for name in ("report.html", "model.safetensors", "metrics.jsonl"):
        (tmp_path / "run" / name).unlink()
        again = seqlab.train_lm(out=tmp_path / "run", resume=True)
        assert (tmp_path / "run" / name).exists()
        assert again.final["validation"] == run.final["validation"]  # type: ignore[index]
    with pytest.raises(UsageError, match="is not the text"):
        seqlab.train_lm(folders["other"], out=tmp_path / "run", resume=True)
    with pytest.raises(UsageError, match="conflicts|does not apply"):
        seqlab.train_lm(out=tmp_path / "run", resume=True, budget="9s")


def test_a_table_or_tokenizer_of_another_run_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    for name, file, message in (
        ("char", "model.safetensors", "belongs to another run"),
        ("char", "tokenizer.json", "is damaged or of another run"),
    ):
        copy = tmp_path / file
        shutil.copytree(folders["word"], copy)
        shutil.copy(folders[name] / file, copy / file)
        with pytest.raises(DamageError, match=message):
            seqlab.load(copy)


def test_the_csv_gives_every_kind_of_line_end_back(folders: dict[str, Path], tmp_path: Path) -> None:
    text = 'the\rcat\r\ndog, "quoted"\n'
    (tmp_path / "ends.txt").write_bytes(text.encode())
    sheet = perplexity_sheet([folders["char"]], [str(tmp_path / "ends.txt")], baselines=False)
    write_csv(tmp_path / "tokens.csv", sheet.scored)
    with (tmp_path / "tokens.csv").open(encoding="utf-8", newline="") as file:
        assert "".join(row["written"] for row in csv.DictReader(file)) == text


def test_a_fit_killed_half_way_can_be_begun_anew(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        """Stands for the process dying on the spot."""

    settings = dict(model="ngram", tokenizer="char", order=3)
    whole = seqlab.train_lm(folders["train"], out=tmp_path / "whole", **settings)
    replace_file, crashes = os.replace, 0
    for die_at in range(20):
        calls = itertools.count()

        def dying(source: Any, target: Any, calls: Any = calls, die_at: int = die_at) -> None:
            if Path(target).is_relative_to(tmp_path / "torn") and next(calls) == die_at:
                raise Crash
            replace_file(source, target)

        monkeypatch.setattr(os, "replace", dying)
        try:
            run = seqlab.train_lm(folders["train"], out=tmp_path / "torn", resume=True, **settings)
        except Crash:
            crashes += 1
        else:
            break
    assert crashes >= 3
    assert run.final["validation"] == whole.final["validation"]  # type: ignore[index]
    assert (tmp_path / "torn" / "report.html").exists()


# --------------------------------------------------------------------------- documents, blocks, sentences


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of six documents."""
    place = tmp_path_factory.mktemp("plays")
    for k in range(6):
        (place / f"{k}.txt").write_text(nonsense(300 + 50 * k, seed=20 + k), encoding="utf-8")
    return place


def test_documents_are_the_unit_where_there_are_documents(folders: dict[str, Path], plays: Path) -> None:
    runs = [folders["char"], folders["bpe"]]
    sheet = perplexity_sheet(runs, [str(plays)], baselines=False)
    scored = sheet.scored[0]
    sizes = [path.stat().st_size for path in sorted(plays.iterdir())]
    assert scored.text.documents == (0, *(np.cumsum(sizes)[:-1] + np.arange(1, 6)).tolist())
    assert np.bincount(scored.documents, scored.sizes).tolist() == [size + 1 for size in sizes[:-1]] + [sizes[-1]]
    row = sheet.rows[0]
    assert row["documents"] == 6
    assert "speak of other documents of the kind of these 6" in row["about"]
    figures = [np.bincount(one.documents, one.blocks) / math.log(2) for one in sheet.scored]
    assert sheet.comparisons[0]["difference"] == pytest.approx((figures[0] - figures[1]).sum() / (sum(sizes) + 5))
    assert "6 documents)" in sheet.comparisons[0]["sentence"]
    alone = perplexity_sheet(runs[:1], [str(plays / "5.txt")], baselines=False).rows[0]
    assert alone["documents"] == 1
    assert "speak of this text as a stretch of its own process, not of other texts" in alone["about"]


def test_several_texts_have_a_row_for_all_of_them(folders: dict[str, Path], plays: Path) -> None:
    files = [str(path) for path in sorted(plays.iterdir())]
    sheet = perplexity_sheet([folders["char"], folders["word"]], files, baselines=True)
    pooled = [row for row in sheet.rows if row["text"] == "all 6 texts"]
    assert {row["documents"] for row in pooled if row["interval"]} == {6}
    for row in pooled:
        parts = [
            one
            for one in sheet.rows
            if (one["model"], one["closed_vocabulary"]) == (row["model"], row["closed_vocabulary"])
            and one["text"] != row["text"]
        ]
        assert len(parts) == 6
        assert row["nats"] == pytest.approx(sum(part["nats"] for part in parts), rel=1e-12)
        assert row["bytes"] == sum(part["bytes"] for part in parts)
    assert [row["rank"] for row in pooled if row["rank"]] == list(range(1, 8))  # two runs, a 7-gram, four compressors
    over_all = next(c for c in sheet.comparisons if c["text"] == "all 6 texts")
    assert "it speaks of other documents of the kind of these 6" in over_all["sentence"]
    # as one folder, where newlines stand between the files, they are nearly the same text
    folder = perplexity_sheet([folders["char"]], [str(plays)], baselines=False).rows[0]
    one = next(row for row in pooled if row["model"] == str(folders["char"]))
    assert one["interval"] == pytest.approx(folder["interval"], rel=0.01)


def test_what_is_named_twice_is_said(folders: dict[str, Path], tmp_path: Path) -> None:
    other = str(folders["other"])
    notes = perplexity_sheet([folders["char"]] * 3, [other, other], baselines=False).notes
    assert f"the model {folders['char']} is named 3 times: it stands on the sheet once" in notes
    assert f"the text {other} is named 2 times: it stands on the sheet once" in notes
    once = perplexity_sheet([folders["char"]], [other], baselines=False).notes
    assert not [note for note in once if "times" in note or "no baselines" in note]


def test_outsiders_alone_have_no_baselines_and_the_sheet_says_so(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = seqlab.load(folders["char"])
    monkeypatch.setattr("seqlab.workflows.sheet.sheet.load_hf", lambda folder: run.scorer)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "config.json").write_text("{}")
    (tmp_path / "short.txt").write_text(nonsense(60))
    asked: Any = dict(texts=[str(tmp_path / "short.txt")], hf=[tmp_path / "theirs"])
    sheet = perplexity_sheet([], **asked)
    assert [row["baseline"] for row in sheet.rows] == [False]
    assert "no baselines: they are made from the training text of a run, and no run is named" in sheet.notes
    assert not any("no baselines" in note for note in perplexity_sheet([], **asked, baselines=False).notes)


def test_the_blocks_can_be_had_with_their_places(sheet: Sheet, tmp_path: Path) -> None:
    write_blocks_csv(tmp_path / "blocks.csv", sheet.scored)
    with (tmp_path / "blocks.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for one in sheet.scored:
        mine = [row for row in rows if row["model"] == one.reader.name]
        ends = [(int(row["start"]), int(row["end"])) for row in mine]
        assert [end for _, end in ends[:-1]] == [start for start, _ in ends[1:]]
        assert (ends[0][0], ends[-1][1]) == (0, one.text.bytes)
        assert [int(row["block"]) for row in mine] == list(range(len(mine)))
        nats = [float(row["nats"]) for row in mine]
        assert sum(nats) == pytest.approx(one.surprisals.total, rel=1e-12)
        for row, (start, end), paid in zip(mine, ends, nats, strict=True):
            assert float(row["bits_per_byte"]) == pytest.approx(paid / math.log(2) / (end - start))


def test_two_seeds_of_one_recipe_are_named_as_such(folders: dict[str, Path], tmp_path: Path) -> None:
    settings = tiny_for("gru", model="gru", tokenizer="bpe", vocab_size=280)
    for name, said in (("again", {"seed": 7}), ("wider", {"seed": 7, "width": 12}), ("same", {})):
        seqlab.train_lm(folders["train"], out=tmp_path / name, **(settings | said))
    runs = [folders["bpe"], tmp_path / "again", tmp_path / "wider", tmp_path / "same", folders["char"]]
    sheet = perplexity_sheet(runs, [str(folders["other"])], baselines=False)
    said = {(c["a"], c["b"]): c["sentence"] for c in sheet.comparisons}
    first = str(runs[0])
    compares = "one seed each: this compares two runs, not two recipes; `lm compare` compares recipes"
    assert f"two runs of one recipe, seeds 0 and 7, {compares}" in said[first, str(runs[1])]
    assert "recipe, seeds" not in said[first, str(runs[2])]
    assert compares in said[first, str(runs[2])]
    assert "two runs of one recipe and one seed (0)" in said[first, str(runs[3])]
    assert said[first, str(runs[4])].endswith(f"one seed of {first}")  # an n-gram model has none
    for sentence in said.values():
        assert "bytes, 1 document)" in sentence
        assert "it speaks of this text as a stretch of its own process, not of other texts" in sentence
