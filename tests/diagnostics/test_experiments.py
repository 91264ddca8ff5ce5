"""Every experiment agrees with its formula, over seeds and sizes, and a wrong formula is seen to disagree."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import seqlab
from seqlab.core.errors import UsageError
from seqlab.core.settings.experiments import EXPERIMENTS
from seqlab.diagnostics import attention_experiments as attention
from seqlab.diagnostics import extraction_experiment as projection
from seqlab.diagnostics import optimiser_experiments as optimisers
from seqlab.diagnostics import score_experiments as scores
from seqlab.diagnostics import structure_experiments as structure
from seqlab.workflows.diagnose.experiments import FUNCTIONS

SMALL: dict[str, dict[str, Any]] = {
    "score-variance": {"widths": "4,32", "draws": 50_000},
    "saturation": {"widths": "16,400", "draws": 6_000, "keys": 8},
    "copying": {"keys": "2,7,50"},
    "averaging": {"keys": 6, "sharpness": 3.0, "noise": 0.01, "draws": 4_000},
    "noisy-length": {"keys": 6, "draws": 10_000},
    "extraction": {"width": 9, "dimensions": 3, "draws": 1_000},
    "receptive-field": {"length": 30, "layers": 3, "draws": 5},
    "normalisation": {"rows": 4, "width": 5},
    "permutation": {"width": 8, "length": 7, "draws": 5},
    "decay": {"weights": 10_000, "steps": 600},
    "momentum": {},
    "bias-correction": {},
}


def test_every_experiment_is_tested() -> None:
    assert list(SMALL) == list(EXPERIMENTS) == list(FUNCTIONS)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_prediction_and_measurement_agree(name: str, seed: int) -> None:
    found = seqlab.run_experiment(name, seed=seed, **SMALL[name])
    assert found.agrees, [f for f in found.findings if not f.agrees]
    assert found.question.endswith("?")
    assert found.settings["seed"] == seed
    assert found.pictures
    again = seqlab.run_experiment(name, seed=seed, **SMALL[name])
    assert again.as_json() == found.as_json(), "the same seed gives the same figures"


Wrong = Callable[..., Any]
ONE_HEAD = attention.one_head_formula
WRONG: list[tuple[str, Any, str, Wrong, str]] = [
    *[
        ("score-variance", scores, "score_variance_formula", wrong, why)
        for wrong, why in (
            (lambda d, mean, sigma: sigma**2 * d * mean**2 + d * sigma**4, "a dropped factor 2"),
            (lambda d, mean, sigma: d * sigma**4, "the mean left out"),
            (lambda d, mean, sigma: 2 * sigma**2 * d * mean**2 + d * sigma**2, "σ² for σ⁴"),
        )
    ],
    ("saturation", scores, "rest_formula", lambda d, n: scores.jacobian_formula(d, n), "without ln 2"),
    ("saturation", scores, "jacobian_formula", lambda d, n: scores.rest_formula(1, n), "no scaling with d"),
    (
        "copying",
        attention,
        "copying_formula",
        lambda n, p, noise=0.0: math.log(n) + math.log(p / (1 - p)),
        "n for n − 1",
    ),
    ("copying", attention, "copying_formula", lambda n, p, noise=0.0: math.log(p / (1 - p)), "no ln n"),
    ("averaging", attention, "averaging_formula", lambda n, lam: 1 / (1 + (n - 2) * math.exp(-lam)), "a dropped 2"),
    ("averaging", attention, "share_variance", lambda n, lam, a: attention.even_variance(lam, 2 * a), "2α for 4α"),
    ("averaging", attention, "share_variance", lambda n, lam, a: 0.25, "the limit for a finite λ"),
    (
        "noisy-length",
        attention,
        "one_head_formula",
        lambda *given: ONE_HEAD(*given) / 4,
        "¼ twice",
    ),
    ("noisy-length", attention, "failing_formula", lambda lam, v, a, n: 0.25, "variance taken as standard deviation"),
    ("extraction", projection, "angle_formula", lambda degrees: math.sin(math.radians(degrees)), "sine for cosine"),
    ("extraction", projection, "unnormed_formula", lambda G: 0.0, "GGᵀ for any basis"),
    ("receptive-field", structure, "receptive_field_formula", lambda k, n, T: min(T, k**n), "without the residual"),
    ("receptive-field", structure, "receptive_field_formula", lambda k, n, T: (k + 1) ** n, "more than there are"),
    ("normalisation", structure, "norm_formula", lambda d, g, v=1.0, e=0.0: g * math.sqrt(d), "γ for |γ|, no ε"),
    (
        "normalisation",
        structure,
        "norm_formula",
        lambda d, g, v=1.0, e=0.0: abs(g) * math.sqrt((d - 1) * v / (v + e)),
        "the unbiased variance",
    ),
    ("permutation", structure, "changed_formula", lambda order, kind, depth: 0.0, "positions change nothing"),
    ("decay", optimisers, "l2_formula", lambda rate, decay, scale: rate * decay, "not divided by √v"),
    ("decay", optimisers, "l2_formula", lambda rate, decay, scale: rate * decay / scale**2, "v for √v"),
    ("momentum", optimisers, "average_rate", lambda rate, alpha: rate, "the rate not converted"),
    ("bias-correction", optimisers, "uncorrected_formula", lambda t, a, b: (1 - a**t) / (1 - b**t), "no root"),
]


@pytest.mark.parametrize(("name", "module", "formula", "wrong", "why"), WRONG, ids=[f"{w[0]}: {w[4]}" for w in WRONG])
def test_a_wrong_formula_disagrees(
    name: str, module: Any, formula: str, wrong: Wrong, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SMALL[name] | ({"sigma": 1.5} if name == "score-variance" else {})
    assert seqlab.run_experiment(name, **settings).agrees
    monkeypatch.setattr(module, formula, wrong)
    assert not seqlab.run_experiment(name, **settings).agrees


def test_every_experiment_has_a_wrong_formula() -> None:
    assert {wrong[0] for wrong in WRONG} == set(EXPERIMENTS)


def test_the_transpose_alone_extracts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aᵀ in the place of AAᵀ: coordinates, filled up with zeros to the width of a value."""

    def transposed(basis: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return basis.T, torch.eye(*basis.shape, dtype=basis.dtype)

    monkeypatch.setattr(projection, "orthonormal_projection", transposed)
    found = seqlab.run_experiment("extraction", **SMALL["extraction"])
    assert not found.findings[0].agrees


def test_scores_that_are_not_scaled_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "scaled_scores", scores.dot_scores)
    found = seqlab.run_experiment("score-variance", **SMALL["score-variance"])
    assert [f.agrees for f in found.findings] == [True, False, True, False]
    assert not seqlab.run_experiment("saturation", **SMALL["saturation"]).agrees


