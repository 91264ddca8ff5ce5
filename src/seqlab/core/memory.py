"""The memory of this process and of its machine."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path


def give_back() -> None:
    """Return to the system what this process holds without using it, where the C library can (glibc)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def resident_bytes() -> int:
    """What this process holds now, nothing unused among it; 0 where the system does not say."""
    give_back()
    return _kilobytes(Path("/proc/self/status"), "VmRSS") or 0


def available_bytes() -> int | None:
    """What may still be taken: of the machine, and of the group of processes that this one belongs to."""
    free = _kilobytes(Path("/proc/meminfo"), "MemAvailable")
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        spare = limit - int((group / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no limit, or another system
        return free
    return spare if free is None else min(free, spare)


def _kilobytes(file: Path, name: str) -> int | None:
    try:
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.startswith(name + ":"):
                return 1024 * int(line.split()[1])
    except (OSError, ValueError):
        pass
    return None
