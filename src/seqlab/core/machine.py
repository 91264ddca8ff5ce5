"""What this machine and its software are called, for whoever reports a bug. Nothing here loads torch."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import seqlab
from seqlab.core.units import human_bytes, number_of

PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "scikit-learn")  # what decides the bits of a run first


PROCESSOR = Path("/proc/cpuinfo")
BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}  # what processors that multiply such numbers say of themselves


def processor_name() -> str:
    return _of_processor("model name") or platform.processor() or platform.machine()


def multiplies_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 itself; emulated, it is slower than float32."""
    said = _of_processor("flags") or _of_processor("Features") or ""
    return not BFLOAT16.isdisjoint(said.split())


def _of_processor(name: str) -> str | None:
    """What Linux says of the first processor; None where it does not, or is another system."""
    try:
        lines = PROCESSOR.read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name)
    except (OSError, StopIteration):
        return None


def facts() -> dict[str, str]:
    """Versions as the packages' own records have them (torch's says which build it is), and the machine."""
    return {
        "seqlab": seqlab.__version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        **{name: _version(name) for name in PACKAGES},
        "system": platform.platform(),
        "processor": f"{processor_name()}, {number_of(usable_cores(), 'core')}",
        "memory": _memory(),
    }


def usable_cores() -> int:
    """Those that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _memory() -> str:
    try:
        return human_bytes(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # a system that does not say
        return "unknown"
