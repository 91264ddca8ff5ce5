"""What is checked before anything is computed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from seqlab.core.errors import UsageError

HEADS = (1, 2, 4)  # of an untrained Transformer, as far as they divide its width into pairs


def check_page(page: Path, *, asked: bool = True) -> None:
    """Refuse, before minutes of work, a page that could not be written. The folder of a page that was asked for is
    made."""
    if page.is_dir():
        raise UsageError(f"--out {page} is a folder; name a file")
    if page.exists() and not page.is_file():
        raise UsageError(f"--out {page} is no file that can be replaced; name another")
    if page.parent.exists() and not page.parent.is_dir():
        raise UsageError(f"--out {page}: {page.parent} is no folder")
    if not asked:
        return
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=page.parent):
            pass
    except OSError as error:
        raise UsageError(f"--out {page}: nothing can be written there ({error.strerror})") from None


def heads_for(width: int) -> int:
    if width % 2:
        raise UsageError(f"--width {width}: a transformer turns pairs of numbers; give an even width")
    return max(n for n in HEADS if width % (2 * n) == 0)
