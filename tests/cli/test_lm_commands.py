import io
import json
import re
from pathlib import Path

import pytest
from tests.cli.conftest import TINY_FLAGS, Command

from seqlab.cli.sheet import ranking

TRAIN_KEYS = {"run", "seconds", "tokens", "validation", "test", "headline", "baselines"}
PART_KEYS = {"tokens", "nats_per_token", "bits_per_byte"}
ROW_KEYS = {
    "model", "text", "tokens", "unknown_rate", "closed_vocabulary", "context", "nats_per_token", "perplexity_per_token",
    "perplexity_per_word", "perplexity_per_character", "bits_per_character", "bits_per_byte", "interval",
}  # fmt: skip


def test_train_prints_figures_folder_and_next_step(seqlab_command: Command, small_text: Path) -> None:
    answer = seqlab_command("lm", "train", small_text, *TINY_FLAGS)
    assert answer.code == 0
    assert "bits/byte" in answer.out
    assert "runs/small-lstm-1" in answer.out
    assert "seqlab lm generate runs/small-lstm-1" in answer.out
    assert "parameters" in answer.err
    assert "\ntest text: " in answer.out
    assert "beside it, on the same text: " in answer.out
    assert "7-gram " in answer.out
    assert "bits per byte: what a compressor that knows the model needs" in answer.out
    page = Path("runs/small-lstm-1/report.html").read_text()
    for shown in (
        "Beside simple methods, on the test text",
        "this model",
        "7-gram",
        "Bits per byte: what a compressor",
    ):
        assert shown in page


def test_json_is_one_object_and_nothing_else(seqlab_command: Command, small_text: Path) -> None:
    answer = seqlab_command("lm", "train", small_text, "--out", "run", "--json", *TINY_FLAGS)
    assert answer.code == 0
    assert answer.json.keys() >= TRAIN_KEYS
    assert answer.json["validation"].keys() >= PART_KEYS
    assert answer.json["test"].keys() >= PART_KEYS
    assert answer.json["run"] == "run"
    assert all(one.keys() == {"name", "bits_per_byte"} for one in answer.json["baselines"])
    assert [one["name"] for one in answer.json["baselines"]].count("7-gram") == 1
    again = seqlab_command("lm", "train", small_text, "--out", "run", "--resume", "--json")
    assert again.json == answer.json


def test_resume_and_from_on_the_command_line(seqlab_command: Command, trained: Path, small_text: Path) -> None:
    longer = seqlab_command("lm", "train", small_text, "--out", trained, "--resume", "--budget", "10steps", "--json")
    assert longer.json["step"] == 10
    assert "8 → 10 steps" in longer.err
    child = seqlab_command("lm", "train", small_text, "--from", trained, "--budget", "2steps", "--json")
    assert child.code == 0
    assert child.json["step"] == 2


def test_generate_is_reproducible_and_streams_after_the_prompt(seqlab_command: Command, trained: Path) -> None:
    words = ("lm", "generate", trained, "--prompt", "the ", "--tokens", 60, "--temperature", 0.8, "--top-p", 0.95)
    one, two, other = (seqlab_command(*words, "--seed", seed) for seed in (1, 1, 2))
    assert one.out.startswith("the ")
    assert one.out == two.out != other.out
    as_json = seqlab_command(*words, "--seed", 1, "--json")
    assert "the " + as_json.json["text"] + "\n" == one.out
    top_one = seqlab_command("lm", "generate", trained, "--tokens", 20, "--top-k", 1)
    assert top_one.out == seqlab_command("lm", "generate", trained, "--tokens", 20, "--temperature", 0).out


def test_samples_are_the_texts_of_as_many_seeds(seqlab_command: Command, trained: Path) -> None:
    words = ("lm", "generate", trained, "--prompt", "the ", "--tokens", 20)
    alone = [seqlab_command(*words, "--seed", seed, "--json").json["text"] for seed in (3, 4, 5)]
    several = seqlab_command(*words, "--seed", 3, "--samples", 3, "--json")
    assert several.json == {"texts": alone}
    shown = seqlab_command(*words, "--seed", 3, "--samples", 3).out
    assert shown == "".join(f"──── {k + 1} of 3, seed {3 + k} ────\nthe {text}\n" for k, text in enumerate(alone))


def test_prompts_are_the_lines_of_a_file(
    seqlab_command: Command, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("lm", "generate", trained, "--tokens", 12, "--json")
    prompts = ["the of and", "", " to"]
    alone = [
        seqlab_command(*words, "--prompt", prompt, "--seed", seed).json["text"] for seed, prompt in enumerate(prompts)
    ]
    Path("lines.txt").write_bytes(b"the of and\r\n\n to\n")
    assert seqlab_command(*words, "--prompts", "lines.txt").json == {"texts": alone}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(prompts).encode())))
    assert seqlab_command(*words, "--prompts", "-").json == {"texts": alone}
    Path("one.txt").write_text("the of and")
    assert seqlab_command(*words, "--prompts", "one.txt").json == {"texts": alone[:1]}
    both = seqlab_command(*words, "--prompts", "lines.txt", "--samples", 2).json["texts"]
    assert len(both) == 6
    assert both[0] == alone[0]
    unseen = seqlab_command(*words, "--prompt", "漢字", "--samples", 2)
    assert "4 of 4 prompt tokens were never seen in training" in unseen.err


