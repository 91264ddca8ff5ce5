"""`seqlab claims` from the command line."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Command
from tests.workflows.claims.test_checks import OWN

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_claim.py"
PE = ("pe.sinusoid", "pe.index-meaning")


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return "own.py"


def test_list(seqlab_command: Command) -> None:
    answer = seqlab_command("claims", "list", "--subject", "positions")
    assert answer.code == 0, answer.err
    assert [line.split()[0] for line in answer.out.splitlines()[2:]] == list(PE)
    assert "PE(p, 2i) = sin(p / 10000^(2i/d))" in answer.out
    found = seqlab_command("claims", "list", "--subject", "positions", "--verdict", "false", "--json").json["claims"]
    assert [claim["id"] for claim in found] == ["pe.index-meaning"]
    assert set(found[0]) == {
        *(
            "id",
            "subject",
            "verdict",
            "method",
            "statement",
            "setting",
            "conditions",
            "correction",
            "note",
            "about",
            "wrong",
        )
    }
    document = seqlab_command("claims", "list", "--markdown", "--subject", "positions").out
    assert "### pe.sinusoid\n\n$PE(p, 2i) = \\sin" in document


def test_show(seqlab_command: Command) -> None:
    answer = seqlab_command("claims", "show", "pe.index-meaning", "--seed", 3)
    assert answer.code == 0, answer.err
    for words in (
        "pe.index-meaning  (positions): false",
        "right is: i counts pairs",
        "identity on random instances, seed 3: reproduced in",
        "✓  largest difference",
        "right form   wanted     as it is stated",
        "counterexample: d = 4, p = 1",
        "the statement as it is made: refuted, largest difference",
        "code: seqlab.layers:SinusoidalPosition",
    ):
        assert words in answer.out, words
    found = seqlab_command("claims", "show", "pe.sinusoid", "--json").json
    assert (found["id"], found["holds"], found["seed"]) == ("pe.sinusoid", True, 0)
    assert {form["form"]: form["refuted"] for form in found["wrong"]} == {
        "i is the dimension": True,
        "the signs are lost": True,
    }
    proof = seqlab_command("claims", "show", "softplus.derivative", "--file", EXAMPLE)
    assert "derivation:\n  d/dx log(1 + eˣ) = eˣ/(eˣ + 1)" in proof.out


def test_check(seqlab_command: Command) -> None:
    found = seqlab_command("claims", "check", *PE, "--seed", 5, "--json").json
    assert (found["seed"], found["reproduced"]) == (5, 2)
    assert [claim["id"] for claim in found["claims"]] == list(PE)
    for claim in found["claims"]:
        assert {"id", "verdict", "holds", "method", "seconds", "findings"} <= set(claim)
        assert claim["holds"]
        assert {"what", "value", "wanted", "interval", "holds"} == set(claim["findings"][0])
    answer = seqlab_command("claims", "check", "--subject", "positions", "--forms")
    assert (answer.code, answer.out.split(" in ")[0]) == (0, "2 of 2 claims reproduced with seed 0")


def test_check_of_a_file(seqlab_command: Command, own: str) -> None:
    answer = seqlab_command("claims", "check", "--file", own)
    assert answer.code == 1
    assert answer.err.splitlines()[0] == "running own.py: code that you chose"
    rows = [line.split()[0] for line in answer.out.splitlines()[2:4]]
    assert rows == ["one.wrong", "one.raises"]
    assert "the check raised ZeroDivisionError: division by zero" in answer.out
    assert "3 of 5 claims reproduced" in answer.out
    found = seqlab_command("claims", "check", "--file", own, "--json")
    assert found.code == 1
    assert {claim["id"]: claim["holds"] for claim in found.json["claims"]}["one.raises"] is False
    assert "a test may print" not in found.out
    listed = seqlab_command("claims", "list", "--file", own)
    assert listed.err == "running own.py: code that you chose\n"
    assert "one.weak" in listed.out


def test_report(seqlab_command: Command, tmp_path: Path) -> None:
    answer = seqlab_command("claims", "report", "--subject", "positions")
    assert answer.code == 0, answer.err
    assert "page: claims.html" in answer.out
    page = (tmp_path / "claims.html").read_text()
    assert '<article id="pe.sinusoid"' in page
    found = seqlab_command("claims", "report", "--file", EXAMPLE, "--out", "own.html", "--json").json
    assert found["page"] == "own.html"
    assert len(found["claims"]) == 4
    assert "softplus.bound" in (tmp_path / "own.html").read_text()


def typed(monkeypatch: pytest.MonkeyPatch, words: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(words)))


def test_quiz(seqlab_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("claims", "quiz", "--subject", "positions", "--questions", 2)
    typed(monkeypatch, b"maybe\nTRUE\ntrue\n")
    answer = seqlab_command(*words)
    assert answer.code == 0, answer.err
    assert answer.out.count("true or false? (t, f, q to stop)") == 2
    assert answer.out.count("answer t or f, or q to stop") == 1
    assert answer.out.count("right: true (pe.sinusoid, by") == 1
    assert answer.out.count("wrong: false (pe.index-meaning, by") == 1
    assert "counterexample: d = " in answer.out
    assert answer.out.endswith("\n1 of 2 right\n")
    typed(monkeypatch, b"t\nq\nt\n")
    found = seqlab_command(*words, "--json")
    assert (found.json["asked"], len(found.json["questions"])) == (1, 1)
    assert "true or false?" in found.err
    typed(monkeypatch, b"")
    assert seqlab_command(*words).out.endswith("0 of 0 right\n")


def test_wrong_use(seqlab_command: Command, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "empty.py").write_text("x = 1")
    (tmp_path / "raises.py").write_text("1 / 0")
    for words, code, said in (
        ("check pe.sinusoidal", 2, "unknown claim 'pe.sinusoidal'; did you mean 'pe.sinusoid'?"),
        ("show zzzzzz", 2, "unknown claim 'zzzzzz'; 'seqlab claims list' shows them all"),
        ("check --subject lsmt", 2, "unknown subject 'lsmt'; did you mean 'lstm'?"),
        ("list --verdict flase", 2, "unknown verdict 'flase'; did you mean 'false'?"),
        ("list --method magic", 2, "unknown method 'magic'"),
        ("check --jobs 0", 2, "--jobs 0 is too small; the least is 1"),
        ("check --jobs 99", 2, "--jobs 99 is too large; the most is 64"),
        ("check --seed -1", 2, "--seed -1 must lie between"),
        ("quiz --questions 0", 2, "--questions 0 is too small; the least is 1"),
        ("quiz --subject lsmt", 2, "did you mean 'lstm'?"),
        ("report --out .", 2, "is a folder; name a file"),
        ("report --out no/page.html", 2, "there is no folder"),
        ("check --file none.py", 1, "there is no file 'none.py'; name a Python file with claims"),
        ("check --file broken.py", 1, "broken.py, line 1 is no Python"),
        ("check --file empty.py", 1, "empty.py has no claims; make a Ledger"),
        ("list --file raises.py", 1, "raises.py raised ZeroDivisionError: division by zero; mend it"),
        ("lits", 2, "unknown command 'lits'; did you mean 'list'?"),
        ("show", 2, "ID"),
    ):
        answer = seqlab_command("claims", *words.split())
        lines = [line for line in answer.err.splitlines() if not line.startswith("running ")]
        assert (answer.code, len(lines)) == (code, 1), (words, answer.err)
        assert said in answer.err, words
    assert "error" in seqlab_command("claims", "check", "--jobs", 0, "--json").json


@pytest.mark.parametrize("command", ["", "list", "show", "check", "report", "quiz"])
def test_help(seqlab_command: Command, command: str) -> None:
    page = seqlab_command("claims", *command.split(), "--help").out
    assert "example" in page
    assert "--json" in page or not command
    if command in ("list", "show", "check", "report"):
        assert "a Python file with claims of your own, which is run" in " ".join(page.split())


@pytest.mark.parametrize("words", ["--help", "check pe.sinusoidal", "check --jobs 0", "show nothing"])
def test_wrong_names_and_help_load_nothing_heavy(words: str) -> None:
    script = f"""
