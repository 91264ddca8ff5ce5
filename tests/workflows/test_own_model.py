"""The example of a model of one's own keeps every contract."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from examples.own_model import CausalConvolutionLM

import seqlab
from seqlab.core.errors import UsageError
from seqlab.core.registry import MODELS
from seqlab.models import build_lm

OWN = "examples.own_model:CausalConvolutionLM"
MODELS.pop("convolution", None)  # importing the example registered it; here a fixture does, for each test
EXAMPLE = Path(__file__).parents[2] / "examples" / "own_model.py"


@pytest.fixture(autouse=True)
def own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "convolution", OWN)


def test_it_is_one_registry_line() -> None:
    assert MODELS["convolution"] == "examples.own_model:CausalConvolutionLM"
    assert isinstance(build_lm("convolution", vocab_size=7, width=8, depth=2), CausalConvolutionLM)


def test_it_trains_resumes_and_writes(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    settings = tiny | {"depth": 2}
    seqlab.train_lm(small_text, out=tmp_path / "1", model="convolution", **(settings | {"budget": "20steps"}))
    seqlab.train_lm(small_text, out=tmp_path / "2", model="convolution", **settings)
    run = seqlab.train_lm(out=tmp_path / "2", resume=True, budget="20steps")
    assert run.final is not None
    assert len(run.generate("the", 10)) > 0


def test_it_runs_as_a_script(small_text: Path, tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, str(EXAMPLE), str(small_text), "5steps"], capture_output=True, text=True, cwd=tmp_path
    )
    assert answer.returncode == 0, answer.stderr
    assert "bits per byte" in answer.stdout


def test_loading_needs_the_registry_line(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run folder names a kind, never code: without the line nothing of it is imported."""
    seqlab.train_lm(small_text, out=tmp_path / "run", model="convolution", **tiny)
    monkeypatch.delitem(MODELS, "convolution")
    with pytest.raises(UsageError, match="unknown model 'convolution'"):
        seqlab.load(tmp_path / "run")
