"""A line of the library is broken, and the claims that it belongs to turn red.

A break names a function, a text in its source and what stands there instead. The function keeps its place and its
callers; only its code is another. So the table also says when the library has moved on: the text must be there, once.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from types import FunctionType
from typing import Any

import pytest

from seqlab.theory.ledger import Claim, claims
from seqlab.workflows.claims.check import check_one
from seqlab.workflows.claims.processes import Question

LEDGER = {claim.id: claim for claim in claims()}
QUESTION = Question(seed=1, forms=False, file=None)


@dataclass(frozen=True)
class Line:
    """`wrong` in place of `right` in a function, module:name."""

    place: str
    right: str
    wrong: str


class Break:
    """Some lines, and the claims that notice, with spaces between."""

    def __init__(self, what: str, *lines: Line, red: str) -> None:
        self.what, self.lines, self.red = what, lines, red.split()


BREAKS = (
    Break(
        "sinusoidal positions: sine and cosine change places",
        Line(
            "seqlab.layers:SinusoidalPosition.forward",
            "torch.stack([theta.sin(), theta.cos()]",
            "torch.stack([theta.cos(), theta.sin()]",
        ),
        red="pe.sinusoid pe.index-meaning",
    ),
    Break(
        "sinusoidal positions: i is read as the dimension",
        Line("seqlab.layers.positions:angles", "base ** (-i / width)", "base ** (-2 * i / width)"),
        red="pe.sinusoid pe.index-meaning",
    ),
)


def found_at(place: str) -> FunctionType:
    module, _, names = place.partition(":")
    found: Any = reduce(getattr, names.split("."), import_module(module))
    assert isinstance(found, FunctionType), f"{place} is no plain function"
    return found


def break_line(monkeypatch: pytest.MonkeyPatch, line: Line) -> None:
    function = found_at(line.place)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(line.right) == 1, f"{line.place} has no line '{line.right}'"
    defined: dict[str, Any] = {}
    words, flags = source.replace(line.right, line.wrong), __future__.annotations.compiler_flag
    exec(compile(words, line.place, "exec", flags), dict(function.__globals__), defined)
    (made,) = defined.values()
    monkeypatch.setattr(function, "__code__", inspect.unwrap(getattr(made, "__func__", made)).__code__)


def is_red(claim: Claim) -> bool:
    return not check_one(claim, QUESTION).holds


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.what)
def test_a_broken_line_is_noticed(broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        for line in broken.lines:
            break_line(patch, line)
        assert [id for id in broken.red if not is_red(LEDGER[id])] == []
    first = broken.red[0]
    assert not is_red(LEDGER[first]), "the library is whole again"


def test_the_same_line_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that is compiled anew from the same words is the same code."""
    with monkeypatch.context() as patch:
        for line in (line for broken in BREAKS for line in broken.lines):
            break_line(patch, Line(line.place, line.right, line.right))
        assert not is_red(LEDGER["pe.sinusoid"])


def test_a_line_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match=r"angles has no line 'base \*\* i'"):
        break_line(monkeypatch, Line("seqlab.layers.positions:angles", "base ** i", ""))
