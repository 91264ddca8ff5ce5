import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Command

from seqlab.core.files import sha256_of
from seqlab.core.registry import MODELS
from seqlab.core.settings.fields import dashed, flags_of
from seqlab.core.settings.lm import LMSettings
from seqlab.data.corpora import CORPORA
from seqlab.data.vector_sets import VECTORS

COMMANDS = [
    "",
    "demo",
    "data",
    "data list",
    "data get",
    "data show",
    "lm",
    "lm train",
    "lm generate",
    "lm perplexity",
    "lm mix",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(seqlab_command: Command, command: str) -> None:
    answer = seqlab_command(*command.split(), "--help")
    assert answer.code == 0
    assert "example" in answer.out
    assert "seqlab" in answer.out
    if command and command not in ("data", "lm"):
        assert "--json" in answer.out


def test_help_names_every_setting_and_every_preset(seqlab_command: Command) -> None:
    page = seqlab_command("lm", "train", "--help").out
    assert all(f"--{dashed(name)}" in page for name in flags_of(LMSettings) if name != "text")
    assert all(f"  {kind}" in page for kind in MODELS)


@pytest.mark.parametrize("command", ["--help", "--version", "lm train --help", "data list"])
def test_help_loads_nothing_heavy(command: str) -> None:
    script = f"""
import sys
from seqlab.cli import main
try:
    main({command.split()!r})
except SystemExit:
    pass
heavy = {{"torch", "matplotlib", "sympy", "sklearn", "rich", "tokenizers"}} & set(sys.modules)
sys.exit(f"loaded: {{heavy}}" if heavy else 0)
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr


def test_data_list_shows_licences(seqlab_command: Command) -> None:
    answer = seqlab_command("data", "list")
    for name in (
        "pydoc",
        "shakespeare",
        "shakespeare-folio",
        "britannica",
        "wikipedia-sample",
        "brown",
        "imdb",
        "rotten-tomatoes",
        "glove-6b-50d",
    ):
        assert name in answer.out
    assert "public domain" in answer.out
    assert "CC BY-SA" in answer.out
    corpora = seqlab_command("data", "list", "--json").json["corpora"]
    assert all(corpus["licence"] for corpus in corpora)
    labelled = {corpus["name"] for corpus in corpora if corpus["kind"] == "labelled"}
    assert labelled == {"imdb", "rotten-tomatoes"}
    verses = {corpus["name"] for corpus in corpora if corpus["kind"] == "verses"}
    assert verses == {f"bible-{edition}" for edition in ("kjv", "web", "asv", "bbe", "ylt")}
    assert {corpus["kind"] for corpus in corpora} == {"text", "labelled", "verses"}
    (glove,) = seqlab_command("data", "list", "--json").json["vectors"]
    assert (glove["name"], glove["kind"], glove["licence"]) == ("glove-6b-50d", "vectors", "PDDL-1.0")


def test_data_get_and_show_of_word_vectors(seqlab_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set that lies prepared in the cache: two words of seven values."""
    rows = np.arange(14, dtype="<f4").reshape(2, 7) / 8
    content = rows.tobytes() + b"the\nof\n"
    entry = dataclasses.replace(VECTORS["glove-6b-50d"], name="tiny", words=2, width=7)
    monkeypatch.setitem(VECTORS, "tiny", entry)
    entry.path.parent.mkdir(parents=True, exist_ok=True)
    entry.path.write_bytes(content)
    facts = {"name": "tiny", "path": "", "licence": "PDDL-1.0", "package": entry.package, "words": 2, "width": 7}
    facts |= {"bytes": len(content), "sha256": sha256_of(content)}
    entry.path.with_suffix(".json").write_text(json.dumps(facts))
    got = seqlab_command("data", "get", "tiny", "--json").json
    renamed = {"comes with" if k == "package" else k: v for k, v in facts.items()}
    assert got == renamed | {"path": str(entry.path), "kind": "vectors"}
    shown = seqlab_command("data", "show", "tiny").out.splitlines()
    assert [line.split() for line in shown[-2:]] == [
        ["the", "0", "0.125", "0.25", "0.375", "0.5", "0.625", "…"],
        ["of", "0.875", "1", "1.125", "1.25", "1.375", "1.5", "…"],
    ]
    assert seqlab_command("data", "show", "tiny", "--characters", 100, "--json").json["beginning"].count("\n") == 0
    assert seqlab_command("data", "show", "tiny", "--characters", 0, "--json").json["beginning"] == ""


@pytest.mark.parametrize(("typed", "meant"), [("glove-6b", "glove-6b-50d"), ("brwn", "brown")])
def test_unknown_data_has_a_hint(seqlab_command: Command, typed: str, meant: str) -> None:
    answer = seqlab_command("data", "get", typed)
    assert answer.code == 2
    assert f"unknown corpus '{typed}'; did you mean '{meant}'?" in answer.err


def test_data_get_and_show(seqlab_command: Command) -> None:
    facts = seqlab_command("data", "get", "pydoc", "--json").json
    assert facts["bytes"] == Path(facts["path"]).stat().st_size
    assert len(facts["sha256"]) == 64
    shown = seqlab_command("data", "show", "pydoc", "--characters", 80)
    assert Path(facts["path"]).read_text()[:80] in shown.out
    assert facts["sha256"] in shown.out


def test_data_get_and_show_of_labelled_text(seqlab_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "text,label\nthe first review,b\nthe second,a\nthe third,b\n"
    rows = {"stored": content.encode()}
    entry = dataclasses.replace(CORPORA["imdb"], name="tiny-reviews", clean=lambda member: member.decode())
    monkeypatch.setitem(CORPORA, "tiny-reviews", entry)
    monkeypatch.setattr("seqlab.data.corpora._members_of", lambda corpus, progress: list(rows.items()))
    facts = seqlab_command("data", "get", "tiny-reviews", "--json").json
    assert (facts["kind"], facts["rows"], facts["classes"]) == ("labelled", 3, {"a": 1, "b": 2})
    assert Path(facts["path"]).read_text() == content
    assert facts["bytes"] == len(content)
    shown = seqlab_command("data", "show", "tiny-reviews", "--characters", 20)
    assert "classes     a 1, b 2\n" in shown.out
    assert shown.out.endswith("\n\na: the sec\n\nb: the fir\n")
    assert seqlab_command("data", "show", "tiny-reviews", "--characters", 1, "--json").json["beginning"] == ""


def test_data_get_of_several(seqlab_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CORPORA, "help", dataclasses.replace(CORPORA["pydoc"], name="help"))
    both = seqlab_command("data", "get", "pydoc", "help", "pydoc", "--json").json
    assert [facts["name"] for facts in both["data"]] == ["pydoc", "help"]
    assert list(both) == ["data"]
    assert seqlab_command("data", "get", "pydoc", "--json").json == both["data"][0]
    blocks = seqlab_command("data", "get", "pydoc", "help").out.split("\n\n")
    assert [block.split()[1] for block in blocks] == ["pydoc", "help"]


def test_data_get_refuses_an_unknown_name_before_anything_is_fetched(
    seqlab_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    monkeypatch.setattr("seqlab.workflows.library.load_corpus", lambda name, progress: fetched.append(name))
    answer = seqlab_command("data", "get", "pydoc", "shakspere")
    assert (answer.code, fetched) == (2, [])
    assert "did you mean 'shakespeare'" in answer.err


@pytest.mark.parametrize("command", ["lm train imdb", "lm compare imdb --models lstm,gru"])
def test_labelled_text_is_no_running_text(seqlab_command: Command, command: str) -> None:
    answer = seqlab_command(*command.split())
    assert answer.code == 2
    assert "the corpus 'imdb' is a table of labelled texts, no running text" in answer.err
    assert answer.err.count("\n") == 1


def test_a_corpus_name_can_be_trained_on(seqlab_command: Command) -> None:
    flags = "--tokenizer byte --width 8 --batch 2 --context 8 --budget 1step --threads 1 --json"
    answer = seqlab_command("lm", "train", "pydoc", *flags.split())
    assert answer.code == 0
    assert answer.json["run"] == "runs/pydoc-lstm-1"
