"""The house: a room imports only what its row of the table names, also inside functions."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import seqlab

ROOT = Path(seqlab.__file__).parent
BELOW_WORKFLOWS = {
    *("core", "ops", "data", "layers", "models", "training", "generation", "evaluation", "diagnostics"),
    *("runs", "pages", "theory"),
}
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "ops": {"core"},
    "data": {"core"},
    "layers": {"core", "ops"},
    "models": {"core", "ops", "layers"},
    "training": {"core", "ops", "models"},
    "generation": {"core", "ops", "models"},
    "evaluation": {"core", "ops", "data", "models", "generation"},
    "diagnostics": {"core", "ops", "layers", "models", "training"},
    "theory": {"core", "ops", "data", "layers", "models", "training", "diagnostics", "evaluation"},
    "runs": {"core", "training", "diagnostics"},  # what a training will take is said before it starts
    "pages": {"core"},
    "workflows": BELOW_WORKFLOWS,
    "cli": {"core", "workflows"},
}
# Capabilities meet in `runs` and `pages`; those that train language models may import `lm`.
SUB_ROOMS: dict[str, set[str]] = {
    "workflows/lm": set(),
    "workflows/sheet": {"workflows/lm"},
    "workflows/classify": set(),
    "workflows/translate": set(),
    "workflows/duel": {"workflows/lm", "workflows/classify", "workflows/translate"},
    "workflows/diagnose": {"workflows/lm", "workflows/classify", "workflows/translate"},
    "workflows/claims": set(),
    "workflows/cost": {"workflows/lm", "workflows/classify", "workflows/translate"},
    "workflows/demo": {"workflows/lm"},
    "workflows/library": set(),
    "workflows/overview": set(),
}
WITHOUT_TORCH = (
    "core/settings",
    "core/registry.py",
    "core/errors.py",
    "core/files.py",
    "core/units.py",
    "runs/folder.py",
    "theory/index.py",
    "workflows/claims/request.py",
)
REFERENCE = "seqlab.ops.reference"
READERS_OF_REFERENCE = ("ops/reference/", "theory/")  # and the tests: what computes must not lean on what checks it
FILES = sorted(ROOT.rglob("*.py"))


def imported_modules(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_imported(source: str) -> set[str]:
    paths = [module.split(".") for module in imported_modules(source)]
    return {path[1] for path in paths if path[0] == "seqlab" and len(path) > 1 and (ROOT / path[1]).is_dir()}


def test_every_room_has_a_row() -> None:
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert rooms == set(MAY_IMPORT)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_follow_the_house(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    if room in MAY_IMPORT:
        strangers = rooms_imported(path.read_text()) - MAY_IMPORT[room] - {room}
        assert not strangers, f"{room} may not import {strangers}"


def sub_room(parts: tuple[str, ...] | list[str]) -> str | None:
    """workflows/lm for seqlab.workflows.lm.train and for workflows/lm/train.py; None outside rooms that have any."""
    if len(parts) < 2 or parts[0] not in {name.split("/")[0] for name in SUB_ROOMS}:
        return None
    return f"{parts[0]}/{parts[1].removesuffix('.py')}"


def sub_rooms_imported(source: str) -> set[str]:
    paths = [module.split(".") for module in imported_modules(source) if module.startswith("seqlab.")]
    found = {sub_room(path[1:3]) for path in paths}
    return {name for name in found if name in SUB_ROOMS}


def test_every_sub_room_has_a_row() -> None:
    parents = {name.split("/")[0] for name in SUB_ROOMS}
    found = {sub_room(path.relative_to(ROOT).parts) for path in FILES if path.relative_to(ROOT).parts[0] in parents}
    assert found - {None} - {f"{parent}/__init__" for parent in parents} == set(SUB_ROOMS)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_capabilities_keep_to_themselves(path: Path) -> None:
    own = sub_room(path.relative_to(ROOT).parts)
    if own in SUB_ROOMS:
        strangers = sub_rooms_imported(path.read_text()) - SUB_ROOMS[own] - {own}
        assert not strangers, f"{own} may not import {strangers}"


def test_the_check_sees_sub_rooms() -> None:
    source = "def f():\n    from seqlab.workflows.duel import plan\n    import seqlab.workflows.demo\n"
    assert sub_rooms_imported(source) == {"workflows/duel", "workflows/demo"}


@pytest.mark.parametrize("place", WITHOUT_TORCH)
def test_what_help_and_checks_need_does_without_torch(place: str) -> None:
    paths = sorted((ROOT / place).rglob("*.py")) if (ROOT / place).is_dir() else [ROOT / place]
    for path in paths:
        heads = {module.split(".")[0] for module in imported_modules(path.read_text())}
        assert not heads & {"torch", "safetensors", "matplotlib", "transformers"}, path


def test_the_check_sees_imports_inside_functions() -> None:
    assert rooms_imported("def f():\n    from seqlab.data import pieces\n") == {"data"}


def imports_reference(source: str) -> bool:
    return any(f"{module}.".startswith(f"{REFERENCE}.") for module in imported_modules(source))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_theory_reads_the_plain_reference(path: Path) -> None:
    if not path.relative_to(ROOT).as_posix().startswith(READERS_OF_REFERENCE):
        assert not imports_reference(path.read_text())


def test_the_check_sees_every_way_to_import_the_reference() -> None:
    for source in (
        "import seqlab.ops.reference",
        "import seqlab.ops.reference.attention as plain",
        "from seqlab.ops import masks, reference",
        "from seqlab.ops.reference import attention",
        "def f():\n    from seqlab.ops.reference.attention import softmax_weights\n",
    ):
        assert imports_reference(source)
    assert not imports_reference("from seqlab.ops import recurrence")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_below_the_command_line_prints_or_unpickles(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    tree = ast.parse(path.read_text())
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not called & {"eval", "exec"}
    assert room == "cli" or "print" not in called
    modules = set(imported_modules(path.read_text()))
    assert not modules & {"pickle", "marshal", "shelve", "joblib"}
    attributes = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    assert not attributes & {"torch.load", "torch.save", "np.load", "np.save"}
