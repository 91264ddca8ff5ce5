"""The README's commands and Python lines are executed as they stand, only with shorter budgets."""

import re
from pathlib import Path

import pytest
from tests.cli.conftest import Command
from tests.cli.documents import ROOT, blocks, page_text, shortened, shortened_code
from tests.conftest import nonsense
from tests.workflows.classify.conftest import reviews
from tests.workflows.translate.conftest import pairs

PAGE = "README.md"


@pytest.fixture
def texts(tmp_path: Path) -> None:
    for seed, name in enumerate(("my.txt", "more.txt", "other.txt")):
        (tmp_path / name).write_text(nonsense(1500, seed))
    rows = [f'"{text}",{label}' for text, label in reviews(120)]
    (tmp_path / "my.csv").write_text("\n".join(["review,stars", *rows]))
    lines = ["english\tfrench", *("\t".join(row[:2]) for row in pairs(80))]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.usefixtures("texts")
def test_the_commands_run_in_their_order(seqlab_command: Command) -> None:
    lines = [line for _, block in blocks(PAGE, "sh") for line in block.strip().split("\n")]
    assert len(lines) >= 8
    for line in lines:
        assert line.startswith("seqlab ")
        answer = seqlab_command(*shortened(line))
        assert answer.code == 0, f"{line}: {answer.err}"
        assert answer.out


@pytest.mark.usefixtures("texts")
def test_the_python_lines_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for _, code in blocks(PAGE, "python"):
        exec(compile(shortened_code(code), PAGE, "exec"), names)
        assert len(capsys.readouterr().out) > 10


def test_every_command_of_the_table_exists(seqlab_command: Command) -> None:
    named = re.findall(r"^\| `seqlab ([a-z]+(?: [a-z]+)?)", page_text(PAGE), flags=re.M)
    assert {"demo", "lm train", "lm generate", "lm perplexity", "data list"} <= set(named)
    for command in named:
        assert seqlab_command(*command.split(), "--help").code == 0


def test_the_file_tree_is_that_of_the_package() -> None:
    tree = re.search(r"src/seqlab/\n(.*?)tests/", page_text(PAGE), flags=re.S)
    assert tree is not None
    rooms = set(re.findall(r"^  (\w+)/", tree[1], flags=re.M))
    assert rooms == {p.name for p in (ROOT / "src" / "seqlab").iterdir() if p.is_dir() and any(p.glob("*.py"))}


def test_the_page_on_tasks_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last block as it stands; the others are parts of the toy task."""
    monkeypatch.chdir(tmp_path)
    page = [code for _, code in blocks("docs/tasks.md", "python")]
    toy = (ROOT / "tests" / "contracts" / "parity.py").read_text()
    settings = [line for line in page[0].splitlines() if line and not line.startswith("from ")]
    assert all(line in toy for line in settings)
    assert [line for line in page[1].splitlines()[1:] if line in toy] == page[1].splitlines()[1:]
    names: dict[str, object] = {}
    exec(compile(page[-1], "docs/tasks.md", "exec"), names)
    assert names["run"].final["step"] == 300  # type: ignore[attr-defined]
