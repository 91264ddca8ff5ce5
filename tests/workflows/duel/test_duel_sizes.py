"""The sizes of a duel: outlines, and widths that cost as much."""

import dataclasses
from typing import Any

import pytest
import torch

from seqlab.core.registry import MODELS
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import with_flags
from seqlab.core.settings.lm import LMSettings, fill_lm
from seqlab.core.settings.training import SIZES
from seqlab.diagnostics.cost import count_parameters
from seqlab.models.build import build_lm_from_settings, outline_lm
from seqlab.workflows.duel.entrants import Cost, Entrant
from seqlab.workflows.duel.plan import sized_settings, with_deviation
from seqlab.workflows.duel.sizes import cost_of, solve_width, with_width


def settings_of(kind: str, **said: Any) -> LMSettings:
    return fill_lm(with_flags(LMSettings(), {"model": kind, **said}))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", sorted(MODELS))
def test_outlines_have_the_parameters_of_models(kind: str, size: str) -> None:
    settings = settings_of(kind, size=size)
    before = torch.get_rng_state()
    outline = outline_lm(settings, 300)
    assert torch.equal(before, torch.get_rng_state())
    assert {p.device.type for p in outline.parameters()} == {"meta"}
    assert count_parameters(outline) == count_parameters(build_lm_from_settings(settings, 300))


@pytest.mark.parametrize("match", ["parameters", "flops"])
@pytest.mark.parametrize("first", ["lstm", "transformer"])
@pytest.mark.parametrize("kind", sorted(MODELS))
def test_solved_widths_cost_as_much(kind: str, first: str, match: str) -> None:
    for size in ("small", "large"):
        target = cost_of(settings_of(first, size=size), 1000).by(match)
        solved = solve_width(settings_of(kind, size=size), 1000, match, target)
        assert cost_of(solved, 1000).by(match) == pytest.approx(target, rel=0.02)
        depth = settings_of(kind, size=size).model.depth
        assert solved.model.depth == depth
        build_lm_from_settings(solved, 30)  # the heads divide the width, evenly


def test_a_model_solved_for_itself_is_itself() -> None:
    for kind in MODELS:
        settings = settings_of(kind)
        for match in ("parameters", "flops"):
            assert solve_width(settings, 500, match, cost_of(settings, 500).by(match)) == settings


def test_the_width_that_is_said_is_the_first_model_s() -> None:
    said = {"width": 200, "dropout": 0.1, "heads": 2}
    for match in ("parameters", "flops"):
        sized = sized_settings(("ngram", "gru", "transformer", "bigram"), "20steps", match, {"width": 200}, 100)
        assert list(sized) == ["gru", "transformer", "bigram"]
        assert sized["gru"].model.width == 200
        target = cost_of(sized["gru"], 100).by(match)
        own = settings_of("transformer", size="small", budget="20steps")
        assert sized["transformer"] == solve_width(own, 100, match, target)
    matched = sized_settings(("gru", "transformer", "bigram"), "20steps", "time", said, 100)
    assert [settings.model.width for settings in matched.values()] == [200, 200, 200]
    assert matched["transformer"].model.heads == 2
    assert matched["bigram"].model.dropout is None


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (1_019_000, []),
        (981_000, []),
        (1_021_000, ["no width of the gru comes nearer than 1.02 M parameters (+2.1%)"]),
        (979_000, ["no width of the gru comes nearer than 979 K parameters (-2.1%)"]),
    ],
)
def test_a_model_whose_size_comes_no_nearer_is_told(parameters: int, said: list[str]) -> None:
    warned: list[str] = []
    reporter = Reporter()
    reporter.warn = warned.append  # type: ignore[method-assign]
    first = Entrant("lstm", {}, {}, cost=Cost(1_000_000, 7.0))
    other = Entrant("gru", {"width": 9}, {"width": 9}, cost=Cost(parameters, 3.0))
    found = with_deviation(other, first, "parameters", reporter)
    assert found == dataclasses.replace(other, deviation=pytest.approx(parameters / 1_000_000 - 1))
    assert warned == said


def test_heads_follow_the_width_and_keep_a_sensible_one() -> None:
    settings = settings_of("transformer")  # 128 in 4 heads of 32
    for width in range(1, 300):
        found = with_width(settings, width)
        if found is not None:
            heads = found.model.heads or 0
            assert width % heads == 0
            assert width // heads % 2 == 0
            assert min(8, width) <= width // heads <= 64
    assert with_width(settings, 144).model.heads == 4  # type: ignore[union-attr]
    assert with_width(settings, 134) is None
    assert with_width(settings, 132, fixed_heads=True) is None
    assert with_width(settings, 136, fixed_heads=True).model.heads == 4  # type: ignore[union-attr]
