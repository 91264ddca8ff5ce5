"""A diagnosis in words: what the terminal and the page both say."""

from __future__ import annotations

from collections.abc import Sequence

from seqlab.diagnostics.gradient_flow import EXPLODED, VANISHED, Verdict
from seqlab.workflows.diagnose.cures import Tried
from seqlab.workflows.diagnose.examine import Examined

HEADER = ["model", "layer", "verdict", "growth per step g", "95 % interval", "g^T", "horizon", "bound δ"]
TRIED = ["remedy", "verdict", "growth per step g", "95 % interval", "g^T", "horizon", ""]
THRESHOLDS = (
    f"over T lags g^T < {VANISHED:g} is vanishing, > {EXPLODED:g} exploding; horizon: 1 % of the gradient at lag 1"
)


def verdict_rows(models: Sequence[Examined]) -> list[list[str]]:
    return [
        [found.name, tap, *_figures(verdict), f"{found.bounds[tap]:.3f}" if tap in found.bounds else "–"]
        for found in models
        for tap, verdict in found.verdicts.items()
    ]


def tried_rows(rows: Sequence[Tried]) -> list[list[str]]:
    return [[row.name, *_figures(row.verdict), row.note] for row in rows]


def _figures(verdict: Verdict) -> list[str]:
    growth = verdict.growth
    interval = f"{growth.low:.4f} to {growth.high:.4f}"
    return [verdict.word, f"{growth.rate:.4f}", interval, f"{verdict.total:.2g}", horizon_words(verdict)]


def horizon_words(verdict: Verdict) -> str:
    if verdict.horizon is not None:
        return f"{verdict.horizon:,}"
    if verdict.expected_horizon is None:
        return "none"
    return f"beyond {verdict.lags:,} (by g: {verdict.expected_horizon:,.0f})"


def sentence(found: Examined) -> str:
    """The verdict on one model."""
    verdict, growth = found.verdict, found.verdict.growth
    doubt = "" if verdict.settled else " The interval of g reaches over a threshold: more sequences would settle it."
    return (
        f"{found.name}: {verdict.word}. Through {found.decisive}, which reaches farthest, the gradient is multiplied "
        f"by {growth.rate:.4f} ({growth.low:.4f} to {growth.high:.4f}) with each step back, over {verdict.lags:,} lags "
        f"by {verdict.total:.2g}.{doubt}"
    )
