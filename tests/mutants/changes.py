"""Small changes of Python source such as a slip of the hand makes, found in its syntax tree and made by position.

Left alone: annotations, decorators, assertions, texts, formats, `strict=` of zip and what only a type checker reads.
"""

from __future__ import annotations

import ast
import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
CALCULATED: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
RELATED = {"min": "max", "max": "min", "any": "all", "all": "any"}
UNREAD = ("annotation", "returns", "decorator_list", "type_params", "bases", "ctx")
UNTOUCHED = (ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*FUNCTIONS, ast.ClassDef)
REMOVABLE = (ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete)


@dataclass(frozen=True)
class Mutant:
    """One change: bytes [start, end) of a file of src/seqlab become `new`."""

    path: str  # below src/seqlab
    kind: str
    line: int
    start: int
    end: int
    new: str
    function: str | None  # qualified name of the function around it; None: it runs when the module is imported
    before: str  # the lines concerned
    after: str
    key: str  # the same wherever in its file the change stands

    @property
    def room(self) -> str:
        return self.path.split("/")[0] if "/" in self.path else "root"

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]

    def is_another_program(self, source: bytes) -> bool:
        """Whether the change leaves valid Python that does not say the same."""
        try:
            return ast.dump(ast.parse(self.applied(source))) != ast.dump(ast.parse(source))
        except (SyntaxError, ValueError):
            return False

    @property
    def diff(self) -> str:
        old = "\n".join(f"- {line}" for line in self.before.splitlines())
        return f"{self.path}:{self.line} ({self.kind})\n{old}\n" + "\n".join(
            f"+ {line}" for line in self.after.splitlines()
        )


@dataclass(frozen=True)
class Change:
    """What becomes of bytes [start, end)."""

    kind: str
    start: int
    end: int
    new: str


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Every change of one file, in the order of the source; a few leave no valid Python."""
    tree, text = ast.parse(source), _Text(source)
    found, seen = [], Counter[tuple[str, str]]()
    for change, function in _walked(tree, text, ()):
        line, before, after = text.lines_around(change)
        seen[before, after] += 1
        parts = (path, change.kind, before, after, str(seen[before, after]))
        key = hashlib.sha256("|".join(parts).encode()).hexdigest()[:12]
        found.append(
            Mutant(path, change.kind, line, change.start, change.end, change.new, function, before, after, key)
        )
    return found


def in_order_of_luck(mutants: list[Mutant], seed: int) -> list[Mutant]:
    """The same order for the same seed, whatever else is in the list and wherever the changes stand."""
    return sorted(mutants, key=lambda m: hashlib.sha256(f"{seed}|{m.key}".encode()).digest())


def all_mutants(package: Path) -> dict[str, list[Mutant]]:
    """room -> mutants of a package's files."""
    rooms: dict[str, list[Mutant]] = {}
    for file in sorted(package.rglob("*.py")):
        for mutant in mutants_of(file.relative_to(package).as_posix(), file.read_bytes()):
            rooms.setdefault(mutant.room, []).append(mutant)
    return rooms


# --------------------------------------------------------------------------- walking


class _Text:
    """Source with byte positions, as the syntax tree counts them."""

    def __init__(self, source: bytes) -> None:
        self.source, self.lines = source, source.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def start(self, node: ast.AST) -> int:
        return self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        return self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def of(self, node: ast.AST) -> str:
        return self.source[self.start(node) : self.end(node)].decode()

    def is_odd(self, node: ast.AST) -> bool:
        """A coin that falls the same wherever the line stands."""
        return sum(self.lines[node.lineno - 1].strip()) % 2 == 1  # type: ignore[attr-defined]

    def place(self, token: str, first: ast.AST, second: ast.AST) -> int | None:
        """Where an operator stands between two operands."""
        between = self.source[self.end(first) : self.start(second)]
        found = between.find(token.encode())
        return None if found < 0 else self.end(first) + found

    def lines_around(self, change: Change) -> tuple[int, str, str]:
        """Number of the first line concerned; the lines before and after."""
        first = bisect_right(self.starts, change.start) - 1
        begin = self.starts[first]
        end = self.source.find(b"\n", change.end)
        end = len(self.source) if end < 0 else end
        after = self.source[begin : change.start] + change.new.encode() + self.source[change.end : end]
        return first + 1, self.source[begin:end].decode().strip(), after.decode().strip()


def _walked(node: ast.AST, text: _Text, scope: tuple[ast.AST, ...]) -> Iterator[tuple[Change, str | None]]:
    """Changes of everything below a node, each with the function that it stands in."""
    if isinstance(node, UNTOUCHED) or _for_types_only(node):
        return
    if isinstance(node, SCOPES):
        scope = (*scope, node)
    function = _function_of(scope)
    inside = [part for part in scope if isinstance(part, FUNCTIONS)]
    yield from ((change, function) for change in _changes(node, text, inside[-1] if inside else None))
    for name, value in ast.iter_fields(node):
        if name in UNREAD:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_done(node, child):
                yield from _walked(child, text, scope)


def _for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _is_done(node: ast.AST, child: ast.AST) -> bool:
    """Docstrings, defaults (changed with their function) and `strict=`, which asserts something."""
    if isinstance(node, ast.arguments) and isinstance(child, ast.Constant):
        return True
    if isinstance(child, ast.keyword) and child.arg == "strict":
        return True
    return isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)


