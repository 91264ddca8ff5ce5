"""`seqlab translate train|run|evaluate|compare`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import Any

from seqlab.cli.arguments import Parser, add_common, add_fields, add_run_folder, add_settings, given, given_settings
from seqlab.cli.duel import show_duel
from seqlab.cli.terminal import TerminalReporter, emit_json, reporter_for, table, typed_lines
from seqlab.core.errors import UsageError
from seqlab.core.settings.fields import dashed
from seqlab.core.settings.translate import (
    PRESETS,
    TRANSLATE_RULES,
    TranslateSettings,
    TranslatorDuelSettings,
    names_in,
)
from seqlab.core.units import human_seconds, number_of

TRAIN = """Train a translator on sentences with their translations, measure it, and compare it with copying the source.

examples:
  seqlab translate train pairs.tsv --budget 1h                     a header names the columns: source, then targets
  seqlab translate train pairs.csv --source en --to de,fr          .jsonl too
  seqlab translate train src.txt tgt.txt                           line k of one translates line k of the other
  seqlab translate train bible-kjv --to bible-web,bible-bbe --out runs/bible
  seqlab translate train --out runs/bible --resume                 go on after Ctrl-C, a crash or with a longer --budget
"""
RUN = """Translate sentences: encoded once, decoded into every target that is named.

examples:
  seqlab translate run runs/bible --to bible-web,bible-bbe "And God said, Let there be light: and there was light."
  seqlab translate run runs/bible --to bible-web --file verses.txt
  cat verses.txt | seqlab translate run runs/bible --to bible-web  line by line, as they come
"""
EVALUATE = """Translate the held-out sentences of a run and score them: BLEU and chrF with signatures and intervals,
beside copying the source.

examples:
  seqlab translate evaluate runs/bible
  seqlab translate evaluate runs/bible --against runs/other --beam 1
"""


COMPARE = """Let translators of the same time budget compete: several seeds each, intervals and a paired test on
sentence pairs that none has seen, and a sentence that names the winner or says that there is none.

example:
  seqlab translate compare pairs.tsv --models transformer,gru --budget 10m --seeds 3
