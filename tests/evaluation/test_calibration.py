"""Whether probabilities mean what they say."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.evaluation.class_tables import sample

from seqlab.core.errors import DataError, UsageError
from seqlab.evaluation.calibration import calibration, fit_temperature, softmax


def test_bins_of_calibration_know_clusters() -> None:
    truth, probabilities = np.array([1, 1, 0, 0]), np.array([[0.2, 0.8]] * 4)
    (alone,) = calibration(truth, probabilities).bins
    (tied,) = calibration(truth, probabilities, clusters=np.array([0, 0, 1, 1])).bins
    assert tied.accuracy.low < alone.accuracy.low
    assert tied.accuracy.value == alone.accuracy.value


@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(2, 5), st.integers(1, 80))
def test_calibration_by_a_plain_loop(seed: int, bins: int, kinds: int, n: int) -> None:
    truth, probabilities = sample(seed, n, kinds)
    found = calibration(truth, probabilities, bins)
    error = 0.0
    for b in found.bins:
        inside = [i for i in range(n) if b.low < probabilities[i].max() <= b.high]
        assert len(inside) == b.n > 0
        assert b.confidence == pytest.approx(np.mean([probabilities[i].max() for i in inside]))
        assert b.accuracy.hits == sum(probabilities[i].argmax() == truth[i] for i in inside)
        error += b.n / n * abs(b.accuracy.value - b.confidence)
    assert sum(b.n for b in found.bins) == n
    assert found.ece == pytest.approx(error, abs=1e-12)


def test_perfectly_calibrated_tables_have_no_error() -> None:
    """Of 20 texts with confidence k/20 exactly k are right."""
    levels = range(11, 21)
    probabilities = np.array([[k / 20, 1 - k / 20] for k in levels for _ in range(20)])
    truth = np.array([int(i >= k) for k in levels for i in range(20)])
    found = calibration(truth, probabilities, 20)
    assert found.ece == pytest.approx(0, abs=1e-12)
    assert len(found.bins) == 10
    assert calibration(1 - truth, probabilities, 20).ece > 0.4
    json.dumps(found.as_json(), allow_nan=False)
    nothing = calibration(truth[:0], probabilities[:0])
    assert nothing.as_json() == {"ece": None, "bins": []}


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_of_sampled_classes_is_found(temperature: float) -> None:
    """Within four standard errors:  Fisher's information of β = 1/T in a text is the variance of z under p."""
    draw = np.random.default_rng(6)
    logits = 3 * draw.standard_normal((4000, 5))
    p = softmax(logits, temperature)
    truth = (draw.random((4000, 1)) > p.cumsum(1)).sum(1).clip(0, 4)
    information = ((p * logits**2).sum(1) - (p * logits).sum(1) ** 2).sum()
    error = temperature**2 / math.sqrt(information)
    found = fit_temperature(logits, truth)
    assert abs(found - temperature) < 4 * error
    assert error < 0.05 * temperature  # so that the line above can fail
    for scale in (0.5, 2.0):
        assert fit_temperature(scale * logits, truth) == pytest.approx(scale * found, rel=1e-4)


def test_temperatures_at_the_edges() -> None:
    truth = np.array([0, 1, 1, 0])
    assert fit_temperature(np.zeros((0, 2)), truth[:0]) == 1.0
    assert fit_temperature(np.zeros((4, 2)), truth) == 1.0  # every temperature is as good
    for scale in (1.0, 1e3, 1e300):
        right = fit_temperature(scale * np.eye(2)[truth], truth)
        wrong = fit_temperature(scale * np.eye(2)[1 - truth], truth)
        assert 0.05 <= right <= 1.0 <= wrong <= 20.0
    assert fit_temperature(np.eye(2)[truth], truth) == pytest.approx(0.05, rel=1e-3)
    assert fit_temperature(np.eye(2)[1 - truth], truth) == pytest.approx(20, rel=1e-3)
    with pytest.raises(DataError, match="not finite"):
        fit_temperature(np.array([[math.inf, 0.0]]), np.array([0]))
    with pytest.raises(UsageError, match="one row per text"):
        fit_temperature(np.zeros((2, 2)), np.array([0]))


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=6), st.floats(0.1, 10), st.floats(-1e3, 1e3))
def test_softmax_by_hand_and_unmoved_by_a_shift(logits: list[float], temperature: float, shift: float) -> None:
    raised = [math.exp(z / temperature) for z in logits]
    found = softmax(np.array([logits]), temperature)
    assert found[0].tolist() == pytest.approx([x / sum(raised) for x in raised], rel=1e-9, abs=1e-12)
    assert softmax(np.array([logits]) + shift, temperature) == pytest.approx(found, rel=1e-6, abs=1e-9)


def test_softmax_does_not_overflow() -> None:
    assert softmax(np.array([[1e308, -1e308, 0.0]]), 0.05).tolist() == [[1.0, 0.0, 0.0]]
    with pytest.raises(UsageError, match="above 0"):
        softmax(np.zeros((1, 2)), 0.0)


def test_a_spread_keeps_the_temperature_of_few_texts_near_one() -> None:
    logits, truth = np.array([[3.0, 0.0], [0.0, 2.0]]), np.array([0, 1])
    assert fit_temperature(logits, truth) < 0.06
    assert 0.5 < fit_temperature(logits, truth, spread=0.5) < 1
    draw = np.random.default_rng(0)
    many = draw.normal(size=(20_000, 3)) * 2
    drawn = np.array([draw.choice(3, p=row) for row in softmax(many, 1.7)])
    assert fit_temperature(many, drawn, spread=0.5) == pytest.approx(fit_temperature(many, drawn), abs=1e-3)
