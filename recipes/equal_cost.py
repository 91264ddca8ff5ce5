"""Quality at equal cost: softmax, separable and random-feature attention under the same time and the same FLOPs.

    python recipes/equal_cost.py --folder runs/equal-cost
    python recipes/equal_cost.py --folder runs/wikipedia --corpus wikipedia-sample --terms flops
    python recipes/equal_cost.py --folder runs/night --budget 20m --flops 2e14 --seeds 3 --width 256 --depth 4

Every model has the same width, depth, data, tokens per step, learning-rate schedule and seeds; only its attention and
what it may spend differ:

    time     steps = what --budget buys, timed once for each run and recorded
    flops    steps = --flops / (tokens per step · operations per token of forward and backward pass)

The judged figure is bits per byte of the held-out test text, read with the context of the training, every token
counted once; each linear kind is compared with softmax on the same blocks of text, and an n-gram model, which only
counts, is scored on them beside all. Stop it at any moment and repeat
the command: it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from kept_runs import (
    Flags,
    KeptRuns,
    Numbers,
    Scored,
    add_shared,
    how_sure,
    markdown,
    row_of_difference,
    row_of_interval,
    rows_per_step,
    shared_flags,
    start,
    whole_numbers,
    with_difference,
    with_interval,
)
from seqlab.core.errors import UsageError
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import with_flags
from seqlab.core.settings.lm import LMSettings, fill_lm
from seqlab.core.units import human_count, human_seconds, parse_budget
from seqlab.diagnostics.cost import training_flops
from seqlab.evaluation.statistics import holm
from seqlab.models.build import outline_lm
from seqlab.pages.canvas import blank_figure, plain, png
from seqlab.pages.charts import COLOURS, DASHES, INK

BASELINE, *LINEAR = KINDS = ("softmax", "separable", "random_features")
TERMS = ("time", "flops")
VALIDATIONS = 10  # on the way, to keep the best weights
REAL = 0.05  # below this p value, after Holm's correction, a difference counts


@dataclass(frozen=True)
class Cell:
    """One kind of attention at one context under one term: its runs, one for each seed."""

    term: str
    context: int
    attention: str
    flops_per_token: float
    runs: list[Scored]

    @property
    def nats(self) -> Numbers:
        """(seeds, blocks)"""
        return np.array([run.nats["own"] for run in self.runs], np.float64)


def recipe(arguments: argparse.Namespace, reporter: Reporter) -> None:
    contexts, terms = whole_numbers("--contexts", arguments.contexts), _terms(arguments.terms)
    if not arguments.flops > 0:
        raise UsageError(f"--flops {arguments.flops:g} must be more than 0")
    if parse_budget(arguments.budget).seconds is None:
        raise UsageError(f"--budget {arguments.budget} is no time; say 60s or 5m (--flops says the operations)")
    for context in contexts:
        rows_per_step(arguments.tokens, context)
    spent = {"time": arguments.budget, "flops": arguments.flops}
    asked = {"recipe": "equal_cost", "tokens": arguments.tokens, "spent": {term: spent[term] for term in terms}}
    kept = KeptRuns(arguments.folder, arguments.corpus, shared_flags(arguments), asked, arguments.threads, reporter)
    cells = [
        Cell(term, context, kind, operations(kept, context, kind), train_seeds(kept, term, context, kind, arguments))
        for context in contexts
        for term in terms
        for kind in KINDS
    ]
    result = judged(cells, kept, np.array([kept.counted().nats["own"]], np.float64))
    kept.write("equal_cost", result, page(result), picture(result))
    print(page(result))
    print(times(cells))


def _terms(text: str) -> list[str]:
    terms = text.split(",")
    if not set(terms) <= set(TERMS) or len(set(terms)) < len(terms):
        raise UsageError(f"--terms {text} is not understood; say time, flops or time,flops")
    return terms


# --------------------------------------------------------------------------- training


def operations(kept: KeptRuns, context: int, kind: str) -> float:
    """FLOPs of forward and backward pass for one token."""
    settings = fill_lm(with_flags(LMSettings(), kept.shared | {"context": context, "attention": kind}))
    return training_flops(outline_lm(settings, kept.contest.data.tokenizer.vocab_size), context)


def steps_for(flops: float, tokens: int, per_token: float) -> int:
    """steps = F / (tokens · f), the nearest whole number."""
    return max(1, round(flops / (tokens * per_token)))


def train_seeds(kept: KeptRuns, term: str, context: int, kind: str, arguments: argparse.Namespace) -> list[Scored]:
    flags: Flags = {"attention": kind, "context": context, "batch": rows_per_step(arguments.tokens, context)}
    flags["budget"] = arguments.budget
    if term == "flops":
        steps = steps_for(arguments.flops, arguments.tokens, operations(kept, context, kind))
        flags |= {"budget": f"{steps}steps", "eval_every": -(-steps // VALIDATIONS)}
    names = [(seed, f"{term}-{context}-{kind}-seed{seed}") for seed in range(arguments.seeds)]
    return [kept.scored(name, flags | {"seed": seed}) for seed, name in names]


# --------------------------------------------------------------------------- judging


def judged(cells: list[Cell], kept: KeptRuns, counted: Numbers) -> dict[str, Any]:
    """Rows with intervals, comparisons with softmax (Holm's correction over all of them), and what follows.

    counted (1, blocks): nats of the n-gram model.
    """
    rows = [_row(cell, kept) for cell in cells]
    pairs = [
        (cell, base)
        for cell in cells
        for base in cells
        if base.attention == BASELINE != cell.attention and (base.term, base.context) == (cell.term, cell.context)
    ]
    found = [kept.difference(cell.nats, base.nats) for cell, base in pairs]
    adjusted = holm([difference.p for difference in found])
    comparisons = [
        {"term": cell.term, "context": cell.context, "a": cell.attention, "b": base.attention}
        | row_of_difference(difference, p)
        for (cell, base), difference, p in zip(pairs, found, adjusted, strict=True)
    ]
    settings = {"text": kept.contest.name, "sha256": kept.contest.sha256, "basis": kept.contest.basis}
    return {
        "settings": settings | kept.shared | {"threads": kept.threads, "seeds": len(cells[0].runs)},
        "counted": row_of_interval(*kept.figure(counted)),
        "rows": rows,
        "comparisons": comparisons,
        "conclusions": [_conclusion(comparison) for comparison in comparisons],
    }


def _row(cell: Cell, kept: KeptRuns) -> dict[str, Any]:
    first = cell.runs[0]
    spent = {
        "steps": [run.steps for run in cell.runs],
        "tokens": [run.tokens for run in cell.runs],
        "flops_per_token": cell.flops_per_token,
        "flops": [run.tokens * cell.flops_per_token for run in cell.runs],
        "parameters": first.parameters,
    }
    place = {"term": cell.term, "context": cell.context, "attention": cell.attention}
    return place | spent | row_of_interval(*kept.figure(cell.nats))


def _conclusion(comparison: dict[str, Any]) -> str:
    where = f"same {comparison['term']}, context {comparison['context']:,}"
    if comparison["p"] >= REAL:
        return f"{where}: nothing decides between {comparison['a']} and {comparison['b']}"
    better, worse = ("a", "b") if comparison["difference"] < 0 else ("b", "a")
    size = abs(comparison["difference"])
    return f"{where}: {comparison[better]} is better than {comparison[worse]} by {size:.4f} bits per byte"


# --------------------------------------------------------------------------- showing


def page(result: dict[str, Any]) -> str:
    settings = result["settings"]
    lines = [
        f"Text: {settings['text']}; {settings['basis']}. Tokens: {settings['tokenizer']}. Width {settings['width']}, "
        f"depth {settings['depth']}, heads {settings['heads']}, peak learning rate {settings['learning_rate']:g}, "
        f"seeds {settings['seeds']}, threads {settings['threads']}. {how_sure(result['counted'], settings['seeds'])}",
        f"Beside all, an n-gram model that only counts: {with_interval(result['counted'])} bits per byte.",
    ]
    beside = {(c["term"], c["context"], c["a"]): with_difference(c) for c in result["comparisons"]}
    header = ["context", "attention", "steps", "FLOPs/token", "FLOPs", "bits per byte", "minus softmax"]
    for term in dict.fromkeys(row["term"] for row in result["rows"]):
        rows = [
            [
                f"{row['context']:,}",
                row["attention"],
                _mean(row["steps"], "{:,.0f}"),
                human_count(row["flops_per_token"]),
                _mean(row["flops"], "{:.3g}"),
                with_interval(row),
                beside.get((term, row["context"], row["attention"]), "–"),
            ]
            for row in result["rows"]
            if row["term"] == term
        ]
        lines += [f"**The same {'FLOPs' if term == 'flops' else term}**", markdown(header, rows)]
    lines.append("\n".join(f"- {line}" for line in result["conclusions"]))
    return "\n\n".join(lines) + "\n"


def _mean(values: list[float], form: str) -> str:
    return form.format(sum(values) / len(values))


def times(cells: list[Cell]) -> str:
    """Seconds are no part of the result, which has the same bytes each time."""
    rows = [
        [f"{cell.term} {cell.context:,} {cell.attention}", *(human_seconds(run.seconds) for run in cell.runs)]
        for cell in cells
    ]
    return markdown(["training time", *(f"seed {k}" for k in range(len(cells[0].runs)))], rows)


def picture(result: dict[str, Any]) -> bytes:
    """Bits per byte against the context, one panel for each term."""
    terms = list(dict.fromkeys(row["term"] for row in result["rows"]))
    figure = blank_figure(4.6 * len(terms), 3.8)
    panels = np.atleast_1d(figure.subplots(1, len(terms), sharey=True))
    for axes, term in zip(panels, terms, strict=True):
        for number, kind in enumerate(KINDS):
            rows = [row for row in result["rows"] if (row["term"], row["attention"]) == (term, kind)]
            value = np.array([row["bits_per_byte"] for row in rows])
            ends = np.array([row["interval"] for row in rows])
            axes.errorbar(
                [row["context"] for row in rows],
                value,
                yerr=np.abs(ends.T - value),
                label=kind.replace("_", " "),
                color=COLOURS[number],
                linestyle=DASHES[number],
                capsize=3,
                marker="o",
                markersize=4,
            )
        axes.axhline(result["counted"]["bits_per_byte"], color=INK, linewidth=1, linestyle=":", label="n-gram (counts)")
        contexts = sorted({row["context"] for row in result["rows"]})
        axes.set_xscale("log", base=2)
        axes.set_xticks(contexts, [f"{context:,}" for context in contexts])
        axes.minorticks_off()
        axes.set_xlabel("context (tokens), trained and scored")
        axes.set_title(f"the same {'FLOPs' if term == 'flops' else term}", color=INK, fontsize=11)
        plain(axes)
    panels[0].set_ylabel("bits per byte (test)")
    panels[-1].legend(frameon=False, fontsize=9, handlelength=3.5, loc="lower right", bbox_to_anchor=(1, 0.12))
    return png(figure)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shared(found)
    found.add_argument("--contexts", default="256,2048,8192", help="trained and scored with (default: 256,2048,8192)")
    found.add_argument("--terms", default="time,flops", help="what is equal (default: time,flops)")
    found.add_argument("--budget", default="60s", help="time of each run under the same time (default: 60s)")
    found.add_argument("--flops", type=float, default=6e12, help="of each run under the same FLOPs (default: 6e12)")
    return found


if __name__ == "__main__":
    sys.exit(start(recipe, parser()))
