"""The page of checked claims. Every number on it is of that check."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from markupsafe import Markup

import seqlab
from seqlab.core.files import write_text
from seqlab.core.units import human_seconds
from seqlab.pages.claims_charts import Simulated, intervals_picture, verdicts_picture
from seqlab.pages.mathematics import line_of_mathematics, with_mathematics
from seqlab.pages.render import embedded, render
from seqlab.theory.ledger import METHODS, Finding
from seqlab.workflows.claims import words
from seqlab.workflows.claims.check import Checks
from seqlab.workflows.claims.plain_mathematics import label
from seqlab.workflows.claims.record import Checked

BESIDE = ("torch", "numpy", "sympy", "mpmath")  # what a check computes with
MOST_INTERVALS = 80  # in one picture


def write_report(checks: Checks, out: str | Path) -> None:
    write_text(out, report_page(checks))


def report_page(checks: Checks) -> str:
    by_subject = _grouped(checks, lambda one: one.claim.subject)
    header, rows = _contents(by_subject)
    return render(
        "claims.html.j2",
        title="Claims about sequence models, checked",
        basis=_basis(checks),
        headline=_headline(checks),
        failed=[one.id for one in checks.failed],
        table_header=header,
        table_rows=rows,
        pictures=_pictures(checks),
        indexes=_indexes(checks),
        subjects=[(words.title(name), _anchor(name), [_card(one) for one in own]) for name, own in by_subject.items()],
    )


def _basis(checks: Checks) -> str:
    versions = [f"seqlab {seqlab.__version__}", *(f"{name} {version(name)}" for name in BESIDE)]
    return (
        f"Checked by seqlab with seed {checks.seed} in {human_seconds(checks.seconds)}; "
        f"{', '.join(versions)}, Python {platform.python_version()}"
    )


def _headline(checks: Checks) -> list[tuple[str, str]]:
    counts = Counter(one.verdict for one in checks)
    reproduced = f"{len(checks) - len(checks.failed)} of {len(checks)}"
    forms = [form for one in checks for form in one.forms]
    refuted = f"{sum(form.refuted for form in forms)} of {len(forms)}"
    return [
        (reproduced, "verdicts reproduced"),
        (refuted, "wrong forms refuted by the same tests"),
        *((str(counts[verdict]), said) for verdict, said in words.VERDICTS.items() if counts[verdict]),
    ]


def _grouped(checks: Checks, key: Callable[[Checked], str]) -> dict[str, list[Checked]]:
    groups: dict[str, list[Checked]] = {}
    for one in checks:
        groups.setdefault(key(one), []).append(one)
    return groups


def _contents(by_subject: dict[str, list[Checked]]) -> tuple[list[str], list[tuple[str, str, list[int]]]]:
    """Subject by verdict, and the sums."""
    rows = [(words.title(name), _anchor(name), _counted(own)) for name, own in by_subject.items()]
    everything = [one for own in by_subject.values() for one in own]
    header = ["subject", *words.VERDICTS.values(), "all", "not reproduced"]
    return header, [*rows, ("all", "", _counted(everything))]


def _counted(own: Sequence[Checked]) -> list[int]:
    verdicts = Counter(one.verdict for one in own)
    return [*(verdicts[name] for name in words.VERDICTS), len(own), sum(not one.holds for one in own)]


def _indexes(checks: Checks) -> list[tuple[str, list[tuple[str, list[str]]]]]:
    verdicts = _grouped(checks, lambda one: words.VERDICTS[one.verdict])
    methods = _grouped(checks, lambda one: one.method)
    ordered = {words.method_words(name): methods[name] for name in METHODS if name in methods}
    return [
        (name, [(word, [one.id for one in own]) for word, own in groups.items()])
        for name, groups in (("verdict", verdicts), ("kind of proof", ordered))
    ]


def _pictures(checks: Checks) -> list[tuple[str, str, str]]:
    groups = _grouped(checks, lambda one: one.method)
    counts = {
        words.method_words(name): {
            said: sum(one.verdict == verdict for one in groups[name]) for verdict, said in words.VERDICTS.items()
        }
        for name in METHODS
        if name in groups
    }
    alt = "Bars: how many claims of each verdict were shown by each kind of proof"
    pictures = [("Verdicts by kind of proof", alt, embedded(verdicts_picture(counts)))]
    simulated = _simulated(checks)[:MOST_INTERVALS]
    if simulated:
        alt = "The interval of every simulated figure around the value that it must have"
        pictures.append(("Simulated figures", alt, embedded(intervals_picture(simulated))))
    return pictures


def _simulated(checks: Checks) -> list[Simulated]:
    return [
        Simulated(f"{one.id} {number}" if len(one.findings) > 1 else one.id, f.value, f.interval, f.wanted)
        for one in checks
        for number, f in enumerate(one.findings, start=1)
        if f.interval is not None
    ]


def _card(one: Checked) -> dict[str, Any]:
    claim, evidence = one.claim, one.evidence
    texts = {
        name: with_mathematics(getattr(claim, name))
        for name in ("statement", "setting", "conditions", "correction", "note")
    }
    stated = evidence.stated.findings if evidence and evidence.stated else ()
    return texts | {
        "id": one.id,
        "verdict": one.verdict,
        "verdict_words": words.VERDICTS[one.verdict],
        "method": words.method_words(one.method),
        "holds": one.holds,
        "outcome": words.outcome(one),
        "findings": _rows(one.findings),
        "stated": _rows(stated),
        "counterexample": with_mathematics(one.counterexample),
        "steps": [line_of_mathematics(step) for step in (evidence.steps if evidence else ())],
        "forms": [words.form_words(form) for form in one.forms],
        "about": [_with_breaks(place) for place in claim.about],
    }


def _with_breaks(place: str) -> Markup:
    """A long name may go on in another line after a point."""
    return Markup("<wbr>").join(re.split(r"(?<=[.:])", place))


def _rows(findings: Sequence[Finding]) -> list[tuple[bool, Any, str, str, str]]:
    return [
        (f.holds, _name(f.what), words.number(f.value), words.interval(f), words.wanted(f.wanted)) for f in findings
    ]


def _name(what: str) -> Any:
    return with_mathematics(what) if "$" in what else label(what)


def _anchor(subject: str) -> str:
    return f"subject-{subject.replace(' ', '-')}"