import sys
from seqlab.cli import main
try:
    main(["claims", *{words.split()!r}])
except SystemExit:
    pass
heavy = {{"torch", "matplotlib", "sympy", "sklearn", "rich"}} & set(sys.modules)
sys.exit(f"loaded: {{heavy}}" if heavy else 0)
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr


WAITS = """

@claim("one.waits", statement="it waits", verdict="true", **said)
def waits(seed, form):
    with open("begun", "w") as file:
        file.write(str(os.getpid()))
    os.rename("begun", "number")
    __import__("time").sleep(600)
"""


def test_interrupted(tmp_path: Path) -> None:
    """Ctrl-C reaches the command alone; its processes end with it, and one line says so."""
    (tmp_path / "waits.py").write_text(OWN + WAITS)
    words = [sys.executable, "-m", "seqlab", "claims", "check", "--file", "waits.py", "--jobs", "2"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = subprocess.Popen(words, cwd=tmp_path, start_new_session=True, **pipes)
    while not (tmp_path / "number").exists() and command.poll() is None:
        time.sleep(0.05)
    command.send_signal(signal.SIGINT)
    out, err = command.communicate()  # ends when the last process has let go of its standard error
    assert (command.returncode, out) == (1, "")
    said = [line for line in err.splitlines() if not line.startswith("checking claims")]  # how far, on a slow machine
    assert [line for line in said if line != "a test may print"] == [
        "running waits.py: code that you chose",
        "seqlab: interrupted",
    ]
    number = int((tmp_path / "number").read_text())
    assert not lives(number)


def lives(process: int) -> bool:
    """Still there, and not only waiting to be counted as gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False
