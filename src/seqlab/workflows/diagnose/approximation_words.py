"""What `diagnose approximation` says: sentences and tables, from values and intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqlab.diagnostics.approximation import DIRECTIONS, Error
from seqlab.diagnostics.attention_maps import Change
from seqlab.diagnostics.kernel_variance import SAMPLE, most_measurable

MOSTLY = 0.5  # the share of pairs from which on a sentence speaks of them
NOTES = (
    "Mean total variation: the share of attention that goes to wrong keys, 0 to 1, ± half of its 95 % interval over "
    "sequences; * beats uniform attention, by the interval of paired differences, each for itself"
)
VARIANCE_NOTES = (
    "Variance of the estimate of e^{qᵀk}, relative to its square. Theory: (e^{‖q+k‖²} − 1)/m for independent "
    "directions, (e^x − 1)/m − s(1 − e^{−x} ₁F₁(d; d/2; x/2)) for orthogonal ones, x = ‖q+k‖², s the share of "
    "pairs of directions that are orthogonal; q and k are divided by d^{1/4}. Measured where ‖q+k‖² is at most "
    f"{most_measurable():.2f}: beyond, a sample of {SAMPLE:,} directions says nothing of a variance"
)
VARIANCE_HEADER = ["case", "directions", "m", "pairs", "theory", "measured", "ratio", "95 % interval", "agrees"]


def header(found: Any) -> list[str]:
    features = [f"m = {error.method.features}" for error in _by_kind(found.cases[0])[0][1]]
    named, scale = (["head", "layer"], ["logit scale"]) if found.of_run else (["d", "logit scale"], [])
    return [*named, "directions", *scale, "‖q+k‖²", "uniform", "separable", *features, "beats uniform"]


def rows(found: Any) -> list[list[str]]:
    """One for each case and kind of directions."""
    return [row for case in found.cases for row in _rows(case)]


def _rows(case: Any) -> list[list[str]]:
    one, found = case.found, []
    drawn = case.scale is not None
    named = [str(case.width), f"{case.scale:g}"] if drawn else [case.number, case.group]
    scale = [] if drawn else [f"{one.logit_scale:.2f}"]
    for orthogonal, errors in _by_kind(case):
        first = one.beats_from(orthogonal)
        found.append(
            [
                *(*named, DIRECTIONS[orthogonal], *scale, f"{float(one.pairs.norms.median()):.1f}"),
                *(_figure(one.uniform), _figure(one.separable), *map(_figure, errors)),
                "never" if first is None else f"from m = {first.method.features}",
            ]
        )
    return found


def _by_kind(case: Any) -> list[tuple[bool, list[Error]]]:
    kinds = dict.fromkeys(error.method.orthogonal for error in case.found.random)
    return [(kind, case.found.of(kind)) for kind in kinds]


def _figure(error: Error) -> str:
    half = error.variation.high - error.variation.mean
    return f"{error.variation.mean:.3f} ±{half:.3f}{'*' if error.word == 'better' else ' '}"


def variance_rows(found: Any, *, briefly: bool = False) -> list[list[str]]:
    """One for each case with a pair that can be measured, m and kind of directions.

    Briefly: of each width or layer only the case with most such pairs.
    """
    cases = [case for case in found.cases if case.variances]
    if briefly:
        most = {case.group: case for case in sorted(cases, key=lambda case: case.variances[0].share)}
        cases = [case for case in cases if most[case.group] is case]
    return [
        [
            *(case.number, DIRECTIONS[v.orthogonal], str(v.features), str(v.pairs), f"{v.theory:.4g}"),
            *(f"{v.measured:.4g}", f"{v.ratio.mean:.3f}", f"{v.ratio.low:.3f} to {v.ratio.high:.3f}"),
            "yes" if v.agrees else "NO",
        ]
        for case in cases
        for v in case.variances
    ]


def variance_sentence(found: Any) -> str:
    """How many pairs were left out of the measurement of the variance, and whether theory and measurement agree."""
    measured = [case for case in found.cases if case.variances]
    shares = [case.variances[0].share for case in measured] + [0.0] * (len(found.cases) - len(measured))
    left = 100 * (1 - sum(shares) / len(shares))
    said = (
        f"The variance of the kernel was measured on pairs with ‖q+k‖² ≤ {most_measurable():.2f}; {left:.0f} % of all "
        "pairs lie beyond and were left out, because no sample shows their variance"
    )
    if not measured:
        return f"{said}: here nothing can be measured of it."
    figures = [variance for case in measured for variance in case.variances]
    agreeing = sum(variance.agrees for variance in figures)
    return f"{said}. Theory and measurement agree in {agreeing} of {len(figures)} figures."


# --------------------------------------------------------------------------- sentences


def sentence(case: Any) -> str:
    """Whether the approximations are worth anything here."""
    one = case.found
    said = f"{case.number}: " if case.scale is not None else f"Head {case.number} ({case.group}): "
    if one.even:
        return f"{said}softmax attention is itself uniform here, so that nothing can beat uniform attention."
    said += f"{_random(one)}; {_separable(one)}."
    said += _output(one)
    most = one.largest.method.features
    share = one.pairs.unresolved(most)
    if share >= MOSTLY:
        said += f" ‖q+k‖² > ln m for {100 * share:.0f} % of the pairs even with m = {most}: these are not resolved."
    return said


def _random(one: Any) -> str:
    uniform = f"uniform attention by {one.uniform.variation.mean:.3f}"
    first = one.beating
    if first is not None:
        where = f"({DIRECTIONS[first.method.orthogonal]})"
        return (
            f"random features {where} beat uniform attention from m = {first.method.features} on, where they miss by "
            f"{_interval(first.variation)}, {uniform}"
        )
    last = one.largest
    verdict = "worth nothing here" if last.word == "worse" else "no settled difference: not shown to be worth anything"
    return (
        f"random features with m = {last.method.features} ({DIRECTIONS[last.method.orthogonal]}) miss by "
        f"{_interval(last.variation)}, {uniform}: {verdict}"
    )


def _output(one: Any) -> str:
    """What becomes of it in the output, where there are values: nearer weights need not mix nearer values."""
    last = one.largest
    if last.output is None:
        return ""
    verdict = {"better": "better", "worse": "worth nothing there", "undecided": "no settled difference"}
    return (
        f" In the output random features with m = {last.method.features} miss by {_interval(last.output)}, uniform "
        f"attention by {one.uniform.output.mean:.3f}: {verdict[last.output_word]}."
    )


def _separable(one: Any) -> str:
    verdict = {
        "better": "which beats it",
        "worse": "worth nothing here either" if one.beating is None else "worth nothing here",
        "undecided": "no settled difference",
    }[one.separable.word]
    return f"separable attention misses by {_interval(one.separable.variation)}, {verdict}"


def _interval(found: Change) -> str:
    return f"{found.mean:.3f} ({found.low:.3f} to {found.high:.3f})"


def answer(cases: Sequence[Any], *, of_run: bool) -> str:
    """In how many heads, or cases, anything beats uniform attention, and how far from softmax the best still is."""
    what = "heads" if of_run else "cases"
    most = max(error.method.features for error in cases[0].found.random)
    useful = [case for case in cases if case.found.beating is not None]
    apart = [case for case in cases if case.found.separable.word == "better" and not case.found.even]
    random = f"Random features with m up to {most} beat uniform attention {_count(useful, len(cases), what)}"
    misses = sorted(case.found.largest.variation.mean for case in cases)
    even = sorted(case.found.uniform.variation.mean for case in cases)
    return (
        f"{random}, separable attention {_count(apart, len(cases), what)}. Random features with m = {most} still miss "
        f"by {_span(misses)}, uniform attention by {_span(even)}.{_mixed(cases, what)}"
    )


def _mixed(cases: Sequence[Any], what: str) -> str:
    """The same count for the output, at the largest m."""
    if any(case.found.uniform.output is None for case in cases):
        return ""
    last, separable = ([getattr(case.found, name) for case in cases] for name in ("largest", "separable"))
    useful, apart = ([e for e in some if e.output_word == "better"] for some in (last, separable))
    return (
        f" In the output they beat it {_count(useful, len(cases), what)}, separable attention "
        f"{_count(apart, len(cases), what)}."
    )


def _span(ordered: Sequence[float]) -> str:
    return f"{ordered[0]:.3f}" if len(ordered) == 1 else f"{ordered[0]:.3f} to {ordered[-1]:.3f}"


def _count(found: Sequence[Any], total: int, what: str) -> str:
    return f"in {len(found) or 'none'} of {total} {what}"
