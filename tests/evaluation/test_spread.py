"""How far a figure strays: the plain equations, what is known of special cases, and simulations of what it promises."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t
from tests.evaluation import plain_spread

from seqlab.evaluation import spread
from seqlab.evaluation.spread import (
    CORRELATIONS,
    COSINES,
    FEW_DOCUMENTS,
    HEARD,
    MEMORIES,
    Spread,
    cosine_sums,
    cosines,
    spread_of,
    spread_of_documents,
    spread_of_stretch,
)

Numbers = np.ndarray


def neighbours_alike(draw: np.random.Generator, shape: tuple[int, int], rho: float) -> Numbers:
    """Gaussian rows of variance one in which neighbours have correlation rho."""
    noise = draw.standard_normal(shape)
    for k in range(1, shape[1]):
        noise[:, k] = rho * noise[:, k - 1] + math.sqrt(1 - rho * rho) * noise[:, k]
    return noise


def with_memory(draw: np.random.Generator, shape: tuple[int, int], d: float) -> Numbers:
    """Gaussian rows whose density is |2 sin(λ/2)|^(−2d): sums of all past noise, which fade as a power."""
    past = 4000
    k = np.arange(1, past)
    weights = np.concatenate([[1.0], np.cumprod((k - 1 + d) / k)])
    noise = np.fft.rfft(draw.standard_normal((shape[0], past + shape[1])), 2 * past + shape[1])
    return np.fft.irfft(noise * np.fft.rfft(weights, 2 * past + shape[1]), 2 * past + shape[1])[:, past:][:, : shape[1]]


# --------------------------------------------------------------------------- the equations


@settings(max_examples=25)
@given(st.integers(0, 2**31), st.integers(2, 60), st.sampled_from([0.0, 1.0]))
def test_a_stretch_strays_as_the_plain_equations_say(seed: int, n: int, wander: float) -> None:
    draw = np.random.default_rng(seed)
    sizes = draw.integers(900, 1100, n)
    scores = sizes * (3 + 0.2 * draw.standard_normal(n) + wander * draw.standard_normal(n).cumsum())
    found = spread_of_stretch(scores, sizes)
    plain = plain_spread.of_stretch(scores.tolist(), sizes.tolist(), MEMORIES, CORRELATIONS, COSINES)
    assert found.weights == pytest.approx([weight for weight, _, _ in plain], abs=1e-9)
    assert found.deviations == pytest.approx([deviation for _, deviation, _ in plain], rel=1e-9)
    assert set(found.freedoms) == {plain[0][2]}
    assert found.reach(0.95) == pytest.approx(plain_spread.reach(plain), rel=1e-9)
    assert found.p(0.01) == pytest.approx(plain_spread.p(plain, 0.01), rel=1e-9)
    assert found.variance == pytest.approx(sum(weight * deviation**2 for weight, deviation, _ in plain), rel=1e-9)


@given(st.integers(0, 2**31), st.integers(2, 40), st.integers(2, 9))
def test_documents_stray_as_the_plain_equations_say(seed: int, n: int, most: int) -> None:
    draw = np.random.default_rng(seed)
    sizes, documents = draw.integers(1, 1100, n), draw.integers(0, most, n)
    scores = sizes * (3 + draw.standard_normal(n))
    if len(set(documents.tolist())) == 1:
        return
    found = spread_of_documents(scores, sizes, documents)
    plain = plain_spread.of_documents(scores.tolist(), sizes.tolist(), documents.tolist())
    assert (found.deviations[0], found.freedoms[0]) == pytest.approx(plain[0][1:], rel=1e-8)
    mixed = draw.permutation(n)  # in whatever order they stand
    again = spread_of_documents(scores[mixed], sizes[mixed], documents[mixed] * 7 + 3)
    assert (again.deviations[0], again.freedoms[0]) == pytest.approx(plain[0][1:], rel=1e-8)


def test_documents_of_one_length_have_one_degree_of_freedom_less_than_they_are() -> None:
    figures = np.array([3.0, 5.0, 4.0, 9.0, 2.0, 7.0])
    found = spread_of_documents(figures * 50, np.full(6, 50), np.arange(6))
    assert found.freedoms.tolist() == pytest.approx([5.0])
    assert found.deviations.tolist() == pytest.approx([figures.std(ddof=1) / math.sqrt(6)])
    assert found.reach(0.95) == pytest.approx(t.ppf(0.975, 5) * figures.std(ddof=1) / math.sqrt(6))


def test_one_shape_alone_is_the_equal_weighted_cosine_estimator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lazarus, Lewis, Stock and Watson: √n · mean / √Ω is Student's t with ν degrees of freedom, Ω = Σ Λ_j² / ν."""
    monkeypatch.setattr(spread, "MEMORIES", {0.0: 1.0})
    monkeypatch.setattr(spread, "CORRELATIONS", (0.0,))
    spread.spectra.cache_clear()
    values = np.random.default_rng(1).standard_normal(150)
    found = spread_of_stretch(values, np.ones(150, int))
    spread.spectra.cache_clear()
    waves = [
        math.sqrt(2 / 150) * (values * np.cos(math.pi * j * (np.arange(150) + 0.5) / 150)).sum()
        for j in range(1, COSINES + 1)
    ]
    omega = np.mean(np.square(waves))
    assert found.deviations.tolist() == pytest.approx([math.sqrt(omega / 150)])
    assert found.p(values.mean()) == pytest.approx(2 * t.sf(math.sqrt(150) * abs(values.mean()) / math.sqrt(omega), 6))


