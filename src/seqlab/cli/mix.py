"""`seqlab lm mix`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from seqlab.cli.arguments import add_common
from seqlab.cli.terminal import TerminalReporter, emit_json, table

DESCRIPTION = """Make one model of finished runs of one text: their probabilities, mixed at every token. The weights are
fitted on the validation text. Counting and learning make different mistakes: together they make fewer.

examples:
  seqlab lm mix runs/counts runs/mine --out runs/both
  seqlab lm generate runs/both --prompt "To be"
  seqlab lm perplexity runs/counts+runs/mine --on other.txt        without keeping it
"""


def add_mix(actions: Any) -> None:
    parser = actions.add_parser("mix", help="one model of several runs of one text", description=DESCRIPTION)
    parser.add_argument("folders", nargs="+", metavar="RUN", help="run folders: one text, one split, one tokenizer")
    parser.add_argument("--out", metavar="FOLDER", help="run folder (default: runs/TEXT-mixture-1, -2, …)")
    add_common(parser)
    parser.set_defaults(run=mix, parser=parser)


def mix(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.lm.named import check_mix, runs_named

    folders: list[Path] = [folder for name in arguments.folders for folder in runs_named(name)]
    check_mix(folders, arguments.out, arguments.threads)  # wrong use is answered before torch is loaded
    from seqlab.workflows.lm.mix import mix_into
    from seqlab.workflows.lm.words import told

    run = mix_into(folders, arguments.out, threads=arguments.threads, reporter=TerminalReporter())
    final = run.final
    assert final is not None
    if arguments.json:
        emit_json(mix_json(str(run.folder), final))
    else:
        print(mix_table(final))
        print("", *told(final), sep="\n")
        print(f"\n{final['mixture']['sentence']}\ncontext: {final['context']}\nrun folder: {run.folder}")
        print(f'next: seqlab lm generate {run.folder} --prompt "..." --temperature 0.8')
    return 0


def mix_json(run: str, final: dict[str, Any]) -> dict[str, Any]:
    keys = ("seconds", "context", "validation", "test", "headline", "baselines", "mixture")
    return {"run": run} | {key: final[key] for key in keys}


def mix_table(final: dict[str, Any]) -> str:
    """The members, the worst first, and the mixture."""
    parts = [name for name in ("validation", "test") if final[name]]

    def cells(name: str, weight: str, figures: dict[str, Any]) -> list[str]:
        return [name, weight, *(f"{figures[p][key]:.4f}" for p in parts for key in ("nats_per_token", "bits_per_byte"))]

    worst_first = sorted(final["mixture"]["members"], key=lambda member: -member[parts[-1]]["bits_per_byte"])
    rows = [cells(member["name"], f"{member['weight']:.2f}", member) for member in worst_first]
    header = ["", "weight", *(f"{part} {unit}" for part in parts for unit in ("nats/token", "bits/byte"))]
    return table(header, [*rows, cells("mixture", "", final)])
