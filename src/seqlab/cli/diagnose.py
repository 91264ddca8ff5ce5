"""`seqlab diagnose gradients`."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from seqlab.cli.arguments import Parser, add_common, add_fields, given
from seqlab.cli.terminal import TerminalReporter, emit_json, table
from seqlab.core.settings.diagnose import GradientSettings

GRADIENTS = """How far back the gradient reaches: its growth per step, a verdict, remedies, and a page with pictures.

examples:
  seqlab diagnose gradients runs/mine                          on the run's own validation text
  seqlab diagnose gradients runs/mine --text other.txt --length 100
  seqlab diagnose gradients --model rnn --init uniform --try   an untrained model, and what each remedy does to it
  seqlab diagnose gradients --model rnn,gru,lstm,attentive-rnn,transformer --out all.html
"""
FIELDS = dataclasses.fields(GradientSettings)


def add_commands(commands: Any) -> None:
    diagnose: Parser = commands.add_parser(
        "diagnose",
        help="why it learns, or not: gradients",
        description="What happens inside a model.\n\nexample:\n  seqlab diagnose gradients runs/mine",
    )
    diagnose.set_defaults(parser=diagnose)
    actions = diagnose.add_subparsers(metavar="ACTION", parser_class=Parser)
    gradients = actions.add_parser("gradients", help="how far back the gradient reaches", description=GRADIENTS)
    gradients.add_argument("folder", metavar="RUN", nargs="?", help="run folder of a language model")
    gradients.add_argument("--text", metavar="FILE", help="text to read (default: the run's own validation text)")
    add_fields(gradients, FIELDS)
    gradients.add_argument("--try", dest="try_each", action="store_true", help="measure what each remedy does")
    gradients.add_argument("--out", metavar="FILE", help="page (default: gradients.html in the run folder, or here)")
    add_common(gradients)
    gradients.set_defaults(run=gradients_command, parser=gradients)


def gradients_command(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.diagnose.gradients import diagnose_gradients
    from seqlab.workflows.diagnose.words import HEADER, THRESHOLDS, TRIED, sentence, tried_rows, verdict_rows

    found = diagnose_gradients(
        arguments.folder,
        text=arguments.text,
        try_each=arguments.try_each,
        out=arguments.out,
        threads=arguments.threads,
        reporter=TerminalReporter(),
        **given(arguments, FIELDS),
    )
    if arguments.json:
        emit_json(found.as_json())
        return 0
    print(f"{found.basis}\n")
    print(table(HEADER, verdict_rows(found.models), left=3))
    print(f"({THRESHOLDS})\n")
    for model in found.models:
        print(sentence(model))
        for cure in found.cures[model.name]:
            print(f"  {cure.name}: {cure.why}")
    for name, rows in found.tried.items():
        print(f"\n{name}, untrained, with each remedy:")
        print(table(TRIED, tried_rows(rows), left=2))
    print(f"\npage: {found.page}  (open it in a browser)")
    return 0
