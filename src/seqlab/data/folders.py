"""Which files of a folder are one text, and why the others are not."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from seqlab.core.errors import DataError, UsageError

COMPRESSED = (".gz", ".bz2", ".xz")
TEXT_SUFFIXES = (".txt", ".text", ".md", ".rst", ".tex")
MORE_TEXT = (".markdown", ".org", ".adoc", ".html", ".htm", ".srt", ".vtt")
CODE_LANGUAGES = (
    "py pyi c h cc cpp cxx hpp hh cs java kt scala go rs swift js mjs jsx ts tsx vue css scss rb php pl pm lua r jl hs",
    "ml mli ex exs erl clj lisp el scm f90 sql sh bash zsh ps1 bat cmake mk toml ini cfg yaml yml",
)
CODE = tuple(f".{name}" for names in CODE_LANGUAGES for name in names.split())
ENDINGS = frozenset((*TEXT_SUFFIXES, *MORE_TEXT, *CODE))
NAMES = frozenset(("README", "LICENSE", "COPYING", "CHANGELOG", "NEWS", "TODO", "Makefile", "Dockerfile"))
NOT_ONES_OWN = ("node_modules", "__pycache__")  # and a virtual environment, which says so itself
ENVIRONMENT = "pyvenv.cfg"
SHOWN = 4  # names in one line


@dataclass(frozen=True)
class Skipped:
    """A file or folder that is not read."""

    name: str  # below the folder that was named
    why: str


@dataclass(frozen=True)
class Chosen:
    """Of a folder: what is read, in order, and what is not."""

    files: tuple[Path, ...]
    skipped: tuple[Skipped, ...]


def check_glob(glob: str) -> None:
    for pattern in patterns_of(glob):
        if pattern.startswith("/") or ".." in pattern.split("/"):
            raise UsageError(f"--glob '{pattern}' leads out of the folder; name files in it, such as '*.py'")
    if glob and not patterns_of(glob):
        raise UsageError(f"--glob '{glob}' names nothing; give patterns such as '*.py' or '*.py,docs/*.md'")


def patterns_of(glob: str) -> list[str]:
    return [pattern for written in glob.split(",") if (pattern := written.strip())]


def choose_files(folder: Path, glob: str = "") -> Chosen:
    """The files that the patterns name, else those with a known ending; refuses a folder that has none.

    A pattern with a '/' is compared with the whole path below the folder, any other with the name alone; '*' stands
    for anything, folders too. What is hidden or only tools put there is left out; '.*' names hidden files.
    """
    files: list[Path] = []
    skipped: list[Skipped] = []
    patterns = patterns_of(glob)
    for place, folders, names in os.walk(folder, onerror=_refuse):
        below = Path(place).relative_to(folder)
        for name in [name for name in folders if not_looked_into(Path(place) / name)]:
            folders.remove(name)
            skipped.append(Skipped((below / name).as_posix() + "/", "hidden or made by tools"))
        for name in names:
            why = _why_not(Path(place) / name, (below / name).as_posix(), patterns)
            if why is None:
                files.append(Path(place) / name)
            else:
                skipped.append(Skipped((below / name).as_posix(), why))
    if not files:
        raise DataError(_nothing(folder, glob, skipped))
    skipped.sort(key=lambda one: (one.why, one.name))
    return Chosen(tuple(sorted(files, key=lambda path: path.parts)), tuple(skipped))


def text_files(folder: Path) -> list[Path]:
    """The files of prose in a folder, hidden ones too: where each of them is a text of its own."""
    found = sorted(
        (path for path in folder.rglob("*") if path.is_file() and ending_of(path.name) in TEXT_SUFFIXES),
        key=lambda path: path.parts,
    )
    if not found:
        raise DataError(f"{folder} holds no text file ({', '.join(TEXT_SUFFIXES)}, also {', '.join(COMPRESSED)})")
    return found


def not_looked_into(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in NOT_ONES_OWN or (folder / ENVIRONMENT).is_file()


def ending_of(name: str) -> str:
    """In small letters, without that of compression."""
    path = PurePosixPath(name)
    return (path.with_suffix("") if path.suffix in COMPRESSED else path).suffix.lower()


def _refuse(error: OSError) -> None:
    raise DataError(f"cannot look into {error.filename}: {error.strerror}; check its permissions") from error


def _why_not(path: Path, below: str, patterns: Sequence[str]) -> str | None:
    if not path.is_file():
        return "no ordinary file"
    if any(_names(pattern, below) for pattern in patterns):
        return None
    if path.name.startswith("."):
        return "hidden or made by tools"
    if patterns:
        return "not named by --glob"
    known = ending_of(path.name) in ENDINGS or path.name in NAMES
    return None if known else "not known as text by its ending"


def _names(pattern: str, below: str) -> bool:
    """'**/' may stand for no folder at all; '*' of fnmatch goes through folders by itself, and would name '.x'."""
    name = below.rpartition("/")[2]
    if name.startswith(".") and not pattern.rpartition("/")[2].startswith("."):
        return False
    return fnmatchcase(below if "/" in pattern else name, pattern.replace("**/", "*"))


def _nothing(folder: Path, glob: str, skipped: Sequence[Skipped]) -> str:
    endings = Counter(ending_of(one.name) or one.name for one in skipped if not one.name.endswith("/"))
    there = f"it has {_shown([f'{n:,} {e}' for e, n in endings.most_common()])}" if endings else "it is empty"
    if glob:
        return f"{folder} holds no file that --glob '{glob}' names; {there}"
    remedy = f"; say which are text with --glob '*{endings.most_common(1)[0][0]}'" if endings else "; name another"
    return f"{folder} holds no file that is known as text or code by its ending; {there}{remedy}"


def told(folder: str, chosen: Chosen, unreadable: Sequence[Skipped]) -> tuple[str, ...]:
    """What was read of a folder and what was not, in a line each."""
    count = len(chosen.files) - len(unreadable)
    lines = [f"{folder}: {count:,} file{'' if count == 1 else 's'} in name order"]
    by_reason: dict[str, list[str]] = {}
    for one in chosen.skipped:
        by_reason.setdefault(one.why, []).append(one.name)
    lines += [f"skipped {len(names):,}, {why}: {_shown(names)}" for why, names in by_reason.items()]
    lines += [f"skipped {one.name}, which {one.why}" for one in unreadable[:SHOWN]]
    more = len(unreadable) - SHOWN
    return (*lines, f"skipped {more:,} more that cannot be read as text") if more > 0 else tuple(lines)


def _shown(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")
