import platform
from importlib import metadata
from pathlib import Path

import pytest
import torch

import seqlab
from seqlab.core import machine


def test_the_facts_are_those_of_what_is_loaded() -> None:
    found = machine.facts()
    assert found["seqlab"] == seqlab.__version__
    assert found["torch"] == torch.__version__
    assert found["python"].startswith(platform.python_version())
    assert " core" in found["processor"]
    assert found["memory"].endswith(("GB", "TB", "MB"))


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert machine.facts()["torch"] == "not installed"
    monkeypatch.setattr(machine.os, "sysconf", lambda name: (_ for _ in ()).throw(ValueError(name)))
    assert machine.facts()["memory"] == "unknown"


@pytest.mark.parametrize(
    ("said", "has"),
    [
        ("model name\t: Zen\nflags\t\t: fpu avx512f avx512_bf16\n", True),
        ("model name\t: Sapphire\nflags\t\t: fpu amx_bf16 amx_tile\n", True),
        ("Features\t: asimd bf16\n", True),
        ("model name\t: older\nflags\t\t: fpu avx512f avx2\n", False),
        ("", False),
    ],
)
def test_who_multiplies_bfloat16(said: str, has: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(said, encoding="utf-8")
    monkeypatch.setattr(machine, "PROCESSOR", tmp_path / "cpuinfo")
    assert machine.multiplies_bfloat16() is has
    monkeypatch.setattr(machine, "PROCESSOR", tmp_path / "nothing")
    assert not machine.multiplies_bfloat16()
    assert machine.processor_name()
