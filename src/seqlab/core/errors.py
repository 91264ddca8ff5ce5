"""Every error a person can meet, in one hierarchy.

A message is one line: it names the value, the limit and the remedy. The command line prints it as it
stands and exits with `exit_code`: 1 when something failed, 2 when the command was used wrongly.
"""

import difflib
from collections.abc import Iterable, Sequence


class SeqlabError(Exception):
    """Something failed in a way that a person can mend."""

    exit_code = 1
    answered = False  # standard output has its answer already: the error itself is not to follow there


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


def check_text(value: object, what: str) -> None:
    """Refuse, in one line, what is no text."""
    if not isinstance(value, str):
        raise UsageError(f"{what} must be a text (str), not {_short(value)}")


def check_texts(values: object, what: str) -> None:
    """Refuse what is no list of texts; one text alone would be taken for a list of its characters."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise UsageError(f"{what} must be a list of texts, not {_short(values)}; of one text: [text]")
    if isinstance(values, Sequence):
        for value in values:
            check_text(value, f"each of {what}")


def _short(value: object) -> str:
    shown = repr(value)
    return f"{shown if len(shown) <= 40 else shown[:40] + '…'} ({type(value).__name__})"


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint such as ``; did you mean 'lstm'?`` or the list of what there is."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(names)}"


def one_line(error: Exception) -> str:
    """The error's first words without the addresses in it, which may carry a password."""
    words = [word for word in str(error).split() if "://" not in word]
    return " ".join(words)[:200] or type(error).__name__
