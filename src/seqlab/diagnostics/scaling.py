"""How time and memory grow with one size, measured, beside what the formulas give on the same sizes.

    ln cost = a + e ln size        e by least squares: the exponent of a power law

Curves that are no power law (8nd² + 4n²d, even at n = 2d) have another exponent on every grid. So the formulas are
fitted on the grid too, and beside stands the exponent that they tend to.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import t as student

from seqlab.core.errors import UsageError
from seqlab.diagnostics.timed_layers import (
    RECURRENT,
    Case,
    Counted,
    Shape,
    Timer,
    counted,
    in_turns,
    terms_of,
    that_fit,
)

NEAR = 0.1  # exponents that differ by no more agree: 1.3 times over sizes that grow 16-fold
WIDE = 0.5  # half an interval from which on a measurement decides nothing
LEVEL = 0.95
MEDIAN = math.sqrt(math.pi / 2)  # how much wider a median strays than a mean
FAR = {"length": 1 << 16, "width": 1 << 12}  # sizes (of the width: for each head) where only the largest power counts
WHATS = ("forward", "training", "bytes")


# --------------------------------------------------------------------------- the fit


@dataclass(frozen=True)
class Exponent:
    """Of a power law; bytes are the same each time and have no interval."""

    value: float
    low: float | None = None
    high: float | None = None


def slope(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """e = Σ (x − x̄)(y − ȳ) / Σ (x − x̄)²,    x = ln size, y = ln cost"""
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


def medians(rounds: Sequence[Sequence[float]]) -> list[float]:
    """Of each size over the rounds."""
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def exponent_of(sizes: Sequence[float], rounds: Sequence[Sequence[float]]) -> Exponent:
    """The slope through the medians, with Student's interval from the slopes of the R rounds:

        e ± t_{R−1} · √(π/2) · s/√R        s the standard deviation of the rounds' slopes

    A round times every size once, so that rounds are independent of each other; s holds what the machine varies by.
    """
    slopes, count = [slope(sizes, costs) for costs in rounds], len(rounds)
    value = slope(sizes, medians(rounds))
    if count < 2:
        return Exponent(value, -math.inf, math.inf)
    spread = statistics.stdev(slopes) / math.sqrt(count)
    half = float(student.ppf((1 + LEVEL) / 2, count - 1)) * MEDIAN * spread
    return Exponent(value, value - half, value + half)


# --------------------------------------------------------------------------- what is found


@dataclass(frozen=True)
class Tendency:
    """The largest exponent of any term of a formula, and the parts whose terms have it."""

    exponent: int
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Growth:
    """How one quantity of one layer grows with one size."""

    layer: str
    axis: str  # length, width, heads
    what: str  # forward, training (seconds), bytes (peak of a step)
    sizes: list[int]
    measured: list[float]  # medians
    counted: list[float]  # operations, or bytes that are kept
    exponent: Exponent
    tendency: Tendency
    peaks: list[float]  # bytes of a step
    cache: int | None  # bytes of this processor's last cache

    @property
    def formula(self) -> float:
        """The formula's exponent on the same sizes."""
        return slope(self.sizes, self.counted)

    @property
    def word(self) -> str:
        """agrees: the interval, NEAR wider on both sides, holds the formula's exponent; undecided: it is too wide."""
        low, high = self.exponent.low, self.exponent.high
        if low is None or high is None:
            low = high = self.exponent.value
        if high - low > 2 * WIDE:
            return "undecided"
        return "agrees" if low - NEAR <= self.formula <= high + NEAR else "differs"

    @property
    def reason(self) -> str | None:
        """Why it may differ: constant (what does not grow: overhead, or results that are always there), brief (bytes
        that are held for a moment), caches (a step fits into them only at small sizes), uncounted (work beside the
        products)."""
        if self.word != "differs":
            return None
        if self.what == "bytes":
            return "brief"
        if self.exponent.value < self.formula:
            return "constant"
        fits, leaves = self.peaks[0], self.peaks[-1]
        return "caches" if self.cache is not None and fits <= self.cache < leaves else "uncounted"

    @property
    def relative(self) -> float:
        """Measured per counted, at the largest size as a multiple of that at the smallest."""
        return (self.measured[-1] / self.counted[-1]) / (self.measured[0] / self.counted[0])

    @property
    def at_last(self) -> tuple[float, float]:
        """The exponents between the two largest sizes: measured, and of the formula."""
        last = self.sizes[-2:]
        return slope(last, self.measured[-2:]), slope(last, self.counted[-2:])


