"""The experiments agree with their formulas, and a wrong formula is seen to disagree."""

import dataclasses
import math

import pytest

from seqlab.core.settings.experiments import BiasCorrection, MomentumForms, WeightDecay
from seqlab.diagnostics import optimiser_experiments as experiments
from seqlab.diagnostics.experiments import Experiment, Finding, estimated, exact


def with_predictions(found: Experiment, predicted: list[float]) -> Experiment:
    findings = [dataclasses.replace(f, predicted=p) for f, p in zip(found.findings, predicted, strict=True)]
    return dataclasses.replace(found, findings=findings)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_weight_decay_in_adam_and_beside_it(seed: int) -> None:
    found = experiments.weight_decay(WeightDecay(weights=10_000, steps=600, seed=seed))
    assert found.agrees, found.findings
    l2_large, l2_small, large, small = (finding.measured for finding in found.findings)
    assert l2_small / l2_large == pytest.approx(10, rel=0.35)
    assert large == pytest.approx(1e-4, rel=0.3)
    assert small == pytest.approx(1e-4, rel=0.3)
    alike = with_predictions(found, [1e-4] * 4)
    assert [f.agrees for f in alike.findings] == [False, False, True, True], "L2 does not shrink all alike"
    squared = with_predictions(found, [0.25e-4, 25e-4, 1e-4, 1e-4])
    assert [f.agrees for f in squared.findings[:2]] == [False, False], "by √v, not by v"


def test_momentum_and_its_conversion() -> None:
    found = experiments.momentum_forms(MomentumForms())
    assert found.agrees
    assert found.findings[0].measured < 1e-12
    moving, corrected, same = (line.y for line in found.pictures[0].lines)
    assert max(moving) > 1e-3
    assert max(corrected) > 1e-3
    assert max(same) < 1e-12


def test_a_wrong_conversion_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "average_rate", lambda rate, alpha: rate)
    assert not experiments.momentum_forms(MomentumForms()).agrees


def test_bias_correction_in_the_first_steps() -> None:
    found = experiments.bias_correction(BiasCorrection())
    assert found.agrees
    assert found.findings[3].measured == pytest.approx(0.1 / 0.1, rel=1e-9)
    other = experiments.bias_correction(BiasCorrection(beta2=0.999))
    assert other.findings[3].measured == pytest.approx(0.1 / math.sqrt(0.001), rel=1e-9)
    without_root = with_predictions(other, [f.predicted**2 for f in other.findings])
    assert not without_root.agrees


def test_what_agrees() -> None:
    assert exact("a", 1.0, 1.0 + 1e-13, 1e-12).agrees
    assert not exact("a", 1.0, 1.1, 1e-12).agrees
    assert not exact("a", 1.0, math.nan, 1.0).agrees
    assert estimated("a", 1.0, 1.04, 0.0).agrees
    assert estimated("a", 1.0, 1.2, 0.05).agrees, "within 3.29 standard errors and a tolerance of 5 %"
    assert not estimated("a", 1.0, 1.22, 0.05).agrees
    assert not estimated("a", 1.0, 0.78, 0.05).agrees
    assert Finding("a", 1.0, 1.5, 0.9, 2.0).agrees
    assert Finding("a", 1.0, 1.5, 0.9, 2.0).as_json()["agrees"] is True
