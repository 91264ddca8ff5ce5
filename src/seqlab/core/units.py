"""Amounts as people write them: budgets (``60s``, ``5m``, ``2000steps``) and splits (``90/10``)."""

import math
import re
from dataclasses import dataclass

from seqlab.core.errors import UsageError

SPELLING_NATS_PER_BYTE = 8 * math.log(2)  # what an unknown token is charged for each byte of its spelling
CHANCE = 0.05  # from this p value on a difference may be chance
SECONDS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
COUNTS = {"step": "steps", "steps": "steps", "token": "tokens", "tokens": "tokens"} | {
    "epoch": "epochs",
    "epochs": "epochs",
}
# The most of each unit; beyond it nobody means what is written.
MOST = {
    "seconds": (366 * 86400.0, "a year (8,784h)"),
    "steps": (1e9, "1,000,000,000 steps"),
    "tokens": (1e13, "10,000,000 M tokens"),
    "epochs": (1e6, "1,000,000 epochs"),
}
SCALES = {"": 1, "k": 1_000, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000}


@dataclass(frozen=True)
class Budget:
    """How long to train: an amount of seconds, steps, tokens or epochs."""

    amount: float
    unit: str

    @property
    def seconds(self) -> float | None:
        return self.amount if self.unit == "seconds" else None


def parse_budget(text: str) -> Budget:
    """``60s``, ``5m``, ``1h``, ``2000steps``, ``5Mtokens``, ``3epochs``."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([kKMG]?)\s*([a-z]+)\s*", text)
    if match:
        amount, scale, unit = float(match[1]), match[2], match[3]
        if unit in SECONDS and not scale and amount > 0:
            return _not_too_long(text, Budget(amount * SECONDS[unit], "seconds"))
        if unit in COUNTS and amount > 0:
            return _not_too_long(text, Budget(amount * SCALES[scale], COUNTS[unit]))
    raise UsageError(
        f"budget '{text}' is not understood; give more than 0 of a time (60s, 5m, 1h), 2000steps, 5Mtokens or 3epochs"
    )


def _not_too_long(text: str, budget: Budget) -> Budget:
    most, words = MOST[budget.unit]
    if budget.amount > most:
        raise UsageError(f"budget '{text}' is too long; the most is {words}")
    return budget


def parse_split(text: str) -> tuple[float, float, float]:
    """``80/10/10`` or ``90/10`` (no test part): the shares of training, validation and test text."""
    try:
        shares = [float(part) for part in text.split("/")]
    except ValueError:
        shares = []
    if len(shares) not in (2, 3) or not all(0 <= share <= 100 for share in shares):
        raise UsageError(f"split '{text}' is not understood; give percentages such as 80/10/10 or 90/10")
    if shares[0] <= 0 or shares[1] <= 0:
        raise UsageError(f"split '{text}' leaves nothing to train on or to validate on; both need more than 0 percent")
    total = sum(shares)
    if abs(total - 100) > 1e-6:
        raise UsageError(f"split '{text}' adds up to {total:g}, not to 100; for example 80/10/10")
    train, validation, test = [*shares, 0.0][:3]
    return train / 100, validation / 100, test / 100


def number_of(number: int, noun: str) -> str:
    """``1 step``, ``2,000 steps``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def human_seconds(seconds: float) -> str:
    """A duration people read: ``0.8 s``, ``45 s``, ``3 min 05 s``, ``2 h 10 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def human_moment(seconds: float) -> str:
    """A short duration: ``2.4 ms``, ``350 ms``, else as `human_seconds`."""
    if seconds >= 1:
        return human_seconds(seconds)
    return f"{1000 * seconds:.1f} ms" if seconds < 0.01 else f"{1000 * seconds:.0f} ms"


def human_count(count: float) -> str:
    """A count people read: ``950``, ``12.3 K``, ``4.05 M``."""
    for scale, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")):
        if count >= 0.9995 * scale:  # three digits of it are those of the scale
            return f"{count / scale:.3g} {letter}"
    return f"{count:.0f}"


def human_perplexity(value: float) -> str:
    """Four digits, and none after the point from a thousand on: ``3.713``, ``72.71``, ``2,070``, ``1.23e+12``."""
    if value >= 1e9:
        return "∞" if math.isinf(value) else f"{value:.2e}"
    return f"{value:,.0f}" if value >= 999.95 else f"{value:.{1 if value >= 99.995 else 2 if value >= 9.9995 else 3}f}"


def human_p(p: float) -> str:
    """``p = 0.31``, ``p = 0.0022``, ``p < 0.001``; near 0.05 as many digits as tell on which side: ``p = 0.0497``."""
    if p < 0.001:
        return "p < 0.001"
    shown = (f"{min(p, 1.0):.{digits}g}" for digits in range(2, 18))
    return f"p = {next(words for words in shown if float(words) != CHANCE or p == CHANCE)}"


def human_flops(count: float) -> str:
    """Operations: ``310 MFLOP``, ``5.12 TFLOP``."""
    for scale, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * scale:
            return f"{count / scale:.3g} {letter}FLOP" if count < 1000 * scale else f"{count / scale:,.0f} {letter}FLOP"
    return f"{count:.0f} FLOP"


def human_bytes(count: float) -> str:
    """Such as 640 MB or 3.2 GB."""
    for size, unit in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.1f} {unit}" if count < 10 * size else f"{count / size:,.0f} {unit}"
    return f"{count:.0f} bytes"
