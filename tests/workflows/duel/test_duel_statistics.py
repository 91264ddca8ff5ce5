"""The statistics of a duel: honest intervals over seeds, and a winner only where there is one."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from seqlab.evaluation.seeds import SeedDifference, compare_runs, interval_of_runs, seeds_to_settle, text_to_settle
from seqlab.evaluation.statistics import (
    compare,
    interval_of,
)
from seqlab.workflows.duel.entrants import Entrant
from seqlab.workflows.duel.progress import Progress
from seqlab.workflows.duel.verdict import Comparison, Contestant, advice, cautions, verdict


def luck(draw: np.random.Generator, seeds: int, spread: float, *, mean: float = 1400.0) -> Callable[[], np.ndarray]:
    """Models on the same 60 blocks of 1,000 bytes: nats (seeds, 60), each run with its own luck, in bits per byte."""
    hardness = draw.normal(mean, 150, 60)

    def model() -> np.ndarray:
        own = hardness + draw.normal(0, 15, 60) + draw.normal(0, 5, (seeds, 60))
        return own + draw.normal(0, 1000 * math.log(2) * spread, (seeds, 1))

    return model


BLOCKS = np.full(60, 1000)


@pytest.mark.parametrize(("seeds", "spread"), [(3, 0.01), (5, 0.01), (5, 0.1)])
def test_intervals_over_seeds_cover_what_they_promise(seeds: int, spread: float) -> None:
    """A plain percentile bootstrap covers 83 % with 3 seeds and 89 % with 5 where their luck dominates."""
    draw = np.random.default_rng(11)
    truth, covered = 1.4 / math.log(2), 0
    for repetition in range(400):
        found = interval_of_runs(luck(draw, seeds, spread)(), BLOCKS, resamples=400, seed=repetition)
        covered += found.low <= truth <= found.high
    assert 0.91 <= covered / 400 <= 0.98


@pytest.mark.parametrize(("seeds", "spread"), [(2, 0.1), (3, 0.01), (3, 0.1), (5, 0.1)])
def test_equal_models_have_no_winner(seeds: int, spread: float) -> None:
    """300 duels of equal models: about one in twenty is called, not the one in five of a plain bootstrap (3 seeds)."""
    draw = np.random.default_rng(12)
    called = 0
    for repetition in range(300):
        model = luck(draw, seeds, spread)
        called += compare_runs(model(), model(), BLOCKS, resamples=400, seed=repetition).p < 0.05
    assert called / 300 <= 0.08


def test_a_real_winner_is_found() -> None:
    draw = np.random.default_rng(13)
    for _ in range(20):
        model = luck(draw, 3, 0.01)
        found = compare_runs(model() - 0.1 * 1000 * math.log(2), model(), BLOCKS, resamples=999)
        assert found.p < 0.05
        assert found.interval.high < 0
        assert found.value == pytest.approx(-0.1, abs=0.05)


def test_one_run_each_is_the_plain_paired_test() -> None:
    draw = np.random.default_rng(14)
    a, b = draw.normal(1400, 100, 60), draw.normal(1410, 100, 60)
    plain, found = compare(a, b, BLOCKS), compare_runs(a[None], b[None], BLOCKS)
    assert found.value == pytest.approx(plain.value)
    assert found.p == pytest.approx(plain.p, abs=0.01)
    assert found.interval.low == pytest.approx(plain.interval.low, rel=0.05)
    alone, over = interval_of(a, BLOCKS), interval_of_runs(a[None], BLOCKS)
    assert (over.low, over.high) == pytest.approx((alone.low, alone.high), rel=1e-9)


def test_the_noise_is_told_apart() -> None:
    draw, variances = np.random.default_rng(15), []
    sizes = np.full(300, 1000)
    for _ in range(400):
        shared, others = draw.normal(1400, 100, (2, 300))
        runs = np.array([[-2.0], [0.0], [2.0]]) * math.log(2) * 10 + shared
        found = compare_runs(runs, np.repeat(others[None], 3, 0), sizes)
        assert found.spreads == pytest.approx((0.02, 0.0), abs=1e-9)
        variances.append(found.block_variance)
    assert np.mean(variances) == pytest.approx(2 * 100**2 / 300 / (1000 * math.log(2)) ** 2, rel=0.1)


def difference(value: float, spreads: tuple[float, float], variance: float) -> SeedDifference:
    same = compare_runs(np.ones((1, 2)), np.ones((1, 2)), np.ones(2), resamples=9)
    return SeedDifference(value, same.interval, 0.5, spreads, variance)


def test_how_many_more_seeds() -> None:
    found = difference(0.0197, (0.03, 0.04), 0.0)
    assert seeds_to_settle(found) == 25  # 1.96 · √(0.0025/25) = 0.0196; with 24 it is 0.0200
    assert advice(found, 3) == "about 22 more seeds for each model would settle it: --seeds 25"
    assert advice(found, 30) == "about 1 more seed for each model would settle it: --seeds 31"
    assert seeds_to_settle(difference(0.0196, (0.03, 0.04), 0.76e-4)) == 105
    hopeless = difference(0.0196, (0.03, 0.04), 4e-4)
    assert seeds_to_settle(hopeless) == math.inf
    assert text_to_settle(hopeless) == pytest.approx(4.0)
    assert advice(hopeless, 3) == (
        "more seeds cannot settle it: the text alone leaves ±0.0392; "
        "about 4 times as much held-out text would be needed"
    )
    assert "more than 1,000 seeds" in advice(difference(1e-5, (0.03, 0.04), 0.0), 3)
    assert "more than 1,000 times" in advice(difference(1e-6, (0.03, 0.04), 1e-4), 3)
    assert "try --seeds 3" in advice(difference(0.01, (0.0, 0.0), 1e-4), 1)
    assert advice(difference(0.0, (0.1, 0.1), 1e-4), 3) == "the two do not differ at all"


def contestant(kind: str, bits: float, progress: Progress | None = None) -> Contestant:
    interval = difference(0, (0, 0), 0).interval
    return Contestant(Entrant(kind, {}, {}), [], 1, bits, interval, 1.0, 1.0, progress=progress)


def test_a_winner_beats_every_other_model() -> None:
    three = [contestant("gru", 2.0), contestant("ngram", 1.8), contestant("lstm", 1.9)]

    def pairs(*p: float) -> list[Comparison]:
        found = difference(-0.1, (0.01, 0.01), 0.0)
        return [
            Comparison(a.kind, b.kind, found, p_value, None if p_value < 0.05 else "ask again")
            for (a, b), p_value in zip(itertools.combinations(three, 2), p, strict=True)
        ]

    winner, sentence = verdict(three, pairs(0.01, 0.9, 0.04))  # gru − lstm is open, which does not matter
    assert winner == "ngram"
    assert sentence.startswith("The winner is ngram: 1.8000 bits per byte")
    winner, sentence = verdict(three, pairs(0.01, 0.01, 0.06))
    assert winner is None
    assert sentence.startswith("There is no winner: ngram has the least, 1.8000")
    assert "its lead over lstm (0.1000) is open (p = 0.06): ask again" in sentence
    assert "over gru" not in sentence


@pytest.mark.parametrize(
    ("progress", "begun"),
    [
        (Progress(99, 0.9, 2.0, 2.0), True),  # few steps and no pass
        (Progress(99, 1.0, 2.0, 2.0), False),  # a small text
        (Progress(100, 0.1, 2.0, 2.0), False),
        (Progress(5000, 9.0, 2.0, 1.79), True),  # it still fell by more than a tenth
        (Progress(5000, 9.0, 2.0, 1.81), False),
    ],
)
def test_who_has_only_begun_to_learn_wins_nothing(progress: Progress, begun: bool) -> None:
    two = [contestant("gru", 1.7, progress), contestant("lstm", 1.9)]
    settled = [Comparison("gru", "lstm", difference(-0.2, (0.01, 0.01), 0.0), 0.001, None)]
    winner, sentence = verdict(two, settled)
    assert progress.begun is begun
    assert winner == (None if begun else "gru")
    assert ("has only begun to learn: this tells who starts fastest" in sentence) is begun


def test_a_lead_smaller_than_what_was_still_gained_is_pointed_out() -> None:
    two = [contestant("gru", 1.80), contestant("lstm", 1.85, Progress(5000, 9.0, 2.0, 1.94))]
    settled = [Comparison("gru", "lstm", difference(-0.05, (0.01, 0.01), 0.0), 0.001, None)]
    (said,) = [line for line in cautions(two, settled, [3], "gru") if "winner's lead" in line]
    assert "(lstm by 0.0600): a longer --budget may turn this round" in said
    ahead = [Comparison("gru", "lstm", difference(-0.07, (0.01, 0.01), 0.0), 0.001, None)]
    assert not [line for line in cautions(two, ahead, [3], "gru") if "winner's lead" in line]
