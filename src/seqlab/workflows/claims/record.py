"""Evidence as plain values, and back: what JSON holds and what travels between processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqlab.theory.ledger import Claim, Evidence, Finding


@dataclass(frozen=True)
class Tried:
    """A wrong form under the test of its claim. An error is no refutation."""

    name: str
    evidence: Evidence | None
    trouble: str = ""

    @property
    def refuted(self) -> bool:
        return self.evidence is not None and not self.evidence.holds


@dataclass(frozen=True)
class Checked:
    """A claim and what its check found; there is no evidence where the test raised an error."""

    claim: Claim
    evidence: Evidence | None
    trouble: str = ""  # the error
    forms: tuple[Tried, ...] = ()  # the wrong forms, where they were tried too

    @property
    def holds(self) -> bool:
        """The verdict was reproduced, and no wrong form passed."""
        return self.evidence is not None and self.evidence.holds and all(form.refuted for form in self.forms)

    @property
    def seconds(self) -> float:
        return 0.0 if self.evidence is None else self.evidence.seconds

    @property
    def findings(self) -> tuple[Finding, ...]:
        return () if self.evidence is None else self.evidence.findings

    @property
    def counterexample(self) -> str:
        """Found by the test of the right form, else by that of the statement as it is made."""
        both = (self.evidence, self.evidence.stated) if self.evidence else ()
        return next((one.counterexample for one in both if one and one.counterexample), "")

    @property
    def id(self) -> str:
        return self.claim.id

    @property
    def verdict(self) -> str:
        return self.claim.verdict

    @property
    def method(self) -> str:
        return self.claim.method

    def as_json(self) -> dict[str, Any]:
        names = ("id", "subject", "verdict", "method")
        found = {name: getattr(self.claim, name) for name in names} | {"holds": self.holds, "seconds": self.seconds}
        found |= evidence_record(self.evidence) if self.evidence else {"findings": []}
        if self.forms:
            found["wrong"] = [{"form": form.name, "refuted": form.refuted, **_outcome(form)} for form in self.forms]
        return found | ({"error": self.trouble} if self.trouble else {})


def _outcome(form: Tried) -> dict[str, Any]:
    if form.evidence is None:
        return {"error": form.trouble}
    return {"findings": [_finding_record(finding) for finding in form.evidence.findings]}


def claim_record(claim: Claim) -> dict[str, Any]:
    """The claim itself, without evidence."""
    names = ("id", "subject", "verdict", "method", "statement", "setting", "conditions", "correction", "note")
    return {name: getattr(claim, name) for name in names} | {"about": list(claim.about), "wrong": list(claim.wrong)}


def evidence_record(evidence: Evidence) -> dict[str, Any]:
    """Limits that there are not are infinite: None in JSON."""
    return {
        "findings": [_finding_record(finding) for finding in evidence.findings],
        "steps": list(evidence.steps),
        "counterexample": evidence.counterexample,
        "stated": None if evidence.stated is None else evidence_record(evidence.stated),
    }


def _finding_record(finding: Finding) -> dict[str, Any]:
    interval = None if finding.interval is None else list(finding.interval)
    return {
        "what": finding.what,
        "value": finding.value,
        "wanted": list(finding.wanted),
        "interval": interval,
        "holds": finding.holds,
    }


# --------------------------------------------------------------------------- between processes


def packed(checked: Checked) -> dict[str, Any]:
    """Everything but the claim itself, which each process has; Python's JSON keeps every bit of a number."""
    return {
        "evidence": _packed_evidence(checked.evidence),
        "trouble": checked.trouble,
        "seconds": checked.seconds,
        "forms": [[form.name, _packed_evidence(form.evidence), form.trouble] for form in checked.forms],
    }


def unpacked(claim: Claim, values: Mapping[str, Any]) -> Checked:
    evidence = _unpacked_evidence(values["evidence"], claim.method, values["seconds"])
    forms = tuple(Tried(name, _unpacked_evidence(found), trouble) for name, found, trouble in values["forms"])
    return Checked(claim, evidence, values["trouble"], forms)


def _packed_evidence(evidence: Evidence | None) -> dict[str, Any] | None:
    return None if evidence is None else evidence_record(evidence)


def _unpacked_evidence(values: Mapping[str, Any] | None, method: str = "", seconds: float = 0.0) -> Evidence | None:
    if values is None:
        return None
    stated = _unpacked_evidence(values["stated"])
    findings, steps = _findings(values["findings"]), tuple(values["steps"])
    return Evidence(findings, steps, values["counterexample"], method, seconds, stated)


def _findings(values: Sequence[Mapping[str, Any]]) -> tuple[Finding, ...]:
    return tuple(
        Finding(one["what"], one["value"], _pair(one["wanted"]), one["interval"] and _pair(one["interval"]))
        for one in values
    )


def _pair(ends: Sequence[float]) -> tuple[float, float]:
    low, high = ends
    return low, high
