"""What can be refused before torch is loaded and before any data is read: wrong use answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqlab.core.errors import DataError, UsageError
from seqlab.core.settings.fields import check_threads, with_flags
from seqlab.core.settings.translate import (
    BETWEEN_FILES,
    ParallelSettings,
    TranslateSettings,
    check_said_of_translator,
    fill_translate,
    names_in,
)
from seqlab.data.corpora import CORPORA
from seqlab.data.parallel import check_corpus, refuse_twice, verse_corpora
from seqlab.data.sources import check_encoding, checked_path, full_place
from seqlab.runs.folder import RunFolder
from seqlab.runs.request import Checks, Request, check_request


def joined_places(places: list[str]) -> str:
    """Files beside the first, as one setting."""
    for place in places:
        if BETWEEN_FILES in place or not place:
            raise UsageError(f"{place!r} is no name of a file that can be read here; rename the file")
    return BETWEEN_FILES.join(places)


def full_places(joined: str) -> str:
    return BETWEEN_FILES.join(full_place(place) for place in joined.split(BETWEEN_FILES)) if joined else ""


def check_train(
    said: dict[str, Any],
    *,
    out: str | Path | None,
    resume: bool,
    config: str | Path | None,
    threads: int | None,
) -> None:
    """Refuse, in one line, what `train_translator` could never do."""
    check_encoding(with_flags(TranslateSettings(), said).data.encoding)
    request = Request(said, out, resume, None, config, threads)
    checks = Checks("translate", TranslateSettings, ("data", "beside"), _check_new, check_said_of_translator)
    check_request(request, checks)


def _check_new(asked: TranslateSettings, said: dict[str, Any]) -> None:
    settings = fill_translate(asked)
    check_said_of_translator(settings, said)
    check_places(settings.data)


def check_places(data: ParallelSettings) -> None:
    """Refuse what names no aligned texts at all."""
    if not data.data:
        raise UsageError("no data are named; for example: seqlab translate train pairs.tsv")
    targets = names_in(data.to)
    refuse_twice(targets)
    for place in [data.data, *data.beside.split(BETWEEN_FILES)] if data.beside else []:
        if place in CORPORA and not checked_path(place).exists():
            raise UsageError(f"'{place}' is a corpus, not a text file; name one corpus and its translations with --to")
        if not checked_path(place).exists():
            raise DataError(f"there is no file '{place}'; check the path")
    if data.beside or checked_path(data.data).exists():
        return
    check_corpus(data.data)
    if not targets:
        others = ", ".join(name for name in verse_corpora() if name != data.data)
        raise UsageError(f"say which translations of {data.data} to learn: --to with one or more of {others}")
    for name in targets:
        check_corpus(name)


def check_run(folder: str | Path, threads: int | None, to: list[str] | None = None) -> None:
    """Refuse a folder that holds no trained translator, and targets that it does not know."""
    check_threads(threads)
    files = RunFolder(folder)
    stored = files.read()
    if stored.kind != "translate":
        raise UsageError(f"{folder} holds a run of kind '{stored.kind}', not 'translate'")
    if not files.model_file.exists():
        raise UsageError(
            f"{folder} has no trained weights yet; go on with 'seqlab translate train --out {folder} --resume'"
        )
    known = [name.strip() for name in stored.record["targets"].split(",")]
    refuse_twice(to or [])
    for name in to or []:
        if name not in known:
            raise UsageError(f"{folder} was not trained for '{name}'; it knows {', '.join(known)}")
