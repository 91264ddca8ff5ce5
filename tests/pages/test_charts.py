"""Pictures of runs and duels: every curve where it belongs, on the axis that says so."""

from typing import Any

import pytest

from seqlab.pages import canvas, charts
from seqlab.pages.charts import CurveOfRun, duel_curves, loss_curve


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were turned into PNG."""
    figures: list[Any] = []

    def keep(figure: Any) -> bytes:
        figures.append(figure)
        return canvas.png(figure)

    monkeypatch.setattr(charts, "png", keep)
    return figures


def lines_of(axes: Any) -> list[tuple[list[float], list[float]]]:
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]


DUEL = {
    "gru": [
        CurveOfRun([1.0, 2.0, 4.0], [1e3, 2e3, 3e3], [5.0, 3.0, 2.0]),
        CurveOfRun([3.0, 4.0], [1e3, 2e3], [4.0, 2.0]),
    ],
    "lstm": [CurveOfRun([2.0, 8.0], [4e3, 9e3], [4.0, 1.5])],
    "ngram (fitted)": [CurveOfRun([0.5], [7e6], [2.5])],
}


def test_a_duel_s_curves_run_over_seconds_on_the_left_and_tokens_on_the_right(drawn: list[Any]) -> None:
    picture = duel_curves(DUEL, "a title", label="bits per byte", counted="tokens")
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    seconds, tokens = drawn[0].axes
    assert (seconds.get_xlabel(), seconds.get_ylabel()) == ("training time (seconds)", "bits per byte")
    assert (tokens.get_xlabel(), tokens.get_ylabel()) == ("tokens trained on", "")
    single = [([1.0, 2.0, 4.0], [5.0, 3.0, 2.0]), ([3.0, 4.0], [4.0, 2.0])]
    mean = ([2.0, 3.0], [4.5, 2.5])  # as far as both runs went
    level = ([0, 1], [2.5, 2.5])  # what is fitted has no way to its value: a line across
    assert lines_of(seconds) == [*single, mean, ([2.0, 8.0], [4.0, 1.5]), level]
    single = [([1e3, 2e3, 3e3], [5.0, 3.0, 2.0]), ([1e3, 2e3], [4.0, 2.0])]
    assert lines_of(tokens) == [*single, ([1e3, 2e3], [4.5, 2.5]), ([4e3, 9e3], [4.0, 1.5]), level]
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == list(DUEL)
    for axes in (seconds, tokens):
        assert axes.get_xlim()[0] == 0
        assert len({line.get_color() for line in axes.lines}) == len(DUEL)


def ticks_of(axes: Any) -> list[str]:
    low, high = axes.get_xlim()
    return [tick.get_text() for tick in axes.get_xticklabels() if low <= tick.get_position()[0] <= high]


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (200_000.0, ["0", "50 K", "100 K", "150 K", "200 K"]),
        (1.25e6, ["0", "200 K", "400 K", "600 K", "800 K", "1 M", "1.2 M"]),
        (3.0, ["0", "1", "2", "3"]),
    ],
)
def test_the_axis_of_tokens_has_units_that_suit_it(drawn: list[Any], most: float, ticks: list[str]) -> None:
    duel_curves({"gru": [CurveOfRun([1.0, 2.0], [1.0, most], [2.0, 1.0])]}, "", label="", counted="tokens")
    loss_curve([(1.0, 2.0), (most, 1.0)], [], counted="tokens", unit="nats_per_token", title="")
    for axes in (drawn[0].axes[1], drawn[1].axes[0]):
        assert axes.get_xlabel() == "tokens trained on"
        assert [tick for tick in ticks_of(axes) if tick in ticks] == ticks


def test_the_best_validation_is_ringed_and_named_beside_the_curves(drawn: list[Any]) -> None:
    """No words stand among the curves, where they would hide or be hidden by something."""
    validation = [(10.0, 3.0), (20.0, 2.5), (30.0, 2.75)]
    loss_curve([(5.0, 4.0), (30.0, 2.0)], validation, counted="tokens", unit="nats_per_token", title="a title")
    (axes,) = drawn[0].axes
    assert not axes.texts
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["training", "validation", "best: 2.500"]
    assert lines_of(axes)[-1] == ([20.0], [2.5])


def test_a_late_rise_of_a_duel_s_curve_stays_in_sight(drawn: list[Any]) -> None:
    """The first tenth of the way may be cut off at the top, nothing else."""
    values = [9.0, 8.0, 3.0, *[2.0] * 16, 4.0]
    duel_curves({"gru": [CurveOfRun([*map(float, range(20))], [1.0] * 20, values)]}, "", label="", counted="tokens")
    assert drawn[0].axes[0].get_ylim() == pytest.approx((2.0 - 0.12, 4.0 + 0.12))
