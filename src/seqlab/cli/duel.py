"""`seqlab lm compare`."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from seqlab.cli.arguments import add_common, add_fields, add_settings, given, given_settings
from seqlab.cli.terminal import emit_json, reporter_for, table
from seqlab.core.settings.duel import LM_RULES, DuelSettings
from seqlab.core.settings.lm import LMSettings

DUEL = dataclasses.fields(DuelSettings)

COMPARE = """Let models of equal budget compete on a text: sizes solved for, several seeds each, intervals and a paired
test on text that none has seen, and a sentence that names the winner or says that there is none.

examples:
  seqlab lm compare my.txt --models lstm,transformer,gru --budget 60s --match parameters --seeds 3
  seqlab lm compare my.txt --models lstm,gru,ngram --budget 2000steps --match flops
  seqlab lm compare my.txt --models lstm,gru --seeds 5          the same duel with more seeds goes on from the first
After Ctrl-C the same command goes on where it was.

--match parameters   the others get the width at which they have as many parameters as the first model
--match flops        the others get the width at which a token costs as much as for the first, and as many tokens
--match time         every model has the sizes that suit the budget, and the whole budget
The settings below hold for every model that has them; --width, unless times are matched, for the first alone.
"""


def add_compare(actions: Any) -> None:
    parser = actions.add_parser("compare", help="let models compete on equal terms", description=COMPARE)
    parser.add_argument("text", help="text file, folder, .gz/.bz2/.xz, '-' or a corpus (see 'seqlab data list')")
    duel = parser.add_argument_group("duel")
    add_fields(duel, DUEL)
    duel.add_argument("--out", metavar="FOLDER", help="folder of the duel (default: runs/compare-TEXT-1, -2, …)")
    add_settings(parser, LMSettings, without=("text",), hidden=LM_RULES.elsewhere)
    add_common(parser)
    parser.set_defaults(run=compare, parser=parser)


def compare(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.duel.request import check_compare

    asked = given(arguments, DUEL)
    said = given_settings(arguments, LMSettings)
    text = said.pop("text")
    check_compare(text, asked, said, arguments.out, arguments.threads)  # wrong use is answered before torch is loaded
    reporter = reporter_for(f"comparing on {text}")
    from seqlab.workflows.duel.lm import compare_lms

    duel = compare_lms(text, **asked, out=arguments.out, threads=arguments.threads, reporter=reporter, **said)
    return show_duel(duel, as_json=arguments.json)


def show_duel(duel: Any, *, as_json: bool) -> int:
    """Answer the command; an interrupted duel has said so already."""
    if as_json:
        emit_json(duel.as_json())
    elif duel.finished:
        print(duel_text(duel))
    return 0


def duel_text(duel: Any) -> str:
    """Tables, notes and the sentence."""
    from seqlab.workflows.duel.report import PAIR_HEADER, model_header, model_rows, pair_rows

    parts = [table(model_header(duel.terms), model_rows(duel))]
    if duel.comparisons:
        rows = pair_rows(duel)
        parts.append(table(PAIR_HEADER[:-1], [row[:-1] for row in rows]))
        parts.append("\n".join(f"{pair}: {verdict}." for pair, *_, verdict in rows))
    parts.append("\n".join(f"{note}." for note in duel.notes))
    parts.append(duel.sentence)
    parts.append(f"folder: {duel.folder}  (open report.html in a browser; curves.png, models.csv, pairs.csv)")
    return "\n\n".join(parts)
