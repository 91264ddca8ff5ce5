"""What `cost --crossover` says: rows and sentences, from values and intervals."""

from __future__ import annotations

from collections.abc import Sequence

from seqlab.diagnostics.crossover import LONGEST, NEVER, START, Crossover

WHATS = {"forward": "forward", "training": "training", "bytes": "memory"}
KINDS = {"softmax": "softmax", "separable": "separable", "random_features": "random features"}
NOTES = (
    "From n =: the least length from which on the linear kind needs less than softmax attention at all lengths, "
    "between two measured ones on the line through both (logarithms); its interval is of medians over rounds drawn "
    "anew. Training: forward and backward. Memory: the peak of a training step beside weights and inputs. Counted: the "
    "same of the formulas, in operations, or in bytes that are kept and gradients"
)


def header(longest: int) -> list[str]:
    return ["what", "attention", "kind", "less from n =", "95 % interval", "counted, from n =", f"at n = {longest:,}"]


def row(one: Crossover) -> list[str]:
    first, last = one.linear.lengths[0], one.linear.lengths[-1]
    return [
        *(WHATS[one.what], attention(one.causal), KINDS[one.kind], place(one.length, last)),
        *(interval(one, first, last) or "–", counted_place(one), f"{one.ratios[-1]:.2f} × softmax"),
    ]


def attention(causal: bool) -> str:
    return "causal" if causal else "all positions"


def verdict(length: float) -> str:
    """start, never (as far as was looked) or crosses."""
    return {START: "start", NEVER: "never"}.get(length, "crosses")


def place(length: float, last: int) -> str:
    words = {START: "the start", NEVER: f"not before {last:,}"}
    return words.get(length, f"{length:,.0f}")


def counted_place(one: Crossover) -> str:
    return place(one.counted, LONGEST) if one.counted != START else "1"


def interval(one: Crossover, first: int, last: int) -> str | None:
    """Its ends may lie outside the lengths that were measured."""
    if one.interval is None:
        return None
    low, high = (
        f"below {first:,}" if end == START else f"above {last:,}" if end == NEVER else f"{end:,.0f}"
        for end in one.interval
    )
    return low if low == high else f"{low} to {high}"


def notes(left_out: Sequence[int]) -> str:
    if not left_out:
        return NOTES
    return f"{NOTES}. Left out, too large for the memory: n = {', '.join(f'{length:,}' for length in left_out)}"


# --------------------------------------------------------------------------- sentences


def answer(found: Sequence[Crossover]) -> list[str]:
    """One for each quantity, causal and not."""
    places = dict.fromkeys((one.what, one.causal) for one in found)
    return [_sentence([one for one in found if (one.what, one.causal) == place]) for place in places]


def _sentence(kinds: Sequence[Crossover]) -> str:
    what, attended = WHATS[kinds[0].what].capitalize(), attention(kinds[0].causal)
    return f"{what}, {attended}: " + "; ".join(_clause(one) for one in kinds) + "."


def _clause(one: Crossover) -> str:
    """One linear kind beside softmax."""
    name, first, last = KINDS[one.kind], one.linear.lengths[0], one.linear.lengths[-1]
    less, ratio = "less memory" if one.what == "bytes" else "faster", one.ratios[-1]
    end = f"{ratio:.2f} times softmax's at n = {last:,}"
    spread = interval(one, first, last)
    shown = "" if spread is None else f" ({spread})"
    if one.length == NEVER:
        return f"{name} not before n = {last:,}{shown}, {end}"
    if one.length == START:
        return f"{name} {less} from the start, n = {first:,}{shown}, {end}"
    return f"{name} {less} from n = {one.length:,.0f} on{shown}, counted from n = {counted_place(one)}, {end}"
