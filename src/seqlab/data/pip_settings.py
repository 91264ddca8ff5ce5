"""The user's own pip configuration: mirrors, private indexes, folders of files, certificates, proxy."""

import ast
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

PIP_SECONDS = 20.0
# Later sections override earlier ones, as in pip; `download` is the pip command that does what we do.
PIP_SECTIONS = ("global", "download", ":env:")
PIP_LINE = re.compile(r"(?P<section>[^.=]+)\.(?P<key>[\w-]+)=(?P<value>.*)")


@dataclass(frozen=True)
class PipSettings:
    """Where pip looks for packages, and how it gets there."""

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


def read_pip_settings() -> PipSettings:
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
