"""The command line: one thin file per command."""

from seqlab.cli.main import main

__all__ = ["main"]