def test_the_noise_is_a_flag() -> None:
    quiet = seqlab.run_experiment("copying", keys="2,20")
    noisy = seqlab.run_experiment("copying", keys="2,20", noise=0.005, draws=40)
    assert all(f.low == f.high for f in quiet.findings)
    assert all(f.low < f.measured < f.high for f in noisy.findings)
    assert noisy.agrees, noisy.findings
    assert math.isinf(attention.copying_formula(100, 0.99, 0.2)), "no length is enough against such noise"
    assert seqlab.run_experiment("noisy-length", keys=6, draws=20_000, noise=0.01, sharpness=5.0).agrees


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("noisy-length", {"sharpness": 20.0, "noise": 0.0006, "draws": 10_000}),
        ("noisy-length", {"sharpness": 3.0, "noise": 0.025, "draws": 10_000}),
        ("noisy-length", {"length_variance": 0.01, "draws": 5_000}),
        ("noisy-length", {"sharpness": 300.0, "noise": 0.0, "draws": 5_000}),
        ("averaging", {"noise": 0.25, "sharpness": 1.0}),
        ("averaging", {"noise": 0.0025, "keys": 50}),
        ("copying", {"noise": 0.03, "keys": "2,10", "share": 0.9}),
        ("copying", {"share": 0.51, "keys": "2,1000"}),
        ("score-variance", {"draws": 1000, "mean": 0.0, "widths": "1,8"}),
        ("momentum", {"learning_rate": 1.0, "momentum": 0.99}),
    ],
    ids=str,
)
def test_they_agree_wherever_they_may_be_asked(name: str, settings: dict[str, Any], seed: int) -> None:
    found = seqlab.run_experiment(name, seed=seed, **settings)
    assert found.agrees, [f for f in found.findings if not f.agrees]


