"""Longer trainings, counted in steps: run by `make check-long`."""

from pathlib import Path

import numpy as np
import pytest
from tests.models.test_ngram import drawn_from

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


@pytest.mark.long
def test_an_lstm_learns_a_known_markov_source(tmp_path: Path) -> None:
    """Model minus true source on the same held-out text is below 0.01 bits per character."""
    law = np.random.default_rng(0).dirichlet(np.full(8, 0.5), size=(8, 8))  # p(c | two before)
    ids = drawn_from(law, 600_000, seed=1)
    text = "".join("abcdefgh"[k] for k in ids)
    (tmp_path / "source.txt").write_text(text)
    settings = dict(tokenizer="char", model="lstm", width=64, learning_rate=6e-3, weight_decay=0.0)
    run = seqlab.train_lm(
        tmp_path / "source.txt", out=tmp_path / "run", budget="3000steps", patience=0, threads=1, **settings
    )
    held_out = ids[-len(ids) // 10 :]
    truth = -np.log2(law[held_out[:-2], held_out[1:-1], held_out[2:]]).mean()
    found = run.score(text[-len(ids) // 10 :]).nats[2:].mean() / np.log(2)
    assert -0.005 < found - truth < 0.01
