"""What the error analysis found, in sentences: the page has them, and the terminal in a few lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from seqlab.evaluation.causes import LONGEST, Causes
from seqlab.evaluation.challenge import ChallengeResult
from seqlab.evaluation.edits import MEANINGS
from seqlab.workflows.classify.errors import ErrorAnalysis
from seqlab.workflows.classify.measure import Measured

CONFUSIONS = 3  # that are named


def findings(errors: ErrorAnalysis, labels: Sequence[str]) -> list[str]:
    """How many are wrong and which, whether its confidence can be trusted, and why they are wrong."""
    causes, challenge = errors.causes, challenge_sentence(errors.challenge)
    return [
        errors_sentence(errors.measured, labels),
        calibration_sentence(errors.measured),
        causes_sentence(causes),
        *(_effect(causes, kind) for kind in causes.telling),
        shuffled_sentence(causes),
        *([f"Challenge set: {challenge}"] if challenge else []),
    ]


def errors_sentence(measured: Measured, labels: Sequence[str]) -> str:
    rate = measured.figures.accuracy
    wrong = ~measured.right
    share = f"{100 * (1 - rate.value):.1f} % ({100 * (1 - rate.high):.1f} to {100 * (1 - rate.low):.1f} %)"
    said = f"{int(wrong.sum()):,} of {rate.n:,} {measured.part} texts are decided wrongly: {share}."
    pairs = Counter(zip(measured.truth[wrong].tolist(), measured.logits.argmax(1)[wrong].tolist(), strict=True))
    most = sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))[:CONFUSIONS]
    named = ", ".join(f"{labels[true]} taken for {labels[chosen]} ({count:,})" for (true, chosen), count in most)
    return f"{said} Most often: {named}." if named else said


def calibration_sentence(measured: Measured) -> str:
    return (
        f"Expected calibration error: {measured.before.ece:.4f} as trained, {measured.after.ece:.4f} with the logits "
        f"divided by {measured.temperature:.3f}, the temperature that fits the validation texts best; predictions "
        "use it."
    )


def _effect(causes: Causes, kind: str) -> str:
    (mended, tried), (upset, controls) = (causes.counts[kind], causes.applicable[kind]), causes.base_rates[kind]
    return (
        f"  {kind} ({MEANINGS[kind]}): mends {mended:,} of {tried:,} errors, upsets {upset:,} of {controls:,} right "
        f"decisions, {excess(*causes.excess(kind))}"
    )


def causes_sentence(causes: Causes) -> str:
    examined = len(causes.examined)
    if not causes.errors:
        return "There is no error to examine."
    which = f"All {causes.errors:,} errors were examined"
    if examined < causes.errors:
        which = f"Of {causes.errors:,} errors {examined:,}, drawn at random from texts up to {LONGEST:,} characters, "
        which += "were examined"
    supported = f"{examined - causes.none:,} have a cause that a test on the model supports"
    telling = (
        f"Mended more often than luck explains: {', '.join(causes.telling)}."
        if causes.telling
        else (
            "No kind of edit mends errors more often than it upsets right decisions: none of them explains the errors."
        )
    )
    return f"{which}: {supported}, {causes.none:,} have none. {telling}"


def excess(value: float, low: float, high: float) -> str:
    if value != value:
        return "–"
    luck = "" if low > 0 or high < 0 else ": could be luck"
    return f"{100 * value:+.0f} % ({100 * low:+.0f} to {100 * high:+.0f}){luck}"


def shuffled_sentence(causes: Causes) -> str:
    changed, tried = causes.shuffled
    return f"Shuffling the words changed the decision in {changed:,} of {tried:,} texts."


def challenge_sentence(found: ChallengeResult | None) -> str:
    if found is None:
        return ""
    total = found.total
    return (
        f"Of {total.pairs:,} pairs both texts are right in {total.pairs_right:,} "
        f"({percent(total.pairs_right, total.pairs)}); in {total.unchanged:,} the decision does not change at all, "
        "though the sense does."
    )


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "–"