def test_half_the_noise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """4α in the one-head formula: a and b each have noise, along μ_a + μ_b."""
    settings: dict[str, Any] = {"keys": 6, "length_variance": 0.01, "noise": 0.01, "sharpness": 5.0, "draws": 20_000}
    assert seqlab.run_experiment("noisy-length", **settings).findings[0].agrees
    monkeypatch.setattr(attention, "one_head_formula", lambda lam, v, a, values: ONE_HEAD(lam, v, a / 2, values))
    assert not seqlab.run_experiment("noisy-length", **settings).findings[0].agrees


def test_the_density_of_a_gap_is_a_density() -> None:
    gap = np.linspace(0, 12, 4001)
    for keys in (2, 5, 30):
        assert np.trapezoid(scores.gap_density(keys, gap), gap) == pytest.approx(1, abs=1e-4)
    assert scores.gap_density(2, np.zeros(1))[0] == pytest.approx(1 / math.sqrt(math.pi), rel=1e-6)


def test_attention_looks_where_it_is_told() -> None:
    targets = torch.tensor([[1, 2], [0, 2], [2, 0]])
    x = torch.cat([torch.eye(3), torch.tensor([[1.0], [10.0], [100.0]])], 1).double()[None]
    heard, _, weights = structure.looking(targets)(x, x, x, need_weights=True)
    assert heard[0, :, -1].tolist() == [110.0, 101.0, 101.0]
    assert weights is not None
    assert weights.argmax(-1)[0].T.tolist() == targets.tolist()


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("copyng", {}, "the experiment 'copyng' is not known; did you mean 'copying'"),
        ("copying", {"kees": "2"}, "has no setting 'kees'"),
        ("copying", {"keys": "1"}, "--keys 1 must lie between 2 and 1,000"),
        ("copying", {"keys": "many"}, "must be whole numbers with commas between"),
        ("averaging", {"keys": 1}, "--keys 1 is too small"),
        ("noisy-length", {"sharpness": math.nan}, "--sharpness nan must be greater than 0"),
        ("extraction", {"dimensions": 9}, "two subspaces of 9 dimensions do not fit into --width 16"),
        ("permutation", {"width": 6}, "a multiple of 4"),
        ("decay", {"small": 3.0}, "--large 2 must be greater than --small 3"),
        ("score-variance", {"draws": 1}, "--draws 1 is too small"),
        ("score-variance", {"mean": math.nan}, "--mean nan is no number"),
        ("score-variance", {"sigma": 1e200}, "--sigma 1e.200 is too large"),
        ("score-variance", {"widths": ","}, "--widths , names no number"),
        ("saturation", {"widths": "16"}, "the formulas are for large d, with 16 keys 312 or more"),
        ("copying", {"share": 0.1, "keys": "5,20"}, "is no more than each of 5 keys has without any query"),
        ("copying", {"noise": 0.2, "keys": "100"}, "is too much for 100 keys"),
        ("noisy-length", {"noise": 0.01}, "--noise 0.01 is too much for --sharpness 50"),
        ("averaging", {"noise": 1.0}, "is too much for --sharpness 10"),
        ("noisy-length", {"keys": 200}, "--draws and --keys together ask for"),
        ("decay", {"decay": 1.0}, "noise must prevail"),
        ("decay", {"learning_rate": 1.0}, "moves weights too far from 1"),
        ("momentum", {"seed": 10**30}, "must lie between 0 and"),
    ],
)
def test_what_cannot_be_asked(name: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        seqlab.run_experiment(name, **settings)
