"""`seqlab`: find the command, run it, and turn every error into one line and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

from seqlab.cli import claims, classify, cost, data, demo, diagnose, lm, runs, translate
from seqlab.cli.arguments import Parser
from seqlab.core.errors import SeqlabError, UsageError
from seqlab.core.machine import facts

PLACES = ("out", "html", "csv", "file", "config", "from_run")  # where something lies or goes

DESCRIPTION = """Train, measure and explain sequence models on your own text.

examples:
  seqlab demo                                    a minute of Shakespeare, measured
  seqlab lm train my.txt                         a good small model with no option at all
  seqlab lm generate runs/my-lstm-1 --prompt "To be"
  seqlab lm perplexity runs/my-lstm-1 --on other.txt
  seqlab classify train my.csv --text review --label stars
  seqlab classify predict runs/my-average-1 "not half bad, good B-movie fun"
  seqlab translate train pairs.tsv --budget 1h
  seqlab translate run runs/pairs-transformer-1 "a sentence"
  seqlab diagnose gradients runs/my-lstm-1       how far back the gradient reaches, and what helps
  seqlab cost --model transformer --size medium --context 1024   what that would take here
  seqlab claims check --jobs 2                   the mathematics behind it, proved or refuted
  seqlab runs list                               what was trained, and what it reached
  seqlab data list                               texts that come with packages
"""


def build_parser() -> Parser:
    parser = Parser(prog="seqlab", description=DESCRIPTION)
    parser.add_argument("--version", action="store_true", help="versions and machine, for a report of a bug")
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for command in (demo, data, lm, classify, translate, diagnose, cost, claims, runs):
        command.add_commands(commands)
    parser.set_defaults(run=None, parser=parser)
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; 0: done, 1: failed, 2: wrong use."""
    words = list(sys.argv[1:] if words is None else words)
    _prepare_process()
    try:
        arguments, unknown = build_parser().parse_known_args(words)
        if arguments.version:
            return _show_version(as_json="--json" in words)
        unknown = _with_rest(arguments, unknown)
        if unknown:
            arguments.parser.refuse_unknown(unknown)
        _refuse_empty_places(arguments)
        if arguments.run is None:
            raise UsageError(f"a command is missing; see '{arguments.parser.prog} --help'")
        with _terminate_as_interrupt():
            code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: nothing more to say
        return 0
    except (Exception, KeyboardInterrupt) as error:
        if "--debug" in words:
            raise
        return _fail(*explained(error), as_json="--json" in words and not getattr(error, "answered", False))


def _show_version(*, as_json: bool) -> int:
    found = facts()
    if as_json:
        print(json.dumps(found, ensure_ascii=False, indent=1))
    else:
        print(f"seqlab {found.pop('seqlab')}")
        print("\n".join(f"{name:<14}{value}" for name, value in found.items()))
    return 0


def _refuse_empty_places(arguments: argparse.Namespace) -> None:
    """A variable that a script forgot to set must not become this folder."""
    for name in PLACES:
        if getattr(arguments, name, None) == "":
            flag = name.removesuffix("_run")
            raise UsageError(f"--{flag} '' names nothing; leave it out, or name a file or folder")


def _with_rest(arguments: argparse.Namespace, unknown: list[str]) -> list[str]:
    """Words after an option belong to a command that takes any number of them; what is left nobody takes."""
    rest = getattr(arguments, "rest", None)
    if rest is None:
        return unknown
    getattr(arguments, rest).extend(word for word in unknown if not word.startswith("-"))
    return [word for word in unknown if word.startswith("-")]


def explained(error: BaseException) -> tuple[str, int]:
    """One line for a person, and the exit code."""
    if isinstance(error, SeqlabError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 1
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        return "out of memory; try a smaller --batch, --context or --size, or --accumulate 4", 1
    if isinstance(error, OSError) and error.strerror:
        return (
            f"{error.filename or 'standard output'}: {error.strerror}; check the path, its permissions and the disk",
            1,
        )
    return f"unexpected {type(error).__name__}: {error}; run again with --debug and report it", 1


def _prepare_process() -> None:
    """Characters that the terminal lacks become '?'. What is closed swallows what is written to it.

    The number of a closed stream would else be that of the next file opened: here it is taken.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if name != "stdin":
                setattr(sys, name, os.fdopen(nowhere, "w", encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


@contextlib.contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: cleanly, with temporary files removed. If it is ignored, it stays so."""
    ignored = signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    if ignored or threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _fail(message: str, code: int, *, as_json: bool) -> int:
    line = " ".join(message.split())
    print(f"seqlab: {line}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": line}, ensure_ascii=False))
    return code
