import json
from pathlib import Path

import pytest
from tests.cli.conftest import TINY_FLAGS, Command

KEYS = {"run", "seconds", "context", "validation", "test", "headline", "baselines", "mixture"}
MEMBER_KEYS = {"name", "model", "identity", "weight", "validation", "test"}


@pytest.fixture
def two(seqlab_command: Command, small_text: Path) -> tuple[str, str]:
    """Counts and a network of one text."""
    words = ("lm", "train", small_text, "--tokenizer", "char", "--out")
    assert seqlab_command(*words, "runs/counts", "--model", "ngram", "--order", 3).code == 0
    assert seqlab_command(*words, "runs/lstm", *TINY_FLAGS, "--guide", "none").code == 0
    return "runs/counts", "runs/lstm"


def test_mix_keeps_one_model_of_both(seqlab_command: Command, two: tuple[str, str]) -> None:
    answer = seqlab_command("lm", "mix", *two, "--out", "runs/both", "--threads", 1)
    assert answer.code == 0, answer.err
    rows = [line.split() for line in answer.out.splitlines()[:5]]
    assert [row[0] for row in rows[2:]] == ["lstm", "counts", "mixture"]
    assert "tokens of the validation text; in the validation figure each half is scored with weights" in answer.out
    assert "next: seqlab lm generate runs/both" in answer.out
    assert "\x1b" not in answer.err
    listed = seqlab_command("runs", "list", "--json").json["runs"]
    assert [(run["run"], run["model"], run["state"]) for run in listed] == [
        ("runs/both", "ngram + lstm", "fitted"),
        ("runs/counts", "ngram", "fitted"),
        ("runs/lstm", "lstm", "finished"),
    ]
    shown = seqlab_command("runs", "show", "runs/both")
    assert shown.code == 0
    assert "mixture.fitted_on" in shown.out
    for command in (("generate", "runs/both"), ("generate", "runs/counts+runs/lstm")):
        written = seqlab_command("lm", *command, "--tokens", 12, "--json")
        assert written.code == 0, written.err
        assert len(written.json["text"]) == 12
    again = seqlab_command("lm", "train", "--out", "runs/both", "--resume")
    assert again.code == 0
    assert "runs/both was fitted in one go: there is nothing to resume" in again.err


def test_json_has_the_figures_of_all(seqlab_command: Command, two: tuple[str, str]) -> None:
    answer = seqlab_command("lm", "mix", "+".join(two), "--json", "--threads", 1)
    assert answer.code == 0, answer.err
    found = answer.json
    assert found.keys() == KEYS
    assert found["run"] == "runs/small-mixture-1"
    assert [member["name"] for member in found["mixture"]["members"]] == ["counts", "lstm"]
    assert all(member.keys() == MEMBER_KEYS for member in found["mixture"]["members"])
    assert found["mixture"].keys() == {"fitted_on", "tokens", "per_context", "members", "sentence"}
    assert found["mixture"]["fitted_on"] == "validation"
    assert found["test"].keys() == found["mixture"]["members"][0]["test"].keys()


def test_perplexity_of_a_mixture_that_nobody_kept(seqlab_command: Command, two: tuple[str, str]) -> None:
    Path("other.txt").write_text("the of and to in that it is was he for on are with as his they " * 20)
    name = "+".join(two)
    words = ("lm", "perplexity", name, *two, "--on", "other.txt", "--no-baselines", "--threads", 1)
    rows = {row["model"]: row for row in seqlab_command(*words, "--json").json["rows"]}
    assert rows.keys() == {name, *two}
    assert rows[two[0]]["mixture"] is None
    mixture = rows[name]["mixture"]
    assert [member["model"] for member in mixture["members"]] == ["ngram", "lstm"]
    assert mixture["tokens"] > 900
    text = seqlab_command(*words, "--html", "heat.html", "--csv", "tokens.csv")
    assert text.code == 0
    assert f"{name}: {mixture['sentence']}." in text.out
    assert f"context of {name}: each member in its own way (counts: each token after the 2 tokens before it" in text.out
    assert name in Path("heat-1.html").read_text()


def test_what_cannot_be_mixed_is_one_line(seqlab_command: Command, two: tuple[str, str], small_text: Path) -> None:
    made = seqlab_command("lm", "train", small_text, "--model", "ngram", "--tokenizer", "byte", "--out", "runs/bytes")
    assert made.code == 0
    for words, message in (
        (("mix", "runs/counts"), "a mixture needs at least two runs; for example: seqlab lm mix runs/a runs/b"),
        (("mix", *two, "--out", "runs/lstm"), "runs/lstm exists already; choose another --out"),
        (("mix", *two, "runs/bytes"), "their tokenizers differ (char, "),
        (("perplexity", "runs/lstm+runs/bytes", "--on", small_text), "no distribution over strings"),
        (("perplexity", "runs/lstm+runs/bits", "--on", small_text), "there is no run folder runs/bits"),
        (("generate", "runs/lstm+runs/bytes"), "their tokenizers differ"),
        (("generate", "runs/lstm+"), "'runs/lstm+' names nothing beside a '+'"),
    ):
        answer = seqlab_command("lm", *words, "--json")
        assert (answer.code, answer.err.count("\n")) == (2, 1)
        assert message in answer.err
        assert json.loads(answer.out).keys() == {"error"}
