"""`seqlab runs list|show`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from seqlab.cli.arguments import Parser, add_common
from seqlab.cli.terminal import emit_json, table
from seqlab.core.units import human_seconds

if TYPE_CHECKING:
    from seqlab.workflows.overview import RunDetails, RunFacts

LIST = """The runs below a folder in one table: what each is, how far it came, what it reached.

examples:
  seqlab runs list                  those in runs/
  seqlab runs list experiments --json
"""
SHOW = """One run in detail: settings, record, figures, files.

example:
  seqlab runs show runs/mine
"""
HEADER = ["run", "kind", "model", "text", "state", "steps", "figure", "", "time"]


def add_commands(commands: Any) -> None:
    runs: Parser = commands.add_parser(
        "runs",
        help="what was trained: list, show",
        description="Runs that lie on disk, of every kind.\n\nexample:\n  seqlab runs list",
    )
    runs.set_defaults(parser=runs)
    actions = runs.add_subparsers(metavar="ACTION", parser_class=Parser)
    listing = actions.add_parser("list", help="the runs below a folder", description=LIST)
    listing.add_argument("folder", nargs="?", default="runs", help="folder to look in (default: runs)")
    add_common(listing, threads=False)
    listing.set_defaults(run=list_command, parser=listing)
    showing = actions.add_parser("show", help="one run in detail", description=SHOW)
    showing.add_argument("folder", metavar="RUN", help="run folder")
    add_common(showing, threads=False)
    showing.set_defaults(run=show_command, parser=showing)


def list_command(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.overview import list_runs

    found = list_runs(arguments.folder)
    if arguments.json:
        emit_json({"runs": [facts.as_json() for facts in found]})
    elif found:
        print(table(HEADER, [_row(facts) for facts in found], left=5, key=1))
    else:
        print(f"no runs below {arguments.folder}")
    return 0


def _row(facts: RunFacts) -> list[str]:
    steps = "–" if facts.steps is None else f"{facts.step:,} of {facts.steps:,}"
    figure = "–" if facts.figure is None else f"{facts.figure:.4f}"
    seconds = "–" if facts.seconds is None else human_seconds(facts.seconds)
    names = [name or "–" for name in (facts.kind, facts.model, facts.text)]
    return [facts.run, *names, facts.state, steps, figure, facts.figure_label or "", seconds]


def show_command(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.overview import show_run

    found = show_run(arguments.folder)
    if arguments.json:
        emit_json(found.as_json())
    else:
        print(details_text(found))
    return 0


def details_text(found: RunDetails) -> str:
    parts = [table(HEADER, [_row(found.facts)], left=5, key=1)]
    for group, values in found.settings.items():
        parts.append(f"[{group}]\n" + _pairs(values))
    parts.append("[record]\n" + _pairs(found.record))
    parts.append("[files]\n" + _pairs({name: f"{size:,} bytes" for name, size in found.files}))
    return "\n\n".join([*parts, f"identity: {found.identity or 'none (written by an older seqlab)'}"])


def _pairs(values: dict[str, Any]) -> str:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= {f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
    width = max(map(len, flat), default=0)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in flat.items())
