"""What `cost --scaling` says: rows, sentences and reasons, from values and intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from seqlab.core.units import human_bytes
from seqlab.diagnostics.scaling import NEAR, Grid, Growth

SYMBOLS = {"length": "n", "width": "d", "heads": "N"}
WHATS = {"forward": "forward, time", "training": "step, time", "bytes": "step, bytes"}
LAYERS = {"random_features": "random features", "block": "Transformer block"}
SHORT = {
    "constant": "differs: overhead",
    "caches": "differs: beyond the cache",
    "uncounted": "differs: work not counted",
    "brief": "differs: held for a moment",
}
HEADER = ["layer", "against", "what", "sizes", "exponent", "95 % interval", "formula", "tends to", "verdict"]
NOTES = (
    "Exponent: slope of ln cost over ln size through the medians; its interval is Student's t over the rounds. Step: "
    "forward and backward. Bytes are the peak of a step beside weights and inputs, as torch allocates them, and the "
    "same each time. Formula: the slope of the counted operations (of bytes: what is kept for the backward pass and "
    "the gradients) on the same sizes; tends to: its largest power. It agrees if the interval, "
    f"{NEAR:g} wider on both sides, holds the formula's exponent"
)


def layer_name(layer: str) -> str:
    return LAYERS.get(layer, layer)


def row(growth: Growth) -> list[str]:
    return [
        *(layer_name(growth.layer), growth.axis, WHATS[growth.what], f"{growth.sizes[0]:,} to {growth.sizes[-1]:,}"),
        *(figure(growth.exponent.value), interval(growth) or "–", figure(growth.formula)),
        *(f"{SYMBOLS[growth.axis]}^{growth.tendency.exponent}", verdict(growth)),
    ]


def figure(exponent: float) -> str:
    """Two places, and no minus before a zero."""
    return f"{round(exponent, 2) + 0.0:.2f}"


def interval(growth: Growth) -> str | None:
    low, high = growth.exponent.low, growth.exponent.high
    return None if low is None or high is None else f"{figure(low)} to {figure(high)}"


def verdict(growth: Growth) -> str:
    reason = growth.reason
    return growth.word if reason is None else SHORT[reason]


def notes(left_out: Sequence[Grid]) -> str:
    """With the sizes that would not have fitted into memory."""
    lines = [NOTES]
    for grid in left_out:
        sizes = ", ".join(f"{size:,}" for size in grid.left_out)
        left = "" if len(grid.shapes) >= 3 else "; too few are left to measure"
        lines.append(f"{layer_name(grid.base.kind)}, {grid.axis} {sizes}: left out, too large for the memory{left}")
    return ". ".join(lines)


# --------------------------------------------------------------------------- sentences


def answer(growths: Sequence[Growth]) -> list[str]:
    """How many agree, how steps grow with each size, and why what differs does."""
    count = Counter(growth.word for growth in growths)
    said = [
        f"{count['agrees']} of {len(growths)} measured exponents agree with the formula's on the same sizes, "
        f"{count['differs']} differ, {count['undecided']} are undecided."
    ]
    for axis in dict.fromkeys(growth.axis for growth in growths):
        own = [growth for growth in growths if growth.axis == axis]
        for what, words in (("training", "time of a step"), ("bytes", "memory of a step")):
            listed = ", ".join(_briefly(growth) for growth in own if growth.what == what)
            said.append(f"Against {axis} {SYMBOLS[axis]}, {words}: {listed}.")
    return said


def _briefly(growth: Growth) -> str:
    symbol = SYMBOLS[growth.axis]
    return f"{layer_name(growth.layer)} {symbol}^{figure(growth.exponent.value)} (formula {figure(growth.formula)})"


def why(growth: Growth) -> str:
    """The verdict with the figures that decided it."""
    what = f"{layer_name(growth.layer)}, {growth.axis}, {WHATS[growth.what]}"
    found = figure(growth.exponent.value) + (f" ({interval(growth)})" if growth.what != "bytes" else "")
    said = f"{what}: {found}, formula {figure(growth.formula)}: {growth.word}."
    if growth.word == "undecided":
        return f"{said} The rounds are too far apart; more --rounds on a quiet machine would decide it."
    return said if growth.reason is None else f"{said} {_reason(growth)}"


def _reason(growth: Growth) -> str:
    first, last, times = f"{growth.sizes[0]:,}", f"{growth.sizes[-1]:,}", growth.relative
    small, large = human_bytes(growth.peaks[0]), human_bytes(growth.peaks[-1])
    measured, formula = growth.at_last
    near = "they agree" if abs(measured - formula) <= NEAR else "still apart"
    ends = f" Between the two largest sizes the exponents are {figure(measured)} and {figure(formula)}: {near}."
    return {
        "constant": (
            f"An operation takes {1 / times:.1f} times as long at {first} as at {last}: probably what does not grow, "
            "the overhead of calls and of small products, weighs more there." + ends
        ),
        "caches": (
            f"An operation takes {times:.1f} times as long at {last} as at {first}, and a step's {large} no longer "
            f"fit into the cache ({human_bytes(growth.cache or 0)}), as {small} did: probably that." + ends
        ),
        "uncounted": (
            f"An operation takes {times:.1f} times as long at {last} as at {first}: probably work beside the counted "
            "products (softmax, copies, narrower products) grows faster than they do." + ends
        ),
        "brief": (
            f"The peak is {growth.measured[0] / growth.counted[0]:.2f} times what is kept at {first} and "
            f"{growth.measured[-1] / growth.counted[-1]:.2f} times at {last}: results are held for a moment, and "
            "what was kept is freed before the last gradients come." + ends
        ),
    }[growth.reason or ""]
