"""Every claim of the ledger: its verdict is reproduced, its wrong forms are refuted, and all of it again the same."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import reduce
from importlib import import_module

import pytest

import seqlab
from seqlab.pages.mathematics import mathml, with_mathematics
from seqlab.theory.index import IDS, IDS_BY_SUBJECT
from seqlab.theory.ledger import METHODS, SUBJECTS, VERDICTS, Claim, Evidence, claims
from seqlab.workflows.claims.check import check_one
from seqlab.workflows.claims.processes import Question
from seqlab.workflows.claims.words import as_text, failed_rows

LEDGER = claims()
SEED = 1
each = pytest.mark.parametrize("claim", LEDGER, ids=lambda claim: claim.id)


def of_itself(evidence: Evidence | None) -> str:
    """All but the time that it took, to the last bit; as words, in which one NaN is like another."""
    return "" if evidence is None else repr(replace(evidence, seconds=0.0))


@each
def test_the_verdict_is_reproduced_and_every_wrong_form_refuted(claim: Claim) -> None:
    checked = check_one(claim, Question(SEED, forms=True, file=None))
    assert checked.holds, failed_rows([checked])
    again = check_one(claim, Question(SEED, forms=False, file=None))
    assert of_itself(again.evidence) == of_itself(checked.evidence)
    assert checked.evidence is not None
    assert checked.evidence.findings
    assert checked.evidence.steps or claim.method != "symbolic", "a symbolic proof shows its steps"
    assert checked.counterexample or claim.verdict != "false", "a false claim has a counterexample"
    drawn = [checked.counterexample, *map(as_text, checked.evidence.steps), *(f.what for f in checked.findings)]
    check_mathematics(drawn)


@each
def test_what_is_said_is_mathematics_that_a_page_can_draw(claim: Claim) -> None:
    assert claim.statement
    check_mathematics([claim.statement, claim.conditions, claim.correction, claim.note])


def check_mathematics(texts: list[str]) -> None:
    for text in texts:
        assert "\\" not in with_mathematics(text, strict=True), text


@each
def test_the_code_that_it_is_about_exists(claim: Claim) -> None:
    for place in claim.about:
        module, name = place.split(":")
        assert module.startswith("seqlab."), place
        reduce(getattr, name.split("."), import_module(module))


def test_the_index_is_that_of_the_ledger() -> None:
    assert tuple(IDS_BY_SUBJECT) == SUBJECTS
    assert {subject: {c.id for c in LEDGER if c.subject == subject} for subject in SUBJECTS} == {
        subject: set(ids) for subject, ids in IDS_BY_SUBJECT.items()
    }
    assert len(IDS) == len(set(IDS)) == 162


def test_every_verdict_and_method_is_one_that_there_is() -> None:
    assert set(Counter(claim.verdict for claim in LEDGER)) <= set(VERDICTS)
    assert set(Counter(claim.method for claim in LEDGER)) <= set(METHODS)


def test_the_ledger_is_there_from_python() -> None:
    assert [claim.id for claim in seqlab.theory.claims()] == [claim.id for claim in LEDGER]
    found = seqlab.check_claims(["pe.sinusoid"], seed=3)
    assert found.holds
    assert [one.id for one in found] == ["pe.sinusoid"]


@pytest.mark.parametrize("wrong", [r"\foo x", r"x^", "{", r"\frac{1}", r"\sqrt[3"])
def test_what_is_no_mathematics_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(wrong))):
        mathml(wrong)
    assert f"<code>{wrong}</code>" in with_mathematics(f"a ${wrong}$ b")