def test_how_many_cosines() -> None:
    """0.4 n^(2/3), so that more text is told in more of them, up to six."""
    assert [cosines(n) for n in (2, 3, 10, 30, 60, 90, 150, 10_000)] == [1, 1, 2, 4, 6, 6, 6, 6]
    sums = cosine_sums(np.arange(5.0))
    assert sums == pytest.approx(
        [math.sqrt(0.4) * sum(b * math.cos(math.pi * j * (b + 0.5) / 5) for b in range(5)) for j in range(1, 5)]
    )


def test_a_long_text_is_judged_by_its_slow_waves() -> None:
    draw = np.random.default_rng(2)
    scores, sizes = draw.standard_normal(3 * HEARD), np.ones(3 * HEARD, int)
    slow = np.fft.irfft(np.fft.rfft(scores)[: HEARD // 4], 3 * HEARD)  # the fast ones taken out
    assert spread_of_stretch(slow, sizes).deviations == pytest.approx(
        spread_of_stretch(scores, sizes).deviations, rel=0.05
    )


def test_one_block_tells_nothing_and_equal_blocks_leave_no_doubt() -> None:
    alone = spread_of_stretch(np.array([700.0]), np.array([1000]))
    assert math.isinf(alone.reach(0.95))
    assert alone.p(3.0) == 1
    assert alone.beside([(1.0, 2.0)]) is alone
    same = spread_of_stretch(np.full(40, 0.0), np.full(40, 1000))
    assert (same.reach(0.95), same.variance, same.p(0.0), same.p(1e-9)) == (0.0, 0.0, 1.0, 0.0)


def test_noise_stands_beside_the_text_s_own() -> None:
    """Welch and Satterthwaite by hand:  (4 + 5)² / (16/3 + 25/2)"""
    one = Spread(np.ones(1), np.array([2.0]), np.array([3.0]))
    both = one.beside([(5.0, 2.0)])
    assert (both.deviations[0], both.freedoms[0]) == pytest.approx((3.0, 81 / (16 / 3 + 25 / 2)))
    assert one.beside([(0.0, 2.0)]) is one
    assert one.times(3.0).reach(0.95) == pytest.approx(3 * one.reach(0.95))


def test_few_documents_are_read_as_one_stretch() -> None:
    draw = np.random.default_rng(3)
    scores, sizes = draw.standard_normal(60), np.ones(60, int)
    for count in (1, FEW_DOCUMENTS - 1):
        found = spread_of(scores, sizes, np.arange(60) * count // 60)
        assert found.deviations.tolist() == spread_of_stretch(scores, sizes).deviations.tolist()
    enough = np.arange(60) * FEW_DOCUMENTS // 60
    assert FEW_DOCUMENTS == 5
    assert spread_of(scores, sizes, enough).freedoms.tolist() == pytest.approx([4.0])
    assert spread_of(scores, sizes).weights.tolist() == spread_of_stretch(scores, sizes).weights.tolist()


# --------------------------------------------------------------------------- what it promises


def called(rows: Numbers) -> float:
    """The share of rows whose mean is taken for another one than 0."""
    sizes = np.ones(rows.shape[1], int)
    return float(np.mean([spread_of_stretch(row, sizes).p(row.mean()) < 0.05 for row in rows]))


@pytest.mark.parametrize(
    ("n", "rho", "most"), [(30, 0.5, 7), (150, 0.0, 7), (150, 0.5, 7), (150, 0.8, 10), (500, 0.3, 7)]
)
def test_neighbours_that_are_alike_are_no_evidence(n: int, rho: float, most: float) -> None:
    """Blocks drawn one by one call a quarter of the series of correlation 0.5 and half of those of 0.8."""
    draw = np.random.default_rng(4)
    found = 100 * called(neighbours_alike(draw, (1500, n), rho))
    assert 2.5 <= found <= most


def test_memory_is_allowed_for() -> None:
    """d = 0.3, 600 blocks: a test by cosines alone takes many of them for another mean."""
    rows = with_memory(np.random.default_rng(5), (400, 600), 0.3)
    assert called(rows) <= 0.1
    alone = [
        2 * t.sf(abs(row.mean()) * math.sqrt(300 / np.mean(cosine_sums(row)[:COSINES] ** 2)), COSINES) < 0.05
        for row in rows
    ]
    assert np.mean(alone) > 0.12


def test_a_difference_is_found_where_blocks_are_independent() -> None:
    """The least that is found in 80 % of the cases is at most 1.3 times that of Student's t over the blocks."""
    rows = np.random.default_rng(6).standard_normal((600, 150))
    least = 1.3 * 2.82 / math.sqrt(150)  # 1.976 + 0.844 standard errors
    assert called(rows + least) >= 0.8


def test_documents_cover_other_documents() -> None:
    """Twelve documents, each with a level of its own: 95 % intervals; as one stretch they would cover far less."""
    draw = np.random.default_rng(7)
    documents, sizes = np.repeat(np.arange(12), 10), np.ones(120, int)
    inside = 0
    for _ in range(400):
        scores = np.repeat(draw.standard_normal(12), 10) + 0.5 * draw.standard_normal(120)
        inside += abs(scores.mean()) <= spread_of(scores, sizes, documents).reach(0.95)
    assert 0.92 <= inside / 400 <= 0.98
