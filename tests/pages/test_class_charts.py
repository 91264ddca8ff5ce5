"""Pictures of a classifier: drawn without a warning for few and many classes, odd names and empty bins."""

import itertools
import math
import struct
import warnings
from typing import Any

import numpy as np
import pytest

from seqlab.pages import canvas, class_charts
from seqlab.pages.class_charts import accuracy_picture, confusion_picture, reliability_picture, slice_picture

ODD = ["plain", "$x_1$", "half a $", "a_b\\frac{", "a name that goes on and on and on, far longer than a cell is wide"]
BINS = [(0.31, 0.0, 0.0, 0.4, 3), (0.72, 0.6, 0.5, 0.7, 80), (1.0, 1.0, 0.96, 1.0, 90)]


def size_of(picture: bytes) -> tuple[int, int]:
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", picture[16:24])
    return width, height


@pytest.fixture(autouse=True)
def fine_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """As people see them."""
    monkeypatch.setattr(canvas, "DPI", 150)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were turned into PNG."""
    figures: list[Any] = []

    def keep(figure: Any) -> bytes:
        figures.append(figure)
        return canvas.png(figure)

    monkeypatch.setattr(class_charts, "png", keep)
    return figures


def confusion(kinds: int) -> np.ndarray:
    return np.random.default_rng(kinds).integers(0, 9, (kinds, kinds)) + 1000 * np.eye(kinds, dtype=int)


@pytest.mark.parametrize("kinds", [1, 2, 12])
def test_every_cell_has_its_count(kinds: int, drawn: list[Any]) -> None:
    counts = confusion(kinds)
    names = [f"{ODD[k % 5]} {k}" for k in range(kinds)]
    width, height = size_of(confusion_picture(counts, names, "a_model on $ texts"))
    assert 500 < height < 2400
    assert 500 < width < 2400
    axes = drawn[0].axes[0]
    assert [text.get_text() for text in axes.texts] == [f"{count:,}" for count in counts.flat]
    shares = np.asarray(axes.images[0].get_array())
    assert shares == pytest.approx(100 * counts / counts.sum(1, keepdims=True))
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(set(labels)) == kinds  # shortened names are still told apart
    assert labels == [label.get_text() for label in axes.get_xticklabels()]
    assert not any(label.get_parse_math() for label in [*axes.get_yticklabels(), *axes.get_xticklabels(), axes.title])
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("true class", "predicted class")


@pytest.mark.parametrize(("kinds", "most"), [(2, 9_999_999), (20, 999_999)])
def test_counts_stay_in_their_cells_and_can_be_read(kinds: int, most: int, drawn: list[Any]) -> None:
    confusion_picture(np.full((kinds, kinds), most), [f"class {k}" for k in range(kinds)], "full")
    axes = drawn[0].axes[0]
    cell = axes.get_window_extent().width / kinds
    assert all(text.get_window_extent().width < cell for text in axes.texts)
    assert min(text.get_fontsize() for text in axes.texts) >= 6


def test_of_many_classes_those_with_most_errors_are_shown(drawn: list[Any]) -> None:
    counts = np.eye(45, dtype=np.int64) * 50
    counts[np.arange(1, 41, 2), 0] = 3  # the odd classes up to 39 are missed, and called class 0
    names = [f"class {k}" for k in range(45)]
    size_of(confusion_picture(counts, names, "many"))
    axes = drawn[0].axes[0]
    assert axes.get_title() == "many (the 20 of 45 classes with most errors)"
    shown = [label.get_text() for label in axes.get_yticklabels()]
    assert shown == [f"class {k}" for k in (0, *range(1, 38, 2))]
    assert axes.images[0].get_array()[1, 1] == pytest.approx(100 * 50 / 53)


def test_a_class_without_texts_is_an_empty_row() -> None:
    size_of(confusion_picture(np.array([[3, 1], [0, 0]]), ["a", "b"], "one class only"))


def test_reliability_before_and_after(drawn: list[Any]) -> None:
    after = [(0.4, 0.4, 0.2, 0.6, 20), (0.81, 0.8, 0.79999, 0.9, 153)]
    assert size_of(reliability_picture(BINS, after, 0.124, 0.031, "$ and _")) == (1080, 960)
    upper, lower = drawn[0].axes
    labels = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert labels == [
        "as sure as right",
        "before (calibration error 12.4 %)",
        "after temperature (calibration error 3.1 %)",
    ]
    bars = [(bar.get_x(), bar.get_x() + bar.get_width(), bar.get_height()) for bar in lower.patches]
    assert [height for *_, height in bars] == [3, 80, 90, 20, 153]
    for (left, right, _), (confidence, *_) in zip(bars, [*BINS, *after], strict=True):
        low = (math.ceil(confidence * 15) - 1) / 15  # each bar within the bin of its confidence
        assert 100 * low <= left < right <= 100 * (low + 1 / 15) + 1e-9
    looks = {(line.get_color(), line.get_marker()) for line in upper.lines if line.get_marker() in ("o", "s")}
    assert len(looks) == 2


@pytest.mark.parametrize(("before", "after"), [([], None), ([], []), (BINS[:1], BINS[1:])])
def test_reliability_with_few_bins_or_none(before: list[Any], after: list[Any] | None) -> None:
    size_of(reliability_picture(before, after, 0.1, None if after is None else 0.05, "few"))


def test_slices_grow_downwards_and_show_the_whole(drawn: list[Any]) -> None:
    one = size_of(slice_picture([("one", 0.2, 0.18, 0.22, 1234)], 0.05))
    many = size_of(slice_picture([(name, 0.2, 0.1, 0.3, 9) for name in ODD * 3], 0.9))
    assert one[0] == many[0]
    assert one[1] < many[1]
    first, second = (figure.axes[0] for figure in drawn)
    assert first.get_yticklabels()[0].get_text() == "one (n = 1,234)"
    assert first.get_xlabel() == "error rate (% of texts)"
    for axes, overall in ((first, 5), (second, 90)):
        low, high = axes.get_xlim()
        assert low < overall < high
    heights = [text.get_position()[1] for text in second.get_yticklabels()]
    assert heights == sorted(heights)
    assert second.yaxis_inverted()
    boxes = [label.get_window_extent() for label in second.get_yticklabels()]
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))


@pytest.mark.parametrize(
    "rows", [[], [("nothing", math.nan, 0.0, 1.0, 0)], [("right", 0.0, 0.0, 0.04, 90), ("$", 1.0, 0.7, 1.0, 4)]]
)
def test_slices_at_the_edges(rows: list[Any]) -> None:
    size_of(slice_picture(rows, 0.0))


@pytest.mark.parametrize("count", [1, 5])
def test_accuracies_of_the_model_and_its_baselines(count: int, drawn: list[Any]) -> None:
    rows = [(name, 0.8 + k / 50, 0.78, 0.92) for k, name in enumerate(ODD[:count])]
    size_of(accuracy_picture(rows))
    axes = drawn[0].axes[0]
    assert [text.get_text() for text in axes.texts] == [f"{80 + 2 * k:.1f}" for k in range(count)]
    assert axes.get_xlabel() == "accuracy (% of texts)"
    low, high = axes.get_xlim()
    assert low < 78 < 92 < high <= 101


def test_letters_that_the_font_lacks_are_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert confusion_picture(np.array([[1, 2], [0, 3]]), ["坏", "ดี"], "test").startswith(b"\x89PNG")
