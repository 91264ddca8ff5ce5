"""A duel as rows that a person reads, on the terminal and in a self-contained report.html."""

from __future__ import annotations

from typing import Any

from seqlab.core.units import human_count, human_seconds
from seqlab.pages.render import embedded, render
from seqlab.workflows.duel.folder import Record
from seqlab.workflows.duel.sizes import Cost
from seqlab.workflows.duel.verdict import Comparison, Contestant, Duel, p_words

MODEL_HEADER = ["model", "sizes", "parameters", "flops/token", "seeds", "bits/byte", "95 % interval", "time", "tokens"]
PAIR_HEADER = ["pair", "difference", "95 % interval", "p", "verdict"]


def model_rows(duel: Duel) -> list[list[str]]:
    """One row for each model, the best first."""
    return [_model_row(c, duel.match) for c in sorted(duel.contestants, key=lambda c: c.bits_per_byte)]


def _model_row(contestant: Contestant, match: str) -> list[str]:
    entrant, interval = contestant.entrant, contestant.interval
    count = human_count(contestant.parameters)
    off = {match: f" ({entrant.deviation:+.1%})"} if entrant.deviation else {}  # beside what was to be equal
    return [
        contestant.kind,
        entrant.size_words,
        f"{count} n-grams" if entrant.fitted else f"{count}{off.get('parameters', '')}",
        _flops(entrant.cost) + off.get("flops", ""),
        "fitted" if entrant.fitted else str(contestant.seeds),
        f"{contestant.bits_per_byte:.4f}",
        f"{interval.low:.4f} – {interval.high:.4f}",
        human_seconds(contestant.seconds),
        human_count(contestant.tokens),
    ]


def _flops(cost: Cost | None) -> str:
    return "–" if cost is None or cost.flops_per_token is None else human_count(cost.flops_per_token)


def pair_rows(duel: Duel) -> list[list[str]]:
    return [_pair_row(comparison) for comparison in duel.comparisons]


def _pair_row(comparison: Comparison) -> list[str]:
    found = comparison.found
    better = comparison.a if found.value < 0 else comparison.b
    return [
        f"{comparison.a} − {comparison.b}",
        f"{found.value:+.4f}",
        f"{found.interval.low:+.4f} – {found.interval.high:+.4f}",
        p_words(comparison.p).removeprefix("p ").removeprefix("= "),
        f"{better} is better" if comparison.settled else f"open: {comparison.advice}",
    ]


def duel_page(duel: Duel, record: Record, title: str, picture: bytes) -> str:
    return render(
        "duel.html.j2",
        title=title,
        duel=duel,
        model_header=MODEL_HEADER,
        model_rows=model_rows(duel),
        pair_header=PAIR_HEADER,
        pair_rows=pair_rows(duel),
        picture=embedded(picture),
        question=_question(record),
        entrants=record.entrants,
    )


def _question(record: Record) -> list[tuple[str, Any]]:
    said = {k: v for k, v in record.question.items() if k != "settings"} | record.question["settings"]
    shown = said | {"seeds": record.seeds, "models": ", ".join(record.question["models"])}
    return [(name.replace("_", " "), value) for name, value in shown.items()]
