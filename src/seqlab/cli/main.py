"""`seqlab`: find the command, run it, and turn every error into one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import seqlab
from seqlab.cli import data, demo, lm
from seqlab.cli.arguments import Parser
from seqlab.core.errors import SeqlabError, UsageError

DESCRIPTION = """Train, measure and explain sequence models on your own text.

examples:
  seqlab demo                                    a minute of Shakespeare, measured
  seqlab lm train my.txt                         a good small model with no option at all
  seqlab lm generate runs/my-lstm-1 --prompt "To be"
  seqlab lm perplexity runs/my-lstm-1 --on other.txt
  seqlab data list                               texts that come with packages
"""


def build_parser() -> Parser:
    parser = Parser(prog="seqlab", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"seqlab {seqlab.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for command in (demo, data, lm):
        command.add_commands(commands)
    parser.set_defaults(run=None, parser=parser)
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; 0: done, 1: failed, 2: wrong use."""
    words = list(sys.argv[1:] if words is None else words)
    debug = "--debug" in words
    try:
        arguments, unknown = build_parser().parse_known_args(words)
        if unknown:
            arguments.parser.refuse_unknown(unknown)
        if arguments.run is None:
            raise UsageError(f"a command is missing; see '{arguments.parser.prog} --help'")
        code: int = arguments.run(arguments)
        return code
    except SeqlabError as error:
        if debug:
            raise
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: nothing more to say
        return 0
    except MemoryError:
        return _fail("out of memory; try a smaller --batch, --context or --size, or --accumulate 4", 1)
    except Exception as error:
        if debug:
            raise
        return _fail(f"unexpected {type(error).__name__}: {error}; run again with --debug and report it", 1)


def _fail(message: str, code: int) -> int:
    print(f"seqlab: {' '.join(message.split())}", file=sys.stderr)
    return code
