"""Every error a person can meet, in one hierarchy.

A message is one line: it names the value, the limit and the remedy. The command line prints it as it
stands and exits with `exit_code`: 1 when something failed, 2 when the command was used wrongly.
"""

import difflib
from collections.abc import Iterable


class SeqlabError(Exception):
    """Something failed in a way that a person can mend."""

    exit_code = 1


class UsageError(SeqlabError):
    """The command or function was used wrongly: unknown name, value out of range, conflicting settings."""

    exit_code = 2


class DataError(SeqlabError):
    """The text cannot be used as it is: missing, empty, binary, wrongly encoded, too short."""


class DownloadError(DataError):
    """A corpus could not be fetched; says which package holds it and how to use a local copy."""


class DamageError(SeqlabError):
    """A file that should be loaded is not what seqlab wrote: it is named, and nothing of it is used."""


class NotFiniteError(SeqlabError):
    """The loss or a gradient became infinite or NaN: names the step, the layer and what to try."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint such as ``; did you mean 'lstm'?`` or the list of what there is."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(names)}"


def one_line(error: Exception) -> str:
    """The error's first words without the addresses in it, which may carry a password."""
    words = [word for word in str(error).split() if "://" not in word]
    return " ".join(words)[:200] or type(error).__name__
