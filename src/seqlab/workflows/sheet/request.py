"""What can be refused of a sheet or a matrix before torch is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqlab.core.errors import UsageError
from seqlab.core.settings.fields import check_threads, with_flags
from seqlab.core.settings.lm import LMSettings, check_said, fill_lm
from seqlab.data.folders import check_glob
from seqlab.data.normalise import parse_steps
from seqlab.data.sources import check_encoding, check_source
from seqlab.runs.folder import RunFolder
from seqlab.workflows.lm.named import check_named


def check_sheet(
    folders: Sequence[str | Path],
    hf: Sequence[str | Path],
    texts: Sequence[str] | None,
    normalise: str,
    encoding: str,
    glob: str,
    threads: int | None,
) -> None:
    """Refuse, in one line, what `perplexity_sheet` could never do."""
    check_threads(threads)
    check_encoding(encoding)
    check_glob(glob)
    parse_steps(normalise)
    if not texts:
        raise UsageError("no text is named; for example: seqlab lm perplexity runs/mine --on my.txt")
    if not folders and not hf:
        raise UsageError("no model is named; for example: seqlab lm perplexity runs/mine --on my.txt")
    for folder in folders:
        check_named(folder)
    for text in texts:
        check_source(text)
    if glob and not any(Path(text).is_dir() for text in texts):
        raise UsageError(f"--glob '{glob}' chooses files of a folder, and no text is one; leave it out")


def check_matrix(domains: Sequence[str | Path], flags: Mapping[str, Any], threads: int | None) -> None:
    """Refuse, in one line, what `domain_matrix` could never do."""
    check_threads(threads)
    if len(domains) < 2:
        raise UsageError("--matrix compares domains: name at least two run folders or texts")
    settings = fill_lm(with_flags(LMSettings(), flags))
    check_said(settings, flags)
    for domain in domains:
        if not RunFolder(domain).has_run():
            check_source(str(domain))
