"""The ledger: claims as data, each with a test that a program runs.

A test is a function (seed, form) -> Evidence. The form is what the claim says, as something that can be computed: a
formula, a factor, a cell, a mask. The right form must pass. Every wrong form (the statement as it is commonly made, a
dropped factor, a swapped gate) must fail the same test, so that no test is one that cannot fail.

    @claim("sigmoid.derivative", statement=r"$\\sigma'(z) = \\sigma(z)(1-\\sigma(z))$", verdict="true",
           method="symbolic", right=lambda s: s * (1 - s), wrong={"a factor dropped": lambda s: 1 - s})
    def derivative(seed, form):
        return evidence(vanishes("difference", diff(sigma, z) - form(sigma)))

Of a false claim the right form is the corrected statement, and one of the wrong forms is the statement as it is made.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

SUBJECTS = (
    *("recurrence", "lstm", "gru", "attention", "scaling", "masks", "cost", "normalisation", "losses", "perplexity"),
    *("averaging", "optimisation", "linear_attention", "positions"),
)
VERDICTS = ("true", "conditional", "false", "empirical")
METHODS = {  # the strongest first
    "symbolic": "symbolic algebra",
    "interval": "interval arithmetic over a whole range",
    "exact": "exact algebra or counting",
    "identity": "float64 or autograd identity on random instances",
    "counterexample": "an explicit counterexample, checked",
    "exponent": "scaling exponent of counted operations",
    "sampling": "Monte Carlo with a confidence interval",
}
AS_STATED = "as stated"  # the wrong form that a false claim is refuted for

Limits = tuple[float, float]


@dataclass(frozen=True)
class Finding:
    """A figure, and what it must be.

    It holds if its interval (the figure itself, where it is exact) meets `wanted`; anything outside would have
    refuted the claim.
    """

    what: str
    value: float
    wanted: Limits
    interval: Limits | None = None  # of a sampled figure

    @property
    def holds(self) -> bool:
        low, high = self.interval or (self.value, self.value)
        return math.isfinite(low) and math.isfinite(high) and low <= self.wanted[1] and high >= self.wanted[0]


@dataclass(frozen=True)
class Evidence:
    """What a test found."""

    findings: tuple[Finding, ...]
    steps: tuple[str, ...] = ()  # of a derivation, LaTeX
    counterexample: str = ""  # the smallest that was found, in words with $LaTeX$
    method: str = ""
    seconds: float = 0.0
    stated: Evidence | None = None  # of a false claim: the same test on the statement as it is made

    @property
    def holds(self) -> bool:
        """The verdict was reproduced; of a false claim: the refutation stands."""
        return all(f.holds for f in self.findings) and (self.stated is None or not self.stated.holds)

    @property
    def figure(self) -> float:
        return self.findings[0].value

    @property
    def interval(self) -> Limits | None:
        return self.findings[0].interval


Test = Callable[[int, Any], Evidence]


@dataclass(frozen=True)
class Claim:
    """A statement with its verdict, and the test that reproduces it. Text has mathematics between dollar signs."""

    id: str
    subject: str
    statement: str
    verdict: str
    method: str
    test: Test = field(repr=False)
    right: Any = field(repr=False)
    wrong: Mapping[str, Any] = field(repr=False)
    conditions: str = ""  # of a conditional claim: when it is true
    correction: str = ""  # of a false claim: the right statement
    note: str = ""
    setting: str = ""  # what the symbols of the statement are, where it does not say so itself
    about: tuple[str, ...] = ()  # the project's own code that the test runs, as module:name

    def check(self, seed: int = 0) -> Evidence:
        begun = time.perf_counter()
        found = self._tested(seed, self.right)
        stated = self.tried(AS_STATED, seed) if self.verdict == "false" else None
        return replace(found, method=self.method, stated=stated, seconds=time.perf_counter() - begun)

    def tried(self, name: str, seed: int = 0) -> Evidence:
        """What the same test finds of one of the wrong forms."""
        return self._tested(seed, self.wrong[name])

    def rejects(self, name: str, seed: int = 0) -> bool:
        """Whether the test fails on one of the wrong forms, as it must."""
        return not self.tried(name, seed).holds

    def _tested(self, seed: int, form: Any) -> Evidence:
        """Layers draw first weights from torch's own generator: it is seeded for each test, and left as it was."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.test(seed, form)


# --------------------------------------------------------------------------- writing claims


def evidence(*findings: Finding, steps: Sequence[str] = (), counterexample: str = "") -> Evidence:
    if not findings:
        raise ValueError("evidence needs a finding")
    return Evidence(findings, tuple(steps), counterexample)


def at_most(what: str, value: Any, bound: float) -> Finding:
    """|value| ≤ bound; for errors and bounds."""
    return Finding(what, abs(float(value)), (0.0, bound))


def at_least(what: str, value: Any, bound: float) -> Finding:
    return Finding(what, float(value), (bound, math.inf))


def between(what: str, value: Any, low: float, high: float) -> Finding:
    return Finding(what, float(value), (low, high))


def exactly(what: str, value: Any, wanted: float) -> Finding:
    """Of counts and of exact algebra."""
    return Finding(what, float(value), (float(wanted), float(wanted)))


class Ledger:
    """Claims by their ids, in the order in which they are written."""

    def __init__(self) -> None:
        self._claims: dict[str, Claim] = {}

    def __iter__(self) -> Any:
        return iter(self._claims.values())

    def add(self, made: Claim) -> None:
        for problem, found in _problems(made, self._claims):
            if found:
                raise ValueError(f"claim {made.id}: {problem}")
        self._claims[made.id] = made

    def of(self, subject: str, setting: str = "") -> Callable[..., Callable[[Test], Test]]:
        """The decorator `claim` of one subject, and of one setting: a test becomes a claim of this ledger."""

        def claim(id: str, **said: Any) -> Callable[[Test], Test]:
            def entered(test: Test) -> Test:
                self.add(Claim(id=id, subject=subject, test=test, **{"setting": setting} | said))
                return test

            return entered

        return claim


def _problems(made: Claim, known: Mapping[str, Claim]) -> list[tuple[str, bool]]:
    """What makes a claim one that nobody could check."""
    return [
        ("its id is taken", made.id in known),
        (f"verdict '{made.verdict}' is none of {', '.join(VERDICTS)}", made.verdict not in VERDICTS),
        (f"method '{made.method}' is none of {', '.join(METHODS)}", made.method not in METHODS),
        ("it has no wrong form, so that its test may be one that cannot fail", not made.wrong),
        ("a conditional claim says its conditions", made.verdict == "conditional" and not made.conditions),
        ("a false claim says the right statement", made.verdict == "false" and not made.correction),
        (f"a false claim has the wrong form '{AS_STATED}'", made.verdict == "false" and AS_STATED not in made.wrong),
    ]


LEDGER = Ledger()


def claims() -> list[Claim]:
    """All of them, subject by subject."""
    for subject in SUBJECTS:
        import_module(f"seqlab.theory.{subject}")
    order = {subject: k for k, subject in enumerate(SUBJECTS)}
    return sorted(LEDGER, key=lambda claim: order.get(claim.subject, len(order)))
