"""`seqlab lm perplexity`: the sheet."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from typing import Any

from seqlab.cli.arguments import add_common, add_fields, given
from seqlab.cli.terminal import TerminalReporter, emit_json, reporter_for, table
from seqlab.core.errors import SeqlabError, UsageError
from seqlab.core.files import check_targets
from seqlab.core.settings.fields import check_group, dashed
from seqlab.core.settings.heat import HeatSettings
from seqlab.core.settings.lm import MATRIX_DEFAULTS
from seqlab.core.units import CHANCE, human_perplexity

HEAT = dataclasses.fields(HeatSettings)
MATRIX_ONLY = ("out", *MATRIX_DEFAULTS)
NOT_WITH_MATRIX = ("on", "hf", "normalise", "heat_range", "csv", "csv_blocks", "context", "reading_on", "glob")

DESCRIPTION = """Measure trained models on texts: perplexity in every unit, bits per byte with a 95 % interval,
paired tests between models. Every token is counted once; unknown words pay for their spelling.

examples:
  seqlab lm perplexity runs/mine --on other.txt
  seqlab lm perplexity runs/words runs/chars --on play.txt article.txt
  seqlab lm perplexity runs/a+runs/b runs/a --on other.txt                    two runs of one text mixed, beside one
  seqlab lm perplexity runs/mine --on article.txt --normalise digits,prose    what undoing it costs is counted
  seqlab lm perplexity runs/mine --hf folder --on other.txt                   beside a Hugging Face model
  seqlab lm perplexity runs/mine --on other.txt --html heat.html --csv tokens.csv --csv-blocks blocks.csv
  seqlab lm perplexity runs/mine --on other.txt --context 512                 longer than it was trained with
  seqlab lm perplexity runs/mine --on other.txt --reading-on                  beside compressors: what they do, too
  seqlab lm perplexity --matrix shakespeare wikipedia-sample --budget 60s     every domain's model on every domain
