"""Small tables of labelled texts, made on the spot."""

import csv
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

PRAISE = ["good", "great", "fine", "lovely", "bright", "warm", "funny", "clever"]
BLAME = ["bad", "poor", "dull", "dreary", "cold", "weak", "tired", "silly"]
PLAIN = ["the", "film", "a", "story", "with", "people", "in", "some", "town", "and", "its", "long", "music", "days"]
Rows = Iterable[tuple[str, ...]]


def reviews(count: int, seed: int = 0, *, words: int = 9) -> list[tuple[str, str]]:
    """Texts of plain words with one or two that tell the label, nine times in ten."""
    draw = random.Random(seed)
    rows = []
    for k in range(count):
        label = "positive" if k % 2 else "negative"
        telling = (PRAISE if (label == "positive") == (draw.random() < 0.9) else BLAME) + []
        text = [draw.choice(PLAIN) for _ in range(draw.randint(3, words))]
        for _ in range(2):
            text.insert(draw.randrange(len(text) + 1), draw.choice(telling))
        rows.append((f"{' '.join(text)} {k}", label))
    return rows


@pytest.fixture
def write_table(tmp_path: Path) -> Callable[..., Path]:
    def write(rows: Rows, name: str = "reviews.csv", header: tuple[str, ...] = ("text", "label")) -> Path:
        path = tmp_path / name
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows(rows)
        return path

    return write


@pytest.fixture
def table(write_table: Callable[..., Path]) -> Path:
    return write_table(reviews(240))
