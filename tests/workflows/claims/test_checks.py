"""Claims of one's own, checked here and in other processes."""

from __future__ import annotations

import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from seqlab.core.errors import DataError, UsageError
from seqlab.theory.ledger import AS_STATED, claims
from seqlab.workflows.claims import plain_mathematics
from seqlab.workflows.claims.check import Checks, check_claims
from seqlab.workflows.claims.markdown import document
from seqlab.workflows.claims.plain_mathematics import label, readable
from seqlab.workflows.claims.quiz import quiz_questions
from seqlab.workflows.claims.record import Checked
from seqlab.workflows.claims.report import report_page

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "own_claim.py"

OWN = """
import os
import sys

import torch
from seqlab.theory.ledger import AS_STATED, Evidence, Finding, Ledger, at_most, evidence, exactly

ledger = Ledger()
claim = ledger.of("numbers")
said = dict(method="exact", right=2, wrong={"three": 3})


@claim("one.sum", statement="$1 + 1 = 2$", verdict="true", **said)
def sums(seed, form):
    print("a test may print")
    return evidence(exactly("1 + 1", 2, form))


@claim("one.weak", statement="$1 < 4$", verdict="conditional", conditions="$4 > 1$", **said)
def weak(seed, form):
    return evidence(at_most("the form", form, 9))


@claim("one.wrong", statement="$1 = 2$", verdict="true", **said)
def wrong(seed, form):
    return evidence(exactly("one", 1, form), exactly("two", 2, 2))


@claim("one.raises", statement="$0 / 0$", verdict="true", **said)
def raises(seed, form):
    return evidence(exactly("nothing", seed / 0, form))


@claim("one.drawn", statement="a weight", verdict="true", method="sampling", right=1.0, wrong={"none": -1.0})
def drawn(seed, form):
    figure = torch.nn.Linear(1, 1).weight.item() ** 2
    return Evidence((Finding("a weight", figure, (0.0, float("inf")), (-figure, form)),), ("a", "b"), "$x$")
"""
DIES = (
    OWN
    + """

@claim("one.dies", statement="it ends", verdict="true", **said)
def dies(seed, form):
    os._exit(3)
"""
)


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return str(path)


def timeless(checks: Checks) -> list[tuple[object, ...]]:
    """Claims are other objects in another process, or after another reading of their file."""

    def facts(one: Checked) -> tuple[object, ...]:
        evidence = None if one.evidence is None else replace(one.evidence, seconds=0.0)
        forms = tuple(
            (form.name, form.trouble, form.evidence and replace(form.evidence, seconds=0.0)) for form in one.forms
        )
        return one.id, one.holds, evidence, one.trouble, forms

    return [facts(one) for one in checks]


def test_the_example_is_reproduced_and_refutes_its_wrong_forms() -> None:
    checks = check_claims(file=str(EXAMPLE), forms=True)
    assert checks.holds, [one.id for one in checks.failed]
    assert {one.method for one in checks} == {"symbolic", "counterexample", "identity", "sampling"}
    assert check_claims(file=str(EXAMPLE), seed=11, forms=True).holds


def test_the_example_runs_as_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert capsys.readouterr().out.count(", reproduced in") == 4


