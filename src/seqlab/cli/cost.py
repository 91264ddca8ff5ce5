"""`seqlab cost`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from seqlab.cli.arguments import Parser, add_common, add_fields, given
from seqlab.cli.cost_measured import add_flags, measured_command, mode_of
from seqlab.cli.terminal import TerminalReporter, emit_json, table
from seqlab.core.settings.cost import COSTED, cost_fields

if TYPE_CHECKING:
    from seqlab.workflows.cost.estimate import CostEstimate

COST = """What a training costs, before it starts: parameters, operations and memory by part, as formulas and numbers;
what is slowest and at which length that changes; seconds of a step and of the whole budget on this machine, the most
memory, and whether it fits. No text is read.

examples:
  seqlab cost --model transformer --size medium --context 1024 --batch 8
  seqlab cost runs/mine                                     a run of any task, with its own settings
  seqlab cost runs/mine --batch 64 --budget 20000steps      the same with other ones
  seqlab cost --task classify --model lstm --classes 5 --length 300
  seqlab cost --task translate --length 40 --source-length 50 --vocab-size 8000
  seqlab cost --model transformer --attention separable --context 4096 --budget 3epochs --tokens 5000000
  seqlab cost --scaling                                     layers timed here: exponents beside the formulas
  seqlab cost --crossover --lengths 256,1024,4096           from which length on linear attention is faster here
A step that is too long to be tried is predicted from a calibration of this machine: made once, kept, --calibrate anew.
"""


def add_commands(commands: Any) -> None:
    cost: Parser = commands.add_parser(
        "cost", help="what a training costs: operations, memory, seconds", description=COST
    )
    cost.add_argument("folder", metavar="RUN", nargs="?", help="run folder; without one the settings below")
    cost.add_argument("--task", metavar="TASK", help=f"{', '.join(COSTED)} (default: lm, or that of the run)")
    cost.add_argument("--out", metavar="FILE", help="page (default: cost.html in the run folder; without a run, none)")
    for tasks, fields in cost_fields().items():
        title = "every task" if len(tasks) == len(COSTED) else " and ".join(tasks)
        add_fields(cost.add_argument_group(f"of {title}"), fields)
    machine = cost.add_argument_group("this machine")
    machine.add_argument("--calibrate", action="store_true", help="measure this machine anew (once is enough)")
    machine.add_argument("--calibration", metavar="FILE", help="calibration to use (default: the one in the cache)")
    add_flags(cost)
    add_common(cost)
    cost.set_defaults(run=cost_command, parser=cost)


def cost_command(arguments: argparse.Namespace) -> int:
    mode = mode_of(arguments, {f.name for fields in cost_fields().values() for f in fields})
    return estimate_command(arguments) if mode is None else measured_command(mode, arguments)


def estimate_command(arguments: argparse.Namespace) -> int:
    """Counted and predicted."""
    from seqlab.workflows.cost.request import check_cost

    said = given(arguments, [f for fields in cost_fields().values() for f in fields])
    where = {name: getattr(arguments, name) for name in ("task", "out", "calibration", "calibrate", "threads")}
    check_cost(arguments.folder, said=said, **where)  # wrong use is answered before torch is loaded
    from seqlab.workflows.cost.estimate import estimate_cost

    found = estimate_cost(arguments.folder, **where, reporter=TerminalReporter(), **said)
    if arguments.json:
        emit_json(found.as_json())
    else:
        print(estimate_text(found))
    return 0


def estimate_text(found: CostEstimate) -> str:
    from seqlab.workflows.cost import words

    said = [words.basis(found), words.assumed(found), words.not_measured(found)]
    parts = [words.title(found) + "\n" + "\n".join(line for line in said if line)]
    parts.append(f"{table(words.HEADER, words.rows(found))}\n({words.NOTES})")
    sentences = [words.memory(found), words.bottleneck(found), words.recompute(found)]
    parts.append("\n".join(line for line in sentences if line))
    parts.append("\n".join(_formulas(found)))
    if books := words.textbook_rows(found):
        parts.append(f"{table(words.TEXTBOOK, books)}\n({words.TEXTBOOK_NOTES})")
    parts.append("\n".join(words.prediction(found)))
    if found.page is not None:
        parts.append(f"page: {found.page}  (open it in a browser)")
    return "\n\n".join(parts)


def _formulas(found: CostEstimate) -> list[str]:
    """Operations by part, and what the symbols mean here; the page has the other formulas too."""
    from seqlab.workflows.cost import words

    what, rows = words.formulas(found)[0]
    width = max((len(name) for name, *_ in rows), default=0)
    lines = [f"  {name:<{width}}  = {formula} = {number}" for name, formula, number in rows]
    used = {symbol for _, formula, _ in rows for symbol in words.names_in(formula)}
    known = [f"  {name} = {value:,}  {meaning}" for name, value, meaning in words.symbols(found) if name in used]
    return [f"{what}:", *lines, "where", *known] if rows else []
