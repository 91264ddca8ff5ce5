"""A duel as rows that a person reads, on the terminal, in a self-contained report.html and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from seqlab.core.files import write_bytes, write_text
from seqlab.core.units import human_count, human_p, human_seconds
from seqlab.pages.render import embedded, render
from seqlab.workflows.duel.command import command_of
from seqlab.workflows.duel.contest import Contest
from seqlab.workflows.duel.entrants import Cost
from seqlab.workflows.duel.folder import DuelFolder, Record
from seqlab.workflows.duel.terms import Terms
from seqlab.workflows.duel.verdict import Comparison, Contestant, Duel

PAIR_HEADER = ["pair", "difference", "95 % interval", "p", "verdict"]


def model_header(terms: Terms) -> list[str]:
    """The figure first: it is what a reader looks for, and what a narrow screen must show."""
    costs = [terms.flops] if terms.flops else []
    return ["model", terms.column, "95 % interval", "seeds", "parameters", *costs, "time", terms.counted, "sizes"]


def model_rows(duel: Duel) -> list[list[str]]:
    """One row for each model, the best first."""
    return [_model_row(c, duel.match) for c in best_first(duel)]


def best_first(duel: Duel) -> list[Contestant]:
    return sorted(duel.contestants, key=lambda c: c.value)


def _model_row(contestant: Contestant, match: str) -> list[str]:
    entrant, interval, terms = contestant.entrant, contestant.interval, contestant.terms
    count = human_count(contestant.parameters)
    off = {match: f" ({entrant.deviation:+.1%})"} if entrant.deviation else {}  # beside what was to be equal
    return [
        contestant.kind,
        terms.number(contestant.value),
        f"{terms.number(interval.low)} – {terms.number(interval.high)}",
        "fitted" if entrant.fitted else str(contestant.seeds),
        f"{count} {terms.learnt}" if entrant.fitted else f"{count}{off.get('parameters', '')}",
        *([_flops(entrant.cost) + off.get("flops", "")] if terms.flops else []),
        human_seconds(contestant.seconds),
        human_count(contestant.count),
        entrant.size_words,
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
        human_p(comparison.p).removeprefix("p ").removeprefix("= "),
        f"{better} is better" if comparison.settled else f"open: {comparison.advice}",
    ]


# --------------------------------------------------------------------------- files


def write_duel(folder: DuelFolder, duel: Duel, record: Record, contest: Contest, title: str, picture: bytes) -> None:
    """The picture, the tables with every digit, and the page."""
    write_bytes(folder.curves, picture)
    write_text(folder.models_table, _csv(_models_csv(duel)))
    write_text(folder.pairs_table, _csv(_pairs_csv(duel)))
    write_text(folder.report, duel_page(duel, record, title, picture, command_of(folder, record, contest)))


def duel_page(duel: Duel, record: Record, title: str, picture: bytes, command: str) -> str:
    return render(
        "duel.html.j2",
        title=title,
        duel=duel,
        terms=duel.terms,
        warnings=record.warnings,
        model_header=model_header(duel.terms),
        model_rows=model_rows(duel),
        pair_header=PAIR_HEADER,
        pair_rows=pair_rows(duel),
        curves=embedded(picture),
        command=command,
        question=_question(record),
        entrants=record.entrants,
        runs=[(contestant.kind, record.runs_of(contestant.entrant)) for contestant in best_first(duel)],
    )


def _question(record: Record) -> list[tuple[str, Any]]:
    said = {k: v for k, v in record.question.items() if k != "settings"} | record.question["settings"]
    shown = said | {"seeds": record.seeds, "models": ", ".join(record.question["models"])}
    return [(name.replace("_", " "), value) for name, value in shown.items()]


def _models_csv(duel: Duel) -> Iterable[Sequence[Any]]:
    terms = duel.terms
    yield "model", terms.key, "low", "high", "seeds", "sizes", "parameters", "flops_per_token", "seconds", terms.counted
    for one in best_first(duel):
        entrant, interval = one.entrant, one.interval
        flops = None if entrant.cost is None else entrant.cost.flops_per_token
        seeds = "" if entrant.fitted else one.seeds
        counts = one.parameters, flops, one.seconds, one.count
        yield one.kind, one.value, interval.low, interval.high, seeds, entrant.size_words, *counts


def _pairs_csv(duel: Duel) -> Iterable[Sequence[Any]]:
    yield "a", "b", "difference", "low", "high", "p", "settled"
    for pair in duel.comparisons:
        found = pair.found
        yield pair.a, pair.b, found.value, found.interval.low, found.interval.high, pair.p, pair.settled


def _csv(rows: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()
