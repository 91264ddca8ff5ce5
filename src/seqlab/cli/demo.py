"""`seqlab demo`: a minute of Shakespeare, measured."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from seqlab.cli.arguments import add_common
from seqlab.cli.terminal import emit_json, reporter_for, table
from seqlab.core.settings.fields import check_threads
from seqlab.core.settings.training import TrainingSettings
from seqlab.core.units import parse_budget

DESCRIPTION = """Train a character model on Shakespeare for about a minute and measure it beside simple baselines.

example:
  seqlab demo --budget 20s
"""


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("demo", help="a minute of Shakespeare, measured", description=DESCRIPTION)
    default = TrainingSettings().budget
    parser.add_argument("--budget", default=default, help=f"how long to train (default: {default})")
    parser.add_argument("--out", metavar="FOLDER", help="run folder (default: runs/demo-1, -2, …)")
    add_common(parser)
    parser.set_defaults(run=demo, parser=parser)


def demo(arguments: argparse.Namespace) -> int:
    parse_budget(arguments.budget)  # wrong use is answered before torch is loaded
    check_threads(arguments.threads)
    reporter = reporter_for("a minute of Shakespeare")
    from seqlab.workflows.demo import run_demo

    result = run_demo(budget=arguments.budget, out=arguments.out, threads=arguments.threads, reporter=reporter)
    if result is None:
        if arguments.json:
            emit_json({"interrupted": True})
        return 0
    if arguments.json:
        emit_json(demo_json(result))
    else:
        print(demo_text(result))
    return 0


def demo_json(result: Any) -> dict[str, Any]:
    rows = [{"model": n, "perplexity_per_character": p, "bits_per_byte": b} for n, p, b in result.rows]
    final = result.run.final
    return {
        "run": str(result.run.folder),
        "corpus": result.corpus,
        "seconds": final["seconds"],
        "validation": final["validation"],
        "rows": rows,
        "sample": result.sample,
        "copied": result.copied,
    }


def demo_text(result: Any) -> str:
    run = result.run
    rows = [[name, f"{ppl:.3f}", f"{bits:.3f}"] for name, ppl, bits in result.rows]
    better = [name for name, _, bits in result.rows if bits < run.final["validation"]["bits_per_byte"]]
    verdict = (
        f"Better than the neural model in this time: {', '.join(better)}. It learns on: try --budget 5m."
        if better
        else ""
    )
    command = sys.argv[0] if os.path.basename(sys.argv[0]) == "seqlab" else "seqlab"
    other = "britannica" if result.corpus == "shakespeare" else "my.txt"
    return "\n".join(
        [
            f"Validation text of '{result.corpus}' ({run.final['validation']['characters']:,} characters), "
            "best at the bottom:",
            "",
            table(["model", "perplexity/char", "bits/byte"], rows),
            *([verdict] if verdict else []),
            "",
            f"A sample of {len(result.sample)} characters (temperature 0.8):",
            "",
            *(f"    {line}" for line in result.sample.split("\n")),
            "",
            f"Longest passage of it that stands word for word in the training text ({len(result.copied)} characters):",
            f"    {result.copied!r}",
            "",
            f"The run is in {run.folder} (open report.html in a browser). Try next:",
            f'    {command} lm generate {run.folder} --prompt "To be" --tokens 300 --temperature 0.8',
            f"    {command} lm perplexity {run.folder} --on {other}",
            f"    {command} lm train my.txt",
        ]
    )