"""


def add_perplexity(actions: Any) -> None:
    parser = actions.add_parser("perplexity", help="measure models on texts", description=DESCRIPTION)
    parser.add_argument(
        "folders",
        nargs="*",
        metavar="RUN",
        help="run folders, or several with + between: mixed (with --matrix also texts)",
    )
    parser.add_argument("--on", nargs="+", metavar="TEXT", help="texts, as for 'seqlab lm train'")
    parser.add_argument("--hf", nargs="+", default=[], metavar="FOLDER", help="Hugging Face causal models, from disk")
    parser.add_argument("--normalise", default="", metavar="STEPS", help="normalise the texts first: lower,digits,…")
    parser.add_argument(
        "--baselines",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="an n-gram and compressors beside them, fitted to the same training text (default: yes)",
    )
    parser.add_argument(
        "--html", metavar="FILE", help="page: every token coloured by its surprisal; of --matrix its own"
    )
    add_fields(parser, HEAT)
    parser.add_argument("--csv", metavar="FILE", help="every token with its byte span and its surprisal")
    parser.add_argument("--csv-blocks", metavar="FILE", help="every block that the intervals rest on, and its figure")
    parser.add_argument("--encoding", default="utf-8", help="encoding of the texts (default: utf-8)")
    parser.add_argument("--glob", default="", metavar="PATTERNS", help="files of folders to read: '*.py,docs/*.md'")
    parser.add_argument(
        "--context",
        type=int,
        metavar="TOKENS",
        help="tokens that a run reads at a time, shorter or longer than it was trained with (default: as trained)",
    )
    parser.add_argument(
        "--reading-on",
        action="store_true",
        help="every model also as it goes on learning from the text that it reads, as compressors do",
    )
    matrix = parser.add_argument_group("domains against each other")
    matrix.add_argument("--matrix", action="store_true", help="every domain's model on every domain's held-out text")
    matrix.add_argument("--out", metavar="FOLDER", help="where --matrix puts runs and pictures")
    for name, value in MATRIX_DEFAULTS.items():
        matrix.add_argument(f"--{name}", metavar=name.upper(), help=f"to train on texts (default: {value})")
    add_common(parser)
    parser.set_defaults(run=perplexity, parser=parser)


def perplexity(arguments: argparse.Namespace) -> int:
    if arguments.matrix:
        return matrix(arguments)
    for name in MATRIX_ONLY:
        if getattr(arguments, name) is not None:
            raise UsageError(f"--{name} belongs to --matrix; leave it out")
    check_targets({"--html": arguments.html, "--csv": arguments.csv, "--csv-blocks": arguments.csv_blocks})
    _check_heat(arguments)
    from seqlab.workflows.sheet.request import check_sheet

    asked = (arguments.folders, arguments.hf, arguments.on, arguments.normalise)
    check_sheet(*asked, arguments.encoding, arguments.glob, arguments.threads)
    reporter = reporter_for("measuring")
    from seqlab.workflows.sheet.sheet import perplexity_sheet

    sheet = perplexity_sheet(
        arguments.folders,
        arguments.on,
        hf=arguments.hf,
        normalise=arguments.normalise,
        baselines=arguments.baselines,
        encoding=arguments.encoding,
        glob=arguments.glob,
        context=arguments.context,
        reading_on=arguments.reading_on,
        threads=arguments.threads,
        reporter=reporter,
    )
    for note in sheet.notes:
        reporter.warn(note)
    failed = _write_files(arguments, sheet, reporter)
    if arguments.json:
        error = {} if failed is None else {"error": str(failed)}
        emit_json(sheet_json(sheet.rows, sheet.comparisons) | error)
    else:
        print(sheet_text(sheet.rows, sheet.comparisons))
    if failed is not None:  # the sheet itself is not lost
        failed.answered = arguments.json
        raise failed
    return 0


def _check_heat(arguments: argparse.Namespace) -> None:
    asked = given(arguments, HEAT)
    check_group(HeatSettings(**asked))
    if asked and not arguments.html:
        raise UsageError("--heat-range is about the colours of --html; give --html FILE too, or leave it out")


def _write_files(arguments: argparse.Namespace, sheet: Any, reporter: TerminalReporter) -> SeqlabError | None:
    """The files that were asked for; what kept one of them from being written."""
    from seqlab.workflows.sheet.csv_file import write_blocks_csv, write_csv
    from seqlab.workflows.sheet.heat_pages import write_pages

    try:
        if arguments.csv:
            write_csv(arguments.csv, sheet.scored)
            reporter.note(f"tokens: {arguments.csv}")
        if arguments.csv_blocks:
            write_blocks_csv(arguments.csv_blocks, sheet.scored)
            reporter.note(f"blocks: {arguments.csv_blocks}")
        if arguments.html:
            for page in write_pages(arguments.html, sheet.scored, **given(arguments, HEAT)):
                reporter.note(f"heat map {page}")
    except SeqlabError as error:
        return error
    return None


def matrix(arguments: argparse.Namespace) -> int:
    for name in NOT_WITH_MATRIX:
        if getattr(arguments, name, None):
            raise UsageError(
                f"--{dashed(name)} does not go with --matrix, which scores each domain's own held-out text"
            )
    from seqlab.workflows.sheet.request import check_matrix

    flags = {name: value for name in MATRIX_DEFAULTS if (value := getattr(arguments, name)) is not None}
    flags["encoding"] = arguments.encoding
    check_matrix(arguments.folders, flags, arguments.threads)
    check_targets({"--html": arguments.html})
    reporter = reporter_for("measuring domains")
    from seqlab.workflows.sheet.matrix import domain_matrix

    how = {"out": arguments.out, "html": arguments.html, "threads": arguments.threads, "reporter": reporter}
    found = domain_matrix(arguments.folders, **how, **flags)
    for note in found.sheet.notes:
        reporter.warn(note)
    if arguments.json:
        emit_json(sheet_json(found.sheet.rows, found.sheet.comparisons) | {"matrix": found.as_json()})
    else:
        print(matrix_text(found.as_json()))
    return 0


def matrix_text(found: dict[str, Any]) -> str:
    """Domain × domain, then what each gap consists of."""
    names = found["domains"]
    cells = [[name, *(f"{x:.4f}" for x in row)] for name, row in zip(names, found["bits_per_byte"], strict=True)]
    grid = table(["model trained on \\ text read", *names], cells)
    if not found["gaps"]:
        return grid
    classes = list(found["gaps"][0]["shares"])
    rows = [
        [gap["trained_on"], gap["text"], f"{gap['gap']:.4f}", _range(gap["interval"], ".4f")]
        + [f"{gap['shares'][name]:.4f}" for name in classes]
        for gap in found["gaps"]
    ]
    gaps = table(["trained on", "reads", "gap", "95 % interval", *classes], rows, left=2)
    pictures = "\n".join(f"picture: {path}" for path in found["pictures"])
    return "\n\n".join(
        [
            f"bits per byte on held-out text\n{grid}",
            f"the gap to the text's own model, and its shares (bits per byte)\n{gaps}",
            "\n".join(dict.fromkeys(f"{gap['text']}: {gap['about']}." for gap in found["gaps"])),
            f"method: {found['method']}",
            f"{pictures}\npage: {found['page']}  (open it in a browser)",
        ]
    )


def sheet_json(rows: list[dict[str, Any]], comparisons: list[dict[str, Any]]) -> dict[str, Any]:
    """The models that were named, and apart from them the baselines that came along."""
    own, simple = ({"rows": [r for r in rows if r["baseline"] is b]} for b in (False, True))
    for part, baseline in ((own, False), (simple, True)):
        part["comparisons"] = [c for c in comparisons if c["baseline"] is baseline]
    return own | {"baselines": simple}


def sheet_text(rows: list[dict[str, Any]], comparisons: list[dict[str, Any]]) -> str:
    """The whole sheet as a person reads it."""
    parts = [sheet_table(rows), f"95 % intervals\n{interval_table(rows)}", *_what_they_speak_of(rows)]
    if any(row["raw_bits_per_byte"] for row in rows):
        parts.append(f"what normalisation hides (bits per byte of the original text)\n{honesty_table(rows)}")
    parts += [row["normalisation"] + "." for row in rows if row["normalisation"]]
    parts += [c["sentence"] + "." for c in comparisons]
    bounds = {f"{row['model']}: {row['bound']}." for row in rows if row["rank"] and row["bound"] != "exact"}
    parts += sorted(bounds)
    contexts = dict.fromkeys(f"context of {row['model']}: {row['context']}." for row in rows)
    mixtures = dict.fromkeys(f"{row['model']}: {row['mixture']['sentence']}." for row in rows if row["mixture"])
    parts.append("\n".join([*mixtures, *contexts, "Every token is counted once."]))
    return "\n\n".join([*parts, *ranking(rows, comparisons)])


def ranking(rows: list[dict[str, Any]], comparisons: list[dict[str, Any]]) -> list[str]:
    """The last word, where there is something to rank: of each text all models, best first, in a line."""
    undecided = {(c["text"], frozenset((c["a"], c["b"]))) for c in comparisons if c["p"] >= CHANCE}
    lines = []
    for text in dict.fromkeys(row["text"] for row in rows):
        ranked = [row for row in rows if row["text"] == text and row["rank"]]
        words = "".join(_ranked(row) for row in ranked[:1])
        for before, row in itertools.pairwise(ranked):
            alike = (text, frozenset((before["model"], row["model"]))) in undecided
            words += f"{' ≈ ' if alike else ', '}{_ranked(row)}"
        if len(ranked) > 1:
            lines.append(f"{text}: {words}")
    return ["\n".join(["best first, in bits/byte (≈: may be chance)", *lines])] if lines else []


def _ranked(row: dict[str, Any]) -> str:
    return f"{row['rank']}. {row['model']} {row['bits_per_byte']:.4f}"


def _what_they_speak_of(rows: list[dict[str, Any]]) -> list[str]:
    """What the intervals of each text hold for, once for each text: in the words of its least sure row."""
    least_sure: dict[str, dict[str, Any]] = {}
    for row in rows:
        before = least_sure.get(row["text"])
        if row["about"] and (before is None or row["correlation"] > before["correlation"]):
            least_sure[row["text"]] = row
    return ["\n".join(f"{text}: {row['about']}." for text, row in least_sure.items())]


SHEET = (
    ("tokens", "tokens", ",d"),
    ("unknown", "unknown_rate", ".2%"),
    ("nats/token", "nats_per_token", ".4f"),
    ("ppl/token", "perplexity_per_token", ""),
    ("ppl/word", "perplexity_per_word", ""),
    ("ppl/char", "perplexity_per_character", ""),
    ("bits/char", "bits_per_character", ".4f"),
    ("bits/byte", "bits_per_byte", ".4f"),
)
INTERVALS = (
    ("ppl/token", "perplexity_per_token", ""),
    ("ppl/word", "perplexity_per_word", ""),
    ("ppl/char", "perplexity_per_character", ""),
    ("bits/char", "bits_per_character", ".4f"),
)


def _names(row: dict[str, Any]) -> list[str]:
    rank = "closed" if row["closed_vocabulary"] else f"{row['rank']}."
    return [rank, row["model"], row["text"]]


def sheet_table(rows: list[dict[str, Any]]) -> str:
    def cells(row: dict[str, Any]) -> list[str]:
        return _names(row) + ["–" if row[key] is None else _written(row[key], form) for _, key, form in SHEET]

    return table(["rank", "model", "text", *(label for label, _, _ in SHEET)], [cells(row) for row in rows], left=3)


def interval_table(rows: list[dict[str, Any]]) -> str:
    def cells(row: dict[str, Any]) -> list[str]:
        others = [_range(row["intervals"][key], form) for _, key, form in INTERVALS]
        return [*_names(row), *others, _range(row["interval"], ".4f"), f"{row['blocks']:,} × {row['block_bytes']:,}"]

    header = ["rank", "model", "text", *(label for label, _, _ in INTERVALS), "bits/byte", "blocks × bytes"]
    return table(header, [cells(row) for row in rows if row["interval"]], left=3)


def honesty_table(rows: list[dict[str, Any]]) -> str:
    keys = ("raw_bits_per_byte", "flattering_bits_per_byte", "restoration_bits_per_byte", "bits_per_byte")
    header = ["rank", "model", "text", "raw", "normalised", "to restore", "honest total"]
    shown = [row for row in rows if row["restoration_bits_per_byte"] and row["raw_bits_per_byte"]]
    return table(header, [_names(row) + [f"{row[key]:.4f}" for key in keys] for row in shown], left=3)


def _range(ends: list[float | None], form: str) -> str:
    return "–" if ends[0] is None else " – ".join(_written(end, form) for end in ends if end is not None)


def _written(value: float, form: str) -> str:
    """As the form says; without one it is a perplexity."""
    return format(value, form) if form else human_perplexity(value)
