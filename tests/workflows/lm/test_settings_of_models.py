"""What the settings say of models, which no torch need be loaded for, is what the models themselves take."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import seqlab
from seqlab.core.registry import ALL_MODELS, MODELS
from seqlab.core.settings.lm import NEURAL, LMSettings, ModelSettings, model_fields
from seqlab.core.traits import Traits, traits_of
from seqlab.models import build_lm
from seqlab.models.build import constructor_sizes, known_sizes
from seqlab.models.ngram import NGramLM
from seqlab.pages.render import settings_rows

# What weights of the world need to be told; too much for a command line.
ONLY_FROM_PYTHON = {"style", "rotary", "sinusoidal", "embedding_scale", "output_bias"}


@pytest.mark.parametrize("kind", sorted(ALL_MODELS))
def test_the_fields_of_a_model_are_what_its_constructor_takes(kind: str) -> None:
    without_vectors = known_sizes(kind) - {"vectors"}  # they are read before the model is made
    guide = {"guide", "folds", "order"} if kind in NEURAL else set()  # it leads a model that is made without it
    assert without_vectors - guide == constructor_sizes(kind) - {"context"} - ONLY_FROM_PYTHON
    assert ("vectors" in known_sizes(kind)) == (kind == "bigram")
    assert guide <= known_sizes(kind)


def test_a_model_of_somebodys_own_has_what_its_constructor_takes() -> None:
    assert model_fields("convolution") is None
    assert all(
        f.metadata["kinds"] is None or set(f.metadata["kinds"]) <= set(ALL_MODELS) for f in fields(ModelSettings)
    )


def test_every_model_declares_its_traits() -> None:
    sizes: dict[str, Any] = {"width": 8}
    traits = {kind: traits_of(build_lm(kind, vocab_size=7, **sizes)) for kind in MODELS}
    for kind in ("rnn", "gru", "lstm"):
        assert traits[kind] == Traits(carries_state=True)
    assert traits["bigram"] == Traits(looks_back=1, learns_from="pairs", reads_at_once=True)
    assert traits["attentive-rnn"].window == 32
    assert traits["transformer"] == Traits(window=64)
    learned = build_lm("transformer", vocab_size=7, positions="learned", context=24)
    assert traits_of(learned) == Traits(window=24, max_positions=24)
    assert traits_of(NGramLM(7, 4)) == Traits(looks_back=3, learns_from="counts", reads_at_once=True)
    assert traits_of(object()) == Traits()


def test_every_setting_is_explained_by_its_own_help(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    """Two groups have a field called `kind`."""
    rows = settings_rows(LMSettings())
    meanings = {(group, name): meaning for group, values in rows.items() for name, _, meaning in values}
    assert meanings["model", "kind"].startswith("rnn, gru, lstm")
    run = seqlab.train_lm(small_text, out=tmp_path / "run", tokenizer="char", **tiny)
    page = (run.folder / "report.html").read_text()
    tokenizer = page.split("<summary>tokenizer</summary>")[1].split("</table>")[0]
    assert re.search(
        r"<td>kind</td><td class=\"n\"><code>char</code></td><td class=\"quiet\">byte, char, word", tokenizer
    )
    assert "rnn" not in tokenizer
