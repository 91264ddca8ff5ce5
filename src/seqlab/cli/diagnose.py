"""`seqlab diagnose gradients|attention|approximation|memory|optimisers|experiment`."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from seqlab.cli.arguments import Parser, add_common, add_fields, add_settings, given, given_settings
from seqlab.cli.duel import show_duel
from seqlab.cli.terminal import TerminalReporter, emit_json, reporter_for, table
from seqlab.core.errors import UsageError
from seqlab.core.settings.diagnose import ApproximationSettings, AttentionSettings, GradientSettings, MemorySettings
from seqlab.core.settings.duel import OPTIMISER_RULES, DuelSettings
from seqlab.core.settings.experiments import EXPERIMENTS, question_of
from seqlab.core.settings.fields import dashed
from seqlab.core.settings.lm import LMSettings

GRADIENTS = """How far back the gradient reaches: its growth per step, a verdict, remedies, and a page with pictures.

examples:
  seqlab diagnose gradients runs/mine                          on the run's own validation text
  seqlab diagnose gradients runs/mine --text other.txt --length 100
  seqlab diagnose gradients --model rnn --init uniform --try   an untrained model, and what each remedy does to it
  seqlab diagnose gradients --model rnn,gru,lstm,attentive-rnn,transformer --out all.html
"""
OPTIMISERS = """What weight decay, momentum and bias correction do, measured on weights whose gradients are known, with
the predictions beside; or a duel of optimisers, each with its own tuned learning rate, on a text.

examples:
  seqlab diagnose optimisers
  seqlab diagnose optimisers --duel adamw,adam-l2,sgd,muon --on my.txt --budget 60s --seeds 3
  seqlab diagnose optimisers --duel adamw,muon --on my.txt --model transformer --width 64
After Ctrl-C the same command goes on where it was. The settings below hold for the duel's trainings.
"""
MEMORY = """How far models remember: symbols to copy and marked numbers to add over growing lags, learnt from nothing,
with the horizon of the gradient beside. The default takes some minutes.

examples:
  seqlab diagnose memory
  seqlab diagnose memory --models rnn,lstm --tasks copy --lags 10,20,50 --steps 300
"""
ATTENTION = """What every head looks at (the previous token, the first, earlier occurrences, the matching bracket …),
how evenly and how far, and by how much the loss is higher without it, with an interval; and a page with maps.

examples:
  seqlab diagnose attention runs/mine                          on the run's own held-out data
  seqlab diagnose attention runs/mine --text other.txt --length 100
  seqlab diagnose attention runs/reviews --text lines.txt      a classifier: one text a line, or a table with labels
  seqlab diagnose attention runs/bible --heads 0.1,3.2         only some heads: LAYER.HEAD
"""
APPROXIMATION = """How far separable and random-feature attention are from exact softmax, and whether they are any
nearer to it than uniform attention: over features m, logit scale, width and kind of directions, with intervals, the
theoretical variance beside the measured one; on the queries and keys of a run, or on drawn ones.

examples:
  seqlab diagnose approximation runs/mine                      every head, on the run's own held-out data
  seqlab diagnose approximation runs/mine --text other.txt --features 64,256
  seqlab diagnose approximation                                drawn queries and keys
  seqlab diagnose approximation --scales 0.1,1,10 --widths 32 --directions orthogonal --causal
"""
EXPERIMENT = """Classic experiments about attention, norms, positions and optimisers, each with its question, formula,
prediction, what was measured, an interval and whether they agree. Sizes, noise and seeds are flags.

examples:
  seqlab diagnose experiment list
  seqlab diagnose experiment copying --keys 2,100,1000 --share 0.9
  seqlab diagnose experiment noisy-length --sharpness 20 --noise 0.0005 --json
  seqlab diagnose experiment all --out lesson                  one page with all of them