def _function_of(scope: tuple[ast.AST, ...]) -> str | None:
    """The qualified name of the innermost function, as its code object has it."""
    last = max((k for k, part in enumerate(scope) if isinstance(part, FUNCTIONS)), default=-1)
    names = []
    for part in scope[: last + 1]:
        names.append(part.name)  # type: ignore[attr-defined]
        if isinstance(part, FUNCTIONS):
            names.append("<locals>")
    return ".".join(names[:-1]) if names else None


# --------------------------------------------------------------------------- changes of one node


def _changes(node: ast.AST, text: _Text, function: ast.AST | None) -> Iterator[Change]:
    if isinstance(node, ast.Compare | ast.BinOp | ast.AugAssign | ast.BoolOp | ast.UnaryOp):
        yield from _operation(node, text, function)
    elif isinstance(node, ast.IfExp | ast.If):
        yield _negated("swapped branches", node.test, text)
    elif isinstance(node, ast.comprehension):
        yield from (_negated("negated filter", test, text) for test in node.ifs)
    elif isinstance(node, ast.Call):
        yield from _call(node, text)
    elif isinstance(node, ast.arguments):
        defaults = (default for default in [*node.defaults, *node.kw_defaults] if default is not None)
        yield from (change for default in defaults for change in _constant(default, text, "default"))
    elif isinstance(node, ast.Constant):
        yield from _constant(node, text, "constant")
    if isinstance(node, ast.stmt):
        yield from _removed(node, text, function)


def _operation(node: ast.AST, text: _Text, function: ast.AST | None) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        for op, a, b in zip(node.ops, [node.left, *node.comparators], node.comparators, strict=False):
            yield from _exchanged("compare", COMPARED[type(op)], text, a, b)
    elif isinstance(node, ast.BinOp):
        yield from _calculation(node, text, function)
    elif isinstance(node, ast.AugAssign) and type(node.op) in CALCULATED:
        yield from _exchanged("arithmetic", CALCULATED[type(node.op)], text, node.target, node.value)
    elif isinstance(node, ast.BoolOp):
        tokens = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for a, b in pairwise(node.values):
            yield from _exchanged("and/or", tokens, text, a, b)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        token = "not" if isinstance(node.op, ast.Not) else "-"
        yield Change(f"dropped {token}", text.start(node), text.start(node) + len(token), "")


def _exchanged(kind: str, tokens: tuple[str, str], text: _Text, a: ast.AST, b: ast.AST) -> Iterator[Change]:
    place = text.place(tokens[0], a, b)
    if place is not None:
        yield Change(kind, place, place + len(tokens[0]), tokens[1])


def _calculation(node: ast.BinOp, text: _Text, function: ast.AST | None) -> Iterator[Change]:
    of_texts = any(isinstance(side, ast.JoinedStr) or _holds(side, str) for side in (node.left, node.right))
    of_types = isinstance(node.op, ast.BitOr) and function is None
    if type(node.op) in CALCULATED and not of_texts and not of_types:
        yield from _exchanged("arithmetic", CALCULATED[type(node.op)], text, node.left, node.right)


def _holds(node: ast.AST, kind: type) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, kind)


def _negated(kind: str, test: ast.AST, text: _Text) -> Change:
    return Change(kind, text.start(test), text.end(test), f"not ({text.of(test)})")


def _call(node: ast.Call, text: _Text) -> Iterator[Change]:
    """min for max, any for all, and the first two arguments the other way round."""
    if isinstance(node.func, ast.Name) and node.func.id in RELATED:
        yield Change("related function", text.start(node.func), text.end(node.func), RELATED[node.func.id])
    plain = (ast.Name, ast.Attribute)
    asks_for_type = isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass")
    if len(node.args) >= 2 and not asks_for_type and all(isinstance(argument, plain) for argument in node.args[:2]):
        a, b = node.args[:2]
        between = text.source[text.end(a) : text.start(b)].decode()
        yield Change("swapped arguments", text.start(a), text.end(b), text.of(b) + between + text.of(a))


def _constant(node: ast.AST, text: _Text, kind: str) -> Iterator[Change]:
    """True and False change places, whole numbers are off by one in a direction of their own, others doubled."""
    if not isinstance(node, ast.Constant):
        return
    value = node.value
    if isinstance(value, bool):
        new = repr(not value)
    elif isinstance(value, int):
        new = str(value + 1 if value < 1 or text.is_odd(node) else value - 1)
    elif isinstance(value, float):
        new = repr(2 * value if value else 1.0)
    else:
        return
    yield Change(kind, text.start(node), text.end(node), new)


def _removed(node: ast.stmt, text: _Text, function: ast.AST | None) -> Iterator[Change]:
    """Statements whose absence leaves a program that still has all its names."""
    called = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
    if called or isinstance(node, REMOVABLE) or (isinstance(node, ast.Assign) and _changes_what_is(node, function)):
        yield Change("removed statement", text.start(node), text.end(node), "pass")


def _changes_what_is(node: ast.Assign, function: ast.AST | None) -> bool:
    """It writes into an object, or to names that have a value before."""
    if function is None:
        return False
    known = {argument.arg for argument in ast.walk(function) if isinstance(argument, ast.arg)}
    for other in ast.walk(function):
        if isinstance(other, ast.Name) and isinstance(other.ctx, ast.Store) and other.lineno < node.lineno:
            known.add(other.id)
    names = [name for target in node.targets for name in _stored(target)]
    return all(name in known for name in names)


def _stored(target: ast.AST) -> list[str]:
    if isinstance(target, ast.Name):
        return [target.id]
    return [name for part in getattr(target, "elts", []) for name in _stored(part)]