def test_the_evidence_does_not_depend_on_the_number_of_processes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And one that dies costs the claim that it had."""
    path = tmp_path / "dies.py"
    path.write_text(DIES)
    there = check_claims(file=str(path), seed=3, jobs=2, forms=True)
    living = [one.id for one in there if one.id != "one.dies"]
    here = check_claims(living, file=str(path), seed=3, forms=True)
    assert timeless(there)[:-1] == timeless(here)
    assert there.claims[-1].trouble == "its process ended with code 3"
    assert timeless(check_claims(living, file=str(path), seed=4, forms=True)) != timeless(here)
    assert capfd.readouterr().out == ""
    assert list(tmp_path.glob("*pycache*")) == []


def test_what_counts_as_not_reproduced(own: str) -> None:
    found = {one.id: one for one in check_claims(file=own)}
    assert {id: one.holds for id, one in found.items()} == {
        "one.sum": True,
        "one.weak": True,
        "one.wrong": False,
        "one.raises": False,
        "one.drawn": True,
    }
    assert found["one.raises"].trouble == "ZeroDivisionError: division by zero"
    weak = check_claims(["one.weak"], file=own, forms=True)
    assert [one.id for one in weak.failed] == ["one.weak"]  # the wrong form passes


def test_a_choice_of_claims(own: str) -> None:
    assert [one.id for one in check_claims(file=own, verdict="conditional")] == ["one.weak"]
    assert [one.id for one in check_claims(file=own, method="sampling", subject="numbers")] == ["one.drawn"]
    assert [one.id for one in check_claims(["one.weak", "one.sum", "one.weak"], file=own)] == ["one.weak", "one.sum"]
    for asked, said in (
        ({"ids": ["one.sums"]}, "unknown claim 'one.sums'; did you mean 'one.sum'?"),
        ({"subject": "letters"}, "unknown subject 'letters'; known: numbers"),
        ({"verdict": "flase"}, "unknown verdict 'flase'; did you mean 'false'?"),
        ({"verdict": "false"}, "there is no claim with verdict false; leave one of them out"),
        ({"jobs": 0}, "--jobs 0 is too small; the least is 1"),
        ({"seed": -1}, "--seed -1 must lie between"),
    ):
        with pytest.raises(UsageError, match=re.escape(said)):
            check_claims(file=own, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("x = (", r"own.py, line 1 is no Python: SyntaxError"),
        ("x = 1", r"own.py has no claims; make a Ledger and write some \(see examples/own_claim.py\)"),
        ("import sys\nsys.exit(4)", "own.py raised SystemExit: 4"),
        ("raise RuntimeError('one\\ntwo')", "own.py raised RuntimeError: one two; mend it"),
        ("from seqlab.theory.ledger import LEDGER", "has no claims"),
    ],
)
def test_files_that_hold_no_claims(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "own.py"
    path.write_text(content)
    with pytest.raises(DataError, match=said):
        check_claims(file=str(path))


# --------------------------------------------------------------------------- page, document, questions


def test_the_page_shows_what_was_found(own: str) -> None:
    checks = check_claims(file=own, seed=9, forms=True)
    page = report_page(checks)
    assert "seed 9" in page
    assert "torch" in page
    assert "Not reproduced: " in page
    for one in checks:
        assert f'<article id="{one.id}"' in page
    assert page.count('class="lost"') == 3
    assert "the check raised ZeroDivisionError" in page
    assert "wrong form &#39;three&#39; passes the test" in page
    assert "http" not in page.replace("http://www.w3.org/1998/Math/MathML", "")
    assert "<script" not in page
    false = report_page(check_claims(["pe.index-meaning"], forms=True))
    for words in ("As it is stated", "Right is", "Counterexample:", "<math", "✗", "✓"):
        assert words in false


def test_the_document_is_current() -> None:
    """After a change of the claims: make claims."""
    assert (ROOT / "docs" / "claims.md").read_text() == document(claims())


def test_questions() -> None:
    asked = quiz_questions(questions=1000, seed=3)
    assert len({one.claim.id for one in asked}) == len(asked) == len(claims())
    assert [one.claim.id for one in asked] == [one.claim.id for one in quiz_questions(1000, seed=3)]
    assert all(one.answer == (AS_STATED not in one.claim.wrong or one.claim.verdict != "false") for one in asked)
    for one in asked:
        assert ("Conditions: " in one.text) == bool(one.claim.conditions)
        assert ("Setting: " in one.text) == bool(one.claim.setting)
        if any(symbol in one.claim.statement for symbol in (r"\mu_a", "v_a", "f(u)", "f(q)", r"\tilde C_t", "z_t")):
            assert one.claim.setting, one.claim.id
    assert len(quiz_questions(1, seed=0)) == 1


@pytest.mark.parametrize(
    ("latex", "plain"),
    [
        (r"$\sigma(-x) = 1 - \sigma(x)$", "σ(-x) = 1 - σ(x)"),
        (r"$\lVert PE(p) \rVert^2 = d/2$", "‖PE(p)‖² = d/2"),
        (r"$\frac{\partial h_t}{\partial h_{t-1}}$", "(∂hₜ)/(∂hₜ₋₁)"),
        (r"$\frac{1}{\sqrt{d}} \le W^\top x$", "1/√d ≤ Wᵀ x"),
        (r"$1/\sqrt{2\pi} + \sqrt{d_k} + \frac{1}{2d} + \frac{dJ}{dh}$", "1/√(2π) + √dₖ + 1/(2d) + dJ/dh"),
        (r"$\hat{h} \odot \tilde{h} \in \mathbb{R}^n$", "ĥ ⊙ h̃ ∈ ℝⁿ"),
        (r"$e_{t,l} = \mathrm{score}(q, k)$", "e_(t,l) = score(q, k)"),
        (r"$10000^{2i/d}$ of $5", "10000^(2i/d) of $5"),
        (r"$\sum_{k=1}^n \tanh x$", "Σₖ₌₁ⁿ tanh x"),
        (r"$\begin{cases} 1 \\ 0 \end{cases}$", r"$\begin{cases} 1 \\ 0 \end{cases}$"),
        (r"$\unknown{x}$ and $x^$", r"$\unknown{x}$ and $x^$"),
        ("no mathematics", "no mathematics"),
    ],
)
def test_mathematics_in_a_terminal(latex: str, plain: str) -> None:
    assert readable(latex) == plain


def test_the_names_of_figures() -> None:
    assert label("max |h_t − h_{t−1}|, x^{-2}") == "max |hₜ − hₜ₋₁|, x⁻²"
    assert label("a_max of W_hh and v_b, α_j") == "a_max of W_hh and v_b, αⱼ"
    assert label(r"error of $\sigma$") == "error of σ"


def test_no_command_stands_in_two_tables() -> None:
    names = [plain_mathematics.LETTERS, plain_mathematics.RELATIONS, plain_mathematics.ACCENTS]
    assert len(set().union(*names)) == sum(map(len, names))