"""
FIELDS = dataclasses.fields(GradientSettings)
ATTENTION_FIELDS = dataclasses.fields(AttentionSettings)
APPROXIMATION_FIELDS = dataclasses.fields(ApproximationSettings)
MEMORY_FIELDS = dataclasses.fields(MemorySettings)


def add_commands(commands: Any) -> None:
    diagnose: Parser = commands.add_parser(
        "diagnose",
        help="why it learns, or not: gradients, attention, memory, optimisers",
        description="What happens inside a model.\n\nexample:\n  seqlab diagnose gradients runs/mine",
    )
    diagnose.set_defaults(parser=diagnose)
    actions = diagnose.add_subparsers(metavar="ACTION", parser_class=Parser)
    gradients = actions.add_parser("gradients", help="how far back the gradient reaches", description=GRADIENTS)
    gradients.add_argument(
        "folder", metavar="RUN", nargs="?", help="run folder of a language model, a classifier or a translator"
    )
    gradients.add_argument("--text", metavar="FILE", help="text to read (default: the run's own validation text)")
    add_fields(gradients, FIELDS)
    gradients.add_argument("--try", dest="try_each", action="store_true", help="measure what each remedy does")
    gradients.add_argument("--out", metavar="FILE", help="page (default: gradients.html in the run folder, or here)")
    add_common(gradients)
    gradients.set_defaults(run=gradients_command, parser=gradients)
    memory = actions.add_parser("memory", help="how far models remember", description=MEMORY)
    add_fields(memory, MEMORY_FIELDS)
    memory.add_argument("--out", metavar="FILE", default="memory.html", help="page (default: memory.html)")
    add_common(memory)
    memory.set_defaults(run=memory_command, parser=memory)
    optimisers = actions.add_parser("optimisers", help="what optimisers do, and which is best", description=OPTIMISERS)
    optimisers.add_argument("--duel", metavar="NAMES", help="optimisers that compete, with commas between")
    optimisers.add_argument("--on", metavar="TEXT", help="text or corpus of the duel")
    optimisers.add_argument(
        "--seeds", type=int, metavar="N", help=f"trainings of each (default: {DuelSettings().seeds})"
    )
    optimisers.add_argument("--out", help="page of the experiments (optimisers.html), or folder of the duel")
    add_settings(optimisers, LMSettings, without=("text",), hidden=OPTIMISER_RULES.elsewhere)
    add_common(optimisers)
    optimisers.set_defaults(run=optimisers_command, parser=optimisers)
    _add_attention(actions)
    _add_approximation(actions)
    _add_experiments(actions)


def _add_attention(actions: Any) -> None:
    attention = actions.add_parser("attention", help="what each head looks at", description=ATTENTION)
    attention.add_argument("folder", metavar="RUN", help="run folder of a language model, a classifier or a translator")
    attention.add_argument("--text", metavar="FILE", help="text to read (default: the run's own held-out data)")
    add_fields(attention, ATTENTION_FIELDS)
    attention.add_argument("--out", metavar="FILE", help="page (default: attention.html in the run folder)")
    add_common(attention)
    attention.set_defaults(run=attention_command, parser=attention)


def attention_command(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.diagnose.attention import HEADER, diagnose_attention

    found = diagnose_attention(
        arguments.folder,
        text=arguments.text,
        out=arguments.out,
        threads=arguments.threads,
        reporter=TerminalReporter(),
        **given(arguments, ATTENTION_FIELDS),
    )
    if arguments.json:
        emit_json(found.as_json())
        return 0
    print(f"{found.basis}\n")
    print(table(HEADER, [row.words() for row in found.heads], left=3))
    print(f"({found.notes})\n\n{found.answer}")
    print(f"\npage: {found.page}  (open it in a browser)")
    return 0


def _add_approximation(actions: Any) -> None:
    approximation = actions.add_parser(
        "approximation", help="what linear attention is worth beside softmax", description=APPROXIMATION
    )
    approximation.add_argument(
        "folder",
        metavar="RUN",
        nargs="?",
        help="run folder of a model with attention (default: drawn queries and keys)",
    )
    approximation.add_argument("--text", metavar="FILE", help="text to read (default: the run's own held-out data)")
    add_fields(approximation, APPROXIMATION_FIELDS)
    approximation.add_argument(
        "--out", metavar="FILE", help="page (default: approximation.html in the run folder, or here)"
    )
    add_common(approximation)
    approximation.set_defaults(run=approximation_command, parser=approximation)


def approximation_command(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.diagnose import approximation_words as words
    from seqlab.workflows.diagnose.approximation import diagnose_approximation

    found = diagnose_approximation(
        arguments.folder,
        text=arguments.text,
        out=arguments.out,
        threads=arguments.threads,
        reporter=TerminalReporter(),
        **given(arguments, APPROXIMATION_FIELDS),
    )
    if arguments.json:
        emit_json(found.as_json())
        return 0
    print(f"{found.basis}\n")
    print(table(words.header(found), words.rows(found), left=3))
    print(f"({words.NOTES})\n")
    if variances := words.variance_rows(found, briefly=True):
        print(table(words.VARIANCE_HEADER, variances, left=2))
        print(f"({words.VARIANCE_NOTES})\n")
    print("\n".join([*found.sentences, words.variance_sentence(found), "", found.answer]))
    print(f"\npage: {found.page}  (open it in a browser)")
    return 0


def _add_experiments(actions: Any) -> None:
    experiment = actions.add_parser("experiment", help="classic experiments, with predictions", description=EXPERIMENT)
    experiment.set_defaults(parser=experiment)
    names = experiment.add_subparsers(metavar="NAME", parser_class=Parser)
    shown = names.add_parser("list", help="what there is", description="The experiments, one a line.")
    shown.add_argument("--json", action="store_true", help="print the result as one JSON object")
    shown.add_argument("--debug", action="store_true", help="show the whole error")
    shown.set_defaults(run=list_command, parser=shown)
    for name, asked in (("all", None), *EXPERIMENTS.items()):
        question = "all of them, on one page" if asked is None else question_of(name)
        one = names.add_parser(name, help=question, description=f"{question[:1].upper()}{question[1:]}")
        fields = [f for f in dataclasses.fields(asked or EXPERIMENTS["copying"]) if asked or f.name == "seed"]
        add_fields(one, fields)
        one.add_argument("--out", metavar="FOLDER", default=".", help="folder of the page, or a page (.html)")
        add_common(one)
        one.set_defaults(run=experiment_command, parser=one, name=name, fields=fields)


def list_command(arguments: argparse.Namespace) -> int:
    if arguments.json:
        emit_json({"experiments": {name: question_of(name) for name in EXPERIMENTS}})
        return 0
    width = max(map(len, EXPERIMENTS))
    for name in EXPERIMENTS:
        print(f"{name:{width}}  {question_of(name)}")
    return 0


def experiment_command(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.diagnose.experiments import diagnose_experiments

    everything = arguments.name == "all"
    out = Path(arguments.out)
    page = out if out.suffix == ".html" else out / ("experiments.html" if everything else f"{arguments.name}.html")
    found = diagnose_experiments(
        list(EXPERIMENTS) if everything else [arguments.name],
        out=page,
        threads=arguments.threads,
        reporter=TerminalReporter(),
        **given(arguments, arguments.fields),
    )
    return _show_experiments(found, as_json=arguments.json)


def memory_command(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.diagnose.memory import HEADER, diagnose_memory

    asked = given(arguments, MEMORY_FIELDS)
    found = diagnose_memory(out=arguments.out, threads=arguments.threads, reporter=TerminalReporter(), **asked)
    if arguments.json:
        emit_json(found.as_json())
        return 0
    print(f"{found.basis}\n")
    print(table(HEADER, [row.words() for row in found.rows], left=2))
    print(f"\npage: {found.page}  (open it in a browser)")
    return 0


def optimisers_command(arguments: argparse.Namespace) -> int:
    said = given_settings(arguments, LMSettings)
    if arguments.duel is None:
        others = {"on": arguments.on, "seeds": arguments.seeds} | said
        for name in (name for name, value in others.items() if value is not None):
            raise UsageError(f"--{dashed(name)} is for a duel; say which optimisers: --duel adamw,sgd")
        return _experiments(arguments)
    if arguments.on is None:
        raise UsageError("a duel needs a text: --on my.txt")
    from seqlab.workflows.duel.request import check_compare_optimisers

    seeds = DuelSettings().seeds if arguments.seeds is None else arguments.seeds
    asked = {"models": arguments.duel, "seeds": seeds}
    check_compare_optimisers(arguments.on, asked, said, arguments.out, arguments.threads)  # before torch is loaded
    how = {"out": arguments.out, "threads": arguments.threads, "reporter": reporter_for(f"comparing on {arguments.on}")}
    from seqlab.workflows.duel.optimisers import compare_optimisers

    duel = compare_optimisers(arguments.on, optimisers=arguments.duel, seeds=seeds, **how, **said)
    return show_duel(duel, as_json=arguments.json)


def _experiments(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.diagnose.experiments import diagnose_optimisers

    found = diagnose_optimisers(out=arguments.out or "optimisers.html", threads=arguments.threads)
    return _show_experiments(found, as_json=arguments.json)


def _show_experiments(found: Any, *, as_json: bool) -> int:
    from seqlab.workflows.diagnose.experiments import HEADER, NOTE, finding_rows

    if as_json:
        emit_json(found.as_json())
        return 0
    for one in found.experiments:
        print(f"{one.question}\nprediction: {one.formula}\n")
        print(table(HEADER, finding_rows(one.findings), left=1))
        settings = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in one.settings.items())
        print(f"({settings})\n\n{one.answer}\n")
    print(f"({NOTE})")
    print(f"page: {found.page}  (open it in a browser)")
    return 0


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
