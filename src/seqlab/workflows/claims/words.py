"""How claims, figures and failures are said: the same words in the terminal, on the page and in the quiz."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqlab.theory.ledger import AS_STATED, METHODS, Claim, Evidence, Finding, Limits
from seqlab.workflows.claims.plain_mathematics import label, readable
from seqlab.workflows.claims.record import Checked, Tried

if TYPE_CHECKING:
    from seqlab.workflows.claims.check import Checks

VERDICTS = {"true": "true", "conditional": "true with conditions", "false": "false", "empirical": "empirical"}
ABBREVIATIONS = ("gru", "lstm")
LIST_HEADER = ["claim", "subject", "verdict", "method", "statement"]
FAILED_HEADER = ["claim", "verdict", "method", "what", "found", "wanted"]
FINDINGS_HEADER = ["", "what", "found", "wanted"]
BOTH_HEADER = ["", "what", "right form", "wanted", "", "as it is stated"]


def title(subject: str) -> str:
    words = subject.replace("_", " ")
    return words.upper() if words in ABBREVIATIONS else words[:1].upper() + words[1:]


def number(value: float) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if float(value).is_integer() and abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def found(finding: Finding) -> str:
    """The figure, with the interval of a simulated one."""
    return f"{number(finding.value)} {interval(finding)}".rstrip()


def interval(finding: Finding) -> str:
    return "" if finding.interval is None else f"[{', '.join(map(number, finding.interval))}]"


def wanted(limits: Limits) -> str:
    low, high = limits
    if low == high:
        return f"= {number(low)}"
    if math.isinf(high):
        return f"≥ {number(low)}"
    if low == 0 or math.isinf(low):
        return f"≤ {number(high)}"
    ends = [number(low), number(high)]
    return " … ".join(ends if ends[0] != ends[1] else [f"{low:.7g}", f"{high:.7g}"])


def outcome(checked: Checked) -> str:
    if checked.evidence is None:
        return f"not reproduced: the check raised {checked.trouble}"
    return f"{'reproduced' if checked.holds else 'not reproduced'} in {checked.seconds:.2f} s"


def list_row(claim: Claim) -> list[str]:
    return [claim.id, claim.subject, VERDICTS[claim.verdict], claim.method, readable(claim.statement)]


def finding_rows(findings: Sequence[Finding]) -> list[list[str]]:
    return [["✓" if one.holds else "✗", label(one.what), found(one), wanted(one.wanted)] for one in findings]


def findings_table(evidence: Evidence) -> tuple[list[str], list[list[str]]]:
    """Header and rows. Of a false claim the right form and the statement as it is made side by side."""
    right, stated = evidence.findings, evidence.stated.findings if evidence.stated else ()
    if len(stated) != len(right):
        return FINDINGS_HEADER, finding_rows(right)
    return BOTH_HEADER, [[*row, *_beside(a, b)] for row, a, b in zip(finding_rows(right), right, stated, strict=True)]


def _beside(right: Finding, stated: Finding) -> list[str]:
    differs = "" if stated.wanted == right.wanted else f", wanted {wanted(stated.wanted)}"
    return ["✓" if stated.holds else "✗", found(stated) + differs]


def failed_rows(failed: Sequence[Checked]) -> list[list[str]]:
    """One row for everything that did not come out as it must."""
    return [[one.id, VERDICTS[one.verdict], one.method, *reason] for one in failed for reason in _reasons(one)]


def _reasons(checked: Checked) -> list[list[str]]:
    if checked.evidence is None:
        return [[f"the check raised {checked.trouble}", "", ""]]
    reasons = [finding_row[1:] for finding_row in finding_rows([one for one in checked.findings if not one.holds])]
    if checked.evidence.stated is not None and checked.evidence.stated.holds:
        reasons.append(["the statement as it is made passes the test", "", ""])
    return reasons + [[form_words(form), "", ""] for form in checked.forms if not form.refuted]


def form_words(form: Tried) -> str:
    """What became of a wrong form under the test."""
    name = "the statement as it is made" if form.name == AS_STATED else f"wrong form '{form.name}'"
    if form.evidence is None:
        return f"{name}: the check raised {form.trouble}, which refutes nothing"
    against = next((one for one in form.evidence.findings if not one.holds), None)
    if against is None:
        return f"{name} passes the test"
    return f"{name}: refuted, {label(against.what)} {found(against)}, wanted {wanted(against.wanted)}"


def claim_parts(claim: Claim) -> list[tuple[str, str]]:
    """What a claim says, by name."""
    parts = [
        ("setting", claim.setting),
        ("conditions", claim.conditions),
        ("right is", claim.correction),
        ("note", claim.note),
    ]
    return [(name, text) for name, text in parts if text]


def method_words(method: str) -> str:
    return METHODS.get(method, method)


def as_text(step: str) -> str:
    """A step of a derivation is mathematics, unless it is a sentence with some in it."""
    return step if "$" in step else f"${step}$"


def summary(checks: Checks) -> str:
    word = "claim" if len(checks) == 1 else "claims"
    good = len(checks) - len(checks.failed)
    return f"{good:,} of {len(checks):,} {word} reproduced with seed {checks.seed} in {checks.seconds:.1f} s"
