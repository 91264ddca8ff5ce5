"""Which tests are likely to see a change: by name, by what they import, and by the functions that they ran."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.mutants.changes import Mutant

OWN_TESTS_ONLY = ("theory", "pages")  # rooms that nothing else leans on
EVERYWHERE = ("tests/contracts", "tests/cli")


@dataclass(frozen=True)
class Known:
    """What a test did on the unchanged source."""

    test: str
    seconds: float
    functions: frozenset[str]  # path::qualified name

    def runs(self, mutant: Mutant) -> bool:
        if mutant.function is not None:
            return f"{mutant.path}::{mutant.function}" in self.functions
        return any(name.startswith(f"{mutant.path}::") for name in self.functions)


# --------------------------------------------------------------------------- by name and imports


@cache
def imports(file: Path) -> frozenset[str]:
    """Modules named by the imports of a file, those inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


class TestFiles:
    """The test files of a tree."""

    __test__ = False

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = sorted(file.relative_to(root).as_posix() for file in (root / "tests").rglob("test_*.py"))

    def stages(self, mutant: Mutant, *, wide: bool = False) -> list[list[str]]:
        """The file with the module's name and those of its room that import it; the others of its room; others that
        import it. With `wide`: those that import a module that does, and those that go through everything."""
        module, parts = _module(mutant.path), Path(mutant.path).with_suffix("").parts
        own = [f for f in self.files if Path(f).stem.startswith(f"test_{parts[-1]}")]
        direct = [f for f in self.files if self._imports(f, module)]
        room = self._of_room(parts)
        stages = [[*(f for f in own if f in room), *(f for f in direct if f in room)], room]
        if mutant.room not in OWN_TESTS_ONLY:
            stages += [direct, self._second(module) if wide else []]
        done: list[str] = []
        for stage in stages:
            stage[:] = [f for f in dict.fromkeys(stage) if f not in done]
            done += stage
        return stages

    def _second(self, module: str) -> list[str]:
        users = {_module(file.relative_to(self.root / "src/seqlab").as_posix()) for file in self._users(module)}
        second = [f for f in self.files if any(self._imports(f, user) for user in users)]
        return [*second, *(f for f in self.files if f.startswith(EVERYWHERE))]

    def _of_room(self, parts: tuple[str, ...]) -> list[str]:
        """tests/workflows/duel for workflows/duel/judge, if there is such a folder."""
        for depth in range(len(parts) - 1, 0, -1):
            folder = "/".join(("tests", *parts[:depth])) + "/"
            if found := [f for f in self.files if f.startswith(folder)]:
                return found
        return []

    def _imports(self, file: str, module: str) -> bool:
        named = imports(self.root / file)
        helpers = [name for name in named if name.startswith("tests.")]
        through = [self.root / f"{name.replace('.', '/')}.py" for name in helpers]
        return module in named or any(module in imports(path) for path in through if path.is_file())

    def _users(self, module: str) -> Iterator[Path]:
        return (file for file in (self.root / "src/seqlab").rglob("*.py") if module in imports(file))


def _module(path: str) -> str:
    return ("seqlab/" + path.removesuffix(".py").removesuffix("/__init__")).replace("/", ".")


# --------------------------------------------------------------------------- by what they ran


class Notes:
    """What every test file's tests did on the unchanged source, kept in a folder; read anew if the file changed."""

    def __init__(self, folder: Path, root: Path, run: Callable[[str], list[dict[str, Any]]]) -> None:
        self.folder, self.root, self.run = folder, root, run
        folder.mkdir(parents=True, exist_ok=True)

    def groups(self, files: list[str]) -> list[list[str]]:
        """Those that have notes together, then one after the other: the last ones may not be needed."""
        noted = [file for file in files if self._note(file).exists()]
        return [noted, *([file] for file in files if file not in noted)]

    def _note(self, file: str) -> Path:
        content = (self.root / file).read_bytes()
        return self.folder / f"{hashlib.sha256(file.encode() + content).hexdigest()[:16]}.json"

    def of(self, file: str) -> list[Known]:
        note = self._note(file)
        if not note.exists():
            note.write_text(json.dumps({"file": file, "tests": self.run(file)}))
        return [
            Known(event["ends"], event["seconds"], frozenset(event["functions"]))
            for event in json.loads(note.read_text())["tests"]
            if not event["failed"]
        ]
