"""Length extrapolation: trained with a context of n tokens, scored with n, 2n and 4n, for each kind of positions.

    python recipes/extrapolation.py --folder runs/extrapolation
    python recipes/extrapolation.py --folder runs/wikipedia --corpus wikipedia-sample
    python recipes/extrapolation.py --folder runs/night --context 512 --steps 20000 --seeds 3

Softmax attention, the same width, depth, data, steps and schedule for each; every token of the held-out test text is
counted once, at positions c/2 … c−1 of a window of c tokens, so that with c = 2n none stands where training stood. Two
ways of going beyond n:

    all     every token attends to all tokens before it in the window of c
    last n  it attends to the last n of them, while positions count on: what seqlab does when it writes on and on

Learned positions are defined for no position beyond n, and seqlab refuses to read there. `learned, longer table` is the
same model with a table of 4n rows, of which training saw the first n and left the others as they were drawn.

Stop it at any moment and repeat the command: it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

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
    with_difference,
    with_interval,
)
from seqlab.core.errors import UsageError
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import with_changes
from seqlab.evaluation.statistics import holm
from seqlab.evaluation.surprisal import ContextPolicy, ModelScorer, policy_for
from seqlab.models.build import build_lm_from_settings
from seqlab.pages.canvas import blank_figure, plain, png
from seqlab.pages.charts import COLOURS, DASHES
from seqlab.workflows.lm.run import LMRun

POSITIONS = ("rotary", "sinusoidal", "learned")
TIMES = (1, 2, 4)
ALL, LAST, LONGER = "all", "last n", "longer table"
TABLE = "embedding.position.table"
VALIDATIONS = 10
Ways = dict[str, Numbers]  # way of scoring -> (seeds, blocks)


def recipe(arguments: argparse.Namespace, reporter: Reporter) -> None:
    n, steps = arguments.context, arguments.steps
    flags: Flags = {"context": n, "batch": rows_per_step(arguments.tokens, n), "attention": "softmax"}
    if n < 2 or steps < 1:
        raise UsageError(f"--context {n} --steps {steps}: the least are 2 tokens and 1 step")
    flags |= {"budget": f"{steps}steps", "eval_every": -(-steps // VALIDATIONS)}
    asked = {"recipe": "extrapolation", "tokens": arguments.tokens, "context": n, "steps": steps}
    kept = KeptRuns(arguments.folder, arguments.corpus, shared_flags(arguments), asked, arguments.threads, reporter)
    found: dict[str, list[Scored]] = {
        positions: [
            kept.scored(f"{positions}-seed{seed}", flags | {"positions": positions, "seed": seed}, ways_of_scoring)
            for seed in range(arguments.seeds)
        ]
        for positions in POSITIONS
    }
    result = judged({positions: _stacked(runs) for positions, runs in found.items()}, kept, n, steps)
    kept.write("extrapolation", result, page(result), picture(result))
    print(page(result))


def _stacked(runs: list[Scored]) -> Ways:
    """In an order of their own, whether they were scored just now or read from their files."""
    return {way: np.array([run.nats[way] for run in runs], np.float64) for way in sorted(runs[0].nats)}


# --------------------------------------------------------------------------- ways of scoring


def ways_of_scoring(run: LMRun) -> dict[str, ModelScorer]:
    """n, 2n and 4n tokens at a time, as far as the positions are defined; learned ones also with a longer table."""
    n: int = run.settings.training.context
    ways = {_way(ALL, 1): _scorer(run.model, run)}
    learned = run.settings.model.positions == "learned"
    for times in TIMES[1:]:
        if learned:
            ways[_way(LONGER, times)] = _scorer(with_longer_table(run, n * TIMES[-1]), run, n * times)
        else:
            ways[_way(ALL, times)] = _scorer(run.with_context(n * times).model, run)
            ways[_way(LAST, times)] = _scorer(run.model, run, n * times)
    return ways


def _way(how: str, times: int) -> str:
    return f"{how} {times}"


def _scorer(model: Any, run: LMRun, window: int | None = None) -> ModelScorer:
    policy = policy_for(model) if window is None else ContextPolicy(window - window // 2, window // 2)
    return ModelScorer(model, run.tokenizer, policy)


def with_longer_table(run: LMRun, rows: int) -> Any:
    """The model as if it had been built with a table of so many rows: those beyond its own were never trained.

    Nothing but the gradient changes such a table (no decay), and rows beyond n get none: they stay as they were drawn.
    """
    settings = with_changes(run.settings, {"training": {"context": rows}})
    model = build_lm_from_settings(settings, run.tokenizer.vocab_size)
    weights: Mapping[str, torch.Tensor] = run.model.state_dict()
    trained = weights[TABLE]
    table = torch.cat([trained, model.state_dict()[TABLE][len(trained) :]])
    model.load_state_dict({**weights, TABLE: table})
    return model.eval()


# --------------------------------------------------------------------------- judging


def judged(found: dict[str, Ways], kept: KeptRuns, n: int, steps: int) -> dict[str, Any]:
    """Each way with its interval and, beyond n, its difference from the same weights at n (Holm over all of them)."""
    rows: list[dict[str, Any]] = []
    beyond = []
    for positions, ways in found.items():
        for way, nats in ways.items():
            how, times = way.rsplit(" ", 1)
            row = {"positions": positions, "attends": how, "trained": n, "scored": n * int(times), "change": None}
            rows.append(row | row_of_interval(*kept.figure(nats)))
            if int(times) > 1:
                beyond.append((rows[-1], kept.difference(nats, ways[_way(ALL, 1)])))
    adjusted = holm([difference.p for _, difference in beyond])
    for (row, difference), p in zip(beyond, adjusted, strict=True):
        row["change"] = row_of_difference(difference, p)
    settings = {"text": kept.contest.name, "sha256": kept.contest.sha256, "basis": kept.contest.basis}
    seeds = len(next(iter(found["rotary"].values())))
    return {
        "settings": settings | kept.shared | {"threads": kept.threads, "seeds": seeds, "context": n, "steps": steps},
        "rows": rows,
        "undefined": [{"positions": "learned", "trained": n, "scored": n * times} for times in TIMES[1:]],
    }


# --------------------------------------------------------------------------- showing


def page(result: dict[str, Any]) -> str:
    settings = result["settings"]
    n = settings["context"]
    words = (
        f"Text: {settings['text']}; {settings['basis']}. Tokens: {settings['tokenizer']}. Softmax attention, width "
        f"{settings['width']}, depth {settings['depth']}, heads {settings['heads']}; {settings['steps']:,} steps at "
        f"context {n}, peak learning rate {settings['learning_rate']:g}, seeds {settings['seeds']}, threads "
        f"{settings['threads']}. {how_sure(result['rows'][0], settings['seeds'])}"
    )
    header = ["positions", "attends to", "scored with", "bits per byte", "minus scored with n"]
    rows = [
        [
            row["positions"],
            row["attends"] if row["attends"] != LONGER else "all, untrained rows",
            f"{row['scored']:,}",
            with_interval(row),
            "–" if row["change"] is None else with_difference(row["change"]),
        ]
        for row in result["rows"]
    ]
    rows += [[row["positions"], "all", f"{row['scored']:,}", "not defined", "–"] for row in result["undefined"]]
    rows.sort(key=lambda row: [POSITIONS.index(row[0]), row[1] == LAST, row[1].endswith("rows")])
    return f"{words}\n\n{markdown(header, rows)}\n"


def picture(result: dict[str, Any]) -> bytes:
    """Bits per byte against the context of the scoring."""
    figure = blank_figure(6.4, 3.8)
    axes = figure.subplots()
    lines = dict.fromkeys((row["positions"], row["attends"]) for row in result["rows"])
    for positions, how in lines:
        own = [row for row in result["rows"] if row["positions"] == positions]
        rows = [row for row in own if row["attends"] == how or row["scored"] == row["trained"]]
        if len(rows) == 1:
            continue
        value = np.array([row["bits_per_byte"] for row in rows])
        ends = np.array([row["interval"] for row in rows])
        look = {"color": COLOURS[POSITIONS.index(positions)], "linestyle": DASHES[(ALL, LAST, LONGER).index(how)]}
        scored = [row["scored"] for row in rows]
        axes.errorbar(scored, value, np.abs(ends.T - value), label=f"{positions}, {how}", capsize=3, marker="o", **look)
    scored = sorted({row["scored"] for row in result["rows"]})
    axes.set_xscale("log", base=2)
    axes.set_xticks(scored, [f"{context:,}" for context in scored])
    axes.minorticks_off()
    axes.set_xlabel(f"context of the scoring (tokens); trained with {result['settings']['context']:,}")
    axes.set_ylabel("bits per byte (test)")
    plain(axes)
    axes.legend(frameon=False, fontsize=8, handlelength=3.5)
    return png(figure)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shared(found)
    found.add_argument("--context", type=int, default=256, help="n, of the training (default: 256)")
    found.add_argument("--steps", type=int, default=800, help="of each training (default: 800)")
    return found


if __name__ == "__main__":
    sys.exit(start(recipe, parser()))
