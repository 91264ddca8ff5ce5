"""Fetching from the Python package indexes and folders that the user's pip is configured to use."""

import hashlib
import logging
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqlab.core.errors import DamageError, DownloadError, one_line
from seqlab.core.files import atomic_write
from seqlab.core.reporting import ByteProgress
from seqlab.data.archives import Archive
from seqlab.data.pip_settings import PipSettings, read_pip_settings

if TYPE_CHECKING:
    from unearth import Link
    from unearth.fetchers.sync import PyPIClient

CONNECT_SECONDS = 5.0
READ_SECONDS = 20.0


def try_every_index(archive: Archive, path: Path, progress: ByteProgress) -> Iterator[Exception | None]:
    """Attempt one index or folder after another; yield None after a success, else what went wrong there."""
    try:
        settings = read_pip_settings()
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


def _attempt(
    link: "Link", archive: Archive, path: Path, session: "PyPIClient", progress: ByteProgress
) -> Exception | None:
    try:
        _download(link, archive, path, session, progress)
    except (DamageError, DownloadError) as error:
        return error
    return None


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


def _download(link: "Link", archive: Archive, path: Path, session: "PyPIClient", progress: ByteProgress) -> None:
    """Stream into a partial file beside `path`; it becomes `path` only once its SHA-256 is right."""
    announced = (link.hash_option or {}).get("sha256", [archive.sha256])
    if archive.sha256 not in announced:
        raise archive.refusal(announced[0])
    digest = hashlib.sha256()
    done = 0
    with atomic_write(path) as file:
        for block, total in _blocks(link, session):
            digest.update(block)
            file.write(block)
            done += len(block)
            progress(done, total)
        if digest.hexdigest() != archive.sha256:
            raise archive.refusal(digest.hexdigest())


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
        raise DownloadError(one_line(error)) from error
