"""What can be refused before torch is loaded and before any data is read: wrong use answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqlab.core.errors import DataError, UsageError, nearest
from seqlab.core.settings.classify import ClassifySettings, check_said_of_classifier, fill_classify
from seqlab.core.settings.fields import check_threads, with_flags
from seqlab.data.corpora import CORPORA
from seqlab.data.sources import check_encoding, checked_path
from seqlab.runs.folder import RunFolder
from seqlab.runs.request import Checks, Request, check_request


def check_train(
    said: dict[str, Any],
    *,
    out: str | Path | None,
    resume: bool,
    config: str | Path | None,
    threads: int | None,
) -> None:
    """Refuse, in one line, what `train_classifier` could never do."""
    check_encoding(with_flags(ClassifySettings(), said).data.encoding)
    request = Request(said, out, resume, None, config, threads)
    check_request(request, Checks("classify", ClassifySettings, ("data",), _check_new, check_said_of_classifier))


def _check_new(asked: ClassifySettings, said: dict[str, Any]) -> None:
    settings = fill_classify(asked)
    check_said_of_classifier(settings, said)
    check_data(settings.data.data)


def check_data(source: str) -> None:
    """Refuse what names no data at all."""
    if not source:
        raise UsageError("no data are named; for example: seqlab classify train my.csv --text review --label stars")
    if source != "-" and not checked_path(source).exists() and source not in CORPORA:
        hint = nearest(source, CORPORA) if "." not in source and "/" not in source else "; check the path"
        raise DataError(f"there is no file, folder or corpus '{source}'{hint}")


def check_run(folder: str | Path, threads: int | None) -> None:
    """Refuse a folder that holds no trained classifier."""
    check_threads(threads)
    files = RunFolder(folder)
    stored = files.read()
    if stored.kind != "classify":
        raise UsageError(f"{folder} holds a run of kind '{stored.kind}', not 'classify'")
    if not files.model_file.exists():
        raise UsageError(
            f"{folder} has no trained weights yet; go on with 'seqlab classify train --out {folder} --resume'"
        )
