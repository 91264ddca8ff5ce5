"""Claims are checked: here, or in several processes side by side, with the same evidence."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seqlab.core.reporting import Reporter
from seqlab.core.settings.claims import CheckSettings
from seqlab.core.settings.fields import check_group
from seqlab.theory.ledger import AS_STATED, Claim
from seqlab.training.determinism import using_threads
from seqlab.workflows.claims.choose import chosen, said
from seqlab.workflows.claims.processes import Question, answers
from seqlab.workflows.claims.record import Checked, Tried, unpacked
from seqlab.workflows.claims.request import Choice, check_choice


@dataclass(frozen=True)
class Checks:
    """What was found of every claim that was asked for, in their order."""

    claims: tuple[Checked, ...]
    seed: int
    seconds: float

    def __iter__(self) -> Iterator[Checked]:
        return iter(self.claims)

    def __len__(self) -> int:
        return len(self.claims)

    @property
    def failed(self) -> list[Checked]:
        return [checked for checked in self.claims if not checked.holds]

    @property
    def holds(self) -> bool:
        return not self.failed

    def as_json(self) -> dict[str, Any]:
        figures = {"seed": self.seed, "seconds": self.seconds, "reproduced": len(self) - len(self.failed)}
        return figures | {"claims": [checked.as_json() for checked in self.claims]}


def check_claims(
    ids: Sequence[str] | str | None = None,
    seed: int = 0,
    jobs: int = 1,
    *,
    subject: str | None = None,
    verdict: str | None = None,
    method: str | None = None,
    file: str | None = None,
    forms: bool = False,
    reporter: Reporter | None = None,
) -> Checks:
    """Check claims, all or those that are named: whether each verdict is reproduced, and by which figures.

    file    a Python file with claims of your own, which is run, in place of the project's
    forms   try every wrong form too: a test that one of them passes shows nothing
    jobs    processes side by side, each of one thread; the evidence does not depend on how many they are
    """
    check_group(CheckSettings(seed=seed, jobs=jobs))
    choice = Choice((ids,) if isinstance(ids, str) else tuple(ids or ()), subject, verdict, method, file)
    check_choice(choice)
    reporter = reporter or Reporter()
    if file is not None:
        reporter.note(f"running {file}: code that you chose")
    wanted = chosen(choice)
    begun = time.perf_counter()
    found = dict(_checked(wanted, Question(seed, forms, file), min(jobs, len(wanted)), reporter))
    return Checks(tuple(found[claim.id] for claim in wanted), seed, time.perf_counter() - begun)


def _checked(
    wanted: Sequence[Claim], question: Question, jobs: int, reporter: Reporter
) -> Iterator[tuple[str, Checked]]:
    """Every claim as it is done."""
    failed = 0
    with reporter.task("checking claims", total=len(wanted)):
        for done, checked in enumerate(_each(wanted, question, jobs), start=1):
            failed += not checked.holds
            reporter.advance(done, {"done": f"{done} of {len(wanted)}", "failed": f"{failed} not reproduced"})
            yield checked.id, checked


def _each(wanted: Sequence[Claim], question: Question, jobs: int) -> Iterator[Checked]:
    if jobs == 1:
        with using_threads(1):
            for claim in wanted:
                yield check_one(claim, question)
        return
    by_id = {claim.id: claim for claim in wanted}
    for id, values in answers(list(by_id), question, jobs):
        yield unpacked(by_id[id], values)


def check_one(claim: Claim, question: Question) -> Checked:
    """An error is a finding too: the verdict was not reproduced. What a test prints goes to standard error."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            found = claim.check(question.seed)
        except (Exception, SystemExit) as error:
            return Checked(claim, None, said(error))
        if not question.forms:
            return Checked(claim, found)
        stated = {AS_STATED: Tried(AS_STATED, found.stated)} if found.stated else {}
        forms = tuple(stated.get(name) or _try(claim, name, question.seed) for name in claim.wrong)
    return Checked(claim, found, forms=forms)


def _try(claim: Claim, name: str, seed: int) -> Tried:
    try:
        return Tried(name, claim.tried(name, seed))
    except (Exception, SystemExit) as error:
        return Tried(name, None, said(error))
