"""The sampler of small changes: what it changes, what a seed decides, and that a change is seen or survives."""

import shutil
import textwrap
from pathlib import Path

import pytest
from tests.mutants.__main__ import examine, sample, table
from tests.mutants.changes import Mutant, all_mutants, in_order_of_luck, mutants_of
from tests.mutants.choosing import Notes, TestFiles
from tests.mutants.running import Tree


def changed(source: str) -> list[str]:
    """Each program that comes of a change."""
    content = source.encode()
    found = [m for m in mutants_of("room/file.py", content) if m.is_another_program(content)]
    return [m.applied(content).decode() for m in found]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("α = a < b <= c", ["α = a <= b <= c", "α = a < b < c"]),
        ("x = (a) not in (b)", ["x = (a) in (b)"]),
        ("x = λ // (b)", ["x = λ / (b)"]),
        ("x = 'a' + b", []),
        ("x = f'{a + 1}'", []),
        ("x += y", ["x -= y", "pass"]),
        ("x = a and (b or c)", ["x = a or (b or c)", "x = a and (b and c)"]),
        ("x = not (a)", ["x =  (a)"]),
        ("x = -a", ["x = a"]),
        ("x = a if b else c", ["x = a if not (b) else c"]),
        ("x = [a for a in b if c]", ["x = [a for a in b if not (c)]"]),
        ("x = max(a, b.c, 'd')", ["x = min(a, b.c, 'd')", "x = max(b.c, a, 'd')"]),
        ("x = isinstance(a, b)", []),
        ("x = 0, 0.0, 0.5", ["x = 1, 0.0, 0.5", "x = 0, 1.0, 0.5", "x = 0, 0.0, 1.0"]),
        ("x = True, None, 'text'", ["x = False, None, 'text'"]),
        ("def f(a: int | None, b=True) -> 'x': ...", ["def f(a: int | None, b=False) -> 'x': ..."]),
        ("assert a < 1", []),
        ("x = zip(a, b, strict=True)", ["x = zip(b, a, strict=True)"]),
        ('"""A text."""', []),
        ("if TYPE_CHECKING:\n    x = 1", []),
        ("def f(a):\n    b = 'new'\n    a = b\n    return a", ["def f(a):\n    b = 'new'\n    pass\n    return a"]),
        ("def f():\n    raise E", ["def f():\n    pass"]),
    ],
)
def test_what_is_changed(source: str, expected: list[str]) -> None:
    assert changed(source) == expected


def test_a_whole_number_is_off_by_one_either_way() -> None:
    found = [result for name in "abcdef" for result in changed(f"{name} = 7")]
    assert found == [f"{name} = {number}" for name, number in zip("abcdef", [8, 6] * 3, strict=True)]


def test_a_change_is_known_by_what_it_says_not_by_where_it_stands() -> None:
    source = "class A:\n    def f(self):\n        def g():\n            return a < b\n        return a < b\n"
    (inner, outer), moved = mutants_of("a.py", source.encode()), mutants_of("a.py", f"# é\n{source}".encode())
    assert [m.function for m in (inner, outer)] == ["A.f.<locals>.g", "A.f"]
    assert [m.key for m in moved] == [inner.key, outer.key]
    assert inner.key != outer.key
    assert [m.line for m in moved] == [5, 6]
    assert (inner.before, inner.after) == ("return a < b", "return a <= b")
    assert [m.key for m in in_order_of_luck([inner, outer], 1)] == [m.key for m in in_order_of_luck([outer, inner], 1)]


# --------------------------------------------------------------------------- a small tree of its own

HALVES = """
    def half(x):
        return x / 2 if x > 0 else 0

    def double(x):
        return x * 2

    def forever(n):
        while n > 0:
            n -= 1
        return n
"""
TESTS = """
    from seqlab.room.halves import double, forever, half

    def test_half():
        assert half(6) == 3

    def test_forever():
        assert forever(3) == 0
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, content in (
        ("pyproject.toml", "[tool.pytest.ini_options]\n"),
        ("src/seqlab/__init__.py", ""),
        ("src/seqlab/room/__init__.py", ""),
        ("src/seqlab/room/halves.py", textwrap.dedent(HALVES)),
        ("tests/room/test_halves.py", textwrap.dedent(TESTS)),
        ("tests/other/test_else.py", "def test_nothing():\n    pass\n"),
    ):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path / "tree"


def named(mutants: list[Mutant], after: str) -> Mutant:
    return next(m for m in mutants if m.after == after)


def test_a_change_is_seen_by_a_test_by_time_or_not_at_all(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(Path(__file__).parents[1] / "mutants", tree / "tests/mutants")
    mutants = all_mutants(tree / "src/seqlab")["room"]
    before = {path: path.read_bytes() for path in tree.rglob("*.py")}
    chosen = [
        named(mutants, "return x * 2 if x > 0 else 0"),
        named(mutants, "return x / 2 if x >= 0 else 0"),
        named(mutants, "return x / 2"),
        named(mutants, "n += 1"),
    ]
    with Tree(tree) as copy:
        files, notes = TestFiles(copy.root), Notes(tmp_path / "notes", copy.root, copy.note)
        results = {m.key: examine(m, copy, files, notes) for m in chosen[:3]}
        monkeypatch.setattr("tests.mutants.running.LEAST_LIMIT", 3.0)
        results[chosen[3].key] = examine(chosen[3], copy, files, notes)
        assert (copy.package / "room/halves.py").read_bytes() == before[tree / "src/seqlab/room/halves.py"]
    assert not copy.root.exists()
    assert {path: path.read_bytes() for path in tree.rglob("*.py")} == before, "the tree itself is left alone"
    at = "tests/room/test_halves.py::test"
    assert [results[m.key]["by"] for m in chosen] == [f"{at}_half", None, None, f"{at}_forever (did not end)"]
    assert results[chosen[2].key]["tests"] == 0, "no test runs that function"
    written = table(chosen, results, {chosen[1].key: "0 is half of 0"})
    assert "| room | 4 of 4 | 1 | 2 | 1 | 67% |" in written
    assert "0 is half of 0" in written


def test_a_sample_takes_from_every_room_and_grows_without_changing() -> None:
    package = Path(__file__).parents[2] / "src/seqlab/core"
    rooms = all_mutants(package)
    few, more = ({m.key for m in sample(package, rooms, count, seed=3)} for count in (8, 20))
    assert (len(few), len(more)) == (8, 20)
    assert few < more
    assert few != {m.key for m in sample(package, rooms, 8, seed=4)}
