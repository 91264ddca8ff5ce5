"""Claims that are measured on CPython's help topics keep their verdict where another version has other topics."""

from __future__ import annotations

import textwrap
from types import ModuleType

import pytest

from seqlab.theory import characters, cost, texts
from seqlab.theory.ledger import Claim, claims
from seqlab.workflows.claims.check import check_one
from seqlab.workflows.claims.processes import Question
from seqlab.workflows.claims.words import failed_rows

READERS: tuple[ModuleType, ...] = (texts, characters, cost)
MEASURED = [claim for claim in claims() if texts.VERSIONED in claim.note or claim.id == "charlm.unknown-words"]
WHOLE = texts.topics()
MIDDLE = len(WHOLE) // 2


def in_another_markup(text: str) -> str:
    """Lines of another width, one space after a sentence, code between other marks."""
    paragraphs = (textwrap.fill(part, 100) for part in text.split("\n\n"))
    return "\n\n".join(paragraphs).replace(".  ", ". ").replace('"', "``").replace("’", "'")


OTHERS = {
    "half of the topics, other markup": in_another_markup(WHOLE[:MIDDLE]),
    "the other half, backwards": "\n\n".join(reversed(WHOLE[MIDDLE:].split("\n\n"))),
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("claim", MEASURED, ids=lambda claim: claim.id)
def test_another_text_gives_the_same_verdict(claim: Claim, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    for module in READERS:
        monkeypatch.setattr(module, "topics", lambda: read.append(text) or text)
    checked = check_one(claim, Question(2, forms=False, file=None))
    assert checked.holds, failed_rows([checked])
    assert read


def test_which_claims_are_measured_on_it() -> None:
    assert {claim.id for claim in MEASURED} == {
        *("ppl.explain-gap", "ppl.preprocessing", "ppl.dev-against-passages", "ppl.units-not-comparable"),
        *("charlm.subword", "charlm.unknown-words", "wordlm.attention-cost"),
    }
