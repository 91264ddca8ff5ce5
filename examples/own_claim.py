"""Claims of your own: one file, checked like those that come with seqlab.

    seqlab claims check --file examples/own_claim.py
    seqlab claims report --file examples/own_claim.py --out my.html
    python examples/own_claim.py

A claim has a statement, a verdict and a test. The test gets a seed and a form: what the claim says, as something that
can be computed. The right form must pass it on every seed, and every wrong form must fail the same test, so that it is
no test that cannot fail. A false claim has the right statement as its correction, and its own as the wrong form
`AS_STATED`.
"""

from collections.abc import Callable

import sympy
import torch
from torch import Tensor

from seqlab.theory import Evidence, Ledger
from seqlab.theory.instances import normal, stream
from seqlab.theory.jacobians import error, gradient
from seqlab.theory.ledger import AS_STATED, at_least, at_most, evidence
from seqlab.theory.sampling import draws_for, mean_of, meets
from seqlab.theory.symbols import step, vanishes

ledger = Ledger()
claim = ledger.of("softplus")

x = sympy.symbols("x", real=True)
SOFTPLUS = sympy.log(1 + sympy.exp(x))


# A proof: both sides are equal as expressions.
@claim(
    "softplus.derivative",
    statement=r"The derivative of $\log(1 + e^x)$ is $\sigma(x)$.",
    verdict="true",
    method="symbolic",
    right=1 / (1 + sympy.exp(-x)),
    wrong={"the sign of x is lost": 1 / (1 + sympy.exp(x)), "tanh in place of the sigmoid": sympy.tanh(x)},
)
def derivative(seed: int, form: sympy.Expr) -> Evidence:
    found = sympy.diff(SOFTPLUS, x)
    return evidence(
        vanishes("derivative minus what is claimed", found - form), steps=[step(r"\frac{d}{dx} \log(1 + e^x)", found)]
    )


# A refutation: the statement as it is made fails the test that the right one passes.
@claim(
    "softplus.bound",
    statement=r"$\log(1 + e^x) \le \max(0, x)$.",
    correction=r"$\max(0, x) < \log(1 + e^x) \le \max(0, x) + \log 2$; the gap is $\log 2$ at $x = 0$.",
    verdict="false",
    method="counterexample",
    right=0.6931471805599453,
    wrong={AS_STATED: 0.0, "half of it": 0.35},
)
def bound(seed: int, gap: float) -> Evidence:
    points = torch.cat([torch.zeros(1, dtype=torch.float64), normal(stream(seed, "softplus.bound"), 999, scale=3.0)])
    over = torch.nn.functional.softplus(points) - points.clamp(min=0)
    return evidence(
        at_most("largest excess over max(0, x) and the gap", (over - gap).clamp(min=0).max(), 1e-12),
        at_least("smallest excess over max(0, x)", over.min(), 0.0),
        counterexample=rf"$x = 0$: $\log(1 + e^0) = {over[0]:.4f} > 0$.",
    )


# An identity on random instances, by autograd.
@claim(
    "softplus.reflection",
    statement=r"With $s(x) = \log(1 + e^x)$: $s(x) - s(-x) = x$.",
    verdict="true",
    method="identity",
    right=lambda s, x: s(x) - s(-x),
    wrong={"a sum": lambda s, x: s(x) + s(-x)},
)
def reflection(seed: int, form: Callable[..., Tensor]) -> Evidence:
    points = normal(stream(seed, "softplus.reflection"), 50, scale=4.0)
    slope = gradient(lambda p: form(torch.nn.functional.softplus, p).sum(), points)
    return evidence(
        at_most("largest difference from x", error(form(torch.nn.functional.softplus, points), points), 1e-12),
        at_most("largest difference of its slope from 1", error(slope, torch.ones_like(slope)), 1e-12),
    )


# A figure by simulation: its interval holds the right constant, and enough draws refute the wrong one.
@claim(
    "softplus.half",
    statement=r"For $x \sim \mathcal{N}(0, 1)$: $\mathbb{E}[\sigma(x)] = \frac{1}{2}$.",
    verdict="true",
    method="sampling",
    right=0.5,
    wrong={"the value of the derivative at 0": 0.25},
)
def half(seed: int, constant: float) -> Evidence:
    draws = torch.sigmoid(normal(stream(seed, "softplus.half"), draws_for(deviation=0.21, gap=0.01)))
    return evidence(meets("mean of the sigmoid", mean_of(draws), constant))


if __name__ == "__main__":
    for one in ledger:
        found = one.check(seed=0)
        print(f"{one.id}: {one.verdict}, {'reproduced' if found.holds else 'NOT reproduced'} in {found.seconds:.2f} s")
