"""`seqlab lm perplexity`: the sheet."""

from __future__ import annotations

import argparse
from typing import Any

from seqlab.cli.arguments import add_common
from seqlab.cli.terminal import TerminalReporter, emit_json, table

DESCRIPTION = """Measure trained models on texts: perplexity in every unit, bits per byte with a 95 % interval,
paired tests between models. Every token is counted once; unknown words pay for their spelling.

examples:
  seqlab lm perplexity runs/mine --on other.txt
  seqlab lm perplexity runs/words runs/chars --on play.txt article.txt
  seqlab lm perplexity runs/mine --on article.txt --normalise digits,prose    what undoing it costs is counted
  seqlab lm perplexity runs/mine --hf folder --on other.txt                   beside a Hugging Face model
  seqlab lm perplexity runs/mine --on other.txt --html heat.html --csv tokens.csv
"""


def add_perplexity(actions: Any) -> None:
    parser = actions.add_parser("perplexity", help="measure models on texts", description=DESCRIPTION)
    parser.add_argument("folders", nargs="*", metavar="RUN", help="run folders")
    parser.add_argument("--on", nargs="+", required=True, metavar="TEXT", help="texts, as for 'seqlab lm train'")
    parser.add_argument("--hf", nargs="+", default=[], metavar="FOLDER", help="Hugging Face causal models, from disk")
    parser.add_argument("--normalise", default="", metavar="STEPS", help="normalise the texts first: lower,digits,…")
    parser.add_argument(
        "--baselines",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="an n-gram and compressors beside them, fitted to the same training text (default: yes)",
    )
    parser.add_argument("--csv", metavar="FILE", help="every token with its byte span and its surprisal")
    parser.add_argument("--encoding", default="utf-8", help="encoding of the texts (default: utf-8)")
    add_common(parser)
    parser.set_defaults(run=perplexity, parser=parser)


def perplexity(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.perplexity import perplexity_sheet
    from seqlab.workflows.tables import write_csv

    reporter = TerminalReporter()
    sheet = perplexity_sheet(
        arguments.folders,
        arguments.on,
        hf=arguments.hf,
        normalise=arguments.normalise,
        baselines=arguments.baselines,
        encoding=arguments.encoding,
        threads=arguments.threads,
        reporter=reporter,
    )
    for note in sheet.notes:
        reporter.warn(note)
    if arguments.csv:
        write_csv(arguments.csv, sheet.scored)
    if arguments.json:
        emit_json(sheet_json(sheet.rows, sheet.comparisons))
    else:
        print(sheet_text(sheet.rows, sheet.comparisons))
    return 0


def sheet_json(rows: list[dict[str, Any]], comparisons: list[dict[str, Any]]) -> dict[str, Any]:
    """The models that were named, and apart from them the baselines that came along."""
    own, simple = ({"rows": [r for r in rows if r["baseline"] is b]} for b in (False, True))
    for part, baseline in ((own, False), (simple, True)):
        part["comparisons"] = [c for c in comparisons if c["baseline"] is baseline]
    return own | {"baselines": simple}


def sheet_text(rows: list[dict[str, Any]], comparisons: list[dict[str, Any]]) -> str:
    """The whole sheet as a person reads it."""
    parts = [sheet_table(rows), f"95 % intervals (block bootstrap)\n{interval_table(rows)}"]
    if any(row["restoration_bits_per_byte"] for row in rows):
        parts.append(f"what normalisation hides (bits per byte of the original text)\n{honesty_table(rows)}")
    parts += [c["sentence"] + "." for c in comparisons]
    parts += _cautions(rows)
    bounds = {f"{row['model']}: {row['bound']}." for row in rows if row["rank"] and row["bound"] != "exact"}
    parts += sorted(bounds)
    contexts = dict.fromkeys(f"context of {row['model']}: {row['context']}." for row in rows)
    return "\n\n".join([*parts, "\n".join([*contexts, "Every token is counted once."])])


def _cautions(rows: list[dict[str, Any]]) -> list[str]:
    """Why not to trust the intervals; the same reason is given once for each text, with its worst case."""
    few = {row["text"]: row["caution"] for row in rows if row["caution"] and "unreliable" in row["caution"]}
    tight = [row for row in rows if row["caution"] and row["text"] not in few]
    worst = {row["text"]: row["caution"] for row in sorted(tight, key=lambda row: row["correlation"])}
    return [f"{text}: {caution}." for text, caution in (few | worst).items()]


SHEET = (
    ("tokens", "tokens", ",d"),
    ("unknown", "unknown_rate", ".2%"),
    ("nats/token", "nats_per_token", ".4f"),
    ("ppl/token", "perplexity_per_token", ".2f"),
    ("ppl/word", "perplexity_per_word", ".4g"),
    ("ppl/char", "perplexity_per_character", ".3f"),
    ("bits/char", "bits_per_character", ".4f"),
    ("bits/byte", "bits_per_byte", ".4f"),
)
INTERVALS = (
    ("ppl/token", "perplexity_per_token", ".2f"),
    ("ppl/word", "perplexity_per_word", ".4g"),
    ("ppl/char", "perplexity_per_character", ".3f"),
    ("bits/char", "bits_per_character", ".4f"),
)


def _names(row: dict[str, Any]) -> list[str]:
    rank = "closed" if row["closed_vocabulary"] else f"{row['rank']}."
    return [rank, row["model"], row["text"]]


def sheet_table(rows: list[dict[str, Any]]) -> str:
    def cells(row: dict[str, Any]) -> list[str]:
        return _names(row) + ["–" if row[key] is None else format(row[key], form) for _, key, form in SHEET]

    return table(["rank", "model", "text", *(label for label, _, _ in SHEET)], [cells(row) for row in rows], left=3)


def interval_table(rows: list[dict[str, Any]]) -> str:
    def cells(row: dict[str, Any]) -> list[str]:
        others = [_range(row["intervals"][key], form) for _, key, form in INTERVALS]
        return [*_names(row), *others, _range(row["interval"], ".4f"), f"{row['blocks']:,}"]

    header = ["rank", "model", "text", *(label for label, _, _ in INTERVALS), "bits/byte", "blocks"]
    return table(header, [cells(row) for row in rows if row["interval"]], left=3)


def honesty_table(rows: list[dict[str, Any]]) -> str:
    keys = ("flattering_bits_per_byte", "restoration_bits_per_byte", "bits_per_byte")
    header = ["rank", "model", "text", "flattering", "to restore", "honest total"]
    shown = [row for row in rows if row["restoration_bits_per_byte"]]
    return table(header, [_names(row) + [f"{row[key]:.4f}" for key in keys] for row in shown], left=3)


def _range(ends: list[float | None], form: str) -> str:
    return "–" if ends[0] is None else " – ".join(format(end, form) for end in ends if end is not None)
