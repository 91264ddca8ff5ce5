import platform
from importlib import metadata

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
