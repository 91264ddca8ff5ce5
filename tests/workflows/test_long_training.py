"""Longer trainings, counted in steps: run by `make check-long`."""

import pytest

import seqlab
from seqlab.data.prepare import split_bounds
from seqlab.data.sources import open_text
from seqlab.evaluation.baselines import baselines


@pytest.mark.long
def test_the_default_model_learns_more_than_a_trigram(tmp_path_factory: pytest.TempPathFactory) -> None:
    run = seqlab.train_lm("pydoc", out=tmp_path_factory.mktemp("runs") / "run", budget="400steps", threads=2)
    text = open_text("pydoc")
    bounds, content = split_bounds(text, (0.8, 0.1, 0.1)), text.path.read_bytes()
    parts = [content[slice(*bounds[name])].decode() for name in ("train", "validation")]
    trigram = next(b for b in baselines(*parts) if b.name == "3-gram")
    assert run.final is not None
    assert run.final["validation"]["bits_per_byte"] < trigram.bits_per_byte
