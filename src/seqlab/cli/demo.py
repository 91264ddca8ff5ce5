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

DESCRIPTION = """Count Shakespeare, train a network on it, let the counts lead the network: which is best?

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
    rows = [
        {"model": row.name, "role": row.role or None, "bits_per_byte": row.bits_per_byte}
        | {"perplexity_per_character": row.perplexity_per_character}
        for row in result.rows
    ]
    final = result.run.final
    return {
        "run": str(result.run.folder),
        "run_alone": str(result.alone.folder),
        "corpus": result.corpus,
        "seconds": final["seconds"],
        **{part: final[part] for part in ("validation", "test")},
        "rows": rows,
        "sample": result.sample,
        "copied": result.copied,
    }


STORY = {"counts": "counts alone", "network": "network alone", "both": "both", "reading": "both, reading on"}


def demo_text(result: Any) -> str:
    run = result.run
    story = [[label, row.name, f"{row.bits_per_byte:.3f}", row.effort] for label, row in _told(result)]
    others = ", ".join(f"{row.name} {row.bits_per_byte:.2f}" for row in result.rows if not row.role)
    command = sys.argv[0] if os.path.basename(sys.argv[0]) == "seqlab" else "seqlab"
    other = "britannica" if result.corpus == "shakespeare" else "my.txt"
    return "\n".join(
        [
            f"Bits per byte of {run.final['test']['characters']:,} characters of '{result.corpus}' "
            "that training did not see:",
            "",
            table(["", "model", "bits/byte", "training"], story),
            f"Beside them: {others}.",
            *_who_is_ahead(result),
            "",
            f"A sample of {len(result.sample)} characters (temperature 0.8):",
            "",
            *(f"    {line}" for line in result.sample.split("\n")),
            "",
            f"Longest passage of it that stands word for word in the training text ({len(result.copied)} characters):",
            f"    {result.copied!r}",
            "",
            f"Pages: {run.folder}/report.html and {result.alone.folder}/report.html. Try next:",
            f'    {command} lm generate {run.folder} --prompt "To be" --tokens 300 --temperature 0.8',
            f"    {command} lm perplexity {run.folder} --on {other}",
            f"    {command} lm train my.txt",
        ]
    )


def _told(result: Any) -> list[tuple[str, Any]]:
    """Counting, learning, both; there is no row of counts where none were used."""
    found = {row.role: row for row in result.rows}
    return [(label, found[role]) for role, label in STORY.items() if role in found]


def _who_is_ahead(result: Any) -> list[str]:
    """Whatever is better than both together is named; compressors are held against both as they read on."""
    learnt = {row.role: row.bits_per_byte for row in result.rows if row.role}
    own = {True: learnt.get("reading", learnt["both"]), False: learnt["both"]}
    ahead = [row.name for row in result.rows if row.role != "reading" and row.bits_per_byte < own[row.learns_on]]
    if not ahead:
        return []
    return [f"Better than both together in this time: {', '.join(ahead)}. The network learns on: try --budget 5m."]
