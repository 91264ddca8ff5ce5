"""`seqlab lm train|generate`; `mix`, `perplexity` and `compare` have files of their own."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from typing import Any

from seqlab.cli.arguments import (
    Parser,
    add_common,
    add_fields,
    add_run_folder,
    add_settings,
    given,
    given_settings,
    preset_table,
)
from seqlab.cli.duel import add_compare
from seqlab.cli.mix import add_mix
from seqlab.cli.sheet import add_perplexity
from seqlab.cli.terminal import TerminalReporter, emit_json, reporter_for, table
from seqlab.core.settings.generation import GenerationSettings
from seqlab.core.settings.lm import LMSettings
from seqlab.core.units import human_perplexity, human_seconds, number_of

GENERATION = dataclasses.fields(GenerationSettings)
TRAIN = """Train a language model on a text and measure it.

examples:
  seqlab lm train my.txt                                  a good small model with no option at all
  seqlab lm train my.txt --model gru --tokenizer bpe --budget 5m --out runs/mine
  seqlab lm train my.txt --out runs/mine --resume         go on after Ctrl-C, a crash or with a longer --budget
  seqlab lm train more.txt --from runs/mine               go on from trained weights and their tokenizer
  cat *.txt | seqlab lm train - --out runs/all            from standard input
"""
GENERATE = """Write text with a trained model.

examples:
  seqlab lm generate runs/mine --prompt "To be" --tokens 300 --temperature 0.8 --top-p 0.95 --seed 1
  seqlab lm generate runs/mine --temperature 0            the likeliest token each time
  seqlab lm generate runs/mine --prompt "To be" --samples 5        five continuations, with the seeds 0 to 4
  seqlab lm generate runs/mine --prompts lines.txt --json          one for each line, all written side by side
"""


def add_commands(commands: Any) -> None:
    lm: Parser = commands.add_parser(
        "lm",
        help="language models: train, generate, perplexity, compare, mix",
        description="Language models.\n\nexample:\n  seqlab lm train my.txt",
    )
    lm.set_defaults(parser=lm)
    actions = lm.add_subparsers(metavar="ACTION", parser_class=Parser)
    _add_train(actions)
    _add_generate(actions)
    add_perplexity(actions)
    add_compare(actions)
    add_mix(actions)


# --------------------------------------------------------------------------- train


def _add_train(actions: Any) -> None:
    parser = actions.add_parser("train", help="train on a text", description=TRAIN, epilog=preset_table())
    parser.add_argument(
        "text", nargs="?", help="text file, folder, .gz/.bz2/.xz, '-' or a corpus (see 'seqlab data list')"
    )
    run = add_run_folder(parser, "runs/TEXT-MODEL")
    run.add_argument("--from", dest="from_run", metavar="RUN", help="start from a run's weights and tokenizer")
    add_settings(parser, LMSettings, without=("text",))
    add_common(parser)
    parser.set_defaults(run=train, parser=parser)


def train(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.lm.request import check_train

    said = given_settings(arguments, LMSettings)
    how = {key: getattr(arguments, key) for key in ("out", "resume", "from_run", "config", "threads")}
    check_train(said, **how)  # wrong use is answered before torch is loaded
    reporter = reporter_for(f"training on {said.get('text') or how['out'] or how['config']}")
    from seqlab.workflows.lm.train import train_lm
    from seqlab.workflows.lm.words import told

    run = train_lm(**said, **how, reporter=reporter)
    final = run.final
    if arguments.json:
        emit_json(train_json(run, final))
    elif final is not None:
        print(final_table(final))
        print("", *told(final), "", sep="\n")
        print(f"{_outcome(final)}\nrun folder: {run.folder}  (open report.html in a browser)")
        print(f'next: seqlab lm generate {run.folder} --prompt "..." --temperature 0.8')
    return 0


def train_json(run: Any, final: dict[str, Any] | None) -> dict[str, Any]:
    if final is None:
        return {"run": str(run.folder), "interrupted": True}
    return {
        "run": str(run.folder),
        "interrupted": False,
        **{key: final[key] for key in ("outcome", "step", "best_step", "seconds", "tokens", "context")},
        **{key: final[key] for key in ("validation", "test", "headline", "reading_on", "baselines") if key in final},
    }


def final_table(final: dict[str, Any]) -> str:
    header = ["text", "tokens", "nats/token", "ppl/token", "nats/char", "bits/char", "bits/byte"]
    return table(header, [_figure_row(name, final[name]) for name in ("validation", "test") if final[name]])


def _figure_row(name: str, figures: dict[str, Any]) -> list[str]:
    begin = [f"{figures['tokens']:,}", f"{figures['nats_per_token']:.4f}"]
    keys = ("nats_per_character", "bits_per_character", "bits_per_byte")
    perplexity = human_perplexity(figures["perplexity_per_token"])
    return [name, *begin, perplexity, *(f"{figures[key]:.4f}" for key in keys)]


def _outcome(final: dict[str, Any]) -> str:
    if not final["step"]:
        tokens = number_of(final["tokens"], "token")
        return f"fitted to {tokens} in {human_seconds(final['seconds'])}; context: {final['context']}"
    return (
        f"{final['outcome']} after {number_of(final['step'], 'step')}, {number_of(final['tokens'], 'token')}, "
        f"{human_seconds(final['seconds'])}; "
        f"best weights from step {final['best_step']:,}; context: {final['context']}"
    )


# --------------------------------------------------------------------------- generate


def _add_generate(actions: Any) -> None:
    parser = actions.add_parser("generate", help="write text with a trained model", description=GENERATE)
    parser.add_argument("folder", metavar="RUN", help="run folder, or several of one text with + between: mixed")
    parser.add_argument("--prompt", help="text to continue (default: begin a new text)")
    parser.add_argument("--prompts", metavar="FILE", help="one prompt on each line; '-' is standard input")
    add_fields(parser, GENERATION)
    add_common(parser)
    parser.set_defaults(run=generate, parser=parser)


def generate(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.lm.request import check_generate

    how = given(arguments, GENERATION)
    prompts = check_generate(
        arguments.folder, how, arguments.threads, prompt=arguments.prompt, prompts=arguments.prompts
    )
    if arguments.prompts is None and "samples" not in how:
        return _generate_one(arguments, prompts[0], how)
    samples = how.pop("samples", 1)
    return _generate_several(arguments, [prompt for prompt in prompts for _ in range(samples)], how)


def _generate_one(arguments: argparse.Namespace, prompt: str, how: dict[str, Any]) -> int:
    from seqlab.workflows.lm.generate import stream_text

    stream = stream_text(arguments.folder, prompt, threads=arguments.threads, reporter=TerminalReporter(), **how)
    if arguments.json:
        emit_json({"text": b"".join(stream).decode()})
        return 0
    begun = next(stream, b"")  # a prompt that cannot be read is refused before anything is written
    sys.stdout.write(prompt)
    for part in itertools.chain([begun], stream):
        sys.stdout.write(part.decode())
        sys.stdout.flush()
    sys.stdout.write("\n")
    return 0


def _generate_several(arguments: argparse.Namespace, prompts: list[str], how: dict[str, Any]) -> int:
    from seqlab.workflows.lm.generate import write_texts

    texts = write_texts(arguments.folder, prompts, threads=arguments.threads, reporter=TerminalReporter(), **how)
    if arguments.json:
        emit_json({"texts": texts})
        return 0
    seed = how.get("seed", GenerationSettings().seed)
    for k, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        print(f"──── {k + 1} of {len(texts)}, seed {seed + k} ────\n{prompt}{text}")
    return 0
