"""The example of a model of one's own keeps every contract."""

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from examples.own_model import CausalConvolutionLM

import seqlab
from seqlab.core.errors import UsageError
from seqlab.core.registry import MODELS
from seqlab.models import build_lm

OWN = "examples.own_model:CausalConvolutionLM"
MODELS.pop("convolution", None)  # importing the example registered it; here a fixture does, for each test
EXAMPLE = Path(__file__).parents[3] / "examples" / "own_model.py"


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


class Crash(BaseException):
    """Stands for the process dying on the spot."""


def test_the_state_it_carries_is_cut_joined_saved_and_resumed_exactly(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve steps of three pieces, the last one smaller; the run dies in step 11, after the save at step 8."""
    settings = tiny | {"model": "convolution", "depth": 2, "batch": 5, "accumulate": 3}
    whole = seqlab.train_lm(small_text, out=tmp_path / "whole", **settings)
    forward, pieces = CausalConvolutionLM.forward, itertools.count(1)

    def dying(self: CausalConvolutionLM, *arguments: Any) -> Any:
        if self.training and next(pieces) == 31:
            raise Crash
        return forward(self, *arguments)

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(CausalConvolutionLM, "forward", dying)
        seqlab.train_lm(small_text, out=tmp_path / "torn", **settings)
    resumed = seqlab.train_lm(out=tmp_path / "torn", resume=True)
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], weight), name


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
