"""`seqlab classify train|predict|report|compare`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import Any

from seqlab.cli.arguments import Parser, add_common, add_fields, add_run_folder, add_settings, given, given_settings
from seqlab.cli.duel import show_duel
from seqlab.cli.terminal import TerminalReporter, emit_json, reporter_for, table, typed_lines
from seqlab.core.errors import UsageError
from seqlab.core.settings.classify import CLASSIFY_RULES, PRESETS, ClassifierDuelSettings, ClassifySettings
from seqlab.core.settings.fields import dashed
from seqlab.core.units import human_p, human_seconds, number_of

TRAIN = """Train a text classifier on labelled texts, measure it, and compare it with three baselines.

examples:
  seqlab classify train imdb --out runs/imdb
  seqlab classify train my.csv --text review --label stars         .tsv and .jsonl too; several columns: title,body
  seqlab classify train letters/                                   a folder with one folder of .txt files per label
  seqlab classify train my.csv --model lstm --budget 10m --balance
  seqlab classify train short.csv --vectors glove-6b-50d           word vectors help on short texts
  seqlab classify train --out runs/imdb --resume                   go on after Ctrl-C, a crash or with a longer --budget
"""
PREDICT = """Decide new texts with a trained classifier.

examples:
  seqlab classify predict runs/imdb "not half bad, good B-movie fun"
  seqlab classify predict runs/imdb --file new.csv --text review --json
  cat lines.txt | seqlab classify predict runs/imdb                line by line, as they come
"""
REPORT = """Examine a classifier's errors and write one self-contained page.

The data are read again; slices, challenge set, the most confident mistakes with the words that pushed them, and
causes that a test on the model supports.

example:
  seqlab classify report runs/imdb
"""
COMPARE = """Let classifiers of the same time budget compete on labelled texts: several seeds each, intervals and a
paired test on texts that none has seen, and a sentence that names the winner or says that there is none.

examples:
  seqlab classify compare imdb --models average,lstm,transformer --seeds 3 --budget 5m
  seqlab classify compare my.csv --text review --label stars --models average,gru --budget 60s
