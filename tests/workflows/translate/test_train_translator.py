"""From a table to a translator: training, encoding once, scores, the page, and what is refused."""

import csv
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from safetensors.numpy import load_file
from tests.workflows.translate.conftest import TINY, pairs

import seqlab
from seqlab.core.errors import DataError, UsageError
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import with_flags
from seqlab.core.settings.translate import TranslateSettings
from seqlab.evaluation.translation import Difference
from seqlab.workflows.translate import measure
from seqlab.workflows.translate.data import Prepared, prepare_pairs, split_rows
from seqlab.workflows.translate.evaluate import Evaluated, evaluate_translator
from seqlab.workflows.translate.measure import nats_of_each
from seqlab.workflows.translate.task import Translating
from seqlab.workflows.translate.train import train_translator
from seqlab.workflows.translate.translate import translate_sentences


class Heard(Reporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, message: str) -> None:
        self.lines.append(message)

    def warn(self, message: str) -> None:
        self.lines.append(f"warning: {message}")


def prepared(place: Path, **flags: Any) -> Prepared:
    asked = with_flags(TranslateSettings(), {"data": str(place), "vocab_size": 300, **flags})
    return prepare_pairs(Translating().fill(asked), Reporter())


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"pointer": True},
        {"model": "gru"},
        {"model": "lstm", "input_feeding": True, "score": "additive"},
        {"placement": "post"},
    ],
    ids=str,
)
def test_every_kind_trains_measures_and_translates(table: Path, tmp_path: Path, flags: dict[str, Any]) -> None:
    how = {name: value for name, value in TINY.items() if name != "heads" or "model" not in flags}
    run = train_translator(table, out=tmp_path / "run", **how, **flags)
    final = run.final
    assert [one["target"] for one in final["targets"]] == ["french", "backwards"]
    for one in final["targets"]:
        assert one["interval"][0] <= one["bleu"] <= one["interval"][1] or one["bleu"] < 0.1
        assert one["copying"]["copied"] == 1
        assert one["n"] == 30
    loaded = seqlab.load(tmp_path / "run")
    sources = ["sun moon", "fire", "wind rain sea snow"]
    assert loaded.translate(sources, to="french") == run.translate(sources, to="french")
    assert (tmp_path / "run" / "report.html").read_text().count("<img") >= 5
    with (tmp_path / "run" / "translations.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, dialect="excel-tab"))
    assert len(rows) == 60
    wanted = [row["reference"] for row in rows if row["target"] == "french"]
    said = [row["translation"] for row in rows if row["target"] == "french"]
    assert final["targets"][0]["bleu"] == pytest.approx(sacrebleu.corpus_bleu(said, [wanted]).score)


def test_one_encoding_serves_every_target_exactly(table: Path, tmp_path: Path) -> None:
    run = train_translator(table, out=tmp_path / "run", pointer=False, **TINY)
    sources = [source for source, _, _ in pairs(40, seed=9)]
    encoding = run.encode(sources)
    calls = []
    original = run.model.encoded
    run.model.encoded = lambda source: calls.append(len(source.lengths)) or original(source)
    both = {name: run.decode(encoding, to=name) for name in run.targets}
    assert not calls  # decoding never asks the encoder
    for name in run.targets:
        assert run.translate(sources, to=name) == both[name]
    assert sum(calls) == 2 * len(sources)
    assert both["french"] != both["backwards"]
    order = np.random.default_rng(0).permutation(len(sources))
    shuffled = run.translate([sources[k] for k in order], to="french")
    assert shuffled == [both["french"][k] for k in order]


def test_lists_of_the_best_are_ranked_and_drawn_ones_follow_their_seed(table: Path, tmp_path: Path) -> None:
    run = train_translator(table, out=tmp_path / "run", **TINY, pointer=True)
    encoding = run.encode(["sun moon star", "fire"])
    for found in run.hypotheses(encoding, "french", beam=4, n_best=3, length_penalty=0.0):
        assert len(found) == 3
        scores = [one.score for one in found if one.ended]
        assert scores == sorted(scores, reverse=True)
    drawn = [run.decode(encoding, "french", temperature=1.0, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1]
    assert run.decode(encoding, "french", beam=1) == run.decode(encoding, "french", beam=1, cached=False)
    with pytest.raises(UsageError, match="n_best goes with a beam"):
        run.hypotheses(encoding, "french", temperature=1.0, n_best=2)


def test_the_same_seed_gives_the_same_bytes(table: Path, tmp_path: Path) -> None:
    for name in "ab":
        train_translator(table, out=tmp_path / name, **TINY)
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert all(first[key].tobytes() == second[key].tobytes() for key in first)
    assert (tmp_path / "a" / "translations.tsv").read_bytes() == (tmp_path / "b" / "translations.tsv").read_bytes()


def test_the_first_validation_of_close_texts_stands_at_copying(tmp_path: Path) -> None:
    """Texts that differ in one word in eight: before it has learnt much, the model copies."""
    draw = np.random.default_rng(3)
    words = ["".join(draw.choice(list("abcdefghij"), 4)) for _ in range(400)]
    rows = []
    for _ in range(300):
        old = draw.choice(words, 12)
        new = [f"{word}x" if words.index(word) % 8 == 0 else word for word in old]
        rows.append(f"{' '.join(old)}\t{' '.join(new)}")
    table = tmp_path / "close.tsv"
    table.write_text("old\tnew\n" + "\n".join(rows), encoding="utf-8")
    heard = Heard()
    how = TINY | dict(budget="2steps", eval_every=1, vocab_size=700)
    run = train_translator(table, out=tmp_path / "run", reporter=heard, **how)
    assert run.settings.model.pointer is True
    assert any("starts as the copier" in line for line in heard.lines)
    bleu = [line["validation_bleu"] for line in run.metrics if "validation_bleu" in line]
    assert bleu[0] == pytest.approx(prepared(table).copying["new"], abs=1.0)


def test_texts_that_share_nothing_get_no_pointer(table: Path, tmp_path: Path) -> None:
    run = train_translator(table, out=tmp_path / "run", to="french", **TINY)
    assert run.settings.model.pointer is False
    assert run.model.pointer is None


def test_evaluate_beside_another_run(table: Path, tmp_path: Path) -> None:
    one = train_translator(table, out=tmp_path / "a", **TINY)
    train_translator(table, out=tmp_path / "b", seed=1, **TINY)
    done = evaluate_translator(tmp_path / "a", against=tmp_path / "b", beam=4)
    found = done.as_json()
    for row, final in zip(found["targets"], one.final["targets"], strict=True):
        assert row["bleu"] == final["bleu"]
        assert row["against"]["interval"][0] <= row["against"]["difference"] <= row["against"]["interval"][1]
    assert len(done.sentences()) == 2
    validation = evaluate_translator(tmp_path / "a", part="validation", beam=1).as_json()
    assert validation["part"] == "validation"
    table.write_text(table.read_text() + "sun\tsoleil\tsun\n")
    with pytest.raises(DataError, match="have changed since it was trained"):
        evaluate_translator(tmp_path / "a")


def test_a_comparison_names_its_conditions() -> None:
    runs: Any = SimpleNamespace(folder="runs/b")
    against = {"de": Difference(1.5, (0.2, 2.8), 0.03, 1999), "fr": Difference(-1.0, (-9.0, 7.0), 0.8, 12)}
    two = "one seed each: this compares two runs, not two recipes; `translate compare` compares recipes"
    assert Evaluated(runs, "test", [], runs, against).sentences() == [
        f"de: ahead of runs/b by 1.50 BLEU on 1,999 sentences (95 %: +0.20 to +2.80; p = 0.03): more than luck; {two}",
        "fr: BEHIND runs/b by 1.00 BLEU on 12 sentences (95 %: -9.00 to +7.00; p = 0.8): could well be luck; "
        f"only 12 sentences: the interval is unreliable; {two}",
    ]
    ahead: Any = SimpleNamespace(name="fr", ahead=against["fr"])
    assert measure.verdict(ahead) == (
        "fr: 1.0 BLEU on 12 sentences (95 %: -9.0 to +7.0; only 12 sentences: the interval is unreliable) from copying "
        "the source, which could well be luck"
    )


def test_what_one_encoding_saved_is_said(table: Path, tmp_path: Path) -> None:
    train_translator(table, out=tmp_path / "run", **TINY)
    heard = Heard()
    done = translate_sentences(tmp_path / "run", ["sun moon"], reporter=heard)
    assert [row["target"] for row in done.rows()] == ["french", "backwards"]
    assert "encoded once for 2 targets: 1 encodings saved" in done.saved
    assert translate_sentences(tmp_path / "run", ["sun"], ["french"]).saved == ""
    translate_sentences(tmp_path / "run", ["солнце и луна", "sun " * 300], ["french"], reporter=heard, beam=1)
    assert any("1 of 2 sentences are in a script" in line for line in heard.lines)
    assert any("1 of 2 sentences have more than 160 pieces" in line for line in heard.lines)


def test_wrong_uses_of_a_run(table: Path, tmp_path: Path) -> None:
    run = train_translator(table, out=tmp_path / "run", **TINY)
    other = train_translator(table, out=tmp_path / "other", seed=2, **TINY)
    with pytest.raises(UsageError, match="not trained for 'german'; it knows french, backwards"):
        run.translate(["sun"], to="german")
    with pytest.raises(UsageError, match="made by another run"):
        run.decode(other.encode(["sun"]), to="french")
    with pytest.raises(UsageError, match="must be a list of texts, not"):
        run.encode("sun")
    assert run.translate([], to="french") == []
    assert isinstance(run.translate([""], to="french")[0], str)


# --------------------------------------------------------------------------- data


def test_sentences_beyond_the_limit_are_counted_and_kept_in_the_test(tmp_path: Path) -> None:
    table = tmp_path / "long.tsv"
    rows = [(f"{'sun ' * (k % 5 + 1)}{k}", f"{'soleil ' * (k % 5 + 1)}{k}") for k in range(100)]
    table.write_text("en\tfr\n" + "\n".join("\t".join(row) for row in rows), encoding="utf-8")
    data = prepared(table, length=6)
    assert data.too_long > 0
    assert len(data.learnt) + data.too_long == len(data.pairs_of("train"))
    assert any("longer than --length" in note for note in data.notes)
    assert len(data.pairs_of("test")) == 10
    with pytest.raises(DataError, match="every training pair has more than 2 pieces"):
        prepared(table, length=2)


def test_rows_with_the_same_source_stay_on_one_side(tmp_path: Path) -> None:
    table = tmp_path / "again.tsv"
    rows = [(f"Sentence {k % 60}.", f"Satz {k}") for k in range(180)]
    table.write_text("en\tde\n" + "\n".join("\t".join(row) for row in rows), encoding="utf-8")
    data = prepared(table)
    parts = [
        {data.parallel.sources[row].lower() for row in data.parts[name]} for name in ("train", "validation", "test")
    ]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    assert sum(map(len, data.parts.values())) == 180
    assert data.split == "random"


def test_running_text_is_held_out_from_the_end(table: Path) -> None:
    data = prepared(table, split="end", held_out=20)
    assert data.parts["test"].tolist() == list(range(280, 300))
    assert data.parts["validation"].tolist() == list(range(260, 280))
    few = prepared(table, split="end", held_out=2000)
    assert len(few.parts["test"]) == 30  # a tenth
    with pytest.raises(DataError, match="20 are needed"):
        split_rows(type("P", (), {"sources": ("a",) * 5, "name": "x"})(), "end", 1, 0)  # type: ignore[arg-type]


def test_nothing_of_the_held_out_rows_is_learnt_from(table: Path) -> None:
    data = prepared(table, split="end", held_out=30)
    lines = table.read_text(encoding="utf-8").splitlines()
    changed = [*lines[:-30], *("zebra\tzèbre\tarbez" for _ in range(30))]
    table.write_text("\n".join(changed) + "\n", encoding="utf-8")
    again = prepared(table, split="end", held_out=30)
    assert again.tokenizer.sha256 == data.tokenizer.sha256
    assert (again.counts == data.counts).all()
    assert again.checksums["data"] != data.checksums["data"]


def test_counts_are_those_of_the_targets_to_learn_from(table: Path) -> None:
    data = prepared(table, to="french")
    expected = np.zeros(data.tokenizer.vocab_size, int)
    for pair in data.learnt:
        np.add.at(expected, data.pairs.targets[0][data.pairs.source[pair]], 1)
    expected[data.tokenizer.end_id] = len(data.learnt)
    assert (data.counts == expected).all()


def test_a_large_group_of_one_source_is_learnt_from_whatever_the_seed(tmp_path: Path) -> None:
    table = tmp_path / "yes.tsv"
    rows = [("Yes." if k < 50 else f"Sentence {k}.", f"Satz {k}") for k in range(200)]
    table.write_text("en\tde\n" + "\n".join("\t".join(row) for row in rows), encoding="utf-8")
    data = prepared(table)
    for seed in range(30):
        parts = split_rows(data.parallel, "random", 20, seed)
        assert (len(parts["validation"]), len(parts["test"])) == (20, 20)
        assert set(range(50)) <= set(parts["train"].tolist())


def test_a_target_that_nobody_can_learn_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "rare.tsv"
    rows = [(f"Sentence {k}.", f"Satz {k}", "phrase" if k == 59 else "") for k in range(60)]
    table.write_text("en\tde\tfr\n" + "\n".join("\t".join(row) for row in rows), encoding="utf-8")
    with pytest.raises(DataError, match="no training pair has a text in 'fr'"):
        prepared(table, split="end")


def test_losses_count_bytes_of_the_original_and_are_the_same_in_pieces(table: Path, tmp_path: Path) -> None:
    run = train_translator(table, out=tmp_path / "run", pointer=True, to="french", **TINY)
    data = prepared(table, to="french")
    pairs = data.pairs_of("test")
    (found,) = run.final["targets"]
    references = data.references(data.rows_of("test", 0), 0)
    assert any(not text.isascii() for text in references)
    total = float(nats_of_each(run.model, data, pairs).sum())
    assert found["bits_per_byte"] == pytest.approx(total / np.log(2) / sum(len(t.encode()) for t in references))
    for pair in pairs[:3]:
        batch = data.pairs.batch(pairs[pairs == pair])
        with torch.no_grad():
            whole = run.model.nats_of_rows(batch)
            measure.PIECE, kept = 2, measure.PIECE
            pieces = measure.nats_in_pieces(run.model, batch)
            measure.PIECE = kept
        assert pieces.item() == pytest.approx(whole.item(), rel=1e-5)


def test_a_name_with_signs_of_mathematics_is_drawn(table: Path, tmp_path: Path) -> None:
    odd = table.rename(tmp_path / "d$\\frac$x.tsv")
    assert train_translator(odd, out=tmp_path / "run", **TINY).final is not None


def test_files_that_were_moved_can_be_named(tmp_path: Path) -> None:
    for name, column in (("a.txt", 0), ("b.txt", 1)):
        (tmp_path / name).write_text("\n".join(row[column] for row in pairs(60)), encoding="utf-8")
    train_translator(tmp_path / "a.txt", tmp_path / "b.txt", out=tmp_path / "run", **TINY)
    moved = [(tmp_path / name).rename(tmp_path / f"moved-{name}") for name in ("a.txt", "b.txt")]
    with pytest.raises(DataError, match="say where they are with --data"):
        evaluate_translator(tmp_path / "run")
    assert evaluate_translator(tmp_path / "run", data=moved, beam=1).targets[0].name == "b"


def test_other_rows_and_equal_runs_are_said(table: Path, tmp_path: Path) -> None:
    train_translator(table, out=tmp_path / "a", **TINY)
    train_translator(table, out=tmp_path / "b", split_seed=7, **TINY)
    heard = Heard()
    done = evaluate_translator(tmp_path / "a", against=tmp_path / "b", beam=1, reporter=heard)
    assert any("may have seen some of these sentences" in line for line in heard.lines)
    assert len(done.sentences()) == 2
    same = evaluate_translator(tmp_path / "a", against=tmp_path / "a", beam=1)
    assert all("exactly as good as" in sentence for sentence in same.sentences())


def test_what_is_drawn_is_one_line(table: Path, tmp_path: Path) -> None:
    run = train_translator(table, out=tmp_path / "run", **TINY)
    encoding = run.encode(["sun moon", "", "  ", "fire"] * 10)
    drawn = run.decode(encoding, "french", temperature=20.0)
    assert all(text == " ".join(text.split()) for text in drawn)
    assert not any(ord(sign) < 32 for text in drawn for sign in text)
    assert drawn[1] == drawn[2] == ""


def test_the_page_shows_examples_scores_and_alignment(table: Path, tmp_path: Path) -> None:
    table.write_text(table.read_text(encoding="utf-8").replace("sun", "<b>sun"), encoding="utf-8")
    run = train_translator(table, out=tmp_path / "run", **TINY)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "<b>sun" not in page
    assert "tok:13a" in page
    assert page.count("what it looked at") == 2
    assert "copying the source" in page
    assert len(re.findall(r'class="pair"', page)) == 30
    settings = (tmp_path / "run" / "settings.toml").read_text()
    assert 'split = "random"' in settings
    languages = json.loads((tmp_path / "run" / "languages.json").read_text())
    assert languages["targets"] == list(run.targets)