def tendency(shape: Shape, axis: str, sizes: Sequence[int], what: str) -> Tendency:
    """max over the parts of ln(part(2s)/part(s))/ln 2, s so large that only the largest power of a part is left.

    There is no such number of heads: each term stands for itself, between the first and the last of the grid.
    """
    far = FAR.get(axis, 0) * (shape.heads if axis == "width" else 1)
    pair = (far, 2 * far) if far else (sizes[0], sizes[-1])
    small, large = (_summands(shape.at(axis, size), what, each=not far) for size in pair)
    powers = {
        key: round(math.log(large[key] / value) / math.log(pair[1] / pair[0]))
        for key, value in small.items()
        if value and large.get(key)
    }
    most = max(powers.values())
    return Tendency(most, tuple(dict.fromkeys(part for (part, _), power in powers.items() if power == most)))


def _summands(shape: Shape, what: str, *, each: bool) -> dict[tuple[str, int], float]:
    """What the parts add up to; `each` term for itself, under its part and its place."""
    products, kept = terms_of(shape)
    found: dict[tuple[str, int], float] = {}
    for place, term in enumerate(kept if what == "bytes" else products):
        key = term.part, place if each else 0
        found[key] = found.get(key, 0.0) + term.value
    return found


# --------------------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Grid:
    """One layer along one axis: `shapes` fit into the memory here, `left_out` do not."""

    axis: str
    base: Shape
    shapes: list[Shape]
    left_out: list[int]

    @property
    def sizes(self) -> list[int]:
        return [getattr(shape, self.axis) for shape in self.shapes]


def grid_of(base: Shape, axis: str, sizes: Sequence[int], spare: float | None) -> Grid:
    """Without a gap: from the first size that does not fit, all are left out."""
    fitting = set(that_fit([base.at(axis, size) for size in sizes], spare))
    kept = [base.at(axis, size) for size in sizes if base.at(axis, size) in fitting]
    return Grid(axis, base, kept, [size for size in sizes if base.at(axis, size) not in fitting])


def has_axis(kind: str, axis: str) -> bool:
    return axis != "heads" or kind not in RECURRENT


def measure_grids(
    grids: Sequence[Grid],
    rounds: int,
    timer: Timer | None = None,
    advance: Callable[[int], None] = lambda done: None,
) -> list[Growth]:
    """Forward pass, step and bytes of every layer of some grids, all in turns."""
    cases = [[Case(shape) for shape in grid.shapes] for grid in grids]
    for case in (case for own in cases for case in own):
        case.check()
    peaks = [[case.peak_bytes() for case in own] for own in cases]
    runs = [run for own in cases for case in own for run in case.runs()]
    measured = in_turns(runs, rounds, timer, advance)
    found, first = [], 0
    for grid, own_peaks in zip(grids, peaks, strict=True):
        last = first + 2 * len(grid.shapes)
        own = [[line[first + k : last : 2] for line in measured] for k in (0, 1)]
        found += _growths(grid, own, own_peaks)
        first = last
    return found


def _growths(grid: Grid, seconds: Sequence[list[list[float]]], peaks: list[float]) -> list[Growth]:
    if len(grid.sizes) < 2:
        raise UsageError(f"a slope needs two sizes, and {grid.base.kind} has {len(grid.sizes)} in '{grid.axis}'")
    numbers = [counted(shape) for shape in grid.shapes]
    cache = cache_bytes()
    found = []
    for what, rounds in zip(WHATS, (*seconds, [peaks]), strict=True):
        timed = what != "bytes"
        exponent = exponent_of(grid.sizes, rounds) if timed else Exponent(slope(grid.sizes, peaks))
        found.append(
            Growth(
                *(grid.base.kind, grid.axis, what, grid.sizes, medians(rounds), _of(numbers, what), exponent),
                *(tendency(grid.base, grid.axis, grid.sizes, what), peaks, cache),
            )
        )
    return found


def _of(numbers: Sequence[Counted], what: str) -> list[float]:
    return [one.of(what) for one in numbers]


def cache_bytes() -> int | None:
    """Of the processor's last cache, where the system says (Linux)."""
    sizes = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            sizes.append(1024 * int(file.read_text(encoding="ascii").strip().removesuffix("K")))
    return max(sizes, default=None)
