"""A duel as rows that a person reads, on the terminal and in a self-contained report.html."""

from __future__ import annotations

from typing import Any

from seqlab.core.units import human_count, human_seconds
from seqlab.pages.render import embedded, render
from seqlab.workflows.duel.entrants import Cost
from seqlab.workflows.duel.folder import Record
from seqlab.workflows.duel.terms import Terms
from seqlab.workflows.duel.verdict import Comparison, Contestant, Duel, p_words

PAIR_HEADER = ["pair", "difference", "95 % interval", "p", "verdict"]


def model_header(terms: Terms) -> list[str]:
    costs = [terms.flops] if terms.flops else []
    return ["model", "sizes", "parameters", *costs, "seeds", terms.column, "95 % interval", "time", terms.counted]


def model_rows(duel: Duel) -> list[list[str]]:
    """One row for each model, the best first."""
    return [_model_row(c, duel.match) for c in sorted(duel.contestants, key=lambda c: c.value)]


def _model_row(contestant: Contestant, match: str) -> list[str]:
    entrant, interval, terms = contestant.entrant, contestant.interval, contestant.terms
    count = human_count(contestant.parameters)
    off = {match: f" ({entrant.deviation:+.1%})"} if entrant.deviation else {}  # beside what was to be equal
    return [
        contestant.kind,
        entrant.size_words,
        f"{count} {terms.learnt}" if entrant.fitted else f"{count}{off.get('parameters', '')}",
        *([_flops(entrant.cost) + off.get("flops", "")] if terms.flops else []),
        "fitted" if entrant.fitted else str(contestant.seeds),
        terms.number(contestant.value),
        f"{terms.number(interval.low)} – {terms.number(interval.high)}",
        human_seconds(contestant.seconds),
        human_count(contestant.count),
    ]


def _flops(cost: Cost | None) -> str:
    return "–" if cost is None or cost.flops_per_token is None else human_count(cost.flops_per_token)


def pair_rows(duel: Duel) -> list[list[str]]:
    return [_pair_row(comparison, duel.terms) for comparison in duel.comparisons]


def _pair_row(comparison: Comparison, terms: Terms) -> list[str]:
    found = comparison.found
    better = comparison.a if found.value < 0 else comparison.b
    return [
        f"{comparison.a} − {comparison.b}",
        terms.number(found.value, signed=True),
        f"{terms.number(found.interval.low, signed=True)} – {terms.number(found.interval.high, signed=True)}",
        p_words(comparison.p).removeprefix("p ").removeprefix("= "),
        f"{better} is better" if comparison.settled else f"open: {comparison.advice}",
    ]


def duel_page(duel: Duel, record: Record, title: str, picture: bytes) -> str:
    return render(
        "duel.html.j2",
        title=title,
        duel=duel,
        terms=duel.terms,
        model_header=model_header(duel.terms),
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
