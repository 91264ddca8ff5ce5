import tarfile
from pathlib import Path

import pytest
from tests.data.packages import TINY_SDIST, TINY_WHEEL

from seqlab.core.errors import DamageError, DataError
from seqlab.data.archives import read_members


@pytest.mark.parametrize("content", [TINY_SDIST, TINY_WHEEL], ids=["tar", "zip"])
def test_only_matching_members_are_read(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    path.write_bytes(content)
    assert read_members(path, "*/texts/*_play.txt") == [
        ("tiny-1.0/texts/a_play.txt", b"first"),
        ("tiny-1.0/texts/b_play.txt", "second: é\n".encode()),
    ]
    with pytest.raises(DataError, match="no member that matches"):
        read_members(path, "*/texts/*.csv")
    assert len(read_members(path, "*/texts/*_play.txt", limit=16)) == 2
    with pytest.raises(DataError, match="unpacks to more than"):
        read_members(path, "*/texts/*_play.txt", limit=15)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DamageError, match="cannot read the archive"):
        read_members(path, "*/texts/*_play.txt")


def test_links_inside_an_archive_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "archive.tar"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("x/texts/a_play.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "../../secret"
        archive.addfile(link)
    with pytest.raises(DataError, match="no member"):
        read_members(path, "*/texts/*_play.txt")