After Ctrl-C the same command goes on where it was; with more --seeds it goes on from a finished duel. The settings
below hold for every model that has them.
"""
DUEL = [f for f in dataclasses.fields(ClassifierDuelSettings) if f.name != "match"]


def add_commands(commands: Any) -> None:
    classify: Parser = commands.add_parser(
        "classify",
        help="text classifiers: train, predict, report, compare",
        description="Text classifiers.\n\nexample:\n  seqlab classify train my.csv --text review --label stars",
    )
    classify.set_defaults(parser=classify)
    actions = classify.add_subparsers(metavar="ACTION", parser_class=Parser)
    _add_train(actions)
    _add_predict(actions)
    _add_report(actions)
    _add_compare(actions)


# --------------------------------------------------------------------------- train


def _add_train(actions: Any) -> None:
    parser = actions.add_parser("train", help="train on labelled texts", description=TRAIN, epilog=_presets())
    parser.add_argument("data", nargs="?", help=".csv, .tsv, .jsonl (also .gz …), a folder per label, '-' or a corpus")
    add_run_folder(parser, "runs/DATA-MODEL")
    add_settings(parser, ClassifySettings, without=("data",))
    add_common(parser)
    parser.set_defaults(run=train, parser=parser)


def _presets() -> str:
    """What each kind takes unless told otherwise, for `--help`."""
    rows = ["what each model takes, if you do not say:"]
    for kind, preset in PRESETS.items():
        rows.append(f"  {kind:<12}" + ", ".join(f"{dashed(name)} {value}" for name, value in preset.items()))
    return "\n".join(rows)


def train(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.classify.request import check_train

    said = given_settings(arguments, ClassifySettings)
    how = {key: getattr(arguments, key) for key in ("out", "resume", "config", "threads")}
    check_train(said, **how)  # wrong use is answered before torch is loaded
    reporter = reporter_for(f"training on {said.get('data') or how['out'] or how['config']}")
    from seqlab.workflows.classify.measure import what_to_try
    from seqlab.workflows.classify.train import train_classifier

    run = train_classifier(**said, **how, reporter=reporter)
    final = run.final
    if arguments.json:
        emit_json(train_json(run, final))
    elif final is not None:
        print(final_table(run.settings.model.kind, final))
        print()
        for sentence in final["verdict"]:
            print(f"{sentence}.")
        if (hint := what_to_try(final, run.record["texts"]["train"])) is not None:
            print(f"{hint}.")
        print(f"\n{_outcome(final)}\nrun folder: {run.folder}  (open report.html in a browser)")
        print(f"next: seqlab classify report {run.folder}     its errors, examined")
    return 0


def train_json(run: Any, final: dict[str, Any] | None) -> dict[str, Any]:
    if final is None:
        return {"run": str(run.folder), "interrupted": True}
    kept = ("outcome", "step", "best_step", "seconds", "texts", "temperature", "validation", "test", "baselines")
    return {"run": str(run.folder), "interrupted": False, **{key: final[key] for key in kept}}


def final_table(model: str, final: dict[str, Any]) -> str:
    part = "test" if final["test"] else "validation"
    figures = final[part]
    rows = [[model, _percent(figures["accuracy"]), _interval(figures["interval"]), "", f"{figures['macro_f1']:.3f}"]]
    for row in final["baselines"]:
        if row["accuracy"] is None:
            rows.append([row["name"], "–", row["reason"], "", ""])
        else:
            p = human_p(row["mcnemar_p"]).removeprefix("p ").removeprefix("= ")
            rows.append([row["name"], _percent(row["accuracy"]), _interval(row["interval"]), p, ""])
    header = [f"on {figures['n']:,} {part} texts", "accuracy %", "95 % interval", "p (McNemar, Holm)", "macro F1"]
    return table(header, rows)


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _interval(limits: list[float]) -> str:
    return f"{100 * limits[0]:.2f} to {100 * limits[1]:.2f}"


def _outcome(final: dict[str, Any]) -> str:
    return (
        f"{final['outcome']} after {number_of(final['step'], 'step')}, {number_of(final['texts'], 'text')}, "
        f"{human_seconds(final['seconds'])}; best weights from step {final['best_step']:,}"
    )


# --------------------------------------------------------------------------- predict


def _add_predict(actions: Any) -> None:
    parser = actions.add_parser("predict", help="decide new texts", description=PREDICT)
    parser.add_argument("folder", metavar="RUN", help="run folder")
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="texts to decide (none: standard input, line by line)")
    parser.add_argument(
        "--file", metavar="FILE", help="a table, or a .txt with one text on each line; '-': lines of standard input"
    )
    parser.add_argument("--text", metavar="COLUMN", help="column of the texts in --file")
    parser.add_argument("--encoding", default="utf-8", help="encoding of --file (default: utf-8)")
    add_common(parser)
    parser.set_defaults(run=predict, parser=parser, rest="texts")


def predict(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.classify.request import check_run

    if arguments.texts and arguments.file:
        raise UsageError("texts and --file both say what to decide; give one of them")
    if arguments.text and not arguments.file:
        raise UsageError("--text names a column of --file; give --file too")
    check_run(arguments.folder, arguments.threads)
    if arguments.file == "":
        raise UsageError("--file names no file; give a table, a .txt or '-'")
    if not arguments.texts and not arguments.file and not arguments.json:
        return _predict_lines(arguments)
    from seqlab.workflows.classify.predict import given_or_read, predict_texts

    reporter = TerminalReporter()
    source = arguments.file or (None if arguments.texts else "-")
    texts = given_or_read(arguments.texts, source, arguments.text, arguments.encoding, reporter)
    found = predict_texts(arguments.folder, texts, threads=arguments.threads, reporter=reporter)
    if arguments.json:
        emit_json({"predictions": [{"label": one.label, "probabilities": one.probabilities} for one in found]})
    else:
        for one in found:
            print(_line(one))
    return 0


def _predict_lines(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.classify.predict import predict_lines

    if sys.stdin is None:
        raise UsageError("there is no standard input to read; give a text or --file")
    for one in predict_lines(arguments.folder, typed_lines(sys.stdin.buffer), threads=arguments.threads):
        print(_line(one), flush=True)
    return 0


def _line(one: Any) -> str:
    """One line whatever the label: white space in it, a newline too, becomes a space."""
    return f"{' '.join(one.label.split())}\t{one.probabilities[one.label]:.4f}"


# --------------------------------------------------------------------------- report


def _add_report(actions: Any) -> None:
    parser = actions.add_parser("report", help="examine the errors, write a page", description=REPORT)
    parser.add_argument("folder", metavar="RUN", help="run folder")
    parser.add_argument("--data", metavar="DATA", help="where the data lie now, if they were moved")
    add_common(parser)
    parser.set_defaults(run=report, parser=parser)


def report(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.classify.request import check_run

    check_run(arguments.folder, arguments.threads)
    if arguments.data == "":
        raise UsageError("--data names nothing; say where the data lie now")
    from seqlab.workflows.classify.whole_report import report_classifier

    run, errors = report_classifier(
        arguments.folder, data=arguments.data, threads=arguments.threads, reporter=TerminalReporter()
    )
    from seqlab.workflows.classify.errors_words import findings

    found = findings(errors, run.labels)
    if arguments.json:
        page = {"run": str(run.folder), "page": str(run.files.report_file)}
        emit_json(page | {"findings": [line.strip() for line in found], "errors": errors.as_json()})
    else:
        print("\n".join(found))
        print(f"\npage: {run.files.report_file}  (open it in a browser)")
    return 0


# --------------------------------------------------------------------------- compare


def _add_compare(actions: Any) -> None:
    parser = actions.add_parser("compare", help="let classifiers compete on equal terms", description=COMPARE)
    parser.add_argument("data", help=".csv, .tsv, .jsonl (also .gz …), a folder per label, '-' or a corpus")
    duel = parser.add_argument_group("duel")
    add_fields(duel, DUEL)
    duel.add_argument("--out", metavar="FOLDER", help="folder of the duel (default: runs/compare-DATA-1, -2, …)")
    add_settings(parser, ClassifySettings, without=("data",), hidden=CLASSIFY_RULES.elsewhere)
    add_common(parser)
    parser.set_defaults(run=compare, parser=parser)


def compare(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.duel.request import check_compare_classifiers

    asked = given(arguments, DUEL)
    said = given_settings(arguments, ClassifySettings)
    data = said.pop("data")
    check_compare_classifiers(data, asked, said, arguments.out, arguments.threads)  # before torch is loaded
    how = {"out": arguments.out, "threads": arguments.threads, "reporter": reporter_for(f"comparing on {data}")}
    from seqlab.workflows.duel.classify import compare_classifiers

    return show_duel(compare_classifiers(data, **asked, **how, **said), as_json=arguments.json)