After Ctrl-C the same command goes on where it was; with more --seeds it goes on from a finished duel. The settings
below hold for every model that has them.
"""
DUEL = [f for f in dataclasses.fields(TranslatorDuelSettings) if f.name != "match"]


def add_commands(commands: Any) -> None:
    translate: Parser = commands.add_parser(
        "translate",
        help="translators: train, run, evaluate, compare",
        description="Translators.\n\nexample:\n  seqlab translate train pairs.tsv --budget 1h",
    )
    translate.set_defaults(parser=translate)
    actions = translate.add_subparsers(metavar="ACTION", parser_class=Parser)
    _add_train(actions)
    _add_run(actions)
    _add_evaluate(actions)
    _add_compare(actions)


# --------------------------------------------------------------------------- train


def _add_train(actions: Any) -> None:
    parser = actions.add_parser("train", help="train on sentence pairs", description=TRAIN, epilog=_presets())
    parser.add_argument("places", nargs="*", metavar="DATA", help="a table, text files line by line, or a corpus")
    add_run_folder(parser, "runs/DATA-MODEL")
    add_settings(parser, TranslateSettings, without=("data", "beside"))
    add_common(parser)
    parser.set_defaults(run=train, parser=parser, rest="places")


def _presets() -> str:
    """What each size takes unless told otherwise, for `--help`."""
    rows = ["sizes (--size; if you do not say: small below 5 min, medium below 2 h, then large):"]
    for kind, sizes in PRESETS.items():
        for size, preset in sizes.items():
            shown = ", ".join(f"{dashed(name)} {value}" for name, value in preset.items())
            rows.append(f"  {kind:<13}{size:<8}{shown}")
    return "\n".join(rows)


def train(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.translate.request import check_train, joined_places

    said = given_settings(arguments, TranslateSettings)
    if arguments.places:
        said["data"] = arguments.places[0]
    if arguments.places[1:]:
        said["beside"] = joined_places(arguments.places[1:])
    how = {key: getattr(arguments, key) for key in ("out", "resume", "config", "threads")}
    check_train(said, **how)  # wrong use is answered before torch is loaded
    reporter = reporter_for(f"training on {said.get('data') or how['out'] or how['config']}")
    from seqlab.workflows.translate.measure import TABLE_HEADER, table_rows
    from seqlab.workflows.translate.train import train_translator

    run = train_translator(**said, **how, reporter=reporter)
    final = run.final
    if arguments.json:
        emit_json(train_json(run, final))
    elif final is not None:
        print(table(TABLE_HEADER, table_rows(final["targets"])))
        print()
        for sentence in final["verdict"]:
            print(f"{sentence}.")
        print(
            f"\n{final['outcome']} after {number_of(final['step'], 'step')}, {number_of(final['pieces'], 'piece')}, "
            f"{human_seconds(final['seconds'])}; best weights from step {final['best_step']:,}"
        )
        print(f"run folder: {run.folder}  (open report.html in a browser)")
        print(f'next: seqlab translate run {run.folder} "a sentence"')
    return 0


def train_json(run: Any, final: dict[str, Any] | None) -> dict[str, Any]:
    if final is None:
        return {"run": str(run.folder), "interrupted": True}
    kept = ("outcome", "step", "best_step", "seconds", "pieces", "validation", "test", "targets")
    return {"run": str(run.folder), "interrupted": False, **{key: final[key] for key in kept}}


# --------------------------------------------------------------------------- run


def _add_search(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("search")
    group.add_argument("--beam", type=int, default=4, metavar="N", help="hypotheses kept; 1: greedy (default: 4)")
    group.add_argument(
        "--length-penalty", type=float, default=1.0, metavar="X", help="α of Σ ln p / n^α (default: 1.0)"
    )


def _search(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"beam": arguments.beam, "length_penalty": arguments.length_penalty}


def _add_run(actions: Any) -> None:
    parser = actions.add_parser("run", help="translate sentences", description=RUN)
    parser.add_argument("folder", metavar="RUN", help="run folder")
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="sentences (none: standard input, line by line)")
    parser.add_argument("--to", default="", metavar="TARGETS", help="targets, with commas between (default: all)")
    parser.add_argument(
        "--file", metavar="FILE", help="a .txt with one sentence on each line, or a table; '-': standard input"
    )
    parser.add_argument("--text", metavar="COLUMN", help="column of the sentences in --file")
    parser.add_argument("--encoding", default="utf-8", help="encoding of --file (default: utf-8)")
    _add_search(parser)
    parser.add_argument("--n-best", type=int, default=1, metavar="N", help="translations of each sentence (default: 1)")
    parser.add_argument(
        "--temperature", type=float, default=0.0, metavar="X", help="above 0: draw instead of searching (default: 0)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of what is drawn (default: 0)")
    add_common(parser)
    parser.set_defaults(run=run, parser=parser, rest="texts")


def run(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.translate.request import check_run

    if arguments.texts and arguments.file is not None:
        raise UsageError("sentences and --file both say what to translate; give one of them")
    if arguments.text and not arguments.file:
        raise UsageError("--text names a column of --file; give --file too")
    if arguments.file == "":
        raise UsageError("--file names no file; give a .txt, a table or '-'")
    if arguments.temperature and arguments.n_best > 1:
        raise UsageError("--n-best goes with --beam; leave it out where --temperature draws")
    to = names_in(arguments.to)
    check_run(arguments.folder, arguments.threads, to)
    how = _search(arguments) | {
        "n_best": arguments.n_best,
        "temperature": arguments.temperature,
        "seed": arguments.seed,
    }
    if not arguments.texts and arguments.file is None and not arguments.json:
        return _run_lines(arguments, to, how)
    from seqlab.workflows.translate.translate import given_or_read, translate_sentences

    reporter = TerminalReporter()
    place = arguments.file or (None if arguments.texts else "-")
    sources = given_or_read(arguments.texts, place, arguments.text, arguments.encoding, reporter)
    done = translate_sentences(arguments.folder, sources, to, threads=arguments.threads, reporter=reporter, **how)
    if arguments.json:
        emit_json({"translations": done.rows(), "saved": done.saved or None})
        return 0
    _print_rows(done)
    if done.saved:
        reporter.note(done.saved)
    return 0


def _run_lines(arguments: argparse.Namespace, to: list[str], how: dict[str, Any]) -> int:
    from seqlab.workflows.translate.translate import translate_lines

    if sys.stdin is None:
        raise UsageError("there is no standard input to read; give a sentence or --file")
    lines, reporter = typed_lines(sys.stdin.buffer), TerminalReporter()
    for done in translate_lines(arguments.folder, lines, to, threads=arguments.threads, reporter=reporter, **how):
        _print_rows(done)
        sys.stdout.flush()
    return 0


def _print_rows(done: Any) -> None:
    """A line for each translation; several targets are named."""
    for row in done.rows():
        for text in (row["text"], *row.get("alternatives", ())):
            print(f"{row['target']}\t{text}" if len(done.targets) > 1 else text)


# --------------------------------------------------------------------------- evaluate


def _add_evaluate(actions: Any) -> None:
    parser = actions.add_parser("evaluate", help="score held-out sentences", description=EVALUATE)
    parser.add_argument("folder", metavar="RUN", help="run folder")
    parser.add_argument("--part", default="test", metavar="PART", help="test or validation (default: test)")
    parser.add_argument("--against", metavar="RUN", help="another run, compared on the same sentences")
    parser.add_argument(
        "--data",
        metavar="DATA",
        nargs="+",
        help="where the data lie now, if they were moved (all files, in their order)",
    )
    _add_search(parser)
    add_common(parser)
    parser.set_defaults(run=evaluate, parser=parser)


def evaluate(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.translate.request import check_run

    check_run(arguments.folder, arguments.threads)
    if arguments.against is not None:
        check_run(arguments.against, arguments.threads)
    from seqlab.workflows.translate.evaluate import evaluate_translator
    from seqlab.workflows.translate.measure import TABLE_HEADER, table_rows, verdict

    named = {key: getattr(arguments, key) for key in ("part", "against", "data", "threads")}
    done = evaluate_translator(arguments.folder, **named, **_search(arguments), reporter=TerminalReporter())
    if arguments.json:
        emit_json(done.as_json())
        return 0
    found = done.as_json()["targets"]
    print(table(TABLE_HEADER, table_rows(found)))
    print()
    for sentence in [*(verdict(one) for one in done.targets), *done.sentences()]:
        print(f"{sentence}.")
    print(f"\n{found[0]['n']:,} {done.part} sentences; {found[0]['signature']}; {found[0]['chrf_signature']}")
    return 0


# --------------------------------------------------------------------------- compare


def _add_compare(actions: Any) -> None:
    parser = actions.add_parser("compare", help="let translators compete on equal terms", description=COMPARE)
    parser.add_argument("places", nargs="*", metavar="DATA", help="a table, text files line by line, or a corpus")
    duel = parser.add_argument_group("duel")
    add_fields(duel, DUEL)
    duel.add_argument("--out", metavar="FOLDER", help="folder of the duel (default: runs/compare-DATA-1, -2, …)")
    add_settings(parser, TranslateSettings, without=("data", "beside"), hidden=TRANSLATE_RULES.elsewhere)
    add_common(parser)
    parser.set_defaults(run=compare, parser=parser, rest="places")


def compare(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.duel.request import check_compare_translators
    from seqlab.workflows.translate.request import joined_places

    asked = given(arguments, DUEL)
    said = given_settings(arguments, TranslateSettings)
    first, *beside = arguments.places or [""]
    if beside:
        said["beside"] = joined_places(beside)
    check_compare_translators(first, asked, said, arguments.out, arguments.threads)  # before torch is loaded
    how = {"out": arguments.out, "threads": arguments.threads, "reporter": reporter_for(f"comparing on {first}")}
    from seqlab.workflows.duel.translate import compare_translators

    return show_duel(compare_translators(first, **asked, **how, **said), as_json=arguments.json)