def test_perplexity_prints_every_unit_and_the_context(seqlab_command: Command, trained: Path, small_text: Path) -> None:
    (Path(small_text).parent / "other.txt").write_text("the of 漢 and")
    answer = seqlab_command("lm", "perplexity", trained, "--on", small_text, "other.txt", "--json")
    rows = answer.json["rows"]
    assert [(row["text"], row["closed_vocabulary"]) for row in rows] == [
        (Path(small_text).name, False),
        *(("other.txt", False), ("other.txt", True)),
        *(("all 2 texts", False), ("all 2 texts", True)),
    ]
    assert all(row.keys() >= ROW_KEYS for row in rows)
    assert rows[0]["unknown_rate"] == 0
    assert rows[1]["unknown_rate"] == pytest.approx(1 / 12)
    assert "1 of 12 tokens" in answer.err
    assert answer.err.count("was trained on: its figures flatter") == 1
    assert answer.json["comparisons"] == []
    simple = answer.json["baselines"]
    assert (
        len(simple["rows"]) == 17
    )  # two texts and both: four compressors and an n-gram, which also has a closed figure
    assert [c["a"] for c in simple["comparisons"]] == [str(trained)] * 3
    table = seqlab_command(
        "lm", "perplexity", trained, "--on", small_text, "--csv", "tokens.csv", "--csv-blocks", "b.csv"
    )
    assert Path("b.csv").read_text().startswith("model,text,document,block,start,end,nats,bits_per_byte")
    assert f"{small_text.name}: 1 document in " in table.out
    assert "the intervals speak of this text as a stretch of its own process, not of other texts" in table.out
    assert Path("tokens.csv").read_text().startswith("model,text,token,start,end,unknown,nats")
    assert "ppl/word" in table.out
    assert "begin id" in table.out
    assert re.match(rf"{small_text.name}: 1\. .+ \d\.\d{{4}}, 2\. .+ 6\. ", table.out.splitlines()[-1])


def test_the_ranking_is_the_last_word_and_says_where_chance_may_decide() -> None:
    figures = {"a": (1, 1.5), "b": (2, 1.75), "closed": (None, 0.5), "c": (3, 2.0)}
    rows = [{"text": "x", "model": name, "rank": rank, "bits_per_byte": b} for name, (rank, b) in figures.items()]
    alone = {"text": "y", "model": "a", "rank": 1, "bits_per_byte": 3.0}
    pairs = [{"text": "x", "a": "b", "b": "a", "p": 0.05}, {"text": "x", "a": "b", "b": "c", "p": 0.0497}]
    assert ranking([*rows, alone], pairs) == [
        "best first, in bits/byte (≈: may be chance)\nx: 1. a 1.5000 ≈ 2. b 1.7500, 3. c 2.0000"
    ]
    assert ranking([alone], []) == []


def test_an_unseen_character_in_a_prompt_is_one_warning(seqlab_command: Command, trained: Path) -> None:
    answer = seqlab_command("lm", "generate", trained, "--prompt", "漢字", "--tokens", 5)
    assert answer.code == 0
    assert answer.err.count("\n") == 1
    assert "2 of 2 prompt tokens were never seen in training" in answer.err


def test_an_empty_passage_is_one_line(seqlab_command: Command, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    answer = seqlab_command("lm", "perplexity", trained, "--on", "empty.txt")
    assert answer.code == 1
    assert "empty.txt is empty" in answer.err


def test_plain_lines_when_not_a_terminal(
    seqlab_command: Command, small_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqlab.cli.terminal.PLAIN_EVERY", 0.0)
    monkeypatch.setattr("seqlab.cli.terminal.SHOW_AFTER", 0.0)
    answer = seqlab_command("lm", "train", small_text, "--out", "run", *TINY_FLAGS)
    assert "\x1b" not in answer.err
    line = next(x for x in answer.err.split("\n") if x.startswith("training  50%"))
    assert "loss" in line
    assert "bits/char" in line
    assert "tok/s" in line
    assert "left" in line


def test_metrics_are_json_lines(trained: Path) -> None:
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [*range(1, 9), 8]
    assert lines[-1]["final"] is True


def test_perplexity_with_another_context_is_refused_where_there_is_none(
    seqlab_command: Command, trained: Path, small_text: Path
) -> None:
    answer = seqlab_command("lm", "perplexity", trained, "--on", small_text, "--context", "64")
    assert answer.code == 2
    assert "reads on and on; leave it out" in answer.err
    refused = seqlab_command("lm", "perplexity", "--matrix", "a", "b", "--context", "64")
    assert refused.code == 2
    assert "--context does not go with --matrix" in refused.err
