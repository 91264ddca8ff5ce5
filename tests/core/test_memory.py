"""What the system says of memory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from seqlab.core import memory


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """A system of files that say what they are told."""
    monkeypatch.setattr(memory, "Path", lambda place: tmp_path / str(place).lstrip("/"))

    def says(place: str, words: str) -> None:
        file = tmp_path / place.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(words)

    return says


def test_what_may_still_be_taken(system: Callable[[str, str], None]) -> None:
    assert memory.available_bytes() is None
    assert memory.resident_bytes() == 0
    system("/proc/meminfo", "MemTotal:  900 kB\nMemAvailable:     700 kB\n")
    assert memory.available_bytes() == 700 * 1024
    system("/sys/fs/cgroup/memory.max", "max\n")
    system("/sys/fs/cgroup/memory.current", "100000\n")
    assert memory.available_bytes() == 700 * 1024  # a group without a limit
    system("/sys/fs/cgroup/memory.max", "500000\n")
    assert memory.available_bytes() == 400_000
    system("/sys/fs/cgroup/memory.max", "900000000\n")
    assert memory.available_bytes() == 700 * 1024
    system("/proc/self/status", "VmPeak: 9 kB\nVmRSS:\t 42 kB\n")
    assert memory.resident_bytes() == 42 * 1024
    system("/proc/meminfo", "MemAvailable: ?\n")
    assert memory.available_bytes() == 900_000_000 - 100_000
